"""The source of the generated files: the operators, and the parts of their declarations as text."""

from __future__ import annotations

import inspect
import re
from typing import Final

import interposer.ops  # noqa: F401 - the operators register themselves
from interposer.core.schema import Op, registered_ops

WIDTH: Final = 120


def shipped() -> list[type[Op]]:
    """Return the operators of this package, by family and name."""
    own = [op for op in registered_ops().values() if op.__module__.startswith("interposer.ops.")]
    return sorted(own, key=lambda op: (op.family, op.op_name()))


def import_key(name: str) -> tuple[bool, str]:
    """Return the sort key of imported names: constants first."""
    return not name.isupper(), name


def docstring_sections(op: type[Op]) -> dict[str, str]:
    """Return the sections of an operator's docstring by title; the text before the first title has the key ""."""
    sections, title = {"": [""]}, ""
    for line in (inspect.getdoc(op) or "").splitlines():
        heading = re.fullmatch(r"((?:Shapes|Example|Source)\b.*):", line)
        title = heading[1] if heading else title
        sections.setdefault(title, [])
        if not heading:
            sections[title].append(line)
    return {title: inspect.cleandoc("\n".join(["", *lines])) for title, lines in sections.items()}


def first_line(op: type[Op]) -> str:
    """Return the first sentence of an operator's docstring."""
    return (inspect.getdoc(op) or "").partition("\n")[0]
