"""No key and no token is in a message, a log, a page or a file, whichever way it was given."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from tests.faults import secret_kit
from tests.faults.secret_kit import leaks

from omnigraph.testing.s3_server import SeaweedServer

pytestmark = pytest.mark.s3

Way = Literal["options", "environment", "profile"]
WAYS: tuple[Way, ...] = ("options", "environment", "profile")
INVENTED = {
    "aws_access_key_id": "AKIAINVENTEDKEY00001",
    "aws_secret_access_key": "invented/Secret+With=Signs%20and0001",
    "aws_session_token": "invented//Token++With==Signs&and0002",
}


@dataclass(frozen=True, slots=True)
class Heard:
    """What a process said, and what it found stored."""

    code: int
    out: bytes
    err: bytes
    stored: bytes

    def leaks(self, secrets: Mapping[str, str]) -> dict[str, list[str]]:
        """Name the secrets that occur, by where."""
        places = {"out": self.out, "err": self.err, "stored": self.stored}
        return {place: found for place, said in places.items() if (found := leaks(said, secrets))}


def settings(way: Way, keys: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """Return the variables that hold the keys, or lead to them."""
    if way == "options":
        return {}
    if way == "environment":
        return {name.upper(): value for name, value in keys.items()}
    file = tmp_path / "profiles"
    lines = "".join(f"{name} = {value}\n" for name, value in keys.items())
    file.write_text(f"[default]\n\n[canary]\n{lines}", encoding="utf-8")
    return {"AWS_PROFILE": "canary", "AWS_SHARED_CREDENTIALS_FILE": str(file)}


def hear(
    job: str, way: Way, options: Mapping[str, str], root: str, tmp_path: Path, planted: str | None = None
) -> tuple[Heard, dict[str, str]]:
    """Let a process work with keys given one way; return what it said, and the keys."""
    keys = {name: value for name, value in options.items() if name in INVENTED}
    rest = {name: value for name, value in options.items() if name not in INVENTED}
    dump = tmp_path / "dump"
    order = {
        "job": job,
        "root": root,
        "options": dict(options) if way == "options" else rest,
        "dump": str(dump),
        "planted": planted,
    }
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        **settings(way, keys, tmp_path),
        "LANCE_LOG": "debug",
        "RUST_LOG": "debug",
        "OBJECT_STORE_CLIENT_MAX_RETRIES": "1",
        "OBJECT_STORE_CLIENT_RETRY_TIMEOUT": "2",
    }
    done = subprocess.run(
        [sys.executable, str(Path(secret_kit.__file__))],
        input=json.dumps(order).encode() + b"\n",
        env=environment,
        capture_output=True,
        timeout=180,
        check=False,
    )
    return Heard(done.returncode, done.stdout, done.stderr, dump.read_bytes() if dump.exists() else b""), keys


@pytest.mark.parametrize("way", WAYS)
def test_what_is_done_with_a_graph_shows_no_key(
    way: Way, s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    heard, keys = hear("much", way, s3_server.storage_options(), s3_root(), tmp_path)
    assert heard.code == 0, heard.err[-3_000:].decode(errors="replace")
    assert heard.out.endswith(b"all done\n")
    assert b"DEBUG" in heard.err and b"lance" in heard.err, "Lance told what it does"
    assert b"__recovery/" in heard.stored and b"intent.json" in heard.stored and b"_graph_commit_rec" in heard.stored
    assert heard.leaks(keys) == {}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_refused_or_not_answered_shows_no_key(
    way: Way, s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    heard, keys = hear("refusals", way, {**s3_server.storage_options(), **INVENTED}, s3_root(), tmp_path)
    assert heard.code == 0, heard.err[-3_000:].decode(errors="replace")
    assert keys == INVENTED
    assert heard.out.count(b"refused STORAGE") >= 12
    assert heard.leaks(keys) == {}


def test_a_key_that_slips_into_a_message_or_a_commit_is_found(
    s3_server: SeaweedServer, s3_root: Callable[[], str], tmp_path: Path
) -> None:
    options = s3_server.storage_options()
    slip = options["aws_secret_access_key"]
    heard, keys = hear("much", "options", options, s3_root(), tmp_path, planted=slip)
    assert heard.leaks(keys) == {name: ["aws_secret_access_key"] for name in ("out", "err", "stored")}


@pytest.mark.parametrize("form", ["{}", "x={}&y", "%27{}%27"])
def test_looking_for_secrets_finds_them_however_they_are_written(form: str) -> None:
    from urllib.parse import quote, quote_plus

    for write in (str, quote, quote_plus, lambda text: quote(text, safe=""), json.dumps):
        assert leaks(form.format(write(INVENTED["aws_session_token"])).encode(), INVENTED) == ["aws_session_token"]
    assert leaks(b"nothing at all", INVENTED) == []
