"""The suites run on S3 too: what is left out there is a list that says the truth."""

import ast
from pathlib import Path

HERE = Path(__file__).parents[2]
LOCAL = HERE / "tests" / "on_s3" / "local.txt"


def names_in(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_that_is_left_out_on_s3_is_there_and_is_listed_once() -> None:
    listed = LOCAL.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed))
    gone = [each for each in listed if each.partition("::")[2] not in names_in(each.partition("::")[0])]
    assert gone == []
