"""Encoders like BERT: masked attention and layers with GELU that normalize at their ends, for sequences of 128."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .graph import Graph
from .transformer import attention, mlp

__all__ = ["bert_base", "bert_small", "distilbert"]

LENGTH = 128
HEAD = 64


def bert_base(batch: int = 1) -> onnx.ModelProto:
    """Return six of the twelve layers."""
    return _encoder(Graph("bert_base", batch), 6, 768)


def bert_small(batch: int = 1) -> onnx.ModelProto:
    return _encoder(Graph("bert_small", batch), 4, 256)


def distilbert(batch: int = 1) -> onnx.ModelProto:
    """Return three of the six layers, in the form of older exporters: layer normalizations are several nodes."""
    return _encoder(Graph("distilbert", batch), 3, 768, decomposed=True)


def _encoder(g: Graph, layers: int, width: int, decomposed: bool = False) -> onnx.ModelProto:
    words = g.embedding(g.input("ids", (LENGTH,), TensorProto.INT64), 4096, width)
    mask = _hidden(g, g.input("mask", (LENGTH,), TensorProto.INT64))
    x = g.layer_norm(g.add(words, g.weights((LENGTH, width), 10)), decomposed, 1e-12)
    for _ in range(layers):
        x = g.layer_norm(g.add(attention(g, x, (g.batch, LENGTH), width // HEAD, mask), x), decomposed, 1e-12)
        x = g.layer_norm(g.add(mlp(g, x), x), decomposed, 1e-12)
    return g.finish(x)


def _hidden(g: Graph, mask: str) -> str:
    """Return a large negative number for masked positions, and 0 for all others."""
    wide = g.node("Unsqueeze", mask, g.constant([1, 2], np.int64))
    seen = g.node("Cast", wide, to=TensorProto.FLOAT)
    return str(g.node("Mul", g.node("Sub", g.constant(1.0), seen), g.constant(-10000.0)))
