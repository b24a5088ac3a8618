"""Arm NN 20.08 itself reads what is written for it, and computes what CpuRef computes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import UnwritableError
from interposer.core.schema import registered_ops
from interposer.ir.network import Network
from interposer.testing import samples_of
from interposer.testing.oracle import reference_outputs
from interposer.types import Array
from interposer.writers.armnn import write

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which writes the files, is not installed")

SOURCE = Path(__file__).with_name("reader.cpp")
HEADERS = Path("/usr/include/armnnDeserializer/IDeserializer.hpp")
OPERATORS = (
    "Activation", "Addition", "ArgMinMax", "BatchNormalization", "BatchToSpaceNd", "Comparison", "Concat",
    "Convolution2d", "DepthToSpace", "DepthwiseConvolution2d", "Division", "Fill", "FullyConnected",
    "InstanceNormalization", "L2Normalization", "Maximum", "Mean", "Multiplication", "Permute", "Pooling2d", "Prelu",
    "Resize", "ReverseV2", "Slice", "SpaceToBatchNd", "SpaceToDepth", "Splitter",  "StridedSlice",
    "Subtraction", "Tile", "Transpose",
)  # fmt: skip
FEW = 8
UNSUPPORTED = ("does not run a layer", "TensorShape set on OutputSlot", "Assertion")
"""What Arm NN says about types that its reference backend lacks, and about tensors without elements."""

Reader = Callable[[bytes, dict[int, Array], dict[int, Array]], "dict[int, Array] | str"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return a function that runs a file on Arm NN's reference backend; the result is a text if Arm NN refuses it."""
    compiler, folder = shutil.which("g++"), tmp_path_factory.mktemp("armnn")
    if compiler is None or not HEADERS.exists():
        pytest.skip("g++ or the headers of Arm NN 20.08 (libarmnn-dev) are not installed")
    program = folder / "reader"
    command = [compiler, "-std=c++17", "-O1", "-w", str(SOURCE), "-o", str(program), "-larmnn", "-larmnnSerializer"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"the program cannot be linked with Arm NN: {built.stderr[-300:]}")

    def run(content: bytes, feeds: dict[int, Array], like: dict[int, Array]) -> dict[int, Array] | str:
        (folder / "model.armnn").write_bytes(content)
        arguments = [str(program), str(folder / "model.armnn")]
        for number, array in feeds.items():
            (folder / f"in{number}").write_bytes(np.ascontiguousarray(array).tobytes())
            arguments += ["in", str(number), str(folder / f"in{number}")]
        arguments += [word for number in like for word in ("out", str(number), str(folder / f"out{number}"))]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            return done.stdout + done.stderr or f"exit status {done.returncode}"
        return {n: np.fromfile(folder / f"out{n}", array.dtype).reshape(array.shape) for n, array in like.items()}

    return run


@pytest.mark.parametrize("name", OPERATORS)
def test_arm_nn_gives_the_same_for_samples_of_an_operator(name: str, reader: Reader) -> None:
    samples = samples_of(registered_ops()[name])
    outcomes = {}
    for sample in samples[:: max(1, len(samples) // FEW)]:
        network, feeds = sample.network()
        outcomes[sample.id] = outcome(reader, network, feeds)
    assert {id: text for id, text in outcomes.items() if text not in {"same", "refused"}} == {}
    assert "same" in outcomes.values()


def outcome(reader: Reader, network: Network, feeds: dict[int, Array]) -> str:
    try:
        content = write(network, release="20.08")
    except UnwritableError:
        return "refused"
    expected = reference_outputs(network.graph, feeds)
    if any(not array.size for array in (*feeds.values(), *expected.values())):
        return "refused"
    result = reader(content, feeds, expected)
    if isinstance(result, str):
        return "refused" if any(text in result for text in UNSUPPORTED) else result
    infos = {layer.op.binding_id: layer.values[0].known for layer in network.graph.outputs}  # type: ignore[attr-defined]
    return next((text for n in expected if (text := difference(result[n], expected[n], infos[n]))), "same")


def difference(actual: Array, expected: Array, info: ip.TensorInfo) -> str:
    """Return how results differ by more than rounding; quantized ones may differ by one step."""
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    tolerance = 1.0 if info.is_quantized else 2e-2 if info.dtype is ip.DataType.FLOAT16 else 1e-4
    same = np.allclose(actual, expected, rtol=0 if info.is_quantized else tolerance, atol=tolerance, equal_nan=True)
    return "" if same else f"{actual.ravel()[:4]} instead of {expected.ravel()[:4]}"


def test_arm_nn_gives_the_same_for_a_network(reader: Reader) -> None:
    rng = np.random.default_rng(8)
    network = ip.Network("net")
    x = network.add_input_layer(3, ip.TensorInfo((1, 8, 8, 4)), name="x")
    weights = rng.normal(size=(6, 3, 3, 2)).astype(np.float32)
    op = ip.ops.Convolution2d(pad_left=1, pad_right=1, groups=2, data_layout=ip.DataLayout.NHWC)
    y = network.add_layer(op, x, constant(network, weights), name="conv")
    y = network.add_layer(ip.ops.LayerNormalization(), y, name="norm")
    y = network.add_layer(ip.ops.Softmax(axis=1), y, name="softmax")
    network.add_output_layer(5, y, name="y")
    feeds = {3: rng.normal(size=(1, 8, 8, 4)).astype(np.float32)}
    assert outcome(reader, network, feeds) == "same"


def constant(network: Network, array: Array) -> ip.Layer:
    return network.add_constant_layer(array.astype(np.float32))


def lstm(gates_used: bool) -> tuple[Network, dict[int, Array]]:
    rng = np.random.default_rng(4)
    network = ip.Network("lstm")
    shapes: dict[str, tuple[int, ...]] = {"input": (2, 3), "output_state_in": (2, 4), "cell_state_in": (2, 4)}
    values: dict[str, Any] = {
        name: network.add_input_layer(number, ip.TensorInfo(shape), name=name)
        for number, (name, shape) in enumerate(shapes.items())
    }
    for gate in ("input", "forget", "cell", "output"):
        values[f"input_to_{gate}_weights"] = constant(network, rng.normal(size=(4, 3)))
        values[f"recurrent_to_{gate}_weights"] = constant(network, rng.normal(size=(4, 4)))
        values["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = constant(network, rng.normal(size=4))
    op = ip.ops.Lstm(cifg_enabled=False, activation_func=ip.ops.FusedActivation.TANH)
    layer = network.add_layer(op, *(values.get(operand.name) for operand in op.operands), name="lstm")
    outputs = layer.outputs if gates_used else layer.outputs[1:]
    for number, value in enumerate(outputs):
        network.add_output_layer(number, value, name=f"out{number}")
    return network, {n: rng.normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes.values())}


def test_arm_nn_gives_the_same_for_an_lstm(reader: Reader) -> None:
    assert outcome(reader, *lstm(gates_used=False)) == "same"
    assert outcome(reader, *lstm(gates_used=True)) == "refused"
