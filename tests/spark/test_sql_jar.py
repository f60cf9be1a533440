"""The catalog's jar: made from its sources, the same every time; and the one call that configures a session."""

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from omnigraph.errors import InvalidOptionError, ObjectNotFoundError
from pyspark_omnigraph import configure, session

HOUSE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_jar", HOUSE / "connector" / "build_jar.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_jar_is_the_same_however_often_it_is_made(builder: ModuleType, tmp_path: Path) -> None:
    made = [builder.build(tmp_path / name / "catalog.jar").read_bytes() for name in ("one", "two")]
    assert made[0] == made[1]
    assert made[0] == session.catalog_jar().read_bytes()


def test_the_jar_holds_the_catalog_and_no_times(builder: ModuleType) -> None:
    with zipfile.ZipFile(session.catalog_jar()) as jar:
        assert "omnigraph/spark/OmniCatalog.class" in jar.namelist()
        assert {entry.date_time for entry in jar.infolist()} == {builder.LONG_AGO}


def test_a_jar_of_other_sources_is_not_current(builder: ModuleType, tmp_path: Path) -> None:
    sources = tmp_path / "java"
    sources.mkdir()
    (sources / "A.java").write_text("public class A {}")
    jar = builder.build(tmp_path / "a.jar", sources)
    assert builder.is_current(jar, sources)
    (sources / "A.java").write_text("public class A { int b; }")
    assert not builder.is_current(jar, sources)


def test_sources_that_do_not_compile_are_an_error_that_says_where(builder: ModuleType, tmp_path: Path) -> None:
    sources = tmp_path / "java"
    sources.mkdir()
    (sources / "A.java").write_text("public class A { nonsense }")
    with pytest.raises(builder.BuildError, match=r"does not compile.*A\.java.*Line 1"):
        builder.build(tmp_path / "a.jar", sources)
    assert not (tmp_path / "a.jar").exists()


def test_a_missing_jar_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "JAR", tmp_path / "none.jar")
    monkeypatch.setattr(session, "BUILDER", tmp_path / "none.py")
    with pytest.raises(ObjectNotFoundError, match=r"python connector/build_jar\.py"):
        session.catalog_jar()


class Builder:
    """What a session's builder does with settings."""

    def __init__(self, **options: str) -> None:
        self._options = options

    def config(self, key: str, value: str) -> "Builder":
        self._options[key] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802  (Spark's name)
        return self._options


def test_a_builder_gets_the_jar_and_the_settings_and_keeps_other_jars() -> None:
    builder = configure(Builder(**{"spark.jars": "/a.jar"}), "s3://bucket/g", name="people", branch="review")
    settings = configure(
        builder, "g.omni", storage_options={"aws_region": "eu"}, options={"actor": "etl"}
    ).getOrCreate()
    assert settings["spark.jars"] == f"/a.jar,{session.catalog_jar()}"
    assert settings["spark.sql.catalog.people"] == "omnigraph.spark.OmniCatalog"
    assert settings["spark.sql.catalog.people.root"] == "s3://bucket/g"
    assert settings["spark.sql.catalog.people.branch"] == "review"
    assert settings["spark.sql.catalog.og.root"] == str(Path("g.omni").resolve())
    assert settings["spark.sql.catalog.og.storage.aws_region"] == "eu"
    assert settings["spark.sql.catalog.og.actor"] == "etl"


@pytest.mark.parametrize("name", ["", "a.b", "a b", "1a", "ä", "a;b"])
def test_a_name_that_sql_would_not_take_for_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="can not name a catalog"):
        configure(Builder(), "g.omni", name=name)
