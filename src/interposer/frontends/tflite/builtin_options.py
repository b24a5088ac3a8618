"""Safe access to an operator's options through the package `tflite`, which only this module imports."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from interposer.core.errors import MissingDependencyError, ParseError

__all__ = ["GuardedOptions", "options_accessors"]


class GuardedOptions:
    """The methods of a generated class (``StrideH()``, ``NewShape(j)``, ...); every failure is a `ParseError`.

    The error names the field: one that this kind of options lacks, an index outside a vector, or anything that the
    accessor itself raises.
    """

    __slots__ = ("_table", "_where")

    def __init__(self, table: object, where: str) -> None:
        self._table = table
        self._where = where

    def __repr__(self) -> str:
        return f"<{type(self._table).__name__} of {self._where}>"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        accessor = getattr(self._table, name, None)
        if accessor is None:
            raise ParseError(f"{type(self._table).__name__} has no field {name}", where=self._where)
        return partial(self._call, name, accessor)

    def vector(self, name: str) -> tuple[Any, ...] | None:
        """Return all elements of a vector of numbers; None if the file does not have it."""
        if self._call(name, getattr(self, f"{name}IsNone")):
            return None
        return tuple(self._call(name, getattr(self, f"{name}AsNumpy")).tolist())

    def _call(self, name: str, accessor: Callable[..., Any], *args: int) -> Any:
        if args:
            self._check_index(name, *args)
        try:
            return accessor(*args)
        except ParseError:
            raise
        except Exception as error:
            raise ParseError(f"the field cannot be read ({error})", where=f"{self._where}.{name}") from error

    def _check_index(self, name: str, index: int) -> None:
        length = getattr(self, f"{name}Length")()
        if not 0 <= index < length:
            raise ParseError(f"no element {index} in a vector of {length}", where=f"{self._where}.{name}")


def options_accessors(data: memoryview, table: str, position: int, where: str) -> GuardedOptions:
    """Return the accessors for the options table of the type `table` at `position`, which must have been verified.

    Raises:
        MissingDependencyError: the package `tflite` is not installed.
    """
    try:
        module = importlib.import_module(f"tflite.{table}")
    except ImportError as error:
        raise MissingDependencyError("tflite", "tflite", "Operator.options") from error
    options = getattr(module, table)()
    options.Init(data, position)
    return GuardedOptions(options, where)
