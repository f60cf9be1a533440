"""Looking for ids: what is remembered of small files must never hide an id that is there."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.storage.staging_kit import OPTIONS, Table, numbered

from omnigraph.model.staged import StagedAppend
from omnigraph.storage import lance_ids, lance_kept_ids
from omnigraph.storage.asked import BEFORE_KEEPING
from omnigraph.storage.lance_ids import KnownIds
from omnigraph.storage.lance_kept_ids import KeptIds
from omnigraph.storage.staging import Staging

STEPS = 40
NUMBERS = range(30)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KnownIds:
    """Begin with nothing remembered."""
    return remembering(monkeypatch, KnownIds())


def remembering(monkeypatch: pytest.MonkeyPatch, fresh: KnownIds) -> KnownIds:
    """Have everything use this memory."""
    for module in ("omnigraph.storage.lance_ids", "omnigraph.storage.lance_written", "omnigraph.storage.staging"):
        monkeypatch.setattr(f"{module}.KNOWN_IDS", fresh)
    return fresh


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptIds:
    """Begin with no fingerprints kept."""
    return keeping(monkeypatch, KeptIds())


def keeping(monkeypatch: pytest.MonkeyPatch, fresh: KeptIds) -> KeptIds:
    monkeypatch.setattr(lance_ids, "KEPT_IDS", fresh)
    return fresh


def found(table: Table, version: int, numbers: list[int]) -> list[str]:
    """Return which of these are there, as the committer asks: by what was staged."""
    staged = table.append(numbered(*numbers))
    return sorted(Staging(OPTIONS).present(table.uri, version, staged))


def step(table: Table, chance: random.Random) -> None:
    """Do one thing to the table; half of the time tell what landed, as the committer does."""
    base = table.version
    some = chance.sample(NUMBERS, chance.randint(1, 6))
    here = [int(name[1:]) for name in table.content]
    absent = [number for number in some if number not in here]
    match chance.choice(["append", "append", "append", "upsert", "delete"]):
        case "append" if absent:
            staged: Any = table.append(numbered(*absent))
        case "delete" if here:
            staged = table.delete(ids=[f"k{number}" for number in chance.sample(here, min(3, len(here)))])
        case _:
            staged = table.upsert(numbered(*some, n=chance.randint(0, 99)))
    if staged.is_empty:
        return
    sealed = table.seal(staged)
    if chance.random() < 0.5:
        Staging(OPTIONS).landed(table.uri, base, sealed.lance_version, staged)


@pytest.mark.parametrize("small_rows", [16_384, 3, 0])
@pytest.mark.parametrize("most", [1_000_000, 12])
@pytest.mark.parametrize("seed", range(3))
def test_ids_are_found_on_every_version_of_every_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int, small_rows: int
) -> None:
    remembering(monkeypatch, KnownIds(most))
    monkeypatch.setattr(lance_ids, "SMALL_FILE_ROWS_MAX", small_rows)
    monkeypatch.setattr(lance_kept_ids, "BEFORE_KEEPING", seed)
    kept = keeping(monkeypatch, KeptIds(most))
    chance = random.Random(seed)
    tables = [Table(str(tmp_path / f"{name}.lance")) for name in "ab"]
    versions: list[tuple[Table, int, set[str]]] = []
    for _ in range(STEPS):
        table = chance.choice(tables)
        step(table, chance)
        if table.version is not None:
            versions.append((table, table.version, set(table.content)))
        if versions and chance.random() < 0.3:
            old, version, _ = chance.choice(versions)
            old.version = version  # another lineage begins here
        if versions:
            asked, version, content = chance.choice(versions)
            wanted = chance.sample(NUMBERS, 5)
            assert found(asked, version, wanted) == sorted(content & {f"k{number}" for number in wanted})
    assert bool(kept._kept) == (small_rows < 16_384), "large files are what is kept"


def test_what_this_process_wrote_is_not_read_again(tmp_path: Path, known: KnownIds) -> None:
    table = Table(str(tmp_path / "t.lance"))
    staged = table.append(numbered(1, 2))
    table.seal(staged)
    assert found(table, table.version or 0, [3]) == [], "this looks at the first version"
    base = table.version
    later = table.append(numbered(3))
    sealed = table.seal(later)
    Staging(OPTIONS).landed(table.uri, base, sealed.lance_version, later)
    for file in (tmp_path / "t.lance" / "data").glob("*.lance"):
        file.unlink()
    assert found(table, sealed.lance_version, [9]) == []


def test_a_write_does_not_suspect_itself(tmp_path: Path, known: KnownIds, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(str(tmp_path / "t.lance"))
    table.seal(table.append(numbered(1)))
    staged: StagedAppend = table.append(numbered(2))
    suspected: list[list[str]] = []

    def look(handle: Any, suspects: list[str]) -> list[str]:
        suspected.append(suspects)
        return []

    monkeypatch.setattr(lance_ids, "_really_there", look)
    assert Staging(OPTIONS).present(table.uri, table.version or 0, staged) == []
    assert suspected == [[]]


def test_an_id_that_was_deleted_may_come_back(tmp_path: Path, known: KnownIds) -> None:
    table = Table(str(tmp_path / "t.lance"))
    table.seal(table.append(numbered(1, 2)))
    assert found(table, table.version or 0, [1]) == ["k1"]
    table.seal(table.delete(ids=["k1"]))
    assert found(table, table.version or 0, [1, 2]) == ["k2"]


def test_what_is_forgotten_while_a_version_is_looked_at_is_not_taken_for_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = remembering(monkeypatch, KnownIds(4))
    table, other = (Table(str(tmp_path / f"{name}.lance")) for name in "ab")
    table.seal(table.append(numbered(1, 2)))
    assert found(table, table.version or 0, [9]) == [], "from now on the first version is known"
    table.seal(table.append(numbered(3)))
    other.seal(other.append(numbered(4, 5, 6)))
    known._staged.clear()  # as if another process had written all of it
    read = lance_ids._ids_of_files

    def interrupted(handle: Any, fragments: Any, options: Any) -> Any:
        if handle.uri == table.uri:  # another thread needs the room just now
            assert found(other, other.version or 0, [9]) == []
        return read(handle, fragments, options)

    monkeypatch.setattr(lance_ids, "_ids_of_files", interrupted)
    assert found(table, table.version or 0, [1, 3]) == ["k1", "k3"]


@pytest.fixture
def large(tmp_path: Path, known: KnownIds, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Return a table all of whose files count as large."""
    monkeypatch.setattr(lance_ids, "SMALL_FILE_ROWS_MAX", 0)
    table = Table(str(tmp_path / "large.lance"))
    table.seal(table.append(numbered(1, 2, 3)))
    return table


