"""The builders: a method of `Network` for every operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, get_args

from interposer.ops.control_flow import ControlFlow
from interposer.schema import Attribute, Op, annotation
from interposer.types import Array
from tools.declarations import BY_HAND, WIDTH, first_line, import_key, settable, shipped, snake_case, type_text

HEADER: Final = '''\
"""Methods that add one layer each. Written by tools/generate.py from the operators' declarations; do not edit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

{imports}

if TYPE_CHECKING:
    from interposer.ir.graph import Graph, Layer, Value
    from interposer.ir.network import Network
    from interposer.schema import Op
    from interposer.types import Array, TensorInfo

__all__ = ["Builders"]


class Builders(ABC):
    """A method for every operator: operands by position, None for one that is absent, and attributes by name."""

    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Network | Graph] = (),
    ) -> Layer:
        """Add a layer that runs `op` on `values`."""
'''


def builders_module() -> str:
    """The text of the module of builders."""
    built = [op for op in shipped() if op.op_name() not in BY_HAND]
    imports = "\n".join(_imports(built))
    return "\n".join([HEADER.format(imports=imports), *("\n".join(_method(op)) + "\n" for op in built)])


def _imports(built: list[type[Op]]) -> Iterator[str]:
    names: dict[str, set[str]] = {}
    for op in built:
        classes = [op, *(found for attribute in settable(op) for found in _classes(annotation(op, attribute.name)))]
        for found in classes:
            names.setdefault(found.__module__, set()).add(found.__name__)
    for module in sorted(names):
        if module.startswith("interposer."):
            yield from _wrapped(f"from {module} import ", sorted(names[module], key=import_key), "", brackets="()")


def _classes(hint: Any) -> Iterator[type]:
    """The classes that an annotation speaks of."""
    if get_args(hint) and hint is not Array:
        for part in get_args(hint):
            yield from _classes(part)
    elif isinstance(hint, type):
        yield hint


def _method(op: type[Op]) -> Iterator[str]:
    attributes = settable(op)
    yield from _wrapped(f"    def add_{snake_case(op.op_name())}_layer(", _parameters(op), ") -> Layer:")
    yield f'        """{_summary(op)}"""'
    made = f"{op.op_name()}()"
    if attributes:
        made = "op"
        given = [f"{attribute.name}={attribute.name}" for attribute in attributes]
        yield from _wrapped(f"        op = {op.op_name()}(", given, ")")
    values = [f"*{operand.name}" if operand.variadic else operand.name for operand in op.operands]
    tail = ["name=name", "outputs=outputs", *(["regions=regions"] if issubclass(op, ControlFlow) else [])]
    yield from _wrapped("        return self.add_layer(", [made, *values, *tail], ")")


def _summary(op: type[Op]) -> str:
    """The first sentence, or as many of its parts as fit on a line."""
    sentence = first_line(op).partition(". ")[0].rstrip(".")
    ends = [found.start() for found in re.finditer(r"[:;,]? (?=\()|[:;,] ", sentence)]
    fitting = [end for end in (*ends, len(sentence)) if end <= WIDTH - len('        """."""')]
    return f"{sentence[: max(fitting, default=0)]}."


def _parameters(op: type[Op]) -> list[str]:
    operands = [_operand_parameter(op, index) for index in range(len(op.operands))]
    attributes = [_attribute_parameter(op, attribute) for attribute in settable(op)]
    star = [] if op.operands and op.operands[-1].variadic else ["*"]
    regions = ["regions: Sequence[Network | Graph]"] if issubclass(op, ControlFlow) else []
    last = ["name: str | None = None", "outputs: Sequence[TensorInfo | None] | TensorInfo | None = None"]
    return ["self", *operands, *star, *regions, *attributes, *last]


def _operand_parameter(op: type[Op], index: int) -> str:
    operand = op.operands[index]
    if operand.variadic:
        return f"*{operand.name}: Value | Layer | None"
    followers = [other for other in op.operands[index:] if not other.variadic]
    default = " = None" if all(other.optional for other in followers) else ""
    return f"{operand.name}: Value | Layer | None{default}"


def _attribute_parameter(op: type[Op], attribute: Attribute) -> str:
    default = "" if attribute.required else f" = {_source_text(attribute.default)}"
    return f"{attribute.name}: {type_text(annotation(op, attribute.name))}{default}"


def _source_text(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, float) and not abs(value) < float("inf"):
        return f'float("{value}")'
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _wrapped(prefix: str, items: list[str], suffix: str, brackets: str = "") -> Iterator[str]:
    """A call or a list of names, laid out as the formatter does it."""
    one, indent = f"{prefix}{', '.join(items)}{suffix}", " " * (len(prefix) - len(prefix.lstrip()) + 4)
    if len(one) <= WIDTH:
        yield one
        return
    yield prefix + brackets[:1]
    if not brackets and len(f"{indent}{', '.join(items)}") <= WIDTH:
        yield f"{indent}{', '.join(items)}"
    else:
        yield from (f"{indent}{item}," for item in items)
    yield f"{indent[4:]}{brackets[1:]}{suffix}"
