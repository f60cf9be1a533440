"""Every path under a graph's root. Names people choose never become part of one."""

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import TableId, is_ulid
from omnigraph.model.tables import TableKind

MANIFEST = "__manifest"
MANIFEST_VERSIONS = f"{MANIFEST}/_versions"
MANIFEST_TRANSACTIONS = f"{MANIFEST}/_transactions"
MANIFEST_DATA = f"{MANIFEST}/data"
RECOVERY = "__recovery"
SIDECAR_SUFFIX = ".json"
AUDIT = "_graph_commit_recoveries.lance"
STAGING = "__staging"
PROBE = "__probe"
INTENT = "intent.json"

_TABLE_FOLDERS = {TableKind.NODE: "nodes", TableKind.EDGE: "edges"}
TABLE_FOLDERS = tuple(_TABLE_FOLDERS.values())
_LANCE_VERSION_MAX = 2**64 - 1
_MANIFEST_SUFFIX = ".manifest"
_TRANSACTION_SUFFIX = ".txn"


def table_location(kind: TableKind, table: TableId) -> str:
    """Return the folder of a table's dataset; its id was allocated, never derived from a name."""
    if not is_ulid(table):
        raise CorruptGraphError(f"{table!r} is not a table id, so no path is made from it", table=table)
    return f"{_TABLE_FOLDERS[kind]}/{table}"


def sidecar(operation: str) -> str:
    """Return the object of a promise."""
    if not is_ulid(operation):
        raise CorruptGraphError(f"{operation!r} is not an operation id, so no path is made from it")
    return f"{RECOVERY}/{operation}{SIDECAR_SUFFIX}"


def staging(operation: str) -> str:
    """Return the folder of a write that is being staged."""
    if not is_ulid(operation):
        raise CorruptGraphError(f"{operation!r} is not an operation id, so no path is made from it")
    return f"{STAGING}/{operation}"


def intent(operation: str) -> str:
    """Return the object that says a write is being staged."""
    return f"{staging(operation)}/{INTENT}"


def manifest_version_of(key: str) -> int | None:
    """Return the version a `_versions` object holds; Lance names it by its distance from 2^64."""
    name = key.rsplit("/", 1)[-1]
    digits = name.removesuffix(_MANIFEST_SUFFIX)
    if digits == name or not digits.isascii() or not digits.isdigit():
        return None
    return _LANCE_VERSION_MAX - int(digits)


def transaction_base_of(key: str) -> int | None:
    """Return the version a `_transactions` object was based on."""
    name = key.rsplit("/", 1)[-1]
    digits, dash, _ = name.partition("-")
    if not dash or not name.endswith(_TRANSACTION_SUFFIX) or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)
