"""`SwigPyIterator`: an iterator over a vector of this interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyarmnn._proxy import Abstract

__all__ = ["SwigPyIterator"]


class SwigPyIterator(Abstract, cpp="swig::SwigPyIterator"):
    """An iterator that the method `iterator` of a vector returns."""

    _items: Sequence[Any]
    _position: int

    @classmethod
    def _of(cls, items: Iterable[Any]) -> SwigPyIterator:
        iterator = cls._create()
        iterator._items, iterator._position = list(items), 0
        return iterator

    def value(self) -> Any:
        """Return the current element.

        Raises:
            StopIteration: the iterator is after the last element.
        """
        if not 0 <= self._position < len(self._items):
            raise StopIteration
        return self._items[self._position]

    def incr(self, n: int = 1) -> SwigPyIterator:
        """Move forward, and return the iterator."""
        self._position += n
        return self

    def decr(self, n: int = 1) -> SwigPyIterator:
        """Move backward, and return the iterator."""
        return self.incr(-n)

    def next(self) -> Any:
        """Return the current element, and move forward."""
        element = self.value()
        self.incr()
        return element

    def previous(self) -> Any:
        """Move backward, and return the element."""
        return self.decr().value()

    def __next__(self) -> Any:
        return self.next()

    def __iter__(self) -> Iterator[Any]:
        return self
