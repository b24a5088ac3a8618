"""The options of an engine: declared once, shown as capabilities, and read with their defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from interposer.backend import Capabilities, Capability, Options, OptionValue
from interposer.core.errors import OptionError, did_you_mean

__all__ = ["MOST_THREADS", "Chosen", "Option", "capabilities", "chosen"]

Chosen = tuple[tuple[str, OptionValue], ...]
"""The value of every option, by name; hashable."""
MOST_THREADS: Final = 1024
"""Engines that are asked for many more end the process."""


@dataclass(frozen=True)
class Option:
    """One option of an engine, of the type of its default; `choices` are all values that it may have, if not empty."""

    name: str
    default: OptionValue
    doc: str
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None

    def read(self, owner: str, value: Any) -> OptionValue:
        """Return the value, if it can be meant; else `OptionError`."""
        kind = type(self.default)
        if type(value) is not kind:
            raise OptionError(f"the option {self.name!r} of backend {owner} must be {_named(kind)}, not {value!r}")
        if self.choices and value not in self.choices:
            raise OptionError(
                f"the option {self.name!r} of backend {owner} is {value!r}; expected one of "
                f"{', '.join(self.choices)}{did_you_mean(str(value), self.choices)}"
            )
        if isinstance(value, int) and value < self.least:
            raise OptionError(f"the option {self.name!r} of backend {owner} is {value}; expected {self.least} or more")
        if isinstance(value, int) and self.most is not None and value > self.most:
            raise OptionError(f"the option {self.name!r} of backend {owner} is {value}; expected {self.most} or fewer")
        known: OptionValue = value
        return known


def _named(kind: type) -> str:
    return {bool: "True or False", int: "a whole number", str: "a text"}.get(kind, kind.__name__)


def capabilities(declared: Iterable[Option], **others: OptionValue) -> Capabilities:
    """Return what an engine says of itself: its options with their defaults and a line about each, and the others."""
    described = (Capability(item.name, item.default, f"An option: {item.doc}") for item in declared)
    return Capabilities(*described, OnlyByName=True, **others)


def chosen(owner: str, declared: Iterable[Option], options: Options) -> Chosen:
    """Return the value of every option: what is given, else the default.

    Raises:
        OptionError: an option that the backend `owner` does not have, or a value that it cannot have.
    """
    known = {item.name: item for item in declared}
    for name in options:
        if name not in known:
            raise OptionError(
                f"backend {owner} has no option {name!r}{did_you_mean(name, known)} (it has {', '.join(known)})"
            )
    return tuple(
        (name, item.read(owner, options[name]) if name in options else item.default) for name, item in known.items()
    )
