"""Watching the ids of a write go by, and telling afterwards which of them went by twice."""

from omnigraph.rules.fingerprints import Fingerprints, fingerprints, occurring_twice
from omnigraph.rules.values import Column


class Repeats:
    """Eight bytes per id, however long the ids are."""

    def __init__(self) -> None:
        self._noted: list[Fingerprints] = []

    def note(self, ids: Column) -> None:
        """Look at some ids."""
        self._noted.append(fingerprints(ids))

    def doubtful(self) -> Fingerprints:
        """Return the fingerprints that were seen more than once: nearly always those of ids that were."""
        return occurring_twice(self._noted)
