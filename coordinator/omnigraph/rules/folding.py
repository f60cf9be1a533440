"""When the newest commits leave the head file, and which older files they are joined with.

The head file is rewritten by every publish, so it must stay small. When its tail is full, the tail
becomes a file of its own; when `FAN` files of one size have come together, they become one of the
next size. So the number of files grows with the logarithm of the history, and a row is rewritten a
few times in its life, however long that is.
"""

from dataclasses import dataclass

from omnigraph.model.lineage import CommitRow
from omnigraph.model.manifest import Span

TAIL_ROWS_MAX = 16
TAIL_BYTES_MAX = 65_536
FAN = 8
FOLD_BYTES_MAX = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Move all of the tail but its newest commit into one new file of ``tier``, with the rows of ``absorbed``."""

    tier: int
    absorbed: tuple[Span, ...]


def plan_fold(tail: tuple[CommitRow, ...], spans: tuple[Span, ...]) -> Fold | None:
    """Decide whether a tail must leave the head file, and what it takes along.

    The newest commit stays: it is the head of a branch, and whoever opens the graph wants it next.
    """
    tail_bytes = sum(len(row.body.encode()) for row in tail)
    if len(tail) <= 1 or (len(tail) <= TAIL_ROWS_MAX and tail_bytes <= TAIL_BYTES_MAX):
        return None
    absorbed: tuple[Span, ...] = ()
    tier = 0
    total_bytes = tail_bytes
    while True:
        older = spans[: len(spans) - len(absorbed)]
        run = _last_run(older, tier)
        total_bytes += sum(span.bytes for span in run)
        if len(run) < FAN - 1 or total_bytes > FOLD_BYTES_MAX:
            return Fold(tier=tier, absorbed=absorbed)
        absorbed = run + absorbed
        tier += 1


def _last_run(spans: tuple[Span, ...], tier: int) -> tuple[Span, ...]:
    """Return the newest unbroken run of files of one tier."""
    start = len(spans)
    while start > 0 and spans[start - 1].tier == tier:
        start -= 1
    return spans[start:]
