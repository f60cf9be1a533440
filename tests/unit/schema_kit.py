"""Schema text that must be refused at an exact place."""

import pytest

from omnigraph.errors import SchemaError
from omnigraph.rules.schema_compile import describe_schema

MARK = "«"


def refused(marked: str) -> SchemaError:
    """Compile a text that must be refused where the mark stands."""
    before, mark, after = marked.partition(MARK)
    assert mark, "the text has no mark"
    with pytest.raises(SchemaError) as caught:
        describe_schema(before + after)
    error = caught.value
    line = before.count("\n") + 1
    assert (error.line, error.column) == (line, len(before) - (before.rfind("\n") + 1) + 1), str(error)
    assert error.source_line == (before + after).split("\n")[line - 1]
    return error


def in_node(body: str) -> str:
    return f"node Thing {{\n{body}\n}}"


def in_edge(body: str) -> str:
    return f"node Thing {{}}\nedge Link: Thing -> Thing {{\n{body}\n}}"
