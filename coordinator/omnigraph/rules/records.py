"""Records of files as rows of tables: which type a record is of, which columns it fills, and with what."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import TypeNotFoundError
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import ENDPOINT_COLUMNS, EdgeType, TableType, did_you_mean
from omnigraph.rules.arrow_schema import arrow_schema, is_blob
from omnigraph.rules.identity import ID_CHARACTERS_MAX, Minting, key_ids, with_fresh_ids
from omnigraph.rules.record_values import text_column, typed_column
from omnigraph.rules.values import Column, MisfitError, compute, converted, infinities

Row: TypeAlias = dict[str, Any]
NODE_FIELDS = frozenset({"type", "data", "id"})
EDGE_FIELDS = frozenset({"edge", "from", "to", "data", "id"})
ENDPOINT_NAMES = {"from": "src", "to": "dst"}
SHORT_KEY_CHARACTERS_MAX = ID_CHARACTERS_MAX // 8
"""However they are escaped, keys of so few characters make no id that is too long."""


class BadRecordError(ValueError):
    """A record can not be taken: which row of what was given, which table and column, and why."""

    def __init__(
        self, problem: str, *, row: int | None = None, table: str | None = None, column: str | None = None
    ) -> None:
        super().__init__(problem)
        self.row = row
        self.table = table
        self.column = column


def plain_schema(kind: TableType) -> pa.Schema:
    """Return a type's columns as files hold them: blobs are bytes, everything may be null, nothing is annotated."""
    return pa.schema([pa.field(f.name, pa.large_binary() if is_blob(f) else f.type) for f in arrow_schema(kind)])


# -- one record -----------------------------------------------------------------------------------------


def record_of(catalog: Catalog, value: Any, only: TableType | None = None) -> tuple[TableType, Row]:
    """Return the type and the row of one decoded JSON record, which may have to be of one type."""
    if type(value) is not dict:
        shown = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
        raise BadRecordError(f'a record is an object such as {{"type": "Person", "data": {{…}}}}, not {shown}')
    is_edge = "edge" in value
    if is_edge == ("type" in value):
        if is_edge:
            raise BadRecordError("the record has both 'type' and 'edge'; a node has 'type', an edge has 'edge'")
        raise BadRecordError("the record has neither 'type' nor 'edge', so it is of no type")
    kind = _kind(catalog, value["edge" if is_edge else "type"], is_edge)
    if only is not None and kind is not only:
        raise BadRecordError(f"the record is of {kind.table}, but only {only.table} is to be loaded")
    if not value.keys() <= (EDGE_FIELDS if is_edge else NODE_FIELDS):
        raise _stray_field(kind, value)
    data = value.get("data", {})
    if type(data) is not dict:
        raise BadRecordError("'data' is an object of properties, or is left away", table=str(kind.table))
    if is_edge:
        data = _with_endpoints(kind, value, data)
    return kind, _with_id(kind, value, data)


def _kind(catalog: Catalog, name: Any, is_edge: bool) -> TableType:
    if type(name) is not str:
        raise BadRecordError("the name of a type is a text")
    try:
        kind = catalog.type(name)
    except TypeNotFoundError as problem:
        raise BadRecordError(problem.message) from None
    if isinstance(kind, EdgeType) != is_edge:
        what, field = ("an edge type", "edge") if isinstance(kind, EdgeType) else ("a node type", "type")
        raise BadRecordError(f'{name!r} is {what}; write "{field}": "{name}"', table=str(kind.table))
    return kind


def _stray_field(kind: TableType, value: Row) -> BadRecordError:
    fields = EDGE_FIELDS if isinstance(kind, EdgeType) else NODE_FIELDS
    name = next(name for name in value if name not in fields)
    if name in plain_schema(kind).names and name not in ENDPOINT_COLUMNS:
        hint: str | None = "properties belong in 'data'"
    else:
        hint = did_you_mean(name, sorted(fields))
    text = f"a record of {kind.table} has no field {ascii(name)[:60]}" + (f"; {hint}" if hint else "")
    return BadRecordError(text, table=str(kind.table))


