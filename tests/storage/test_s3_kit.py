import http.client
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from obstore.exceptions import GenericError

from omnigraph.errors import ObjectExistsError, OmnigraphError, StorageError
from omnigraph.storage import objects as objects_module
from omnigraph.storage.objects import ObstoreObjects, open_objects
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.s3_proxy import Request, S3Proxy
from omnigraph.testing.s3_server import SeaweedServer

pytestmark = pytest.mark.s3

CANARY = "canary/Of+The=Secret0123"


@pytest.fixture
def proxy(s3_server: SeaweedServer) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def uri(s3_root: Callable[[], str]) -> str:
    return s3_root()


@pytest.fixture
def direct(s3_server: SeaweedServer, uri: str) -> ObstoreObjects:
    return open_objects(GraphRoot.parse(uri, s3_server.storage_options()))


@pytest.fixture
def watched(s3_server: SeaweedServer, proxy: S3Proxy, uri: str) -> ObstoreObjects:
    return open_objects(GraphRoot.parse(uri, s3_server.storage_options() | {"aws_endpoint": proxy.endpoint}))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "RETRIES_MAX", 1)


def _seen(proxy: S3Proxy) -> list[tuple[str, int | None]]:
    return [(request.method, request.status) for request in proxy.requests]


def test_the_server_listens_on_the_loopback_address_alone(s3_server: SeaweedServer) -> None:
    with open(f"/proc/{s3_server.pid}/net/tcp") as table:  # noqa: PTH123
        listening = {line.split()[1] for line in table if line.split()[3] == "0A"}
    port = int(s3_server.endpoint.rpartition(":")[2])
    assert f"0100007F:{port:04X}" in listening
    assert f"00000000:{port:04X}" not in listening


def test_the_proxy_records_every_request_with_its_answer(watched: ObstoreObjects, proxy: S3Proxy, uri: str) -> None:
    watched.put("a/b", b"1")
    with pytest.raises(ObjectExistsError):
        watched.put_if_absent("a/b", b"2")
    assert watched.get("a/b") == b"1"
    assert watched.head("a/b").size == 1
    assert len(list(watched.list("a"))) == 1
    watched.delete(["a/b"])
    assert _seen(proxy) == [("PUT", 200), ("PUT", 412), ("GET", 200), ("HEAD", 200), ("GET", 200), ("POST", 200)]
    assert [request.index for request in proxy.requests] == [1, 2, 3, 4, 5, 6]
    assert proxy.requests[0].path == f"/{uri.removeprefix('s3://')}/a/b"
    assert "list-type=2" in proxy.requests[4].query
    assert [request.mutates for request in proxy.requests] == [True, True, False, False, False, True]
    assert [request.is_conditional for request in proxy.requests] == [False, True, False, False, False, False]
    assert [request.bytes_up for request in proxy.requests][:5] == [1, 1, 0, 0, 0]
    assert all(one.ended <= two.begun for one, two in pairwise(proxy.requests))
    assert (proxy.requests[2].bytes_down, proxy.requests[3].bytes_down) == (1, 0)
    proxy.reset()
    assert proxy.requests == ()


