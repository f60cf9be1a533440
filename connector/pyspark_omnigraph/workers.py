"""Making Spark's Python workers quick for one task after the other."""

import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOADS_MAX: Final = 4
"""After so many uses a worker has loaded all it needs."""

_uses = 0


def settle() -> None:
    """Let the garbage collector forget what a worker has loaded, which stays as long as the worker lives.

    After every task a worker of Spark's looks for garbage among all objects it has. Most of them belong to modules:
    to walk over them takes a tenth of a second of a core, more than a small read, and finds nothing.
    """
    global _uses
    if _uses < LOADS_MAX and _is_worker():
        _uses += 1
        gc.freeze()


def settling(method: Callable[P, T]) -> Callable[P, T]:
    """Settle after a method, which may have loaded something."""

    @wraps(method)
    def settled(*given: P.args, **named: P.kwargs) -> T:
        try:
            return method(*given, **named)
        finally:
            settle()

    return settled


def _is_worker() -> bool:
    """Tell whether this process is Spark's own: in a driver, the collector is its owner's business."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
