"""Building a segment of an index: an order that can be sent anywhere, and what comes back.

A handle on which an index is built can not be used by others meanwhile, so each order opens its own.
"""

import base64
import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

import lance
from lance import LanceDataset
from lance.dataset import Index, IndexFile

from omnigraph.model.indexes import VECTOR_KINDS, IndexKind, WantedIndex
from omnigraph.rules.indexes import VECTORS_MIN, not_trainable, partitions, sub_vectors, too_few_vectors
from omnigraph.storage.lance_door import LANCE_ERRORS, _without_places
from omnigraph.storage.lance_rows import translated
from omnigraph.storage.roots import StorageOptions

SIMPLE: Final = ("uuid", "name", "fields", "dataset_version", "index_version", "base_id", "covering_fields")
"""What Lance notes of an index that is told as it is."""
TRAINING_WORDS: Final = ("train", "centroid", "KMeans")
"""What Lance says if vectors, of which many may be NaN, are too few after all."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of an index that was built and belongs to no version yet."""

    wanted: WantedIndex
    fragments: frozenset[int]
    index: Any

    @property
    def fields(self) -> tuple[int, ...]:
        """The numbers of the columns it was built for."""
        return tuple(int(number) for number in self.index.fields)


@dataclass(frozen=True, slots=True)
class Untrained:
    """Fragments of which no segment can be built yet, and why."""

    wanted: WantedIndex
    fragments: frozenset[int]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """An order to build the index of a column over some fragments of a version; it can be sent elsewhere."""

    uri: str
    version: int
    options: StorageOptions
    wanted: WantedIndex
    name: str
    fragments: frozenset[int]

    def do(self) -> Segment | Untrained:
        """Build it; nothing refers to it yet."""
        with translated(f"{self.wanted.column!r} of {self.uri} can not be indexed", self.options):
            handle = lance.dataset(self.uri, version=self.version, storage_options=self.options.for_clients() or None)
            if self.wanted.kind in VECTOR_KINDS:
                return self._trained(handle)
            index = self._built(handle)
            if self.wanted.kind is IndexKind.INVERTED:
                index = handle.merge_existing_index_segments([index])  # before that its files are not where it looks
            return Segment(self.wanted, self.fragments, index)

    def to_text(self, answer: Segment | Untrained) -> str:
        """Tell what was built, on another machine."""
        said: dict[str, Any] = {"fragments": sorted(answer.fragments)}
        if isinstance(answer, Untrained):
            return json.dumps(said | {"reason": answer.reason})
        index = answer.index
        kind, details = index.index_details or (None, b"")
        files = [[file.path, file.size_bytes] for file in index.files or ()]
        return json.dumps(
            said
            | {name: getattr(index, name) for name in SIMPLE}
            | {
                "covered": sorted(int(number) for number in index.fragment_ids),
                "created_at": None if index.created_at is None else index.created_at.isoformat(),
                "files": files,
                "details": None if kind is None else [kind, base64.b64encode(details).decode("ascii")],
            }
        )

    def from_text(self, text: str) -> Segment | Untrained:
        """Read what was told."""
        said = json.loads(text)
        fragments = frozenset(said["fragments"])
        if "reason" in said:
            return Untrained(self.wanted, fragments, said["reason"])
        details, covered = said["details"], set[int](said["covered"])
        index = Index(
            **{name: said[name] for name in SIMPLE},
            fragment_ids=cast(Any, covered),  # Lance takes any set of numbers
            created_at=None if said["created_at"] is None else datetime.fromisoformat(said["created_at"]),
            files=[IndexFile(path=path, size_bytes=size) for path, size in said["files"]],
            index_details=None if details is None else (details[0], base64.b64decode(details[1])),
        )
        return Segment(self.wanted, fragments, index)

    def _trained(self, handle: LanceDataset) -> Segment | Untrained:
        column, some = self.wanted.column, [one for one in handle.get_fragments() if one.fragment_id in self.fragments]
        rows = sum(int(each.count_rows()) for each in some)
        stream = handle.scanner([], f"`{column}` IS NOT NULL", fragments=some, with_row_id=True).to_reader()
        vectors = sum(batch.num_rows for batch in stream)
        few = Untrained(self.wanted, self.fragments, too_few_vectors(vectors, rows))
        if vectors < VECTORS_MIN:
            return few
        more: dict[str, Any] = {"num_partitions": partitions(vectors)}
        if self.wanted.kind is IndexKind.IVF_PQ:
            more["num_sub_vectors"] = sub_vectors(int(handle.schema.field(column).type.list_size))
        try:
            index = self._built(handle, **more)
        except LANCE_ERRORS as problem:
            if not any(word in str(problem) for word in TRAINING_WORDS):
                raise
            return replace(few, reason=not_trainable(_without_places(str(problem))))
        return Segment(self.wanted, self.fragments, index) if index.fragment_ids else few

    def _built(self, handle: LanceDataset, **more: Any) -> Any:
        kind, fragments = str(self.wanted.kind), sorted(self.fragments)
        return handle.create_index_uncommitted(
            self.wanted.column, kind, name=self.name, fragment_ids=fragments, replace=True, **more
        )


def fields_of(handle: LanceDataset, column: str) -> tuple[int, ...]:
    """Return the number of a column of a version; none if there is no such column."""
    found: Any = handle.lance_schema.field(column)
    return () if found is None else (int(found.id()),)


def parts_of_indexes(handle: LanceDataset) -> list[Index]:
    """Return the parts of a version's indexes as they are named to take them out."""
    return [
        Index(
            uuid=str(part.uuid),
            name=str(index.name),
            fields=[int(number) for number in index.fields],
            dataset_version=int(part.dataset_version_at_last_update),
            fragment_ids=part.fragment_ids,
            index_version=int(part.index_version),
        )
        for index in handle.describe_indices()
        for part in index.segments
    ]
