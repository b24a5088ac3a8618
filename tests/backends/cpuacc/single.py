"""Networks of one layer, and what CpuAcc and the reference give for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.testing.oracle import reference_outputs


def network_of(
    op: Any,
    arrays: Collection[Array | None],
    constants: Collection[int] = (),
    quantizations: Mapping[int, Quantization] | None = None,
) -> tuple[ip.Network, list[Array]]:
    """Return a network with one layer, and the arrays of its inputs.

    Operands at the positions `constants` are constant, and those that are None are absent. `quantizations` are those
    of operands by position.
    """
    network, operands, given = ip.Network("layer"), [], list[Array]()
    for position, array in enumerate(arrays):
        if array is None:
            operands.append(None)
        elif position in constants:
            operands.append(network.add_constant_layer(array).output)
        else:
            info = TensorInfo(array.shape, DataType.of(array.dtype), (quantizations or {}).get(position))
            operands.append(network.add_input_layer(len(given), info).output)
            given.append(array)
    for n, output in enumerate(network.graph.add(op, operands).outputs):
        network.add_output_layer(n, output)
    return network, given


class Layers:
    """Layers that do not depend on each other, in one network: one load serves all, and a failure names its layer."""

    def __init__(self) -> None:
        self.network, self.arrays, self.names = ip.Network("layers"), list[Array](), list[str]()

    def add(
        self,
        name: str,
        op: Any,
        arrays: Collection[Array],
        constants: Collection[int] = (),
        quantization: Quantization | None = None,
        result: TensorInfo | None = None,
    ) -> None:
        """Add a layer; operands at the positions `constants` are constant, `quantization` is that of the inputs."""
        operands = []
        for position, array in enumerate(arrays):
            if position in constants:
                operands.append(self.network.add_constant_layer(array))
            else:
                info = TensorInfo(array.shape, DataType.of(array.dtype), quantization)
                operands.append(self.network.add_input_layer(len(self.arrays), info))
                self.arrays.append(array)
        for output in self.network.add_layer(op, *operands, outputs=result).outputs:
            self.network.add_output_layer(len(self.names), output)
            self.names.append(name)

    def assert_like_the_reference(
        self, rtol: float = 0.0, atol: float = 0.0, threads: int = 1, signs: bool = False
    ) -> None:
        """With `signs`, zeros have the signs of those of the reference."""
        results = outcomes(self.network, self.arrays, threads)
        for name, result, expected in zip(self.names, *results, strict=True):
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype), name
            if rtol or atol:
                np.testing.assert_allclose(result, expected, rtol, atol, err_msg=name)
            else:
                np.testing.assert_array_equal(result, expected, err_msg=name)
            if signs:
                assert_same_signs(result, expected, name)


def assert_same_signs(result: Array, expected: Array, name: str = "") -> None:
    """Compare the signs of floats, also of zeros. NaN has no sign that means anything."""
    if np.issubdtype(result.dtype, np.floating):
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(expected[numbers]), err_msg=name)


def outcomes(network: ip.Network, given: list[Array], threads: int = 1) -> list[list[Array]]:
    """Return the results of CpuAcc and of the reference."""
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    return [list(ip.load(network, ["CpuAcc"], options=options).run(given)), reference_results(network, given)]


def reference_results(network: ip.Network, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs that the reference kernels compute for the inputs, without an optimizer and a runtime."""
    return [*reference_outputs(network.graph, dict(enumerate(arrays))).values()]
