"""The options of an engine: declared once, published as capabilities, and read with their defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from interposer.backend import Capabilities, Capability, Options, OptionValue
from interposer.core.errors import OptionError, did_you_mean
from interposer.core.records import dataclass

__all__ = ["MOST_THREADS", "Chosen", "Option", "capabilities", "chosen"]

Chosen = tuple[tuple[str, OptionValue], ...]
"""The values of all options by name, as a hashable object."""
MOST_THREADS: Final = 1024
"""The maximum number of threads; some engines abort the process for much larger numbers."""


@dataclass(frozen=True)
class Option:
    """The declaration of one option of an engine; its values must have the type of the default.

    `choices` lists all valid texts, if it is not empty. `least` and `most` are the limits of an integer; `most` may be
    None.
    """

    name: str
    default: OptionValue
    doc: str
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None

    def read(self, owner: str, value: Any) -> OptionValue:
        """Return the value that a user gave to this option, if it is valid; raise `OptionError` otherwise.

        `owner` is the backend's id, for the error message.
        """
        kind = type(self.default)
        if isinstance(value, np.generic):
            value = value.item()
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
        checked_value: OptionValue = value
        return checked_value


def _named(kind: type) -> str:
    return {bool: "True or False", int: "a whole number", str: "a text"}.get(kind, kind.__name__)


def capabilities(declared: Iterable[Option], **others: OptionValue) -> Capabilities:
    """Return an engine's capabilities: its declared options with defaults, ``OnlyByName=True``, and all of `others`."""
    option_capabilities = (Capability(option.name, option.default, f"An option: {option.doc}") for option in declared)
    return Capabilities(*option_capabilities, OnlyByName=True, **others)


def chosen(owner: str, declared: Iterable[Option], options: Options) -> Chosen:
    """Return pairs of name and value for all declared options: the user's value from `options`, or else the default.

    Raises:
        OptionError: the backend `owner` does not have an option, or a value is invalid.
    """
    declared_by_name = {option.name: option for option in declared}
    for name in options:
        if name not in declared_by_name:
            raise OptionError(
                f"backend {owner} has no option {name!r}{did_you_mean(name, declared_by_name)} "
                f"(it has {', '.join(declared_by_name)})"
            )
    return tuple(
        (name, option.read(owner, options[name]) if name in options else option.default)
        for name, option in declared_by_name.items()
    )
