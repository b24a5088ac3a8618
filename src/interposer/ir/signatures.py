"""The signatures of the methods of `Network` that add one layer each, as source text from operators' declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, get_args, get_origin

import interposer.ops  # noqa: F401 - the operators register themselves
from interposer.core.schema import Attribute, Op, annotation, registered_ops
from interposer.core.types import Array
from interposer.ops.control_flow import ControlFlow

__all__ = [
    "attribute_classes",
    "builder_arguments",
    "builder_name",
    "builder_parameters",
    "builder_summary",
    "built_operators",
    "settable_attributes",
    "type_text",
]

WITHOUT_BUILDER: Final = frozenset({"Input", "Output", "Constant"})
"""Operators whose method `Network` defines itself, because it has more parameters than operands and attributes."""


def built_operators() -> list[type[Op]]:
    """Return the operators of this package that have a builder, sorted by family and name."""
    built_in = [op for op in registered_ops().values() if op.__module__.startswith("interposer.ops.")]
    return sorted(
        (op for op in built_in if op.op_name() not in WITHOUT_BUILDER), key=lambda op: (op.family, op.op_name())
    )


def builder_name(op: type[Op]) -> str:
    """Return the name of an operator's method: ``add_space_to_batch_nd_layer`` for ``SpaceToBatchNd``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op.op_name()).lower()
    return f"add_{words}_layer"


def builder_summary(op: type[Op]) -> str:
    """Return the first sentence of an operator's docstring."""
    return f"{(op.__doc__ or '').strip().partition(chr(10))[0].partition('. ')[0].rstrip('.')}."


def builder_parameters(op: type[Op]) -> list[str]:
    """Return the parameters of the method that adds a layer of this operator, as source text, ``self`` first.

    One of them is, for example, ``axis: int = -1``.
    """
    operands = [_operand_parameter(op, index) for index in range(len(op.operands))]
    attributes = [_attribute_parameter(op, attribute) for attribute in settable_attributes(op)]
    star = [] if op.operands and op.operands[-1].variadic else ["*"]
    regions = ["regions: Sequence[Network | Graph]"] if issubclass(op, ControlFlow) else []
    common_parameters = ["name: str | None = None", "outputs: Sequence[TensorInfo | None] | TensorInfo | None = None"]
    return ["self", *operands, *star, *regions, *attributes, *common_parameters]


def builder_arguments(op: type[Op]) -> list[str]:
    """Return the arguments that the method of this operator passes to `Builders.add_layer`, as source text.

    The first one creates the operator from its attributes, as in ``Softmax(axis=axis)``.
    """
    attributes = ", ".join(f"{attribute.name}={attribute.name}" for attribute in settable_attributes(op))
    values = [f"*{operand.name}" if operand.variadic else operand.name for operand in op.operands]
    regions = ["regions=regions"] if issubclass(op, ControlFlow) else []
    return [f"{op.op_name()}({attributes})", *values, "name=name", "outputs=outputs", *regions]


def settable_attributes(op: type[Op]) -> list[Attribute]:
    """Return the attributes of an operator that its method takes: all but those with a single allowed value."""
    return [attribute for attribute in op.attributes.values() if len(attribute.choices or (1, 2)) > 1]


def attribute_classes(op: type[Op]) -> Iterator[type]:
    """Yield the classes that the annotations of an operator's attributes name."""
    for attribute in settable_attributes(op):
        yield from _classes(annotation(op, attribute.name))


def _classes(hint: Any) -> Iterator[type]:
    if get_args(hint) and hint is not Array:
        for part in get_args(hint):
            yield from _classes(part)
    elif isinstance(hint, type):
        yield hint


def _operand_parameter(op: type[Op], index: int) -> str:
    operand = op.operands[index]
    if operand.variadic:
        return f"*{operand.name}: Value | Layer | None"
    followers = [follower for follower in op.operands[index:] if not follower.variadic]
    default = " = None" if all(follower.optional for follower in followers) else ""
    return f"{operand.name}: Value | Layer | None{default}"


def _attribute_parameter(op: type[Op], attribute: Attribute) -> str:
    hint = type_text(annotation(op, attribute.name))
    if attribute.by:
        return f"{attribute.name}: {hint} | None = None"
    default = "" if attribute.required else f" = {_source_text(attribute.default)}"
    return f"{attribute.name}: {hint}{default}"


def type_text(hint: Any) -> str:
    """Return a type annotation as source text, such as ``tuple[int, ...] | None``."""
    if hint is Array:
        return "Array"
    if hint is type(None) or hint is Ellipsis:
        return "None" if hint is not Ellipsis else "..."
    argument_texts = [type_text(part) for part in get_args(hint)]
    if get_origin(hint) is tuple:
        return f"tuple[{', '.join(argument_texts)}]"
    if argument_texts:
        return " | ".join(argument_texts)
    return str(getattr(hint, "__name__", hint))


def _source_text(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, float) and not abs(value) < float("inf"):
        return f'float("{value}")'
    return f'"{value}"' if isinstance(value, str) else repr(value)
