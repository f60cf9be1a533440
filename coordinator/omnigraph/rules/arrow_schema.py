"""The columns a node or edge table has in Arrow and Lance."""

from typing import Any

import pyarrow as pa

from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    EdgeType,
    EnumType,
    ListType,
    Property,
    PropertyType,
    Scalar,
    ScalarType,
    TableType,
    VectorType,
)

PROPERTY_ID = b"omnigraph:property_id"
EXTENSION_NAME = b"ARROW:extension:name"
LANCE_BLOB = b"lance.blob.v2"

# The smallest struct Lance takes for a blob: the bytes themselves, or the address of an object that holds them.
BLOB_STORAGE = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])

ARROW_TYPES: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: BLOB_STORAGE,
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(kind: TableType) -> pa.Schema:
    """Return the columns of a type's table: its ids, then its properties in declared order."""
    ids = ("id", *ENDPOINT_COLUMNS) if isinstance(kind, EdgeType) else ("id",)
    fields = [pa.field(name, pa.string(), nullable=False) for name in ids]
    return pa.schema([*fields, *(arrow_field(column) for column in kind.properties)])


def arrow_field(column: Property) -> "pa.Field[Any]":
    """Return the column of a property; its identity travels in the field's metadata."""
    metadata = {PROPERTY_ID: column.id.encode()}
    if column.type == ScalarType(scalar=Scalar.BLOB):
        metadata[EXTENSION_NAME] = LANCE_BLOB
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable, metadata=metadata)


def is_blob(field: "pa.Field[Any]") -> bool:
    """Tell whether a column holds blobs, in our form or in the one Lance shows once it is imported."""
    if isinstance(field.type, pa.BaseExtensionType):
        return field.type.extension_name == LANCE_BLOB.decode()
    return (field.metadata or {}).get(EXTENSION_NAME) == LANCE_BLOB


def arrow_type(kind: PropertyType) -> pa.DataType:
    """Return the Arrow type of a property type; list elements and vector components may be null."""
    match kind:
        case ScalarType(scalar=scalar):
            return ARROW_TYPES[scalar]
        case ListType(element=element):
            return pa.list_(pa.field("item", ARROW_TYPES[element], nullable=True))
        case VectorType(dimension=dimension):
            return pa.list_(pa.field("item", pa.float32(), nullable=True), dimension)
        case EnumType():
            return pa.string()
