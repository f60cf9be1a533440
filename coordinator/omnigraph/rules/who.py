"""What an actor or a message may be: a claim people will read in a log, bounded and printable."""

from typing import Any

from omnigraph.errors import InvalidOptionError

ACTOR_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 16_384
RESERVED_ACTOR_PREFIX = "omnigraph:"
CONSTRAINT_MODES = ("fail", "quarantine", "off")


def check_actor(actor: str | None) -> str | None:
    """Return who asks, or say why this can not be written into a commit."""
    if actor is None:
        return None
    if not actor or len(actor) > ACTOR_CHARACTERS_MAX or not actor.isprintable():
        raise InvalidOptionError(f"an actor has 1 to {ACTOR_CHARACTERS_MAX} printable characters")
    if actor.startswith(RESERVED_ACTOR_PREFIX):
        raise InvalidOptionError(f"actors that begin with {RESERVED_ACTOR_PREFIX!r} are omnigraph's own")
    return actor


def check_message(message: str | None, what: str = "message") -> str | None:
    """Return a commit's free text, if it is not too long to keep for ever."""
    if message is not None and len(message) > MESSAGE_CHARACTERS_MAX:
        raise InvalidOptionError(f"the {what} has {len(message)} characters; at most {MESSAGE_CHARACTERS_MAX} are kept")
    return message


def check_txn(txn: tuple[str, int] | None) -> tuple[str, int] | None:
    """Return an application's name and version, or say what they must look like."""
    if txn is None:
        return None
    pair: Any = txn
    if not isinstance(pair, tuple | list) or len(pair) != 2 or type(pair[0]) is not str:
        raise InvalidOptionError("txn is a pair: the application's name and a version, like ('nightly', 7)")
    app, version = txn
    if not app or len(app) > ACTOR_CHARACTERS_MAX or not app.isprintable():
        raise InvalidOptionError(f"the application of a txn has 1 to {ACTOR_CHARACTERS_MAX} printable characters")
    if type(version) is not int or not 0 <= version < 2**63:
        raise InvalidOptionError(f"the version of a txn is a whole number from 0, not {version!r}")
    return app, version


def check_constraints(mode: str) -> str:
    """Return how constraints are treated, if that is a way we know."""
    if mode not in CONSTRAINT_MODES:
        raise InvalidOptionError(f"constraints is {mode!r}; choose one of {', '.join(CONSTRAINT_MODES)}")
    return mode
