"""Named places where a test may make a process fail, and nothing in production.

A place does something only if both `OMNIGRAPH_ENABLE_FAILPOINTS=1` and `OMNIGRAPH_FAILPOINTS` were in the
environment when the process started, so that a stray variable on a cluster is no kill switch::

    OMNIGRAPH_FAILPOINTS="commit.after_sidecar=kill;publish.after_swap=lost@1*1"

`name=action`, optionally `@skip` (let it pass so often first) and `*count` (act so often at most).
Actions: ``kill`` (SIGKILL to itself), ``raise`` (FailpointError), ``eio`` and ``enospc`` (OSError), ``delay:SECONDS``,
``park:FILE`` (write FILE.parked, wait until FILE exists), ``lost`` (what was done is done, and its answer is lost).
"""

import errno
import os
import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

ENABLE_VARIABLE = "OMNIGRAPH_ENABLE_FAILPOINTS"
POINTS_VARIABLE = "OMNIGRAPH_FAILPOINTS"
PARK_SECONDS_MAX = 120.0
PARK_POLL_SECONDS = 0.01


class Failpoint(StrEnum):
    """The window each one opens is between what is done before it and what is done after."""

    BEFORE_STAGE = "stage.before"
    """Nothing is written yet."""
    AFTER_STAGE = "stage.after"
    """Files are written that nothing refers to."""
    BEFORE_SIDECAR = "commit.before_sidecar"
    """All is staged and checked, nothing is promised."""
    AFTER_SIDECAR = "commit.after_sidecar"
    """The promise is durable, no table is sealed."""
    AFTER_FIRST_SEAL = "commit.after_first_seal"
    """One table is sealed, the others are not."""
    AFTER_SEALS = "commit.after_seals"
    """All tables are sealed, nothing is visible."""
    BEFORE_SWAP = "publish.before_swap"
    """The head file is written, the manifest is as it was."""
    AFTER_SWAP = "publish.after_swap"
    """The commit is visible, nobody was told."""
    BEFORE_FORGET = "commit.before_forget"
    """The commit is visible and known to be, the sidecar is there."""
    AFTER_FORGET = "commit.after_forget"
    """The sidecar is gone, the caller was not told."""
    RECOVERY_BEGUN = "recovery.begun"
    """A sidecar was read, nothing was decided."""
    RECOVERY_AFTER_PUBLISH = "recovery.after_publish"
    """Another's commit is visible or abandoned, no audit row says so."""
    RECOVERY_AFTER_AUDIT = "recovery.after_audit"
    """The audit row is there, and so is the sidecar."""


class MaintenancePoint(StrEnum):
    """The windows of upkeep, which promises nothing and is simply begun again."""

    ROLLUP_WRITTEN = "rollup.written"
    """Small fragments are written anew, nothing refers to the new one."""
    ROLLUP_SEALED = "rollup.sealed"
    """A version without them is sealed, what is to be sealed on it is not."""
    CLEANUP_EXPIRED = "cleanup.expired"
    """Commits have expired in the manifest, no file is gone."""
    CLEANUP_DELETED = "cleanup.deleted"
    """Some files are gone, others are not."""
    OPTIMIZE_REWRITTEN = "optimize.rewritten"
    """Files are written that nothing refers to."""
    OPTIMIZE_SEALED = "optimize.sealed"
    """Tables are sealed, nothing is visible."""
    OPTIMIZE_PUBLISHED = "optimize.published"
    """The commit is visible, plain readers see what they saw."""


class FailpointError(BaseException):
    """Raised by a failpoint, and by nothing else; no Exception, so that the protocol stops where it stands."""


class LostAnswerError(BaseException):
    """Raised by a failpoint where an answer is to be lost; no Exception, for the same reason."""


@dataclass(slots=True)
class _Plan:
    action: str
    skip: int
    count: int


def reach(point: Failpoint | MaintenancePoint) -> None:
    """Do what the environment says for this place: as a rule, nothing."""
    if not _PLANS:
        return
    plan = _PLANS.get(point)
    if plan is None:
        return
    if plan.skip > 0:
        plan.skip -= 1
        return
    if plan.count <= 0:
        return
    plan.count -= 1
    _act(plan.action, point)


def _act(action: str, point: Failpoint | MaintenancePoint) -> None:
    name, _, argument = action.partition(":")
    match name:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise FailpointError(f"failpoint {point}")
        case "eio":
            raise OSError(errno.EIO, f"failpoint {point}")
        case "enospc":
            raise OSError(errno.ENOSPC, f"failpoint {point}")
        case "lost":
            raise LostAnswerError(f"failpoint {point}: the answer was lost")
        case "delay":
            time.sleep(float(argument))
        case "park":
            _park(Path(argument))
        case _:
            raise ValueError(f"{action!r} is no action of a failpoint")


def _park(file: Path) -> None:
    file.with_name(file.name + ".parked").touch()
    given_up_at = time.monotonic() + PARK_SECONDS_MAX
    while not file.exists():
        if time.monotonic() > given_up_at:
            raise FailpointError(f"nobody came to {file}")
        time.sleep(PARK_POLL_SECONDS)


def parse(text: str) -> dict[Any, _Plan]:
    """Read the variable; a name that is not in the catalogue is an error, so a typo can not pass for a test."""
    plans: dict[Any, _Plan] = {}
    for entry in filter(None, text.split(";")):
        name, _, action = entry.partition("=")
        action, star, count = action.partition("*")
        action, _, skip = action.partition("@")
        point = MaintenancePoint if name.strip() in tuple(MaintenancePoint) else Failpoint
        plans[point(name.strip())] = _Plan(action.strip(), int(skip or 0), int(count) if star else 1_000_000_000)
    return plans


_PLANS: dict[Any, _Plan] = parse(os.environ.get(POINTS_VARIABLE, "")) if os.environ.get(ENABLE_VARIABLE) == "1" else {}
