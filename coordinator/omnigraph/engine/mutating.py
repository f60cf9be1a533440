"""Mutations: the statements of one query, read from one commit and published as the next one, or not at all.

All statements are worked out against the commit the transaction began on. Rows that are inserted or upserted
are held in memory, a thousand at a time, together with what was committed of them; there are at most as many
as the text has statements. Rows that updates find are streamed: a batch is read, changed as columns and staged.
Of rows that are deleted the ids are held.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from omnigraph.engine.session import Session
from omnigraph.errors import InvalidInputError, InvalidOptionError, OmnigraphError
from omnigraph.ids import CommitId
from omnigraph.model.lineage import Commit
from omnigraph.model.mutations import Delete, Mutation, Predicate, Update
from omnigraph.model.receipt import Receipt
from omnigraph.model.schema import TableType
from omnigraph.rules.gq_bind import bind
from omnigraph.rules.gq_check import check
from omnigraph.rules.gq_predicates import Expression, columns_of, to_arrow
from omnigraph.rules.gq_pushdown import any_of, pushed
from omnigraph.rules.gq_text import select
from omnigraph.rules.gq_tree import QueryText
from omnigraph.rules.mutation_rows import Place, TableScript, holding
from omnigraph.rules.records import plain_schema
from omnigraph.rules.values import compute
from omnigraph.rules.who import check_constraints
from omnigraph.storage.lance_door import Scan
from omnigraph.storage.lance_ids import present
from omnigraph.storage.layout import table_location

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.transaction import Transaction

NAMED_ROWS_AT_ONCE: Final = 1_024
TRIES_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateRequest:
    """Which query to run, with what, and where."""

    text: str
    params: Mapping[str, Any] | None
    name: str | None
    branch: str
    message: str | None = None
    actor: str | None = None
    user_metadata: str | None = None
    txn: tuple[str, int] | None = None
    constraints: str = "fail"
    from_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """What a mutation did: distinct rows per table, and the receipt of its one commit.

    ``commit`` and ``version`` are None when nothing changed. ``affected`` has the tables that did.
    """

    branch: str
    commit: CommitId | None
    version: int | None
    query: str
    affected: Mapping[str, Mapping[str, int]]
    receipt: Receipt

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "version": self.version,
            "query": self.query,
            "affected": {key: dict(counts) for key, counts in self.affected.items()},
            "receipt": self.receipt.to_dict(),
        }


def mutate(graph: "Graph", session: Session, request: MutateRequest) -> MutationResult:
    """Run one query of a text as one commit."""
    if not isinstance(request.text, str):
        raise InvalidOptionError(f"a mutation is a text, not a {type(request.text).__name__}")
    if check_constraints(request.constraints) == "quarantine":
        raise InvalidOptionError(
            "a mutation is applied whole or not at all, so none of its rows can be left out; "
            "choose constraints 'fail' or 'off', or write the rows with load or a transaction"
        )
    query = select(request.text, request.name)
    try:
        receipt = _published(graph, session, query, request)
    except OmnigraphError:
        # What was in the way may be this very work, done by an earlier run or by a twin that was faster.
        if not _landed_before(session, request.txn):
            raise
        receipt = _rerun(graph, request)
    return MutationResult(
        branch=receipt.branch,
        commit=receipt.commit,
        version=receipt.version,
        query=query.name.text,
        affected=_affected(receipt),
        receipt=receipt,
    )


def _published(graph: "Graph", session: Session, query: QueryText, request: MutateRequest) -> Receipt:
    """Publish; a row that came while an upsert thought it new is a reason to look again, a few times."""
    for _ in range(TRIES_MAX - 1):
        running = _Running(graph, session, query, request)
        try:
            return running.publish()
        except InvalidInputError:
            if not (running.upserts_new and running.is_outdated()):
                raise
    return _Running(graph, session, query, request).publish()


def _landed_before(session: Session, txn: tuple[str, int] | None) -> bool:
    if txn is None:
        return False
    app, version = txn
    last = session.publisher.read().state.txns.get(app)
    return last is not None and last.version >= version


def _rerun(graph: "Graph", request: MutateRequest) -> Receipt:
    """Return the receipt of work that landed before: what a transaction of the same txn answers."""
    with graph.transaction(request.branch, txn=request.txn) as tx:
        pass
    return tx.receipt


def _affected(receipt: Receipt) -> dict[str, dict[str, int]]:
    counts = {
        key: {"inserted": table.rows_inserted, "updated": table.rows_updated, "deleted": table.rows_deleted}
        for key, table in receipt.tables.items()
    }
    return {key: numbers for key, numbers in counts.items() if any(numbers.values())}


class _Running:
    """One try: a transaction, and everything that is read from the commit it began on."""

    def __init__(self, graph: "Graph", session: Session, query: QueryText, request: MutateRequest) -> None:
        self._graph = graph
        self._session = session
        self._query = query
        self._request = request
        self._tx: Transaction = graph.transaction(
            request.branch,
            message=request.message,
            actor=request.actor,
            user_metadata=request.user_metadata,
            txn=request.txn,
            constraints=request.constraints,
        )
        self._base = _CommitRows(session, self._tx.base)
        self.upserts_new = False
        """Whether an upsert adds a row, because there was none."""

    def publish(self) -> Receipt:
        """Stage what the statements make of the commit, and publish it."""
        checked = check(self._query, self._graph.catalog(self._tx.base))
        now = self._session.sources.now()
        plan = bind(checked, self._request.params, now=now, from_json=self._request.from_json)
        if _landed_before(self._session, self._request.txn):
            return _rerun(self._graph, self._request)
        with self._tx as tx:
            if plan.deletes:
                self._delete(tx, plan)
            else:
                self._write(tx, plan)
        return tx.receipt

    def is_outdated(self) -> bool:
        """Tell whether the branch has moved since."""
        return self._graph.snapshot(self._request.branch).commit.id != self._tx.base.id

    # -- inserts, upserts and updates ---------------------------------------------------------------

    def _write(self, tx: "Transaction", plan: Mutation) -> None:
        scripts = self._scripts(plan)
        existing = [self._base.existing(script.kind, script.asked_ids) for script in scripts]
        refusals = [script.refusal(there) for script, there in zip(scripts, existing, strict=True)]
        first = min(filter(None, refusals), key=lambda refusal: refusal[0], default=None)
        if first is not None:
            raise first[1]
        for script, there in zip(scripts, existing, strict=True):
            table, new = str(script.kind.table), [id for id in script.puts if id not in there]
            self.upserts_new |= any(not script.puts[id][0].is_insert for id in new)
            _stage(partial(tx.append, table), script, self._new(script, new))
            # Strict: these rows are made from what was read, so nobody may have changed the table since.
            _stage(partial(tx.upsert, table, strict=True), script, self._changed(script, there))

    def _scripts(self, plan: Mutation) -> list[TableScript]:
        """Sort the statements by table; those of one never see the rows of another."""
        scripts: dict[str, TableScript] = {}
        for number, (statement, written) in enumerate(zip(plan.statements, self._query.statements, strict=True), 1):
            place = Place(number=number, line=written.type.mark.line)
            script = scripts.setdefault(statement.type.name, TableScript(kind=statement.type))
            if isinstance(statement, Update):
                script.change(statement, place)
            elif not isinstance(statement, Delete):
                script.put(statement, place, self._session.sources.mint)
        return list(scripts.values())

    def _new(self, script: TableScript, ids: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, len(ids), NAMED_ROWS_AT_ONCE):
            yield script.new_rows(ids[start : start + NAMED_ROWS_AT_ONCE])

    def _changed(self, script: TableScript, named: frozenset[str]) -> Iterator[pa.Table]:
        """Yield committed rows as they are in the end: the named ones, then those that only updates find."""
        ids = sorted(named)
        for start in range(0, len(ids), NAMED_ROWS_AT_ONCE):
            few = pa.array(ids[start : start + NAMED_ROWS_AT_ONCE], pa.string())
            found = list(self._base.scan(script.kind, compute.field("id").isin(few)))
            yield script.existing_rows(pa.concat_tables(found))
        if not script.changes:
            return
        where = any_of([change.predicate for change in script.changes])
        for rows in self._base.scan(script.kind, _for_storage(where)):
            others = compute.invert(compute.is_in(rows.column("id"), value_set=pa.array(ids, pa.string())))
            yield from script.updated(rows.filter(others) if ids else rows)

    # -- deletes ------------------------------------------------------------------------------------

    def _delete(self, tx: "Transaction", plan: Mutation) -> None:
        wanted: dict[str, tuple[TableType, list[Predicate]]] = {}
        for statement in plan.statements:
            if isinstance(statement, Delete):
                wanted.setdefault(statement.type.name, (statement.type, []))[1].append(statement.where)
        for kind, predicates in wanted.values():
            where = any_of(predicates)
            columns = ["id", *sorted(columns_of(where) - {"id"})]
            holds = to_arrow(where)
            for rows in self._base.scan(kind, _for_storage(where), columns):
                ids = [str(id) for id in rows.column("id").filter(holding(rows, holds)).to_pylist()]
                if ids:
                    tx.delete(str(kind.table), ids=ids)


class _CommitRows:
    """The rows of one commit, found by expressions: no value ever becomes part of a text."""

    def __init__(self, session: Session, commit: Commit) -> None:
        self._session = session
        self._commit = commit

    def existing(self, kind: TableType, ids: Sequence[str]) -> frozenset[str]:
        """Return which of some ids exist."""
        pin = self._commit.pins.get(kind.table_id)
        if pin is None or not ids:
            return frozenset()
        wanted = pa.array(ids, pa.string())
        options = self._session.root.options
        return frozenset(present(self._uri(kind), pin.lance_version, lambda: iter([wanted]), len(ids), options=options))

    def scan(
        self, kind: TableType, where: Expression | None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield rows in batches, blobs as their bytes."""
        pin = self._commit.pins.get(kind.table_id)
        if pin is None:
            return
        schema = plain_schema(kind)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        request = Scan(columns=wanted.names, where=where)
        for batch in self._session.tables.scan(self._uri(kind), pin.lance_version, request):
            if batch.num_rows:
                yield pa.Table.from_arrays([batch.column(name) for name in wanted.names], schema=wanted)

    def _uri(self, kind: TableType) -> str:
        return self._session.root.uri(table_location(kind.table.kind, kind.table_id))


def _for_storage(where: Predicate) -> Expression | None:
    """Return what storage can be asked; the rows it gives are looked at again."""
    weaker = pushed(where)
    return None if weaker is None else to_arrow(weaker)


def _stage(write: Callable[[pa.RecordBatchReader], None], script: TableScript, rows: Iterator[pa.Table]) -> None:
    """Hand rows to a transaction as a stream, unless there are none."""
    batches = (batch for part in rows for batch in part.to_batches() if batch.num_rows)
    first = next(batches, None)
    if first is not None:
        write(pa.RecordBatchReader.from_batches(script.schema, chain([first], batches)))
