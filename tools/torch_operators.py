"""The reference page of the operators that the PyTorch front end converts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import interposer.frontends.torch  # noqa: F401 - its modules register the converters
from interposer.frontends.torch.registry import find, names, refusal, refusals

__all__ = ["torch_page"]

HEAD: Final = """# PyTorch: operators

<!-- Written by tools/generate.py; do not edit. -->

This page lists the operators of exported programs that are converted, with their overloads and the module of the
converter. PyTorch decomposes all other operators to these if it can, before the program is read. An overload that also
takes complex numbers is marked with `*`. [The guide](../torch.md) describes how programs are read.

| operator | overloads | family | conversion |
| --- | --- | --- | --- |
"""
REFUSED: Final = """
## Refused

These operators are known, but not supported.

| operator | reason |
| --- | --- |
"""


def torch_page() -> str:
    """Return the page in Markdown: a table with a row for each operator, and one of the operators that are refused."""
    return HEAD + "".join(_rows()) + REFUSED + "".join(f"| {name} | {refusal(name)} |\n" for name in refusals())


def _rows() -> Iterator[str]:
    for packet, overloads in groupby(names(), key=lambda name: ".".join(name.split(".")[:2])):
        listed = list(overloads)
        entry = find(listed[0]) or find(listed[0], complex_numbers=True)
        assert entry is not None
        line = (inspect.getdoc(entry.convert) or "").partition("\n")[0].replace("|", "\\|")
        family = entry.convert.__module__.rpartition(".")[2]
        yield f"| {packet} | {', '.join(map(_overload, listed))} | {family} | {line} |\n"


def _overload(name: str) -> str:
    mark = r"\*" if find(name, complex_numbers=True) is not None else ""
    return (name.split(".")[2:3] or ["default"])[0] + mark
