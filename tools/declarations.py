"""What the generated files are made from: the operators, and the parts of their declarations in words."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, get_args, get_origin

import interposer.ops  # noqa: F401 - the operators register themselves
from interposer.schema import Attribute, Op, registered_ops
from interposer.types import Array

WIDTH: Final = 120
BY_HAND: Final = frozenset({"Input", "Output", "Constant"})


def shipped() -> list[type[Op]]:
    """The operators of this package, by family and name."""
    own = [op for op in registered_ops().values() if op.__module__.startswith("interposer.ops.")]
    return sorted(own, key=lambda op: (op.family, op.op_name()))


def settable(op: type[Op]) -> list[Attribute]:
    """The attributes that have more than one allowed value."""
    return [attribute for attribute in op.attributes.values() if len(attribute.choices or (1, 2)) > 1]


def import_key(name: str) -> tuple[bool, str]:
    """What imported names are sorted by: constants first."""
    return not name.isupper(), name


def snake_case(name: str) -> str:
    """``SpaceToBatchNd`` as ``space_to_batch_nd``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def type_text(hint: Any) -> str:
    """An annotation as it is written."""
    if hint is Array:
        return "Array"
    if hint is type(None) or hint is Ellipsis:
        return "None" if hint is not Ellipsis else "..."
    parts = [type_text(part) for part in get_args(hint)]
    if get_origin(hint) is tuple:
        return f"tuple[{', '.join(parts)}]"
    if parts:
        return " | ".join(parts)
    return str(getattr(hint, "__name__", hint))


def docstring_sections(op: type[Op]) -> dict[str, str]:
    """The parts of an operator's docstring by their titles; what stands before the first title has none."""
    found, title = {"": [""]}, ""
    for line in (inspect.getdoc(op) or "").splitlines():
        heading = re.fullmatch(r"((?:Shapes|Example|Source)\b.*):", line)
        title = heading[1] if heading else title
        found.setdefault(title, [])
        if not heading:
            found[title].append(line)
    return {title: inspect.cleandoc("\n".join(["", *lines])) for title, lines in found.items()}


def first_line(op: type[Op]) -> str:
    """The first sentence of an operator's docstring."""
    return (inspect.getdoc(op) or "").partition("\n")[0]
