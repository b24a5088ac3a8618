"""Intervals that a backend delivers as a table, whose rows become events when somebody reads them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Rows"]


class Rows(ABC):
    """A table of `count` intervals, which is stored as it is while something records. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._fields: list[Any] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def convert(self) -> list[Any]:
        """Return site, begin, end and thread of each interval, as a flat list."""

    @property
    def fields(self) -> list[Any]:
        """The intervals as a flat list, which is created by the first access."""
        with self._lock:
            if self._fields is None:
                self._fields = self.convert()
            return self._fields
