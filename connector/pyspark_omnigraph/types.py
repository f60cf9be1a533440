"""Our types and Spark's, both ways. Nothing is rounded, wrapped or guessed on the way.

Spark has no unsigned numbers and no vectors: ``U32`` is a ``bigint``, ``U64`` a ``decimal(20,0)`` (as in Spark's own
Parquet reader), ``Vector(n)`` an ``array<float>`` whose length is checked when it is written. PySpark's own mapping is
private and changed between releases, so this one is ours.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

import pyarrow as pa
from pyspark.sql import types as spark

from omnigraph.errors import InvalidDataError, InvalidOptionError
from omnigraph.model.schema import (
    ENDPOINT_COLUMNS,
    EdgeType,
    EnumType,
    ListType,
    PropertyType,
    Scalar,
    ScalarType,
    TableType,
    VectorType,
    did_you_mean,
)

U64_DECIMAL: Final = spark.DecimalType(20, 0)
TEXT: Final = ScalarType(scalar=Scalar.STRING)
MOMENT: Final = pa.timestamp("us", tz="UTC")

_SPARK: Final[dict[Scalar, spark.DataType]] = {
    Scalar.STRING: spark.StringType(),
    Scalar.BLOB: spark.BinaryType(),
    Scalar.BOOL: spark.BooleanType(),
    Scalar.I32: spark.IntegerType(),
    Scalar.I64: spark.LongType(),
    Scalar.U32: spark.LongType(),
    Scalar.U64: U64_DECIMAL,
    Scalar.F32: spark.FloatType(),
    Scalar.F64: spark.DoubleType(),
    Scalar.DATE: spark.DateType(),
    Scalar.DATETIME: spark.TimestampType(),
}
_ARROW: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: pa.binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.int64(),
    Scalar.U64: pa.decimal128(20, 0),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: MOMENT,
}
_NUMBERS: Final = (
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
)
_ACCEPTED: Final[dict[Scalar, tuple[type[spark.DataType], ...]]] = {
    Scalar.STRING: (spark.StringType,),
    Scalar.BLOB: (spark.BinaryType,),
    Scalar.BOOL: (spark.BooleanType,),
    Scalar.I32: _NUMBERS,
    Scalar.I64: _NUMBERS,
    Scalar.U32: _NUMBERS,
    Scalar.U64: _NUMBERS,
    Scalar.F32: _NUMBERS,
    Scalar.F64: _NUMBERS,
    Scalar.DATE: (spark.DateType,),
    Scalar.DATETIME: (spark.TimestampType,),
}


def columns_of(kind: TableType) -> dict[str, PropertyType]:
    """Return the columns of a type's table in their order: its ids, then its properties."""
    ids = ("id", *ENDPOINT_COLUMNS) if isinstance(kind, EdgeType) else ("id",)
    return dict.fromkeys(ids, TEXT) | {column.name: column.type for column in kind.properties}


def spark_schema(kind: TableType, columns: Sequence[str] | None = None) -> spark.StructType:
    """Return the columns of a type as Spark sees them, all of them or those named, in that order."""
    known = columns_of(kind)
    wanted = list(known) if columns is None else columns
    for name in wanted:
        if name not in known:
            raise _unknown(kind, name, InvalidOptionError)
    return spark.StructType([spark.StructField(name, spark_type(known[name]), nullable=True) for name in wanted])


def spark_type(kind: PropertyType) -> spark.DataType:
    """Return the Spark type of a property type; elements of lists and vectors may be null."""
    match kind:
        case ScalarType(scalar=scalar):
            return _SPARK[scalar]
        case ListType(element=element):
            return spark.ArrayType(_SPARK[element], containsNull=True)
        case VectorType():
            return spark.ArrayType(spark.FloatType(), containsNull=True)
        case EnumType():
            return spark.StringType()
        case _:
            assert_never(kind)


def arrow_out(kind: TableType, columns: Sequence[str]) -> pa.Schema:
    """Return what Spark takes from a reader for these columns: every release from 4.0 on takes exactly this."""
    known = columns_of(kind)
    return pa.schema([pa.field(name, _arrow_type(known[name])) for name in columns])


def _arrow_type(kind: PropertyType) -> pa.DataType:
    match kind:
        case ScalarType(scalar=scalar):
            return _ARROW[scalar]
        case ListType(element=element):
            return pa.list_(pa.field("element", _ARROW[element]))
        case VectorType():
            return pa.list_(pa.field("element", pa.float32()))
        case EnumType():
            return pa.string()
        case _:
            assert_never(kind)


