"""Sealing what was promised on the newest pins, and drafting the commit that makes it visible."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from omnigraph.engine.history import History
from omnigraph.engine.integrity import refuse, staged_changes
from omnigraph.engine.session import Session
from omnigraph.engine.spread_integrity import violations
from omnigraph.errors import InvalidDataError, VersionConflictError
from omnigraph.failpoints import Failpoint, reach
from omnigraph.ids import TableId
from omnigraph.model.lineage import Commit
from omnigraph.model.manifest import SchemaRow, TableRow
from omnigraph.model.merge_promise import Adoption
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.sidecar import ReadPin, Sidecar, TablePromise
from omnigraph.model.staged import Staged, StagedAppend, StagedDelete, StagedUpsert
from omnigraph.model.tables import Pin
from omnigraph.rules.refs import Draft, refuse_other_schema
from omnigraph.storage.layout import table_location

SAMPLE_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedWork:
    """A promise whose tables are sealed on the pins of one commit."""

    sidecar: Sidecar
    head: Commit
    tables: tuple[tuple[TablePromise, Pin | None], ...]

    @property
    def pins(self) -> dict[TableId, Pin]:
        """The new pins, those a merge adopts included."""
        adopted = {} if self.sidecar.merge is None else self.sidecar.merge.pins
        return adopted | {promise.table: pin for promise, pin in self.tables if pin is not None}


class Sealer:
    """Seals promises; what it seals is visible to nobody."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history

    def seal(self, sidecar: Sidecar, head: Commit) -> SealedWork:
        """Seal every table of a promise on the pins of a commit, or raise why it does not fit there."""
        refuse_other_schema(sidecar.branch, sidecar.schema_hash, head)
        if sidecar.merge is not None or sidecar.schema is not None:
            _refuse_moved(sidecar, head)
        sealed: list[tuple[TablePromise, Pin | None]] = []
        for promise in sidecar.tables:
            sealed.append(self._seal(promise, head.pins.get(promise.table)))
            if len(sealed) == 1:
                reach(Failpoint.AFTER_FIRST_SEAL)
        if sidecar.is_checked and is_moved(sidecar, head):
            self._check_again(sidecar, head, [promise for promise, _ in sealed])
        return SealedWork(sidecar=sidecar, head=head, tables=tuple(sealed))

    def _check_again(self, sidecar: Sidecar, head: Commit, promises: list[TablePromise]) -> None:
        """Check constraints on tables that are others than those the write was checked on."""
        catalog = self._history.catalog(head)
        changes = staged_changes(self._session, catalog, promises)
        broken = violations(self._session, catalog, changes, head.pins)
        if broken and all(isinstance(promise.staged, StagedDelete) for promise in promises):
            # Who deletes wants what depends on it to go too; something came that was not there to be found.
            moved = next(_moved(sidecar, head))
            seen, found = (pin.version if pin else 0 for pin in (moved.expected, head.pins.get(moved.table)))
            raise VersionConflictError(
                f"{moved.key} is at version {found}, but this was planned on {seen}; refresh and retry",
                table_key=str(moved.key),
                expected=seen,
                actual=found,
            )
        refuse(broken)

    def _seal(self, promise: TablePromise, pin: Pin | None) -> tuple[TablePromise, Pin | None]:
        """Seal one table; return the work as it is on the pin it met, and the new pin."""
        uri = self._uri(promise)
        moved = pin != promise.expected
        if moved:
            _check_commutes(promise, pin)
        if promise.must_be_new and pin is not None and (moved or not promise.is_new_on_expected):
            self._check_new(promise, pin, uri)
        base = pin.lance_version if pin else None
        staging = self._session.staging
        if moved and isinstance(promise.staged, StagedAppend | StagedUpsert):
            work, sealed = staging.seal_moved(uri, base, promise.staged, promise.transaction)
            promise = replace(promise, staged=work)
        else:
            sealed = staging.seal(uri, base, promise.staged, promise.transaction)
        if sealed is None:
            # What was to be written is there already, value for value: the table stays as it is.
            return promise, pin
        return promise, Pin(
            table=promise.table,
            version=(pin.version if pin else 0) + 1,
            lance_version=sealed.lance_version,
            transaction=sealed.transaction,
            rows=sealed.rows,
        )

    def _uri(self, promise: TablePromise) -> str:
        return self._session.root.uri(table_location(promise.key.kind, promise.table))

    def _check_new(self, promise: TablePromise, pin: Pin, uri: str) -> None:
        """Refuse inserts that meet their own ids."""
        inserts = _inserts(promise.staged)
        self._session.staging.told(dict(self._few_ids(promise)))
        there = self._session.staging.present(uri, pin.lance_version, inserts)
        if there:
            raise duplicates(str(promise.key), there, "exist already")

    def draft(self, work: SealedWork) -> Draft:
        """Return the commit that makes sealed work visible."""
        sidecar, promised = work.sidecar, [promise for promise, _ in work.tables]
        keys = {promise.table: str(promise.key) for promise in promised}
        keys |= {read.table: str(read.key) for read in sidecar.reads}
        merge = sidecar.merge
        keys |= {} if merge is None else {each.table: str(each.key) for each in merge.adopted}
        change = sidecar.schema
        schema_hash = work.head.schema_hash if merge is None else merge.schema_hash
        return Draft(
            id=sidecar.commit,
            branch=sidecar.branch,
            incarnation=sidecar.incarnation,
            operation=sidecar.writer,
            schema_hash=schema_hash if change is None else change.schema.hash,
            base_schema=sidecar.schema_hash,
            pins=work.pins,
            expected={table: work.head.pins.get(table) for table in keys},
            table_keys=keys,
            message=sidecar.message,
            user_metadata=sidecar.user_metadata,
            metrics={str(promise.key): promise.metrics for promise in promised},
            txn=sidecar.txn,
            extra_parents=() if merge is None else (merge.source,),
            after=None if merge is None else merge.source_at,
            dropped=frozenset() if change is None else frozenset(change.dropped),
            arriving=() if change is None else tuple(_arriving(change, sidecar.started_at)),
        )

    def few_ids(self, work: Iterable[SealedWork]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the ids that promises carry, with the file they are in."""
        return chain.from_iterable(self._few_ids(promise) for each in work for promise in each.sidecar.tables)

    def _few_ids(self, promise: TablePromise) -> Iterator[tuple[str, tuple[str, ...]]]:
        file = None if promise.few_ids is None else self._session.staging.only_file(_inserts(promise.staged))
        if file is not None and promise.few_ids is not None:
            yield file, promise.few_ids

    def remember(self, work: SealedWork) -> None:
        """Keep in mind what versions that became visible hold."""
        for promise, pin in work.tables:
            before = work.head.pins.get(promise.table)
            if pin is not None and pin != before:
                base = before.lance_version if before else None
                self._session.staging.landed(self._uri(promise), base, pin.lance_version, promise.staged)


def _check_commutes(promise: TablePromise, pin: Pin | None) -> None:
    """Refuse work that was planned on a table that is another one now, unless it only adds or replaces by id."""
    if promise.commutes:
        return
    seen, found = (p.version if p else 0 for p in (promise.expected, pin))
    raise VersionConflictError(
        f"{promise.key} is at version {found}, but this was planned on {seen}; refresh and retry",
        table_key=str(promise.key),
        expected=seen,
        actual=found,
    )


def _inserts(staged: Staged) -> StagedAppend | StagedUpsert:
    """Return the part of some work that adds rows."""
    if isinstance(staged, StagedUpsert):
        return replace(staged, replacements=(), deletions=(), unchanged=())
    assert isinstance(staged, StagedAppend)  # noqa: S101  nothing else must be new
    return staged


def is_moved(sidecar: Sidecar, head: Commit) -> bool:
    """Tell whether a table is another one now than the one a promise was made on."""
    return any(True for _ in _moved(sidecar, head))


def _refuse_moved(sidecar: Sidecar, head: Commit) -> None:
    """Refuse what was worked out on tables that are others now: what it decided may not be so any more."""
    what, again = ("merge", "merge") if sidecar.merge is not None else ("schema change", "apply it")
    for moved in _moved(sidecar, head):
        seen, found = (pin.version if pin else 0 for pin in (moved.expected, head.pins.get(moved.table)))
        raise VersionConflictError(
            f"{moved.key} is at version {found}, but this {what} was planned on {seen}; {again} again",
            table_key=str(moved.key),
            expected=seen,
            actual=found,
        )


def _moved(sidecar: Sidecar, head: Commit) -> Iterator[TablePromise | ReadPin | Adoption]:
    """Yield the tables that are others now than those a promise was made on."""
    adopted = () if sidecar.merge is None else sidecar.merge.adopted
    every: tuple[TablePromise | ReadPin | Adoption, ...] = (*sidecar.tables, *sidecar.reads, *adopted)
    return (each for each in every if head.pins.get(each.table) != each.expected)


def _arriving(change: SchemaPromise, at: datetime) -> Iterator[SchemaRow | TableRow]:
    """Yield what is stored with the commit that makes a schema visible."""
    if change.is_stored:
        return
    yield change.schema
    for table, key in change.added:
        yield TableRow(id=table, key=str(key), location=table_location(key.kind, table), created_at=at)


def duplicates(table_key: str, ids: list[str], what: str, count: int | None = None) -> InvalidDataError:
    """Say which ids are there twice: how many, and a few of them."""
    number = len(ids) if count is None else count
    sample = sorted(ids)[:SAMPLE_MAX]
    shown = ", ".join(repr(i) for i in sample) + (", …" if number > SAMPLE_MAX else "")
    return InvalidDataError(
        f"nothing was applied: {number} ids of {table_key} {what}: {shown}",
        table_key=table_key,
        count=number,
        sample=sample,
    )
