"""Verify: every version that a commit pins opens and is what was sealed, every file of it is there.

Deep, the rows that branches and tags show are read: ids occur once, ends of edges exist, what must be unique is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from omnigraph.engine.history import History
from omnigraph.engine.reading_all import SnapshotRows
from omnigraph.engine.session import Session
from omnigraph.engine.sweeping import LISTED_AT_ONCE
from omnigraph.engine.upkeep import Place, Places, at_once
from omnigraph.errors import OmnigraphError
from omnigraph.ids import CommitId, TableId, is_ulid
from omnigraph.model.lineage import Commit
from omnigraph.model.manifest import ManifestState
from omnigraph.model.tables import Pin
from omnigraph.model.verifying import Finding, Problem, VerifyReport
from omnigraph.rules.marking import Marks
from omnigraph.rules.refs import ordered_branches
from omnigraph.rules.table_files import unit_of
from omnigraph.storage import layout
from omnigraph.storage.lance_compacting import SHOWS
from omnigraph.storage.lance_files import TableFiles
from omnigraph.storage.manifest import Reading

NAMES_SHOWN_MAX: Final = 3
THERE: Final = "there"


@dataclass(frozen=True, slots=True)
class Held:
    """A pin, and who was first found to hold it."""

    pin: Pin
    holder: str


@dataclass(slots=True)
class Pinned:
    """Every version that a commit pins, where its table lies, and the commits that have a name."""

    places: Places
    versions: dict[tuple[TableId, int], Held] = field(default_factory=dict)
    named: dict[CommitId, tuple[str, Commit]] = field(default_factory=dict)
    commits: int = 0


class Verifying:
    """Looks whether everything is as it should be; changes nothing."""

    def __init__(self, session: Session, history: History) -> None:
        self._session = session
        self._history = history
        self._files = TableFiles(session.root.options)

    def verify(self, *, deep: bool) -> VerifyReport:
        """Look at everything that a commit can reach, and at the rows if it is to be deep."""
        pinned = self._history.looking(self._pinned)
        looked: dict[tuple[TableId, int], tuple[str, ...]] = {}
        findings = list(self._versions(pinned, looked))
        there = self._there()
        findings += self._missing(pinned, looked, there)
        if findings:
            findings = self._still_held(findings, pinned)
        found = [finding for _, finding in findings]
        found += self._foreign(pinned)
        rows, seen = 0, dict[object, bool]()
        for holder, commit in pinned.named.values() if deep else ():
            read = SnapshotRows(self._session, self._history.catalog(commit), commit, holder, seen)
            found += read.findings()
            rows += read.rows
        return VerifyReport(
            deep=deep,
            commits=pinned.commits,
            versions=len(pinned.versions),
            files=len(there),
            rows=rows,
            findings=tuple(dict.fromkeys(found)),
        )

    def _pinned(self, reading: Reading) -> Pinned:
        pinned, names = Pinned(Places(self._history)), _names(reading.state)
        for row in self._session.manifest.every_commit(reading):
            commit = row.commit
            if commit.expired_at is not None:
                continue
            pinned.commits += 1
            holder = names.get(commit.id, f"commit {commit.id}")
            if commit.id in names:
                pinned.named[commit.id] = (holder, commit)
            for pin in pinned.places.pins(commit):
                pinned.versions.setdefault((pin.table, pin.lance_version), Held(pin, holder))
        return pinned

    def _versions(
        self, pinned: Pinned, looked: dict[tuple[TableId, int], tuple[str, ...]]
    ) -> Iterator[tuple[Held, Finding]]:
        """Look into every version, and note what it is made of."""

        def look(held: Held) -> tuple[str, ...]:
            place = pinned.places.known[held.pin.table]
            facts = self._files.version(self._session.root.uri(place.location), held.pin.lance_version)
            if (facts.rows, facts.transaction) != (held.pin.rows, held.pin.transaction):
                raise _OtherError(
                    f"version {held.pin.version} has {facts.rows} rows of transaction {facts.transaction}; "
                    f"{held.pin.rows} rows of {held.pin.transaction} were sealed"
                )
            return facts.units

        for held, answer in at_once(look, pinned.versions.values()):
            problem = answer.exception()
            if problem is None:
                looked[(held.pin.table, held.pin.lance_version)] = answer.result()
            elif isinstance(problem, OmnigraphError):
                kind = Problem.WRONG_VERSION if isinstance(problem, _OtherError) else Problem.UNREADABLE
                yield held, _finding(kind, pinned.places.known[held.pin.table], held.holder, problem.message)
            else:
                raise problem

    def _there(self) -> Marks:
        """Return the units of all files that are there."""
        there = Marks()
        for folder in layout.TABLE_FOLDERS:
            names: list[str] = []
            for info in self._session.objects.list(folder):
                table, _, path = info.key.removeprefix(f"{folder}/").partition("/")
                unit = unit_of(path) if is_ulid(table) else None
                if unit is not None:
                    names.append(f"{folder}/{table}/{unit[1]}")
                if len(names) >= LISTED_AT_ONCE:
                    there.hold(names, THERE)
                    names = []
            there.hold(names, THERE)
        return there

    def _missing(
        self, pinned: Pinned, looked: dict[tuple[TableId, int], tuple[str, ...]], there: Marks
    ) -> Iterator[tuple[Held, Finding]]:
        for key, units in looked.items():
            held, place = pinned.versions[key], pinned.places.known[key[0]]
            # The transaction is in the version's own file too, so a missing one is no loss.
            wanted = [unit for unit in units if not unit.startswith("_transactions/")]
            holders = there.holders([f"{place.location}/{unit}" for unit in wanted])
            lost = [unit for unit, holder in zip(wanted, holders, strict=True) if holder is None]
            if lost:
                shown = ", ".join(lost[:NAMES_SHOWN_MAX]) + (", …" if len(lost) > NAMES_SHOWN_MAX else "")
                said = f"{len(lost)} files of version {held.pin.version} are missing: {shown}"
                yield held, _finding(Problem.MISSING_FILE, place, held.holder, said)

    def _still_held(self, findings: list[tuple[Held, Finding]], before: Pinned) -> list[tuple[Held, Finding]]:
        """Leave out what a cleanup took meanwhile together with the commits that held it."""
        now = self._history.looking(self._pinned).versions
        return [one for one in findings if (one[0].pin.table, one[0].pin.lance_version) in now]

    def _foreign(self, pinned: Pinned) -> Iterator[Finding]:
        """Find versions that plain writers made in the folders of tables."""

        def look(one: tuple[TableId, Place]) -> list[int]:
            if next(iter(self._session.objects.list(f"{one[1].location}/_versions")), None) is None:
                return []
            uri = self._session.root.uri(one[1].location)
            return [n for n in self._files.plain_versions(uri) if self._files.restored(uri, n, SHOWS) is None]

        for (_, place), answer in at_once(look, list(pinned.places.known.items())):
            problem = answer.exception()
            if isinstance(problem, OmnigraphError):
                yield _finding(Problem.UNREADABLE, place, "plain readers", problem.message)
            elif problem is not None:
                raise problem
            elif answer.result():
                numbers = ", ".join(map(str, answer.result()))
                said = f"someone wrote to {place.location} without omnigraph (Lance versions {numbers}); it is not seen"
                yield _finding(Problem.FOREIGN_VERSION, place, "nobody", said)


class _OtherError(OmnigraphError):
    """A version that is not the one that was sealed; never leaves this module."""


def _finding(problem: Problem, place: Place, holder: str, message: str) -> Finding:
    return Finding(problem=problem, table=place.key, held_by=holder, message=message)


def _names(state: ManifestState) -> dict[CommitId, str]:
    named = {tag.commit: f"tag {tag.name}" for tag in state.tags.values()}
    return named | {branch.head: f"branch {branch.name}" for branch in reversed(ordered_branches(state))}
