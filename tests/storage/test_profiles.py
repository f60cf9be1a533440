"""Keys of an AWS profile: used when neither options nor environment have any."""

import os
import traceback
from pathlib import Path

import pytest

from omnigraph.errors import InvalidOptionError
from omnigraph.storage.roots import GraphRoot, scrub

SECRET = "profile/Secret+With=Signs%(x)s"
FILE = f"""
# a comment
[default]
aws_access_key_id = DEFAULTKEY
aws_secret_access_key = {SECRET}
region = eu-west-9

[work team]
aws_access_key_id=WORKKEY
aws_secret_access_key=work-secret
aws_session_token=work-token

[roles]
role_arn = arn:aws:iam::1:role/x
source_profile = default
"""
GIVEN = {"aws_access_key_id": "GIVENKEY", "aws_secret_access_key": "given"}


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    (tmp_path / "keys").write_text(FILE, encoding="utf-8")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    return tmp_path / "keys"


def handed_on(**options: str) -> dict[str, str]:
    return GraphRoot.parse("s3://bucket/g", options).options.for_clients()


def test_the_default_profile_is_used_as_it_is_written() -> None:
    found = handed_on(aws_region="r")
    assert (found["aws_access_key_id"], found["aws_secret_access_key"]) == ("DEFAULTKEY", SECRET)
    assert found["aws_session_token"] == "", "the environment's is not mixed in"
    assert found["aws_region"] == "r"


def test_a_named_profile_is_used_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work team")
    found = handed_on()
    assert (found["aws_access_key_id"], found["aws_session_token"]) == ("WORKKEY", "work-token")


def test_the_file_in_the_home_folder_is_read(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("HOME", str(file.parent))
    assert handed_on() == {}
    (file.parent / ".aws").mkdir()
    file.rename(file.parent / ".aws" / "credentials")
    assert handed_on()["aws_access_key_id"] == "DEFAULTKEY"


def test_options_beat_the_environment_and_both_beat_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert handed_on(**GIVEN)["aws_access_key_id"] == "GIVENKEY"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENTKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment")
    assert handed_on() == {}, "clients read the environment themselves"
    assert handed_on(**GIVEN)["aws_access_key_id"] == "GIVENKEY"


@pytest.mark.parametrize("variable", ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"])
def test_other_ways_to_say_who_we_are_beat_the_profile(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    assert handed_on(**{variable.lower(): "x"}) == {variable.lower(): "x"}
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setenv(variable, "x")
    assert handed_on() == {}
    assert "aws_access_key_id" not in handed_on(aws_skip_signature="true")


def test_a_local_graph_needs_no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert dict(GraphRoot.parse("/data/g").options) == {}


@pytest.mark.parametrize(("name", "why"), [("nobody", "is not in"), ("roles", "has no aws_access_key_id")])
def test_a_profile_that_was_named_must_have_keys(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    monkeypatch.setenv("AWS_PROFILE", name)
    with pytest.raises(InvalidOptionError, match=why) as refused:
        handed_on()
    assert refused.value.facts["option"] == "AWS_PROFILE"


def test_a_file_that_is_none_is_refused_without_a_word_of_it(file: Path) -> None:
    file.write_text(f"aws_secret_access_key = {SECRET}\n", encoding="utf-8")
    with pytest.raises(InvalidOptionError, match="can not be read as one") as refused:
        handed_on()
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    file.write_bytes(b"[default]\n\xff\xfe")
    with pytest.raises(InvalidOptionError, match="can not be read as one"):
        handed_on()


def test_a_profile_s_keys_are_taken_out_of_messages() -> None:
    options = GraphRoot.parse("s3://bucket/g").options
    assert scrub(f"key DEFAULTKEY and {SECRET}", options) == "key *** and ***"
    assert SECRET not in repr(options)
