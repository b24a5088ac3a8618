"""What a layer computes, and in which data types: the keys of tables about operators, such as the errors of engines."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op
from interposer.core.traits import Role
from interposer.ir.graph import Layer, Value
from interposer.ir.signatures import settable_attributes

__all__ = ["label_of", "numbers_of", "pair_of", "types_of"]

_MODES: Final = ("operation", "function", "pool_type", "method")
"""Attributes that decide what an operator computes."""
_COMPUTED: Final = frozenset({Role.DATA, Role.WEIGHTS, Role.BIAS, Role.PARAMETER})


def label_of(op: Op) -> str:
    """Return the operator's name with the function that it computes, such as "Activation.RELU" or "Addition"."""
    op = op.canonical()
    names = {attribute.name for attribute in settable_attributes(type(op))}
    modes = (getattr(op, name) for name in _MODES if name in names)
    return ".".join([op.op_name(), *(mode.name for mode in modes if isinstance(mode, Enum))])


def types_of(layer: Layer) -> str | None:
    """Return the data types that a layer computes with, such as "int64", or "int64 -> bool" if its results differ.

    Indices, sizes and conditions do not count. None if a tensor is quantized, or a value is no tensor.
    """
    infos = [value.known for value in (*numbers_of(layer), *layer.outputs)]
    if any(not info.is_tensor or info.is_quantized for info in infos):
        return None
    input_types, output_types = _names(numbers_of(layer)), _names(layer.outputs)
    return input_types if input_types == output_types else f"{input_types} -> {output_types}"


def pair_of(first: Layer, second: Layer) -> tuple[str, str | None]:
    """Return the labels of two layers, and the types that they compute with, as one text each.

    For example ``("Minimum, Maximum", "int32")`` or ``("Cast, Reduce.MEAN", "int32 -> float16, float16")``. There are
    no types if `types_of` returns None for one of the layers.
    """
    labels, kinds = f"{label_of(first.op)}, {label_of(second.op)}", (types_of(first), types_of(second))
    return labels, None if None in kinds else ", ".join(dict.fromkeys(kind for kind in kinds if kind is not None))


def _names(values: Sequence[Value]) -> str:
    return ", ".join(dict.fromkeys(str(value.known.dtype) for value in values))


def numbers_of(layer: Layer) -> list[Value]:
    """Return the operands that a layer computes with: those that are no indices, sizes or conditions."""
    values = enumerate(layer.inputs)
    return [value for index, value in values if value is not None and layer.op.role(index) in _COMPUTED]
