"""The files below a graph's root, and what becomes of each: it goes, or someone holds it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from omnigraph.engine.roots import INTENT_KEPT, Marked, Protection, Roots
from omnigraph.engine.session import Session
from omnigraph.engine.upkeep import at_once
from omnigraph.errors import OmnigraphError
from omnigraph.failpoints import MaintenancePoint, reach
from omnigraph.ids import TableId, is_ulid
from omnigraph.model.cleanups import KeptFiles, RemovedFiles
from omnigraph.rules.table_files import unit_of
from omnigraph.storage import layout
from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.unfinished import remove_unfinished, unfinished

CLOCK_GRAIN: Final = timedelta(seconds=2)
LISTED_AT_ONCE: Final = 8_192
DELETED_AT_ONCE: Final = 1_000
YOUNG, TROUBLED = "their age", "a table that can not be read"
PROBE, INTENT, UNFINISHED = "probe", "intent", "unfinished"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one file; nobody holds one that goes."""

    info: ObjectInfo
    table: str
    kind: str
    held_by: str | None


@dataclass(slots=True)
class Tally:
    """What went and what stayed, added up by table and reason: files and bytes."""

    gone: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    stayed: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def went(self, table: str, kind: str, files: int, size: int) -> None:
        """Count files that went."""
        _count(self.gone, (table, kind), files, size)

    def stays(self, table: str, holder: str, files: int, size: int) -> None:
        """Count files that stay."""
        _count(self.stayed, (table, holder), files, size)

    @property
    def removed(self) -> tuple[RemovedFiles, ...]:
        """What went, in order."""
        every = sorted(self.gone.items())
        return tuple(RemovedFiles(table=t, kind=k, files=files, bytes=size) for (t, k), (files, size) in every)

    @property
    def kept(self) -> tuple[KeptFiles, ...]:
        """What stays, in order."""
        every = sorted(self.stayed.items())
        return tuple(KeptFiles(table=t, held_by=who, files=files, bytes=size) for (t, who), (files, size) in every)


def _count(counts: dict[tuple[str, str], list[int]], key: tuple[str, str], files: int, size: int) -> None:
    before = counts.setdefault(key, [0, 0])
    before[0] += files
    before[1] += size


@dataclass(slots=True)
class Judge:
    """Decides about files: what is marked stays, what is young stays, and what someone may have written just now."""

    roots: Roots
    marked: Marked
    protections: Mapping[TableId, Sequence[Protection]]
    now: datetime
    grace: timedelta

    def verdicts(self, session: Session) -> Iterator[Verdict]:
        """Yield what becomes of each file, as they are listed."""
        for folder in layout.TABLE_FOLDERS:
            listed = session.objects.list(folder)
            while some := list(islice(listed, LISTED_AT_ONCE)):
                yield from self._of_tables(some)
        for info in session.objects.list(layout.PROBE):
            yield Verdict(info, layout.PROBE, PROBE, YOUNG if self._is_young(info) else None)
        for info in session.objects.list(layout.STAGING):
            if info.modified < self.now - INTENT_KEPT:
                yield Verdict(info, layout.STAGING, INTENT, None)

    def _of_tables(self, infos: Sequence[ObjectInfo]) -> Iterator[Verdict]:
        known = [one for one in map(self._named, infos) if one is not None]
        holders = self.marked.marks.holders([name for *_, name in known])
        for (info, table, kind, _), holder in zip(known, holders, strict=True):
            yield Verdict(info, self.label(info), kind, holder or self._reason(info, table))

    def label(self, info: ObjectInfo) -> str:
        """Return what people call the table a file is of."""
        folder, table = info.key.split("/")[:2]
        place = self.roots.places.known.get(TableId(table))
        return f"{folder}/{table}" if place is None else place.key

    def _named(self, info: ObjectInfo) -> tuple[ObjectInfo, TableId, str, str] | None:
        """Return which table a file is of, what kind it is and the name it is marked by; None if it is a stranger's."""
        folder, _, rest = info.key.partition("/")
        table, _, path = rest.partition("/")
        unit = unit_of(path) if is_ulid(table) else None
        return None if unit is None else (info, TableId(table), unit[0], f"{folder}/{table}/{unit[1]}")

    def is_lances(self, info: ObjectInfo) -> bool:
        """Tell whether a file is one that Lance writes, and no stranger's."""
        return self._named(info) is not None

    def _reason(self, info: ObjectInfo, table: TableId) -> str | None:
        """Return why a file stays that nothing refers to."""
        if table in self.marked.troubles:
            return TROUBLED
        for protection in self.protections.get(table, ()):
            if info.modified >= protection.since - CLOCK_GRAIN:
                return protection.holder
        return YOUNG if self._is_young(info) else None

    def _is_young(self, info: ObjectInfo) -> bool:
        return info.modified >= self.young_since

    @property
    def young_since(self) -> datetime:
        """Since when files that nothing refers to are left alone."""
        return self.now - max(self.grace, CLOCK_GRAIN)


def sweep(session: Session, verdicts: Iterable[Verdict], tally: Tally, *, dry_run: bool) -> dict[str, str]:
    """Remove what nobody holds, or only count it; return the tables that something could not be removed of, and why."""
    troubles: dict[str, str] = {}
    doomed = _doomed(verdicts, tally)
    if dry_run:
        for some in doomed:
            _went(some, tally)
        return troubles
    for some, answer in at_once(lambda batch: session.objects.delete([each.info.key for each in batch]), doomed):
        problem = answer.exception()
        if problem is None:
            _went(some, tally)
        elif isinstance(problem, OmnigraphError):
            troubles |= {each.table: str(problem) for each in some}
        else:
            raise problem
        reach(MaintenancePoint.CLEANUP_DELETED)
    return troubles


def sweep_unfinished(session: Session, judge: Judge, tally: Tally, *, dry_run: bool) -> dict[str, str]:
    """Remove what writers were killed in the middle of, or only count it; nothing can refer to such a file."""
    every = unfinished(session.root, layout.TABLE_FOLDERS, judge.young_since)
    found = [info for info in every if judge.is_lances(info)]
    if not dry_run:
        try:
            remove_unfinished(session.root, found)
        except OSError as problem:
            return {UNFINISHED: str(problem)}
    for info in found:
        tally.went(judge.label(info), UNFINISHED, 1, info.size)
    return {}


def _doomed(verdicts: Iterable[Verdict], tally: Tally) -> Iterator[list[Verdict]]:
    """Yield what goes, in heaps of one table each, and count what stays."""
    heap: list[Verdict] = []
    for verdict in verdicts:
        if verdict.held_by is not None:
            tally.stays(verdict.table, verdict.held_by, 1, verdict.info.size)
            continue
        if heap and (len(heap) >= DELETED_AT_ONCE or heap[0].table != verdict.table):
            yield heap
            heap = []
        heap.append(verdict)
    if heap:
        yield heap


def _went(some: Iterable[Verdict], tally: Tally) -> None:
    for each in some:
        tally.went(each.table, each.kind, 1, each.info.size)
