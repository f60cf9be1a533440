"""Sets of numbers in the portable form of Roaring bitmaps, without runs: how Lance writes down many deleted rows."""

from typing import Final

import numpy as np
import numpy.typing as npt

COOKIE: Final = 12_346
HEAD_BYTES: Final = 8
SPARSE_MAX: Final = 4_096
DENSE_BYTES: Final = 8_192
HIGH_BITS: Final = np.uint64(16)


def numbers_of(data: bytes) -> npt.NDArray[np.uint64] | None:
    """Return the numbers of a bitmap, ascending; None if it has another form than the one that is known here."""
    if len(data) < HEAD_BYTES or int.from_bytes(data[:4], "little") != COOKIE:
        return None
    count = int.from_bytes(data[4:HEAD_BYTES], "little")
    if len(data) < HEAD_BYTES + 8 * count:
        return None
    heads = np.frombuffer(data, "<u2", 2 * count, HEAD_BYTES).astype(np.int64).reshape(-1, 2)
    places = np.frombuffer(data, "<u4", count, HEAD_BYTES + 4 * count).astype(np.int64)
    parts = [np.empty(0, np.uint64)]
    for (key, size_less_one), place in zip(heads.tolist(), places.tolist(), strict=True):
        low = _container(data, place, size_less_one + 1)
        if low is None:
            return None
        parts.append((np.uint64(key) << HIGH_BITS) | low)
    return np.concatenate(parts)


def _container(data: bytes, place: int, size: int) -> npt.NDArray[np.uint64] | None:
    """Return the low bits of the numbers that share their high ones: a list if they are few, else a bit for each."""
    is_sparse = size <= SPARSE_MAX
    if len(data) < place + (2 * size if is_sparse else DENSE_BYTES):
        return None
    if is_sparse:
        return np.frombuffer(data, "<u2", size, place).astype(np.uint64)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, DENSE_BYTES, place), bitorder="little")
    found = np.flatnonzero(bits).astype(np.uint64)
    return found if len(found) == size else None
