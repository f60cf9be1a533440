"""Every error omnigraph raises, grouped by what the caller should do about it.

::

    OmnigraphError                 OMNIGRAPH
    ├── InvalidInputError          change what you passed
    │   ├── InvalidNameError         INVALID_NAME
    │   ├── InvalidOptionError       INVALID_OPTION
    │   ├── InvalidDataError         INVALID_DATA
    │   ├── ConstraintError          CONSTRAINT_VIOLATED  (counts and samples by constraint)
    │   ├── MixedMutationError       MIXED_MUTATION
    │   ├── MutationError            MUTATION_INVALID  (carries the rule, line, column, the line itself, a hint)
    │   ├── SchemaError              SCHEMA_*  (carries line, column, the line itself, a hint)
    │   └── SchemaChangeError        SCHEMA_CHANGE_REFUSED  (carries the plan)
    ├── NotFoundError              name something that exists
    │   ├── GraphNotFoundError       GRAPH_NOT_FOUND
    │   ├── BranchNotFoundError      BRANCH_NOT_FOUND
    │   ├── TagNotFoundError         TAG_NOT_FOUND
    │   ├── CommitNotFoundError      COMMIT_NOT_FOUND
    │   ├── CommitExpiredError       COMMIT_EXPIRED    (it was; cleanup has removed what it held)
    │   ├── RefNotFoundError         REF_NOT_FOUND
    │   ├── TypeNotFoundError        TYPE_NOT_FOUND
    │   ├── TransactionNotFoundError TRANSACTION_NOT_FOUND
    │   └── ObjectNotFoundError      OBJECT_NOT_FOUND
    ├── AlreadyExistsError         pick another name, or use what is there
    │   ├── GraphExistsError         GRAPH_EXISTS
    │   ├── BranchExistsError        BRANCH_EXISTS
    │   ├── TagExistsError           TAG_EXISTS
    │   ├── AlreadyAppliedError      ALREADY_APPLIED
    │   └── ObjectExistsError        OBJECT_EXISTS
    ├── ConflictError              refresh and retry
    │   ├── VersionConflictError     VERSION_CONFLICT  (table_key, expected, actual)
    │   ├── BranchConflictError      BRANCH_CONFLICT
    │   ├── AbandonedError           ABANDONED
    │   ├── ContentionError          CONTENTION
    │   └── MergeConflictsError      MERGE_CONFLICTS   (counts, and conflicts by row; not retryable)
    ├── NotPermittedError          this handle or this name does not allow it
    │   ├── ReadOnlyError            READ_ONLY
    │   ├── ProtectedBranchError     PROTECTED_BRANCH
    │   └── TransactionStateError    TRANSACTION_STATE
    └── StorageError               STORAGE                (look at the storage)
        ├── CorruptGraphError        CORRUPT_GRAPH
        ├── UnsupportedFormatError   UNSUPPORTED_FORMAT   (upgrade omnigraph)
        ├── OutdatedFormatError      OUTDATED_FORMAT      (open it read-write once)
        ├── UnsafeStoreError         UNSAFE_STORE
        ├── RecoveryRefusedError     RECOVERY_REFUSED     (names the file and the remedy)
        └── CommitOutcomeUnknownError OUTCOME_UNKNOWN     (names the commit to look for)

``str(error)`` begins with the stable code in brackets, because Spark keeps nothing of a Python
exception but its text. The facts are attributes; ``to_dict()`` is what the command line prints
with ``--json``. All of them survive pickling.
"""

from typing import Any, ClassVar


