"""`load(..., inputs=[names])`: networks that begin at other values than those that the file declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import BindingError, InvalidArgumentError, UnsupportedOperatorError
from interposer.ir.text import parse_graph
from interposer.session.source import read_network

pytestmark = pytest.mark.needs_cpuref

CHAIN = """graph "chain" {
  %image = Input : float32[n, 4]
  %other = Input(binding_id=1) : float32[n, 4]
  %relu = Activation(function=RELU) %image
  %sum = Addition %relu, %other
  %halves:0, %halves:1 = Splitter(axis=1, sizes=(2, 2)) %sum
  %product = Multiplication %halves:0, %halves:1
  Output %product as "y"
  Output(binding_id=1) %relu as "r"
}"""
X = np.float32([[1, -2, 3, -4]])


def chain() -> Network:
    return Network(graph=parse_graph(CHAIN))


def names(network: Network) -> list[str]:
    return [layer.name for layer in network.graph.inputs]


def test_a_network_begins_at_the_named_values_in_their_order():
    model = ip.load(chain(), ["CpuRef"], inputs=["halves:1", "halves:0"], outputs=["y"])
    assert [(name, str(info)) for name, info in model.inputs.items()] == [
        ("halves:1", "float32[n, 2]"),
        ("halves:0", "float32[n, 2]"),
    ]
    [output] = model.run([X[:, :2], X[:, 2:]])
    assert output.tolist() == [[3, 8]]


def test_every_cut_of_a_network_computes_what_the_whole_network_does():
    whole = ip.load(chain(), ["CpuRef"])
    inputs = {"image": X, "other": X[:, ::-1].copy()}
    values = dict(zip(whole.values, whole.run(inputs, list(whole.values)), strict=True))
    for starts in (["image", "other"], ["relu", "other"], ["sum"], ["halves:0", "halves:1"], ["product"]):
        for end in {"relu", "sum", "halves:1", "product", "y"} - set(starts):
            try:
                model = ip.load(chain(), ["CpuRef"], inputs=starts, outputs=[end])
            except BindingError:
                continue  # the cut is after the output
            assert (list(model.inputs), list(model.outputs)) == (starts, [end])
            [output] = model.run({name: values[name] for name in starts})
            assert np.array_equal(output, values[end])


def test_an_input_has_its_name_even_if_an_output_has_it_too():
    model = ip.load(chain(), ["CpuRef"], inputs=["y", "image"])
    assert (list(model.inputs), list(model.outputs)) == (["y", "image"], ["y/output", "r"])
    y, r = model.run({"y": np.float32([[7, 8]]), "image": X})
    assert (y.tolist(), r.tolist()) == ([[7, 8]], np.maximum(X, 0).tolist())


def test_shapes_and_values_may_be_those_of_values_inside():
    network = read_network(chain(), inputs=["sum"], outputs=["y"], shapes={"sum": [7, 4]})
    assert network.graph.inputs[0].output.known.shape == (7, 4)
    assert network.graph.outputs[0].values[0].known.shape == (7, 2)
    network = read_network(chain(), inputs=["halves:0", "halves:1"], outputs=["y"], values={"halves:1": X[:, 2:]})
    assert names(network) == ["halves:0"]


def test_an_input_that_an_output_still_needs_must_be_named():
    with pytest.raises(BindingError) as error:
        read_network(chain(), inputs=["sum"])
    assert str(error.value) == (
        "inputs: the outputs also need the input 'image', which layer 'relu' (Activation) takes; name it too, or a "
        "value after it"
    )


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        (["smu"], BindingError, "inputs: the model has no value 'smu'; did you mean 'sum'?"),
        (["halves"], BindingError, "inputs: layer 'halves' has 2 results; name one of them: 'halves:0', 'halves:1'"),
        (["image", "image"], BindingError, "inputs: 'image' and 'image' are one value; name it once"),
        ("sum", InvalidArgumentError, "inputs must be a list of names, not 'sum'"),
        (3, InvalidArgumentError, r"inputs must be a list of names, not 3"),
        ([3], InvalidArgumentError, r"inputs must be a list of names, not [3]"),
    ],
)
def test_wrong_names_are_refused(inputs, kind, message):
    with pytest.raises(kind) as error:
        read_network(chain(), inputs=inputs)
    assert str(error.value) == message


@pytest.mark.parametrize("argument", ["inputs", "outputs"])
def test_an_iterator_of_names_is_refused_because_it_would_be_used_up(argument):
    with pytest.raises(InvalidArgumentError, match=f"^{argument} must be a list of names, not <list_iterator"):
        read_network(chain(), **{argument: iter(["sum"])})


def test_a_constant_and_a_state_cannot_become_inputs():
    network = Network("count")
    runs = network.add_state("runs", TensorInfo((1,)))
    one = network.add_constant_layer(np.float32([1]), name="one")
    total = network.add_addition_layer(runs, one, name="total")
    network.set_state("runs", total)
    network.add_output_layer(0, total, name="y")
    for name, what in (("one", "a constant"), ("runs", "a state")):
        with pytest.raises(BindingError, match=f"inputs: {name!r} is {what} of the network, and cannot be an input"):
            read_network(network, inputs=[name])


def test_a_state_before_the_cut_is_dropped_and_one_after_it_stays():
    network = Network("two")
    x = network.add_input_layer(0, TensorInfo((1,)), name="x")
    for name in ("before", "after"):
        state = network.add_state(name, TensorInfo((1,)))
        x = network.add_addition_layer(x, state, name=f"sum_{name}")
        network.set_state(name, x)
    network.add_output_layer(0, x, name="y")
    cut = read_network(network, inputs=["sum_before"])
    assert [state.name for state in cut.states] == ["after"]
    model = ip.load(cut, ["CpuRef"])
    assert [model.run([np.float32([2])])[0].item() for _ in range(3)] == [2, 4, 6]


def onnx_model(typed: bool = True) -> Any:
    """An operator that nobody knows before and after a Relu and an Addition of known type."""
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Decode", ["image"], ["x"], domain="my.pre"),
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Add", ["relu", "w"], ["sum"]),
        helper.make_node("Detect", ["sum"], ["boxes"], domain="my.post"),
    ]
    graph = helper.make_graph(
        nodes, "detector", [helper.make_tensor_value_info("image", kind.UINT8, ["n"])],
        [helper.make_tensor_value_info("boxes", kind.FLOAT, None)],
        [helper.make_tensor("w", kind.FLOAT, [4], [1, 2, 3, 4])],
        value_info=[helper.make_tensor_value_info("x", kind.FLOAT, ["n", 4])] if typed else [],
    )  # fmt: skip
    versions = {"": 18, "my.pre": 1, "my.post": 1}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in versions.items()])


def test_onnx_nodes_outside_of_the_cut_need_not_be_supported():
    model = onnx_model()
    before = model.SerializeToString()
    for source in (model, before):
        loaded = ip.load(source, ["CpuRef"], inputs=["x"], outputs=["sum", "relu"], shapes={"x": [1, 4]})
        assert [result.tolist() for result in loaded.run([X])] == [[[2, 2, 6, 4]], [[1, 0, 3, 0]]]
    assert model.SerializeToString() == before


def test_onnx_nodes_inside_the_cut_must_be_supported():
    with pytest.raises(UnsupportedOperatorError) as error:
        read_network(onnx_model(), inputs=["x"])
    assert "my.post.Detect" in str(error.value)
    assert "my.pre.Decode" not in str(error.value)


def unknown_around_a_relu(**more: Any) -> bytes:
    """Return a TFLite file with operators Unknown, RELU and Unknown, from `image` over `x` and `relu` to `boxes`."""
    pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")
    from tests.frontends.tflite.build import code, encode, operator, tensor

    graph = {
        "tensors": [tensor(name, [1, 4]) for name in ("image", "x", "relu", "boxes")],
        "inputs": [0],
        "outputs": [3],
        "operators": [
            operator([0], [1], opcode_index=0),
            operator([1], [2], opcode_index=1),
            operator([2], [3], opcode_index=0),
        ],
    }
    codes = [code("CUSTOM", custom_code="Unknown"), code("RELU")]
    return encode({"version": 3, "operator_codes": codes, "buffers": [{}], "subgraphs": [graph], **more})


def test_tflite_operators_outside_of_the_cut_need_not_be_supported():
    data = unknown_around_a_relu()
    [output] = ip.load(data, ["CpuRef"], inputs=["x"], outputs=["relu"]).run([X])
    assert output.tolist() == [[1, 0, 3, 0]]
    with pytest.raises(UnsupportedOperatorError, match="1 x CUSTOM"):
        read_network(data, inputs=["x"])


def test_a_signature_may_be_cut_at_its_names_and_at_those_of_tensors():
    ports = {"inputs": [{"name": "picture", "tensor_index": 0}], "outputs": [{"name": "relu", "tensor_index": 3}]}
    data = unknown_around_a_relu(signature_defs=[{**ports, "signature_key": "detect", "subgraph_index": 0}])
    with pytest.raises(UnsupportedOperatorError, match="1 x CUSTOM"):
        read_network(data, inputs=["x"], outputs=["relu"], signature="detect")  # the signature's name, the last tensor
    ports = {**ports, "outputs": [{"name": "found", "tensor_index": 2}]}
    data = unknown_around_a_relu(signature_defs=[{**ports, "signature_key": "detect", "subgraph_index": 0}])
    for end in ("found", "relu"):
        model = ip.load(data, ["CpuRef"], inputs=["x"], outputs=[end], signature="detect")
        assert (list(model.inputs), list(model.outputs)) == (["x"], [end])
        assert model.run([X])[0].tolist() == [[1, 0, 3, 0]]
    assert list(ip.load(data, ["CpuRef"], inputs=["x"], signature="detect").outputs) == ["found"]
