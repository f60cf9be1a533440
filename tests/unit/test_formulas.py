"""Expressions that fill a property: what they say, what is refused where, and that no answer is silently wrong."""

import datetime as dt
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import SchemaError
from omnigraph.model.schema import EnumType, PropertyType, Scalar, ScalarType
from omnigraph.rules.formula_types import check_formula
from omnigraph.rules.formula_values import worked_out
from omnigraph.rules.formulas import Formula, columns_of, parse_formula
from omnigraph.rules.schema_compile import describe_schema
from omnigraph.rules.schema_source import Mark, MarkedError
from omnigraph.rules.schema_text import Quoted

COLUMNS: dict[str, Scalar] = {
    "first": Scalar.STRING,
    "last": Scalar.STRING,
    "n": Scalar.I64,
    "m": Scalar.I32,
    "u": Scalar.U64,
    "x": Scalar.F64,
    "f": Scalar.F32,
    "ok": Scalar.BOOL,
    "day": Scalar.DATE,
    "at": Scalar.DATETIME,
    "pic": Scalar.BLOB,
}
TYPES = {name: ScalarType(scalar=scalar) for name, scalar in COLUMNS.items()}
ARROW: dict[str, Any] = {
    "first": pa.string(),
    "last": pa.string(),
    "n": pa.int64(),
    "m": pa.int32(),
    "u": pa.uint64(),
    "x": pa.float64(),
    "f": pa.float32(),
    "ok": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
}
WRONG = "wrong"


def parsed(text: str) -> Formula:
    return parse_formula(Quoted(text=text, mark=Mark(line=1, column=1), raw=f'"{text}"'))


def made(text: str, wanted: PropertyType | Scalar, **rows: Any) -> list[Any]:
    """What an expression makes of rows that are given by column; what has no right answer is said so."""
    kind = ScalarType(scalar=wanted) if isinstance(wanted, Scalar) else wanted
    formula = parsed(text)
    check_formula(formula, TYPES, kind)
    size = max((len(values) for values in rows.values()), default=1)
    columns = [pa.array(rows.get(name, [None] * size), ARROW[name]) for name in ARROW]
    found = worked_out(formula, pa.RecordBatch.from_arrays(columns, names=list(ARROW)), kind)
    return [
        WRONG if bad else value for value, bad in zip(found.values.to_pylist(), found.wrong.to_pylist(), strict=True)
    ]


CASES: list[tuple[str, PropertyType | Scalar, dict[str, Any], list[Any]]] = [
    ("first || ' ' || last", Scalar.STRING, {"first": ["A", "B"], "last": ["x", None]}, ["A x", None]),
    ("'it''s'", Scalar.STRING, {"n": [1, 2]}, ["it's", "it's"]),
    ("coalesce(last, first, '-')", Scalar.STRING, {"first": ["A", None], "last": [None, None]}, ["A", "-"]),
    ("upper(trim(first)) || lower('X')", Scalar.STRING, {"first": [" ü "]}, ["Üx"]),
    ("length(first)", Scalar.I32, {"first": ["üx", None]}, [2, None]),
    ("n + m * 2 - 1", Scalar.I64, {"n": [1, None], "m": [3, 3]}, [6, None]),
    ("(n + 1) * 2", Scalar.I32, {"n": [1, 2**31]}, [4, WRONG]),
    ("-n", Scalar.I64, {"n": [5, -(2**63)]}, [-5, WRONG]),
    ("n + 1", Scalar.I64, {"n": [2**63 - 1, 2**63 - 2]}, [WRONG, 2**63 - 1]),
    ("n - 1", Scalar.U32, {"n": [0, 1]}, [WRONG, 0]),
    ("n / m", Scalar.F64, {"n": [1, 1], "m": [4, 0]}, [0.25, WRONG]),
    ("if(m = 0, 0.0, n / m)", Scalar.F64, {"n": [1, 1], "m": [4, 0]}, [0.25, 0.0]),
    ("coalesce(x, 1 / 0)", Scalar.F64, {"x": [2.5, None]}, [2.5, WRONG]),
    ("x * x", Scalar.F64, {"x": [1e300, 2.0]}, [WRONG, 4.0]),
    ("x", Scalar.F32, {"x": [1e300, 0.5, None]}, [WRONG, 0.5, None]),
    ("f", Scalar.F64, {"f": [0.5]}, [0.5]),
    ("n", Scalar.F64, {"n": [2**53 + 1, 2**53]}, [WRONG, 2.0**53]),
    ("n", Scalar.F32, {"n": [2**24 + 1, 2**24]}, [WRONG, 2.0**24]),
    ("u", Scalar.U64, {"u": [2**64 - 1]}, [2**64 - 1]),
    ("u + 0", Scalar.U64, {"u": [2**64 - 1, 7]}, [WRONG, 7]),
    ("u", Scalar.I64, {"u": [2**63, 2**63 - 1]}, [WRONG, 2**63 - 1]),
    ("n >= 18 and not ok", Scalar.BOOL, {"n": [18, 17, 20], "ok": [False, False, None]}, [True, False, None]),
    ("n is null or x is not null", Scalar.BOOL, {"n": [None, 1], "x": [None, None]}, [True, False]),
    ("first = null", Scalar.BOOL, {"first": ["a"]}, [None]),
    ("null = null", Scalar.BOOL, {}, [None]),
    ("first < last", Scalar.BOOL, {"first": ["a"], "last": ["b"]}, [True]),
    ("string(n)", Scalar.STRING, {"n": [-7, None]}, ["-7", None]),
    ("string(ok)", Scalar.STRING, {"ok": [True]}, ["true"]),
    ("string(day)", Scalar.STRING, {"day": [dt.date(2026, 1, 2)]}, ["2026-01-02"]),
    (
        "string(at)",
        Scalar.STRING,
        {"at": [dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)]},
        ["2026-01-02T03:04:05.000006Z"],
    ),
    ("day", Scalar.DATE, {"day": [dt.date(2026, 1, 2)]}, [dt.date(2026, 1, 2)]),
    ("int(first)", Scalar.I64, {"first": [" 12 ", "-9223372036854775808", "9223372036854775808", "1x", None]},
     [12, -(2**63), WRONG, WRONG, None]),
    ("int(x)", Scalar.I64, {"x": [3.0, 3.5, 1e30, float("nan")]}, [3, WRONG, WRONG, WRONG]),
    ("float(first)", Scalar.F64, {"first": ["1.5", "+2e3", "1e999", "one"]}, [1.5, 2000.0, WRONG, WRONG]),
    ("first", EnumType(values=("hot", "cold")), {"first": ["hot", "warm", None]}, ["hot", WRONG, None]),
    ("if(n > 0, 'hot', 'cold')", EnumType(values=("hot", "cold")), {"n": [1, None]}, ["hot", "cold"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted", "rows", "expected"), CASES, ids=lambda each: str(each)[:30])
def test_an_expression_makes_of_each_row_what_it_says(
    text: str, wanted: PropertyType | Scalar, rows: dict[str, Any], expected: list[Any]
) -> None:
    assert made(text, wanted, **rows) == expected


WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2, 2**32, -(2**32), 2**63 - 1, -(2**63)])


