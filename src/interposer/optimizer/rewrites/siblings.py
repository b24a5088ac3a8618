"""Detection of equal layers on equal inputs, including constants."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from interposer.core.traits import Trait
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops import Constant, Input, Output, PreCompiled, StandIn

__all__ = ["equal_layers"]

SAMPLED: Final = 64
"""The approximate number of elements of a constant in its hash key; equal keys are followed by a full comparison."""


def equal_layers(graph: Graph) -> Iterator[tuple[Layer, tuple[Value, ...]]]:
    """Yield every layer that repeats the computation of an earlier layer, with the earlier layer's outputs.

    The graph is not changed. The earlier layers are never replaced themselves, so the order of the pairs is arbitrary.
    """
    order = graph.topological()
    constant_keys = {
        layer: _constant_key(layer.op, layer.output.info) for layer in order if isinstance(layer.op, Constant)
    }
    key_counts = Counter(constant_keys.values())
    replaced_by: dict[Value, Value] = {}
    first_by_cheap_key: dict[Hashable, Layer] = {}
    first_by_full_key: dict[Hashable, Layer] = {}
    for layer in order:
        if not _may_be_shared(layer) or (layer in constant_keys and key_counts[constant_keys[layer]] == 1):
            continue
        cheap_key = _cheap_key(layer, replaced_by)
        earlier_layer = first_by_cheap_key.setdefault(cheap_key, layer)
        if earlier_layer is layer:
            continue
        first_by_full_key.setdefault((cheap_key, _expensive_key(earlier_layer)), earlier_layer)
        original_layer = first_by_full_key.setdefault((cheap_key, _expensive_key(layer)), layer)
        if original_layer is not layer:
            replaced_by.update(zip(layer.outputs, original_layer.outputs, strict=True))
            yield layer, original_layer.outputs


def _may_be_shared(layer: Layer) -> bool:
    if not layer.op.pure or isinstance(layer.op, Input | Output | StandIn | PreCompiled):
        return False
    return bool(layer.outputs) and not layer.regions


def _constant_key(op: Constant, info: TensorInfo | None) -> Hashable:
    """Return a hash key that is cheap to compute and the same for equal constants: info and some of the elements."""
    array = op.value
    if array.dtype.kind == "O":
        return info
    return info, array.reshape(-1)[:: max(1, array.size // SAMPLED)].tobytes()


def _cheap_key(layer: Layer, replaced_by: Mapping[Value, Value]) -> Hashable:
    """Return the part of a layer's key that is cheap, and that few layers have in common."""
    if isinstance(layer.op, Constant):
        return _digest(layer.op.value)
    inputs = [None if value is None else replaced_by.get(value, value) for value in layer.inputs]
    if len(inputs) > 1 and Trait.COMMUTATIVE in layer.op.traits:
        inputs[:2] = sorted(inputs[:2], key=id)
    return type(layer.op), tuple(inputs)


def _expensive_key(layer: Layer) -> Hashable:
    op_or_type = Constant if isinstance(layer.op, Constant) else layer.op
    return op_or_type, layer.output_infos, layer.hint, layer.backend


def _digest(array: Array) -> Hashable:
    if array.dtype.kind == "O":
        return tuple(array.ravel().tolist())
    return hashlib.blake2b(array.tobytes()).digest()
