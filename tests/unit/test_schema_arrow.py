"""The columns of a type's table, and that Lance takes them."""

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.ids import PropertyId, TypeId
from omnigraph.model.catalog import Catalog
from omnigraph.model.schema import TypeKind
from omnigraph.rules.arrow_schema import arrow_schema, is_blob
from omnigraph.rules.schema_compile import compile_schema


class NamedIds:
    """Identities one can read in a failing test."""

    def type_id(self, kind: TypeKind, name: str) -> TypeId:
        return TypeId(f"{kind}:{name}")

    def property_id(self, kind: TypeKind, owner: str, name: str) -> PropertyId:
        return PropertyId(f"{kind}:{owner}.{name}")


def compiled(text: str) -> Catalog:
    return compile_schema(text, NamedIds())


ARROW: dict[str, pa.DataType] = {
    "String": pa.string(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.timestamp("us", tz="UTC"),
    "enum(a, b)": pa.string(),
    "[DateTime]": pa.list_(pa.field("item", pa.timestamp("us", tz="UTC"), nullable=True)),
    "Vector(7)": pa.list_(pa.field("item", pa.float32(), nullable=True), 7),
    "Blob": pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())]),
}


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("text", ARROW)
def test_each_property_type_has_its_arrow_type(text: str, nullable: bool) -> None:
    field = arrow_schema(compiled(f"node A {{ a: {text}{'?' if nullable else ''} }}").nodes[0]).field("a")
    assert field.type.equals(ARROW[text], check_metadata=True)
    assert field.nullable is nullable
    assert is_blob(field) is (text == "Blob")


def test_a_node_table_has_its_id_and_then_its_properties_as_declared() -> None:
    schema = arrow_schema(compiled("interface I { m: I32 } node A implements I { z: String @key a: I32? }").nodes[0])
    assert schema.names == ["id", "z", "a", "m"]
    assert schema.field("id") == pa.field("id", pa.string(), nullable=False)
    assert schema.field("id").metadata is None


def test_an_edge_table_has_its_ends_after_its_id() -> None:
    schema = arrow_schema(compiled("node A {} edge E: A -> A { z: I32? b: I32 }").edges[0])
    assert schema.names == ["id", "src", "dst", "z", "b"]
    assert [schema.field(name).nullable for name in schema.names] == [False, False, False, True, False]


def test_each_property_column_carries_its_identity() -> None:
    schema = arrow_schema(compiled("node A { a: I32 b: Blob }").nodes[0])
    assert schema.field("a").metadata == {b"omnigraph:property_id": b"node:A.a"}
    assert schema.field("b").metadata == {
        b"omnigraph:property_id": b"node:A.b",
        b"ARROW:extension:name": b"lance.blob.v2",
    }


def test_lance_stores_every_type_and_gives_blobs_back(tmp_path: Path) -> None:
    columns = " ".join(f"c{i}: {text}?" for i, text in enumerate(ARROW) if text != "Blob")
    schema = arrow_schema(compiled(f"node A {{ {columns} raw: Blob? must: Blob }}").nodes[0])
    where = str(tmp_path / "a.lance")
    lance.write_dataset(schema.empty_table(), where, schema=schema, data_storage_version="2.2")
    empty: dict[str, Any] = {f"c{i}": None for i in range(len(ARROW) - 1)}
    rows = [
        {"id": "1", **empty, "raw": {"data": b"hello", "uri": None}, "must": {"data": b"", "uri": None}},
        {"id": "2", **empty, "raw": None, "must": {"data": b"x" * 100_000, "uri": None}},
    ]
    stored = lance.write_dataset(
        pa.Table.from_pylist(rows, schema=schema), where, mode="append", data_storage_version="2.2"
    )
    assert stored.count_rows() == 2
    assert [blob and blob.readall() for blob in stored.take_blobs("raw", indices=[0])] == [b"hello"]
    assert [blob and blob.readall() for blob in stored.take_blobs("must", indices=[0, 1])] == [b"", b"x" * 100_000]
    assert stored.to_table(filter="raw IS NULL", columns=["id"]).to_pylist() == [{"id": "2"}]


def test_identities_survive_in_a_lance_table(tmp_path: Path) -> None:
    schema = arrow_schema(compiled("node A { a: I32 raw: Blob v: Vector(2) }").nodes[0])
    stored = lance.write_dataset(schema.empty_table(), str(tmp_path / "a.lance"), data_storage_version="2.2").schema
    assert stored.names == schema.names
    for name in ("a", "raw", "v"):
        assert (stored.field(name).metadata or {})[b"omnigraph:property_id"] == f"node:A.{name}".encode()
    assert is_blob(stored.field("raw"))
