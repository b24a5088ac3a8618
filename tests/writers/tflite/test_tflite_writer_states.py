"""Files with states: recurrent operators that were read from a file, and variables of any other kind."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import UnwritableError
from interposer.core.types import DataType
from interposer.frontends.tflite.container import read_model
from interposer.ops import Addition, Rnn

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which writes the files, is not installed")

from interposer.frontends import tflite as reader
from interposer.writers import tflite
from tests.frontends.tflite.test_tflite_recurrent import (
    RUNS,
    float_models,
    hybrid_models,
    integer_models,
    results,
    results_of_litert,
    rnn,
)

MODELS = [*float_models(), *hybrid_models(), *integer_models()]
UNITS, INPUTS = 3, 2


def written(data: bytes) -> bytes:
    """The file that is written from the network of a file."""
    return tflite.write(reader.load(data))


@pytest.mark.parametrize("model", MODELS)
def test_a_recurrent_layer_that_was_read_is_written_with_its_states(model) -> None:
    data, feeds = model()
    content, [original] = written(data), read_model(data).subgraphs[0].operators
    if not original.attributes.get("kernel_type"):
        [operator] = read_model(content).subgraphs[0].operators
        assert (operator.name, operator.attributes) == (original.name, original.attributes)
    for result, expected in zip(results(content, feeds), results(data, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("model", MODELS)
def test_litert_gives_the_same_for_the_written_file_in_every_run(model) -> None:
    data, feeds = model()
    for result, expected in zip(results_of_litert(written(data), feeds), results_of_litert(data, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def running_sum(initial: np.ndarray | None = None, dtype: str = "float32") -> ip.Network:
    """A network whose output is the sum of all inputs so far, and of the initial value."""
    network = ip.Network("sum")
    info = ip.TensorInfo((2,), dtype)
    total = network.add_state("total", info, initial=initial)
    x = network.add_input_layer(0, info, name="x")
    added = network.add_layer(Addition(), total, x, name="added")
    network.set_state("total", added)
    network.add_output_layer(0, added, name="y")
    return network


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("initial", [None, [5, -7]])
def test_a_state_of_other_layers_is_a_variable_with_its_initial_value(initial, dtype) -> None:
    array = None if initial is None else np.array(initial, dtype)
    content = tflite.write(running_sum(array, dtype))
    expected = np.zeros(2, dtype) if array is None else array
    feed = np.array([1, 2], dtype)
    sums = [expected + step * feed for step in range(1, RUNS + 1)]
    for total, output in zip(sums, results(content, [feed]), strict=True):
        np.testing.assert_array_equal(output, total)
    for total, output in zip(sums, results_of_litert(content, [feed]), strict=True):
        np.testing.assert_array_equal(output, total)


def recurrent(*, state: str) -> ip.Network:
    """Return a network with an Rnn layer. Its state is "absent", "an input", "shown" as an output or "ones" first."""
    network = ip.Network("recurrent")
    x = network.add_input_layer(0, ip.TensorInfo((1, INPUTS)), name="x")
    shapes = ((UNITS, INPUTS), (UNITS, UNITS), (UNITS,))
    arrays = [network.add_constant_layer(np.ones(shape, np.float32)) for shape in shapes]
    info = ip.TensorInfo((1, UNITS))
    before = {
        "absent": lambda: None,
        "an input": lambda: network.add_input_layer(1, info, name="h"),
        "shown": lambda: network.add_state("h", info),
        "ones": lambda: network.add_state("h", info, initial=np.ones((1, UNITS), np.float32)),
    }[state]()
    layer = network.add_layer(Rnn(), x, *arrays, before, name="cell")
    if state in ("shown", "ones"):
        network.set_state("h", layer.outputs[0])
    network.add_output_layer(0, layer.outputs[1], name="y")
    if state == "shown":
        network.add_output_layer(1, layer.outputs[0], name="z")
    return network


@pytest.mark.parametrize("state", ["absent", "an input", "shown", "ones"])
def test_a_recurrent_layer_whose_state_is_no_variable_of_its_own_is_refused_with_the_reason(state: str) -> None:
    with pytest.raises(UnwritableError) as caught:
        tflite.write(recurrent(state=state))
    [(operator, reason)] = caught.value.layers.values()
    assert operator == "Rnn"
    assert reason == (
        f"its operand hidden_state_in is {'absent' if state == 'absent' else 'no state of the network'}; TFLite's "
        "operator needs a state that begins with zeros and that this layer alone reads and sets"
    )


def test_hybrid_layers_without_rounding_are_refused() -> None:
    network = reader.load(rnn("RNN", "int8")[0])
    [layer] = [layer for layer in network if isinstance(layer.op, Rnn)]
    rebuilt = ip.Network()
    x = rebuilt.add_input_layer(0, layer.values[0].known.with_constant(None))
    constants = [rebuilt.add_constant_layer(v.constant, v.known.quantization) for v in layer.values[1:4]]
    again = rebuilt.add_layer(Rnn(), x, *constants, rebuilt.add_state("h", layer.values[4].known), name="cell")
    rebuilt.set_state("h", again.outputs[0])
    rebuilt.add_output_layer(0, again.outputs[1])
    with pytest.raises(UnwritableError, match="weights is quantized, but its activations are not rounded"):
        tflite.write(rebuilt)


def test_states_of_half_precision_in_a_recurrent_layer_are_refused() -> None:
    network, info = ip.Network(), ip.TensorInfo((1, INPUTS), DataType.FLOAT16)
    x = network.add_input_layer(0, info)
    shapes = ((UNITS, INPUTS), (UNITS, UNITS), (UNITS,))
    arrays = [network.add_constant_layer(np.ones(shape, np.float16)) for shape in shapes]
    state = network.add_state("h", ip.TensorInfo((1, UNITS), DataType.FLOAT16))
    layer = network.add_layer(Rnn(), x, *arrays, state, name="cell")
    network.set_state("h", layer.outputs[0])
    network.add_output_layer(0, layer.outputs[1])
    with pytest.raises(UnwritableError, match="input is float16; TFLite has float32"):
        tflite.write(network)
