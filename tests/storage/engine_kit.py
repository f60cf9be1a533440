"""An embedded engine with little memory and a scratch folder of its own, and what it answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.storage.embedded import MEMORY_BYTES_MIN, EmbeddedEngine
from omnigraph.storage.relations import Relation


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def engine(scratch: Path) -> Iterator[EmbeddedEngine]:
    with EmbeddedEngine(MEMORY_BYTES_MIN, str(scratch), threads=2) as opened:
        yield opened


def answer(engine: EmbeddedEngine, sql: str, relations: dict[str, Relation], values: Any = ()) -> list[Any]:
    return [tuple(row.values()) for row in engine.run(sql, relations, values).read_all().to_pylist()]


def streamed(table: pa.Table) -> Callable[[], pa.RecordBatchReader]:
    return lambda: table.to_reader(max_chunksize=2)
