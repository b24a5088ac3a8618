"""What the writer of Arm NN files keeps, chooses and refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidArgumentError, UnwritableError
from interposer.frontends import armnn as reader
from interposer.frontends.armnn.container import read_content
from interposer.testing import samples_of
from interposer.types import Array
from interposer.writers import armnn
from interposer.writers.armnn import write, written
from tests import warm

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which writes the files, is not installed")

RNG = np.random.default_rng(6)
FILES = Path(__file__).parents[2] / "frontends" / "armnn" / "files"


def network_of(op: Any, *shapes: tuple[int, ...], dtype: str = "float32", **outputs: Any) -> ip.Network:
    """Return a network of one layer ``y`` with inputs ``x0``, ``x1`` ... of these shapes."""
    network = ip.Network("net")
    inputs = [network.add_input_layer(n, ip.TensorInfo(shape, dtype), name=f"x{n}") for n, shape in enumerate(shapes)]
    layer = network.add_layer(op, *inputs, name="y", **outputs)
    for number, value in enumerate(layer.outputs):
        network.add_output_layer(number, value, name=f"out{number}")
    return network


def kinds(content: bytes) -> list[str]:
    return [layer.kind for layer in read_content(content).layers.values() if layer.kind not in {"Input", "Output"}]


def refusals(network: ip.Network, **options: Any) -> dict[str, tuple[str, str]]:
    with pytest.raises(UnwritableError) as caught:
        write(network, **options)
    return dict(caught.value.layers)


def depthwise(computed: bool = False) -> ip.Network:
    network = ip.Network("net")
    x = network.add_input_layer(0, ip.TensorInfo((1, 5, 5, 2)), name="x0")
    array = np.arange(36, dtype=np.float32).reshape(1, 3, 3, 4)
    weights = network.add_constant_layer(array, name="w")
    if computed:
        weights = network.add_layer(ip.ops.Activation(ip.ops.ActivationFunction.ABS), weights, name="abs")
    op = ip.ops.DepthwiseConvolution2d(data_layout=ip.DataLayout.NHWC)
    network.add_output_layer(0, network.add_layer(op, x, weights, name="y"), name="out0")
    return network


class TestNames:
    def test_names_and_binding_ids_stay_the_same(self) -> None:
        network = ip.Network("net")
        values = [network.add_input_layer(n, ip.TensorInfo((2, 3)), name=name) for n, name in ((7, "b"), (-2, "a"))]
        total = network.add_layer(ip.ops.Addition(), *values, name="sum of both")
        network.add_output_layer(40, total, name="result")
        again = reader.load(write(network))
        assert {layer.name: layer.op.binding_id for layer in again.graph.inputs} == {"a": -2, "b": 7}
        assert [(layer.name, layer.op.binding_id) for layer in again.graph.outputs] == [("result", 40)]
        assert [layer.name for layer in again.graph if isinstance(layer.op, ip.ops.Addition)] == ["sum of both"]

    def test_a_part_of_a_network_is_written_with_the_names_of_its_values(self) -> None:
        network = network_of(ip.ops.Softmax(), (2, 3))
        again = reader.load(write(network.graph))
        assert [layer.name for layer in again.graph.outputs] == ["out0"]


class TestReleases:
    def test_the_oldest_form_of_a_layer_is_written_unless_a_release_is_named(self) -> None:
        network = network_of(ip.ops.Addition(), (2, 3), (3,))
        assert kinds(write(network)) == ["Reshape", "Addition"]
        assert kinds(write(network, release="24.05")) == ["Reshape", "ElementwiseBinary"]
        assert written(network).release == "20.08"
        assert written(network_of(ip.ops.Reduce(operation=ip.ops.ReduceOperation.MAX), (2, 3))).release == "21.02"

    def test_a_layer_that_a_release_lacks_is_refused(self) -> None:
        network = network_of(ip.ops.Reduce(operation=ip.ops.ReduceOperation.MAX), (2, 3))
        reason = "the layer Reduce exists since Arm NN 21.02, and the file is for 20.11"
        assert refusals(network, release="20.11") == {"y": ("Reduce", reason)}

    def test_an_unknown_release_is_an_error(self) -> None:
        with pytest.raises(InvalidArgumentError, match=r"release: Arm NN has no release '20\.8' that is supported"):
            write(network_of(ip.ops.Softmax(), (2, 3)), release="20.8")

    def test_outputs_that_release_20_08_confuses_are_refused_for_it(self) -> None:
        network = network_of(ip.ops.Softmax(), (2, 3))
        network.add_output_layer(1, network.graph.layer("x0").output, name="copy")
        assert write(network)
        assert list(refusals(network, release="20.08")) == ["copy"]

    @pytest.mark.parametrize("release", [None, *armnn.RELEASES])
    def test_weights_have_the_form_of_the_release(self, release: str | None) -> None:
        content = write(depthwise(), release=release)
        images = RNG.normal(size=(1, 5, 5, 2)).astype(np.float32)
        expected = ip.load(depthwise(), ["CpuRef"]).run([images])[0]
        np.testing.assert_array_equal(ip.load(content, ["CpuRef"]).run([images])[0], expected)
        is_new = release is not None and release >= "22.05"
        assert kinds(content) == (["Constant", "DepthwiseConvolution2d"] if is_new else ["DepthwiseConvolution2d"])
        assert read_content(content).weights_layout == int(release is not None and release >= "21.08")

    def test_weights_that_are_computed_need_release_22_05(self) -> None:
        result = written(depthwise(computed=True))
        assert result.release == "22.05"
        assert kinds(result.content) == ["Constant", "Activation", "DepthwiseConvolution2d"]
        reason = "the operand weights is computed while running; Arm NN has it as a constant"
        assert refusals(depthwise(computed=True), release="22.02") == {"y": ("DepthwiseConvolution2d", reason)}


class TestComposed:
    EDGES = np.float32([[-np.inf, -100, -1.5, -1e-30, -1e-45, 0], [1e-45, 1e-30, 1.5, 100, 3e38, np.inf]])

    def test_soft_relu_is_composed_as_arm_nn_reads_it_as_a_sigmoid(self) -> None:
        functions = ip.ops.ActivationFunction
        for function in (functions.SOFT_RELU, functions.MISH):
            network = network_of(ip.ops.Activation(function), (2, 6))
            file = written(network, release="20.08")
            assert file.release == "20.08"
            assert "LogSoftmax" in kinds(file.content)
            finite = np.nan_to_num(self.EDGES, posinf=200, neginf=-200)
            expected, result = (ip.load(item, ["CpuRef"]).run([finite])[0] for item in (network, file.content))
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_the_sign_of_floats_is_composed_for_all_releases(self, dtype: str) -> None:
        network = network_of(ip.ops.ElementwiseUnary(ip.ops.UnaryOperation.SIGN), (2, 6), dtype=dtype)
        file = written(network)
        assert file.release == "20.08"
        with np.errstate(over="ignore"):
            edges = self.EDGES.astype(dtype)
        np.testing.assert_array_equal(ip.load(file.content, ["CpuRef"]).run([edges])[0], np.sign(edges))


class TestRefusals:
    def test_every_layer_that_cannot_be_written_is_named_with_the_reason(self) -> None:
        network = ip.Network("net")
        x = network.add_input_layer(0, ip.TensorInfo((1, 4)), name="x")
        wide = network.add_layer(ip.ops.Cast(ip.DataType.FLOAT64), x, name="wide")
        mode = ip.ops.PaddingMode.EDGE
        edge = network.add_layer(ip.ops.Pad(pad_list=((0, 0), (1, 1)), padding_mode=mode), x, name="edge")
        network.add_output_layer(0, wide, name="a")
        network.add_output_layer(1, edge, name="b")
        assert refusals(network) == {
            "wide": ("Cast", "Arm NN's files have no type float64"),
            "edge": ("Pad", "Arm NN has no padding mode EDGE"),
            "a": ("Output", "Arm NN's files have no type float64"),
        }

    def test_open_dimensions_are_refused(self) -> None:
        network = ip.Network("net")
        x = network.add_input_layer(0, ip.TensorInfo((None, 4)), name="x")
        network.add_output_layer(0, network.add_layer(ip.ops.Softmax(), x, name="y"), name="out")
        assert "Arm NN's files need known dimensions" in refusals(network)["y"][1]

    def test_rounding_to_even_is_refused_unless_it_need_not_be_exact(self) -> None:
        op = ip.ops.Quantize(ip.DataType.INT8, ip.ops.RoundingMethod.HALF_TO_EVEN)
        info = ip.TensorInfo((2, 3), "int8", ip.Quantization(0.5))
        network = network_of(op, (2, 3), outputs=[info])
        assert "Arm NN rounds HALF_AWAY_FROM_ZERO" in refusals(network)["y"][1]
        assert kinds(write(network, exact=False)) == ["Quantize"]

    def test_the_reasons_for_a_layer_are_reported_without_a_file(self) -> None:
        network = network_of(ip.ops.TopK(k=1), (2, 3))
        network.validate()
        assert armnn.reasons(network.graph.layer("y")) == ["Arm NN has no layers to make it of"]
        softmax = network_of(ip.ops.Softmax(), (2, 3))
        softmax.validate()
        assert armnn.reasons(softmax.graph.layer("y")) == []


class TestBiases:
    def test_biases_of_a_q_lstm_that_arm_nn_would_drop_are_refused(self) -> None:
        samples = [sample for sample in samples_of(ip.ops.QLstm) if not sample.op.layer_norm_enabled]
        network, _ = samples[0].network()
        [(_, reason)] = refusals(network).values()
        assert reason.endswith("_bias is not zero, and Arm NN adds biases of gates only with layer normalization")

    @pytest.mark.parametrize(("largest", "is_written"), [(2**31 - 1, True), (2**31, False)])
    def test_biases_of_64_bits_are_written_if_they_fit_into_32(self, largest: int, is_written: bool) -> None:
        network = ip.Network("net")
        x = network.add_input_layer(0, ip.TensorInfo((1, 2), "int16", ip.Quantization(0.5)), name="x0")
        weights = network.add_constant_layer(np.int8([[1], [2]]), name="w", quantization=ip.Quantization(0.25))
        bias = network.add_constant_layer(np.int64([largest]), name="b", quantization=ip.Quantization(0.125))
        info = ip.TensorInfo((1, 1), "int16", ip.Quantization(1e5))
        y = network.add_layer(ip.ops.FullyConnected(), x, weights, bias, name="y", outputs=[info])
        network.add_output_layer(0, y, name="out0")
        assert refusals(network)["y"][1].startswith("its bias is int64")
        if not is_written:
            reason = "its bias has numbers that int32 does not hold"
            assert refusals(network, exact=False)["y"][1].startswith(reason)
            return
        again = reader.load(write(network, exact=False))
        [value] = [layer.op.value for layer in again.graph if layer.name == "y/biases"]
        assert (value.dtype, value.tolist()) == (np.int32, [largest])


class TestFiles:
    """Files that an earlier version of the writer wrote are read."""

    @pytest.mark.parametrize("release", ["20.08", "24.05"])
    def test_a_stored_file_is_read_and_gives_the_same(self, release: str) -> None:
        content = (FILES / f"convolution_{release}.armnn").read_bytes()
        assert kinds(write(convolution(), release=release)) == kinds(content)
        images = RNG.normal(size=(1, 4, 4, 2)).astype(np.float32)
        results = [ip.load(model, ["CpuRef"]).run([images])[0] for model in (convolution(), content)]
        np.testing.assert_array_equal(results[0], results[1])

    def test_a_file_is_saved_and_converted_on_the_command_line(self, tmp_path: Path) -> None:
        path, other = tmp_path / "net.armnn", tmp_path / "net.onnx"
        assert armnn.save(convolution(), path) == path.stat().st_size
        pytest.importorskip("onnx", reason="the package onnx is not installed")
        for source, target in ((path, other), (other, tmp_path / "again.armnn")):
            command = [*warm.python(), "-m", "interposer", "convert", str(source), str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        images = RNG.normal(size=(1, 4, 4, 2)).astype(np.float32)
        results = [ip.load(file, ["CpuRef"]).run([images])[0] for file in (path, tmp_path / "again.armnn")]
        np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def convolution() -> ip.Network:
    """Return a network of a convolution, an activation, a pooling and a fully connected layer."""
    network = ip.Network("stored")
    x = network.add_input_layer(0, ip.TensorInfo((1, 4, 4, 2)), name="x")
    layout = ip.DataLayout.NHWC
    weights = network.add_constant_layer(numbers(3, 3, 3, 2), name="weights")
    bias = network.add_constant_layer(numbers(3), name="bias")
    op = ip.ops.Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=layout)
    y = network.add_layer(op, x, weights, bias, name="conv")
    y = network.add_layer(ip.ops.Activation(ip.ops.ActivationFunction.BOUNDED_RELU, a=6.0), y, name="relu6")
    pool = ip.ops.Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2, data_layout=layout)
    y = network.add_layer(pool, y, name="pool")
    matrix = network.add_constant_layer(numbers(12, 2), name="matrix")
    y = network.add_layer(ip.ops.FullyConnected(), y, matrix, name="logits")
    network.add_output_layer(0, network.add_layer(ip.ops.Softmax(), y, name="softmax"), name="y")
    return network


def numbers(*shape: int) -> Array:
    size = int(np.prod(shape))
    return ((np.arange(size) * 7 % 11 - 5) / 8).astype(np.float32).reshape(shape)
