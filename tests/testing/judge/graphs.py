"""Small networks for the tests of the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.testing.judge.judging import Comparison
from interposer.testing.judge.reference import all_values
from interposer.testing.tolerances import Tolerances

__all__ = ["Built", "built", "comparison"]

EXACT = Tolerances(steps=0)


class Built:
    """A network under construction, with its inputs."""

    def __init__(self) -> None:
        self.network = Network("small")
        self.feeds: dict[int, Array] = {}

    def input(self, values: Any, quantization: Quantization | None = None) -> Value:
        array = np.asarray(values)
        number = len(self.feeds)
        self.feeds[number] = array
        info = TensorInfo(array.shape, array.dtype, quantization)
        return self.network.add_input_layer(number, info).output

    def constant(self, values: Any, quantization: Quantization | None = None) -> Value:
        return self.network.add_constant_layer(np.asarray(values), quantization).output

    def add(self, op: Op, *values: Value | None, outputs: TensorInfo | None = None, name: str | None = None) -> Value:
        return self.layer(op, *values, outputs=outputs, name=name).output

    def layer(self, op: Op, *values: Value | None, outputs: TensorInfo | None = None, name: str | None = None) -> Layer:
        return self.network.add_layer(op, *values, outputs=outputs, name=name)

    def output(self, *values: Value) -> Built:
        for number, value in enumerate(values):
            self.network.add_output_layer(number, value)
        return self


def built(make: Callable[[Built], Value]) -> Built:
    """The network whose only output `make` gives."""
    network = Built()
    return network.output(make(network))


def comparison(made: Built, tolerances: Tolerances = EXACT, **options: bool) -> Comparison:
    """What results of a network are compared with."""
    values = all_values(made.network.graph, made.feeds)
    return Comparison(made.network.graph, made.feeds, values, tolerances, **options)


def problems(
    built_network: Built, results: Mapping[int, Any] | Any, tolerances: Tolerances = EXACT, **options: bool
) -> str:
    """Return what is wrong with results; an array stands for the results of output 0."""
    by_output = results if isinstance(results, Mapping) else {0: np.asarray(results)}
    return comparison(built_network, tolerances, **options).problems(by_output)
