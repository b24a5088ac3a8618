"""The kinds of operator attributes in the C interface, derived from type annotations."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, NamedTuple

from interposer.core.types import DataType
from interposer.plugins.capi.abi import structs as abi

__all__ = ["Kind", "kind_of"]


class Kind(NamedTuple):
    """How the C interface represents an attribute of an operator.

    `number` is ``abi.KIND_...``. `optional` is True if the attribute may be None. `columns` is the length of each row
    of a table, or 0. `choices` is the enumeration of which the attribute is a member, or None.
    """

    number: int
    optional: bool = False
    columns: int = 0
    choices: type[Enum] | None = None

    def __str__(self) -> str:
        names = {
            abi.KIND_BOOL: "bool", abi.KIND_INT: "int", abi.KIND_FLOAT: "float", abi.KIND_TEXT: "text",
            abi.KIND_ENUM: "enum", abi.KIND_DTYPE: "dtype", abi.KIND_INTS: "ints", abi.KIND_FLOATS: "floats",
            abi.KIND_ENUMS: "enums",
        }  # fmt: skip
        detail = f" {self.choices.__name__}" if self.choices else f" {self.columns}" if self.columns else ""
        return f"{names[self.number]}{detail}{'?' if self.optional else ''}"


_PLAIN = {bool: abi.KIND_BOOL, int: abi.KIND_INT, float: abi.KIND_FLOAT, str: abi.KIND_TEXT, DataType: abi.KIND_DTYPE}


def kind_of(hint: Any) -> Kind | None:
    """Return the attribute kind of an annotated type, or None if plug-ins cannot read values of this type."""
    if hint in _PLAIN:
        return Kind(_PLAIN[hint])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Kind(abi.KIND_ENUM, choices=hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner_kinds = [kind_of(argument) for argument in arguments if argument is not type(None)]
        return inner_kinds[0]._replace(optional=True) if len(inner_kinds) == 1 and inner_kinds[0] else None
    if origin is tuple:
        element_types = {argument for argument in arguments if argument is not Ellipsis}
        return _list_of(element_types.pop()) if len(element_types) == 1 else None
    return None


def _list_of(element_type: Any) -> Kind | None:
    if element_type in (int, bool):
        return Kind(abi.KIND_INTS)
    if element_type is float:
        return Kind(abi.KIND_FLOATS)
    if isinstance(element_type, type) and issubclass(element_type, Enum) and element_type is not DataType:
        return Kind(abi.KIND_ENUMS, choices=element_type)
    row = typing.get_args(element_type) if typing.get_origin(element_type) is tuple else ()
    if row and set(row) == {int}:
        return Kind(abi.KIND_INTS, columns=len(row))
    return None
