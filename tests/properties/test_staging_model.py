"""Random walks of staged writes over one table, each step sealed on the last, compared with a dictionary."""

import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.ids import Sources
from omnigraph.model.staged import Staged, StagedUpsert, staged_from_json
from omnigraph.rules.arrow_schema import arrow_schema
from omnigraph.rules.conform import conform
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.storage import lance_sealing
from omnigraph.storage.lance_door import Tables
from omnigraph.storage.lance_moving import combine_upserts, reseal
from omnigraph.storage.lance_sealing import seal
from omnigraph.storage.lance_staged import read_staged_ids
from omnigraph.storage.lance_staging import stage_append, stage_delete, stage_overwrite, stage_upsert
from omnigraph.storage.lance_written import WriteLimits
from omnigraph.storage.roots import StorageOptions

sources = Sources()
mint = sources.mint_many
NODE = compile_schema(
    "node N { k: String @key  n: I64?  t: String?  l: [F64]?  b: Blob? }", FreshIds(sources.mint)
).type("N")
OPTIONS = StorageOptions()
SMALL = WriteLimits(rows_per_file=3, scratch_memory_bytes=200)
STEPS = 12
WALKS = 60 * (20 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 1)

Values = tuple[Any, ...]
IDS = st.sampled_from([*(f"id-{n}" for n in range(9)), "ü𝄞", "a'b"])
VALUES = st.tuples(
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, "", "x"]),
    st.sampled_from([None, (), (1.0, None)]),
    st.sampled_from([None, b"", b"blob", b"B" * 70_000]),
)
ROWS = st.dictionaries(IDS, VALUES, max_size=6)
STEP = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("upsert"), ROWS),
    st.tuples(st.just("combine"), ROWS),
    st.tuples(st.just("delete ids"), st.lists(IDS, max_size=4)),
    st.tuples(st.just("delete where"), st.sampled_from([0, 1])),
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(st.just("reseal"), st.tuples(ROWS, st.sets(IDS, max_size=6), ROWS, st.sets(IDS, max_size=3))),
    st.tuples(st.just("reseal append"), st.tuples(ROWS, ROWS)),
)


def reader(rows: dict[str, Values]) -> pa.RecordBatchReader:
    given = [
        {"k": k, "n": n, "t": t, "l": None if items is None else list(items), "b": b}
        for k, (n, t, items, b) in rows.items()
    ]
    table = conform(NODE, given, mint) if given else arrow_schema(NODE).empty_table()
    return table.to_reader(max_chunksize=2)


