"""The lexer of the text form, which divides a text into tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from interposer.core.errors import ParseError

__all__ = ["Lexer", "Token"]

_STRING: Final = r'"(?:[^"\\\n]++|\\.)*+"'
_TOKEN: Final = re.compile(
    rf"""(?P<name>%(?:{_STRING}|[A-Za-z0-9_.$/-]+)(?::\d+)?)
    | (?P<string>{_STRING})
    | (?P<opaque><opaque>)
    | (?P<elided>\.\.\.\ *[0-9a-f]*)
    | (?P<number>[-+]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![A-Za-z0-9_.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<mark>[][(){{}},=:@?])""",
    re.VERBOSE | re.ASCII,
)
_SPACE: Final = re.compile(r"(?:\s|\#[^\n]*)*+", re.ASCII)
_TITLES: Final = {
    "name": "a value's name such as %x",
    "string": "a text in quotes",
    "number": "a number",
    "word": "a word",
    "end": "the end",
}
SHOWN: Final = 40


class Token(NamedTuple):
    """One token of the text: its text, the position of its first character, and whether it is the first on its line.

    `kind` is "name", "string", "opaque", "elided", "number", "word", "mark" (punctuation), or "end" after the last
    token.
    """

    kind: str
    text: str
    offset: int
    starts_line: bool

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        return f"'{self.text}'" if len(self.text) <= SHOWN else f"'{self.text[:SHOWN]}...'"


class Lexer:
    """Splits a text in the network's text format into tokens, which are looked at and then consumed one by one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split()
        self.index = 0

    def _split(self) -> list[Token]:
        text, tokens, token_end = self.text, list[Token](), 0
        while True:
            token_start = _skipped(text, token_end)
            starts_line = not tokens or "\n" in text[token_end:token_start]
            if token_start == len(text):
                return [*tokens, Token("end", "", token_start, starts_line)]
            match = _TOKEN.match(text, token_start)
            if match is None:
                raise self.error(token_start, f"{text[token_start]!r} starts nothing that is known here")
            token_end = match.end()
            tokens.append(Token(str(match.lastgroup), match.group(), token_start, starts_line))

    def peek(self, ahead: int = 0) -> Token:
        """Return the token `ahead` tokens after the next one, without consuming it."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def sees(self, kind: str, text: str | None = None, ahead: int = 0) -> bool:
        """Return True if a token is of this kind and, if `text` is not None, has this text; nothing is consumed.

        The token is the next one, or the one that is `ahead` tokens after it.
        """
        token = self.peek(ahead)
        return token.kind == kind and text in (None, token.text)

    def accept(self, kind: str, text: str | None = None) -> Token | None:
        """Consume and return the next token if it is of this kind and text, else return None."""
        if not self.sees(kind, text):
            return None
        token = self.peek()
        self.index += 1
        return token

    def take(self, kind: str, text: str | None = None, what: str = "") -> Token:
        """Consume and return the next token, which must be of this kind and, if `text` is not None, have this text.

        Otherwise raises a `ParseError`, which says that `what` was expected; by default, the text or the kind.
        """
        token = self.accept(kind, text)
        if token is None:
            raise self.expected(what or (f"'{text}'" if text else _TITLES[kind]))
        return token

    def expected(self, what: str, token: Token | None = None) -> ParseError:
        """Return the error that says that `what` was expected in place of `token`; None means the next token."""
        token = token or self.peek()
        return self.error(token, f"expected {what}, found {token}")

    def error(self, place: Token | int, message: str) -> ParseError:
        """Return a `ParseError` with this message, and with the line and column of `place` in the text.

        `place` is a token or an offset.
        """
        offset = place.offset if isinstance(place, Token) else place
        line = self.text.count("\n", 0, offset) + 1
        return ParseError(message, where=f"{line}:{offset - self.text.rfind(chr(10), 0, offset)}")


def _skipped(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start
