"""Small ONNX files for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

Shape = Sequence[int | str]


def written(
    path: Path, nodes: list[Any], inputs: dict[str, Shape], outputs: dict[str, Shape], **constants: np.ndarray
) -> str:
    """Write a model of float32 inputs and outputs; the network is called as the file."""
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    save(model, path)
    return str(path)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node that is called as its first output."""
    names = outputs.split()
    return helper.make_node(operator, inputs.split(), names, name=names[0], **attributes)


def doubler(folder: Path, shape: Shape = (1, 4)) -> str:
    """Return a network that computes y = x + x."""
    return written(folder / "doubler.onnx", [node("Add", "x x", "y")], {"x": shape}, {"y": shape})


def alternating(folder: Path) -> str:
    """Sums, activations and a product by turns, for backends that can do only one of these."""
    nodes = [
        node("Add", "x x", "twice"),
        node("Relu", "twice", "positive"),
        node("Mul", "positive x", "product"),
        node("Tanh", "product", "y"),
    ]
    nodes[-1].name = "bounded"
    return written(folder / "alternating.onnx", nodes, {"x": (1, 4)}, {"y": (1, 4)})


def splitter(folder: Path) -> str:
    """Two inputs, and two outputs of which one is no vector."""
    nodes = [node("Add", "a b", "total"), node("Sub", "a b", "difference")]
    return written(folder / "splitter.onnx", nodes, {"a": (1, 3), "b": (2, 3)}, {"total": (2, 3), "difference": (2, 3)})


def brightness(folder: Path, shape: Shape = (1, 3, 8, 8)) -> str:
    """The mean of each colour of an image."""
    nodes = [node("ReduceMean", "image", "colours", axes=[2, 3], keepdims=0)]
    return written(folder / "brightness.onnx", nodes, {"image": shape}, {"colours": (shape[0], shape[1])})