def test_bodies_pass_the_proxy_unchanged(watched: ObstoreObjects, direct: ObstoreObjects) -> None:
    body = os.urandom(3_000_000)
    watched.put("big", body)
    watched.put("empty", b"")
    assert direct.get("big") == body == watched.get("big")
    assert watched.get("empty") == b""


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked: the status of the path, and a body that tells the request."""

    protocol_version = "HTTP/1.1"

    def _tell(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        told = f"{self.command} {self.headers['Host']} {self.headers.get('Range')}\n".encode() + sent
        status = int(self.path.strip("/"))
        self.send_response(status)
        self.send_header("ETag", '"tag"')
        if status != 304:
            self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(told)

    do_GET = do_HEAD = do_PUT = _tell  # noqa: N815

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def line_to_an_echo() -> Iterator[http.client.HTTPConnection]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.05,))
        thread.start()
        with S3Proxy(f"http://127.0.0.1:{echo.server_port}") as proxy:
            line = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
            yield line
            line.close()
        echo.shutdown()
        thread.join()


def test_every_kind_of_message_passes_on_one_connection(line_to_an_echo: http.client.HTTPConnection) -> None:
    def ask(
        method: str, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str
    ) -> tuple[int, str | None, bytes]:
        line_to_an_echo.request(method, path, body, {"Host": "signed.example", **headers})
        answer = line_to_an_echo.getresponse()
        assert answer.headers["ETag"] == '"tag"'
        return answer.status, answer.headers["Content-Length"], answer.read()

    assert ask("PUT", "/200", b"body") == (200, "28", b"PUT signed.example None\nbody")
    assert ask("PUT", "/412", iter([b"chu", b"nks"])) == (412, "30", b"PUT signed.example None\nchunks")
    assert ask("GET", "/206", Range="bytes=1-2") == (206, "29", b"GET signed.example bytes=1-2\n")
    assert ask("HEAD", "/200") == (200, "25", b"")
    assert ask("GET", "/304")[::2] == (304, b"")
    assert ask("GET", "/404") == (404, "24", b"GET signed.example None\n")


def test_lance_writes_and_reads_ranges_through_the_proxy(s3_server: SeaweedServer, proxy: S3Proxy, uri: str) -> None:
    program = (
        "import sys, lance, pyarrow as pa\n"
        "options = dict(pair.split('=', 1) for pair in sys.argv[2:])\n"
        "table = pa.table({'a': range(300_000), 'b': [str(n) for n in range(300_000)]})\n"
        "lance.write_dataset(table, sys.argv[1], storage_options=options)\n"
        "dataset = lance.dataset(sys.argv[1], storage_options=options)\n"
        "found = dataset.to_table(columns=['a'], offset=250_000, limit=10)\n"
        "assert found['a'].to_pylist() == list(range(250_000, 250_010))\n"
    )
    root = GraphRoot.parse(uri, s3_server.storage_options() | {"aws_endpoint": proxy.endpoint})
    options = [f"{key}={value}" for key, value in root.options.for_clients().items()]
    subprocess.run([sys.executable, "-c", program, root.uri("nodes/table"), *options], check=True, timeout=120)
    statuses = {status for _, status in _seen(proxy)}
    assert {200, 206} <= statuses
    assert None not in statuses
    assert len([request for request in proxy.requests if request.mutates]) >= 3


def test_options_reach_both_clients_against_a_misleading_environment(s3_server: SeaweedServer, uri: str) -> None:
    program = (
        "import sys, lance, pyarrow as pa\n"
        "from omnigraph.storage.objects import open_objects; from omnigraph.storage.roots import GraphRoot\n"
        "root = GraphRoot.parse(sys.argv[1], dict(pair.split('=', 1) for pair in sys.argv[2:]))\n"
        "open_objects(root).put('a', b'1')\n"
        "lance.write_dataset(pa.table({'a': [1]}), root.uri('t'), storage_options=root.options.for_clients())\n"
    )
    nowhere = "http://127.0.0.1:1"
    misleading = {
        "AWS_ENDPOINT": nowhere,
        "AWS_ENDPOINT_URL": nowhere,
        "AWS_ENDPOINT_URL_S3": nowhere,
        "AWS_ACCESS_KEY_ID": "wrong",
        "AWS_SECRET_ACCESS_KEY": "wrong",
        "AWS_SESSION_TOKEN": "wrong",
    }
    given = [f"{key}={value}" for key, value in s3_server.storage_options().items()]
    subprocess.run([sys.executable, "-c", program, uri, *given], check=True, timeout=120, env=os.environ | misleading)
    keys = s3_server.storage_options()
    right = {
        "AWS_ENDPOINT_URL_S3": keys["aws_endpoint"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": keys["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": keys["aws_secret_access_key"],
    }
    subprocess.run([sys.executable, "-c", program, uri + "-2"], check=True, timeout=120, env=os.environ | right)


@pytest.mark.usefixtures("impatient")
def test_a_cut_before_keeps_the_request_from_the_store(
    watched: ObstoreObjects, direct: ObstoreObjects, proxy: S3Proxy
) -> None:
    calls: list[str] = []
    proxy.cut_at(2, when="before", do=lambda: calls.append("cut"), only=lambda request: request.mutates)
    watched.put("one", b"1")
    assert watched.get("one") == b"1"
    with pytest.raises(StorageError, match="did not answer") as cut:
        watched.put("two", b"2")
    assert cut.value.facts["reason"] == "unreachable"
    assert calls == ["cut"] and proxy.is_cut
    with pytest.raises(StorageError):
        watched.get("one")
    assert [info.key for info in direct.list()] == ["one"]
    assert set(_seen(proxy)[2:]) == {("PUT", None), ("GET", None)}


@pytest.mark.usefixtures("impatient")
def test_a_cut_after_lets_the_store_apply_what_the_client_never_hears_of(
    watched: ObstoreObjects, direct: ObstoreObjects, proxy: S3Proxy
) -> None:
    proxy.cut_at(1, when="after")
    with pytest.raises(StorageError):
        watched.put("one", b"1")
    assert direct.get("one") == b"1"
    assert _seen(proxy)[0] == ("PUT", 200)
    proxy.reset()
    assert watched.get("one") == b"1"


def test_a_create_whose_answer_is_lost_meets_its_own_object(
    watched: ObstoreObjects, direct: ObstoreObjects, proxy: S3Proxy
) -> None:
    # Why the interface tells callers to compare the body: the client repeats the request by itself.
    proxy.cut_at(1, when="after", do=proxy.reset)
    with pytest.raises(ObjectExistsError):
        watched.put_if_absent("one", b"mine")
    assert direct.get("one") == b"mine"


def test_a_conflict_answer_is_not_taken_for_an_existing_object(
    watched: ObstoreObjects, direct: ObstoreObjects, proxy: S3Proxy
) -> None:
    answers = iter([409, 409])
    proxy.on_request = lambda request: next(answers, None)
    watched.put_if_absent("one", b"1")
    assert direct.get("one") == b"1"
    proxy.on_request = lambda request: 409
    with pytest.raises(StorageError, match="try again") as conflict:
        watched.put_if_absent("two", b"2")
    assert conflict.value.facts["reason"] == "conflict"


def test_a_busy_store_is_asked_again(watched: ObstoreObjects, proxy: S3Proxy) -> None:
    answers = iter([503, 500])
    proxy.on_request = lambda request: next(answers, None)
    watched.put("one", b"1")
    assert [status for _, status in _seen(proxy)] == [503, 500, 200]


def test_the_cut_kills_a_real_process_at_the_exact_request(
    s3_server: SeaweedServer, proxy: S3Proxy, direct: ObstoreObjects, uri: str
) -> None:
    program = (
        "import sys\n"
        "from omnigraph.storage.objects import open_objects; from omnigraph.storage.roots import GraphRoot\n"
        "store = open_objects(GraphRoot.parse(sys.argv[1], dict(pair.split('=', 1) for pair in sys.argv[2:])))\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for number in range(10): store.put(f'{number}', b'')\n"
    )
    options = s3_server.storage_options() | {"aws_endpoint": proxy.endpoint}
    command = [sys.executable, "-c", program, uri, *(f"{key}={value}" for key, value in options.items())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None and child.stdout.readline() == b"ready\n"
        proxy.cut_at(4, when="after", do=child.kill)
        child.stdin.write(b"go\n")
        child.stdin.flush()
        assert child.wait(30) == -signal.SIGKILL
    assert sorted(info.key for info in direct.list()) == ["0", "1", "2", "3"]


def test_many_clients_are_counted_without_loss(watched: ObstoreObjects, proxy: S3Proxy) -> None:
    threads = [threading.Thread(target=watched.put, args=(f"{number}", b"")) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [request.index for request in proxy.requests] == list(range(1, 21))
    assert len({request.path for request in proxy.requests}) == 20


def test_latency_is_added_to_every_request(watched: ObstoreObjects, proxy: S3Proxy) -> None:
    proxy.latency_seconds = 0.2
    began = time.monotonic()
    watched.put("one", b"")
    assert time.monotonic() - began >= 0.2


def test_a_request_is_a_value() -> None:
    assert Request(index=1, method="GET", path="/b/k", query="") == Request(
        index=1, method="GET", path="/b/k", query=""
    )


def test_a_reader_reads_and_every_write_of_it_says_what_is_missing(
    s3_server: SeaweedServer, direct: ObstoreObjects, uri: str
) -> None:
    direct.put("a/b", b"1")
    reader = open_objects(GraphRoot.parse(uri, s3_server.storage_options(read_only=True)))
    assert reader.get("a/b") == b"1"
    assert [info.key for info in reader.list()] == ["a/b"]
    writes: list[tuple[str, Callable[[], None]]] = [
        ("put", lambda: reader.put("a/b", b"2")),
        ("put", lambda: reader.put_if_absent("a/c", b"2")),
        ("delete", lambda: reader.delete(["a/b"])),
    ]
    for operation, write in writes:
        with pytest.raises(StorageError, match="permission denied: grant") as refused:
            write()
        assert refused.value.facts["reason"] == "permission"
        assert refused.value.facts["operation"] == operation
    assert direct.get("a/b") == b"1"


def test_a_missing_bucket_is_not_a_missing_object(s3_server: SeaweedServer) -> None:
    nowhere = open_objects(GraphRoot.parse("s3://no-such-bucket/x", s3_server.storage_options(read_only=True)))
    for use in (lambda: nowhere.get("a"), lambda: list(nowhere.list())):
        with pytest.raises(StorageError, match="bucket does not exist: create it"):
            use()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "wrong",
    [
        {"aws_secret_access_key": CANARY},
        {"aws_access_key_id": CANARY},
        {"aws_session_token": CANARY},
        {"aws_secret_access_key": CANARY, "aws_endpoint": "http://127.0.0.1:1"},
    ],
    ids=["secret", "id", "token", "unreachable"],
)
def test_a_secret_never_shows_in_errors_representations_or_pickles(
    s3_server: SeaweedServer, uri: str, wrong: dict[str, str]
) -> None:
    store = open_objects(GraphRoot.parse(uri, s3_server.storage_options() | wrong))
    shown = [repr(store), repr(store.root), str(store.root), repr(store.root.options)]
    attempts: list[Callable[[], object]] = [
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: list(store.list("a")),
        lambda: store.delete(["a"]),
        lambda: store.get(f"key-with-{CANARY}"),
    ]
    for attempt in attempts:
        with pytest.raises(OmnigraphError) as refused:
            attempt()
        error = refused.value
        shown += [str(error), repr(error), repr(error.facts), repr(error.to_dict()), str(pickle.dumps(error))]
        shown += traceback.format_exception(error)
    assert [text for text in shown if CANARY in text or CANARY.replace("/", "%2F") in text] == []


def test_a_cause_that_holds_a_secret_is_not_kept(
    s3_server: SeaweedServer, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leak(*_: object, **__: object) -> None:
        raise GenericError(f"signed with {CANARY}")

    monkeypatch.setattr("obstore.put", leak)
    store = open_objects(GraphRoot.parse(uri, s3_server.storage_options() | {"aws_secret_access_key": CANARY}))
    with pytest.raises(StorageError, match=r"signed with \*\*\*") as refused:
        store.put("a", b"")
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
