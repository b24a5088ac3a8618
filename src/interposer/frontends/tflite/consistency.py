"""Semantic checks of a TFLite model beyond the validity of its bytes; the first error is a `ParseError`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final, NoReturn

import numpy as np

from interposer.core.errors import ParseError
from interposer.frontends.tflite.contents import (
    Model,
    Operator,
    QuantizationParameters,
    Signature,
    Subgraph,
    Tensor,
    byte_size,
    numpy_dtype,
    packed_bits,
)

__all__ = ["called", "check_model", "integer_range"]

MAX_RANK: Final = 8
MAX_ELEMENTS: Final = 2**40
ABSENT: Final = -1


def check_model(model: Model) -> None:
    """Raise a `ParseError` unless every index, size and order in the model is valid."""
    if not model.subgraphs:
        _fail("the model has no subgraph", "subgraphs")
    for i, metadata in enumerate(model.metadata):
        _check_index(metadata.buffer, len(model.buffers), "buffer", f"metadata[{i}].buffer")
    for i, subgraph in enumerate(model.subgraphs):
        _check_subgraph(model, subgraph, f"subgraphs[{i}]")
    for i, signature in enumerate(model.signatures):
        _check_signature(model, signature, f"signature_defs[{i}]")
    _check_calls(model)


def _fail(message: str, where: str) -> NoReturn:
    raise ParseError(message, where=where)


def _check_index(index: int, count: int, title: str, where: str) -> None:
    if not 0 <= index < count:
        _fail(f"{title} {index} does not exist; there are {count}", where)


def _check_indices(indices: Iterable[int], count: int, where: str, *, optional: bool = False) -> None:
    for i, index in enumerate(indices):
        if not (optional and index == ABSENT):
            _check_index(index, count, "tensor", f"{where}[{i}]")


def _check_subgraph(model: Model, subgraph: Subgraph, where: str) -> None:
    for i, tensor in enumerate(subgraph.tensors):
        _check_tensor(model, tensor, f"{where}.tensors[{i}]")
        _check_blocks(subgraph, tensor, f"{where}.tensors[{i}].quantization.details")
    count = len(subgraph.tensors)
    _check_indices(subgraph.inputs, count, f"{where}.inputs")
    _check_indices(subgraph.outputs, count, f"{where}.outputs")
    for operator in subgraph.operators:
        _check_indices(operator.inputs, count, f"{operator.where}.inputs", optional=True)
        _check_indices(operator.outputs, count, f"{operator.where}.outputs")
        _check_indices(operator.intermediates, count, f"{operator.where}.intermediates", optional=True)
    _check_order(model, subgraph, where)


def _check_tensor(model: Model, tensor: Tensor, where: str) -> None:
    _check_shape(tensor, where)
    if tensor.buffer:
        _check_index(tensor.buffer, len(model.buffers), "buffer", f"{where}.buffer")
    _check_data(model, tensor, f"{where}.buffer")
    if tensor.quantization and not tensor.quantization.details:
        _check_quantization(tensor, tensor.quantization, f"{where}.quantization")


def _check_blocks(subgraph: Subgraph, tensor: Tensor, where: str) -> None:
    blocks = tensor.quantization.blocks if tensor.quantization else None
    if blocks is not None:
        _check_index(blocks.scales, len(subgraph.tensors), "tensor", f"{where}.scales")
        _check_indices([blocks.zero_points], len(subgraph.tensors), f"{where}.zero_points", optional=True)


def _check_shape(tensor: Tensor, where: str) -> None:
    shape = tensor.shape
    if len(shape) > MAX_RANK:
        _fail(f"rank {len(shape)}; at most {MAX_RANK} is possible", f"{where}.shape")
    if any(size < 0 for size in shape):
        _fail(f"negative size in {list(shape)}", f"{where}.shape")
    if math.prod(size or 1 for size in shape) >= MAX_ELEMENTS:
        _fail(f"{list(shape)} has more elements than are possible", f"{where}.shape")


def _check_data(model: Model, tensor: Tensor, where: str) -> None:
    buffer_bytes = model.buffer_data(tensor.buffer)
    if buffer_bytes is None:
        return
    if tensor.is_variable:
        _fail("a variable with constant data", where)
    size = byte_size(tensor.dtype, tensor.elements)
    if size not in (None, len(buffer_bytes)) and not tensor.is_sparse:
        _fail(f"{len(buffer_bytes)} bytes of data; {tensor.dtype} {list(tensor.shape)} takes {size}", where)


def _check_quantization(tensor: Tensor, quantization_parameters: QuantizationParameters, where: str) -> None:
    if [scale for scale in quantization_parameters.scales if not 0 <= scale < math.inf]:
        _fail("a scale that is negative or not finite", f"{where}.scale")
    if len(quantization_parameters.zero_points) != len(quantization_parameters.scales):
        _fail(
            f"{len(quantization_parameters.zero_points)} zero points for {len(quantization_parameters.scales)} scales",
            f"{where}.zero_point",
        )
    if quantization_parameters.axis is not None:
        _check_index(quantization_parameters.axis, len(tensor.shape), "dimension", f"{where}.quantized_dimension")
        if len(quantization_parameters.scales) != tensor.shape[quantization_parameters.axis]:
            _fail(
                f"{len(quantization_parameters.scales)} scales for {tensor.shape[quantization_parameters.axis]} slices",
                f"{where}.scale",
            )
    low, high = integer_range(tensor.dtype)
    if not low <= min(quantization_parameters.zero_points) <= max(quantization_parameters.zero_points) <= high:
        _fail(f"a zero point outside of {tensor.dtype}", f"{where}.zero_point")


def integer_range(dtype: str) -> tuple[float, float]:
    """Return the smallest and largest value of the tensor type `dtype`; infinite bounds if it is no integer type."""
    bits = packed_bits(dtype)
    if bits:
        return (0, (1 << bits) - 1) if dtype.startswith("u") else (-1 << bits - 1, (1 << bits - 1) - 1)
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None or numpy_type.kind not in "iu":
        return -math.inf, math.inf
    return np.iinfo(numpy_type).min, np.iinfo(numpy_type).max


def _check_order(model: Model, subgraph: Subgraph, where: str) -> None:
    """Raise a `ParseError` unless every tensor of a subgraph has at most one producer, which precedes its consumers."""
    constant = {i for i, tensor in enumerate(subgraph.tensors) if model.buffer_data(tensor.buffer) is not None}
    variables = {i for i, tensor in enumerate(subgraph.tensors) if tensor.is_variable}
    computed_tensors = constant | variables | subgraph.empty_constants() | set(subgraph.inputs)
    assigned_tensors = constant | set(subgraph.inputs)
    for operator in subgraph.operators:
        _check_ready(operator.inputs, computed_tensors, f"{operator.where}.inputs")
        for i, index in enumerate(operator.outputs):
            if index in assigned_tensors:
                _fail(f"tensor {index} has its value from elsewhere already", f"{operator.where}.outputs[{i}]")
            assigned_tensors.add(index)
        computed_tensors.update(operator.outputs)
    _check_ready(subgraph.outputs, computed_tensors, f"{where}.outputs")


def _check_ready(indices: Iterable[int], computed_tensors: set[int], where: str) -> None:
    for i, index in enumerate(indices):
        if index not in computed_tensors and index != ABSENT:
            _fail(f"tensor {index} has no value: it is no constant, variable, input or earlier result", f"{where}[{i}]")


def _check_signature(model: Model, signature: Signature, where: str) -> None:
    _check_index(signature.subgraph, len(model.subgraphs), "subgraph", f"{where}.subgraph_index")
    count = len(model.subgraphs[signature.subgraph].tensors)
    _check_indices(signature.inputs.values(), count, f"{where}.inputs")
    _check_indices(signature.outputs.values(), count, f"{where}.outputs")


def called(operator: Operator) -> Iterator[tuple[str, int]]:
    """Yield a pair for each subgraph that the operator runs: the name of the option with its index, and the index."""
    for name, setting in operator.attributes.items():
        if name.endswith("subgraph_index") or name == "subgraph":
            yield name, setting
        elif name == "branch_subgraph_indices":
            yield from ((name, number) for number in setting or ())


def _check_calls(model: Model) -> None:
    """Raise a `ParseError` unless all called subgraphs exist and no subgraph calls itself, directly or indirectly."""
    callees: dict[int, set[int]] = {}
    for i, subgraph in enumerate(model.subgraphs):
        for operator in subgraph.operators:
            for name, index in called(operator):
                _check_index(index, len(model.subgraphs), "subgraph", f"{operator.where}.{name}")
                callees.setdefault(i, set()).add(index)
    try:
        TopologicalSorter(callees).prepare()
    except CycleError as error:
        _fail(f"subgraph {error.args[1][0]} calls itself", "subgraphs")
