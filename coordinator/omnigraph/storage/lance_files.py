"""The files a version of a table refers to, and the versions that other tools see."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lance
from lance import LanceDataset

from omnigraph.rules import table_files as units
from omnigraph.storage.lance_door import BIRTH_VERSION, file_name
from omnigraph.storage.lance_rows import translated
from omnigraph.storage.roots import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What is stored of one version: how many rows it says it has, under which transaction, and its units."""

    rows: int
    transaction: str | None
    units: tuple[str, ...]


class TableFiles:
    """Looks into versions without reading rows; nothing is remembered, so what is gone is seen to be gone."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def version(self, uri: str, version: int) -> VersionFacts:
        """Return what one version is made of, or raise that it can not be opened."""
        handle = self._open(uri, version)
        with translated(f"version {version} of {uri} can not be looked into", self._options):
            made_by = handle.read_transaction(version)
            uuid = None if made_by is None else str(made_by.uuid)
            return VersionFacts(
                rows=int(handle.count_rows()), transaction=uuid, units=tuple(_units(handle, version, uuid))
            )

    def plain_head(self, uri: str) -> int:
        """Return the newest version that a plain reader of the folder sees."""
        return int(self._open(uri, None).version)

    def plain_versions(self, uri: str) -> list[int]:
        """Return the versions that plain readers of the folder can see, without the empty one it was born with."""
        handle = self._open(uri, None)
        with translated(f"the versions of {uri} can not be listed", self._options):
            return [int(one["version"]) for one in handle.versions() if int(one["version"]) != BIRTH_VERSION]

    def restored(self, uri: str, version: int, key: str) -> int | None:
        """Return which version a plain one was made to show by us; None if someone else made it."""
        handle = self._open(uri, version)
        with translated(f"version {version} of {uri} can not be looked into", self._options):
            made_by = handle.read_transaction(version)
            said = None if made_by is None else (made_by.transaction_properties or {}).get(key)
            return int(said) if said is not None and said.isascii() and said.isdecimal() else None

    def _open(self, uri: str, version: int | None) -> LanceDataset:
        with translated(f"version {version or 'newest'} of {uri} can not be opened", self._options):
            return lance.dataset(uri, version=version, storage_options=self._options.for_clients() or None)


def _units(handle: LanceDataset, version: int, transaction: str | None) -> Iterator[str]:
    yield units.version_unit(version)
    if transaction is not None:
        yield units.transaction_unit(transaction)
    for fragment in handle.get_fragments():
        metadata: Any = fragment.metadata
        yield units.data_unit(file_name(metadata))
        for file in metadata.files[1:]:
            yield units.data_unit(str(file.path))
        gone = metadata.deletion_file
        if gone is not None:
            yield units.deletion_unit(int(metadata.id), int(gone.read_version), int(gone.id))
    for index in handle.describe_indices():
        for segment in index.segments:
            yield units.index_unit(str(segment.uuid))
