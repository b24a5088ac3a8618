"""Networks of one layer, and what CpuAcc and the reference give for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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


def outcomes(network: ip.Network, given: list[Array], threads: int = 1) -> list[list[Array]]:
    """Return the results of CpuAcc and of the reference."""
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    return [list(ip.load(network, ["CpuAcc"], options=options).run(given)), reference_results(network, given)]


def reference_results(network: ip.Network, arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs that the reference kernels compute for the inputs, without an optimizer and a runtime."""
    return [*reference_outputs(network.graph, dict(enumerate(arrays))).values()]
