"""Bring an older graph up to the format this omnigraph writes: work first, stamp last.

Every step must be safe to repeat, because whoever does it may die before the stamp is written, and
because two processes may do it at once.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from omnigraph.errors import ContentionError, UnsupportedFormatError
from omnigraph.model.manifest import FORMAT_VERSION
from omnigraph.observing import logger
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.manifest_format import refuse_newer

ATTEMPTS_MAX = 100

Step = Callable[[Manifest], None]

STEPS: Mapping[int, Step] = MappingProxyType({})
"""From a format to the one after it; format 1 is the first, so there is none yet."""

log = logger(__name__)


def migrate(manifest: Manifest, steps: Mapping[int, Step] = STEPS, target: int = FORMAT_VERSION) -> list[int]:
    """Step the graph forward to ``target``; return the formats it was stepped from."""
    taken: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        stamp = manifest.stamp()
        if stamp == target:
            return taken
        refuse_newer(stamp, target)
        if stamp not in steps:
            raise UnsupportedFormatError(
                f"this graph has format {stamp}, which this omnigraph can not bring up to {target}; "
                "open it once with an older omnigraph",
                found=stamp,
                supported=target,
            )
        log.info("migrating", extra={"from_format": stamp, "to_format": stamp + 1})
        steps[stamp](manifest)
        manifest.restamp(stamp, stamp + 1)
        taken.append(stamp)
    raise ContentionError(f"the graph could not be brought to format {target}: others kept changing it; try again")
