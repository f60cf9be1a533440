"""The form of a sidecar: read back as written, and anything else refused with an error that says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import CorruptGraphError, OmnigraphError, UnsupportedFormatError
from omnigraph.ids import CommitId, Incarnation, Sources, TableId
from omnigraph.model.manifest import SchemaRow
from omnigraph.model.merge_promise import Adoption, MergePromise
from omnigraph.model.schema_promise import SchemaPromise
from omnigraph.model.sidecar import SIDECAR_BYTES_MAX, SIDECAR_NUMBER, Owner, Sidecar, TablePromise
from omnigraph.model.staged import (
    Deletion,
    Replacement,
    RowSet,
    StagedAppend,
    StagedDelete,
    StagedOverwrite,
    StagedReshape,
    StagedUpsert,
)
from omnigraph.model.tables import Pin, TableKey, TableKind

NAME = "__recovery/01J0000000000000000000000A.json"
MINT = Sources().mint

ulids = st.builds(MINT)
counts = st.integers(0, 2**53)
versions = st.integers(0, 2**64 - 1)
texts = st.text(max_size=20)
several = st.lists(texts, max_size=3).map(tuple)
rowsets = st.builds(RowSet, fragment=counts, rows=counts, offsets=texts)
deletions = st.lists(st.builds(Deletion, out=rowsets, file=st.none() | texts), max_size=3).map(tuple)
written: dict[str, Any] = {"fragments": several, "rows": counts, "bytes": counts, "files": several}
staged = st.one_of(
    st.builds(StagedAppend, **written),
    st.builds(StagedOverwrite, **written),
    st.builds(StagedDelete, base_version=versions, deletions=deletions, files=several),
    st.builds(StagedReshape, base_version=versions, schema=several, is_rewrite=st.booleans(), **written),
    st.builds(
        StagedUpsert,
        base_version=versions,
        replacements=st.lists(st.builds(Replacement, fragment=texts, row_ids=texts), max_size=3).map(tuple),
        insertions=several,
        deletions=deletions,
        unchanged=st.lists(rowsets, max_size=3).map(tuple),
        rows_inserted=counts,
        bytes=counts,
        files=several,
    ),
)
pins = st.builds(Pin, table=ulids.map(TableId), version=counts, lance_version=versions, transaction=ulids, rows=counts)
promises = st.builds(
    TablePromise,
    table=ulids.map(TableId),
    key=st.builds(TableKey, kind=st.sampled_from(TableKind), name=st.text(min_size=1, max_size=20)),
    expected=st.none() | pins,
    transaction=ulids,
    staged=staged,
    must_be_new=st.booleans(),
    is_strict=st.booleans(),
    is_new_on_expected=st.booleans(),
    few_ids=st.none() | st.lists(texts, max_size=3).map(tuple),
)
keys = st.builds(TableKey, kind=st.sampled_from(TableKind), name=st.text(min_size=1, max_size=20))
moments = st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
adoptions = st.builds(Adoption, table=ulids.map(TableId), key=keys, expected=st.none() | pins, pin=pins)
merges = st.builds(
    MergePromise,
    source=ulids.map(CommitId),
    source_at=moments,
    schema_hash=texts,
    adopted=st.lists(adoptions, max_size=3).map(tuple),
)
schemas = st.builds(
    SchemaPromise,
    schema=st.builds(SchemaRow, hash=texts, source=texts, catalog=texts),
    is_stored=st.booleans(),
    added=st.lists(st.tuples(ulids.map(TableId), keys), max_size=3).map(tuple),
    dropped=st.lists(ulids.map(TableId), max_size=3).map(tuple),
)
sidecars = st.builds(
    Sidecar,
    operation=ulids,
    commit=ulids.map(CommitId),
    branch=texts,
    incarnation=ulids.map(Incarnation),
    base=ulids.map(CommitId),
    schema_hash=texts,
    writer=texts,
    actor=st.none() | texts,
    message=st.none() | texts,
    user_metadata=st.none() | texts,
    txn=st.none() | st.tuples(texts, st.integers(0, 2**63 - 1)),
    started_at=st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    owner=st.builds(Owner, host=texts, process=counts),
    tables=st.lists(promises, max_size=3).map(tuple),
    merge=st.none() | merges,
    schema=st.none() | schemas,
)


def example() -> Sidecar:
    table = TableId(MINT())
    return Sidecar(
        operation=MINT(),
        commit=CommitId(MINT()),
        branch="main",
        incarnation=Incarnation(MINT()),
        base=CommitId(MINT()),
        schema_hash="abc",
        writer="append",
        actor="alice",
        message=None,
        user_metadata=None,
        txn=("app", 7),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        owner=Owner(host="here", process=4711),
        tables=(
            TablePromise(
                table=table,
                key=TableKey(kind=TableKind.NODE, name="Person"),
                expected=Pin(table=table, version=1, lance_version=2**63 + 5, transaction=MINT(), rows=3),
                transaction=MINT(),
                staged=StagedAppend(fragments=("{}",), rows=1, bytes=10, files=("data/a.lance",)),
                must_be_new=True,
            ),
        ),
    )


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    body = json.loads(example().to_bytes())
    change(body)
    return json.dumps(body).encode()


def setting(*path: str | int, to: Any) -> bytes:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = to

    return changed(change)


@given(sidecars)
def test_what_is_written_is_read_back(sidecar: Sidecar) -> None:
    assert Sidecar.from_bytes(sidecar.to_bytes(), NAME) == sidecar


def a_merge() -> Sidecar:
    (table,) = example().tables
    assert table.expected is not None
    adopted = Adoption(table=table.table, key=table.key, expected=None, pin=table.expected)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    merge = MergePromise(source=CommitId(MINT()), source_at=at, schema_hash="abc", adopted=(adopted,))
    return replace(example(), merge=merge)


def test_only_a_merge_has_the_form_that_names_one() -> None:
    plain, merge = (json.loads(each.to_bytes()) for each in (example(), a_merge()))
    assert (plain["sidecar"], "merge" in plain) == (1, False)
    assert (merge["sidecar"], merge["merge"]["adopted"][0]["key"]) == (2, "node:Person")
    change = SchemaPromise(schema=SchemaRow(hash="h", source="s", catalog="c"), dropped=(TableId(MINT()),))
    schema = json.loads(replace(example(), schema=change).to_bytes())
    assert (schema["sidecar"], schema["schema_change"]["hash"]) == (SIDECAR_NUMBER, "h")
    for body, number in ((plain, 2), (plain, SIDECAR_NUMBER), (merge, 1), (merge, SIDECAR_NUMBER), (schema, 1)):
        with pytest.raises(CorruptGraphError, match="is not a sidecar"):
            Sidecar.from_bytes(json.dumps({**body, "sidecar": number}).encode(), NAME)


@given(sidecars, st.data())
def test_half_of_one_is_refused(sidecar: Sidecar, data: st.DataObject) -> None:
    raw = sidecar.to_bytes()
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))], NAME)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(raw, NAME)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(body: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    return [found for key, value in items for found in [(*at, key), *places(value, (*at, key))]]


@given(st.sampled_from(places(json.loads(example().to_bytes()))), JSON)
def test_any_value_in_any_place_is_read_or_refused_with_a_typed_error(path: tuple[str | int, ...], value: Any) -> None:
    try:
        read = Sidecar.from_bytes(setting(*path, to=value), NAME)
    except OmnigraphError:
        return
    assert Sidecar.from_bytes(read.to_bytes(), NAME) == read


@given(st.sampled_from(places(json.loads(a_merge().to_bytes())["merge"])), JSON)
def test_any_value_in_any_place_of_a_merge_is_read_or_refused(path: tuple[str | int, ...], value: Any) -> None:
    body = json.loads(a_merge().to_bytes())
    inside = body["merge"]
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    try:
        read = Sidecar.from_bytes(json.dumps(body).encode(), NAME)
    except OmnigraphError:
        return
    assert Sidecar.from_bytes(read.to_bytes(), NAME) == read


@given(st.sampled_from(sorted(json.loads(example().to_bytes()))))
def test_a_missing_name_is_refused(name: str) -> None:
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(changed(lambda body: body.pop(name)), NAME)


@pytest.mark.parametrize("number", [SIDECAR_NUMBER + 1, 2**70])
def test_a_newer_form_is_refused_with_the_advice_to_upgrade(number: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"{NAME} has form {number}.*upgrade"):
        Sidecar.from_bytes(setting("sidecar", to=number), NAME)


def test_newer_staged_work_inside_is_refused_with_the_advice_to_upgrade() -> None:
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Sidecar.from_bytes(setting("tables", 0, "staged", "schema", to=99), NAME)


@pytest.mark.parametrize("number", [0, -1, True, "1", None, 1.0, [1]])
def test_any_other_form_is_corrupt(number: object) -> None:
    with pytest.raises(CorruptGraphError, match="is not a sidecar"):
        Sidecar.from_bytes(setting("sidecar", to=number), NAME)


def test_one_that_is_too_large_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(CorruptGraphError, match="more than any sidecar has"):
        Sidecar.from_bytes(b"[" * (SIDECAR_BYTES_MAX + 1), NAME)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"sidecar": NaN}',
        b'{"sidecar": Infinity}',
        b'{"sidecar": 1, "sidecar": 1}',
        b'{"sidecar": 1, "tables": [{"key": 1, "key": 2}]}',
    ],
    ids=lambda raw: raw[:20].decode(errors="replace") or "empty",
)
def test_what_is_no_sidecar_is_corrupt_and_the_error_names_the_file(raw: bytes) -> None:
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(raw, NAME)


HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "",
    "a/b",
    "01J0000000000000000000000A/..",
    "01j0000000000000000000000a",
    5,
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "path",
    [
        ("operation",),
        ("commit",),
        ("incarnation",),
        ("base",),
        ("tables", 0, "table"),
        ("tables", 0, "transaction"),
    ],
    ids=str,
)
def test_an_id_that_could_be_a_path_is_refused(path: tuple[str | int, ...], value: object) -> None:
    with pytest.raises(CorruptGraphError):
        Sidecar.from_bytes(setting(*path, to=value), NAME)


@pytest.mark.parametrize("name", ["actor", "message", "user_metadata", "branch", "writer", "schema"])
@pytest.mark.parametrize("value", [5, ["a"], {"a": 1}, True])
def test_a_text_that_is_no_text_is_refused(name: str, value: object) -> None:
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(setting(name, to=value), NAME)


@pytest.mark.parametrize("number", [b"1e999", b"1" + b"0" * 30, b"-1" + b"0" * 30])
def test_a_time_that_no_clock_shows_is_refused(number: bytes) -> None:
    raw = setting("started_at", to="HERE").replace(b'"HERE"', number)
    with pytest.raises(CorruptGraphError, match=NAME):
        Sidecar.from_bytes(raw, NAME)
