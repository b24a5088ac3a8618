"""Weights at any address of a mapped model file, which are packed or read without an aligned copy."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.constants import place_of
from interposer.ops.control import Constant

onnx = pytest.importorskip("onnx")
helper = onnx.helper

pytestmark = pytest.mark.usefixtures("shared_cpuacc")
FLOAT, HALF, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64


def weights(*shape, dtype=np.float32):
    """Random weights that are large enough to be mapped, and to be read in place if they are not packed."""
    return (np.random.default_rng(len(shape)).standard_normal(shape) / 8).astype(dtype)


def node(kind, *inputs, **attributes):
    return helper.make_node(kind, inputs, ["y"], **attributes)


CASES = {
    "convolution": (node("Conv", "x", "w", pads=[1] * 4), (1, 40, 9, 9), weights(48, 40, 3, 3)),
    "pointwise convolution": (node("Conv", "x", "w"), (1, 200, 5, 5), weights(90, 200, 1, 1)),
    "strided convolution": (node("Conv", "x", "w", strides=[2, 2]), (1, 40, 9, 9), weights(48, 40, 3, 3)),
    "grouped convolution": (node("Conv", "x", "w", group=2), (1, 80, 7, 7), weights(96, 40, 3, 3)),
    "depthwise convolution": (node("Conv", "x", "w", group=2048), (1, 2048, 5, 5), weights(2048, 1, 3, 3)),
    "convolution of a volume": (node("Conv", "x", "w"), (1, 16, 4, 5, 5), weights(40, 16, 3, 3, 3)),
    "transposed convolution": (node("ConvTranspose", "x", "w", strides=[2, 2]), (1, 40, 5, 5), weights(40, 48, 3, 3)),
    "product": (node("MatMul", "x", "w"), (7, 150), weights(150, 170)),
    "product of one row": (node("MatMul", "x", "w"), (1, 150), weights(150, 170)),
    "product with transposed weights": (node("Gemm", "x", "w", transB=1), (3, 150), weights(170, 150)),
    "batched product": (node("MatMul", "x", "w"), (3, 5, 90), weights(3, 90, 90)),
    "addition": (node("Add", "x", "w"), (150, 170), weights(150, 170)),
    "concatenation": (node("Concat", "x", "w", axis=0), (2, 170), weights(150, 170)),
    "product of halves": (node("MatMul", "x", "w"), (7, 250), weights(250, 170, dtype=np.float16)),
    "sum of halves": (node("Add", "x", "w"), (250, 170), weights(250, 170, dtype=np.float16)),
}


def model(case, shift):
    """A model whose weights begin at an offset in the file that is `shift` bytes after a multiple of 16."""
    made, shape, array = CASES[case]
    array = array * array.dtype.type(1 + shift / 8)  # equal constants of several files are in memory once
    dtype = HALF if array.dtype == np.float16 else FLOAT
    x = helper.make_tensor_value_info("x", dtype, shape)
    y = helper.make_tensor_value_info("y", dtype, None)
    filler = onnx.numpy_helper.from_array(np.zeros(1 << 20, np.uint8), "filler")
    for length in range(16):
        stored = onnx.numpy_helper.from_array(array, "w")
        graph = helper.make_graph([made], "g", [x], [y], [stored, filler], doc_string="-" * length)
        network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="-" * length)
        content = network.SerializeToString()
        if content.index(array.tobytes()[:64]) % 16 == shift:
            return content
    raise AssertionError("no file has its weights at this offset")


def constants(network):
    return [layer.op.value for layer in network.graph if isinstance(layer.op, Constant)]


@pytest.mark.parametrize("shift", [0, 1, 2, 7])
@pytest.mark.parametrize("case", CASES)
def test_weights_at_any_address_give_the_same_results(case, shift, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model(case, shift))
    _, shape, array = CASES[case]
    x = np.random.default_rng(1).standard_normal(shape).astype(array.dtype)
    fast, slow = ip.load(path, ["CpuAcc"]), ip.load(path, ["CpuRef"])
    places = [place for place in map(place_of, constants(fast.network)) if place is not None]
    assert all(place.offset % 16 == shift for place in places)  # weights that are transposed have no place
    tolerance = 1e-2 if array.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(fast.run([x])[0], slow.run([x])[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_quantized_table_at_any_address_that_is_also_the_last_matrix(shift, rows, tmp_path):
    draw = np.random.default_rng(shift)
    codes = draw.integers(0, 255, (16384, 64), np.uint8, endpoint=True)
    scales = (draw.random((16384, 2)) + 0.1).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["table"], axis=1, block_size=32),
        helper.make_node("Gather", ["table", "x"], ["rows"]),
        helper.make_node("Gemm", ["rows", "table"], ["y"], transB=1),
    ]
    x, y = helper.make_tensor_value_info("x", INT64, [rows]), helper.make_tensor_value_info("y", FLOAT, None)
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in {"scales": scales, "codes": codes}.items()]
    for length in range(16):
        graph = helper.make_graph(nodes, "g", [x], [y], stored, doc_string="-" * length)
        content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
        if content.index(scales.tobytes()[:64]) % 4 == shift:
            break
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    indices = draw.integers(0, len(codes), rows)
    fast, slow = (ip.load(path, [name]).run([indices])[0] for name in ("CpuAcc", "CpuRef"))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-5 * np.abs(slow).max())
