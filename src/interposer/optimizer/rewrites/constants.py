"""Constant folding."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from interposer.core.schema import Op
from interposer.core.traits import Trait
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, Use, Value
from interposer.kernels import evaluate
from interposer.ops import (
    BatchMatMul,
    BlockDequantize,
    Constant,
    Dequantize,
    FullyConnected,
    Permute,
    Transpose,
)
from interposer.rewriting.pattern import Replacement, constant, rewrite

__all__ = ["MAX_GROWTH", "MAX_REALS", "fold_constants", "folded", "folded_result", "is_packed_weight", "products_of"]

_log = logging.getLogger("interposer.optimizer")
MAX_GROWTH: Final = 1 << 20
"""The number of bytes by which a folded constant may be larger than the inputs of its layer."""
MAX_REALS: Final = 1 << 25
"""The maximum size in bytes of narrow integers that are dequantized once; larger ones are dequantized in every run."""
_FEW_BITS: Final = 16
_FEWEST_PACKED: Final = 1 << 12
"""The number of elements from which quantized weights of products stay quantized."""


@rewrite(Op)
def fold_constants(op: Op, layer: Layer) -> Replacement:
    """Replace a layer on constants by a constant, unless the result would be much larger than the inputs.

    A layer whose result is known from shape inference is replaced too. Conversions of weights are folded, except of
    large weights with few bits: those of a language model would need eight times the memory. Quantized weights of
    matrix products stay quantized here, and are unpacked later for backends that do not support them. Sequences and
    optionals are not folded.
    """
    if not op.executable or not _is_known(layer) or is_packed_weight(layer):
        return None
    return folded(layer)


def is_packed_weight(layer: Layer) -> bool:
    """Return True if a layer dequantizes a large constant of at most 8 bits that only matrix products read."""
    if not isinstance(layer.op, BlockDequantize | Dequantize) or not layer.values[0].is_constant:
        return False
    weights = layer.values[0].known
    return weights.dtype.bits <= 8 and weights.num_elements >= _FEWEST_PACKED and products_of(layer) is not None


def products_of(layer: Layer) -> list[Layer] | None:
    """Return the matrix products whose weights are the output of a layer; None if anything else reads it."""
    all_products: list[Layer] = []
    for use in layer.output.uses:
        products = [use.layer] if _is_weight(use) else products_of(use.layer) if _is_conversion(use) else None
        if products is None:
            return None
        all_products += products
    return all_products or None


def _is_weight(use: Use) -> bool:
    return use.position == 1 and isinstance(use.layer.op, BatchMatMul | FullyConnected)


def _is_conversion(use: Use) -> bool:
    return Trait.CONVERTS in use.layer.op.traits or isinstance(use.layer.op, Permute | Transpose)


def folded(layer: Layer) -> Replacement:
    """Return the constant that replaces a layer on constants; None if it is too large or cannot be computed."""
    if not _is_known(layer) or not layer.op.executable or layer.regions or not _is_small(layer):
        return None
    values = _values(layer)
    if values is None:
        return None
    arrays_and_infos = zip(values, layer.output_infos, strict=True)
    constants = tuple(constant(value, info.quantization) for value, info in arrays_and_infos)
    return constants[0] if len(constants) == 1 else constants


def folded_result(op: Op, inputs: Sequence[Value | None], info: TensorInfo) -> Array | None:
    """Return the only result, with this info, of an operator on these inputs; None as for `folded`."""
    infos = [None if value is None else value.known for value in inputs]
    arrays = [None if value is None else value.constant for value in inputs]
    if not op.executable or not all(value is None or value.is_constant for value in inputs):
        return None
    if not _are_small(op, [known for known in infos if known is not None], [info]):
        return None
    results = _evaluated(op, op.op_name(), arrays, infos, [info])
    return None if results is None else results[0]


def _is_known(layer: Layer) -> bool:
    """Return True if the layer's results are known, or if it has inputs and all are constants."""
    for value in layer.inputs:
        if value is not None and not isinstance(value.producer.op, Constant):
            return all([value.constant is not None for value in layer.outputs])
    return bool(layer.inputs) or all([value.constant is not None for value in layer.outputs])


def _is_small(layer: Layer) -> bool:
    return _are_small(layer.op, [value.known for value in layer.values], layer.output_infos)


def _are_small(op: Op, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> bool:
    """Return True if results with the infos `outputs` may replace an operator on present inputs."""
    if not outputs or not all([info.is_tensor and info.is_concrete for info in outputs]):
        return False
    output_bytes = sum([info.num_bytes for info in outputs])
    input_bytes = sum([info.num_bytes for info in inputs if info.is_concrete])
    if Trait.CONVERTS in op.traits and (inputs[0].dtype.bits >= _FEW_BITS or output_bytes <= MAX_REALS):
        return True
    return output_bytes <= max(MAX_GROWTH, input_bytes)


def _values(layer: Layer) -> list[Array] | None:
    known_arrays = [value.constant for value in layer.outputs]
    if all(array is not None for array in known_arrays):
        return [array for array in known_arrays if array is not None]
    arrays = [None if value is None else value.constant for value in layer.inputs]
    return _evaluated(layer.op, layer, arrays, layer.input_infos, layer.output_infos)


def _evaluated(
    op: Op,
    title: object,
    arrays: Sequence[Array | None],
    inputs: Sequence[TensorInfo | None],
    outputs: Sequence[TensorInfo],
) -> list[Array] | None:
    try:
        return evaluate(op, arrays, inputs, outputs)
    except Exception as error:  # what fails here fails again when the layer runs, and is reported there
        _log.info("layer %s is not folded: %s: %s", title, type(error).__name__, error)
        return None