def _with_endpoints(kind: TableType, value: Row, data: Row) -> Row:
    for name, column in ENDPOINT_NAMES.items():
        if name not in value:
            raise BadRecordError(f"an edge has {name!r}, the id of a node; this record has none", table=str(kind.table))
        if column in data:
            raise BadRecordError(
                f"{column!r} is given as {name!r}, beside 'data'", table=str(kind.table), column=column
            )
    return {**data, "src": value["from"], "dst": value["to"]}


def _with_id(kind: TableType, value: Row, data: Row) -> Row:
    if "id" not in value:
        return data
    if "id" in data and data["id"] != value["id"]:
        raise BadRecordError("'id' is given twice, and not the same", table=str(kind.table), column="id")
    return {**data, "id": value["id"]}


# -- many rows ------------------------------------------------------------------------------------------


def batch_of_rows(
    kind: TableType, rows: Sequence[Row], beside: Mapping[str, Sequence[Any]] | None = None
) -> pa.RecordBatch:
    """Return decoded rows as columns, or raise BadRecordError naming the first row at fault in a column.

    What stands beside the rows are whole columns, which the rows must not have too.
    """
    schema = plain_schema(kind)
    apart = beside or {}
    named: set[str] = set().union(*rows)
    for name in sorted((named - set(schema.names)) | (named & set(apart))):
        first = next(number for number, row in enumerate(rows) if name in row)
        raise _unknown_column(kind, name, schema.names, first)

    def column(field: Any) -> Column:
        if field.name in apart:
            values = apart[field.name]
        elif field.name in named:
            values = _values(rows, field.name)
        else:
            return pa.nulls(len(rows), field.type)
        return _fitted(kind, field, len(rows), lambda start, end: typed_column(values[start:end], field.type))

    return _batch(kind, schema, column)


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except KeyError:
        return [row.get(name) for row in rows]


def batch_of_texts(kind: TableType, texts: pa.RecordBatch) -> pa.RecordBatch:
    """Return columns of texts, as CSV has them, as the columns of a type."""
    schema = plain_schema(kind)
    given = _by_column(kind, texts, schema)

    def column(field: Any) -> Column:
        if field.name not in given:
            return pa.nulls(texts.num_rows, field.type)
        values = given[field.name].to_pylist()
        return _fitted(kind, field, len(values), lambda start, end: text_column(values[start:end], field.type))

    return _batch(kind, schema, column)


