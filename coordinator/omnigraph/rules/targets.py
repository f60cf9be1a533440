"""Turn what a caller typed into a read target, or say what is wrong with it."""

from datetime import UTC, datetime

from omnigraph.errors import InvalidOptionError
from omnigraph.ids import CommitId, is_ulid
from omnigraph.model.targets import AsOf, AtBranch, AtCommit, AtTag, AtVersion, ReadTarget

VERSION_MAX = 2**63 - 1


def read_target(
    default_branch: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    commit: str | None = None,
    version: int | None = None,
    timestamp: datetime | str | None = None,
) -> ReadTarget:
    """Return the one thing the arguments name; contradictions are refused."""
    given = {"branch": branch, "tag": tag, "commit": commit, "version": version, "timestamp": timestamp}
    named = [name for name, value in given.items() if value is not None]
    if len([name for name in named if name != "branch"]) > 1:
        raise InvalidOptionError(f"choose one of {' and '.join(named)}: together they contradict each other")
    if branch is not None and (tag is not None or commit is not None):
        other = "tag" if tag is not None else "commit"
        raise InvalidOptionError(f"'{other}' names a snapshot by itself; leave 'branch' away")
    bound = default_branch if branch is None else branch
    if tag is not None:
        return AtTag(tag=tag)
    if commit is not None:
        return AtCommit(commit=commit_id(commit))
    if version is not None:
        return AtVersion(branch=bound, version=_version(version))
    if timestamp is not None:
        return AsOf(branch=bound, moment=_moment(timestamp))
    return AtBranch(branch=bound)


def commit_id(text: str) -> CommitId:
    """Return a commit id, or say what one looks like."""
    if not is_ulid(text.upper()):
        raise InvalidOptionError(f"{text[:60]!r} is not a commit id (26 letters and digits, like 01JD…)")
    return CommitId(text.upper())


def _version(version: int) -> int:
    if type(version) is not int or not 1 <= version <= VERSION_MAX:
        raise InvalidOptionError(f"{version!r} is not a version: versions are whole numbers from 1")
    return version


def _moment(timestamp: datetime | str) -> datetime:
    if isinstance(timestamp, str):
        try:
            moment = datetime.fromisoformat(timestamp.strip())
        except ValueError:
            raise InvalidOptionError(
                f"{timestamp[:60]!r} is not a time; write 2026-11-01 or 2026-11-01T12:30:00+01:00"
            ) from None
        # Text without a zone is UTC: it is the same on every machine that runs the job.
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if timestamp.tzinfo is None:
        raise InvalidOptionError("this timestamp has no time zone; give it one, e.g. datetime.now(timezone.utc)")
    return timestamp
