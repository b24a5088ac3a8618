"""Small ONNX models that use what is easily got wrong: regions, functions, sequences, quantization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx import parser as text

CONTROL_FLOW = """
<ir_version: 10, opset_import: ["" : 21]>
control (float[N, 4] x, bool flag, int64 count) => (float[N, 4] chosen, float[M, 4] carried, float[M, N, 4] collected,
                                                     float[4] total)
<float[4] weights = {1.0, -2.0, 3.0, 0.5}, bool yes = {1}>
{
    chosen = If (flag) <
        then_branch = larger () => (float[N, 4] a) { a = Mul (x, weights) },
        else_branch = smaller () => (float[N, 4] b) { c = Relu (x)  b = Add (c, weights) }
    >
    rows = Identity (x)
    carried, collected = Loop (count, yes, rows) <
        body = step (int64 i, bool going, float[N, 4] before) => (bool again, float[N, 4] after, float[N, 4] seen) {
            again = Identity (going)
            after = Add (before, weights)
            seen = Mul (after, x)
        }
    >
    start = Constant <value_floats = [0.0, 0.0, 0.0, 0.0]> ()
    total = Scan <num_scan_inputs = 1, body = sum (float[4] sum_in, float[4] row) => (float[4] sum_out) {
        sum_out = Add (sum_in, row)
    }> (start, x)
}
"""

FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
functions (float[3, 4] x) => (float[3, 4] y, int64 length, float[K, 4] joined)
<float[4] scale = {0.5, 1.0, 2.0, 4.0}>
{
    a = local.scaled <slope = 0.1> (x, scale)
    b = local.twice (a)
    parts = SequenceConstruct (a, b)
    more = SequenceInsert (parts, x)
    length = SequenceLength (more)
    joined = ConcatFromSequence <axis = 0> (more)
    zero = Constant <value_int = 0> ()
    y = SequenceAt (more, zero)
}
<domain: "local", opset_import: ["" : 21]>
scaled <slope: float = 0.5> (x, scale) => (y) {
    product = Mul (x, scale)
    y = LeakyRelu <alpha: float = @slope> (product)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice (x) => (y) {
    half = Constant <value_floats = [1.0, 1.0, 1.0, 1.0]> ()
    once = local.scaled (x, half)
    y = local.scaled (once, half)
}
"""


def control_flow(folder: Path) -> Path:
    """A branch, a loop and a scan that take values from outside."""
    return _saved(folder, text.parse_model(CONTROL_FLOW))


def functions(folder: Path) -> Path:
    """Functions that call functions, with an attribute by reference; a sequence that is filled and emptied."""
    return _saved(folder, text.parse_model(FUNCTIONS))


def quantized(folder: Path) -> Path:
    """A convolution between quantizations, with weights in four bits in blocks, and one in the older style."""
    generator = np.random.default_rng(3)
    kernels = generator.integers(-127, 127, (4, 2, 3, 3)).astype(np.int8)
    tables = {
        "kernels": kernels,
        "kernel_scales": np.linspace(0.01, 0.04, 4, dtype=np.float32),
        "kernel_zeros": np.zeros(4, np.int8),
        "scale": np.float32(0.05),
        "zero": np.uint8(120),
        "bias": np.int32([3, -5, 7, 0]),
        "block_scales": np.full((4, 2), 0.1, np.float32),
        "flat": np.int64([1, 4]),
    }
    codes = generator.integers(-8, 8, (4, 8))
    packed = (codes.reshape(-1, 2) & 15) @ np.array([1, 16])
    small = TensorProto(
        name="small", data_type=TensorProto.INT4, dims=[4, 8], raw_data=packed.astype(np.uint8).tobytes()
    )
    pairs = ("scale", "zero")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *pairs], ["xq"]),
        helper.make_node(
            "QLinearConv",
            ["xq", *pairs, "kernels", "kernel_scales", "kernel_zeros", *pairs, "bias"],
            ["yq"],
            pads=[1, 1, 1, 1],
        ),
        helper.make_node("DequantizeLinear", ["yq", *pairs], ["y"]),
        helper.make_node("GlobalAveragePool", ["y"], ["mean"]),
        helper.make_node("Reshape", ["mean", "flat"], ["row"]),
        helper.make_node("DequantizeLinear", ["small", "block_scales"], ["dense"], axis=1, block_size=4),
        helper.make_node("MatMul", ["row", "dense"], ["z"]),
    ]
    initializers = [*(numpy_helper.from_array(np.asarray(value), name) for name, value in tables.items()), small]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 5])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 8])
    graph = helper.make_graph(nodes, "quantized", [x], [z], initializers)
    return _saved(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def _saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path
