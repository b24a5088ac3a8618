"""The streams of C++ that PyArmNN exports: `cout`, `cerr` and `clog` write to Python's standard streams."""

from __future__ import annotations

import sys
from typing import Any, Self

from pyarmnn._proxy import Abstract

__all__ = ["cerr", "cin", "clog", "cout", "ios", "ios_base", "iostream", "istream", "ostream"]


class ios_base(Abstract, cpp="std::ios_base"):
    """A stream with the name of one of Python's standard streams."""

    _name: str

    @classmethod
    def _of(cls, name: str) -> Self:
        stream = cls._create()
        stream._name = name
        return stream

    @property
    def _file(self) -> Any:
        return getattr(sys, self._name)


class ios(ios_base, cpp="std::basic_ios< char >"):
    """A stream that can be asked for its state."""

    def good(self) -> bool:
        """Return whether the stream is open."""
        return not self._file.closed


class ostream(ios, cpp="std::basic_ostream< char >"):
    """A stream to write to."""

    def write(self, text: str, count: int | None = None) -> ostream:
        """Write a text, or its first `count` characters, and return the stream."""
        self._file.write(text[:count])
        return self

    def flush(self) -> ostream:
        """Write everything that is buffered, and return the stream."""
        self._file.flush()
        return self

    def __lshift__(self, value: object) -> ostream:
        return self.write(str(value))


class istream(ios, cpp="std::basic_istream< char >"):
    """A stream to read from."""

    def read(self, count: int) -> str:
        """Return the next characters, at most `count`."""
        return str(self._file.read(count))

    def getline(self) -> str:
        """Return the next line without its end."""
        return str(self._file.readline()).removesuffix("\n")


class iostream(istream, ostream, cpp="std::basic_iostream< char >"):
    """A stream to read from and to write to."""


cin = istream._of("stdin")
cout = ostream._of("stdout")
cerr = ostream._of("stderr")
clog = ostream._of("stderr")
