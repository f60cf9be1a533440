"""Seals, seals on moved pins, and the form staged work travels in."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.storage.staging_kit import OPTIONS, Table, numbered

from omnigraph.errors import (
    CorruptGraphError,
    InvalidDataError,
    InvalidOptionError,
    StorageError,
    UnsupportedFormatError,
)
from omnigraph.model.staged import Staged, staged_from_json
from omnigraph.storage import lance_rows
from omnigraph.storage.lance_moving import combine_upserts, rebase, reseal
from omnigraph.storage.lance_sealing import missing_files
from omnigraph.storage.lance_staging import stage_delete, stage_overwrite
from omnigraph.storage.roots import StorageOptions
from omnigraph.testing.s3_server import SeaweedServer


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "t"))


@pytest.fixture
def filled(table: Table) -> Table:
    table.seal(table.append(numbered(*range(10))))
    return table


# -- seals --------------------------------------------------------------------------------------------


def test_work_against_one_version_is_not_sealed_on_another(filled: Table) -> None:
    upsert, delete = filled.upsert(numbered(1, n=0)), filled.delete(ids=["k2"])
    filled.seal(filled.append(numbered(50)))
    for staged in (upsert, delete):
        with pytest.raises(InvalidOptionError, match="was staged for version"):
            filled.seal(staged)


def test_two_seals_of_one_base_do_not_see_each_other(filled: Table) -> None:
    base = filled.version
    filled.seal(filled.append(numbered(50)))
    first, filled.version = filled.version, base
    filled.seal(filled.append(numbered(51)))
    assert "k50" not in filled.numbers
    filled.version = first
    assert "k51" not in filled.numbers


def test_a_missing_file_is_found_before_the_seal(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), "node N { k: String @key  b: Blob? }")
    table.seal(table.append([{"k": str(n), "b": b"."} for n in range(4)]))
    staged = table.upsert([{"k": "1", "b": b"x" * 200_000}, {"k": "9", "b": b"y" * 9_000_000}])
    assert {Path(name).suffix for name in staged.files} == {".lance", ".blob", ".arrow"}
    assert missing_files(table.uri, staged, options=OPTIONS) == ()
    for name in staged.files:
        lost = Path(table.uri) / name
        kept = lost.read_bytes()
        lost.unlink()
        assert missing_files(table.uri, staged, options=OPTIONS) == (name,)
        with pytest.raises(StorageError, match=f"1 staged files of .* are gone: {name}"):
            table.seal(staged)
        lost.write_bytes(kept)
    table.seal(staged)
    assert table.content["9"]["b"] == b"y" * 9_000_000


def test_a_version_that_is_not_there_is_a_storage_error(table: Table) -> None:
    with pytest.raises(StorageError, match=r"version 7 of .* can not be opened"):
        stage_delete(table.uri, 7, where="true", options=OPTIONS)


# -- moved pins ---------------------------------------------------------------------------------------


def moved(table: Table, staged: Any, meanwhile: Callable[[], Any]) -> Any:
    table.seal(meanwhile())
    assert table.version is not None
    again, sealed = reseal(table.uri, table.version, staged, f"m{next(table.names)}", options=table.options)
    if sealed is not None:
        table.version = sealed.lance_version
    table.handle.validate()
    return again


def data_files(staged: Any) -> set[str]:
    return {name for name in staged.files if name.startswith("data/")}


def test_an_append_is_sealed_on_a_moved_pin_as_it_is(filled: Table) -> None:
    staged = filled.append(numbered(50))
    assert moved(filled, staged, lambda: filled.append(numbered(51))) == staged
    assert {"k50", "k51"} <= set(filled.numbers)


def test_an_upsert_whose_rows_were_changed_meanwhile_uses_the_files_it_has(filled: Table) -> None:
    ids, staged = filled.row_ids, filled.upsert([*numbered(1, 2, n=0), *numbered(50)])
    again = moved(filled, staged, lambda: filled.upsert([*numbered(1, 3, n=-1), *numbered(60)]))
    assert data_files(again) == data_files(staged)
    assert (again.rows_updated, again.rows_inserted) == (2, 1)
    assert {k: filled.numbers[k] for k in ("k1", "k2", "k3", "k50", "k60")} == {
        "k1": 0, "k2": 0, "k3": -1, "k50": 50, "k60": 60,
    }  # fmt: skip
    assert {name: filled.row_ids[name] for name in ids} == ids


def test_a_row_inserted_meanwhile_is_replaced_and_keeps_its_row_id(filled: Table) -> None:
    staged = filled.upsert([*numbered(50, 51, n=0), *numbered(1, n=0)])
    filled.seal(filled.append(numbered(51)))
    ids = filled.row_ids
    again = moved(filled, staged, lambda: filled.append(numbered(99)))
    assert (again.rows_inserted, again.rows_updated) == (1, 2)
    assert {k: filled.numbers[k] for k in ("k50", "k51", "k1")} == {"k50": 0, "k51": 0, "k1": 0}
    assert filled.row_ids["k51"] == ids["k51"]


def test_a_row_deleted_meanwhile_is_inserted_again_under_a_fresh_row_id(filled: Table) -> None:
    ids, staged = filled.row_ids, filled.upsert(numbered(1, 2, n=0))
    again = moved(filled, staged, lambda: filled.delete(ids=["k1"]))
    assert (again.rows_inserted, again.rows_updated) == (1, 1)
    assert (filled.numbers["k1"], filled.numbers["k2"]) == (0, 0)
    assert filled.row_ids["k1"] not in ids.values()
    assert filled.row_ids["k2"] == ids["k2"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_row_that_was_unchanged_is_owed_when_someone_else_changed_it(filled: Table, gone: bool) -> None:
    staged = filled.upsert([*numbered(1, 2, 3), *numbered(4, n=0)])
    assert staged.rows_unchanged == 3
    again = moved(filled, staged, lambda: filled.delete(ids=["k2"]) if gone else filled.upsert(numbered(2, n=-1)))
    assert (again.rows_unchanged, again.rows_updated, again.rows_inserted) == (2, 1 if gone else 2, 1 if gone else 0)
    assert filled.numbers == {f"k{n}": n for n in range(10)} | {"k4": 0}


def test_an_upsert_that_was_made_by_someone_else_meanwhile_has_nothing_left_to_do(filled: Table) -> None:
    staged = filled.upsert(numbered(50))
    again = moved(filled, staged, lambda: filled.upsert(numbered(50)))
    assert (again.is_empty, again.rows_unchanged) == (True, 1)


def test_blobs_survive_a_move_that_writes_their_rows_again(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), "node N { k: String @key  b: Blob? }")
    rows: list[dict[str, Any]] = [{"k": "a", "b": b"a" * 100_000}, {"k": "b", "b": None}, {"k": "c", "b": b""}]
    table.seal(table.append(rows))
    wanted = [*rows[1:], {"k": "a", "b": b"A" * 5_000_000}, {"k": "d", "b": b"d" * 80_000}]
    staged = table.upsert(wanted)
    again = moved(table, staged, lambda: table.delete(ids=["a", "b"]))
    assert data_files(again) != data_files(staged)
    assert {k: v["b"] for k, v in table.content.items()} == {row["k"]: row["b"] for row in wanted}


def test_work_whose_data_is_gone_can_not_be_moved(filled: Table) -> None:
    staged = filled.upsert(numbered(1, n=0))
    filled.seal(filled.append(numbered(50)))
    for name in data_files(staged):
        (Path(filled.uri) / name).unlink()
    with pytest.raises(StorageError, match="stage again"):
        rebase(filled.uri, filled.version or 0, staged, options=OPTIONS)


def test_parts_of_one_upsert_become_one_and_share_deletions(filled: Table) -> None:
    parts = [filled.upsert([*numbered(n, n + 3, n=-n), *numbered(20 + n, 9 - n)]) for n in (0, 1, 2)]
    whole = combine_upserts(filled.uri, parts, options=OPTIONS)
    assert (whole.rows_updated, whole.rows_inserted, whole.rows_unchanged) == (5, 3, 4)
    filled.seal(whole)
    assert {k: filled.numbers[k] for k in ("k1", "k4", "k2", "k5", "k22")} == {
        "k1": -1, "k4": -1, "k2": -2, "k5": -2, "k22": 22,
    }  # fmt: skip
    filled.handle.validate()


@pytest.mark.parametrize("twice", [numbered(1, n=0), numbered(1), numbered(77)], ids=["replaced", "unchanged", "new"])
def test_parts_that_name_the_same_id_are_refused(filled: Table, twice: list[dict[str, Any]]) -> None:
    parts = [filled.upsert([*twice, *numbered(n)]) for n in (2, 3)]
    with pytest.raises(InvalidDataError, match="1 ids occur more than once"):
        combine_upserts(filled.uri, parts, options=OPTIONS)


def test_parts_of_different_versions_are_not_combined(filled: Table) -> None:
    one = filled.upsert(numbered(1, n=0))
    filled.seal(filled.append(numbered(50)))
    with pytest.raises(InvalidOptionError, match="same version"):
        combine_upserts(filled.uri, [one, filled.upsert(numbered(2, n=0))], options=OPTIONS)


# -- the codec ----------------------------------------------------------------------------------------


def every_kind(table: Table) -> list[Staged]:
    overwrite = stage_overwrite(table.uri, table.rows(numbered(1)), options=OPTIONS)
    upsert = table.upsert([*numbered(1, n=0), *numbered(2, 70)])
    return [table.append(numbered(60)), overwrite, table.delete(where="n > 2"), upsert]


def test_staged_work_survives_json(filled: Table) -> None:
    for staged in every_kind(filled):
        text = json.dumps(staged.to_json())
        assert staged_from_json(json.loads(text)) == staged


def test_a_newer_form_is_refused_by_its_number(filled: Table) -> None:
    for staged in every_kind(filled):
        with pytest.raises(UnsupportedFormatError, match="form 2"):
            staged_from_json({**staged.to_json(), "schema": 2})


def test_whatever_is_malformed_is_corrupt_and_never_half_read(filled: Table) -> None:
    for staged in every_kind(filled):
        body = staged.to_json()
        for name in body:
            for value in (None, -1, True, 1.5, "x", [1], {"a": 1}):
                with pytest.raises(CorruptGraphError):
                    staged_from_json({**body, name: value})
            with pytest.raises(CorruptGraphError):
                staged_from_json({key: value for key, value in body.items() if key != name})
        with pytest.raises(CorruptGraphError):
            staged_from_json({**body, "more": 1})
    nothing: list[Any] = [None, [], "append", {}]
    for other in nothing:
        with pytest.raises(CorruptGraphError):
            staged_from_json(other)


def test_row_numbers_that_do_not_add_up_are_corrupt(filled: Table) -> None:
    staged = filled.upsert(numbered(1, 2, n=0))
    [deletion] = staged.deletions
    for out in (replace(deletion.out, offsets="?"), replace(deletion.out, rows=3)):
        with pytest.raises(CorruptGraphError):
            lance_rows.offsets_of(out)
    short = replace(
        staged, replacements=(replace(staged.replacements[0], row_ids=lance_rows.pack(np.array([1], np.uint64))),)
    )
    with pytest.raises(CorruptGraphError, match="1 staged row numbers were found where 2 belong"):
        filled.seal(short)


# -- on S3 --------------------------------------------------------------------------------------------


@pytest.mark.s3
def test_all_of_it_works_on_s3(s3_server: SeaweedServer, s3_root: Callable[[], str]) -> None:
    options = StorageOptions(s3_server.storage_options())
    table = Table(f"{s3_root()}/t", "node N { k: String @key  b: Blob?  n: I64? }", options)
    table.seal(table.append([{"k": f"k{n}", "n": n, "b": bytes([n]) * 70_000} for n in range(5)]))
    staged = table.upsert([{"k": "k1", "n": 0}, {"k": "k2", "n": 2, "b": b"\x02" * 70_000}, {"k": "new"}])
    assert (staged.rows_updated, staged.rows_inserted, staged.rows_unchanged) == (1, 1, 1)
    assert missing_files(table.uri, replace(staged, files=(*staged.files, "data/x")), options=options) == ("data/x",)
    moved(table, staged, lambda: table.delete(ids=["k1", "k2"]))
    assert {k: (v["n"], v["b"] and len(v["b"])) for k, v in table.content.items()} == {
        **{f"k{n}": (n, 70_000) for n in (0, 2, 3, 4)},
        "k1": (0, None),
        "new": (None, None),
    }