class OmnigraphError(Exception):
    """Root of the tree; ``code`` is stable, ``facts`` are the values the message was made from."""

    code: ClassVar[str] = "OMNIGRAPH"
    category: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.facts)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain values: ``error``, ``code``, ``kind`` and the facts."""
        body: dict[str, Any] = {
            "error": str(self),
            "code": self.category,
            "kind": self.code,
            "retryable": self.retryable,
        }
        return body | {k: v for k, v in self.facts.items() if v is not None}


def _rebuild(kind: type[OmnigraphError], message: str, facts: dict[str, Any]) -> OmnigraphError:
    return kind(message, **facts)


def error_of(code: str, message: str, **facts: Any) -> OmnigraphError:
    """Return the error of a code again, where only its text has come through; an unknown code is the root's."""
    kinds: list[type[OmnigraphError]] = [OmnigraphError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next((kind for kind in kinds if kind.code == code), OmnigraphError)(message, **facts)


class InvalidInputError(OmnigraphError, ValueError):
    """What was passed in can not be used; nothing was done."""

    category = "bad_request"


class InvalidNameError(InvalidInputError):
    """A branch, tag, type or property name breaks the naming rule."""

    code = "INVALID_NAME"


class InvalidOptionError(InvalidInputError):
    """An option is unknown, malformed or contradicts another one."""

    code = "INVALID_OPTION"


class InvalidDataError(InvalidInputError):
    """Rows do not fit the type they were given for."""

    code = "INVALID_DATA"


class ConstraintError(InvalidInputError):
    """Rows break constraints of the schema; ``violations`` counts them by constraint and shows some."""

    code = "CONSTRAINT_VIOLATED"


class MixedMutationError(InvalidInputError):
    """A transaction adds or changes rows, or it deletes some: never both."""

    code = "MIXED_MUTATION"


class MutationError(InvalidInputError):
    """Mutation text or its parameters break a ``rule`` at a place: ``line``, ``column``, ``source_line``, ``hint``."""

    code = "MUTATION_INVALID"

    @classmethod
    def at(
        cls, problem: str, *, rule: str, line: int, column: int, source_line: str, hint: str | None = None
    ) -> "MutationError":
        """Build the error with the rule, the offending line and a caret under the place."""
        text = _shown_at(f"{rule}: {problem}", line, column, source_line, hint)
        return cls(text, problem=problem, rule=rule, line=line, column=column, source_line=source_line, hint=hint)


class SchemaError(InvalidInputError):
    """Schema text is wrong at a place: ``line``, ``column`` (1-based), ``source_line`` and ``hint``."""

    code = "SCHEMA_INVALID"

    @classmethod
    def at(cls, problem: str, *, line: int, column: int, source_line: str, hint: str | None = None) -> "SchemaError":
        """Build the error with the offending line and a caret under the place."""
        text = _shown_at(problem, line, column, source_line, hint)
        return cls(text, problem=problem, line=line, column=column, source_line=source_line, hint=hint)


def _shown_at(problem: str, line: int, column: int, source_line: str, hint: str | None) -> str:
    """Return the text of an error at a place: the problem, the line, a caret under it, the hint."""
    shown, caret = _window(source_line, column)
    text = f"line {line}, column {column}: {problem}\n    {shown}\n    {caret}"
    return f"{text}\n  hint: {hint}" if hint else text


def _window(source_line: str, column: int, width: int = 100) -> tuple[str, str]:
    """Return the part of a line around ``column`` and a caret line under it."""
    printable = "".join(c if c.isprintable() or c == " " else " " for c in source_line)
    start = max(0, column - 1 - width // 2)
    shown = printable[start : start + width]
    return shown, " " * (column - 1 - start) + "^"


class SchemaChangeError(InvalidInputError):
    """A schema can not become another as it is asked for; ``plan`` says what stands in the way."""

    code = "SCHEMA_CHANGE_REFUSED"


class NotFoundError(OmnigraphError, LookupError):
    """Something named does not exist."""

    category = "not_found"


class GraphNotFoundError(NotFoundError):
    """There is no graph at this root."""

    code = "GRAPH_NOT_FOUND"


class BranchNotFoundError(NotFoundError):
    """There is no branch of this name."""

    code = "BRANCH_NOT_FOUND"


class TagNotFoundError(NotFoundError):
    """There is no tag of this name."""

    code = "TAG_NOT_FOUND"


class CommitNotFoundError(NotFoundError):
    """No commit answers to this id, version or time."""

    code = "COMMIT_NOT_FOUND"


class CommitExpiredError(NotFoundError):
    """The commit is in the log, but a cleanup has removed what it held."""

    code = "COMMIT_EXPIRED"


class RefNotFoundError(NotFoundError):
    """No branch, tag or commit answers to this name."""

    code = "REF_NOT_FOUND"


class TypeNotFoundError(NotFoundError):
    """The schema of this snapshot has no such type."""

    code = "TYPE_NOT_FOUND"


class TransactionNotFoundError(NotFoundError):
    """No transaction that rows could be staged for has this ``ticket``, or it has expired."""

    code = "TRANSACTION_NOT_FOUND"


class ObjectNotFoundError(NotFoundError):
    """The object store holds nothing under this key."""

    code = "OBJECT_NOT_FOUND"


class AlreadyExistsError(OmnigraphError):
    """The name is taken."""

    category = "conflict"


class GraphExistsError(AlreadyExistsError):
    """The root holds a graph already."""

    code = "GRAPH_EXISTS"


class BranchExistsError(AlreadyExistsError):
    """A branch or tag of this name exists already."""

    code = "BRANCH_EXISTS"


class TagExistsError(AlreadyExistsError):
    """A tag or branch of this name exists already."""

    code = "TAG_EXISTS"


class AlreadyAppliedError(AlreadyExistsError):
    """This ``txnVersion`` of this application has landed before: ``commit`` is what it made."""

    code = "ALREADY_APPLIED"


class ObjectExistsError(AlreadyExistsError):
    """The object store holds something under this key already."""

    code = "OBJECT_EXISTS"


class ConflictError(OmnigraphError):
    """Someone else was faster: refresh and retry. Nothing of this operation is visible."""

    category = "conflict"
    retryable = True


class VersionConflictError(ConflictError):
    """A table is not where the operation was planned: ``table_key``, ``expected``, ``actual``."""

    code = "VERSION_CONFLICT"

    def to_dict(self) -> dict[str, Any]:
        """Return the error with the lost race under ``manifest_conflict``."""
        body = super().to_dict()
        race = {key: body.pop(key, None) for key in ("table_key", "expected", "actual")}
        return body | {"manifest_conflict": race}


class BranchConflictError(ConflictError):
    """The branch was deleted, recreated, moved or its schema changed while we worked."""

    code = "BRANCH_CONFLICT"


class AbandonedError(ConflictError):
    """Someone decided that this commit will never be, because its writer seemed dead or gave up."""

    code = "ABANDONED"


class ContentionError(ConflictError):
    """Too many writers at once: the publish was tried as often as allowed and never won."""

    code = "CONTENTION"


class MergeConflictsError(ConflictError):
    """Two branches do not go together: ``conflict_counts`` counts why, ``conflicts`` are some of them."""

    code = "MERGE_CONFLICTS"
    retryable = False

    def to_dict(self) -> dict[str, Any]:
        """Return the error with the conflicts as plain values under ``merge_conflicts``."""
        body = super().to_dict()
        conflicts = body.pop("conflicts", ())
        return body | {"merge_conflicts": [conflict.to_dict() for conflict in conflicts]}


class NotPermittedError(OmnigraphError):
    """The handle or the name does not allow this operation."""

    category = "not_permitted"


class ReadOnlyError(NotPermittedError):
    """The graph was opened read-only."""

    code = "READ_ONLY"


class ProtectedBranchError(NotPermittedError):
    """``main`` can be neither created, deleted nor renamed."""

    code = "PROTECTED_BRANCH"


class TransactionStateError(NotPermittedError):
    """The transaction has not begun, has ended, or has failed; begin another one."""

    code = "TRANSACTION_STATE"


class StorageError(OmnigraphError):
    """Storage failed or holds something we must not touch."""

    code = "STORAGE"
    category = "internal"


class CorruptGraphError(StorageError):
    """What is stored contradicts itself; nothing was changed."""

    code = "CORRUPT_GRAPH"


class UnsupportedFormatError(StorageError):
    """The graph was written by a newer omnigraph."""

    code = "UNSUPPORTED_FORMAT"


class OutdatedFormatError(StorageError):
    """The graph was written by an older omnigraph and has not been brought up to date."""

    code = "OUTDATED_FORMAT"


class UnsafeStoreError(StorageError):
    """The object store does not honour conditional puts, so concurrent writers would lose data."""

    code = "UNSAFE_STORE"


class RecoveryRefusedError(StorageError):
    """A sidecar can not be understood, so no writer may go on; it was kept."""

    code = "RECOVERY_REFUSED"


class CommitOutcomeUnknownError(StorageError):
    """The commit may or may not be visible: look for ``commit``."""

    code = "OUTCOME_UNKNOWN"
