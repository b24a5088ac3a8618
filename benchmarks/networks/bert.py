"""Encoders like BERT from the embeddings on: masked attention and layers with GELU, for sequences of 128."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from .graph import Graph

__all__ = ["bert_base", "bert_small"]

LENGTH = 128
HEAD = 64


def bert_base(batch: int = 1) -> onnx.ModelProto:
    return _bert("bert_base", 12, 768, batch)


def bert_small(batch: int = 1) -> onnx.ModelProto:
    return _bert("bert_small", 4, 256, batch)


def _bert(name: str, layers: int, width: int, batch: int) -> onnx.ModelProto:
    g = Graph(name, batch)
    x = g.input("embeddings", (LENGTH, width))
    mask = _hidden(g, g.input("mask", (LENGTH,), TensorProto.INT64))
    g.channels[x] = width
    for _ in range(layers):
        x = _norm(g, g.add(_attention(g, x, mask), x))
        x = _norm(g, g.add(g.linear(_gelu(g, g.linear(x, 4 * width)), width), x))
    return g.finish(x)


def _hidden(g: Graph, mask: str) -> str:
    """Return a large negative number for masked positions, and 0 for all others."""
    wide = g.node("Unsqueeze", mask, g.constant([1, 2], np.int64))
    seen = g.node("Cast", wide, to=TensorProto.FLOAT)
    return g.node("Mul", g.node("Sub", g.constant(1.0), seen), g.constant(-10000.0))


def _attention(g: Graph, x: str, mask: str) -> str:
    width = g.channels[x]
    query, value = _heads(g, g.linear(x, width)), _heads(g, g.linear(x, width))
    key = _heads(g, g.linear(x, width), transposed=True)
    scores = g.node("Div", g.node("MatMul", query, key), g.constant(math.sqrt(HEAD)))
    seen = g.node("MatMul", g.node("Softmax", g.add(scores, mask), axis=-1), value)
    merged = g.node("Transpose", seen, perm=[0, 2, 1, 3])
    y = g.node("Reshape", merged, g.constant([g.batch, LENGTH, width], np.int64))
    g.channels[y] = width
    return g.linear(y, width)


def _heads(g: Graph, x: str, transposed: bool = False) -> str:
    split = [g.batch, LENGTH, g.channels[x] // HEAD, HEAD]
    y = g.node("Reshape", x, g.constant(split, np.int64))
    return g.node("Transpose", y, perm=[0, 2, 3, 1] if transposed else [0, 2, 1, 3])


def _gelu(g: Graph, x: str) -> str:
    """Return GELU as several nodes, as exporters write it."""
    error = g.node("Erf", g.node("Div", x, g.constant(math.sqrt(2))))
    return g.node("Mul", g.node("Mul", x, g.add(error, g.constant(1.0))), g.constant(0.5))


def _norm(g: Graph, x: str) -> str:
    width = g.channels[x]
    return g.node("LayerNormalization", x, g.constant(np.ones(width)), g.bias(width), axis=-1, epsilon=1e-12)
