"""A graph's history as plain dictionaries: what the manifest must agree with after every step."""

from dataclasses import dataclass, field
from datetime import datetime

from omnigraph.errors import OmnigraphError
from omnigraph.rules.names import check_ref_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCommit:
    """A commit, as the model remembers it."""

    id: str
    version: int
    content: str
    created_at: datetime
    parents: tuple[str, ...]


@dataclass(slots=True)
class ModelBranch:
    """A branch is the list of its commits, oldest first."""

    incarnation: str
    chain: list[ModelCommit]

    @property
    def head(self) -> ModelCommit:
        """The newest commit."""
        return self.chain[-1]


@dataclass(slots=True)
class GraphModel:
    """Branches are lists, tags are names: nothing is clever here."""

    branches: dict[str, ModelBranch] = field(default_factory=dict)
    tags: dict[str, ModelCommit] = field(default_factory=dict)
    commits: dict[str, ModelCommit] = field(default_factory=dict)
    chains: dict[str, list[ModelCommit]] = field(default_factory=dict)

    def begin(self, commit: ModelCommit, incarnation: str) -> None:
        """Start with one commit on main."""
        self.branches["main"] = ModelBranch(incarnation, [])
        self.add("main", commit)

    def add(self, branch: str, commit: ModelCommit) -> None:
        """Append a commit to a branch."""
        self.branches[branch].chain.append(commit)
        self.commits[commit.id] = commit
        self.chains[commit.id] = list(self.branches[branch].chain)

    def find(self, name: str) -> list[ModelCommit] | None:
        """Return the history behind a branch, tag or commit id."""
        if name in self.branches:
            return list(self.branches[name].chain)
        commit = self.tags.get(name) or self.commits.get(name)
        return None if commit is None else list(self.chains[commit.id])

    def may_create(self, name: str) -> bool:
        """Tell whether a name follows the rule and is free, whatever its case."""
        try:
            check_ref_name(name)
        except OmnigraphError:
            return False
        taken = {known.casefold() for known in (*self.branches, *self.tags)}
        return name.casefold() not in taken

    def as_of(self, branch: str, moment: datetime) -> ModelCommit | None:
        """Return the newest commit at a moment."""
        before = [commit for commit in self.branches[branch].chain if commit.created_at <= moment]
        return before[-1] if before else None
