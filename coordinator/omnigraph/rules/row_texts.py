"""Rows that are compared, as JSON objects by the names people know; a blob is told by its digest."""

import json

import pyarrow as pa

from omnigraph.rules.record_text import json_texts
from omnigraph.rules.row_changes import DIGEST_SHOWN, ComparedTable, field_of
from omnigraph.rules.values import Column


def row_texts(table: ComparedTable, structs: Column) -> Column:
    """Return each row as one JSON object; null where there is no row."""
    names = [json.dumps(column.name, ensure_ascii=False) for column in table.columns]
    columns = [_texts(field_of(structs, number), column.is_blob) for number, column in enumerate(table.columns)]
    rows = zip(*columns, strict=True) if columns else ((),) * len(structs)
    pairs = (zip(names, row, strict=True) for row in rows)
    texts = ["{" + ", ".join(f"{name}: {text}" for name, text in row) + "}" for row in pairs]
    there = structs.is_valid().to_pylist()
    return pa.array([text if is_there else None for text, is_there in zip(texts, there, strict=True)], pa.string())


def _texts(column: Column, is_blob: bool) -> list[str]:
    if not is_blob:
        return json_texts(column)
    return ["null" if value is None else f'"blob {value.hex()[:DIGEST_SHOWN]}"' for value in column.to_pylist()]
