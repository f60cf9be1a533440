"""Reading every row of a snapshot, to see whether they are what the schema says."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from omnigraph.engine.deltas import NO_IDS, uri_of, valued
from omnigraph.engine.session import Session
from omnigraph.errors import OmnigraphError
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import Commit
from omnigraph.model.schema import TableType
from omnigraph.model.tables import Pin
from omnigraph.model.verifying import Finding, Problem
from omnigraph.rules import constraints as rules
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.storage.embedded import EmbeddedEngine
from omnigraph.storage.lance_door import Scan
from omnigraph.storage.relations import Relation

SAMPLE_MAX: Final = 3


class SnapshotRows:
    """The rows of one commit, all of them."""

    def __init__(
        self, session: Session, catalog: Catalog, commit: Commit, holder: str, seen: dict[object, bool]
    ) -> None:
        self._seen = seen  # what was looked at for another commit that shares it, and whether it could be read
        self._session = session
        self._catalog = catalog
        self._commit = commit
        self._holder = holder
        self.rows = 0

    def findings(self) -> Iterator[Finding]:
        """Read every table, then ask what rows must satisfy together; a table that can not be read is told so."""
        readable = set()
        for kind in self._catalog.table_types:
            pin = self._commit.pins.get(kind.table_id)
            if pin is None:
                continue
            key = ("rows", kind.table_id, pin.lance_version)
            if self._is_new(key):
                try:
                    self._read(kind, pin)
                except OmnigraphError as problem:
                    self._seen[key] = False
                    yield self._finding(Problem.UNREADABLE, kind, problem.message)
            if self._seen[key]:
                readable.add(kind.table_id)
        with EmbeddedEngine() as engine:
            for kind in self._catalog.table_types:
                if kind.table_id in readable and self._is_new(("ids", self._commit.pins[kind.table_id])):
                    yield from self._repeated_ids(engine, kind)
            for rule in rules.compile_rules(self._catalog):
                node = self._commit.pins.get(rule.node.table_id) if isinstance(rule, rules.EndpointRule) else None
                if rule.kind.table_id in readable and self._is_new(
                    (str(rule), self._commit.pins[rule.kind.table_id], node)
                ):
                    yield from self._broken(engine, rule)

    def _is_new(self, key: object) -> bool:
        if key in self._seen:
            return False
        self._seen[key] = True
        return True

    def _read(self, kind: TableType, pin: Pin) -> None:
        """Read every value of a table."""
        rows = sum(batch.num_rows for batch in self._scan(kind, None))
        self.rows += rows
        if rows != pin.rows:
            raise OmnigraphError(f"{rows} rows can be read; {pin.rows} were sealed")

    def _repeated_ids(self, engine: EmbeddedEngine, kind: TableType) -> Iterator[Finding]:
        ids = self._columns(kind, {"id": "id"})
        count, some = engine.sampled(rules.IDS_GIVEN_TWICE, {"new": ids}, most=SAMPLE_MAX)
        if count:
            yield self._finding(Problem.DUPLICATE_IDS, kind, f"{count} ids occur more than once: {_shown(some)}")

    def _broken(self, engine: EmbeddedEngine, rule: rules.Rule) -> Iterator[Finding]:
        match rule:
            case rules.EndpointRule(column=column, node=node):
                nodes = self._columns(node, {"id": "id"}) if node.table_id in self._commit.pins else NO_IDS
                relations: dict[str, Relation] = {
                    "new": self._columns(rule.kind, {"id": "id", "ref": column}),
                    "nodes": nodes,
                    "gone_nodes": NO_IDS,
                    "new_nodes": NO_IDS,
                }
                count, some = engine.sampled(rules.MISSING_ENDPOINTS.sql, relations, most=SAMPLE_MAX)
                if count:
                    said = f"{count} edges do not lead {rule}: {_shown(some)}"
                    yield self._finding(Problem.DANGLING_ENDS, rule.kind, said)
            case rules.UniqueRule(columns=columns):
                values = partial(self._values, rule.kind, columns)
                count, some = engine.sampled(rules.REPEATED_VALUES.sql, {"new": values}, most=SAMPLE_MAX)
                if count:
                    yield self._finding(Problem.DUPLICATE_VALUES, rule.kind, f"{count} values break {rule}")
            case _:
                return

    def _columns(self, kind: TableType, named: dict[str, str]) -> Callable[[], pa.RecordBatchReader]:
        """Return columns of a table by the names a plan has for them."""
        schema = pa.schema([pa.field(name, arrow_schema(kind).field(column).type) for name, column in named.items()])

        def read() -> pa.RecordBatchReader:
            scanned = self._scan(kind, list(dict.fromkeys(named.values())))
            batches = (
                pa.RecordBatch.from_arrays([batch.column(column) for column in named.values()], schema=schema)
                for batch in scanned
            )
            return pa.RecordBatchReader.from_batches(schema, batches)

        return read

    def _values(self, kind: TableType, columns: tuple[str, ...]) -> pa.RecordBatchReader:
        stored = arrow_schema(kind)
        each = [pa.field(f"c{number}", stored.field(column).type) for number, column in enumerate(columns)]
        value = each[0].type if len(each) == 1 else pa.struct(each)
        schema = pa.schema([pa.field("id", pa.string()), pa.field("value", value)])
        batches = (valued(batch, columns, schema) for batch in self._scan(kind, ["id", *columns]))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _scan(self, kind: TableType, columns: list[str] | None) -> pa.RecordBatchReader:
        pin = self._commit.pins[kind.table_id]
        return self._session.tables.scan(uri_of(self._session, kind), pin.lance_version, Scan(columns=columns))

    def _finding(self, problem: Problem, kind: TableType, message: str) -> Finding:
        return Finding(problem=problem, table=str(kind.table), held_by=self._holder, message=message)


def _shown(some: pa.Table) -> str:
    return ", ".join(repr(id) for id in some.column("id").to_pylist())
