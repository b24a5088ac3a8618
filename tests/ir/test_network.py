"""Networks: building, connecting, validating."""

import inspect
import pydoc
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError, InvalidNetworkError
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ir.builders import Builders
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    Concat,
    Convolution2d,
    ElementwiseBinary,
    Softmax,
)
from tests.graphs import graphs

INFO = TensorInfo((2, 3))


def refused(call, *args, **kwargs):
    with pytest.raises(InvalidArgumentError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def problems_of(network):
    with pytest.raises(InvalidNetworkError) as caught:
        network.validate()
    return list(caught.value.problems)


def test_infos_are_known_as_soon_as_a_layer_is_added():
    network = Network()
    x = network.add_input_layer(0, INFO)
    assert network.add_layer(Activation(), x).output.info == INFO
    assert network.add_constant_layer(np.ones(3, np.float32)).output.info == TensorInfo((3,))


def test_a_layer_with_one_output_stands_for_it():
    network = Network()
    x = network.add_input_layer(0, INFO)
    parts = network.add_splitter_layer(x, axis=1, sizes=(1, 2))
    assert network.add_layer(Activation(), x).inputs == (x.output,)
    assert refused(network.add_layer, Activation(), parts) == "layer 'splitter' (Splitter) has 2 outputs; name one"


def test_an_operator_is_kept_in_its_most_specific_form():
    network = Network()
    x = network.add_input_layer(0, INFO)
    assert type(network.add_layer(ElementwiseBinary(BinaryOperation.ADD), x, x).op) is Addition


@pytest.mark.parametrize(("arguments", "options", "message"), [
    (("relu",), {}, "add_layer needs an operator such as Addition(), not 'relu'"),
    ((Activation(), 1), {}, "an input must be a Value or None, not 1"),
    ((Activation(), None, None), {}, "Activation takes at most 1 inputs, but 2 were given"),
    ((Activation(),), {"outputs": [INFO, INFO]}, "Activation has 1 outputs, but 2 infos were given for them"),
    ((Activation(),), {"outputs": (2, 3)}, "Activation has 1 outputs, but 2 infos were given for them"),
    ((Activation(),), {"outputs": 5}, "an output is declared with a TensorInfo or None, not 5"),
])  # fmt: skip
def test_a_layer_that_cannot_be_meant_is_refused(arguments, options, message):
    assert refused(Network().add_layer, *arguments, **options) == message


def test_an_input_is_described_by_an_info():
    assert refused(Network().add_input_layer, 0, (2, 3)) == (
        "an input is described by a TensorInfo(shape, dtype), not (2, 3)"
    )


def test_the_name_of_a_network_is_a_text():
    assert refused(Network, 5) == "a network's name must be a text, not 5"


def test_a_constant_that_is_no_array_is_refused():
    assert refused(Network().add_constant_layer, [[1], [1, 2]]) == (
        "Constant: value must be an array, not [[1], [1, 2]]"
    )


def test_a_value_of_another_network_is_refused():
    x = Network().add_input_layer(0, INFO, name="x")
    assert refused(Network().add_layer, Activation(), x) == "the value 'x' belongs to another network"


# --- connecting -------------------------------------------------------------------------------------------------------


def test_operands_are_connected_by_number_or_by_name():
    network = Network()
    x, added = network.add_input_layer(0, INFO), network.add_layer(Addition())
    network.connect(x, added)
    network.connect(x.output, added, "b")
    assert added.inputs == (x.output, x.output)
    assert added.output.info == INFO


def test_a_wrong_operand_is_refused():
    network = Network()
    x, added = network.add_input_layer(0, INFO), network.add_layer(Addition())
    assert refused(network.connect, x, added, 2) == "Addition takes at most 2 inputs, but 3 were given"
    assert refused(network.connect, x, added, -1) == "an operand's number must not be negative, but -1 was given"
    assert refused(network.connect, x, added, "c") == "Addition has no operand 'c'; it has a, b"
    assert refused(network.connect, x, added.output) == "connect needs the layer that takes the value, not Value"
    assert refused(network.connect, x, Network().add_layer(Addition())) == (
        "layer 'addition' (Addition) belongs to another network"
    )


def test_connecting_infers_what_is_behind_and_forgets_it_where_it_no_longer_fits():
    network = Network()
    first, second = network.add_layer(Activation()), network.add_layer(Activation())
    network.connect(first, second)
    network.connect(network.add_input_layer(0, INFO), first)
    assert second.output.info == INFO
    network.connect(network.add_input_layer(1, TensorInfo((7,))), first)
    assert second.output.info == TensorInfo((7,))


@given(graphs(), st.randoms())
@settings(max_examples=30)
def test_a_network_that_is_connected_in_any_order_has_the_infos_of_one_that_was_built_in_order(graph, random):
    network = Network()
    copies = {}
    for layer in graph:
        declared = [value.declared for value in layer.outputs]
        copies[layer] = network.add_layer(layer.op, name=layer.name, outputs=declared)
    edges = [(layer, i, value) for layer in graph for i, value in enumerate(layer.inputs) if value is not None]
    random.shuffle(edges)
    for layer, i, value in edges:
        network.connect(copies[value.producer].outputs[value.index], copies[layer], i)
    assert [v.info for layer in copies.values() for v in layer.outputs] == [
        v.info for layer in graph for v in layer.outputs
    ]
    network.validate()


def test_layers_that_depend_on_themselves_are_a_fault_and_nothing_worse():
    network = Network()
    x = network.add_input_layer(0, INFO)
    merged = network.add_layer(Concat(0), x, name="merged")
    after_cycle = network.add_layer(Activation(), merged, name="after")
    network.add_output_layer(0, after_cycle)
    network.connect(after_cycle, merged, 1)
    assert problems_of(network) == ["these layers depend on themselves: 'merged' (Concat), 'after' (Activation)"]


def test_beside_a_cycle_all_other_faults_are_told():
    network = Network()
    x = network.add_input_layer(0, INFO)
    turning = network.add_layer(Addition(), x, name="turning")
    network.connect(turning, turning, "b")
    network.add_layer(Addition(), x, name="half")
    assert problems_of(network) == [
        "these layers depend on themselves: 'turning' (Addition)",
        "layer 'half' (Addition): b is not connected",
        "it has no output layer",
    ]


def test_of_a_long_cycle_ten_layers_are_named():
    network = Network()
    first = value = network.add_layer(Activation())
    for _ in range(11):
        value = network.add_layer(Activation(), value)
    network.connect(value, first)
    network.add_output_layer(0, value)
    [error] = problems_of(network)
    assert error.startswith(
        "these layers depend on themselves: 'activation' (Activation), 'activation_1' (Activation), "
    )
    assert error.endswith(", 'activation_9' (Activation) and 2 more")


# --- validating -------------------------------------------------------------------------------------------------------


def test_all_faults_are_raised_together():
    network = Network("net")
    x = network.add_input_layer(0, INFO, name="x")
    network.add_input_layer(0, INFO, name="y")
    network.add_layer(Addition(), x, network.add_constant_layer(np.ones(5, np.float32)), name="sum")
    network.add_layer(Addition(), x, name="half")
    with pytest.raises(InvalidNetworkError) as caught:
        network.validate()
    lines = str(caught.value).splitlines()
    assert lines[0] == "network 'net' has 4 errors:"
    assert lines[1].startswith("  - layer 'sum' (Addition): ")
    assert lines[2:] == [
        "  - layer 'half' (Addition): b is not connected",
        "  - input binding id 0 is used by layers 'x' and 'y'",
        "  - it has no output layer",
    ]


def test_an_input_without_info_is_a_fault():
    network = Network()
    network.add_output_layer(0, network.add_input_layer(0, None, name="x"))
    assert problems_of(network) == [
        "layer 'x' (Input): its output has no tensor info and none can be inferred; "
        "declare it with outputs=[TensorInfo(...)]"
    ]


def test_an_output_that_nothing_is_connected_to_is_a_fault():
    network = Network()
    network.add_output_layer(0)
    assert problems_of(network) == ["layer 'output_0' (Output): input is not connected"]


def test_inputs_and_outputs_are_found_by_their_numbers():
    network = Network()
    x = network.add_input_layer(3, INFO)
    out = network.add_output_layer(7, x)
    assert (network.inputs, network.outputs) == ({3: x}, {7: out})
    assert (x.name, out.name) == ("input_3", "output_7")
    assert (len(network), list(network)) == (2, [x, out])


def test_a_network_shows_itself():
    network = Network("net")
    network.add_output_layer(0, network.add_input_layer(0, INFO, name="x"))
    assert repr(network) == "<Network 'net': 2 layers>"
    assert str(network) == 'graph "net" {\n  %x = Input : float32[2, 3]\n  Output %x as "output_0"\n}'


# --- builders ---------------------------------------------------------------------------------------------------------


def test_a_builder_takes_operands_by_position_and_attributes_by_name():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((1, 4, 4, 2)))
    weights = network.add_constant_layer(np.ones((3, 2, 2, 2), np.float32))
    layer = network.add_convolution2d_layer(x, weights, stride_x=2, data_layout=DataLayout.NHWC, name="conv")
    assert layer.op == Convolution2d(stride_x=2, data_layout=DataLayout.NHWC)
    assert layer.values == (x.output, weights.output)
    assert layer.name == "conv"
    assert layer.output.info == TensorInfo((1, 3, 2, 3))


