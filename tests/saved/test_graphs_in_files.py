"""Graphs as data: what is read at once, and what when it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer.core.errors import ParseError
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.ir.graph import Graph
from interposer.saved.graphs import ArrayWriter, GraphReader, graph_to_plain

FOLDED = {
    "scale": TensorInfo.of(np.float32([0.5, 2])),
    "codes": TensorInfo.of(np.int8([[1], [2]]), Quantization([1.0, 2.0], [3, 4], 0)),
    "open": TensorInfo((None, 3)),
}


class Sections(list[bytes]):
    """Bytes in memory, each with its number as its place."""

    def data(self, raw: memoryview) -> Any:
        self.append(bytes(raw))
        return len(self) - 1

    def array(self, place: int) -> Array:
        return np.frombuffer(self[place], np.uint8)


def described(folded: dict[str, TensorInfo]) -> tuple[dict[str, Any], GraphReader]:
    """Return the data of a graph with these folded constants, and a reader for it."""
    graph, sections = Graph("folded"), Sections()
    graph.folded = folded
    return graph_to_plain(graph, ArrayWriter(sections)), GraphReader(sections.array, path="net.ipn")


def test_folded_constants_are_those_that_were_saved() -> None:
    plain, reader = described(FOLDED)
    folded = reader.graph(plain).folded
    assert dict(folded) == FOLDED
    assert list(folded) == list(FOLDED)
    for name, info in FOLDED.items():
        assert folded[name] is folded[name]
        np.testing.assert_array_equal(folded[name].constant, info.constant)
    assert reader.graph(plain).clone().folded == folded


def test_a_damaged_folded_constant_is_refused_when_it_is_read() -> None:
    plain, reader = described(FOLDED)
    plain["folded"]["scale"]["value"]["array"][1] = [3]
    folded = reader.graph(plain).folded
    assert folded["open"] == FOLDED["open"]
    assert ("scale" in folded, "absent" in folded) == (True, False)
    with pytest.raises(ParseError) as caught:
        folded["scale"]
    assert "an array of 2 elements cannot have the shape [3]" in str(caught.value)
    assert "net.ipn" in str(caught.value)
