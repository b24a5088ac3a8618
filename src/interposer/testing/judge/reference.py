"""Evaluation of a network with the reference kernels, layer by layer, in the declared types or in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interposer.core.errors import InterposerError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.states import input_value
from interposer.kernels.evaluation import evaluate
from interposer.ops.control import Constant, Input, Output
from interposer.optimizer import OptimizerOptions, optimize
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.runtime import Runtime
from interposer.testing.oracle import Oracle, layer_values
from interposer.testing.single_layers import layer_alone

__all__ = ["ValueArrays", "all_values", "computing_layers", "evaluate_layer", "evaluate_widely"]

ValueArrays = dict[Value, Array]


def computing_layers(graph: Graph) -> list[Layer]:
    """Return the layers of a graph except inputs, outputs and constants, in an order in which they can run."""
    return [layer for layer in graph.topological() if not isinstance(layer.op, Constant | Input | Output)]


def all_values(graph: Graph, feeds: Mapping[int, Array]) -> ValueArrays:
    """Return every value of a graph as the reference kernels compute it.

    Args:
        graph: a graph whose tensor infos are inferred.
        feeds: the arrays of the inputs by binding id.

    Raises:
        InterposerError: the reference cannot compute a layer on these arrays.
    """
    values = border_values(graph, feeds)
    for layer in computing_layers(graph):
        values.update(zip(layer.outputs, evaluate_layer(layer, values), strict=True))
    return values


def border_values(graph: Graph, feeds: Mapping[int, Array]) -> ValueArrays:
    """Return the arrays of a graph's inputs, taken from `feeds` by binding id, and of its constants."""
    values = {layer.output: input_value(layer, feeds) for layer in graph.sources}
    values.update({layer.output: layer.op.value for layer in graph if isinstance(layer.op, Constant)})
    return values


def evaluate_layer(layer: Layer, values: Mapping[Value, Array]) -> list[Array]:
    """Return the results of one layer on known arrays; control flow runs in a separate runtime."""
    if not layer.regions:
        return layer_values(layer, values)
    network, feeds = layer_alone(layer, values)
    registry = BackendRegistry()
    registry.register(Oracle.id, Oracle)
    with Runtime() as runtime:
        optimized = optimize(network, [Oracle.id], DeviceSpec(registry), OptimizerOptions(rewrite=False))
        results = runtime.enqueue_workload(runtime.load_network(optimized), feeds)
    return [results[value.index] for value in layer.outputs]


def evaluate_widely(layer: Layer, values: Mapping[Value, Array]) -> list[Array]:
    """Return the results of one layer on the arrays in `values`, computed in float64 in place of narrower floats.

    If its reference kernel does not support that, the layer is computed in its declared types, on arrays that are
    rounded to these types.
    """
    try:
        return _in_float64(layer, values)
    except (InterposerError, ArithmeticError, ValueError, TypeError):
        return evaluate_layer(layer, {value: narrowed(values[value], value.known) for value in layer.values})


def _in_float64(layer: Layer, values: Mapping[Value, Array]) -> list[Array]:
    arrays = [None if value is None else widened(values[value], value.known) for value in layer.inputs]
    values_and_arrays = zip(layer.inputs, arrays, strict=True)
    infos = [None if value is None or array is None else _wide_info(value, array) for value, array in values_and_arrays]
    outputs = []
    for value, info in zip(layer.outputs, layer.op.infer_infos(*infos), strict=True):
        assert info is not None
        declared_info = value.known
        if info.dtype is not declared_info.dtype and not (
            declared_info.dtype.is_float and info.dtype is DataType.FLOAT64
        ):
            raise TypeError(info.dtype)
        outputs.append(TensorInfo(info.shape, info.dtype, declared_info.quantization, None, info.element))
    return evaluate(layer.op, arrays, infos, outputs)


def _wide_info(value: Value, array: Array) -> TensorInfo:
    info = value.known
    dtype = DataType.of(array.dtype) if info.element is None else info.dtype
    constant = array if info.constant is not None else None
    return TensorInfo(array.shape, dtype, info.quantization, constant, info.element)


def widened(array: Array, info: TensorInfo) -> Array:
    """Return an array of floats as float64, and any other array unchanged; `info` is that of its tensor."""
    return array.astype(np.float64) if info.element is None and info.dtype.is_float else array


def narrowed(array: Array, info: TensorInfo) -> Array:
    """Return an array converted to the data type of `info`, in which its tensor is declared."""
    if info.element is not None or array.dtype == info.dtype.numpy:
        return array
    with np.errstate(all="ignore"):
        return array.astype(info.dtype.numpy)
