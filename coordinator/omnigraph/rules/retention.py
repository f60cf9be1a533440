"""Which commits a cleanup keeps, and for whom; all others expire."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from omnigraph.errors import InvalidOptionError
from omnigraph.ids import CommitId, Incarnation
from omnigraph.model.lineage import CommitRow
from omnigraph.model.manifest import ManifestState
from omnigraph.rules.durations import duration
from omnigraph.rules.refs import ordered_branches

KEEP_MAX = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A commit goes if it is not among the newest ``keep`` of any branch and older than ``older_than``.

    One of the two may be left away: then it spares no commit. Heads and tags are always kept.
    """

    keep: int | None
    older_than: timedelta | None

    @classmethod
    def of(cls, keep: int | None, older_than: "str | timedelta | None") -> "Policy":
        """Read a policy from what a caller said; there is none by default."""
        if keep is None and older_than is None:
            raise InvalidOptionError("say what to keep: keep=10 commits of each branch, older_than='7d', or both")
        if keep is not None and (type(keep) is not int or not 1 <= keep <= KEEP_MAX):
            raise InvalidOptionError(f"keep is {keep!r}; it is how many commits of each branch stay, at least 1")
        return cls(keep=keep, older_than=None if older_than is None else duration(older_than, "older_than"))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The newest commits of a branch, as far as one incarnation made them."""

    after: int
    upto: int
    holder: str


class Retention:
    """Says of each commit who holds it."""

    def __init__(self, state: ManifestState, policy: Policy, now: datetime, held: Mapping[CommitId, str]) -> None:
        self._refs = _refs(state, held)
        self._stretches = _stretches(state, policy.keep or 1)
        self._young = None if policy.older_than is None else now - policy.older_than

    def holder(self, row: CommitRow) -> str | None:
        """Return who holds a commit; nobody means that it expires."""
        named = self._refs.get(row.id)
        if named is not None:
            return named
        for stretch in self._stretches.get(row.incarnation, ()):
            if stretch.after < row.version <= stretch.upto:
                return stretch.holder
        return "its age" if self._young is not None and row.created_at >= self._young else None


def _refs(state: ManifestState, others: Mapping[CommitId, str]) -> dict[CommitId, str]:
    """Return the commits that are held by name: by branches first, then by tags, then by whatever else."""
    found: dict[CommitId, str] = {}
    for branch in ordered_branches(state):
        found.setdefault(branch.head, f"branch {branch.name}")
    for tag in state.tags.values():
        found.setdefault(tag.commit, f"tag {tag.name}")
    for commit, holder in others.items():
        found.setdefault(commit, holder)
    return found


def _stretches(state: ManifestState, keep: int) -> dict[Incarnation, list[_Stretch]]:
    """Return the newest commits of each branch: versions along one have no gaps, and a fork goes on counting."""
    found: dict[Incarnation, list[_Stretch]] = {}
    for branch in ordered_branches(state):
        after = branch.version - keep
        for segment in branch.segments:
            if segment.upto > after:
                stretch = _Stretch(after, segment.upto, f"branch {branch.name}")
                found.setdefault(segment.incarnation, []).append(stretch)
    return found
