"""What OpenTelemetry is told of operations, by its real SDK, and that nothing needs it."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.engine.observed_kit import ONE_RECORD, die, graph

import omnigraph as og
from omnigraph import observing, telemetry
from omnigraph.engine.changes import AddTogether
from omnigraph.errors import VersionConflictError
from omnigraph.ids import is_ulid

__all__ = ["graph"]  # a fixture


def _number(point: Any) -> float:
    """Return what was counted, or how many times something was measured."""
    return float(point.value if hasattr(point, "value") else point.count)


class Told:
    """Everything that the real SDK was told."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers, meters = TracerProvider(), MeterProvider([self.reader])
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.way = telemetry.Telemetry(tracers, meters)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def numbers(self) -> dict[str, float]:
        found = self.reader.get_metrics_data()
        return {
            metric.name: sum(map(_number, metric.data.data_points))
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def told(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> Told:
    made = Told()
    monkeypatch.setattr(observing, "telemetry", lambda: made.way)
    return made


def test_a_commit_is_a_span_with_a_child_for_each_phase(graph: og.Graph, told: Told) -> None:
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "p0", "age": 99}, {"name": "new"}])
    spans = told.spans()
    commit = spans["omnigraph.commit"]
    said = dict(commit.attributes or {})
    assert said["omnigraph.commit"] == tx.receipt.commit
    assert (said["omnigraph.branch"], said["omnigraph.graph"], said["omnigraph.rows"]) == ("main", graph.root, 2)
    assert is_ulid(str(said["omnigraph.operation_id"]))
    for name in ("stage", "promise", "seal", "publish", "forget"):
        child = spans[f"omnigraph.{name}"]
        assert child.parent is not None
        assert child.parent.span_id == commit.context.span_id
        assert (child.attributes or {})["omnigraph.operation_id"] == said["omnigraph.operation_id"]


def test_an_operation_inside_another_is_a_span_below_it(graph: og.Graph, told: Told) -> None:
    graph.load(io.BytesIO(ONE_RECORD))
    spans = told.spans()
    parent = spans["omnigraph.commit"].parent
    assert parent is not None
    assert parent.span_id == spans["omnigraph.load"].context.span_id


def test_commits_and_rows_are_counted_once(graph: og.Graph, told: Told) -> None:
    graph.load(io.BytesIO(ONE_RECORD))
    with graph.transaction() as tx:
        tx.upsert("Person", [{"name": "p0", "age": 99}, {"name": "new"}])
    with graph.transaction() as tx:
        tx.delete("Person", ids=["p1"])
    graph.tags.create("no-commit")
    numbers = told.numbers()
    assert numbers["omnigraph.commits"] == 3
    rows = [numbers[f"omnigraph.rows.{what}"] for what in ("inserted", "updated", "deleted")]
    assert rows == [2, 1, 1]
    assert numbers["omnigraph.operation.duration"] >= 4


def test_a_rerun_is_no_commit(graph: og.Graph, told: Told) -> None:
    for _ in range(2):
        with graph.transaction(txn=("app", 1)) as tx:
            tx.append("Person", [{"name": "once"}])
    assert tx.receipt.rerun
    assert told.numbers()["omnigraph.commits"] == 1


def test_a_failure_is_a_span_with_its_code_and_a_conflict_is_counted(graph: og.Graph, told: Told) -> None:
    first, second = graph.transaction(), graph.transaction()
    with first as tx:
        tx.overwrite("Person", [{"name": "a"}])
    with pytest.raises(VersionConflictError), second as tx:
        tx.overwrite("Person", [{"name": "b"}])
    (failed,) = [s for s in told.exporter.get_finished_spans() if s.name == "omnigraph.commit" and not s.status.is_ok]
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "VERSION_CONFLICT")
    assert (failed.attributes or {})["error.type"] == "VERSION_CONFLICT"
    assert failed.events == ()
    assert told.numbers()["omnigraph.conflicts"] == 1


def test_attempts_that_are_lost_are_counted(graph: og.Graph, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    is_first = iter([True])
    publish = type(graph._session.publisher).publish

    def lose_once(self: Any, change: Any) -> Any:
        if isinstance(change, AddTogether) and next(is_first, False):
            raise VersionConflictError("someone was faster")
        return publish(self, change)

    monkeypatch.setattr(type(graph._session.publisher), "publish", lose_once)
    with graph.transaction() as tx:
        tx.append("Person", [{"name": "x"}])
    assert tx.receipt.attempts == 2
    assert told.numbers()["omnigraph.retries"] == 1


def test_what_is_recovered_is_counted(graph: og.Graph, told: Told) -> None:
    die(graph)
    assert [found.kind for found in graph.recover()] == ["RolledForward"]
    assert told.numbers()["omnigraph.recoveries"] == 1


def test_spans_reach_the_provider_that_the_application_set(tmp_path: Path) -> None:
    code = (
        "import sys, omnigraph as og\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "graph = og.init(sys.argv[1], 'node A { x: String @key }')  # before anyone listens\n"
        "kept, provider = InMemorySpanExporter(), TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(kept))\n"
        "trace.set_tracer_provider(provider)\n"
        "with provider.get_tracer('app').start_as_current_span('app'):\n"
        "    graph.tags.create('t')\n"
        "print([(span.name, span.parent is not None) for span in kept.get_finished_spans()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('omnigraph.create_tag', True), ('app', False)]"


def test_without_opentelemetry_everything_works_and_is_logged(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'opentelemetry':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import omnigraph as og\n"
        "from omnigraph.telemetry import telemetry\n"
        "og.logs.to_json(sys.stdout)\n"
        "graph = og.init(sys.argv[1], 'node A { x: String @key }')\n"
        "with graph.transaction() as tx:\n    tx.append('A', [{'x': 'y'}])\n"
        "assert telemetry() is None and 'opentelemetry' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g")], capture_output=True, text=True, check=True)
    assert [json.loads(line)["operation"] for line in done.stdout.splitlines()] == ["init", "commit"]
