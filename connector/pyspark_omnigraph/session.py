"""Telling a Spark session of a graph's SQL catalog, and finding the jar that holds it."""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from omnigraph.errors import InvalidOptionError, ObjectNotFoundError

CATALOG_CLASS: Final = "omnigraph.spark.OmniCatalog"
JAR: Final = Path(__file__).resolve().parent / "jars" / "omnigraph-catalog.jar"
BUILDER: Final = Path(__file__).resolve().parent.parent / "build_jar.py"
JARS: Final = "spark.jars"
_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)

Configured = TypeVar("Configured")


def configure(
    target: Configured,
    root: str,
    *,
    name: str = "og",
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Configured:
    """Make a graph's SQL catalog known as ``name`` to a session's builder, or to a session that runs; return it.

    ``branch`` is the one that a name without a branch means, ``options`` are write options such as ``actor``.
    """
    if not _NAME.match(name):
        raise InvalidOptionError(f"{name[:60]!r} can not name a catalog: use letters, digits and '_'", option="name")
    settings = _settings(root, name, branch=branch, storage=storage_options or {}, options=options or {})
    jar = str(catalog_jar())
    if hasattr(target, "getOrCreate"):
        _configure_builder(target, jar, settings)
        return target
    _refuse_another_root(target, name, settings)
    _add_jar(target, jar)
    for key, value in settings.items():
        target.conf.set(key, value)  # type: ignore[attr-defined]  # a SparkSession, of Spark's own or of Connect's
    return target


def _settings(
    root: str, name: str, *, branch: str | None, storage: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    # Spark's processes have folders of their own, so a path of this one's is made whole.
    place = str(root) if "://" in str(root) else str(Path(root).resolve())
    settings = {prefix: CATALOG_CLASS, f"{prefix}.root": place}
    if branch is not None:
        settings[f"{prefix}.branch"] = branch
    settings |= {f"{prefix}.storage.{key}": value for key, value in storage.items()}
    return settings | {f"{prefix}.{key}": value for key, value in options.items()}


def _refuse_another_root(spark: Any, name: str, settings: Mapping[str, str]) -> None:
    """Refuse a name that stands for another graph: Spark would go on using that one, and say nothing."""
    key = f"spark.sql.catalog.{name}.root"
    known = spark.conf.get(key, None)
    if known is not None and known != settings[key]:
        raise InvalidOptionError(
            f"catalog {name!r} is the graph at {known} in this session already; choose another name", option="name"
        )


def _configure_builder(builder: Any, jar: str, settings: Mapping[str, str]) -> None:
    # A builder can not be asked for what it was told, except by the field it keeps it in; other jars must stay.
    before = getattr(builder, "_options", {}).get(JARS, "")
    jars = [each for each in before.split(",") if each and each != jar]
    builder.config(JARS, ",".join([*jars, jar]))
    for key, value in settings.items():
        builder.config(key, value)


def _add_jar(spark: Any, jar: str) -> None:
    """Hand the jar to a session that runs: as an artifact over Connect, else by SQL."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(jar)
        return
    loaded = [row[0] for row in spark.sql("LIST JARS").collect()]
    if not any(each.endswith(f"/{JAR.name}") for each in loaded):
        spark.sql(f"ADD JAR '{_quoted(jar)}'")


def _quoted(path: str) -> str:
    return path.replace("\\", "\\\\").replace("'", "\\'")


def catalog_jar() -> Path:
    """Return the catalog's jar; in a checkout it is compiled when it is missing or older than its sources."""
    if BUILDER.is_file():
        return _built()
    if not JAR.is_file():
        raise ObjectNotFoundError(
            "this installation of omnigraph has no SQL catalog; install the wheel, or in a checkout run "
            "`python connector/build_jar.py`, which needs Java and pyspark"
        )
    return JAR


def _built() -> Path:
    spec = importlib.util.spec_from_file_location("omnigraph_build_jar", BUILDER)
    assert spec is not None and spec.loader is not None  # noqa: S101  the file was there
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    try:
        built: Path = builder.build()
    except builder.BuildError as problem:
        raise ObjectNotFoundError(
            f"the SQL catalog has to be compiled first: {problem}; then `python connector/build_jar.py` makes it"
        ) from problem
    return built
