"""Recurrent layers over a sequence of 100 frames of 80 features, and a linear layer for 30 symbols."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph

__all__ = ["gru", "lstm"]

STEPS, FEATURES, SYMBOLS = 100, 80, 30


def lstm(batch: int = 1) -> onnx.ModelProto:
    """Return two LSTM layers of 512 units."""
    return _network("lstm", batch, "LSTM", 512)


def gru(batch: int = 1) -> onnx.ModelProto:
    """Return two bidirectional GRU layers of 256 units."""
    return _network("gru", batch, "GRU", 256, 2)


def _network(name: str, batch: int, kind: str, hidden: int, directions: int = 1) -> onnx.ModelProto:
    g = Graph(name, batch)
    x = g.transpose(g.input("frames", (STEPS, FEATURES)), 1, 0, 2)
    for depth in (FEATURES, directions * hidden):
        x = _layer(g, x, depth, kind, hidden, directions)
    x = g.transpose(x, 1, 0, 2)
    g.channels[x] = directions * hidden
    return g.finish(g.linear(x, SYMBOLS))


def _layer(g: Graph, x: str, depth: int, kind: str, hidden: int, directions: int) -> str:
    rows = hidden * {"LSTM": 4, "GRU": 3}[kind]
    weights = g.weights((directions, rows, depth), depth)
    recurrent = g.weights((directions, rows, hidden), hidden)
    bias = g.weights((directions, 2 * rows), 100)
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    results = 3 if kind == "LSTM" else 2
    steps, *_ = g.node(kind, x, weights, recurrent, bias, outputs=results, hidden_size=hidden, **attributes)
    if directions == 1:
        return str(g.node("Squeeze", steps, g.constant([1], np.int64)))
    return g.reshape(g.transpose(steps, 0, 2, 1, 3), STEPS, g.batch, directions * hidden)
