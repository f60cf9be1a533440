"""Compaction: small and thinned-out fragments are written anew as few large ones, and a version is sealed from them.

Rows and row ids stay what they are; only where rows lie changes. What was rewritten fits on every version that still
has the very fragments it was read from. Lance would number the new fragments itself only in a commit of its own, so
they are numbered here, beyond every number that a fragment or an index of the version has.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lance import LanceDataset, LanceOperation
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask

from omnigraph.errors import CorruptGraphError
from omnigraph.storage.lance_detached import named
from omnigraph.storage.lance_door import SEAL_DRAWS_MAX, VERSIONS, Sealed
from omnigraph.storage.lance_index_building import parts_of_indexes
from omnigraph.storage.lance_rows import fragment_text, fragments_of, open_at, translated
from omnigraph.storage.lance_sealing import shape_of
from omnigraph.storage.roots import StorageOptions

FRAGMENTS_MIN: Final = 2
BATCH_ROWS: Final = 16_384
"""Twice what Lance reads at once: two tasks then keep two cores busy, and not one and three quarters (measured)."""
ROOM: Final = 4_096
"""How many fragments others may add while a compaction is under way, until new ones have to be numbered anew."""
SHOWS: Final = "omnigraph:shows"
"""A property of the transactions by which we let plain readers see a sealed version."""


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """Fragments that were written anew: what they were, and what takes their place."""

    old: tuple[FragmentMetadata, ...]
    new: tuple[FragmentMetadata, ...]
    has_new_ids: bool = False
    """Whether rows get other row ids, since they lie in another order."""

    @property
    def shapes(self) -> dict[int, tuple[str, ...]]:
        """What each old fragment was made of."""
        return {int(fragment.id): shape_of(fragment) for fragment in self.old}

    @property
    def bytes(self) -> int:
        """How large the new files are."""
        return sum(int(file.file_size_bytes or 0) for fragment in self.new for file in fragment.files)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An order to write fragments of a version anew, as Lance describes it; it can be sent elsewhere."""

    uri: str
    version: int
    options: StorageOptions
    text: str

    def do(self) -> Rewritten:
        """Write them anew; nothing refers to the new files yet."""
        handle = open_at(self.uri, self.version, self.options)
        with translated(f"fragments of {self.uri} can not be rewritten", self.options):
            planned: Any = CompactionTask
            done = planned.from_json(self.text).execute(handle)
            return Rewritten(tuple(done.original_fragments), tuple(done.new_fragments))

    def to_text(self, answer: Rewritten) -> str:
        """Tell what was written, on another machine."""
        return json.dumps([[fragment_text(one) for one in side] for side in (answer.old, answer.new)])

    def from_text(self, text: str) -> Rewritten:
        """Read what was told."""
        old, new = json.loads(text)
        return Rewritten(tuple(fragments_of(old)), tuple(fragments_of(new)))


