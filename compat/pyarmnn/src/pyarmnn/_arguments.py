"""Conversion of arguments to the C types of Arm NN's interface, with the errors that PyArmNN raises for wrong ones.

A `Kind` converts a value of a C type. Programs see two kinds of errors: TypeError for a value of a wrong type, and
OverflowError for a number outside the range of the C type. NumPy's scalars are accepted as well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "BOOL",
    "FLOAT",
    "INT",
    "INT32",
    "INTS",
    "PAIRS",
    "STRING",
    "UINT",
    "UINT32",
    "UINTS",
    "Kind",
    "count_error",
    "enumeration",
    "instance",
    "overload_error",
]

FLOAT_MAX = float(np.finfo(np.float32).max)


class Kind(NamedTuple):
    """A C type of an argument.

    Attributes:
        c_type: the type as error messages spell it.
        convert: returns the value as Python's type; raises TypeError or OverflowError without a text.
        parameter: the type as prototypes spell it.
        is_vector: whether `convert` raises errors with texts of their own.
    """

    c_type: str
    convert: Callable[[Any], Any]
    parameter: str
    is_vector: bool = False

    def __call__(self, value: Any, method: str, position: int) -> Any:
        """Return the value as the C type; `method` and `position` (self is 1) are for the message.

        Raises:
            TypeError: the value has a wrong type.
            ValueError: the value is None, and the type is a C++ reference.
            OverflowError: the number is outside the type's range.
        """
        if self.is_vector:
            return self.convert(value)
        place = f"in method '{method}', argument {position} of type '{self.c_type}'"
        if value is None and self.is_reference:
            raise ValueError(f"invalid null reference {place}")
        try:
            return self.convert(value)
        except (TypeError, OverflowError) as error:
            raise type(error)(place) from None

    @property
    def is_reference(self) -> bool:
        """Whether the type is a reference to an object, other than a list that is converted."""
        return self.c_type.endswith("&") and not self.c_type.startswith("std::vector")

    def accepts(self, value: Any) -> bool:
        """Return whether an overload with a parameter of this type is chosen for the value."""
        if self.is_vector:
            return isinstance(value, list | tuple | np.ndarray)
        try:
            self.convert(value)
        except (TypeError, OverflowError):
            return False
        return True


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = operator.index(value)
        if not low <= number <= high:
            raise OverflowError
        return number

    return convert


def _float(value: Any) -> float:
    if not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError
    number = float(value)
    if FLOAT_MAX < abs(number) < math.inf:
        raise OverflowError
    return float(np.float32(number))


def _bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_uint32, _int32 = _integer(0, 2**32 - 1), _integer(-(2**31), 2**31 - 1)

UINT = Kind("unsigned int", _uint32, "unsigned int")
UINT32 = Kind("uint32_t", _uint32, "uint32_t")
INT = Kind("int", _int32, "int")
INT32 = Kind("int32_t", _int32, "int32_t")
FLOAT = Kind("float", _float, "float")
BOOL = Kind("bool", _bool, "bool")
STRING = Kind("std::string const &", _string, "std::string const &")


def enumeration(name: str) -> Kind:
    """Return the kind of the values of an enumeration of Arm NN; as in C++, any int is accepted."""
    return Kind(f"armnn::{name}", _int32, f"armnn::{name}")


def instance(kind: type, c_type: str, parameter: str | None = None) -> Kind:
    """Return the kind of objects of a class."""

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return Kind(c_type, convert, parameter or c_type)


# --- vectors ----------------------------------------------------------------------------------------------------------


def _vector(element: Callable[[Any], Any], c_type: str) -> Callable[[Any], list[Any]]:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, Sequence | np.ndarray):
            raise TypeError("Argument value object does not provide sequence protocol, implement __getitem__() method.")
        return [_element(each, element, c_type) for each in value]

    return convert


def _element(value: Any, convert: Callable[[Any], Any], c_type: str) -> Any:
    try:
        return convert(value)
    except (TypeError, OverflowError):
        kind = type(value).__name__
        raise TypeError(
            f"Failed to convert python input value {value!r} of type '{kind}' to C type '{c_type}'"
        ) from None


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError
    return _uint32(value[0]), _uint32(value[1])


def _std_vector(element: str) -> str:
    return f"std::vector< {element},std::allocator< {element} > > const &"


UINTS = Kind("uint", _vector(_uint32, "j"), _std_vector("unsigned int"), is_vector=True)
INTS = Kind("int", _vector(_int32, "i"), _std_vector("int"), is_vector=True)
PAIRS = Kind(
    "pair", _vector(_pair, "St4pairIjjE"), _std_vector("std::pair< unsigned int,unsigned int >"), is_vector=True
)


# --- overloads --------------------------------------------------------------------------------------------------------


def overload_error(function: str, qualified: str, prototypes: Iterable[Sequence[str]]) -> TypeError:
    """Return the error for arguments that fit none of the prototypes, each a list of C types of a C++ function."""
    lines = "".join(f"    {qualified}({','.join(types)})\n" for types in prototypes)
    return TypeError(
        f"Wrong number or type of arguments for overloaded function '{function}'.\n"
        f"  Possible C/C++ prototypes are:\n{lines}"
    )


def count_error(function: str, most: int, count: int, error: TypeError) -> TypeError:
    """Return the error for more arguments than any prototype has; `error` is that of the prototypes."""
    return TypeError(f"{function} expected at most {most} arguments, got {count}\nAdditional information:\n{error}")
