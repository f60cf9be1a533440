"""Tables of a graph as whoever knows nothing of graphs opens them."""

import os

import lance

from omnigraph.storage.roots import GraphRoot


def plain(root: "str | os.PathLike[str]", location: str, version: int | None = None) -> lance.LanceDataset:
    """Return a table as Lance alone opens it, on a disk or on a store."""
    found = GraphRoot.parse(root)
    return lance.dataset(found.uri(location), version=version, storage_options=found.options.for_clients() or None)
