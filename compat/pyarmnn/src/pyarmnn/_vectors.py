"""Lists and pairs that PyArmNN wraps: lists of ids, shapes and tensors, and pairs of a binding id and a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pyarmnn._backend_id import BackendId
from pyarmnn._iterators import SwigPyIterator
from pyarmnn._proxy import Proxy
from pyarmnn._tensors import ConstTensor, Tensor

__all__ = [
    "BackendIdSet",
    "BackendIdVector",
    "ConstTensorPair",
    "InputTensorsVector",
    "IntPair",
    "OutputTensorsVector",
    "TensorPair",
    "TensorShapeVector",
]


class Vector(Proxy, list[Any], module=None, destructor=False):
    """A list with the methods of ``std::vector``; functions of this package take plain lists as well."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        list.__init__(self, items)

    __repr__ = Proxy.__repr__

    def push_back(self, x: Any) -> None:
        """Add an element at the end."""
        self.append(x)

    def pop_back(self) -> None:
        """Remove the last element."""
        self.pop()

    def iterator(self) -> SwigPyIterator:
        """Return an iterator at the first element."""
        return SwigPyIterator._of(self)

    def front(self) -> Any:
        """Return the first element."""
        return self[0]

    def back(self) -> Any:
        """Return the last element."""
        return self[-1]

    def empty(self) -> bool:
        """Return whether there is no element."""
        return not self

    def size(self) -> int:
        """Return the number of elements."""
        return len(self)

    def assign(self, n: int, x: Any) -> None:
        """Replace all elements by `n` times the same."""
        self[:] = [x] * n

    def swap(self, v: Vector) -> None:
        """Swap all elements with those of another vector."""
        self[:], v[:] = list(v), list(self)


class BackendIdVector(Vector, cpp="std::vector< armnn::BackendId >"):
    """A list of `BackendId`."""


class TensorShapeVector(Vector, cpp="std::vector< armnn::TensorShape >"):
    """A list of `TensorShape`."""


class InputTensorsVector(Vector, cpp="std::vector< std::pair< int,armnn::ConstTensor > >"):
    """A list of pairs of a binding id and a `ConstTensor`."""


class OutputTensorsVector(Vector, cpp="std::vector< std::pair< int,armnn::Tensor > >"):
    """A list of pairs of a binding id and a `Tensor`."""


class BackendIdSet(Proxy, cpp="std::unordered_set< armnn::BackendId >"):
    """A set of `BackendId`, in the order in which they were added."""

    def __init__(self, items: Iterable[BackendId] = ()) -> None:
        self._items = dict.fromkeys(items)

    def append(self, x: BackendId) -> None:
        """Add an id."""
        self._items[x] = None

    insert = append

    def clear(self) -> None:
        """Remove all ids."""
        self._items.clear()

    def empty(self) -> bool:
        """Return whether there is no id."""
        return not self._items

    def size(self) -> int:
        """Return the number of ids."""
        return len(self._items)

    def count(self, x: BackendId) -> int:
        """Return 1 if the id is in the set, else 0."""
        return int(x in self._items)

    def __contains__(self, x: object) -> bool:
        return x in self._items

    def __getitem__(self, i: int) -> BackendId:
        return list(self._items)[i]

    def __iter__(self) -> Iterator[BackendId]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Pair(Proxy, module=None, destructor=False):
    """A pair, whose elements are `first` and `second`."""

    _empty: ClassVar[Any] = None

    def __init__(self, *args: Any) -> None:
        values = list(args[0]) if len(args) == 1 else list(args) or [0, self._empty()]
        if len(values) != 2:
            raise TypeError(f"a pair has two elements, not {len(values)}")
        self.first, self.second = values

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.first, self.second)[index]

    def __setitem__(self, index: int, val: Any) -> None:
        setattr(self, ("first", "second")[index], val)


class IntPair(Pair, cpp="std::pair< int,int >"):
    """A pair of integers."""

    _empty = int


class TensorPair(Pair, cpp="std::pair< int,armnn::Tensor >"):
    """A pair of a binding id and a `Tensor`."""

    _empty = Tensor


class ConstTensorPair(Pair, cpp="std::pair< int,armnn::ConstTensor >"):
    """A pair of a binding id and a `ConstTensor`."""

    _empty = ConstTensor
