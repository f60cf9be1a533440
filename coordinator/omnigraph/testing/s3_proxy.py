"""A loopback proxy in front of an S3 endpoint: records every request, and cuts the line where a test says."""

import contextlib
import http.client
import math
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

__all__ = ["Request", "S3Proxy"]

HOST = "127.0.0.1"
UPSTREAM_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 60.0
CLOSE_SECONDS_MAX = 5.0

_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect")
)
_CONDITIONS = ("If-None-Match", "If-Match")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it passed; ``index`` counts arrivals from 1, ``status`` is None while nothing answered."""

    index: int
    method: str
    path: str
    query: str
    status: int | None = None
    is_conditional: bool = False
    """Whether it asks for something only if the store holds, or does not hold, something."""
    bytes_up: int = 0
    bytes_down: int = 0
    """The bodies' sizes; what was not answered has brought nothing down."""
    begun: float = 0.0
    ended: float = math.inf
    """When it arrived and when it was answered, by the clock that only goes forward."""

    @property
    def mutates(self) -> bool:
        """Whether the request may change what the store holds."""
        return self.method in ("PUT", "POST", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    at: int
    when: Literal["before", "after"]
    do: Callable[[], object]
    only: Callable[[Request], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_Verdict = Literal["pass", "drop", "cut before", "cut after"]


class S3Proxy:
    """Context manager: clients use ``endpoint``; requests reach ``target`` with their Host, so signatures hold."""

    def __init__(self, target: str, *, latency_seconds: float = 0.0) -> None:
        self.latency_seconds = latency_seconds
        self.on_request: Callable[[Request], int | None] | None = None
        """Sees every request before it is forwarded; a number it returns is answered instead."""
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._cut: _Cut | None = None
        self._matched = 0
        self._is_cut = False
        self._run = 0
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._server = _Server(self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        assert self._server is not None and self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._server.close_clients()
        self._thread.join(CLOSE_SECONDS_MAX)

    @property
    def endpoint(self) -> str:
        """The URL clients connect to instead of the target's."""
        assert self._server is not None, "use the proxy in a with block"
        return f"http://{HOST}:{self._server.server_port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request since the last reset, in order of arrival."""
        with self._lock:
            return tuple(self._requests)

    @property
    def is_cut(self) -> bool:
        """Whether the cut happened: from then on nothing passes until ``reset``."""
        with self._lock:
            return self._is_cut

    def reset(self) -> None:
        """Forget requests and cut; everything passes again."""
        with self._lock:
            self._requests = []
            self._cut = None
            self._matched = 0
            self._is_cut = False
            self._run += 1

    def cut_at(
        self,
        k: int,
        *,
        when: Literal["before", "after"] = "before",
        do: Callable[[], object] = lambda: None,
        only: Callable[[Request], bool] = lambda request: True,
    ) -> None:
        """At the k-th request from now that ``only`` counts, call ``do`` and let nothing pass any more.

        ``before``: the store never sees that request. ``after``: the store has applied it, the client hears nothing.
        """
        assert k >= 1, "requests are counted from 1"
        with self._lock:
            self._cut = _Cut(at=k, when=when, do=do, only=only)
            self._matched = 0
            self._is_cut = False

    def _admit(self, handler: "_Handler", body: bytes | None) -> tuple[int, Request, _Verdict, _Cut | None]:
        """Record an arrival and decide its fate; returns the run it belongs to."""
        parts = urlsplit(handler.path)
        with self._lock:
            request = Request(
                index=len(self._requests) + 1,
                method=handler.command,
                path=parts.path,
                query=parts.query,
                is_conditional=any(name in handler.headers for name in _CONDITIONS),
                bytes_up=len(body or b""),
                begun=time.monotonic(),
            )
            self._requests.append(request)
            if self._is_cut:
                return self._run, request, "drop", None
            cut = self._cut
            if cut is None or not cut.only(request):
                return self._run, request, "pass", None
            self._matched += 1
            if self._matched != cut.at:
                return self._run, request, "pass", None
            self._is_cut = True
            return self._run, request, "cut before" if cut.when == "before" else "cut after", cut

    def _note(self, run: int, request: Request, answer: _Answer) -> None:
        with self._lock:
            if run == self._run:
                self._requests[request.index - 1] = replace(
                    request, status=answer.status, bytes_down=len(answer.body), ended=time.monotonic()
                )

    def _answer(self, handler: "_Handler") -> _Answer | None:
        """Return what the client hears of one request; None means the connection is cut."""
        body = handler.read_body()
        run, request, verdict, cut = self._admit(handler, body)
        if verdict == "drop":
            return None
        if self.latency_seconds:
            time.sleep(self.latency_seconds)
        if verdict == "cut before" and cut is not None:
            cut.do()
            return None
        refusal = self.on_request(request) if self.on_request else None
        answer = _Answer(status=refusal, headers=(), body=b"") if refusal else self._forward(handler, body)
        self._note(run, request, answer)
        if verdict == "cut after" and cut is not None:
            cut.do()
            return None
        return answer

    def _forward(self, handler: "_Handler", body: bytes | None) -> _Answer:
        connection = http.client.HTTPConnection(self._target, timeout=UPSTREAM_SECONDS_MAX)
        try:
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            data = response.read()
            kept = tuple((n, v) for n, v in response.getheaders() if n.lower() not in _HOP_BY_HOP)
            return _Answer(status=response.status, headers=kept, body=data)
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: "Callable[[_Handler], _Answer | None]") -> None:
        self.answer = answer
        self._clients: set[socket.socket] = set()
        self._clients_changed = threading.Condition()
        super().__init__((HOST, 0), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._clients_changed:
            self._clients.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._clients_changed:
                self._clients.discard(request)
                self._clients_changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that is killed on purpose leaves its connection broken."""

    def close_clients(self) -> None:
        """Hang up on everybody and wait until their threads are done."""
        with self._clients_changed:
            for client in self._clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._clients_changed.wait_for(lambda: not self._clients, CLOSE_SECONDS_MAX)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS_MAX
    disable_nagle_algorithm = True
    server: _Server

    def read_body(self) -> bytes | None:
        """Return the request's body, chunks joined; None when it has none."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        length = self.headers.get("Content-Length")
        return None if length is None else self.rfile.read(int(length))

    def _read_chunks(self) -> bytes:
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(chunks)

    def _pass_on(self) -> None:
        try:
            answer = self.server.answer(self)
        except (OSError, http.client.HTTPException):
            answer = None
        if answer is None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(answer.status)
        bodiless = self.command == "HEAD" or answer.status in (204, 304)
        for name, value in answer.headers:
            if bodiless or name.lower() != "content-length":
                self.send_header(name, value)
        if not bodiless:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not bodiless:
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815  (the names the library looks for)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: ``requests`` is the log."""
