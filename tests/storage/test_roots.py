import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidNameError, InvalidOptionError
from omnigraph.storage.roots import GraphRoot, StorageOptions, check_key, scrub

SECRET = "wJalr/XUtn+FEMI=K7MDENG"
KEYS = {"aws_access_key_id": "AKIACANARY", "aws_secret_access_key": SECRET}


@pytest.fixture(autouse=True)
def no_aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("/data/graph", "/data/graph"),
        ("/data/graph///", "/data/graph"),
        ("//data//graph", "/data/graph"),
        ("/data/./x/../graph", "/data/graph"),
        ("/", "/"),
        (Path("/data/graph"), "/data/graph"),
        ("file:///data/graph/", "/data/graph"),
        ("file://localhost/data/graph", "/data/graph"),
        ("file:/data/graph", "/data/graph"),
        ("FILE:///data/a%20b", "/data/a b"),
        ("/data/a%20b#1?x", "/data/a%20b#1?x"),
        ("/data/größe", "/data/größe"),
    ],
)
def test_a_local_root_is_absolute_and_normal(written: str | Path, expected: str) -> None:
    root = GraphRoot.parse(written)
    assert (str(root), root.is_local, root.bucket) == (expected, True, None)


def test_relative_paths_and_the_home_folder_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    assert str(GraphRoot.parse("people.omni")) == f"{tmp_path}/people.omni"
    assert str(GraphRoot.parse("~/graph")) == "/home/ann/graph"
    assert str(GraphRoot.parse("sub/~")) == f"{tmp_path}/sub/~"


def test_a_dataset_below_a_local_root_is_a_plain_path() -> None:
    assert GraphRoot.parse("/data").uri("nodes/a b%41?") == "/data/nodes/a b%41?"
    assert GraphRoot.parse("/").uri("nodes") == "/nodes"


@pytest.mark.parametrize(
    ("written", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my-bucket.x/team/graph//", "my-bucket.x", "team/graph"),
        ("S3://bucket/größe a", "bucket", "größe a"),
    ],
)
def test_an_s3_root_is_a_bucket_and_a_prefix(written: str, bucket: str, prefix: str) -> None:
    root = GraphRoot.parse(written, KEYS)
    assert (root.bucket, root.path, root.is_local) == (bucket, prefix, False)
    assert str(root) == f"s3://{bucket}/{prefix}".rstrip("/")


