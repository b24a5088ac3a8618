"""Regular expressions in the syntax of RE2, matched in time linear in the lengths of text and pattern.

A pattern is compiled to a nondeterministic finite automaton, and matching follows all reachable states at once.
Therefore, like in RE2, back references and lookaround are not supported. Of the Unicode classes, the general categories
are supported.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Final, NoReturn, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass

__all__ = ["Pattern"]

_MAX_STATES: Final = 20_000
_MAX_REPEATS: Final = 1000
_MAX_DEPTH: Final = 100
_LAST_CODE_POINT: Final = 0x10FFFF
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_DIGIT: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_NAMED: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CATEGORIES: Final = frozenset(
    {"C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No"}
    | {"P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"}
)


# --- syntax tree ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Set:
    """A set of characters, which matches one character: ranges of code points, and general categories of Unicode.

    A category is paired with True if it is negated. `negated` stands for the complement of the whole set, and `folds`
    for ignoring case.
    """

    ranges: Ranges = ()
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    folds: bool = False
    _membership: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def __contains__(self, letter: str) -> bool:
        if letter not in self._membership:
            forms = {letter, *letter.lower(), *letter.upper()} if self.folds else {letter}
            self._membership[letter] = any(map(self._holds, forms)) is not self.negated
        return self._membership[letter]

    def _holds(self, letter: str) -> bool:
        category = unicodedata.category(letter)
        return any(low <= ord(letter) <= high for low, high in self.ranges) or any(
            category.startswith(name) is not negated for name, negated in self.categories
        )


@dataclass(frozen=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Choice:
    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Repeat:
    repeated_node: _Node
    least: int
    most: int | None


@dataclass(frozen=True)
class _Assertion:
    """A condition that matches between two characters, such as a word boundary.

    `holds` receives the characters before and after the position, None at an end of the text.
    """

    holds: Callable[[str | None, str | None], bool]


_Node: TypeAlias = "_Set | _Sequence | _Choice | _Repeat | _Assertion"
_WORDS: Final = _Set(_WORD)


def _at_border(before: str | None, after: str | None) -> bool:
    return (before is not None and before in _WORDS) is not (after is not None and after in _WORDS)


_BEGIN: Final = _Assertion(lambda before, _: before is None)
_END: Final = _Assertion(lambda _, after: after is None)
_LINE_BEGIN: Final = _Assertion(lambda before, _: before in (None, "\n"))
_LINE_END: Final = _Assertion(lambda _, after: after in (None, "\n"))
_ASSERTIONS: Final = {
    "A": _BEGIN,
    "z": _END,
    "b": _Assertion(_at_border),
    "B": _Assertion(lambda before, after: not _at_border(before, after)),
}


# --- parser -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flags:
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.position, self.depth = pattern, 0, 0
        self.flags = _Flags()

    def refuse(self, reason: str) -> NoReturn:
        raise InvalidArgumentError(
            f"the regular expression {self.pattern!r} is invalid at character {self.position}: {reason}"
        )

    def sees(self, text: str) -> bool:
        return self.pattern.startswith(text, self.position)

    def accepts(self, text: str) -> bool:
        is_next = self.sees(text)
        self.position += len(text) if is_next else 0
        return is_next

    def next(self) -> str:
        if self.position >= len(self.pattern):
            self.refuse("unexpected end")
        self.position += 1
        return self.pattern[self.position - 1]

    def until(self, end: str, *, or_end: bool = False) -> str:
        text, separator, _ = self.pattern[self.position :].partition(end)
        if not separator and not or_end:
            self.refuse(f"{end!r} is missing")
        self.position += len(text + separator)
        return text

    def whole(self) -> _Node:
        root = self.choice()
        if self.position < len(self.pattern):
            self.refuse("unmatched ')'")
        return root

    def choice(self) -> _Node:
        outer_flags = self.flags
        alternatives = [self.sequence()]
        while self.accepts("|"):
            alternatives.append(self.sequence())
        self.flags = outer_flags
        return alternatives[0] if len(alternatives) == 1 else _Choice(tuple(alternatives))

    def sequence(self) -> _Node:
        nodes: list[_Node] = []
        while self.position < len(self.pattern) and not self.sees("|") and not self.sees(")"):
            if self.accepts("\\Q"):
                text = self.until("\\E", or_end=True)
                nodes += map(self.letter, map(ord, text[:-1]))
                nodes += [self.repeated(self.letter(ord(letter))) for letter in text[-1:]]
            else:
                nodes.append(self.repeated(self.atom()))
        return _Sequence(tuple(nodes))

    def repeated(self, node: _Node) -> _Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        self.accepts("?")
        if self.bounds() is not None:
            self.refuse("a repetition operator cannot follow another one")
        return _Repeat(node, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accepts(symbol):
                return bounds
        return self.counts() if self.sees("{") else None

    def counts(self) -> tuple[int, int | None] | None:
        """Read ``{2}``, ``{2,}`` or ``{2,5}``, and return the least and the most repetitions (None: no limit).

        Return None, and read nothing, if the braces are plain characters.
        """
        text, brace, _ = self.pattern[self.position + 1 :].partition("}")
        low, comma, high = text.partition(",")
        if not brace or not _is_number(low) or (high and not _is_number(high)):
            return None
        least_count, most_count = int(low), int(high) if high else None if comma else int(low)
        if max(least_count, most_count or 0) > _MAX_REPEATS or (most_count is not None and most_count < least_count):
            self.refuse(f"{{{text}}} is not a valid repetition; expected rising counts of at most {_MAX_REPEATS}")
        self.position += len(text) + 2
        return least_count, most_count

    def atom(self) -> _Node:
        letter = self.next()
        if letter == "(":
            return self.group()
        if letter == "[":
            return self.set()
        if letter == "\\":
            return self.escape()
        if letter == ".":
            return _Set((), negated=True) if self.flags.s else _Set(((10, 10),), negated=True)
        if letter in "^$":
            return (_LINE_BEGIN, _LINE_END)[letter == "$"] if self.flags.m else (_BEGIN, _END)[letter == "$"]
        if letter in "*+?":
            self.refuse("a repetition operator has no operand")
        return self.letter(ord(letter))

    def letter(self, code: int) -> _Set:
        return _Set(((code, code),), folds=self.flags.i)

    def group(self) -> _Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.refuse(f"more than {_MAX_DEPTH} groups are nested")
        outer_flags = self.flags
        looks_behind = self.sees("?<=") or self.sees("?<!")
        if self.accepts("?P<") or (not looks_behind and self.accepts("?<")):
            self.check_name(self.until(">"))
        elif self.accepts("?") and not self.read_flags():
            self.depth -= 1
            return _Sequence(())
        content = self.choice()
        if not self.accepts(")"):
            self.refuse("')' is missing")
        self.flags = outer_flags
        self.depth -= 1
        return content

    def check_name(self, name: str) -> None:
        if not name or set(name) - set(string.ascii_letters + string.digits + "_"):
            self.refuse(f"{name!r} is not a valid group name")

    def read_flags(self) -> bool:
        """Read the flags of a group such as ``(?i)`` or ``(?i-s:``, and apply them.

        Return True if they open a group (``:``), False if they apply to the rest of the surrounding one (``)``).
        """
        is_on = True
        while True:
            letter = self.next()
            if letter == "-" and is_on:
                is_on = False
            elif letter in "imsU":
                self.flags = replace(self.flags, **{letter: is_on})
            elif letter in ":)":
                return letter == ":"
            else:
                self.refuse("lookaround, and other groups with a question mark, are not supported")

    def escape(self) -> _Node:
        if self.pattern[self.position : self.position + 1] in _ASSERTIONS:
            return _ASSERTIONS[self.next()]
        meaning = self.escaped()
        return meaning if isinstance(meaning, _Set) else self.letter(meaning)

    def escaped(self) -> _Set | int:
        """Read what follows a backslash, and return its meaning: a set of characters, or one character's code point."""
        letter = self.next()
        if letter.lower() in _PERL:
            return _Set(_PERL[letter.lower()], negated=letter.isupper())
        if letter in "pP":
            return self.category(letter == "P")
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "x":
            digits = self.until("}") if self.accepts("{") else self.next() + self.next()
            return self.code(digits, 16)
        if letter in "01234567":
            return self.octal(letter)
        if letter.isalnum() and letter.isascii():
            self.refuse(f"\\{letter} is not supported")
        return ord(letter)

    def octal(self, first_digit: str) -> int:
        digits = first_digit
        while len(digits) < 3 and self.pattern[self.position : self.position + 1] in set("01234567"):
            digits += self.next()
        if len(digits) == 1 and first_digit != "0":
            self.refuse("back references are not supported")
        return self.code(digits, 8)

    def code(self, digits: str, base: int) -> int:
        if not digits or set(digits) - set(string.hexdigits) or int(digits, base) > _LAST_CODE_POINT:
            self.refuse(f"{digits!r} is not a valid code point")
        return int(digits, base)

    def category(self, negated: bool) -> _Set:
        name = self.until("}") if self.accepts("{") else self.next()
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _CATEGORIES:
            self.refuse(f"the class {name!r} is not known; general categories such as Lu are")
        return _Set((), ((name, negated),))

    def set(self) -> _Set:
        negated, ranges, categories = self.accepts("^"), list[tuple[int, int]](), list[tuple[str, bool]]()
        is_first = True
        while is_first or not self.accepts("]"):
            is_first = False
            low = self.member()
            if isinstance(low, _Set):
                ranges += low.ranges if not low.negated else _complement(low.ranges)
                categories += low.categories
                continue
            high: _Set | int = low
            if self.sees("-") and not self.sees("-]"):
                self.next()
                high = self.member()
            if isinstance(high, _Set) or high < low:
                self.refuse("a character range is reversed, or ends in a class")
            ranges.append((low, high))
        return _Set(tuple(ranges), tuple(categories), negated, self.flags.i)

    def member(self) -> _Set | int:
        if self.accepts("[:"):
            name = self.until(":]")
            if name.lstrip("^") not in _NAMED:
                self.refuse(f"the class {name!r} is not known")
            return _Set(_NAMED[name.lstrip("^")], negated=name.startswith("^"))
        return self.escaped() if self.accepts("\\") else ord(self.next())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9


