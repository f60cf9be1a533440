"""The relational engine in this process is shut off from everything but the rows it is given."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.storage.engine_kit import answer, engine, scratch, streamed

from omnigraph.errors import OmnigraphError
from omnigraph.storage.embedded import EmbeddedEngine, quoted

__all__ = ["engine", "scratch"]  # fixtures

SECRET = pa.table({"secret": ["never shown"]})  # a variable that no plan may see
NASTY = ["'; DROP TABLE t; --", '"; drop', "$1", "${x}", "\\'", "a\0b", "' OR 1=1 --", "💥", "read_csv('/etc/passwd')"]


@pytest.mark.parametrize("text", NASTY)
def test_values_and_contents_are_only_data(engine: EmbeddedEngine, text: str) -> None:
    rows = streamed(pa.table({"id": [text, "other"]}))
    assert answer(engine, "SELECT id FROM t WHERE id = $wanted", {"t": rows}, {"wanted": text}) == [(text,)]
    assert answer(engine, "SELECT id FROM t WHERE id = $1", {"t": rows}, [text]) == [(text,)]
    assert answer(engine, "SELECT count(*) AS n FROM t", {"t": rows}) == [(2,)]


@pytest.mark.parametrize("name", [name for name in NASTY if "\0" not in name])
def test_quoted_names_are_only_names(engine: EmbeddedEngine, name: str) -> None:
    rows = pa.table({name: [1]})
    assert answer(engine, f"SELECT {quoted(name)} FROM {quoted(name)}", {name: rows}) == [(1,)]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_can_not_be_quoted_are_refused(name: str) -> None:
    with pytest.raises(OmnigraphError, match="can not be the name"):
        quoted(name)


def test_no_variable_of_python_is_a_relation(engine: EmbeddedEngine) -> None:
    local = SECRET
    for name in ("local", "SECRET", "engine", "relations", "streams"):
        with pytest.raises(OmnigraphError, match="does not exist"):
            engine.run(f"SELECT * FROM {name}", {})
    assert local.num_rows == 1


READERS = ["", "read_csv", "read_text", "read_blob", "read_json", "read_parquet", "glob", "sniff_csv"]


@pytest.mark.parametrize("function", READERS)
@pytest.mark.parametrize("place", ["{folder}/secret.csv", "{folder}/*", "http://127.0.0.1:1/x.csv", "s3://bucket/x"])
def test_no_file_and_no_address_can_be_read(engine: EmbeddedEngine, tmp_path: Path, function: str, place: str) -> None:
    (tmp_path / "secret.csv").write_text("a\nnever shown\n")
    target = "'" + place.format(folder=tmp_path) + "'"
    with pytest.raises(OmnigraphError, match=r"disabled by configuration|does not exist") as caught:
        engine.run("SELECT * FROM " + (f"{function}({target})" if function else target), {}).read_all()
    assert "never shown" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{path}'",
        "ATTACH '{path}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 9",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "PRAGMA database_list",
        "CREATE TABLE x AS SELECT 1",
        "CREATE SECRET (TYPE s3)",
        "EXPORT DATABASE '{path}'",
        "CALL enable_logging()",
        "SELECT 1; SELECT 2",
        "SELECT 1; SET threads = 9",
        "",
        "-- nothing",
    ],
)
def test_only_one_query_that_reads_is_taken(engine: EmbeddedEngine, tmp_path: Path, sql: str) -> None:
    with pytest.raises(OmnigraphError, match="exactly one query that reads"):
        engine.run(sql.format(path=tmp_path / "out"), {})
    assert not (tmp_path / "out").exists()