def batch_of_columns(kind: TableType, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return typed columns as the columns of a type, each value unchanged."""
    schema = plain_schema(kind)
    given = _by_column(kind, batch, schema)

    def column(field: Any) -> Column:
        if field.name not in given:
            return pa.nulls(batch.num_rows, field.type)
        there = given[field.name]
        return _fitted(kind, field, batch.num_rows, lambda start, end: _converted(there, field.type, start, end))

    return _batch(kind, schema, column)


def check_columns(kind: TableType, names: Sequence[str]) -> None:
    """Refuse columns that a type has not, or has twice."""
    _columns(kind, names, plain_schema(kind))


def _by_column(kind: TableType, batch: pa.RecordBatch, schema: pa.Schema) -> Mapping[str, Column]:
    return dict(zip(_columns(kind, batch.schema.names, schema), batch.columns, strict=True))


def _columns(kind: TableType, names: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return the columns that names of a file mean; an edge's may be called from and to."""
    own = {column.name for column in kind.properties}
    aliases = {name: column for name, column in ENDPOINT_NAMES.items() if column in schema.names and name not in own}
    found = [aliases.get(name, name) for name in names]
    for name, column in zip(names, found, strict=True):
        if column not in schema.names:
            raise _unknown_column(kind, name, [*schema.names, *aliases], None)
        if found.count(column) > 1:
            raise BadRecordError(f"{kind.table} is given {column!r} twice", table=str(kind.table), column=column)
    return found


def _unknown_column(kind: TableType, name: str, known: Sequence[str], row: int | None) -> BadRecordError:
    hint = did_you_mean(name, known)
    text = f"{kind.table} has no property {ascii(name)[:60]}" + (f"; {hint}" if hint else "")
    return BadRecordError(text, row=row, table=str(kind.table), column=name[:200])


def _converted(column: Column, wanted: Any, start: int, end: int) -> Column:
    part = pa.chunked_array([column.slice(start, end - start)])
    fitted = converted(part, wanted)
    if infinities(fitted) != infinities(part):
        raise MisfitError(f"a number is too large for {wanted}")
    return pa.nulls(0, wanted) if fitted.num_chunks == 0 else pa.concat_arrays(fitted.chunks)


def _fitted(kind: TableType, field: Any, count: int, attempt: Callable[[int, int], Column]) -> Column:
    """Return a whole column, or find the first row that does not fit."""
    try:
        return attempt(0, count)
    except MisfitError as problem:
        row = _first_bad(attempt, count)
        reason = str(problem)
    if row is not None:
        try:
            attempt(row, row + 1)
        except MisfitError as alone:
            reason = str(alone)
    text = f"{kind.table}.{field.name} does not fit: {reason}"
    raise BadRecordError(text, row=row, table=str(kind.table), column=field.name)


def _first_bad(attempt: Callable[[int, int], Column], count: int) -> int | None:
    """Return the first row that fails, or None if the column fails whatever its rows are."""

    def fails(start: int, end: int) -> bool:
        try:
            attempt(start, end)
        except MisfitError:
            return True
        return False

    if fails(0, 0):
        return None
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (start, middle) if fails(start, middle) else (middle, end)
    return start


def _batch(kind: TableType, schema: pa.Schema, column: Callable[[Any], Column]) -> pa.RecordBatch:
    columns = {field.name: column(field) for field in schema}
    for field in arrow_schema(kind):
        made = columns[field.name]
        if made.null_count and not field.nullable and field.name != "id":
            first = compute.index(compute.is_null(made), True).as_py()
            raise BadRecordError(
                f"{kind.table}.{field.name} is required, but the record has none",
                row=first,
                table=str(kind.table),
                column=field.name,
            )
    _check_key(kind, columns)
    _check_lengths(kind, columns)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _check_key(kind: TableType, columns: Mapping[str, Column]) -> None:
    """Refuse an id that is not the one its key makes."""
    given = columns["id"]
    if not kind.key_columns or given.null_count == len(given):
        return
    differs = compute.fill_null(compute.not_equal(given, ids_of(kind, columns)), False)
    if compute.any(differs).as_py():
        raise BadRecordError(
            f"{kind.table}: 'id' differs from the key ({', '.join(kind.key_columns)}) it is made from",
            row=compute.index(differs, True).as_py(),
            table=str(kind.table),
            column="id",
        )


def _check_lengths(kind: TableType, columns: Mapping[str, Column]) -> None:
    """Refuse an id that has no characters, or too many."""
    if len(kind.key_columns) > 1 or (kind.key_columns and not pa.types.is_string(columns[kind.key_columns[0]].type)):
        longest = max(_characters(columns[name]) for name in kind.key_columns)
        if longest <= SHORT_KEY_CHARACTERS_MAX // len(kind.key_columns):
            return
    lengths = compute.utf8_length(ids_of(kind, columns))
    bad = compute.fill_null(compute.or_(compute.equal(lengths, 0), compute.greater(lengths, ID_CHARACTERS_MAX)), False)
    if compute.any(bad).as_py():
        raise BadRecordError(
            f"{kind.table}: an id has 1 to {ID_CHARACTERS_MAX} characters",
            row=compute.index(bad, True).as_py(),
            table=str(kind.table),
            column="id",
        )


def _characters(column: Column) -> int:
    """Return the length of the longest text of a column; what is no text is short."""
    return int(compute.max(compute.utf8_length(column)).as_py() or 0) if pa.types.is_string(column.type) else 0


# -- ids ------------------------------------------------------------------------------------------------


def ids_of(kind: TableType, columns: Mapping[str, Column]) -> Column:
    """Return the ids of rows: those their keys make, or those that were given, of which some may be missing."""
    if not kind.key_columns:
        return columns["id"]
    return key_ids({name: pa.chunked_array([columns[name]]) for name in kind.key_columns}, kind.key_columns)


def with_ids(kind: TableType, batch: pa.RecordBatch, mint: Minting) -> pa.RecordBatch:
    """Return rows with an id for each, if their type has no key to make it from."""
    given: Column = batch.column("id")
    if kind.key_columns or not given.null_count:
        return batch
    ids = with_fresh_ids(given, mint)
    return batch.set_column(batch.schema.get_field_index("id"), batch.schema.field("id"), ids)