def _complement(ranges: Ranges) -> Iterator[tuple[int, int]]:
    uncovered = 0
    for low, high in sorted(ranges):
        if uncovered < low:
            yield uncovered, low - 1
        uncovered = high + 1
    yield uncovered, _LAST_CODE_POINT


# --- the automaton ----------------------------------------------------------------------------------------------------


@dataclass
class _State:
    """A state of the automaton: what must match to leave it (None: nothing), and the numbers of the next states."""

    needs: _Set | _Assertion | None
    following: list[int]


class Pattern:
    """A regular expression in RE2's syntax, compiled when it is created.

    Raises:
        InvalidArgumentError: the pattern is invalid or unsupported; the message has the position.

    >>> Pattern("(a|b)+c?").matches("abba"), Pattern("a{2}").matches("aaa")
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._states: list[_State] = [_State(None, [])]
        self._start = self._add(_Reader(pattern).whole(), 0)

    def _new(self, needs: _Set | _Assertion | None, next_states: Sequence[int]) -> int:
        if len(self._states) >= _MAX_STATES:
            raise InvalidArgumentError(f"the regular expression {self._pattern[:40]!r} is too large")
        self._states.append(_State(needs, list(next_states)))
        return len(self._states) - 1

    def _add(self, node: _Node, next_state: int) -> int:
        """Add states that match the syntax tree `node` and lead to the state `next_state`; return the first one."""
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                next_state = self._add(part, next_state)
            return next_state
        if isinstance(node, _Choice):
            return self._new(None, [self._add(part, next_state) for part in node.parts])
        if isinstance(node, _Repeat):
            return self._add_repeat(node, next_state)
        return self._new(node, [next_state])

    def _add_repeat(self, node: _Repeat, next_state: int) -> int:
        start = next_state
        if node.most is None:
            start = self._new(None, [next_state])
            self._states[start].following.append(self._add(node.repeated_node, start))
        for _ in range((node.most or 0) - node.least):
            start = self._new(None, [self._add(node.repeated_node, start), next_state])
        for _ in range(node.least):
            start = self._add(node.repeated_node, start)
        return start

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches the whole text."""
        reached_states = self._reached([self._start], None, text[:1] or None)
        for index, letter in enumerate(text):
            entered_indices = [
                state.following[0]
                for state in reached_states
                if isinstance(state.needs, _Set) and letter in state.needs
            ]
            reached_states = self._reached(entered_indices, letter, text[index + 1 : index + 2] or None)
        return self._states[0] in reached_states

    def _reached(self, entered_indices: list[int], before: str | None, after: str | None) -> list[_State]:
        """Return the entered states, and those that can be reached from them without consuming a character.

        `before` and `after` are the characters around the current position, None at an end of the text.
        """
        visited_indices, pending_indices, reached_states = set(entered_indices), list(entered_indices), list[_State]()
        while pending_indices:
            state = self._states[pending_indices.pop()]
            reached_states.append(state)
            if isinstance(state.needs, _Set) or (state.needs is not None and not state.needs.holds(before, after)):
                continue
            pending_indices += [next_state for next_state in state.following if next_state not in visited_indices]
            visited_indices.update(state.following)
        return reached_states
