"""CpuAcc on several layers at once: fused and blocked layers, and shared memory, give the results of CpuRef."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    BatchNormalization,
    Concat,
    Convolution2d,
    Division,
    ElementwiseUnary,
    GruSequence,
    LstmSequence,
    Multiplication,
    Pooling2d,
    PoolingAlgorithm,
    PreCompiled,
    RecurrentDirection,
    Reshape,
    RnnSequence,
    Slice,
    Splitter,
    Transpose,
    UnaryOperation,
)
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.caching.blobs import Blob
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

Build = Callable[[ip.Network, list[Any]], list[Any]]
RNG = np.random.default_rng(5)
SIGMOID = Activation(function=ActivationFunction.SIGMOID)
NCHW = {"data_layout": DataLayout.NCHW}


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32) / np.float32(math.sqrt(math.prod(shape[1:]) or 1))


def network_of(build: Build, *shapes: tuple[int, ...]) -> ip.Network:
    """A network of inputs of these shapes, and an output for everything that `build` gives."""
    network = ip.Network("whole")
    inputs = [network.add_input_layer(n, TensorInfo(shape), name=f"x{n}") for n, shape in enumerate(shapes)]
    for n, value in enumerate(build(network, inputs)):
        network.add_output_layer(n, value)
    return network


def outputs_of(network: ip.Network, backend: str) -> list[Array]:
    runtime = ip.Runtime()
    optimized = ip.optimize(network, [backend], runtime.device_spec)
    return run(runtime, optimized)


def run(runtime: ip.Runtime, optimized: Any) -> list[Array]:
    network_id = runtime.load_network(optimized)
    shapes = {layer.op.binding_id: tuple(layer.outputs[0].info.shape) for layer in optimized.graph if is_input(layer)}
    values = {n: np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    result = runtime.enqueue_workload(network_id, values)
    return [np.array(result[n]) for n in sorted(result)]


def is_input(layer: Layer) -> bool:
    return layer.kind == "Input"


def conv(network: ip.Network, x: Any, inputs: int, outputs: int) -> Any:
    return network.add_layer(
        Convolution2d(stride_x=1, stride_y=1, pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, **NCHW),
        x, network.add_constant_layer(weights(outputs, inputs, 3, 3)),
    )  # fmt: skip


def swish(network: ip.Network, inputs: list[Any]) -> list[Any]:
    y = conv(network, inputs[0], 3, 20)
    return [network.add_layer(Multiplication(), y, network.add_layer(SIGMOID, y))]


def deep(network: ip.Network, inputs: list[Any]) -> list[Any]:
    """Two products of so many channels that some rows are computed at once, one with another tensor after it."""
    [x] = inputs
    first, second = (network.add_layer(BatchMatMul(), x, network.add_constant_layer(weights(2003, 40)))
                     for _ in range(2))  # fmt: skip
    return [network.add_layer(Addition(), first, second)]


def gelu(network: ip.Network, inputs: list[Any]) -> list[Any]:
    [x] = inputs
    number = lambda value: network.add_constant_layer(np.float32([value]))  # noqa: E731
    y = network.add_layer(BatchMatMul(), x, network.add_constant_layer(weights(3, 24)))
    y = network.add_layer(Addition(), y, network.add_constant_layer(weights(24)))
    inner = network.add_layer(Division(), y, number(math.sqrt(2)))
    gate = network.add_layer(Addition(), network.add_layer(ElementwiseUnary(operation=UnaryOperation.ERF), inner),
                             number(1))  # fmt: skip
    return [network.add_layer(Multiplication(), network.add_layer(Multiplication(), y, gate), number(0.5))]


def normalized(network: ip.Network, inputs: list[Any]) -> list[Any]:
    """A normalization of images in blocks of channels, one of what is not in blocks, each with a clamp after it."""
    [x] = inputs
    factors = lambda count: [network.add_constant_layer(np.abs(weights(count)) + np.float32(0.5)) for _ in range(4)]  # noqa: E731
    relu = Activation(function=ActivationFunction.RELU)
    result = []
    for y, count in ((x, 3), (conv(network, x, 3, 20), 20)):
        normal = network.add_layer(BatchNormalization(**NCHW), y, *factors(count))
        result.append(network.add_layer(relu, normal))
    both = network.add_layer(Concat(axis=1), conv(network, result[1], 20, 16), result[1])
    return [*result, network.add_layer(BatchNormalization(**NCHW), both, *factors(36))]


def joined(network: ip.Network, inputs: list[Any]) -> list[Any]:
    """One branch of whole blocks of channels and one that is not, a gate for every channel, and a second output."""
    a, b = conv(network, inputs[0], 3, 32), conv(network, inputs[0], 3, 20)
    both = network.add_layer(Concat(axis=1), a, b)
    gate = network.add_layer(SIGMOID, network.add_constant_layer(weights(1, 52, 1, 1)))
    return [network.add_layer(Multiplication(), both, gate), a]


def moved(network: ip.Network, inputs: list[Any]) -> list[Any]:
    """Operands that lie within results, results within operands, and one tensor that is concatenated with itself."""
    [x] = inputs
    flat = network.add_layer(Reshape(target_shape=(-1,)), x)
    first = network.add_layer(Slice(begin=(0,), size=(64,)), flat)
    twice = network.add_layer(Concat(axis=0), first, first)
    total = network.add_layer(Addition(), network.add_layer(Reshape(target_shape=(128,)), twice),
                              network.add_layer(Slice(begin=(16,), size=(128,)), flat))  # fmt: skip
    parts = network.add_layer(Splitter(axis=0, sizes=(32, 96)), total)
    turned = network.add_layer(Transpose(permutation=(0, 2, 3, 1)), x)
    return [network.add_layer(Concat(axis=0), parts.outputs[1], parts.outputs[0]), turned, flat]


def long_memory(direction: RecurrentDirection) -> Build:
    def build(network: ip.Network, inputs: list[Any]) -> list[Any]:
        count = 2 if direction is RecurrentDirection.BIDIRECTIONAL else 1
        constants = [weights(count, 80, 7), weights(count, 80, 20), weights(count, 160)]
        result = network.add_layer(LstmSequence(direction=direction), inputs[0],
                                  *map(network.add_constant_layer, constants))  # fmt: skip
        return list(result.outputs)

    return build


def recurrent(direction: RecurrentDirection, *, before: bool | None = None) -> Build:
    """Return gated units that reset before or after the product with the state; None means simple ones."""

    def build(network: ip.Network, inputs: list[Any]) -> list[Any]:
        count = 2 if direction is RecurrentDirection.BIDIRECTIONAL else 1
        gates = 1 if before is None else 3
        op = RnnSequence(direction=direction) if before is None else GruSequence(
            direction=direction, linear_before_reset=before
        )  # fmt: skip
        constants = [weights(count, gates * 20, 7), weights(count, gates * 20, 20), weights(count, 2 * gates * 20)]
        return list(network.add_layer(op, inputs[0], *map(network.add_constant_layer, constants)).outputs)

    return build


CASES: dict[str, tuple[Build, tuple[int, ...]]] = {
    "swish after a convolution": (swish, (2, 3, 9, 7)),
    "the gelu of exported networks after a product and its bias": (gelu, (2, 5, 3)),
    "a deep product of many rows": (deep, (150, 2003)),
    "normalized images": (normalized, (2, 3, 6, 7)),
    "channels that are concatenated and gated": (joined, (2, 3, 6, 5)),
    "tensors that share memory": (moved, (2, 5, 5, 6)),
    "LSTM forwards": (long_memory(RecurrentDirection.FORWARD), (4, 2, 7)),
    "LSTM backwards": (long_memory(RecurrentDirection.REVERSE), (4, 1, 7)),
    "LSTM of many sequences": (long_memory(RecurrentDirection.FORWARD), (3, 9, 7)),
    "LSTM of many sequences both ways": (long_memory(RecurrentDirection.BIDIRECTIONAL), (2, 17, 7)),
    "GRU forwards": (recurrent(RecurrentDirection.FORWARD, before=False), (4, 2, 7)),
    "GRU both ways": (recurrent(RecurrentDirection.BIDIRECTIONAL, before=True), (5, 3, 7)),
    "simple layer backwards": (recurrent(RecurrentDirection.REVERSE), (4, 2, 7)),
    "LSTM both ways": (long_memory(RecurrentDirection.BIDIRECTIONAL), (5, 3, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_whole_part_gives_what_the_reference_gives(name: str) -> None:
    build, shape = CASES[name]
    network = network_of(build, shape)
    for output, expected in zip(outputs_of(network, "CpuAcc"), outputs_of(network, "CpuRef"), strict=True):
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("kind", [PoolingAlgorithm.MAX, PoolingAlgorithm.AVERAGE])
def test_what_is_not_a_number_stays_so_where_windows_of_blocks_of_channels_see_it(kind: PoolingAlgorithm) -> None:
    network = ip.Network("pooled")
    x = network.add_input_layer(0, TensorInfo((1, 9, 8, 7)), name="x")
    y = network.add_layer(Convolution2d(**NCHW), x, network.add_constant_layer(weights(20, 9, 1, 1)))
    window = {"pool_width": 3, "pool_height": 3, "stride_x": 2, "stride_y": 2, "pad_left": 1, "pad_top": 1}
    network.add_output_layer(0, network.add_layer(Pooling2d(pool_type=kind, **window, **NCHW), y))
    image = RNG.standard_normal((1, 9, 8, 7)).astype(np.float32)
    image[0, 4, 3, 2] = np.nan

    result, expected = ip.load(network, ["CpuAcc"]).run([image])[0], reference_results(network, [image])[0]

    assert np.isnan(expected).any()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


# --- compiled parts ---------------------------------------------------------------------------------------------------


def compiled() -> tuple[ip.Runtime, Any, Any, Any]:
    """Return a runtime, the optimized network, its only compiled part, and the backend."""
    runtime = ip.Runtime()
    optimized = ip.optimize(network_of(swish, (1, 3, 8, 8)), ["CpuAcc"], runtime.device_spec)
    [layer] = [layer for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    return runtime, optimized, layer, runtime.registry.get("CpuAcc")


def view_of(network: ip.Network) -> SubgraphView:
    network.validate()
    return SubgraphView(
        network.graph, [item for item in network.graph if item.kind not in ("Input", "Output", "Constant")]
    )


def test_a_part_that_was_saved_is_restored_without_packing_anew() -> None:
    runtime, optimized, layer, backend = compiled()
    view = view_of(network_of(swish, (1, 3, 8, 8)))
    [substitution] = backend.optimize_subgraph(view, {}).substitutions
    executable = substitution.replacement.object
    blob = backend.blobs.save(executable)
    assert blob.needs_graph
    again = backend.blobs.save(backend.blobs.restore(blob, view))
    assert again.data == blob.data


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:80] + b"x" + data[81:]]
)
def test_bytes_that_are_damaged_are_refused(damage: Callable[[bytes], bytes]) -> None:
    *_, backend = compiled()
    view = view_of(network_of(swish, (1, 3, 8, 8)))
    [substitution] = backend.optimize_subgraph(view, {}).substitutions
    blob = backend.blobs.save(substitution.replacement.object)
    result = Blob(damage(bytes(blob.data)), needs_graph=True)
    assert "damaged" in (backend.blobs.fault(result) or "")
    with pytest.raises(CallError, match="damaged"):
        backend.blobs.restore(result, view)
