"""Values of inputs that a compiled part cannot use: the layer, the operand and the element that a plug-in names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.traits import Role
from interposer.core.types import Dim, TensorInfo
from interposer.ir.graph import Layer
from interposer.kernels.operand_values import range_text, refuse_value
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.flatten import FlatGraph

__all__ = ["Sites", "invalid_value", "sites_of"]


class _Operand(NamedTuple):
    """An operand of a layer: its name, the name of the tensor, and its shape if that is known."""

    name: str
    tensor: str
    shape: tuple[int, ...] | None


class Site(NamedTuple):
    """A layer of a compiled graph, by name and by name and kind, that may refuse values of its operands."""

    layer: str
    title: str
    operands: tuple[_Operand | None, ...]


Sites: TypeAlias = Mapping[int, Site]
"""The layers of a compiled graph that may refuse values, by their index in the graph."""


def sites_of(graph: object) -> Sites:
    """Return the layers of a compiled graph that have indices or sizes as operands; empty for graphs without names."""
    layers = graph.layers if isinstance(graph, FlatGraph) else ()
    return {number: _site(layer) for number, layer in enumerate(layers) if _may_refuse(layer)}


def _may_refuse(layer: Layer) -> bool:
    return any(operand.role in (Role.INDICES, Role.SIZES) for operand in layer.op.operands)


def _site(layer: Layer) -> Site:
    operands = [
        None if value is None else _Operand(layer.op.operand_name(index), value.name, _shape(value.info))
        for index, value in enumerate(layer.inputs)
    ]
    return Site(layer.name, str(layer), tuple(operands))


def _shape(info: TensorInfo | None) -> tuple[int, ...] | None:
    if info is None or not info.is_concrete:
        return None
    return tuple(int(size) for size in info.shape if not isinstance(size, Dim))


def invalid_value(error: CallError, sites: Sites) -> InvalidValueError:
    """Return the error for a value of the inputs that a plug-in cannot use, as it describes it in `error`."""
    site = sites.get(error.item_index) if error.item_kind == abi.ITEM_LAYER else None
    message, wrong_value = error.message or "a value of the inputs cannot be used", error.wrong_value
    if site is None:
        return _of_unknown_layer(error, message)
    operand = None if wrong_value is None else _operand(site, wrong_value.operand)
    if operand is None or wrong_value is None or wrong_value.value is None:
        return InvalidValueError(message).of_layer(site.title, layer=site.layer, backend=error.backend)
    position, allowed_range = _position(wrong_value.element, operand.shape), (wrong_value.lowest, wrong_value.highest)
    requirement = message if allowed_range == (None, None) else range_text(*allowed_range)
    try:
        refuse_value(operand.name, wrong_value.value, requirement, position=position, allowed=allowed_range)
    except InvalidValueError as refusal:
        return refusal.of_layer(site.title, layer=site.layer, backend=error.backend, tensor=operand.tensor)


def _of_unknown_layer(error: CallError, message: str) -> InvalidValueError:
    """Return the error for a graph whose names are not known, because it was compiled in another process."""
    wrong_value = error.wrong_value
    if wrong_value is None:
        return InvalidValueError(message, backend=error.backend)
    allowed_range = (
        None if wrong_value.lowest is wrong_value.highest is None else (wrong_value.lowest, wrong_value.highest)
    )
    return InvalidValueError(message, backend=error.backend, value=wrong_value.value, allowed=allowed_range)


def _operand(site: Site, number: int | None) -> _Operand | None:
    return site.operands[number] if number is not None and 0 <= number < len(site.operands) else None


def _position(element: int | None, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the index of an element that is counted in row-major order; None if a tensor of this shape has none."""
    if element is None or shape is None or not 0 <= element < math.prod(shape):
        return None
    return tuple(int(index) for index in np.unravel_index(element, shape))
