"""The graph of commits of all branches, deleted ones included, as far into the past as it is asked about."""

from collections.abc import Iterable, Iterator

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import CommitId
from omnigraph.model.lineage import Commit, CommitRow
from omnigraph.rules.ancestry import Ancestor, best_common_ancestors
from omnigraph.storage.manifest import Manifest, Reading


class CommitGraph:
    """Commits at one moment, read from the newest file of the manifest to the oldest, each once."""

    def __init__(self, manifest: Manifest, reading: Reading) -> None:
        self._unread: Iterator[CommitRow] = manifest.every_commit(reading)
        self._rows: dict[CommitId, CommitRow] = {}

    def commit(self, id: CommitId) -> Commit:
        """Return a commit that is known to be there."""
        row = self._row(id)
        if row is None:
            raise CorruptGraphError(f"commit {id} is not there", commit=id)
        return row.commit

    def bases(self, left: Iterable[CommitId], right: Iterable[CommitId]) -> tuple[CommitId, ...]:
        """Return the best common ancestors of two sides, the newest first."""
        return best_common_ancestors(left, right, self._ancestor)

    def _ancestor(self, id: CommitId) -> Ancestor | None:
        row = self._row(id)
        return None if row is None else Ancestor(id=row.id, created_at=row.created_at, parents=row.parents)

    def _row(self, id: CommitId) -> CommitRow | None:
        """Return a commit; parents were published before children, so they lie in the same file or an older one."""
        while id not in self._rows:
            row = next(self._unread, None)
            if row is None:
                return None
            self._rows[row.id] = row
        return self._rows[id]
