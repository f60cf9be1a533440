"""What we rely on Lance to do, measured again: one test per behaviour. If one fails, read `lance_door.py` anew."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.rules.bitmaps import numbers_of
from omnigraph.storage.layout import manifest_version_of, transaction_base_of

FORMAT: Final = "2.2"
SCHEMA = pa.schema([pa.field("n", pa.int64())], metadata={"stamp": "1"})


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA)


def staged(target: Any, *numbers: int) -> FragmentMetadata:
    """Write rows into a file that nothing refers to."""
    mode: Any = "create" if isinstance(target, str) else "append"
    [fragment] = write_fragments(rows(*numbers), target, mode=mode, schema=SCHEMA, data_storage_version=FORMAT)
    return fragment


def overwrite(target: Any, base: int, files: Sequence[FragmentMetadata], schema: pa.Schema = SCHEMA) -> LanceDataset:
    return LanceDataset.commit(target, Transaction(base, LanceOperation.Overwrite(schema, list(files))), max_retries=0)


def numbers_in(dataset: LanceDataset) -> list[Any]:
    return sorted(dataset.to_table().column("n").to_pylist(), key=int)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "d")


@pytest.fixture
def first(uri: str) -> LanceDataset:
    """A dataset at version 1 with the row 1."""
    return overwrite(uri, 0, [staged(uri, 1)])


def grown(dataset: LanceDataset, times: int) -> LanceDataset:
    """Swap that often, each time adding a row."""
    for _ in range(times):
        files = [fragment.metadata for fragment in dataset.get_fragments()]
        dataset = overwrite(dataset, dataset.version, [*files, staged(dataset, dataset.version + 1)])
    return dataset


# -- the swap -----------------------------------------------------------------------------------------


def test_a_strict_overwrite_that_names_old_files_is_a_compare_and_swap(uri: str, first: LanceDataset) -> None:
    kept = first.get_fragments()[0].metadata
    landed = overwrite(first, 1, [staged(first, 2), kept])
    assert (landed.version, numbers_in(landed)) == (2, [1, 2])
    with pytest.raises(CommitConflictError):
        overwrite(first, 1, [staged(first, 3), kept])
    assert numbers_in(lance.dataset(uri)) == [1, 2]


def test_of_sixteen_swaps_of_one_version_exactly_one_wins_every_round(uri: str, first: LanceDataset) -> None:
    threads, current = 16, first
    with ThreadPoolExecutor(threads) as pool:
        for turn in range(4):
            base, together = current, Barrier(threads)
            kept = [fragment.metadata for fragment in base.get_fragments()]

            def contend(who: int, base: Any = base, kept: Any = kept, together: Barrier = together) -> Any:
                mine = staged(base, 1_000 * base.version + who)
                together.wait(60)
                try:
                    return who, overwrite(base, base.version, [mine, *kept])
                except CommitConflictError:
                    return None

            [(winner, current)] = [won for won in pool.map(contend, range(threads)) if won is not None]
            assert current.version == turn + 2
            assert numbers_in(lance.dataset(uri))[-1] == 1_000 * (turn + 1) + winner
    assert len(numbers_in(lance.dataset(uri))) == 5


def test_the_files_of_a_swap_keep_the_order_they_were_given_in(first: LanceDataset) -> None:
    kept = first.get_fragments()[0].metadata
    files = [staged(first, 3), kept, staged(first, 2)]
    landed = overwrite(first, 1, files)
    assert [f.metadata.files[0].path for f in landed.get_fragments()] == [f.files[0].path for f in files]
    assert [f.to_table().column("n").to_pylist() for f in landed.get_fragments()] == [[3], [1], [2]]


def test_a_second_create_fails_and_leaves_the_first_intact(uri: str, first: LanceDataset) -> None:
    with pytest.raises((CommitConflictError, OSError, ValueError, RuntimeError)):
        overwrite(uri, 0, [staged(uri + "-elsewhere", 9)])
    assert (lance.dataset(uri).version, numbers_in(lance.dataset(uri))) == (1, [1])


def test_schema_metadata_is_what_the_last_overwrite_says(uri: str, first: LanceDataset) -> None:
    files = [fragment.metadata for fragment in first.get_fragments()]
    second = overwrite(first, 1, files)
    assert (second.schema.metadata or {})[b"stamp"] == b"1"
    overwrite(second, 2, files, SCHEMA.with_metadata({"stamp": "2"}))
    assert (lance.dataset(uri).schema.metadata or {})[b"stamp"] == b"2"
    assert (lance.dataset(uri, version=1).schema.metadata or {})[b"stamp"] == b"1"


def test_the_latest_version_is_told_by_a_handle_of_an_old_one(uri: str, first: LanceDataset) -> None:
    old = lance.dataset(uri)
    assert old.latest_version == 1
    grown(first, 3)
    assert (old.version, old.latest_version) == (1, 4)
    assert numbers_in(old) == [1]


def test_a_commit_does_not_check_that_its_files_exist(uri: str, first: LanceDataset) -> None:
    lost = staged(first, 2)
    (Path(uri) / "data" / lost.files[0].path).unlink()
    landed = overwrite(first, 1, [lost])
    assert landed.version == 2, "a tripwire: if Lance ever checks, our own checks may go"
    with pytest.raises((OSError, ValueError)):
        lance.dataset(uri).to_table()


# -- names on disk ------------------------------------------------------------------------------------


def versions_on_disk(uri: str) -> dict[int, Path]:
    found = {manifest_version_of(path.name): path for path in (Path(uri) / "_versions").iterdir()}
    return {version: path for version, path in found.items() if version is not None}


def test_versions_are_named_by_their_distance_from_two_to_the_64(uri: str, first: LanceDataset) -> None:
    grown(first, 2)
    assert set(versions_on_disk(uri)) == {1, 2, 3}
    assert versions_on_disk(uri)[3].name == f"{2**64 - 1 - 3:020}.manifest"
    others = {path.name for path in (Path(uri) / "_versions").iterdir()} - {
        path.name for path in versions_on_disk(uri).values()
    }
    assert others <= {"latest_version_hint.json"}


def test_transactions_are_named_by_the_version_they_were_based_on(uri: str, first: LanceDataset) -> None:
    grown(first, 2)
    bases = [transaction_base_of(path.name) for path in (Path(uri) / "_transactions").iterdir()]
    assert sorted(base for base in bases if base is not None) == [0, 1, 2]


def test_the_metadata_of_a_file_tells_its_name_and_size(uri: str, first: LanceDataset) -> None:
    for fragment in (staged(first, 2), first.get_fragments()[0].metadata):
        [file] = fragment.files
        assert (Path(uri) / "data" / file.path).stat().st_size == file.file_size_bytes
        again = FragmentMetadata.from_json(json.dumps(fragment.to_json()))
        assert (again.files[0].path, again.num_rows) == (file.path, fragment.num_rows)


# -- removing old versions ----------------------------------------------------------------------------


def forget(uri: str, upto: int) -> None:
    """Remove old versions and all transactions, as pruning does."""
    for version, path in versions_on_disk(uri).items():
        if version <= upto:
            path.unlink()
    for path in (Path(uri) / "_transactions").iterdir():
        path.unlink()


def test_removing_old_versions_and_transactions_disturbs_neither_readers_nor_writers(
    uri: str, first: LanceDataset
) -> None:
    reader = lance.dataset(uri)
    newest = grown(first, 9)
    forget(uri, upto=8)
    assert numbers_in(reader) == [1], "what is open stays readable while its files are there"
    assert reader.latest_version == 10
    assert numbers_in(lance.dataset(uri)) == list(range(1, 11))
    assert grown(newest, 1).version == 11
    assert grown(lance.dataset(uri), 1).version == 12


def in_a_fresh_process(uri: str) -> tuple[int, int]:
    code = f"import lance; d = lance.dataset({uri!r}); print(d.version, d.latest_version)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, latest = done.stdout.split()
    return int(version), int(latest)


def test_a_freed_version_is_taken_by_a_stale_swap_and_the_newest_rules_all_the_same(
    uri: str, first: LanceDataset
) -> None:
    newest = grown(first, 9)
    forget(uri, upto=5)
    landed = overwrite(first, 1, [staged(first, 99)])
    assert landed.version == 2, "the stale writer is told it won: this is why a swap is not simply believed"
    assert (landed.latest_version, newest.latest_version, first.latest_version) == (10, 10, 10)
    assert (lance.dataset(uri).version, 99 in numbers_in(lance.dataset(uri))) == (10, False)
    assert in_a_fresh_process(uri) == (10, 10)
    assert grown(newest, 1).version == 11


def test_a_missing_dataset_and_a_missing_version_are_errors_of_the_kinds_we_catch(
    uri: str, first: LanceDataset
) -> None:
    with pytest.raises((OSError, ValueError, RuntimeError)):
        lance.dataset(uri + "-nowhere")
    with pytest.raises((OSError, ValueError, RuntimeError)):
        lance.dataset(uri, version=77)


# -- detached versions --------------------------------------------------------------------------------


def detached(handle: LanceDataset, files: Sequence[FragmentMetadata], name: str, retries: int = 3) -> LanceDataset:
    transaction = Transaction(handle.version, LanceOperation.Append(list(files)), uuid=name)
    return LanceDataset.commit(handle, transaction, detached=True, max_retries=retries)


def test_a_detached_append_builds_on_the_handles_version_and_never_moves_the_head(
    uri: str, first: LanceDataset
) -> None:
    newest = grown(first, 2)
    old = lance.dataset(uri, version=1)
    sealed = detached(old, [staged(old, 50)], "ours")
    assert sealed.version >= 2**63
    assert numbers_in(sealed) == [1, 50]
    assert (lance.dataset(uri).version, newest.latest_version) == (3, 3)
    assert numbers_in(lance.dataset(uri, version=sealed.version)) == [1, 50]
    again = detached(lance.dataset(uri, version=sealed.version), [staged(old, 51)], "ours-too")
    assert numbers_in(again) == [1, 50, 51]


def test_a_detached_append_ignores_what_the_transaction_says_it_was_based_on(uri: str, first: LanceDataset) -> None:
    newest = grown(first, 2)
    claimed = Transaction(1, LanceOperation.Append([staged(newest, 50)]), uuid="x")
    assert numbers_in(LanceDataset.commit(newest, claimed, detached=True, max_retries=3)) == [1, 2, 3, 50]


def test_a_detached_version_tells_its_transaction_and_what_it_was_read_at(first: LanceDataset) -> None:
    sealed = detached(first, [staged(first, 2)], "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    landed = sealed.read_transaction(sealed.version)
    assert landed is not None
    assert (landed.uuid, landed.read_version) == ("01ARZ3NDEKTSV4RRFFQ69G5FAV", 1)


def test_a_detached_commit_without_any_retry_fails(first: LanceDataset) -> None:
    with pytest.raises((CommitConflictError, OSError, ValueError, RuntimeError)):
        detached(first, [staged(first, 2)], "x", retries=0)


def test_many_detached_appends_at_once_all_land_and_none_sees_another(uri: str, first: LanceDataset) -> None:
    def work(number: int) -> list[Any]:
        handle = lance.dataset(uri, version=1)
        return numbers_in(detached(handle, [staged(handle, 100 + number)], f"w{number}"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[1, 100 + number] for number in range(8)]
    assert lance.dataset(uri).version == 1


# -- what two versions share ----------------------------------------------------------------------------


def without_rows(dataset: LanceDataset, *offsets: int) -> LanceDataset:
    """Delete rows of the first fragment, as a detached version."""
    left: Any = dataset.get_fragments()[0].delete_rows(list(offsets))
    operation = LanceOperation.Delete([left], [], "")
    return LanceDataset.commit(dataset, Transaction(dataset.version, operation), detached=True)


def identity(dataset: LanceDataset) -> tuple[list[str], Any]:
    """The files of the first fragment, and what tells its deletions from others."""
    metadata: Any = dataset.get_fragments()[0].metadata
    gone = metadata.deletion_file
    files = [str(file.path) for file in metadata.files]
    return files, None if gone is None else (gone.read_version, gone.id, gone.file_type, gone.num_deleted_rows)


def test_row_addresses_of_a_fragment_ascend_and_leave_out_what_is_deleted(uri: str) -> None:
    first = overwrite(uri, 0, [staged(uri, *range(100_000))])
    second = without_rows(first, 0, 7, 50_000, 99_999)
    for batch_size in (1_000, 2**20):
        scanned = second.scanner([], fragments=second.get_fragments(), with_row_address=True, batch_size=batch_size)
        addresses: list[Any] = scanned.to_table().column("_rowaddr").to_pylist()
        offsets = [address & (2**32 - 1) for address in addresses]
        assert offsets == sorted(set(range(100_000)) - {0, 7, 50_000, 99_999})


@pytest.mark.parametrize("count", [1, 1_000, 6_000, 60_000, 150_000])
def test_a_deletion_file_says_which_rows_are_deleted(uri: str, count: int) -> None:
    first = overwrite(uri, 0, [staged(uri, *range(200_000))])
    gone = sorted(random.Random(count).sample(range(200_000), count))
    metadata: Any = without_rows(first, *gone).get_fragments()[0].metadata
    (file,) = Path(uri).glob("_deletions/*")
    kind = ("array", ".arrow") if count <= 1_000 else ("bitmap", ".bin")
    assert (metadata.deletion_file.file_type, file.suffix) == kind
    if file.suffix == ".arrow":
        listed: list[Any] = pa.ipc.open_file(file.read_bytes()).read_all().column(0).to_pylist()
        assert sorted(listed) == gone
    else:
        found = numbers_of(file.read_bytes())
        assert found is not None
        assert found.tolist() == gone


def test_deletions_leave_the_files_of_a_fragment_and_have_an_identity_of_their_own(uri: str) -> None:
    first = overwrite(uri, 0, [staged(uri, *range(10))])
    one, other, same = without_rows(first, 3), without_rows(first, 4), without_rows(first, 3)
    assert identity(first)[1] is None
    assert identity(one)[0] == identity(other)[0] == identity(first)[0]
    assert len({identity(each)[1] for each in (one, other, same)}) == 3
    assert identity(without_rows(one, 5))[1] != identity(one)[1]


@pytest.mark.parametrize(("kind", "answers"), [("BTREE", 1), ("BITMAP", 2)])
def test_of_a_row_that_moved_only_a_btree_in_two_segments_knows_what_it_was_no_more(
    uri: str, kind: Any, answers: int
) -> None:
    """If a BITMAP gives one answer, it may be extended whatever was written: see `model/indexes.py`."""
    table = lance.write_dataset(rows(1, 2, 3), uri, enable_stable_row_ids=True, data_storage_version="2.2")

    def indexed(base: LanceDataset, fragment: int) -> LanceDataset:
        part = base.create_index_uncommitted("n", kind, name="n", fragment_ids=[fragment], replace=True)
        made = Transaction(base.version, LanceOperation.CreateIndex([part], []))
        return LanceDataset.commit(base, made, detached=True)

    first = indexed(table, 0)
    [moved] = write_fragments(rows(9), first, mode="append", schema=SCHEMA, data_storage_version=FORMAT)
    moved.row_id_meta = RowIdSequence(pa.array([0], pa.uint64())).to_inline_metadata()
    old: Any = first.get_fragment(0)
    change = LanceOperation.Update(
        removed_fragment_ids=[],
        updated_fragments=[old.delete_rows([0])],
        new_fragments=[moved],
        update_mode="rewrite_rows",
        fields_for_preserving_frag_bitmap=[0],
    )
    second = LanceDataset.commit(first, Transaction(first.version, change), detached=True)
    assert numbers_in(second) == [2, 3, 9]
    assert [second.count_rows(f"n = {number}") for number in (1, 9)] == [0, 1]
    third = indexed(second, max(second.fragment_ids()))
    assert sum(third.count_rows(f"n = {number}") for number in (1, 9)) == answers
    assert third.scanner(filter="n = 1", use_scalar_index=False).to_table().num_rows == 0
