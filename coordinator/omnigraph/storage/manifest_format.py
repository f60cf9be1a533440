"""The format a graph is written in: which one it is, and which are refused."""

from omnigraph.errors import CorruptGraphError, OutdatedFormatError, UnsupportedFormatError
from omnigraph.model.manifest import FORMAT_KEY, FORMAT_VERSION
from omnigraph.storage.lance_door import RowsAt


def stamp_of(at: RowsAt) -> int:
    """Return the format stamp of an opened manifest."""
    text = at.metadata.get(FORMAT_KEY, "")
    if not text.isascii() or not text.isdigit():
        raise CorruptGraphError(f"__manifest carries no readable format stamp (found {text!r})")
    return int(text)


def refuse_other_formats(stamp: int) -> None:
    """Refuse a graph that has another format than this omnigraph writes."""
    refuse_newer(stamp)
    if stamp != FORMAT_VERSION:
        raise OutdatedFormatError(f"the graph has format {stamp}; open it read-write once to bring it up to date")


def refuse_newer(stamp: int, known: int = FORMAT_VERSION) -> None:
    """Refuse a graph written by a newer omnigraph, in every mode."""
    if stamp > known:
        raise UnsupportedFormatError(
            f"this graph has format {stamp} and this omnigraph knows formats up to {known}; upgrade omnigraph",
            found=stamp,
            supported=known,
        )
