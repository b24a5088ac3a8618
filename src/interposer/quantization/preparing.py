"""Preparing a float network for quantization: its form after the rewrites that do not depend on a backend."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops import (
    BatchNormalization,
    Constant,
    DepthwiseConvolution2d,
)
from interposer.optimizer import OptimizerOptions, simplified
from interposer.runtime import Runtime

__all__ = ["prepared"]


def prepared(network: Network, runtime: Runtime) -> Network:
    """Return a copy of a network with folded constants and batch normalizations.

    Weights that are stored as float16 or in few bits become constants of float32. A batch normalization of an image
    that no convolution is before becomes a depthwise convolution, which can be quantized for each channel. The rounding
    of activations that a dynamically quantized model asks for is removed.
    """
    ids = runtime.registry.by_default()[-1:]
    options = OptimizerOptions(round_activations=False)
    simplified_network = simplified(network, ids, runtime.device_spec, options)
    for layer in list(simplified_network.graph):
        if isinstance(layer.op, BatchNormalization):
            _replace_normalization(simplified_network, layer, layer.op)
    return simplified_network


def _replace_normalization(network: Network, layer: Layer, op: BatchNormalization) -> None:
    """Replace a batch normalization of an image by a depthwise convolution with windows of one pixel."""
    image, *parameters = layer.values
    arrays = [value.constant for value in parameters]
    if image.known.rank != 4 or image.known.dtype is not DataType.FLOAT32 or any(array is None for array in arrays):
        return
    mean, variance, beta, gamma = (_doubles(value) for value in parameters)
    scale = gamma / np.sqrt(variance + op.eps)
    weights, bias = scale.astype(np.float32), (beta - mean * scale).astype(np.float32)
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        return
    graph = network.graph
    constants = [
        graph.add(Constant(array), name=f"{layer.name}:{suffix}")
        for array, suffix in ((weights.reshape(1, 1, 1, -1), "weights"), (bias, "bias"))
    ]
    convolution = DepthwiseConvolution2d(data_layout=op.data_layout)
    convolution_layer = graph.add(
        convolution, [image, *(constant.output for constant in constants)], source=layer.source
    )
    for new_layer in (*constants, convolution_layer):
        infer_layer(new_layer)
    convolution_layer.output.aliases = layer.output.aliases
    graph.replace_uses(layer.output, convolution_layer.output)
    name = layer.name
    graph.erase(layer)
    graph.erase_dead()
    graph.rename(convolution_layer, name)


def _doubles(value: Value) -> NDArray[np.float64]:
    return np.asarray(value.constant, np.float64).reshape(-1)
