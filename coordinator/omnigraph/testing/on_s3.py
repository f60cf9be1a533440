"""Graphs that tests make in local folders lie on an S3 server instead, in this process and in those it starts."""

import os
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Final
from urllib.parse import quote

from omnigraph.engine import opening
from omnigraph.storage import roots
from omnigraph.storage.roots import GraphRoot
from omnigraph.testing.ages import AGES, let_objects_age
from omnigraph.testing.s3_server import SeaweedServer

__all__ = ["BUCKET", "ENDPOINT", "move_graphs", "moved", "settings"]

BUCKET: Final = "omnigraph"
FOLDER: Final = "moved"
ENDPOINT: Final = "OMNIGRAPH_TEST_S3_ENDPOINT"
HOOK: Final = Path(__file__).parents[3] / "tests" / "on_s3"
"""A folder whose ``sitecustomize`` calls :func:`move_graphs` in every Python that is started."""


def settings(server: SeaweedServer, ages: Path) -> dict[str, str]:
    """Return the variables that a process needs so that its graphs are moved, and those of its children."""
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    return {ENDPOINT: server.endpoint, AGES: str(ages), "PYTHONPATH": path}


def moved(folder: "str | os.PathLike[str]") -> str:
    """Return where the graph of a local folder lies instead."""
    return (
        f"s3://{BUCKET}/{FOLDER}/{quote(os.path.abspath(os.fsdecode(folder)).lstrip('/'), safe='/').replace('%', '=')}"  # noqa: PTH100
    )


def move_graphs() -> None:
    """From now on, and once for all: local roots stand for places on the server, whose options need not be given."""
    as_it_is = GraphRoot.parse.__func__  # type: ignore[attr-defined]
    if hasattr(as_it_is, "__wrapped__"):
        return

    @wraps(as_it_is)
    def parse(
        cls: type[GraphRoot], uri: "str | os.PathLike[str]", storage_options: Mapping[str, str] | None = None
    ) -> GraphRoot:
        found: GraphRoot = as_it_is(cls, uri, storage_options or (_options() if _is_ours(uri) else None))
        return found if not found.is_local else as_it_is(cls, moved(found.path), _options())

    roots.GraphRoot.parse = classmethod(parse)  # type: ignore[assignment,method-assign]
    # That the store keeps its promises is tested once, by the tests of the probe.
    setattr(opening, "refuse_unsafe_store", lambda objects, mint: None)  # noqa: B010
    let_objects_age()


def _is_ours(uri: "str | os.PathLike[str]") -> bool:
    return os.fsdecode(uri).startswith(f"s3://{BUCKET}/{FOLDER}/")


def _options() -> dict[str, str]:
    return SeaweedServer.options_at(os.environ[ENDPOINT])