class Compacting:
    """Plans and seals compactions of tables."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def plan(self, uri: str, version: int, rows_per_fragment: int) -> tuple["Rewrite", ...]:
        """Return what there is to rewrite; one fragment that nothing was taken out of is left alone."""
        handle = open_at(uri, version, self._options)
        with translated(f"no compaction of {uri} can be planned", self._options):
            every = handle.get_fragments()
            if len(every) < FRAGMENTS_MIN and not any(one.metadata.deletion_file for one in every):
                return ()
            bare = self._without_indexes(uri, handle)
            wanted: Any = {"target_rows_per_fragment": rows_per_fragment, "batch_size": BATCH_ROWS}
            plan = Compaction.plan(bare, wanted)
            tasks: Any = plan.tasks
            return tuple(Rewrite(uri, int(bare.version), self._options, task.json()) for task in tasks)

    def _without_indexes(self, uri: str, handle: LanceDataset) -> LanceDataset:
        """Return the same rows without indexes, for nobody else.

        Lance puts no fragments together that an index covers in part or in several segments, and seals no such thing.
        Indexes say where rows lay before, so they are built anew in any case.
        """
        parts = parts_of_indexes(handle)
        if not parts:
            return handle
        wanted = Transaction(int(handle.version), LanceOperation.CreateIndex([], parts))
        bare = LanceDataset.commit(handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
        VERSIONS.keep(uri, bare, self._options)
        return bare

    def fitting(self, uri: str, version: int, rewritten: Iterable[Rewritten]) -> list[Rewritten]:
        """Return what can be sealed on a version: what was made from fragments it still has."""
        rewritten = list(rewritten)
        if not rewritten:
            return []
        handle = open_at(uri, version, self._options)
        with translated(f"{uri} can not be looked into", self._options):
            there = {int(fragment.metadata.id): shape_of(fragment.metadata) for fragment in handle.get_fragments()}
            return [one for one in rewritten if all(there.get(id) == shape for id, shape in one.shapes.items())]

    def fragments(self, uri: str, version: int) -> int:
        """Return how many fragments a version has."""
        return len(open_at(uri, version, self._options).fragment_ids())

    def seal(self, uri: str, version: int, rewritten: Sequence[Rewritten], transaction: str) -> Sealed:
        """Seal a version with the new fragments in the place of the old ones and without indexes; count its rows."""
        handle = open_at(uri, version, self._options)
        with translated(f"nothing was applied: a compaction of {uri} can not be sealed", self._options):
            bare = self._without_indexes(uri, handle)
            wanted = Transaction(int(bare.version), _operation(handle, rewritten), uuid=transaction)
            sealed = LanceDataset.commit(bare, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
            old, new = (sum(len(getattr(one, side)) for one in rewritten) for side in ("old", "new"))
            expected = (int(handle.count_rows()), len(handle.fragment_ids()) - old + new)
            if (int(sealed.count_rows()), len(sealed.fragment_ids())) != expected:
                raise CorruptGraphError(
                    f"the compacted version of {uri} is not what was asked for; nothing was published"
                )
            VERSIONS.keep(uri, sealed, self._options)
            return Sealed(lance_version=int(sealed.version), transaction=transaction, rows=int(sealed.count_rows()))

    def show(self, uri: str, version: int, head: int) -> None:
        """Let plain readers of the folder see a sealed version, not the one they see; only metadata is written."""
        said = Transaction(head, LanceOperation.Restore(version), transaction_properties={SHOWS: str(version)})
        with translated(f"plain readers of {uri} could not be shown version {version}", self._options):
            LanceDataset.commit(uri, said, storage_options=self._options.for_clients() or None)


def _operation(handle: LanceDataset, rewritten: Sequence[Rewritten]) -> Any:
    """Return what takes new fragments in the place of old ones; Lance gives row ids and numbers to those without."""
    if any(one.has_new_ids for one in rewritten):
        return LanceOperation.Update(
            removed_fragment_ids=[int(fragment.id) for one in rewritten for fragment in one.old],
            updated_fragments=[],
            new_fragments=[fragment for one in rewritten for fragment in one.new],
            update_mode="rewrite_rows",
        )
    groups = [LanceOperation.RewriteGroup(named(one.old), list(one.new)) for one in rewritten]
    _number(handle, [fragment for group in groups for fragment in group.new_fragments])
    return LanceOperation.Rewrite(groups, [])


def _number(handle: LanceDataset, fragments: Iterable[FragmentMetadata]) -> None:
    """Give new fragments numbers beyond all that were seen of the version, unless those they have are free."""
    fragments = list(fragments)
    taken = set(handle.fragment_ids())
    if all(int(fragment.id) > ROOM and int(fragment.id) not in taken for fragment in fragments):
        return  # indexes may have been built for them under these numbers
    covered = [int(n) for index in handle.describe_indices() for part in index.segments for n in part.fragment_ids]
    last = max([*taken, *covered], default=-1)
    for number, fragment in enumerate(fragments, last + ROOM + 1):
        fragment.id = number
