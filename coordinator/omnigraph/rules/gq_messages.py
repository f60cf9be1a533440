"""The rules a mutation can break, and the error that names the rule and the place."""

from enum import StrEnum
from typing import Any

from omnigraph.errors import MutationError
from omnigraph.rules.schema_source import Mark, Source

SHOWN_CHARACTERS_MAX = 60


class Rule(StrEnum):
    """The stable code of a rule; it is the error's ``rule``."""

    SYNTAX = "S1"
    READING = "S2"
    LIMIT = "S3"
    WHICH_QUERY = "Q1"
    UNKNOWN_QUERY = "Q2"
    REPEATED_QUERY = "Q3"
    DECLARATION = "P1"
    MISSING_PARAMETER = "P2"
    UNKNOWN_PARAMETER = "P3"
    PARAMETER_VALUE = "P4"
    LITERAL = "T3"
    PARAMETER = "T7"
    UNKNOWN_TYPE = "T10"
    UNKNOWN_PROPERTY = "T11"
    REQUIRED = "T12"
    REPEATED = "T13"
    UNDECLARED = "T14"
    IDENTITY = "T16"


class RefusedError(Exception):
    """A broken rule at a place, on its way to the text that shows it."""

    def __init__(self, mark: Mark, rule: Rule, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.mark = mark
        self.rule = rule
        self.problem = problem
        self.hint = hint

    def shown_in(self, source: Source) -> MutationError:
        """Build the error that shows the line and points at the place."""
        return MutationError.at(
            self.problem,
            rule=str(self.rule),
            line=self.mark.line,
            column=self.mark.column,
            source_line=source.lines[self.mark.line - 1],
            hint=self.hint,
        )


def shown(value: Any) -> str:
    """Return a value as text that is short, printable, and never fails to be made."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, str | bytes | bytearray):
        value = value[: SHOWN_CHARACTERS_MAX + 1]
    elif isinstance(value, list | tuple | dict | set):
        return f"a {type(value).__name__} of {len(value):,}"
    try:
        text = ascii(value)
    except (ValueError, RecursionError, OverflowError):
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."
