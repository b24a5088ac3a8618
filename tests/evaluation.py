"""Runs a network with the reference kernels alone: no backend, no runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.kernels import evaluate
from interposer.ops.control import Constant, Input, Output


def run_network(network: Network, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, for inputs by name; shapes that are open follow the inputs."""
    known: dict[Value, np.ndarray] = {}
    outputs = {}
    for layer in network.graph.topological():
        arrays = [None if value is None else known[value] for value in layer.inputs]
        if isinstance(layer.op, Input):
            known[layer.output] = np.asarray(feeds[layer.name])
        elif isinstance(layer.op, Constant):
            known[layer.output] = layer.op.value
        elif isinstance(layer.op, Output):
            outputs[layer.name] = arrays[0]
        else:
            known.update(zip(layer.outputs, _evaluated(layer, arrays), strict=True))
    return outputs


def _evaluated(layer, arrays):
    infos = [
        None if value is None else value.known.with_shape(array.shape).with_constant(array)
        for value, array in zip(layer.inputs, arrays, strict=True)
    ]
    inferred = layer.op.infer_infos(*infos)
    results = [
        info.with_quantization(value.known.quantization) for info, value in zip(inferred, layer.outputs, strict=True)
    ]
    return evaluate(layer.op, arrays, infos, results)
