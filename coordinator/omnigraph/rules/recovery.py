"""What to do about a promise that was not forgotten: decided here, carried out elsewhere."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that a decision looks at, seen at one moment."""

    landed: bool
    abandoned: bool
    owner_alive: bool
    branch_there: bool
    schema_same: bool
    moved_strict: tuple[str, ...]
    missing_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The commit is visible: say so, and forget the promise."""


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """The owner seems to be at it: helping would be right, but rude."""


@dataclass(frozen=True, slots=True)
class Discard:
    """The branch is gone, and with it any chance of the commit."""


@dataclass(frozen=True, slots=True)
class RollForward:
    """Redo what is left, under the promised commit id."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """The commit can not be any more: give it up. There is nothing to undo."""

    reason: str


Decision: TypeAlias = Finished | LeaveAlone | Discard | RollForward | RollBack


def decide(seen: Observation) -> Decision:
    """Decide about one sidecar. Whether its owner lives only says when to help, never what is right."""
    if seen.landed and not seen.owner_alive:
        return Finished()
    if seen.owner_alive:
        return LeaveAlone()
    if seen.abandoned:
        return RollBack("it was given up before")
    if not seen.branch_there:
        return Discard()
    if not seen.schema_same:
        return RollBack("the schema of its branch has changed")
    if seen.moved_strict:
        return RollBack(f"moved meanwhile: {', '.join(seen.moved_strict)}")
    if seen.missing_files:
        return RollBack(f"{len(seen.missing_files)} of its files are missing")
    return RollForward()