def test_a_dataset_below_an_s3_root_is_a_url_whose_path_decodes_to_the_key() -> None:
    root = GraphRoot.parse("s3://bucket/team")
    assert root.uri("nodes/1") == "s3://bucket/team/nodes/1"
    assert root.uri("a%41?b#c") == "s3://bucket/team/a%2541%3Fb%23c"
    assert GraphRoot.parse("s3://bucket").uri("nodes") == "s3://bucket/nodes"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("/data\x00x", "control character"),
        ("/data\nx", "control character"),
        ("s3://bucket/a\tb", "control character"),
        ("/" + "x" * 3_000, "more than"),
        ("gs://bucket/x", "'gs' are not supported; use a local path, file:///path or s3://bucket/prefix"),
        ("https://host/x", "not supported"),
        ("hdfs://host/x", "not supported"),
        ("s3a://bucket/x", "not supported"),
        (Path("s3://bucket/x"), "two slashes"),
        ("s3:/bucket/x", "two slashes"),
        ("s3://", "not a bucket name"),
        ("s3:///prefix", "not a bucket name"),
        ("s3://b!cket/x", "not a bucket name"),
        ("s3://key:canary@bucket/x", "must not hold credentials"),
        ("s3://bucket/x?token=canary", "must not contain"),
        ("s3://bucket/x#part", "must not contain"),
        ("s3://bucket/a%20b", "must not contain"),
        ("s3://bucket/a\\b", "must not contain"),
        ("s3://bucket/a/../b", "segments"),
        ("s3://bucket/./b", "segments"),
        ("s3://bucket/a//b", "segments"),
        ("file://host/data", "without host"),
        ("file:///data?x", "without host"),
        ("file:///data%00", "control characters"),
        ("file:///data%ff", "control characters"),
        ("~no-such-user-here/x", "home folder"),
    ],
)
def test_a_root_we_can_not_use_is_refused_with_the_reason(written: str | Path, told: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        GraphRoot.parse(written)
    assert told in str(refused.value)
    assert "canary" not in str(refused.value)


def test_storage_options_are_refused_for_a_local_root() -> None:
    with pytest.raises(InvalidOptionError, match="local path") as refused:
        GraphRoot.parse("/data", KEYS)
    assert SECRET not in str(refused.value)
    assert GraphRoot.parse("/data", {}).is_local


def test_short_and_long_option_names_mean_the_same() -> None:
    short = StorageOptions({"access_key_id": "a", "secret_access_key": "b", "token": "c", "endpoint_url": "https://h"})
    long = {
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_session_token": "c",
        "aws_endpoint": "https://h",
    }
    assert dict(short) == long
    assert short == StorageOptions(long)
    assert hash(short) == hash(StorageOptions(long))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"aws_regoin": SECRET}, "unknown storage option 'aws_regoin'; did you mean 'aws_region'?"),
        ({"AWS_REGION": SECRET}, "did you mean 'aws_region'?"),
        ({"secret_key": SECRET}, "did you mean 'secret_access_key'?"),
        ({"zzz": SECRET}, "did you mean"),
        ({"region": SECRET, "aws_region": SECRET}, "given twice"),
        ({"allow_http": SECRET}, "'true' or 'false'"),
        ({"aws_region": SECRET + "\n"}, "control character"),
        ({"aws_access_key_id": SECRET}, "together"),
        ({"aws_secret_access_key": SECRET}, "together"),
        ({"aws_endpoint": SECRET}, "http:// or https://"),
        ({"aws_endpoint": f"https://[{SECRET}"}, "http:// or https://"),
        ({"aws_endpoint": f"https://user:{SECRET}@host"}, "no credentials"),
        ({"aws_endpoint": "http://127.0.0.1:9000"}, "allow_http"),
        ({"aws_endpoint": "http://127.0.0.1:9000", "allow_http": "false"}, "allow_http"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_never_shows_a_value(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        GraphRoot.parse("s3://bucket/x", options)
    assert told in str(refused.value)
    assert SECRET not in str(refused.value) + repr(refused.value.facts)


def test_an_option_that_is_no_string_is_refused() -> None:
    wrong: Mapping[str, str] = {"allow_http": True}  # type: ignore[dict-item]  # what the test is about
    with pytest.raises(InvalidOptionError, match="must be a string"):
        StorageOptions(wrong)


def test_a_plain_http_endpoint_of_the_environment_needs_permission_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    with pytest.raises(InvalidOptionError, match="allow_http"):
        GraphRoot.parse("s3://bucket/x")
    assert GraphRoot.parse("s3://bucket/x", {"allow_http": "TRUE"}).options["allow_http"] == "true"
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert not GraphRoot.parse("s3://bucket/x").options


def test_options_show_their_keys_and_no_value() -> None:
    root = GraphRoot.parse("s3://bucket/x", {**KEYS, "aws_region": "eu-central-1"})
    for shown in (repr(root), str(root), f"{root.options}", f"{root.options!r}", "%s" % root.options, repr([root])):  # noqa: UP031
        assert SECRET not in shown
        assert "AKIACANARY" not in shown
    assert repr(root.options) == "StorageOptions(aws_access_key_id=***, aws_secret_access_key=***, aws_region=***)"


def test_options_are_immutable_and_survive_pickling() -> None:
    options = StorageOptions(KEYS)
    with pytest.raises(TypeError):
        options["aws_region"] = "x"  # type: ignore[index]  # what the test is about
    given_root = GraphRoot.parse("s3://bucket/x", KEYS)
    assert pickle.loads(pickle.dumps(given_root)) == given_root


def test_given_options_are_worded_so_that_they_beat_the_environment() -> None:
    handed = StorageOptions({**KEYS, "endpoint": "https://store.example"}).for_clients()
    assert handed["aws_endpoint"] == handed["aws_endpoint_url_s3"] == "https://store.example"
    assert handed["aws_session_token"] == ""
    assert StorageOptions({**KEYS, "token": "t"}).for_clients()["aws_session_token"] == "t"
    assert StorageOptions({"region": "eu-west-1"}).for_clients() == {"aws_region": "eu-west-1"}


def test_scrubbing_removes_secrets_of_options_and_environment_also_when_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-environment")
    text = f"key AKIACANARY secret {SECRET} escaped wJalr%2FXUtn%2BFEMI%3DK7MDENG token-of-the-environment end"
    assert scrub(text, StorageOptions(KEYS)) == "key *** secret *** escaped *** *** end"
    assert scrub("nothing to hide", StorageOptions()) == "nothing to hide"


@given(st.text(max_size=40))
def test_a_key_that_is_accepted_stays_below_any_root(key: str) -> None:
    try:
        check_key(key)
    except InvalidNameError:
        return
    assert os.path.normpath(f"/graphs/{key}") == f"/graphs/{key}"
    assert GraphRoot.parse("/graphs").uri(key) == f"/graphs/{key}"


@given(st.text(alphabet="s3:/.~ab%?#@\\\x00é", max_size=20))
def test_parsing_any_text_gives_a_root_or_our_error(text: str) -> None:
    try:
        root = GraphRoot.parse(text)
    except InvalidOptionError:
        return
    assert GraphRoot.parse(str(root)) == root
