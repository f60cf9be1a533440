"""Random schemas and random queries against a naive interpreter over dictionaries: same rows, counts and refusals."""

import json
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import InvalidInputError, MutationError
from omnigraph.rules.mutation_rows import TableScript

CASCADES = True
"""Whether deleting nodes takes their edges along."""
ENDPOINTS = True
"""Whether an edge whose end does not exist is refused."""

WALKS = 40 * (25 if os.environ.get("OMNIGRAPH_DEEP") == "1" else 1)
QUERIES = 7
STATEMENTS_MAX = 5

VALUES: dict[str, list[Any]] = {
    "String": ["", "a", "ab", "ü'", '"; drop', "A"],
    "I32": [-1, 0, 7],
    "U64": [0, 1, 2**64 - 1],
    "F64": [0.0, 1.5, -2.0, nan],
    "Bool": [True, False],
    "Date": [date(2020, 1, 1), date(1969, 12, 31)],
    "DateTime": [datetime(2020, 1, 1, 1, 2, 3, 4, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    "enum(x, y)": ["x", "y"],
    "[String]": [[], ["a"], ["a", None]],
    "Vector(2)": [[0.5, 1.0], [0.0, -2.0]],
    "Blob": [b"", b"b", b"B" * 70_000],
}
ORDERED = ("String", "I32", "U64", "F64", "Date", "DateTime")
UNCOMPARED = ("[String]", "Vector(2)", "Blob")
IDS = ["i1", "i2", "i'3", "i4", "i5", "i6"]
MINTED = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
"""An id nobody gave; one that is written out of keys may be as long, but has other characters."""

Row = dict[str, Any]
Known = bool | None
Test = Callable[[Row], Known]


@dataclass(frozen=True)
class Type:
    """A type of a drawn schema; ``columns`` are the properties with their type and whether they may be null."""

    name: str
    columns: dict[str, tuple[str, bool]]
    key: tuple[str, ...] = ()
    ends: tuple[str, str] | None = None

    def text(self) -> str:
        body = " ".join(f"{name}: {kind}{'?' if nullable else ''}" for name, (kind, nullable) in self.columns.items())
        stored = [{"from": "src", "to": "dst"}.get(name, name) for name in self.key]
        key = f" @key({', '.join(stored)})" if self.key else ""
        head = f"node {self.name}" if self.ends is None else f"edge {self.name}: {self.ends[0]} -> {self.ends[1]}"
        return f"{head} {{ {body}{key} }}"

    @property
    def all_columns(self) -> dict[str, tuple[str, bool]]:
        ends = zip(("from", "to"), self.ends or (), strict=False)
        return {**{end: (f"an id of {node}", False) for end, node in ends}, **self.columns}


# -- the naive interpreter ------------------------------------------------------------------------------


class RefusedError(Exception):
    """The query can not be done."""


@dataclass
class Model:
    """Rows by type and id."""

    types: dict[str, Type]
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    fresh: int = 0

    def run(self, steps: list[tuple[Any, ...]]) -> dict[str, tuple[int, int, int]]:
        """Do everything on a copy; keep it, and return what differs, or raise."""
        before = self.rows
        after = {name: {id: dict(row) for id, row in rows.items()} for name, rows in before.items()}
        for verb, kind, *rest in steps:
            getattr(self, verb)(after, kind, *rest)
        if ENDPOINTS:
            self.refuse_loose_ends(after)
        self.refuse_false_ids(after)
        self.rows = after
        return self.differences(before, after)

    def insert(self, rows: Any, kind: Type, values: Row) -> None:
        id = self.id_of(kind, values)
        if id is None:
            self.fresh += 1
            id = f"fresh {self.fresh}"
        if id in rows[kind.name]:
            raise RefusedError
        rows[kind.name][id] = {name: values.get(name) for name in kind.all_columns}

    def upsert(self, rows: Any, kind: Type, values: Row) -> None:
        id = self.id_of(kind, values)
        given = {name: value for name, value in values.items() if name != "id"}
        if id not in rows[kind.name]:
            if any(given.get(name) is None for name, (_, nullable) in kind.all_columns.items() if not nullable):
                raise RefusedError
            rows[kind.name][id] = dict.fromkeys(kind.all_columns)
        rows[kind.name][id].update(given)

    def update(self, rows: Any, kind: Type, values: Row, where: Test) -> None:
        for id, row in rows[kind.name].items():
            if where({"id": id, **row}) is True:
                row.update(values)

    def delete(self, rows: Any, kind: Type, where: Test) -> None:
        gone = [id for id, row in rows[kind.name].items() if where({"id": id, **row}) is True]
        for id in gone:
            del rows[kind.name][id]
        if CASCADES and kind.ends is None:
            for edge in (each for each in self.types.values() if each.ends is not None):
                for end, node in zip(("from", "to"), edge.ends or (), strict=True):
                    if node == kind.name:
                        kept = {id: row for id, row in rows[edge.name].items() if row[end] not in gone}
                        rows[edge.name] = kept

    def id_of(self, kind: Type, values: Row) -> str | None:
        id: str | None = values.get("id")
        if kind.key and all(name in values for name in kind.key):
            derived = derived_id(kind, values)
            if id is not None and id != derived:
                raise RefusedError
            id = derived
        if id == "":
            raise RefusedError
        return id

    def refuse_loose_ends(self, rows: Any) -> None:
        for edge in (each for each in self.types.values() if each.ends is not None):
            for row in rows[edge.name].values():
                if any(row[end] not in rows[node] for end, node in zip(("from", "to"), edge.ends or (), strict=True)):
                    raise RefusedError

    def refuse_false_ids(self, rows: Any) -> None:
        for kind in self.types.values():
            if kind.key and any(id != derived_id(kind, row) for id, row in rows[kind.name].items()):
                raise RefusedError

    def differences(self, before: Any, after: Any) -> dict[str, tuple[int, int, int]]:
        found = {}
        for name, kind in self.types.items():
            old, new = before[name], after[name]
            changed = sum(shown(old[id]) != shown(new[id]) for id in old.keys() & new.keys())
            counts = (len(new.keys() - old.keys()), changed, len(old.keys() - new.keys()))
            if any(counts):
                found[f"{'node' if kind.ends is None else 'edge'}:{name}"] = counts
        return found


def derived_id(kind: Type, row: Row) -> str:
    values = [row[name] for name in kind.key]
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def shown(row: Row) -> str:
    """Return a row as text; NaN is NaN, and UTC is UTC whatever it is called."""
    return repr(sorted((n, "NaN" if is_nan(v) else str(v) if isinstance(v, datetime) else v) for n, v in row.items()))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


# -- drawing --------------------------------------------------------------------------------------------


class Drawing:
    """Draws schemas, and queries as text with parameters beside what the interpreter does."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.params: dict[str, tuple[str, Any]] = {}
        self.known: dict[str, list[str]] = {}

    def maybe(self, chance: float = 0.5) -> bool:
        return self.dice.random() < chance

    def schema(self) -> dict[str, Type]:
        types = [self.node(name) for name in ("A", "B")]
        nodes = [kind.name for kind in types]
        key = self.dice.choice([(), ("from", "to")])
        types.append(Type("E", self.columns(), key, (self.dice.choice(nodes), self.dice.choice(nodes))))
        if self.maybe():
            types.append(Type("F", self.columns(), ends=("A", self.dice.choice(nodes))))
        return {kind.name: kind for kind in types}

    def node(self, name: str) -> Type:
        key = self.dice.choice([(), ("k",), ("k", "m"), ("m",)])
        keys = {column: ({"k": "String", "m": "I32"}[column], False) for column in key}
        return Type(name, {**keys, **self.columns()}, key)

    def columns(self) -> dict[str, tuple[str, bool]]:
        kinds = self.dice.choices(list(VALUES), k=self.dice.randint(1, 4))
        return {f"p{number}": (kind, self.maybe(0.7)) for number, kind in enumerate(kinds)}

    def query(self, model: Model) -> tuple[str, Row, list[tuple[Any, ...]]]:
        types, self.params = model.types, {}
        self.known = {n: [id for id in rows if not id.startswith("fresh")] for n, rows in model.rows.items()}
        verbs = ["delete"] if self.maybe(0.2) else ["insert", "insert", "upsert", "update"]
        kinds = list(types.values())[: None if any(self.known.values()) else 2]  # edges need nodes
        count = self.dice.randint(1, STATEMENTS_MAX)
        drawn = [getattr(self, self.dice.choice(verbs))(self.dice.choice(kinds)) for _ in range(count)]
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self.params.items())
        text = f"query q({declared}) {{\n" + "\n".join(text for text, _ in drawn) + "\n}"
        return text, {name: value for name, (_, value) in self.params.items()}, [step for _, step in drawn]

    def insert(self, kind: Type) -> tuple[str, tuple[Any, ...]]:
        values = {n: self.cell(n, k) for n, k in kind.all_columns.items() if not k[1] or self.maybe()}
        if self.maybe(0.03 if kind.key else 0.4):
            values["id"] = self.dice.choice(IDS)
        return f"insert {kind.name} {self.body(kind, values)}", ("insert", kind, values)

    def upsert(self, kind: Type) -> tuple[str, tuple[Any, ...]]:
        whole = self.maybe()
        named = [n for n, k in kind.all_columns.items() if self.maybe(0.3) or (whole and not k[1])]
        if kind.key and self.maybe(0.85):
            named = list(dict.fromkeys([*kind.key, *named]))
        values = {name: self.cell(name, kind.all_columns[name]) for name in named}
        if not kind.key or not all(name in values for name in kind.key):
            values["id"] = self.an_id(kind)
        return f"upsert {kind.name} {self.body(kind, values)}", ("upsert", kind, values)

    def update(self, kind: Type) -> tuple[str, tuple[Any, ...]]:
        open_columns = [name for name in kind.all_columns if name not in kind.key]
        named = self.dice.sample(open_columns, self.dice.randint(1, min(2, len(open_columns))))
        values = {name: self.cell(name, kind.all_columns[name]) for name in named}
        text, where = self.condition(kind, 2)
        return f"update {kind.name} set {self.body(kind, values)} where {text}", ("update", kind, values, where)

    def delete(self, kind: Type) -> tuple[str, tuple[Any, ...]]:
        text, where = self.condition(kind, 2)
        return f"delete {kind.name} where {text}", ("delete", kind, where)

    def an_id(self, kind: Type) -> str:
        if not kind.key or self.maybe(0.2):
            return self.dice.choice(IDS)
        return derived_id(kind, {name: self.cell(name, kind.all_columns[name]) for name in kind.key})

    def cell(self, name: str, column: tuple[str, bool]) -> Any:
        if name in ("from", "to"):
            there = self.known[column[0].removeprefix("an id of ")]
            return self.dice.choice(there if there and self.maybe(0.95) else ["i1", "a"])
        if name == "k" and self.maybe():
            return f"k{self.dice.randint(0, 40)}"
        kind, nullable = column
        return None if nullable and self.maybe(0.2) else self.dice.choice(VALUES[kind])

    def body(self, kind: Type, values: Row) -> str:
        columns = {**kind.all_columns, "id": ("String", False)}
        return "{ " + ", ".join(f"{n}: {self.written(v, columns[n][0])}" for n, v in values.items()) + " }"

    def written(self, value: Any, kind: str) -> str:
        """Write a value out, or pass it as a parameter."""
        kind = "String" if kind.startswith("an id") else kind
        if kind == "Blob" or is_nan(value) or self.maybe():
            name = f"v{len(self.params)}"
            declared = "String" if kind.startswith("enum") else kind
            self.params[name] = (declared + ("?" if value is None else ""), value)
            return f"${name}"
        match value:
            case datetime():
                return f'datetime("{value.isoformat()}")'
            case date():
                return f'date("{value.isoformat()}")'
            case list():
                return "[" + ", ".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"
            case _:
                return json.dumps(value, ensure_ascii=False)

    # -- conditions ---------------------------------------------------------------------------------

    def condition(self, kind: Type, depth: int) -> tuple[str, Test]:
        form = self.dice.choice(["test", "test", "and", "or", "not"]) if depth else "test"
        if form == "test":
            return self.comparison(kind)
        text, one = self.condition(kind, depth - 1)
        if form == "not":
            return f"not ({text})", lambda row: None if one(row) is None else not one(row)
        other_text, other = self.condition(kind, depth - 1)
        decides = form == "or"

        def both(row: Row) -> Known:
            answers = [one(row), other(row)]
            return decides if decides in answers else None if None in answers else not decides

        return f"({text}) {form} ({other_text})", both

    def comparison(self, kind: Type) -> tuple[str, Test]:
        columns = {"id": "String", **{n: k for n, (k, _) in kind.all_columns.items() if k != "Blob"}}
        name = self.dice.choice(list(columns))
        of = "String" if name in ("from", "to") else columns[name]
        if of in UNCOMPARED or self.maybe(0.2):
            return self.null_test(name)
        values = [v for v in VALUES[of] if not is_nan(v)] if name not in ("id", "from", "to") else [*IDS, "a"]
        if self.maybe(0.3):
            among = self.dice.sample(values, self.dice.randint(0, len(values)))
            listed = ", ".join(self.written(value, of) for value in among)
            return f"{name} in [{listed}]", lambda row: None if row[name] is None else row[name] in among
        value = self.dice.choice(values)
        if of == "String" and name != "id" and self.maybe(0.4):
            word, holds = self.dice.choice([("starts_with", str.startswith), ("contains", str.__contains__)])
            text = f"{name} {word} {self.written(value, of)}"
            return text, lambda row: None if row[name] is None else bool(holds(row[name], value))
        signs = ["=", "!="] if of not in ORDERED or name == "id" else ["=", "!=", "<", "<=", ">", ">="]
        sign = self.dice.choice(signs)
        return f"{name} {sign} {self.written(value, of)}", lambda row: compared(row[name], sign, value)

    def null_test(self, name: str) -> tuple[str, Test]:
        if self.maybe():
            return f"{name} is null", lambda row: row[name] is None
        return f"{name} is not null", lambda row: row[name] is not None


def compared(left: Any, sign: str, right: Any) -> Known:
    if left is None:
        return None
    answers = {"=": left == right, "!=": left != right}
    if len(sign) == 1 and sign != "=":
        return bool(left < right if sign == "<" else left > right)
    return answers[sign] if sign in answers else bool(left <= right if sign == "<=" else left >= right)


# -- the comparison -------------------------------------------------------------------------------------


def contents(graph: og.Graph, kind: Type) -> Counter[str]:
    """Rows of a type; ids that were minted are all alike."""
    found: Counter[str] = Counter()
    for row in graph.snapshot().read(kind.name).to_pylist():
        id = row.pop("id")
        if kind.ends is not None:
            row["from"], row["to"] = row.pop("src"), row.pop("dst")
        found[f"{'fresh' if MINTED.fullmatch(id) else id} {shown(row)}"] += 1
    return found


def expected(model: Model, kind: Type) -> Counter[str]:
    rows = model.rows[kind.name]
    return Counter(f"{'fresh' if id.startswith('fresh') else id} {shown(row)}" for id, row in rows.items())


def walk(seed: int) -> Counter[str]:
    """Run a few queries on both; return how they ended."""
    drawing = Drawing(seed)
    types = drawing.schema()
    model = Model(types, {name: {} for name in types})
    endings: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        graph = og.init(Path(folder) / "g", "\n".join(kind.text() for kind in types.values()))
        for _ in range(QUERIES):
            text, params, steps = drawing.query(model)
            version = graph.refresh().version
            try:
                counts: Any = model.run(steps)
            except RefusedError:
                counts = None
            try:
                done = graph.mutate(text, params)
                found: Any = {key: (n["inserted"], n["updated"], n["deleted"]) for key, n in done.affected.items()}
            except MutationError:
                raise
            except InvalidInputError:
                found = None
            assert found == counts, f"{text}\n{params}"
            assert graph.refresh().version == version + bool(counts)
            for kind in types.values():
                assert contents(graph, kind) == expected(model, kind), f"{text}\n{params}"
            endings["refused" if counts is None else "changed" if counts else "nothing"] += 1
    return endings


# Without shrinking: a walk is repeated by its seed, and its storage would be written again and again.
@settings(
    max_examples=WALKS,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
@given(st.integers(0, 2**32 - 1))
@example(1)
def test_after_every_query_the_graph_is_what_the_interpreter_says(seed: int) -> None:
    walk(seed)


def test_walks_end_in_every_way() -> None:
    endings = sum((walk(seed) for seed in range(4)), Counter[str]())
    assert set(endings) == {"refused", "changed", "nothing"}


def test_the_comparison_notices_an_update_that_forgets_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TableScript._updated
    monkeypatch.setattr(TableScript, "_updated", lambda self, rows: real(self, rows).slice(1))
    with pytest.raises(AssertionError):
        for seed in range(60):
            walk(seed)
