"""Changes of a schema over an empty table, rows that fit and rows that do not: each cell of the page is run."""

from pathlib import Path

import pytest
from tests.engine.near_kit import Near
from tests.engine.schema_cases import CASES, Case
from tests.engine.schema_outcomes import PAGE, outcomes, page_row

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_a_change_does_to_rows_what_the_page_says(case: Case, tmp_path: Path) -> None:
    told = outcomes(tmp_path, case)
    assert len(told) >= 2
    assert page_row(case, told) in (ROOT / PAGE).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_a_change_does_the_same_where_an_engine_with_machines_writes_and_checks(case: Case, tmp_path: Path) -> None:
    with Near() as engine:
        assert (
            page_row(case, outcomes(tmp_path, case, engine)) in (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
        )


def test_the_page_has_every_change_and_no_other() -> None:
    rows = [line for line in (ROOT / PAGE).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]] == [case.name for case in CASES]
