"""What to read: a branch, a tag, a commit, a version or a moment."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from omnigraph.ids import CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class AtBranch:
    """The newest commit of a branch."""

    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTag:
    """The commit a tag names."""

    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtCommit:
    """One commit."""

    commit: CommitId


@dataclass(frozen=True, slots=True, kw_only=True)
class AtVersion:
    """The commit with this number along a branch."""

    branch: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """The newest commit of a branch at a moment."""

    branch: str
    moment: datetime


ReadTarget: TypeAlias = AtBranch | AtTag | AtCommit | AtVersion | AsOf
