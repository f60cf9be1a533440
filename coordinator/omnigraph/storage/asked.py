"""What is asked about again and again, so that it is worth keeping an answer."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

THINGS_COUNTED_MAX: Final = 4_096
BEFORE_KEEPING: Final = 2
"""To read a file and keep what is in it takes about as long as to search it so often."""
FEW_AT_ONCE_MAX: Final = 4_096
"""Who looks for more than these at once does not come again as often."""


class Asked:
    """How often things were asked about, of those that were asked about last."""

    def __init__(self, most: int = THINGS_COUNTED_MAX) -> None:
        self._most = most
        self._counts: OrderedDict[Hashable, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def before(self, thing: Hashable, times: int) -> bool:
        """Note one more question about a thing; tell whether there were so many before. Then they begin anew."""
        with self._lock:
            count = self._counts.pop(thing, 0)
            if count >= times:
                return True
            self._counts[thing] = count + 1
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)
        return False
