"""What an actor or a message may be: a claim people will read in a log, bounded and printable."""

from omnigraph.errors import InvalidOptionError

ACTOR_CHARACTERS_MAX = 200
MESSAGE_CHARACTERS_MAX = 16_384
RESERVED_ACTOR_PREFIX = "omnigraph:"


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