def test_a_builder_of_a_variadic_operand_takes_any_number_of_values():
    network = Network()
    x = network.add_input_layer(0, INFO)
    assert network.add_concat_layer(x, x, x, axis=1).output.info == TensorInfo((2, 9))


def test_a_builder_declares_outputs():
    network = Network()
    info = TensorInfo((2, 3), "int8", Quantization(0.5))
    layer = network.add_quantize_layer(network.add_input_layer(0, INFO), dtype=DataType.INT8, outputs=info)
    assert layer.output.info == info


def test_a_builder_says_what_arguments_it_lacks_and_does_not_know():
    network = Network()
    with pytest.raises(TypeError, match=r"add_activation_layer\(\) missing 1 required positional argument: 'input'"):
        network.add_activation_layer()
    with pytest.raises(TypeError, match=r"add_activation_layer\(\) got an unexpected keyword argument 'beta'"):
        network.add_activation_layer(network.add_input_layer(0, INFO), beta=1)


def test_builders_are_found_by_dir_and_help():
    assert "add_softmax_layer" in dir(Network)
    text = pydoc.render_doc(Builders, renderer=pydoc.plaintext)
    one_line = " ".join(text.replace("|", " ").split())  # Python 3.13 breaks long signatures
    assert re.search(r"add_softmax_layer\( ?self, input: 'Value Layer None', \*, beta: 'float' = 1.0", one_line)


def test_builders_have_the_defaults_of_their_operators():
    signature = inspect.signature(Builders.add_activation_layer)
    assert signature.parameters["function"].default is ActivationFunction.SIGMOID
    assert signature.parameters["input"].default is inspect.Parameter.empty
    assert inspect.signature(Builders.add_softmax_layer).parameters["beta"].default == Softmax().beta
    assert inspect.getdoc(Builders.add_softmax_layer) == inspect.getdoc(Softmax).partition("\n")[0]
