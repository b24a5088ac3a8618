"""The names of operators in other formats, taken from the ``Source:`` section of the operators' docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from interposer.core.schema import Op, registered_ops
from interposer.file_formats import process_formats

__all__ = ["ForeignName", "foreign_names", "format_that_reads", "ops_named"]

_FORMATS: Final = {
    "ONNX": r"\b[A-Z][A-Za-z0-9]+(?=-\d|\b)",
    "TFLite": r"\b[A-Z][A-Z0-9_]+\b",
    "NNAPI": r"\b[A-Z][A-Z0-9_]+\b",
    "Arm NN": r"\b[A-Z][A-Za-z0-9]+?(?=Descriptor\b)|\b[A-Z][A-Za-z0-9]+Layer\b",
}


class ForeignName(NamedTuple):
    """The name that another format (such as ONNX or TFLite) has for the operator `op` of this package."""

    format: str
    name: str
    op: type[Op]


@cache
def foreign_names() -> tuple[ForeignName, ...]:
    """Return a name for each operator of ONNX, TFLite, NNAPI and Arm NN that has a counterpart here.

    They are in the order of `registered_ops()`.
    """
    return tuple(name for op in registered_ops().values() for name in _names_of(op))


def _names_of(op: type[Op]) -> Iterator[ForeignName]:
    section = (inspect.getdoc(op) or "").partition("Source:")[2]
    format = ""
    for phrase in re.split(r"[;.]\s", " ".join(section.split())):
        named_format = next((known_format for known_format in _FORMATS if phrase.startswith(f"{known_format} ")), None)
        format, description = (
            (named_format, phrase.removeprefix(named_format)) if named_format is not None else (format, phrase)
        )
        for name in dict.fromkeys(re.findall(_FORMATS[format], description) if format else ()):
            yield ForeignName(format, name, op)


def ops_named(name: str) -> list[ForeignName]:
    """Return the names equal to `name` in other formats, ignoring case, each with the operator that it stands for."""
    return [foreign_name for foreign_name in foreign_names() if foreign_name.name.lower() == name.lower()]


def format_that_reads(name: str) -> str:
    """Return the format, such as ONNX, whose reader converts an operator of this name; empty if none does.

    This is for names that no operator here has as an equivalent, since several layers replace such an operator.
    """
    return process_formats().converting(name)
