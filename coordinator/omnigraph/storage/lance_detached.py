"""One detached commit: a version that is built on exactly the one it names, and that nobody sees."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from lance import LanceDataset
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import CorruptGraphError
from omnigraph.storage.lance_door import SEAL_DRAWS_MAX


def committed(
    handle: LanceDataset, operation: Any, transaction: str | None = None, properties: Mapping[str, str] | None = None
) -> LanceDataset:
    """Commit an operation as one detached version of what a handle shows, and check that it is."""
    # Lance builds a detached commit on the handle's version and ignores the transaction's own word.
    base = int(handle.version)
    named = str(uuid.uuid4()) if transaction is None else transaction
    wanted = Transaction(base, operation, uuid=named, transaction_properties=dict(properties or {}))
    # Here max_retries is how often Lance may draw another random version number; 0 would be none at all.
    sealed = LanceDataset.commit(handle, wanted, detached=True, max_retries=SEAL_DRAWS_MAX)
    landed = sealed.read_transaction(sealed.version)
    if landed is None or (landed.uuid, landed.read_version) != (wanted.uuid, wanted.read_version):
        raise CorruptGraphError(f"the sealed version of {handle.uri} is not what was asked for; nothing was published")
    return sealed


def named(fragments: Iterable[FragmentMetadata]) -> list[FragmentMetadata]:
    """Return fragments that go as Lance needs them, by number: to tell it their files takes as long as all the rest."""
    return [FragmentMetadata(int(one.id), [], int(one.physical_rows)) for one in fragments]
