"""Declarations of the operands, results and attributes of an operator, as they stand in the body of its class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from interposer.core.errors import OutOfRangeError
from interposer.core.traits import Role
from interposer.core.types import ANY_TYPE, COLLECTIONS, MAX_RANK, DataType, TensorInfo

__all__ = ["MISSING", "Attribute", "Operand", "Result", "Slot", "attribute", "operand", "result"]

MISSING: Final = object()
"""The default of an attribute that must be given."""
Rank = int | tuple[int, int] | None


class Slot:
    """The declaration of an operand or a result of an operator: its name, and the ranks and types that it may have."""

    name: str = ""

    def __init__(self, rank: Rank, dtypes: Iterable[DataType] | None, optional: bool, variadic: bool, doc: str) -> None:
        self.rank, self.optional, self.variadic, self.doc = rank, optional, variadic, doc
        self.dtypes = None if dtypes is None else frozenset(dtypes)
        low, high = rank if isinstance(rank, tuple) else (rank, rank)
        self._ranks: Final = (0, MAX_RANK) if low is None or high is None else (low, high)
        self._types: Final = ANY_TYPE if self.dtypes is None else self.dtypes

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def surely_accepts(self, argument: Any) -> bool:
        """Return True if an argument of known rank is certain to have no `problems`; a fast path for valid operands.

        False for the arguments of a variadic operand, which are a tuple.
        """
        if argument is None:
            return self.optional
        low, high = self._ranks
        return type(argument) is TensorInfo and argument.dtype in self._types and low <= len(argument.shape) <= high

    def problems(self, info: TensorInfo, label: str) -> Iterator[str]:
        """Yield an error message, which begins with `label`, if the rank or the type of `info` is not allowed."""
        if self.dtypes is None and info.dtype in COLLECTIONS:
            yield f"{label} is {info}; expected a tensor"
            return
        low, high = self.rank if isinstance(self.rank, tuple) else (self.rank, self.rank)
        if low is not None and high is not None and not low <= info.rank <= high:
            ranks = f"{low}" if low == high else f"{low} to {high}"
            yield f"{label} has rank {info.rank}, shape {info.shape}; expected rank {ranks}"
        if self.dtypes is not None and info.dtype not in self.dtypes:
            yield f"{label} is {info.dtype}; expected one of {', '.join(sorted(map(str, self.dtypes)))}"


class Operand(Slot):
    """The declaration of an input of an operator: its role, rank and types, and whether it is optional or variadic.

    `same_dtype_as` names another operand that must have the same type.
    """

    def __init__(self, *, role: Role, same_dtype_as: str | None, **common: Any) -> None:
        super().__init__(**common)
        self.role, self.same_dtype_as = role, same_dtype_as


class Result(Slot):
    """The declaration of an output of an operator: its rank and types, and whether it is optional or variadic.

    `like` names the operand whose info the output has, unless `Op.infer` returns another info.
    """

    def __init__(self, *, like: str | None, dtype_of: str | None, dynamic: bool, **common: Any) -> None:
        super().__init__(**common)
        self.like, self.dtype_of, self.dynamic = like, dtype_of or like, dynamic


class Attribute:
    """The declaration of an attribute of an operator: its default, bounds, allowed values and documentation.

    Its type comes from the annotation. If the default depends on the value of another attribute, `by` is the name of
    that attribute, and `defaults` has the defaults by its value; `default` is the one for all other values.
    `is_limited` is True if there are bounds or choices.
    """

    def __init__(
        self,
        default: Any,
        bounds: Mapping[str, float],
        choices: Sequence[Any] | None,
        doc: str,
        by: str = "",
        defaults: Mapping[Any, Any] = MappingProxyType({}),
    ) -> None:
        self.default, self.bounds, self.doc = default, dict(bounds), doc
        self.choices = None if choices is None else tuple(choices)
        self.by, self.defaults = by, defaults
        self.name = ""
        self.is_limited: Final = bool(self.bounds) or self.choices is not None
        self._least: Final = self.bounds.get("ge") if len(self.bounds) == 1 and choices is None else None

    def default_with(self, values: Mapping[str, Any]) -> Any:
        """Return the default of this attribute if attributes declared before it have these values, by name."""
        return self.defaults.get(values[self.by], self.default) if self.by else self.default

    def all_defaults(self) -> list[Any]:
        """Return the defaults for all values of the attribute named `by`, or the only default; empty without one."""
        return [value for value in (self.default, *self.defaults.values()) if value is not MISSING]

    @property
    def required(self) -> bool:
        """True if there is no default."""
        return self.default is MISSING

    def surely_accepts(self, value: Any) -> bool:
        """Return True if `problems` is certain to yield nothing; a fast path for a bound or choices alone."""
        if self._least is not None:
            return type(value) is int and value >= self._least
        return self.choices is not None and not self.bounds and value in self.choices

    def problems(self, value: Any) -> Iterator[str]:
        """Yield an error message for each bound or choice that a value of the right type violates."""
        yield from self._bound_problems(value)
        if self.choices is not None and value not in self.choices:
            yield f"{self.name} is {value}; expected one of {', '.join(map(str, self.choices))}"

    def _bound_problems(self, value: Any) -> Iterator[str]:
        if isinstance(value, tuple):
            yield from (error for element in value for error in self._bound_problems(element))
        for comparison, bound in self.bounds.items() if isinstance(value, (int, float)) else ():
            if not _COMPARE[comparison](value, bound):
                yield f"{self.name} is {value}; expected {_SIGNS[comparison]} {bound:g}"

    def check_bounds(self, owner: str, value: Any) -> None:
        """Raise `OutOfRangeError` if a value, or an element of a tuple, is out of bounds; `owner` has the attribute."""
        for element in value if isinstance(value, tuple) else ():
            self.check_bounds(owner, element)
        for error in () if isinstance(value, tuple) else self._bound_problems(value):
            limits = [next((self.bounds[name] for name in names if name in self.bounds), None) for names in _LIMITS]
            raise OutOfRangeError(f"{owner}: {error}", value, (limits[0], limits[1]))


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "le": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
}
_LIMITS: Final = (("ge", "gt"), ("le", "lt"))
_SIGNS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def operand(
    *,
    rank: Rank = None,
    dtypes: Iterable[DataType] | None = None,
    optional: bool = False,
    variadic: bool = False,
    same_dtype_as: str | None = None,
    role: Role = Role.DATA,
    doc: str = "",
) -> Operand:
    """Declare an input of an operator.

    Args:
        rank: one rank, or (lowest, highest); None for any.
        dtypes: the allowed types; None for all types of tensors.
        optional: whether the operand may be absent.
        variadic: whether the operand takes all remaining values; such an operand must come last.
        same_dtype_as: name of another operand that must have the same type.
        role: what the operand is for; the operands with `Role.DATA` are those that the operator works on.
        doc: a line for the reference.
    """
    return Operand(
        rank=rank, dtypes=dtypes, optional=optional, variadic=variadic, role=role, same_dtype_as=same_dtype_as, doc=doc
    )


def result(
    *,
    rank: Rank = None,
    dtypes: Iterable[DataType] | None = None,
    like: str | None = None,
    dtype_of: str | None = None,
    variadic: bool = False,
    optional: bool = False,
    dynamic: bool = False,
    doc: str = "",
) -> Result:
    """Declare an output of an operator.

    Args:
        rank: one rank, or (lowest, highest); None for any.
        dtypes: the allowed types; None for all types of tensors.
        like: name of the operand whose info the output has, without its constant.
        dtype_of: name of the operand whose type the output has.
        variadic: whether the result stands for several outputs; `Op.num_results` returns the number of all outputs.
        optional: whether the output may be absent.
        dynamic: whether the output's shape depends on data.
        doc: a line for the reference.
    """
    return Result(
        rank=rank, dtypes=dtypes, like=like, dtype_of=dtype_of, variadic=variadic, optional=optional,
        dynamic=dynamic, doc=doc,
    )  # fmt: skip


def attribute(
    *,
    default: Any = MISSING,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[Any] | None = None,
    by: str = "",
    defaults: Mapping[Any, Any] = MappingProxyType({}),
    doc: str = "",
) -> Any:
    """Declare an attribute of an operator; without `default`, it must be given.

    Args:
        default: the value if none is given.
        ge: the value must be greater than or equal to this bound; bounds apply to every element of a tuple.
        gt: the value must be greater than this bound.
        le: the value must be less than or equal to this bound.
        lt: the value must be less than this bound.
        choices: the allowed values; None for all.
        by: the name of an attribute, declared before this one, whose value determines the default; None stands for it.
        defaults: the default for values of the attribute `by`; `default` is that for all other values.
        doc: a line for the reference.
    """
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None}
    return Attribute(default, bounds, choices, doc, by, defaults)
