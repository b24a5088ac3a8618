"""ONNX converters for experimental operators that ONNX has removed, but that files of early exporters have."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import ParseError
from interposer.frontends.elementwise import ADD, MUL, operators_by_name
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.rearrange import Slice

__all__: list[str] = []


@operator("Affine")
def affine(node: Node) -> Value:
    """Convert Affine: alpha * x + beta."""
    x = node.value(0)
    scaled = node.step(MUL, x, node.scalar_like(node.number("alpha", 1.0), x))
    return node.result(ADD, scaled, node.scalar_like(node.number("beta", 0.0), x))


@operator("ImageScaler")
def image_scaler(node: Node) -> Value:
    """Convert ImageScaler: scale * x, plus a bias for each channel."""
    x = node.value(0, rank=4)
    bias = np.asarray(node.numbers("bias"), x.known.dtype.numpy)
    channels = node.known(x.known.shape[1], "number of channels")
    if len(bias) != channels:
        raise ParseError(f"its bias has {len(bias)} numbers for {channels} channels")
    scaled = node.step(MUL, x, node.scalar_like(node.number("scale", 1.0), x))
    return node.result(ADD, scaled, node.constant(bias.reshape(-1, 1, 1)))


@operator("ScaledTanh")
def scaled_tanh(node: Node) -> Value:
    """Convert ScaledTanh: alpha * tanh(beta * x)."""
    return _scaled_function(node, "TANH")


@operator("ParametricSoftplus")
def parametric_softplus(node: Node) -> Value:
    """Convert ParametricSoftplus: alpha * log(exp(beta * x) + 1)."""
    return _scaled_function(node, "SOFTPLUS")


def _scaled_function(node: Node, name: str) -> Value:
    """Return alpha * function(beta * x)."""
    x = node.value(0)
    scaled = node.step(MUL, x, node.scalar_like(node.number("beta"), x))
    function = node.step(operators_by_name(function=name)["function"], scaled)
    return node.result(MUL, function, node.scalar_like(node.number("alpha"), x))


@operator("Crop")
def crop(node: Node) -> Value:
    """Convert Crop: remove a border (left, top, right, bottom), or keep `scale` (height, width) from the corner on."""
    border, size = node.integers("border"), node.integers("scale", ())
    if len(border) != 4 or len(size) not in (0, 2):
        raise ParseError(f"its border is {list(border)} and its scale {list(size)}; expected four and two integers")
    x = node.value(0, rank=4)
    left, top, right, bottom = border
    height, width = (node.known(x.known.shape[axis], f"input's dimension along axis {axis}") for axis in (2, 3))
    rows, columns = size or (height - top - bottom, width - left - right)
    if min(rows, columns) < 0:
        raise ParseError(f"it keeps {rows} rows and {columns} columns of {height} and {width}; expected 0 or more")
    return node.result(Slice((0, 0, top, left), (-1, -1, rows, columns)), x)
