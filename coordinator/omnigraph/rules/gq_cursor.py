"""A place among the tokens of a mutation text: look ahead, take what must come, or say what was expected."""

from omnigraph.model.schema import NAME_CHARS_MAX, did_you_mean
from omnigraph.rules.gq_messages import RefusedError, Rule
from omnigraph.rules.gq_tokens import Kind, Token, Tokens, bad_token
from omnigraph.rules.schema_source import Mark, Source
from omnigraph.rules.schema_text import Word


class Cursor:
    """Reads tokens one after another."""

    def __init__(self, source: Source) -> None:
        self.tokens = Tokens(source)
        self._next = 0

    @property
    def source(self) -> Source:
        """The text that is read."""
        return self.tokens.source

    @property
    def at_end(self) -> bool:
        """Tell whether everything was read."""
        return self.peek().kind is Kind.END

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or a later one, without taking it."""
        return self.tokens[self._next + ahead]

    def is_sign(self, text: str, ahead: int = 0) -> bool:
        """Tell whether this sign comes next."""
        token = self.peek(ahead)
        return token.kind is Kind.SIGN and token.text == text

    def is_word(self, text: str, ahead: int = 0) -> bool:
        """Tell whether this word comes next."""
        token = self.peek(ahead)
        return token.kind is Kind.WORD and token.text == text

    def take(self) -> Token:
        """Take the next token, whatever it is."""
        token = self.peek()
        self._next += 1
        return token

    def take_sign(self, text: str) -> bool:
        """Take this sign if it comes next."""
        found = self.is_sign(text)
        self._next += found
        return found

    def take_word(self, text: str) -> bool:
        """Take this word if it comes next."""
        found = self.is_word(text)
        self._next += found
        return found

    def need_sign(self, text: str, hint: str | None = None) -> Token:
        """Take this sign, which must come next."""
        if not self.is_sign(text):
            raise self.unexpected(f"'{text}'", hint)
        return self.take()

    def need_word(self, text: str, hint: str | None = None) -> Token:
        """Take this word, which must come next."""
        if not self.is_word(text):
            found = self.peek()
            near = did_you_mean(found.text[:100], [text]) if found.kind is Kind.WORD else None
            raise self.unexpected(f"'{text}'", near or hint)
        return self.take()

    def need_name(self, what: str, hint: str | None = None) -> Word:
        """Take the name that must come next."""
        if self.peek().kind is not Kind.WORD:
            raise self.unexpected(what, hint)
        return self.take_name()

    def take_name(self) -> Word:
        """Take the name or parameter that comes next, without its ``$``, if it is not too long."""
        token = self.take()
        name = Word(text=token.text.removeprefix("$"), mark=self.mark(token))
        if len(name.text) > NAME_CHARS_MAX:
            problem = f"this name has {len(name.text):,} characters, and at most {NAME_CHARS_MAX} are allowed"
            raise RefusedError(name.mark, Rule.LIMIT, problem)
        return name

    def mark(self, token: Token | None = None) -> Mark:
        """Return the place of a token; without one, of the next."""
        return self.tokens.mark((token or self.peek()).offset)

    def unexpected(self, expected: str, hint: str | None = None) -> RefusedError:
        """Say that something else was expected than what comes next."""
        token = self.peek()
        if token.kind is Kind.BAD:
            return bad_token(self.tokens, token)
        text = token.text if len(token.text) <= 40 else token.text[:40] + "…"
        found = "the text ends" if token.kind is Kind.END else f"unexpected {text!r}"
        return RefusedError(self.mark(token), Rule.SYNTAX, f"{found} where {expected} was expected", hint)
