"""Networks of one layer, whose executed instructions tools/arm.py counts: ONNX models with seeded weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["models"]

Inputs = list[np.ndarray]
IMAGE: Final = (1, 32, 28, 28)
OPSETS: Final = (("", 23), ("com.microsoft", 1))


def models() -> Iterator[tuple[str, onnx.ModelProto, Inputs]]:
    """Yield the name of each layer, its model, and inputs."""
    draw = np.random.default_rng(7)
    for name, kind, attributes, shape, weights in _float_layers():
        image = draw.normal(size=shape).astype(np.float32)
        constants = [draw.normal(size=size).astype(np.float32) for size in weights]
        yield f"{name}/float32", _model(kind, attributes, image, constants), [image]
    for name, shape, weights, attributes in _quantized_layers():
        image = draw.integers(-128, 128, shape, dtype=np.int8)
        constants = draw.integers(-127, 128, weights, dtype=np.int8)
        yield f"{name}/int8", _quantized(name, attributes, image, constants), [image]
    for name, kind, attributes, shape in _functions_of_bytes():
        image = draw.integers(-128, 128, shape, dtype=np.int8)
        yield f"{name}/int8", _function_of_bytes(kind, attributes, image), [image]
    yield from _others(draw)
    yield from _layers_of_two_operands(draw)
    yield from _searches_and_moves(draw)


def _float_layers() -> Iterator[tuple[str, str, dict[str, Any], tuple[int, ...], list[tuple[int, ...]]]]:
    padded = {"pads": [1, 1, 1, 1]}
    yield "conv3x3", "Conv", padded, IMAGE, [(64, 32, 3, 3)]
    yield "conv3x3s2", "Conv", padded | {"strides": [2, 2]}, IMAGE, [(64, 32, 3, 3)]
    yield "conv1x1", "Conv", {}, IMAGE, [(64, 32, 1, 1)]
    yield "first", "Conv", padded | {"strides": [2, 2]}, (1, 3, 64, 64), [(16, 3, 3, 3)]
    yield "depthwise3x3", "Conv", padded | {"group": 32}, IMAGE, [(32, 1, 3, 3)]
    yield "matmul", "MatMul", {}, (64, 256), [(256, 128)]
    yield "vector", "MatMul", {}, (1, 256), [(256, 512)]
    yield "maxpool", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}, IMAGE, []
    yield "averagepool", "AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, IMAGE, []
    yield "mean", "GlobalAveragePool", {}, IMAGE, []
    yield "softmax", "Softmax", {}, (64, 256), []
    yield "layernorm", "LayerNormalization", {}, (64, 256), [(256,), (256,)]
    yield "gelu", "Gelu", {}, (64, 256), []
    yield "sigmoid", "Sigmoid", {}, (64, 256), []
    yield "add", "Add", {}, (64, 256), [(64, 256)]
    yield "smallmatmul", "MatMul", {}, (7, 24), [(24, 20)]
    yield "resize", "Resize", {"mode": "linear"}, (1, 16, 24, 24), []
    yield "reducemax", "ReduceMax", {"keepdims": 0}, (64, 256), []
    yield "transpose", "Transpose", {"perm": [0, 2, 3, 1]}, IMAGE, []
    yield "exp", "Exp", {}, (64, 256), []
    yield "erf", "Erf", {}, (64, 256), []
    yield "tanh", "Tanh", {}, (64, 256), []
    yield "gru", "GRU", {"hidden_size": 64}, (8, 1, 64), [(1, 192, 64), (1, 192, 64)]
    yield "lstm", "LSTM", {"hidden_size": 64}, (8, 1, 64), [(1, 256, 64), (1, 256, 64)]


def _quantized_layers() -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
    padded = {"pads": [1, 1, 1, 1]}
    yield "conv3x3", IMAGE, (64, 32, 3, 3), padded
    yield "conv1x1", IMAGE, (64, 32, 1, 1), {}
    yield "first", (1, 3, 64, 64), (16, 3, 3, 3), padded | {"strides": [2, 2]}
    yield "depthwise3x3", IMAGE, (32, 1, 3, 3), padded | {"group": 32}
    yield "vector", (1, 256, 1, 1), (512, 256, 1, 1), {}


def _functions_of_bytes() -> Iterator[tuple[str, str, dict[str, Any], tuple[int, ...]]]:
    yield "maxpool", "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}, IMAGE
    yield "averagepool", "AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, IMAGE
    yield "mean", "GlobalAveragePool", {}, IMAGE
    yield "softmax", "Softmax", {}, (64, 256)
    yield "sigmoid", "Sigmoid", {}, (64, 256)


def _others(draw: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, Inputs]]:
    """Yield layers with several nodes or with types of their own."""
    numbers = draw.normal(size=(64, 256)).astype(np.float32)
    yield "quantize/int8", _quantize(numbers), [numbers]
    yield "dynamicmatmul/int8", _dynamic_matmul(numbers, draw.integers(-127, 128, (256, 128), dtype=np.int8)), [numbers]
    halves = numbers.astype(np.float16)
    yield "add/float16", _model("Add", {}, halves, [halves]), [halves]
    tokens = draw.normal(size=(1, 4, 32, 64)).astype(np.float32)
    yield "attention/float32", _attention(tokens), [tokens]


def _layers_of_two_operands(draw: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, Inputs]]:
    """Yield layers on int8 whose second operand is of int8 too, or says what to compute."""
    image, other = (draw.integers(-128, 128, IMAGE, dtype=np.int8) for _ in range(2))
    yield "add/int8", _function_of_bytes("Add", {}, image, [other]), [image]
    yield "multiply/int8", _function_of_bytes("Mul", {}, image, [other]), [image]
    scales = np.array([1, 1, 2, 2], np.float32)
    yield "resize/int8", _function_of_bytes("Resize", {"mode": "linear"}, image, [scales]), [image]
    yield "argmax/int8", _model("ArgMax", {"axis": 1}, image, [], TensorProto.INT64), [image]
    rows = image.reshape(-1, 256)
    yield "reducemean/int8", _function_of_bytes("ReduceMean", {}, rows, [np.array([1])]), [rows]


def _searches_and_moves(draw: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, Inputs]]:
    rows = draw.normal(size=(64, 256)).astype(np.float32)
    places = draw.integers(0, 64, (64, 256))
    layers: list[tuple[str, str, dict[str, Any], list[np.ndarray]]] = [
        ("topk", "TopK", {}, [np.array([5])]),
        ("cumsum", "CumSum", {}, [np.array(1)]),
        ("gather", "Gather", {}, [places[:, 0]]),
        ("scatterelements", "ScatterElements", {"reduction": "add"}, [places, rows]),
        ("reducesum", "ReduceSum", {}, [np.array([0])]),
        ("rmsnorm", "RMSNormalization", {}, [rows[0]]),
        ("prelu", "PRelu", {}, [rows[0]]),
    ]
    for name, kind, attributes, constants in layers:
        yield f"{name}/float32", _model(kind, attributes, rows, constants), [rows]
    weights = draw.integers(0, 256, (512, 8, 16), dtype=np.uint8)
    yield "packedmatmul/int4", _packed_matmul(rows[:8], weights), [rows[:8]]


def _packed_matmul(image: np.ndarray, weights: np.ndarray) -> onnx.ModelProto:
    """Build a product with weights of 4 bits in blocks of 32, as language models have it."""
    outputs, blocks, _ = weights.shape
    values = {"weights": weights, "scales": np.full((outputs, blocks), 0.01, np.float32)}
    settings = {"K": image.shape[-1], "N": outputs, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    nodes = [helper.make_node("MatMulNBits", ["image", *values], ["result"], **settings)]
    return _graph(nodes, image, TensorProto.FLOAT, _stored(values))


def _quantize(image: np.ndarray) -> onnx.ModelProto:
    nodes = [helper.make_node("QuantizeLinear", ["image", "scale", "zero"], ["result"])]
    return _graph(nodes, image, TensorProto.FLOAT, _stored({"scale": np.float32(0.02), "zero": np.int8(3)}))


def _dynamic_matmul(image: np.ndarray, weights: np.ndarray) -> onnx.ModelProto:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["image"], ["bytes", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["bytes", "weights", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "scale"], ["result"]),
    ]
    return _graph(nodes, image, TensorProto.FLOAT, _stored({"weights": weights}))


def _attention(image: np.ndarray) -> onnx.ModelProto:
    """Build the attention of four heads whose queries, keys and values are the same."""
    nodes = [
        helper.make_node("Transpose", ["image"], ["keys"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["image", "keys"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["factors"]),
        helper.make_node("MatMul", ["factors", "image"], ["result"]),
    ]
    return _graph(nodes, image, TensorProto.FLOAT, _stored({"scale": np.float32(0.125)}))


def _function_of_bytes(
    kind: str, attributes: Mapping[str, Any], image: np.ndarray, operands: Sequence[np.ndarray] = ()
) -> onnx.ModelProto:
    """Build a layer on int8 between nodes that dequantize and quantize with the same scale."""
    names = [f"constant{n}" for n in range(len(operands))]
    values = dict(zip(names, operands, strict=True))
    nodes = [helper.make_node("DequantizeLinear", ["image", "scale", "zero"], ["real"])]
    for n, operand in enumerate(operands):
        if operand.dtype == np.int8:
            nodes.append(helper.make_node("DequantizeLinear", [names[n], "scale", "zero"], [f"real{n}"]))
            names[n] = f"real{n}"
    if kind == "Resize":
        names = ["", *names]  # no region of interest
    nodes.append(helper.make_node(kind, ["real", *names], ["computed"], **attributes))
    nodes.append(helper.make_node("QuantizeLinear", ["computed", "scale", "zero"], ["result"]))
    stored = _stored(values | {"scale": np.float32(0.05), "zero": np.int8(3)})
    return _graph(nodes, image, TensorProto.INT8, stored)


def _model(
    kind: str,
    attributes: Mapping[str, Any],
    image: np.ndarray,
    constants: Sequence[np.ndarray],
    result_type: int | None = None,
) -> Any:
    """Build a network of one node, whose result is of the type of the image by default."""
    names = [f"constant{n}" for n in range(len(constants))]
    values = dict(zip(names, constants, strict=True))
    if kind == "Resize":
        names, values = ["", "scales"], {"scales": np.array([1, 1, 2, 2], np.float32)}
    outputs = ["result", "places"] if kind == "TopK" else ["result"]
    node = helper.make_node(kind, ["image", *names], outputs, **attributes)
    return _graph([node], image, result_type or helper.np_dtype_to_tensor_dtype(image.dtype), _stored(values))


def _quantized(name: str, attributes: Mapping[str, Any], image: np.ndarray, weights: np.ndarray) -> Any:
    """Build a convolution of int8 between nodes that dequantize and quantize."""
    reach = weights[0].size ** 0.5 * 100
    values = {"weights": weights, "zero": np.int8(3), "none": np.int8(0), "scale": np.float32(0.05)}
    values |= {"step": np.float32(0.01), "wide": np.float32(0.0005 * reach)}
    nodes = [
        helper.make_node("DequantizeLinear", ["image", "scale", "zero"], ["real"]),
        helper.make_node("DequantizeLinear", ["weights", "step", "none"], ["factors"]),
        helper.make_node("Conv", ["real", "factors"], ["sums"], **attributes),
        helper.make_node("QuantizeLinear", ["sums", "wide", "zero"], ["result"]),
    ]
    return _graph(nodes, image, TensorProto.INT8, _stored(values))


def _stored(values: Mapping[str, Any]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in values.items()]


def _graph(nodes: Sequence[Any], image: np.ndarray, dtype: int, stored: Sequence[Any]) -> Any:
    image_info = helper.make_tensor_value_info("image", dtype, image.shape)
    output_info = helper.make_tensor_value_info("result", dtype, None)
    graph = helper.make_graph(nodes, "layer", [image_info], [output_info], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in OPSETS], ir_version=10)
