"""DLRM: 8 tables, two stacks of linear layers, and products between all pairs of features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from .graph import Graph

__all__ = ["dlrm"]

TABLES, ROWS, WIDTH = 8, 20000, 64


def dlrm(batch: int = 1) -> onnx.ModelProto:
    g = Graph("dlrm", batch)
    dense = _stack(g, g.input("numbers", (13,)), (512, 256, WIDTH))
    ids = [g.input(f"ids_{number}", (), TensorProto.INT64) for number in range(TABLES)]
    rows = [g.embedding(id_input, ROWS, WIDTH) for id_input in ids]
    wide = [g.node("Unsqueeze", x, g.constant([1], np.int64)) for x in (dense, *rows)]
    features = g.node("Concat", *wide, axis=1)
    products = g.node("MatMul", features, g.transpose(features, 0, 2, 1))
    pairs = np.argwhere(np.tri(TABLES + 1, k=-1, dtype=bool))
    pairs_first = g.node("GatherND", g.transpose(products, 1, 2, 0), g.constant(pairs, np.int64))
    x = g.node("Concat", dense, g.transpose(pairs_first, 1, 0), axis=1)
    g.channels[x] = WIDTH + len(pairs)
    return g.finish(g.node("Sigmoid", g.gemm(_stack(g, x, (512, 256)), 1)))


def _stack(g: Graph, x: str, widths: Sequence[int]) -> str:
    for width in widths:
        x = g.act(g.gemm(x, width, 2**0.5), "Relu")
    return x
