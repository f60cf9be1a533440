"""The truth table of merges, run in this process: by its engine, and by what machines elsewhere are given.

`truth_kit.py` has the table.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.merge_kit import merged, person
from tests.engine.near_kit import Near
from tests.engine.truth_kit import (
    EACH_END,
    OPERATIONS,
    PAIRS,
    SETTLED,
    branch_of,
    check_pair,
    check_policy,
    parsed,
    truth_graph,
)

import omnigraph as og
from omnigraph.testing.places import place


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return truth_graph(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with Near() as engine:
        yield truth_graph(tmp_path_factory.mktemp("spread")).with_engine(engine)


def test_the_table_names_every_operation_on_both_sides() -> None:
    assert set(parsed()) == {(source, target) for source in OPERATIONS for target in OPERATIONS}
    assert len(OPERATIONS) >= 10


@pytest.mark.parametrize("target", OPERATIONS)
@pytest.mark.parametrize("source", OPERATIONS)
def test_every_pair_of_operations_ends_as_the_table_and_a_naive_merge_say(
    graph: og.Graph, source: str, target: str
) -> None:
    check_pair(graph, source, target)


def test_there_is_a_pair_for_every_way_a_merge_can_end() -> None:
    assert {parsed()[pair] for pair in EACH_END} == set(parsed().values())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_table_holds_for_what_machines_elsewhere_are_given(spread: og.Graph, source: str, target: str) -> None:
    check_pair(spread, source, target)


@pytest.mark.parametrize(("source", "target", "policy"), SETTLED)
def test_policies_hold_for_what_machines_elsewhere_are_given(
    spread: og.Graph, source: str, target: str, policy: str
) -> None:
    check_policy(spread, source, target, policy)


@pytest.mark.parametrize("policy", ["ours", "theirs", "cell"])
@pytest.mark.parametrize("source", ["add", "remove", "update", "update same", "update other", "move edge", "re-add"])
def test_policies_settle_what_a_naive_merge_settles_with_them(graph: og.Graph, source: str, policy: str) -> None:
    for target in ("add", "remove", "update", "update same", "update other", "remove edge", "re-add"):
        check_policy(graph, source, target, policy)


def test_what_a_cell_policy_merges_has_the_change_of_both_sides(graph: og.Graph) -> None:
    graph.branches.create("cells", from_=branch_of("update other", 1))
    assert merged(graph, branch_of("update", 0), "cells", "cell") == ("Merged", set())
    assert graph.snapshot("cells").entity("Person", "Alice") == person("Alice", age=31, city="Bonn1")


def test_the_folder_of_a_truth_table_is_not_written_to_by_a_refused_merge(graph: og.Graph, tmp_path: Path) -> None:
    graph.branches.create("refused", from_=branch_of("update", 1))
    files = sorted(str(path) for path in place(graph.root).rglob("*") if path.is_file())
    assert merged(graph, branch_of("update", 0), "refused")[0] == "Conflicts"
    assert sorted(str(path) for path in place(graph.root).rglob("*") if path.is_file()) == files
