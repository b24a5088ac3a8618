"""Two LSTM layers of 512 units over a sequence of 100 frames of 80 features, and a linear layer for 30 symbols."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph

__all__ = ["lstm"]

STEPS, FEATURES, HIDDEN, SYMBOLS = 100, 80, 512, 30


def lstm(batch: int = 1) -> onnx.ModelProto:
    g = Graph("lstm", batch)
    x = g.input("frames", (STEPS, FEATURES))
    x = g.node("Transpose", x, perm=[1, 0, 2])
    for depth in (FEATURES, HIDDEN):
        x = _layer(g, x, depth)
    x = g.node("Transpose", x, perm=[1, 0, 2])
    g.channels[x] = HIDDEN
    return g.finish(g.linear(x, SYMBOLS))


def _layer(g: Graph, x: str, depth: int) -> str:
    weights = g.weights((1, 4 * HIDDEN, depth), depth)
    recurrent = g.weights((1, 4 * HIDDEN, HIDDEN), HIDDEN)
    bias = g.node("Unsqueeze", g.bias(8 * HIDDEN), g.constant([0], np.int64))
    steps, _, _ = g.node("LSTM", x, weights, recurrent, bias, outputs=3, hidden_size=HIDDEN)
    return g.node("Squeeze", steps, g.constant([1], np.int64))
