"""Dimensions and shapes of tensors, which may be unknown."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from types import EllipsisType
from typing import Any, Final, NoReturn, TypeAlias

from numpy.typing import NDArray

from interposer.core.errors import InvalidArgumentError, UnknownRankError

__all__ = ["MAX_RANK", "UNKNOWN", "UNRANKED", "Dim", "ShapeLike", "TensorShape", "differ"]

MAX_RANK: Final = 16


class Dim(int):
    """An unknown dimension, optionally named (``Dim("batch")``). Arithmetic with it yields `UNKNOWN`.

    Every comparison by ``<`` or ``>`` is False, and every remainder is 0. So checks that compare dimensions report no
    errors for unknown ones. Its value as an int is -1.
    """

    name: str | None
    _dim_of_name: dict[str | None, Dim] = {}

    def __new__(cls, name: str | None = None) -> Dim:
        dim = cls._dim_of_name.get(name)
        if dim is None:
            new_dim = super().__new__(cls, -1)
            new_dim.name = name
            dim = cls._dim_of_name.setdefault(name, new_dim)
        return dim

    def _unknown(self, *_: object) -> Dim:
        return UNKNOWN

    def _never(self, _: object) -> bool:
        return False

    def __mod__(self, _: object) -> int:
        return 0

    def __divmod__(self, _: object) -> tuple[Dim, int]:
        return UNKNOWN, 0

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _unknown  # type: ignore[assignment]
    __neg__ = __abs__ = __round__ = __ceil__ = __floor__ = __trunc__ = _unknown
    __rmod__ = __mod__
    __rdivmod__ = __divmod__
    __lt__ = __le__ = __gt__ = __ge__ = _never

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name or "?"

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[Dim], tuple[str | None]]:
        return Dim, (self.name,)


UNKNOWN: Final = Dim()
ShapeLike: TypeAlias = Iterable[int | str | None] | EllipsisType


_PLAIN: Final = {tuple, list}


class TensorShape(tuple[int, ...]):
    """The dimensions of a tensor of rank 0 to 16; None or a name stands for an unknown dimension.

    The Ellipsis stands for a shape of unknown rank: see `UNRANKED`.

    >>> TensorShape((1, None, "width", 3))
    TensorShape(1, ?, width, 3)
    >>> TensorShape(...)
    TensorShape(...)
    """

    __slots__ = ()

    def __new__(cls, dims: ShapeLike = ()) -> TensorShape:
        if isinstance(dims, TensorShape):
            return dims
        if dims is ...:
            return UNRANKED
        is_plain = type(dims) in _PLAIN  # a fast path, since networks have thousands of shapes
        if not is_plain and (isinstance(dims, (str, bytes)) or not isinstance(dims, Iterable)):
            raise InvalidArgumentError(f"a shape must be a sequence of dimensions, not {dims!r}")
        checked_dims = tuple([dim if type(dim) is int and dim >= 0 else _dim(dim) for dim in dims])
        if len(checked_dims) > MAX_RANK:
            raise InvalidArgumentError(f"a tensor has rank {len(checked_dims)}; ranks 0 to {MAX_RANK} are supported")
        return super().__new__(cls, checked_dims)

    @classmethod
    def of(cls, array: NDArray[Any]) -> TensorShape:
        """Return the shape of an array, whose dimensions need no check."""
        return tuple.__new__(cls, array.shape) if array.ndim <= MAX_RANK else cls(array.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def is_ranked(self) -> bool:
        """True if the rank is known, even if dimensions are not."""
        return True

    @property
    def is_concrete(self) -> bool:
        """True if every dimension is known."""
        return Dim not in map(type, self)

    @property
    def num_elements(self) -> int:
        """The product of the dimensions (1 for a scalar); `UNKNOWN` if a dimension is unknown."""
        return UNKNOWN if Dim in map(type, self) else math.prod(self)

    def accepts(self, other: TensorShape) -> bool:
        """Return True if a tensor of shape `other` may have this shape.

        The ranks must be equal, and no known dimension may differ. An unknown dimension or rank, on either side, always
        fits.
        """
        if not other.is_ranked:
            return True
        return len(self) == len(other) and not any(differ(a, b) for a, b in zip(self, other, strict=True))

    def joined(self, other: TensorShape) -> TensorShape:
        """Return what this shape and `other` have in common.

        Dimensions that differ become unknown; if the ranks differ, the rank becomes unknown.
        """
        if not other.is_ranked or len(self) != len(other):
            return UNRANKED
        return TensorShape(a if a == b else UNKNOWN for a, b in zip(self, other, strict=True))

    def merged(self, other: TensorShape) -> TensorShape:
        """Return what is known from two shapes of the same tensor: dimensions unknown here are taken from `other`."""
        if not other.is_ranked:
            return self
        return TensorShape(b if isinstance(a, Dim) else a for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"TensorShape({', '.join(map(str, self))})"

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"


class _Unranked(TensorShape):
    """The class of `UNRANKED`, the shape of a tensor whose rank is unknown before running.

    Access to its rank or its dimensions raises `UnknownRankError`.
    """

    __slots__ = ()

    @property
    def rank(self) -> int:
        self._refuse()

    @property
    def is_ranked(self) -> bool:
        return False

    @property
    def is_concrete(self) -> bool:
        return False

    @property
    def num_elements(self) -> int:
        return UNKNOWN

    def accepts(self, other: TensorShape) -> bool:
        return True

    def joined(self, other: TensorShape) -> TensorShape:
        return self

    def merged(self, other: TensorShape) -> TensorShape:
        return other

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UnknownRankError("the rank of a tensor is not known before running")

    __len__ = __iter__ = __getitem__ = __contains__ = __add__ = __mul__ = __rmul__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = index = count = _refuse

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:  # noqa: PLE0304 - it never returns
        self._refuse()

    def __hash__(self) -> int:
        return hash(...)

    def __repr__(self) -> str:
        return "TensorShape(...)"

    def __str__(self) -> str:
        return "[...]"

    def __reduce__(self) -> tuple[type[TensorShape], tuple[EllipsisType]]:
        return TensorShape, (...,)


UNRANKED: Final[TensorShape] = tuple.__new__(_Unranked)
"""The shape of a tensor whose rank is unknown before running, for example an element of some sequences.

Its `TensorShape.is_ranked` is False. Access to its rank or its dimensions raises `UnknownRankError`.
"""


def _dim(number: int | str | None) -> int:
    if type(number) is int and number >= 0:
        return number
    if number is None or isinstance(number, str):
        return Dim(number)
    if isinstance(number, Dim):
        return number
    try:
        size = operator.index(number)
    except TypeError:
        size = None
    if size is None or isinstance(number, bool):
        raise InvalidArgumentError(f"a dimension must be an integer, a name or None, not {number!r}")
    if size < 0:
        raise InvalidArgumentError(f"a dimension must not be negative, but {size} was given; None means unknown")
    return size


def differ(a: int, b: int) -> bool:
    """Return True if both dimensions are known and are not the same."""
    return a != b and not isinstance(a, Dim) and not isinstance(b, Dim)
