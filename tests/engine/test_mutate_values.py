"""Values and names in mutations are data, whatever they look like; and the command that takes them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.engine.cli_kit import run, wide_terminal
from tests.engine.mutate_kit import counts, done, graph, person, rows
from typer.testing import CliRunner

import omnigraph as og
from omnigraph.cli.app import app
from omnigraph.cli.output import Exit
from omnigraph.errors import MutationError

__all__ = ["graph", "wide_terminal"]  # fixtures

# -- values are data ------------------------------------------------------------------------------------

NASTY = [
    "'",
    '"',
    "''; DROP TABLE Person; --",
    '"; drop',
    "' OR '1'='1",
    "x' OR true --",
    "%",
    "_",
    "\\",
    "\\'",
    "`id`",
    "$name",
    "{}",
    "ünïcödé 🎉 \u202e\u2028",
    "a\nb\tc",
    "\u0000",
    "null",
    "true",
    "//",
    "/* */",
]


@pytest.mark.parametrize("value", NASTY, ids=ascii)
def test_a_value_is_never_more_than_a_value(graph: og.Graph, value: str) -> None:
    before = rows(graph, "Person")
    add = (
        "insert Person { name: $v, bio: $v, tags: [$v] } insert Note { id: $v, text: $v } "
        "insert Knows { id: $v, from: $v, to: $v }"
    )
    done(graph, add, "$v: String", v=value)
    expected = {"name": value, "age": None, "bio": value, "tags": [value], "face": None, "seen": None}
    assert rows(graph, "Person") == before | {value: expected}
    change = (
        "upsert Person { name: $v, age: 1 } update Person set { age: 2 } where bio = $v and name in [$v] "
        "update Note set { stars: 5 } where text contains $v and id = $v "
        "update Knows set { since: null, to: $v } where from = $v and to starts_with $v"
    )
    assert counts(done(graph, change, "$v: String", v=value)) == {"node:Person": (0, 1, 0), "node:Note": (0, 1, 0)}
    assert rows(graph, "Person") == before | {value: expected | {"age": 2}}
    gone = done(
        graph,
        "delete Person where id = $v delete Note where id in $l delete Knows where from = $v",
        "$v: String, $l: [String]",
        v=value,
        l=[value],
    )
    assert counts(gone) == {"node:Person": (0, 0, 1), "node:Note": (0, 0, 1), "edge:Knows": (0, 0, 1)}
    assert rows(graph, "Person") == before
    assert set(rows(graph, "Note")) == {"n1", "n2"}


@pytest.mark.parametrize("value", [v for v in NASTY if "\u0000" not in v], ids=ascii)
def test_a_literal_is_never_more_than_a_value(graph: og.Graph, value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    done(graph, f'insert Person {{ name: "{escaped}" }} update Person set {{ age: 2 }} where name = "{escaped}"')
    assert person(graph, value)["age"] == 2
    done(graph, f'delete Person where name in ["{escaped}"]')
    assert set(rows(graph, "Person")) == {"Ann", "Bo"}


@pytest.mark.parametrize("name", ["id) OR (1=1", "a'b", "n; drop", "ü", "na me", "name--"])
def test_an_odd_name_is_refused_wherever_it_stands(graph: og.Graph, name: str) -> None:
    head = graph.refresh()
    for text in (
        f"query q() {{ delete Person where {name} = 1 }}",
        f"query q() {{ update Person set {{ {name}: 1 }} where id is not null }}",
        f"query q() {{ insert {name} {{ name: 1 }} }}",
    ):
        with pytest.raises(MutationError):
            graph.mutate(text)
    with pytest.raises(MutationError):
        graph.mutate('query q() { insert Person { name: "Cy" } }', {name: 1})
    assert graph.refresh() == head


def test_properties_may_be_called_like_words_of_any_language(tmp_path: Path) -> None:
    words = ["select", "where", "order", "null", "true", "not", "in", "set", "query", "key", "from", "like", "end"]
    graph = og.init(tmp_path / "w.omni", "node W { " + " ".join(f"{word}: String?" for word in words) + " }")
    for word in words:
        done(graph, f'insert W {{ id: "{word}", {word}: "it" }}')
        assert counts(done(graph, f'update W set {{ {word}: "that" }} where {word} = "it"')) == {"node:W": (0, 1, 0)}
        assert counts(done(graph, f'delete W where {word} starts_with "th"')) == {"node:W": (0, 0, 1)}


# -- on the command line --------------------------------------------------------------------------------

FILE = """
query add($name: String, $age: I32?, $born: DateTime?, $tags: [String]?, $face: Blob?) {
    insert Person { name: $name, age: $age, seen: $born, tags: $tags, face: $face }
}
query drop($names: [String]) { delete Note where id in $names }
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.gq"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def test_the_command_takes_a_file_and_parameters(graph: og.Graph, file: str) -> None:
    given = ["--param", "name=12", "--param", "age=-3", "--param", "born=2024-01-31", "--param", 'tags=["a=b", null]']
    born = ["--param", "born=2024-01-31T10:00:00Z", "--param", "face=base64:AP8="]
    run("mutate", graph.root, file, "--name", "add", *given, expect=Exit.ERROR)
    said = run(
        "mutate", graph.root, file, "--name", "add", *given[:4], *given[6:], *born,
        "--message", "m", "--actor", "bo", "--txn", "cli:1",
    )  # fmt: skip
    head = graph.refresh()
    assert f"add on branch main: version 3 ({head.id})" in said.out
    assert [line.split() for line in said.out.splitlines()][1:] == [
        ["table", "inserted", "updated", "deleted"],
        ["node:Person", "1", "0", "0"],
    ]
    assert (head.message, head.actor) == ("m", "bo")
    row = person(graph, "12")
    assert (row["age"], row["tags"], row["face"]) == (-3, ["a=b", None], b"\x00\xff")
    assert row["seen"] == datetime(2024, 1, 31, 10, tzinfo=UTC)
    again = run("mutate", graph.root, file, "--name", "add", "--param", "name=12", "--txn", "cli:1")
    assert "landed before" in again.out


