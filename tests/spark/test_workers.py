"""Spark's workers are not kept busy by what they have loaded, nor kept waiting by how Spark talks to them."""

import gc
import pickle
import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_omnigraph import workers


def freezing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Settle more often than there is anything to load; tell how many objects the collector no longer looks at."""
    import gc

    from pyspark_omnigraph.workers import LOADS_MAX, settle

    assert sum(batch.num_rows for batch in batches) == 1
    frozen = []
    for _ in range(LOADS_MAX + 2):
        kept = [[] for _ in range(100)]  # type: ignore[var-annotated]
        settle()
        frozen.append(gc.get_freeze_count())
        del kept
    yield pa.RecordBatch.from_pydict({"frozen": pa.array(frozen, pa.int64())})


def acknowledging(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell which connections acknowledge at once, before and after a task begins as ours do."""
    import os
    import socket

    from pyspark_omnigraph import workers

    def quick() -> list[bool]:
        told = []
        for each in workers.OPEN_FILES.iterdir():
            try:
                with socket.socket(fileno=os.dup(int(each.name))) as found:
                    if found.family == socket.AF_INET and found.getpeername():
                        told.append(bool(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)))
            except OSError:
                continue
        return told

    before = quick()
    workers.begin()
    after = quick()
    assert sum(batch.num_rows for batch in batches) == 1
    yield pa.RecordBatch.from_pydict({"before": [all(before)], "after": [all(after)], "connections": [len(after)]})


@pytest.mark.skipif(workers.QUICK_ACK is None, reason="only Linux can be told when to acknowledge")
def test_a_worker_that_was_used_before_acknowledges_its_task_at_once(spark: SparkSession) -> None:
    asked = spark.range(1).coalesce(1).mapInArrow(acknowledging, "before boolean, after boolean, connections long")
    found = [asked.collect()[0] for _ in range(4)]
    assert all(row.connections > 0 and row.after for row in found), found
    assert not all(row.before for row in found), "or there is no longer anything to do"


class Sent(workers.Unpacked):
    """Something a task is sent."""

    def __init__(self) -> None:
        self.words = ["read", "this"]


def test_what_a_task_is_sent_arrives_whole() -> None:
    assert pickle.loads(pickle.dumps(Sent())).words == ["read", "this"]


def test_connections_of_a_driver_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[socket.socket] = []

    def note(found: socket.socket) -> bool:
        looked_at.append(found)
        return False

    monkeypatch.setattr(workers, "_is_of_this_machine", note)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        workers.acknowledge()
        assert looked_at == []
        monkeypatch.setattr(workers, "_is_worker", lambda: True)
        workers.acknowledge()
        assert looked_at, "a worker looks at its own"


def test_only_connections_to_this_machine_are_hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_is_worker", lambda: True)
    left, right = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert workers._is_of_this_machine(client)
        assert not workers._is_of_this_machine(left)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            assert not workers._is_of_this_machine(datagrams)
        workers.acknowledge()  # the server has no other end, and the pair no such setting: neither matters
        client.sendall(b"still open")
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(10) == b"still open"
    left.close()
    right.close()


def test_a_worker_no_longer_looks_for_garbage_among_its_modules(spark: SparkSession) -> None:
    found = [row.frozen for row in spark.range(1).coalesce(1).mapInArrow(freezing, "frozen long").collect()]
    assert found[0] > 10_000, "modules have many objects"
    assert found[-1] == found[-2], "what comes later is ordinary again"


def test_a_driver_is_left_alone() -> None:
    before = gc.get_freeze_count()
    workers.settle()
    assert gc.get_freeze_count() == before