class Walk:
    """A chain of detached versions and the dictionary it should equal."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = 1
        self.model: dict[str, Values] = {}
        self.row_ids: dict[str, int] = {}
        self.names = count()
        Tables(OPTIONS).ensure(uri, arrow_schema(NODE))

    def step(self, kind: str, what: Any) -> None:
        getattr(self, kind.replace(" ", "_"))(what)
        self.check()

    def seal(self, staged: Staged) -> None:
        through = staged_from_json(staged.to_json())
        assert through == staged
        if not staged.is_empty:
            sealed = seal(self.uri, self.version, through, f"t{next(self.names)}", options=OPTIONS)
            assert sealed.rows == len(self.model)
            self.version = sealed.lance_version

    def append(self, rows: dict[str, Values]) -> None:
        new = {k: v for k, v in rows.items() if k not in self.model}
        self.model |= new
        self.seal(stage_append(self.uri, reader(new), base_version=self.version, limits=SMALL, options=OPTIONS))

    def upsert(self, rows: dict[str, Values]) -> None:
        staged = self.staged_upsert(rows)
        inserted = [k for k in rows if k not in self.model]
        changed = [k for k in rows if k in self.model and self.model[k] != rows[k]]
        assert (staged.rows_inserted, staged.rows_updated) == (len(inserted), len(changed))
        assert staged.rows_unchanged == len(rows) - len(inserted) - len(changed)
        ids = read_staged_ids(self.uri, staged, options=OPTIONS).read_all()
        assert sorted(map(str, ids.column("id").to_pylist())) == sorted(inserted + changed)
        self.model |= rows
        self.seal(staged)

    def combine(self, rows: dict[str, Values]) -> None:
        parts = [self.staged_upsert(dict(list(rows.items())[n::2])) for n in range(2)]
        self.model |= rows
        self.seal(combine_upserts(self.uri, parts, options=OPTIONS))

    def staged_upsert(self, rows: dict[str, Values]) -> StagedUpsert:
        return stage_upsert(self.uri, self.version, reader(rows), limits=SMALL, options=OPTIONS)

    def delete_ids(self, ids: list[str]) -> None:
        self.deleted(set(ids) & set(self.model), ids=ids)

    def delete_where(self, number: int) -> None:
        self.deleted({k for k, v in self.model.items() if v[0] == number}, where=f"n = {number}")

    def deleted(self, gone: set[str], **how: Any) -> None:
        staged = stage_delete(self.uri, self.version, options=OPTIONS, **how)
        ids = read_staged_ids(self.uri, staged, options=OPTIONS).read_all()
        assert (set(ids.column("id").to_pylist()), staged.deleted) == (gone, len(gone))
        for name in gone:
            del self.model[name]
        self.seal(staged)

    def overwrite(self, rows: dict[str, Values]) -> None:
        self.model = dict(rows)
        self.row_ids = {}
        staged = stage_overwrite(self.uri, reader(rows), base_version=self.version, limits=SMALL, options=OPTIONS)
        self.seal(staged)

    def reseal(self, what: tuple[dict[str, Values], set[str], dict[str, Values], set[str]]) -> None:
        """Stage, some of it as it is already, let others upsert and delete, then move."""
        mine, kept, theirs, gone = what
        mine = mine | {name: self.model[name] for name in sorted(kept) if name in self.model}
        staged = self.staged_upsert(mine)
        self.step("upsert", theirs)
        self.step("delete ids", sorted(gone))
        self.model |= mine
        moved, sealed = reseal(self.uri, self.version, staged, f"t{next(self.names)}", options=OPTIONS)
        assert isinstance(moved, StagedUpsert)
        assert moved.rows_inserted + moved.rows_updated + moved.rows_unchanged == len(mine)
        self.version = self.version if sealed is None else sealed.lance_version

    def reseal_append(self, what: tuple[dict[str, Values], dict[str, Values]]) -> None:
        mine, theirs = what
        new = {k: v for k, v in mine.items() if k not in self.model and k not in theirs}
        staged = stage_append(self.uri, reader(new), base_version=self.version, limits=SMALL, options=OPTIONS)
        self.step("upsert", theirs)
        self.model |= new
        _, sealed = reseal(self.uri, self.version, staged, f"t{next(self.names)}", options=OPTIONS)
        self.version = self.version if sealed is None else sealed.lance_version

    def check(self) -> None:
        there: Any = lance.dataset(self.uri, version=self.version)
        there.validate()
        rows = there.scanner(blob_handling="all_binary", with_row_id=True).to_table().to_pylist()
        found = {r["id"]: (r["n"], r["t"], None if r["l"] is None else tuple(r["l"]), r["b"]) for r in rows}
        assert len(found) == len(rows) == there.count_rows()
        assert found == self.model
        self.check_row_ids({r["id"]: r["_rowid"] for r in rows})
        for name in list(self.model)[:2]:
            assert there.count_rows(filter=pc.field("id") == name) == 1
        assert len(there.versions()) == 1

    def check_row_ids(self, now: dict[str, int]) -> None:
        """Rows that stayed kept their row id, and no two rows have the same."""
        assert len(set(now.values())) == len(now)
        assert all(now[name] == row_id for name, row_id in self.row_ids.items() if name in now)
        self.row_ids = now


@settings(max_examples=WALKS, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, min_size=STEPS // 2, max_size=STEPS), st.booleans())
def test_after_every_step_the_table_is_what_the_dictionary_says(steps: list[tuple[str, Any]], is_large: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if is_large:  # upserts of a table that is called large are sealed in two steps
            patch.setattr(lance_sealing, "ROWS_IN_ONE_MAX", -1)
        walking = Walk(str(Path(folder) / "t"))
        for kind, what in steps:
            walking.step(kind, what)