@pytest.mark.parametrize(("sign", "act"), [("+", operator.add), ("-", operator.sub), ("*", operator.mul)])
@given(pairs=st.lists(st.tuples(WHOLE, WHOLE), min_size=1))
def test_whole_numbers_are_python_s_own_or_wrong(
    sign: str, act: Callable[[int, int], int], pairs: list[tuple[int, int]]
) -> None:
    left, right = zip(*pairs, strict=True)
    exact = [act(one, other) for one, other in pairs]
    wanted = [each if -(2**63) <= each < 2**63 else WRONG for each in exact]
    rows = {"n": list(left), "u": [None] * len(left)}
    columns = [pa.array(rows["n"], pa.int64()), pa.array(list(right), pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, names=["n", "k"])
    found = worked_out(parsed(f"n {sign} k"), batch, ScalarType(scalar=Scalar.I64))
    told = [WRONG if bad else v for v, bad in zip(found.values.to_pylist(), found.wrong.to_pylist(), strict=True)]
    assert told == wanted


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("first ||", 10, "ends too early"),
        ("first || 'x", 11, "no end"),
        ("first; drop", 7, "';' is not expected"),
        ("select first from x", 9, "'first' is not expected"),
        ("n + 99999999999999999999999", 6, "too large"),
        ("1e999", 2, "too large"),
        ("first -- zz", 11, "no column 'zz'"),
        ("frist || last", 2, "no column 'frist'"),
        ("upcase(first)", 2, "no function 'upcase'"),
        ("lower(n)", 8, "'lower' takes text, and this is a whole number"),
        ("first + last", 2, "'+' takes a whole number or a float, and this is text"),
        ("coalesce(first, n)", 18, "values of one type"),
        ("lower(first, last)", 2, "takes 1 values, and 2 are given"),
        ("n", 2, "this is a whole number, and String is wanted"),
        ("pic is null", 2, "which an expression can not read"),
        ("null", 2, "null is no value"),
        ("if(n, first, last)", 5, "'if' asks for true or false first"),
        ("-" * 50 + "n", 42, "deeper"),
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_at_its_place(text: str, column: int, problem: str) -> None:
    with pytest.raises(MarkedError) as refused:
        check_formula(parsed(text), TYPES, ScalarType(scalar=Scalar.STRING))
    assert problem in refused.value.problem
    assert refused.value.mark == Mark(line=1, column=column)


def test_a_list_can_not_be_made_by_an_expression() -> None:
    draft = describe_schema('node A { tags: [String] @backfill(expr="first") }').nodes[0].properties[0]
    assert draft.formula is not None
    with pytest.raises(MarkedError, match="can not make"):
        check_formula(draft.formula, TYPES, draft.type)


def test_an_expression_stands_in_a_schema_and_errors_name_line_and_column() -> None:
    text = 'node A {\n  full: String @backfill(expr="first || \\"x\\" || last")\n}'
    with pytest.raises(SchemaError) as refused:
        describe_schema(text)
    assert (refused.value.facts["line"], refused.value.facts["column"]) == (2, text.splitlines()[1].index('\\"x') + 1)
    draft = describe_schema(text.replace('\\"', "'")).nodes[0].properties[0]
    assert draft.formula is not None and columns_of(draft.formula) == ("first", "last")
    assert draft.annotations == ()


@pytest.mark.parametrize(
    "said", ['@backfill(expr=first)', '@backfill(expr="")', '@backfill("x", expr="y")', '@backfill(exp="y")',
             '@backfill', '@backfill(expr="n") @backfill(expr="n")', f'@backfill(expr="{"n+" * 1000}n")']
)  # fmt: skip
def test_what_is_said_wrongly_is_refused(said: str) -> None:
    with pytest.raises(SchemaError):
        describe_schema(f"node A {{ n: I32 {said} }}")
