"""Recurrent layers of several sequences give what the reference gives, with any number of units and threads."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import TensorInfo
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RecurrentDirection, RnnSequence
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

LAYERS = {
    "gru": (GruSequence, 3, {}),
    "gru with a linear reset": (GruSequence, 3, {"linear_before_reset": True}),
    "simple": (RnnSequence, 1, {}),
    "lstm": (LstmSequence, 4, {}),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("batch", [3, 4, 9])
@pytest.mark.parametrize("hidden", [1, 16, 33, 80, 272])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_sequences_give_what_the_reference_gives(layer: str, batch: int, hidden: int, threads: int) -> None:
    op, gates, attributes = LAYERS[layer]
    rng = np.random.default_rng(hidden)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    network = ip.Network(layer)
    x = network.add_input_layer(0, TensorInfo((5, batch, 7)), name="x")
    start = network.add_input_layer(1, TensorInfo((2, batch, hidden)), name="start")
    shapes = [(2, gates * hidden, 7), (2, gates * hidden, hidden), (2, 2 * gates * hidden)]
    constants = [network.add_constant_layer(drawn(*shape)) for shape in shapes]
    operands = [item and item.output for item in (x, *constants, None, start)]
    added = network.graph.add(op(direction=RecurrentDirection.BIDIRECTIONAL, **attributes), operands)
    for n, output in enumerate(added.outputs):
        network.add_output_layer(n, output)
    arrays = [drawn(5, batch, 7), drawn(2, batch, hidden)]
    for result, expected in zip(*outcomes(network, arrays, threads), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)
