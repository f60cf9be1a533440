"""What the files of a table's folder are: each belongs to a unit that is kept or removed as a whole.

Lance's names carry what a version refers to: a data file may have a folder of blobs beside it, an index is a folder,
a deletion file has one of two endings, and a transaction is named by the version it was built on and its uuid.
"""

from typing import Final

VERSIONS: Final = "version"
TRANSACTIONS: Final = "transaction"
DATA: Final = "data"
DELETIONS: Final = "deletion"
INDEXES: Final = "index"

_KINDS: Final = {
    "_versions": VERSIONS,
    "_transactions": TRANSACTIONS,
    "data": DATA,
    "_deletions": DELETIONS,
    "_indices": INDEXES,
}
_LANCE_VERSION_MAX: Final = 2**64 - 1
_DETACHED: Final = 2**63
_DIGITS: Final = 20


def unit_of(path: str) -> tuple[str, str] | None:
    """Return what kind of file a path below a table is and the unit it belongs to; None if it is not Lance's."""
    folder, _, rest = path.partition("/")
    kind = _KINDS.get(folder)
    if kind is None or not rest:
        return None
    name = rest.partition("/")[0]
    if kind == TRANSACTIONS:
        return kind, transaction_unit(name.removesuffix(".txn").partition("-")[2])
    if kind == INDEXES:
        return kind, index_unit(name)
    # A name that is being written has more endings than one that is done.
    return kind, f"{folder}/{name.partition('.')[0]}"


HINT: Final = "_versions/latest_version_hint"
"""Where Lance notes which version is the newest plain one."""


def version_unit(version: int) -> str:
    """Return the unit of a version's manifest: of a detached one by its number, else by its distance from 2^64."""
    name = f"d{version}" if version >= _DETACHED else f"{_LANCE_VERSION_MAX - version:0{_DIGITS}d}"
    return f"_versions/{name}"


def transaction_unit(uuid: str) -> str:
    """Return the unit of a transaction."""
    return f"_transactions/{uuid}"


def data_unit(path: str) -> str:
    """Return the unit of a data file, named as a fragment names it."""
    return f"data/{path.partition('/')[0].partition('.')[0]}"


def deletion_unit(fragment: int, read_version: int, number: int) -> str:
    """Return the unit of a deletion file."""
    return f"_deletions/{fragment}-{read_version}-{number}"


def index_unit(uuid: str) -> str:
    """Return the unit of a part of an index."""
    return f"_indices/{uuid}"