def to_spark(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows of ours in the types and the order Spark wants; no value changes."""
    columns: list[Any] = [batch.column(field.name) for field in wanted]
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=wanted)


def check_read_schema(kind: TableType, given: spark.StructType) -> tuple[str, ...]:
    """Return the columns a schema asks for that a user gave instead of ours; other types than ours are refused."""
    if not given.fields:
        raise InvalidOptionError(f"the schema for {kind.table} names no column; name at least one, such as id string")
    ours = spark_schema(kind, given.names)
    for mine, theirs in zip(ours, given, strict=True):
        if not _same_type(mine.dataType, theirs.dataType):
            raise InvalidOptionError(
                f"{kind.table}.{theirs.name} is {mine.dataType.simpleString()}, but the schema says "
                f"{theirs.dataType.simpleString()}; say what it is, and cast it afterwards"
            )
    return tuple(given.names)


def _same_type(mine: spark.DataType, theirs: spark.DataType) -> bool:
    """Tell whether two types are the same, whether or not elements may be null."""
    return mine.simpleString() == theirs.simpleString()


def check_write_schema(kind: TableType, given: spark.StructType) -> None:
    """Refuse rows that can not fit a type, before any task runs."""
    known = columns_of(kind)
    for field in given:
        if field.name not in known:
            raise _unknown(kind, field.name, InvalidDataError)
        if not _fits(field.dataType, known[field.name]):
            wanted = spark_type(known[field.name]).simpleString()
            raise InvalidDataError(
                f"{kind.table}.{field.name} is {known[field.name]}, written as {wanted}, but "
                f"{field.dataType.simpleString()} was given; {_advice(field.dataType, wanted)}",
                table_key=str(kind.table),
                column=field.name,
            )


def check_delete_schema(kind: TableType, given: spark.StructType) -> None:
    """Refuse rows that do not name what is to go."""
    if "id" not in given.names or not isinstance(given["id"].dataType, spark.StringType):
        raise InvalidDataError(
            f"rows of {kind.table} are deleted by a column 'id' of type string; the rows have {given.names}",
            table_key=str(kind.table),
        )


def _advice(given: spark.DataType, wanted: str) -> str:
    if isinstance(given, spark.DecimalType):
        return f"decimals are not stored: cast it to {wanted} where that loses nothing"
    if isinstance(given, spark.TimestampNTZType):
        return "it has no time zone: cast it to timestamp, which reads it in the session's zone"
    return f"cast it to {wanted}"


def _fits(given: spark.DataType, wanted: PropertyType) -> bool:
    match wanted:
        case _ if isinstance(given, spark.NullType):
            return True
        case ScalarType(scalar=scalar):
            return _scalar_fits(given, scalar)
        case ListType(element=element):
            return isinstance(given, spark.ArrayType) and _scalar_fits(given.elementType, element)
        case VectorType():
            return isinstance(given, spark.ArrayType) and _scalar_fits(given.elementType, Scalar.F32)
        case EnumType():
            return isinstance(given, spark.StringType)
        case _:
            assert_never(wanted)


def _scalar_fits(given: spark.DataType, wanted: Scalar) -> bool:
    if wanted is Scalar.U64 and isinstance(given, spark.DecimalType):
        return given.scale == 0
    return isinstance(given, (*_ACCEPTED[wanted], spark.NullType))


def from_spark(kind: TableType, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as the coordinator takes them: decimals that stand for U64 become numbers again, lists are whole."""
    known = columns_of(kind)
    for batch in batches:
        columns: list[Any] = [_whole(column) for column in batch.columns]
        for place, name in enumerate(batch.schema.names):
            if name in known and _holds_decimals(columns[place].type):
                columns[place] = _unsigned(kind, name, columns[place])
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _whole(column: Any) -> Any:
    """Return a column; if it is one of lists without a single element, with offsets for elements that are texts.

    Spark 4.0 sends none for texts that are not there. Lance reads the first of them all the same.
    """
    if not pa.types.is_list(column.type) or len(column.values):
        return column
    none = pa.array([], column.type.value_type)
    return pa.Array.from_buffers(column.type, len(column), column.buffers()[:2], offset=column.offset, children=[none])


def _holds_decimals(kind: Any) -> bool:
    return pa.types.is_decimal(kind.value_type if pa.types.is_list(kind) else kind)


def _unsigned(kind: TableType, name: str, column: Any) -> Any:
    wanted: Any = pa.list_(pa.uint64()) if pa.types.is_list(column.type) else pa.uint64()
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as problem:
        raise InvalidDataError(
            f"{kind.table}.{name} does not fit: {problem}; nothing was applied", table_key=str(kind.table), column=name
        ) from problem


def _unknown(kind: TableType, name: str, error: type[InvalidDataError] | type[InvalidOptionError]) -> Exception:
    hint = did_you_mean(name, columns_of(kind))
    return error(f"{kind.table} has no column {ascii(name)[:100]}" + (f"; {hint}" if hint else ""))