def test_a_large_file_that_is_asked_about_again_and_again_is_not_read_again(large: Table, kept: KeptIds) -> None:
    for number in range(BEFORE_KEEPING + 1):
        assert not kept._kept
        assert found(large, large.version or 0, [10 + number, 2]) == ["k2"]
    for file in (Path(large.uri) / "data").glob("*.lance"):
        file.unlink()
    assert found(large, large.version or 0, [20, 21]) == []


def test_an_id_whose_row_was_deleted_is_searched_for_and_not_believed(large: Table, kept: KeptIds) -> None:
    before = large.version or 0
    large.seal(large.delete(ids=["k2"]))
    for _ in range(BEFORE_KEEPING + 2):
        assert found(large, large.version or 0, [2, 3]) == ["k3"]
        assert found(large, before, [2, 3]) == ["k2", "k3"]
    assert kept._kept


def test_ids_that_share_a_fingerprint_are_told_apart_in_large_files(
    tmp_path: Path, known: KnownIds, kept: KeptIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_ids, "SMALL_FILE_ROWS_MAX", 0)
    alike = [f"{'a' * 16}{middle}{'z' * 16}" for middle in ("one", "two")]
    table = Table(str(tmp_path / "t.lance"))
    table.seal(table.append([{"k": alike[0]}]))
    for _ in range(BEFORE_KEEPING + 2):
        for ids, there in ((alike, alike[:1]), (alike[1:], [])):
            staged = table.append([{"k": name} for name in ids])
            assert Staging(OPTIONS).present(table.uri, table.version or 0, staged) == there
    assert kept._kept


def test_files_that_do_not_fit_together_push_nothing_out(
    large: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keeping(monkeypatch, KeptIds(4))
    for _ in range(BEFORE_KEEPING + 1):
        assert found(large, large.version or 0, [9]) == []
    assert sum(map(len, kept._kept.values())) == 3
    wide = Table(str(tmp_path / "wide.lance"))
    for number in range(3):
        wide.seal(wide.append(numbered(2 * number, 2 * number + 1)))
    for _ in range(BEFORE_KEEPING + 2):
        assert found(wide, wide.version or 0, [9, 5]) == ["k5"]
    assert sum(map(len, kept._kept.values())) == 3, "the six of the wide table are searched for each time"


def test_many_ids_at_once_are_no_reason_to_keep_anything(
    large: Table, kept: KeptIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance_ids, "FEW_AT_ONCE_MAX", 2)
    for _ in range(BEFORE_KEEPING + 2):
        assert found(large, large.version or 0, [3, 8, 9]) == ["k3"]
    assert not kept._kept and not kept._asked
