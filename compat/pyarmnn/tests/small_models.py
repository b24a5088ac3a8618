"""Small classifiers of images of 28x28 pixels in each format; each has fixed pseudo-random weights and 10 classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from interposer.ops import FullyConnected, Reshape, Softmax
from tests.frontends.tensorflow.graphs import Type, const, graph, node, placeholder
from tests.frontends.tflite.build import tensor
from tests.frontends.tflite.test_tflite_custom import custom

STEP, ZERO = 0.007843137718737125, 128
"""The quantization of the input of the TensorFlow Lite model."""
WEIGHTS = (np.random.RandomState(3).uniform(-1, 1, (10, 784)) / 8).astype(np.float32)
BIAS = np.random.RandomState(4).uniform(-1, 1, 10).astype(np.float32)
"""The parameters of the other models."""
IMAGE = np.random.RandomState(7).randint(0, 256, (1, 28, 28, 1)).astype(np.uint8)
"""A picture for the quantized model; divided by 255 for the others."""
QUANTIZED_SCORES = [[1, 10, 72, 59, 15, 5, 34, 7, 0, 53]]
"""The result of the quantized model for the picture, which is also that of Arm NN 20.08."""


def tflite(path: Path) -> str:
    """Write a quantized network of Reshape, FullyConnected and Softmax, from ``input_1`` to ``dense/Softmax``."""
    network, image = ip.Network("mock"), ip.Quantization([STEP], [ZERO])
    x = network.add_input_layer(0, ip.TensorInfo((1, 28, 28, 1), "uint8", image), name="input_1")
    flat = network.add_layer(Reshape((1, 784)), x, outputs=ip.TensorInfo((1, 784), "uint8", image))
    random = np.random.RandomState(1)
    weights = random.randint(0, 256, (10, 784)).astype(np.uint8)
    bias = random.randint(-4000, 4000, 10).astype(np.int32)
    w = network.add_constant_layer(weights, ip.Quantization([0.002], [ZERO]), name="weights")
    b = network.add_constant_layer(bias, ip.Quantization([STEP * 0.002], [0]), name="bias")
    scores = ip.TensorInfo((1, 10), "uint8", ip.Quantization([0.05], [ZERO]))
    dense = network.add_layer(FullyConnected(transpose_weight_matrix=True), flat, w, b, outputs=scores)
    chances = ip.TensorInfo((1, 10), "uint8", ip.Quantization([1 / 256], [0]))
    network.add_output_layer(0, network.add_layer(Softmax(), dense, outputs=chances), name="dense/Softmax")
    ip.writers.tflite.save(network, path)
    return str(path)


def tflite_with_custom_operator(path: Path) -> str:
    """Write a network with the custom operator ``MyOp`` from ``x`` to ``y``, both float32 of shape (1, 4)."""
    path.write_bytes(custom("MyOp", [tensor("x", [1, 4])], [tensor("y", [1, 4])], {"a": 1}))
    return str(path)


def onnx(path: Path, batch: int | str = 1, text: bool = False) -> str:
    """Write a network of Flatten, Gemm and Softmax, from ``image`` of shape (batch, 1, 28, 28) to ``scores``."""
    from google.protobuf import text_format
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weights", "bias"], ["dense"], transB=1),
        helper.make_node("Softmax", ["dense"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mock",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 1, 28, 28])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(BIAS, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    path.write_bytes(text_format.MessageToString(model).encode() if text else model.SerializeToString())
    return str(path)


def caffe(path: Path, text: bool = False) -> str:
    """Write a network of InnerProduct and Softmax, from ``data`` of shape (1, 1, 28, 28) to ``prob``."""
    from interposer.frontends.caffe.proto import read_message

    blobs = f"blobs {{ shape {{ dim: 10 dim: 784 }} {_data(WEIGHTS)} }} blobs {{ shape {{ dim: 10 }} {_data(BIAS)} }}"
    content = f"""
        name: "mock"
        layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 1 dim: 28 dim: 28 }} }} }}
        layer {{
          name: "dense" type: "InnerProduct" bottom: "data" top: "dense"
          inner_product_param {{ num_output: 10 }} {blobs}
        }}
        layer {{ name: "prob" type: "Softmax" bottom: "dense" top: "prob" }}
    """.encode()
    path.write_bytes(content if text else read_message(content).SerializeToString())
    return str(path)


def _data(array: np.ndarray[Any, Any]) -> str:
    return " ".join(f"data: {number!r}" for number in array.ravel().tolist())


def tensorflow(path: Path, text: bool = False) -> str:
    """Write a frozen graph of Reshape, MatMul, Add and Softmax, from ``input`` of an open shape to ``scores``."""
    path.write_bytes(_graph_text().encode() if text else _graph())
    return str(path)


def _graph() -> bytes:
    return graph(
        placeholder("input", None),
        const("shape", np.int32([-1, 784])),
        node("Reshape", "flat", "input", "shape", T=Type("float32"), Tshape=Type("int32")),
        const("weights", WEIGHTS.T),
        node("MatMul", "product", "flat", "weights", T=Type("float32")),
        const("bias", BIAS),
        node("Add", "dense", "product", "bias", T=Type("float32")),
        node("Softmax", "scores", "dense", T=Type("float32")),
    )


def _graph_text() -> str:
    def number(array: np.ndarray[Any, Any], kind: str, field: str) -> str:
        sizes = " ".join(f"dim {{ size: {size} }}" for size in array.shape)
        values = " ".join(f"{field}: {number!r}" for number in array.ravel().tolist())
        tensor = f"tensor {{ dtype: {kind} tensor_shape {{ {sizes} }} {values} }}"
        return f'attr {{ key: "dtype" value {{ type: {kind} }} }} attr {{ key: "value" value {{ {tensor} }} }}'

    kind = 'attr { key: "T" value { type: DT_FLOAT } }'
    return f"""
        node {{ name: "input" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
        node {{ name: "shape" op: "Const" {number(np.int32([-1, 784]), "DT_INT32", "int_val")} }}
        node {{ name: "flat" op: "Reshape" input: "input" input: "shape" {kind} }}
        node {{ name: "weights" op: "Const" {number(WEIGHTS.T, "DT_FLOAT", "float_val")} }}
        node {{ name: "product" op: "MatMul" input: "flat" input: "weights" {kind} }}
        node {{ name: "bias" op: "Const" {number(BIAS, "DT_FLOAT", "float_val")} }}
        node {{ name: "dense" op: "Add" input: "product" input: "bias" {kind} }}
        node {{ name: "scores" op: "Softmax" input: "dense" {kind} }}
    """


def chances(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what the models of floating point compute for an image, in NumPy."""
    scores = image.reshape(1, 784) @ WEIGHTS.T + BIAS
    powers = np.exp(scores - scores.max())
    probabilities: np.ndarray[Any, Any] = powers / powers.sum()
    return probabilities
