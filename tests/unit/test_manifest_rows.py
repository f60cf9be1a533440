"""Rows of `__manifest`: whatever is written comes back the same, and what can not be read is said to be corrupt."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import CorruptGraphError
from omnigraph.ids import CommitId, Incarnation, TableId
from omnigraph.model.lineage import Branch, Commit, CommitRow, Segment, Tag, Txn, bodies_of
from omnigraph.model.manifest import FORMAT_KEY, ManifestState, SchemaRow, Span, SpanKind, TableRow
from omnigraph.model.tables import Pin
from omnigraph.rules import manifest_rows as rows

COLUMNS = rows.manifest_schema(1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
maybe = st.none() | words
numbers = st.integers(min_value=0, max_value=2**63 - 1)
moments = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(9999, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
lineages = st.lists(st.builds(Segment, incarnation=names.map(Incarnation), upto=numbers), max_size=3).map(tuple)

branches = st.builds(
    Branch,
    name=names,
    incarnation=names.map(Incarnation),
    head=names.map(CommitId),
    version=numbers,
    created_at=moments,
    created_by=maybe,
    parent=maybe,
    lineage=lineages,
)
tags = st.builds(Tag, name=names, commit=names.map(CommitId), created_at=moments, created_by=maybe)
txns = st.builds(Txn, app_id=names, version=numbers, commit=names.map(CommitId))
commit_spans = st.builds(
    Span,
    file=names,
    kind=st.just(SpanKind.COMMITS),
    tier=numbers,
    rows=numbers,
    bytes=numbers,
    first_id=words,
    last_id=words,
    first_version=numbers,
    last_version=numbers,
    oldest=moments,
    newest=moments,
)
catalog_spans = st.builds(
    Span, file=names, kind=st.just(SpanKind.CATALOG), tier=st.just(0), rows=numbers, bytes=numbers
)
pins = st.builds(
    Pin,
    table=names.map(TableId),
    version=numbers,
    lance_version=st.integers(min_value=0, max_value=2**64 - 1),
    transaction=words,
    rows=numbers,
)
commits = st.builds(
    Commit,
    id=names.map(CommitId),
    branch=names,
    incarnation=names.map(Incarnation),
    version=numbers,
    parents=st.lists(names.map(CommitId), max_size=2).map(tuple),
    actor=maybe,
    operation=words,
    message=maybe,
    created_at=moments,
    schema_hash=words,
    lineage=lineages,
    pins=st.lists(pins, max_size=4).map(lambda found: {pin.table: pin for pin in found}),
    metrics=st.dictionaries(words, st.dictionaries(words, numbers, max_size=2), max_size=2),
    user_metadata=maybe,
    took_ms=st.none() | numbers,
    txn=st.none() | st.tuples(words, numbers),
)


@st.composite
def states(draw: st.DrawFn) -> ManifestState:
    return ManifestState(
        branches={b.name: b for b in draw(st.lists(branches, max_size=4))},
        tags={t.name: t for t in draw(st.lists(tags, max_size=4))},
        txns={t.app_id: t for t in draw(st.lists(txns, max_size=4))},
        tail=tuple(CommitRow.of(c) for c in draw(st.lists(commits, max_size=4))),
        spans=tuple(draw(st.lists(commit_spans | catalog_spans, max_size=4))),
    )


@given(states())
def test_a_state_written_and_read_is_the_same_state_in_the_same_order(state: ManifestState) -> None:
    again = rows.decode_head(rows.encode(rows.head_rows(state), COLUMNS))
    assert again == state
    assert list(again.branches) == list(state.branches)


@given(commits)
def test_a_commit_comes_back_whole_with_every_bit_of_its_lance_versions(commit: Commit) -> None:
    table = rows.encode([rows.commit_row(CommitRow.of(commit))], COLUMNS)
    assert rows.decode_commit(table.to_pylist()[0]).commit == commit


@given(st.lists(commits, max_size=4))
def test_commits_that_are_decoded_at_once_come_back_whole_and_in_order(many: list[Commit]) -> None:
    table = rows.encode([rows.commit_row(CommitRow.of(commit)) for commit in many], COLUMNS)
    assert decoded(rows.decode_commits(table)) == many


def decoded(found: list[CommitRow]) -> list[Commit]:
    return [row.decoded(body) for row, body in zip(found, bodies_of(found), strict=True)]


@given(st.lists(commits, min_size=2, max_size=3), st.text('{}[]",:az09', max_size=40))
def test_a_commit_among_others_that_is_garbage_is_told_by_its_id(many: list[Commit], body: str) -> None:
    found = [CommitRow.of(commit) for commit in many]
    found[1] = replace(found[1], body=body)
    with pytest.raises(CorruptGraphError, match="can not be decoded") as problem:
        decoded(found)
    assert problem.value.facts["commit"] == found[1].id


@pytest.mark.parametrize("version", [2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1])
def test_a_lance_version_is_text_in_the_body_so_no_json_reader_rounds_it(version: int) -> None:
    pin = Pin(table=TableId("t"), version=1, lance_version=version, transaction="x", rows=1)
    assert pin.to_json()["lance"] == str(version)
    assert Pin.from_json(json.loads(json.dumps(pin.to_json()))) == pin


def test_the_head_rows_carry_the_format_stamp() -> None:
    assert (rows.encode([], rows.manifest_schema(7)).schema.metadata or {})[FORMAT_KEY.encode()] == b"7"


def a_state() -> ManifestState:
    branch = Branch(
        name="main",
        incarnation=Incarnation("i"),
        head=CommitId("c"),
        version=1,
        created_at=NOW,
        created_by=None,
        parent=None,
        lineage=(Segment(incarnation=Incarnation("o"), upto=1),),
    )
    return ManifestState(
        branches={"main": branch},
        tags={"t": Tag(name="t", commit=CommitId("c"), created_at=NOW, created_by=None)},
        txns={"app": Txn(app_id="app", version=1, commit=CommitId("c"))},
        tail=(),
        spans=(Span(file="f", kind=SpanKind.CATALOG, tier=0, rows=1, bytes=1),),
    )


def damaged(which: str, **changes: Any) -> pa.Table:
    found = rows.head_rows(a_state())
    return rows.encode([{**row, **changes} if row["kind"] == which else row for row in found], COLUMNS)


def test_a_row_of_an_unknown_kind_means_a_format_we_do_not_know() -> None:
    with pytest.raises(CorruptGraphError, match="unknown kind 'sidecar'") as found:
        rows.decode_head(damaged("tag", kind="sidecar"))
    assert found.value.row_kind == "sidecar"


GARBAGE = ["", "{", "null", "[]", "7", '"text"', "{}", '{"head":"c"}', '{"kind":"other"}']


@pytest.mark.parametrize("kind", ["branch", "tag", "txn", "span"])
@pytest.mark.parametrize("body", GARBAGE)
def test_a_body_that_is_garbage_is_a_corrupt_graph_and_nothing_else(kind: str, body: str) -> None:
    with pytest.raises(CorruptGraphError, match="can not be decoded"):
        rows.decode_head(damaged(kind, body=body))


@given(st.sampled_from(["branch", "tag", "txn", "span"]), words | st.text('{}[]",:az09', max_size=40))
def test_any_text_as_a_body_is_a_corrupt_graph(kind: str, body: str) -> None:
    with pytest.raises(CorruptGraphError):
        rows.decode_head(damaged(kind, body=body))


@pytest.mark.parametrize(("kind", "column"), [("branch", "version"), ("txn", "version"), ("span", "version")])
def test_a_row_without_its_number_is_a_corrupt_graph(kind: str, column: str) -> None:
    with pytest.raises(CorruptGraphError):
        rows.decode_head(damaged(kind, **{column: None}))


LINEAGES = ['[["o"]]', '[["o",1,2]]', '[["o","x"]]', "[7]", "7"]


@pytest.mark.parametrize("lineage", LINEAGES)
def test_a_branch_with_a_broken_lineage_is_a_corrupt_graph(lineage: str) -> None:
    body = '{"head":"c","created_by":null,"parent":null,"lineage":' + lineage + "}"
    with pytest.raises(CorruptGraphError):
        rows.decode_head(damaged("branch", body=body))


@pytest.mark.parametrize("body", ["", "{", "null", "{}", '{"pins":[{}]}'])
def test_a_commit_whose_body_is_garbage_is_a_corrupt_graph(body: str) -> None:
    row = CommitRow(id=CommitId("c"), incarnation=Incarnation("i"), version=1, created_at=NOW, actor=None, body=body)
    with pytest.raises(CorruptGraphError):
        _ = row.commit


@pytest.mark.parametrize("body", ["", "{", "null", "{}"])
def test_a_schema_row_whose_body_is_garbage_is_a_corrupt_graph(body: str) -> None:
    with pytest.raises(CorruptGraphError):
        rows.decode_schema({"kind": "schema", "id": "h", "body": body})


@given(words, words, words)
def test_a_schema_row_comes_back_whole(digest: str, source: str, catalog: str) -> None:
    schema = SchemaRow(hash=digest, source=source, catalog=catalog)
    assert rows.decode_schema(rows.encode([rows.schema_row(schema)], COLUMNS).to_pylist()[0]) == schema


def test_a_table_row_says_where_the_table_is() -> None:
    row = rows.table_row(TableRow(id="T", key="node:Person", location="nodes/T", created_at=NOW))
    stored = rows.encode([row], COLUMNS).to_pylist()[0]
    assert (stored["kind"], stored["id"], stored["created_at"]) == ("table", "T", NOW)
    assert json.loads(stored["body"]) == {"key": "node:Person", "location": "nodes/T"}


@given(st.lists(commits, min_size=1, max_size=6))
def test_the_bounds_of_a_file_admit_every_commit_in_it(found: list[Commit]) -> None:
    table = rows.encode([rows.commit_row(CommitRow.of(commit)) for commit in found], COLUMNS)
    span = rows.span_of("f", 2, table, 99)
    assert (span.file, span.tier, span.rows, span.bytes, span.kind) == ("f", 2, len(found), 99, SpanKind.COMMITS)
    assert span.oldest is not None and span.newest is not None
    for commit in found:
        assert span.first_id <= commit.id <= span.last_id
        assert span.first_version <= commit.version <= span.last_version
        assert span.oldest <= commit.created_at <= span.newest