def test_the_command_takes_text_json_and_a_branch(graph: og.Graph, tmp_path: Path) -> None:
    graph.branches.create("review")
    text = "query q($n: [String]) { delete Note where id in $n }"
    told = run("mutate", graph.root, "--query", text, "--params-json", '{"n": ["n1"]}', "--branch", "review", "--json")
    assert told.json["affected"] == {"node:Note": {"inserted": 0, "updated": 0, "deleted": 1}}
    assert (told.json["branch"], told.json["query"]) == ("review", "q")
    path = tmp_path / "p.json"
    path.write_text('{"n": ["n2"]}')
    assert run("mutate", graph.root, "--query", text, "--params-json", str(path), "--json").json["version"] == 3
    assert "nothing to do" in run("mutate", graph.root, "--query", text, "--params-json", str(path)).out


def test_the_command_reads_standard_input(graph: og.Graph) -> None:
    text = 'query q() { insert Person { name: "Çy" } }'
    assert CliRunner().invoke(app, ["mutate", graph.root, "-"], input=text.encode()).exit_code == Exit.DONE
    assert "Çy" in rows(graph, "Person")


Q = "query q($a: I32, $s: String?) { update Person set { age: $a, bio: $s } where id is not null }"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], Exit.USAGE, "a file or --query"),
        (["f.gq", "--query", Q], Exit.USAGE, "a file or --query"),
        (["no-such.gq"], Exit.USAGE, "can not be read"),
        (["--query", Q, "--param", "a"], Exit.USAGE, "NAME=VALUE"),
        (["--query", Q, "--param", "=1"], Exit.USAGE, "NAME=VALUE"),
        (["--query", Q, "--param", "a=x"], Exit.USAGE, "not JSON"),
        (["--query", Q, "--param", "a=1", "--param", "a=2"], Exit.USAGE, "given twice"),
        (["--query", Q, "--param", "a=1", "--params-json", '{"a": 2}'], Exit.USAGE, "given twice"),
        (["--query", Q, "--params-json", '{"a": 1, "a": 2}'], Exit.USAGE, "occurs twice"),
        (["--query", Q, "--params-json", "{"], Exit.USAGE, "not JSON"),
        (["--query", Q, "--params-json", "nowhere.json"], Exit.USAGE, "can not be read"),
        (["--query", Q, "--param", "a=1.5"], Exit.ERROR, "MUTATION_INVALID"),
        (["--query", Q, "--param", "b=1"], Exit.ERROR, "no parameter 'b'"),
        (["--query", "query q() {"], Exit.ERROR, "S1"),
        (["--query", Q, "--param", "a=1", "--branch", "none"], Exit.NOT_FOUND, "none"),
        (["--query", Q, "--param", "a=1", "--txn", "x"], Exit.USAGE, "APP:VERSION"),
        (["--query", 'query q() { insert Person { name: "Ann" } }'], Exit.ERROR, "exists already"),
    ],
)
def test_the_command_ends_with_the_code_of_what_is_wrong(
    graph: og.Graph, arguments: list[str], code: int, said: str
) -> None:
    head = graph.refresh()
    assert said in run("mutate", graph.root, *arguments, expect=code).err
    assert graph.refresh() == head
