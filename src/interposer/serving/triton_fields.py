"""Fields of a ``config.pbtxt``, and checks of their values; each raises ValueError for a field that is wrong."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from interposer.core.errors import did_you_mean

__all__ = ["Fields", "check_known", "message", "number", "whole", "whole_or_any"]

Fields: TypeAlias = "dict[str, list[Any]]"
"""The values of each field of a message, in the order of the file; numbers are texts."""


def check_known(prefix: str, fields: Fields, known: Collection[str]) -> None:
    """Check that all fields are known; `prefix` names the message that they are in."""
    for name in fields:
        if name not in known:
            raise ValueError(f"there is no field {prefix + name!r}{did_you_mean(name, known)}")


def message(fields: Fields, name: str) -> Fields | None:
    """Return the last message of a field; None without one."""
    message = fields.get(name, [None])[-1]
    if message is not None and not isinstance(message, dict):
        raise ValueError(f"{name} is not a message in braces")
    return message


def number(fields: Fields, name: str, default: int | None) -> int | None:
    """Return the last whole number of a field, or the default."""
    return whole(name, fields[name][-1]) if name in fields else default


def whole_or_any(name: str, digits: Any) -> int:
    """Return a whole number, or -1."""
    return -1 if digits == "-1" else whole(name, digits)


def whole(name: str, digits: Any) -> int:
    """Return the whole number of some digits; `name` is that of the field."""
    if not (isinstance(digits, str) and digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise ValueError(f"{name} is not a whole number")
    return int(digits)
