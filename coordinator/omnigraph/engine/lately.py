"""Which ids came lately: writers of one table on one machine tell each other, so that none reads the others' files.

Whoever seals rows has to know which ids the table holds. Small files that others wrote since it looked last hold a row
or two each, and each of them would be read by every writer. So who publishes puts down what the promises it kept said
of their ids, beside the turn. Data files never change and their names are random, so what is said of one stays true.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from omnigraph.engine.session import Session

LATELY: Final = "ids"
FILES_MAX: Final = 128


def learn_ids(session: Session) -> None:
    """Take the others' word for which ids the files hold that they wrote lately."""
    found = session.shelf.get(LATELY)
    if found is not None:
        session.staging.told(_files_in(found))


def tell_ids(session: Session, ids: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Put down which ids came, after those that were put down before."""
    before = session.shelf.get(LATELY)
    known = {**({} if before is None else _files_in(before)), **dict(ids)}
    kept = dict(list(known.items())[-FILES_MAX:])
    session.shelf.put(LATELY, "", json.dumps(kept).encode())


def _files_in(text: bytes) -> Mapping[str, Sequence[str]]:
    """Read what was put down: nothing if it is not what it should be."""
    try:
        return {str(file): tuple(map(str, ids)) for file, ids in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
