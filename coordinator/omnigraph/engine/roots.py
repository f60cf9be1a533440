"""What cleanup must leave alone: the versions of commits that are kept, promises, and writes that are being staged."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from omnigraph.engine.session import Session
from omnigraph.engine.upkeep import Place, Places, at_once
from omnigraph.errors import OmnigraphError
from omnigraph.ids import CommitId, TableId
from omnigraph.model.cleanups import Trouble
from omnigraph.model.lineage import Commit
from omnigraph.model.sidecar import Sidecar
from omnigraph.model.tables import Pin
from omnigraph.rules.marking import Hashes, Marks, hashes_of
from omnigraph.rules.table_files import HINT, unit_of
from omnigraph.storage.intents import Staged
from omnigraph.storage.lance_door import BIRTH_VERSION
from omnigraph.storage.lance_files import TableFiles
from omnigraph.storage.layout import table_location

INTENT_KEPT: Final = timedelta(days=7)
BIRTH, PLAIN_HEAD = "its birth", "plain readers"


@dataclass(frozen=True, slots=True)
class Protection:
    """Someone is at work on a table: what came since then may be theirs."""

    since: datetime
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """Promises and writes being staged, as they were seen before the manifest was."""

    promises: tuple[tuple[Sidecar, datetime], ...]
    jobs: tuple[Staged, ...]

    @property
    def commits(self) -> dict[CommitId, str]:
        """The commits they were worked out against or take tables from."""
        held: dict[CommitId, str] = {}
        for sidecar, _ in self.promises:
            for commit in (sidecar.base, *(() if sidecar.merge is None else (sidecar.merge.source,))):
                held.setdefault(commit, _promise(sidecar))
        for job in self.jobs:
            held.setdefault(job.intent.base, _job(job))
        return held

    @property
    def protections(self) -> dict[TableId, list[Protection]]:
        """By table, since when files may be theirs; a promise is there before anything is sealed for it."""
        found: dict[TableId, list[Protection]] = {}
        for sidecar, modified in self.promises:
            for promise in sidecar.tables:
                found.setdefault(promise.table, []).append(Protection(modified, _promise(sidecar)))
        for job in self.jobs:
            for table in job.intent.tables:
                found.setdefault(table, []).append(Protection(job.since, _job(job)))
        return found


def at_work(session: Session, now: datetime) -> AtWork:
    """Look who is at work; a promise or an intent that can not be read is refused loudly.

    A write forgets its intent once it is promised, and its promise once it is visible. So intents are looked at first,
    then promises, and the manifest last: who has gone from one place is seen in the next.
    """
    jobs = tuple(job for job in session.intents.every() if now - job.modified < INTENT_KEPT)
    promises = []
    for pending in session.sidecars.pending():
        sidecar = session.sidecars.read(pending.operation)
        if sidecar is not None:
            promises.append((sidecar, pending.modified))
    return AtWork(promises=tuple(promises), jobs=jobs)


def _promise(sidecar: Sidecar) -> str:
    return f"promise {sidecar.operation}"


def _job(job: Staged) -> str:
    return f"staging {job.intent.operation} of {job.intent.host}"


@dataclass(slots=True)
class Roots:
    """Versions to be kept, by table, each with who holds it."""

    places: Places
    versions: dict[TableId, dict[int, str]] = field(default_factory=dict)
    commits: int = 0

    def add(self, commit: Commit, holder: str) -> None:
        """Keep what a commit pins."""
        self.commits += 1
        for pin in self.places.pins(commit):
            self.pin(pin, holder)

    def pin(self, pin: Pin | None, holder: str) -> None:
        """Keep what a pin names; of several holders, a branch is named."""
        if pin is not None:
            self._version(pin.table, pin.lance_version, holder)

    def _version(self, table: TableId, version: int, holder: str) -> None:
        known = self.versions.setdefault(table, {})
        if version not in known or (holder.startswith("branch ") and not known[version].startswith("branch ")):
            known[version] = holder

    def add_promise(self, sidecar: Sidecar) -> None:
        """Keep what a promise was worked out against and what it takes over."""
        holder = _promise(sidecar)
        for promise in sidecar.tables:
            place = Place(table_location(promise.key.kind, promise.table), str(promise.key))
            self.places.known.setdefault(promise.table, place)
            self.pin(promise.expected, holder)
            base = getattr(promise.staged, "base_version", None)
            if base is not None:
                self._version(promise.table, base, holder)
        for pin in {} if sidecar.merge is None else sidecar.merge.pins.values():
            self.pin(pin, holder)

    def ordered(self) -> Iterator[tuple[TableId, int, str]]:
        """Yield versions: those that branches hold first."""
        every = [(table, n, holder) for table, known in self.versions.items() for n, holder in known.items()]
        yield from sorted(every, key=lambda one: (not one[2].startswith("branch "), one[0]))


@dataclass(slots=True)
class Marked:
    """The units of files that are held, and the tables that could not be looked into."""

    marks: Marks = field(default_factory=Marks)
    troubles: dict[TableId, Trouble] = field(default_factory=dict)

    def note(self, table: TableId, place: Place, problem: BaseException) -> None:
        """Note that a table can not be looked into: nothing of it may go."""
        self.troubles.setdefault(table, Trouble(table=place.key, reason=str(problem)))


def mark(session: Session, files: TableFiles, roots: Roots, work: AtWork) -> Marked:
    """Find out what every version that is kept is made of."""
    marked = Marked()
    uri = session.root.uri

    def units(one: tuple[TableId, int, str]) -> Hashes:
        place = roots.places.known[one[0]]
        found = files.version(uri(place.location), one[1]).units
        return hashes_of(f"{place.location}/{unit}" for unit in found)

    for (table, _, holder), answer in at_once(units, roots.ordered()):
        problem = answer.exception()
        if problem is None:
            marked.marks.hold_hashes(answer.result(), holder)
        else:
            _raise_unless_ours(problem)
            marked.note(table, roots.places.known[table], problem)
    _mark_plain(session, files, roots, marked)
    for sidecar, _ in work.promises:
        for promise in sidecar.tables:
            location = roots.places.known[promise.table].location
            named = (unit for name in promise.staged.files if (unit := unit_of(name)) is not None)
            marked.marks.hold((f"{location}/{unit[1]}" for unit in named), _promise(sidecar))
    return marked


def _mark_plain(session: Session, files: TableFiles, roots: Roots, marked: Marked) -> None:
    """Keep what plain readers see of the tables that are there, and the empty version each was born with."""

    def look(one: tuple[TableId, Place]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        if next(iter(session.objects.list(f"{one[1].location}/_versions")), None) is None:
            return None
        uri = session.root.uri(one[1].location)
        head = files.plain_head(uri)
        birth = files.version(uri, BIRTH_VERSION).units
        return (HINT, *birth), birth if head == BIRTH_VERSION else files.version(uri, head).units

    for (table, place), answer in at_once(look, list(roots.places.known.items())):
        problem = answer.exception()
        if problem is not None:
            _raise_unless_ours(problem)
            marked.note(table, place, problem)
        elif (found := answer.result()) is not None:
            for units, holder in zip(found, (BIRTH, PLAIN_HEAD), strict=True):
                marked.marks.hold((f"{place.location}/{unit}" for unit in units), holder)


def _raise_unless_ours(problem: BaseException) -> None:
    """Raise what is no trouble of one table's storage but a bug."""
    if not isinstance(problem, OmnigraphError):
        raise problem
