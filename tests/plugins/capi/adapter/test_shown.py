"""The tables of a graph that a plug-in gets, read by a plug-in that reports what it sees."""

from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer._version import VOCABULARY_REVISION
from interposer.core.schema import Op, op, operand, result
from interposer.core.types import DataLayout, DataType, Quantization
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ir.subgraph import SubgraphView
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Constant,
    Convolution2d,
    EyeLike,
    If,
    Input,
    LstmSequence,
    Pad,
    StridedSlice,
    TransposeConvolution2d,
)
from interposer.plugins.capi.abi import attribute_kinds as kinds
from interposer.plugins.capi.abi import attributes, flatten, vocabulary
from interposer.plugins.capi.abi.attributes import Shown, shown
from interposer.plugins.capi.abi.flatten import FlatGraph, Withholding
from tools import vocabulary as generator


@op(register=False)
class Foreign(Op):
    """An operator of somebody else."""

    input = operand()
    output = result(like="input")
    rate: float = 0.5


@op(register=False)
class Strange(Op):
    """An operator with an attribute that no plug-in can be shown."""

    input = operand()
    output = result(like="input")
    anything: Any = None


@pytest.fixture
def echo(backend):
    return backend("echo.cpp")


def said(echo, graph, *kinds):
    """What the plug-in says of the layers of these kinds."""
    infer_graph(graph)
    view = SubgraphView(graph, [layer for layer in graph if isinstance(layer.op, kinds)])
    return [answer.reasons[0] for answer in echo.layer_support({}).query(view)]


def test_a_layer_is_shown_with_its_tensors_and_all_its_attributes(echo):
    graph = Graph("net")
    x = graph.add(Input(), outputs=[TensorInfo((1, 5, 5, 2), "uint8", Quantization(0.5, 3))], name="x").output
    weights = Constant(np.zeros((4, 3, 3, 2), np.int8), Quantization([0.25, 0.5, 0.125, 1], 0, axis=0))
    w = graph.add(weights, name="w").output
    op = Convolution2d(stride_x=2, stride_y=2, data_layout=DataLayout.NHWC)
    graph.add(op, [x, w], name="conv", outputs=[TensorInfo((1, 2, 2, 4), "uint8", Quantization(2.0, 128))])
    [match] = said(echo, graph, Convolution2d)
    assert match == (
        "Convolution2d conv( x:6[1,5,5,2] q0.5/3 axis -1"
        " w:2[4,3,3,2] q0.25/0 q0.5/0 q0.125/0 q1/0 axis 0 const 72 bytes -> conv:6[1,2,2,4] q2/128 axis -1 )"
        " pad_left~0 pad_right~0 pad_top~0 pad_bottom~0 stride_x=2 stride_y=2"
        " dilation_x~1 dilation_y~1 data_layout=NHWC groups~1"
    )


@pytest.mark.parametrize(
    ("op", "inputs", "text"),
    [
        (Pad(((1, 2), (3, 4)), -0.0), [(2, 2)], "pad_list=1,2;3,4 pad_value=-0 padding_mode~CONSTANT"),
        (EyeLike(dtype=DataType.FLOAT16), [(2, 2)], "dtype=dtype 10 k~0"),
        (EyeLike(), [(2, 2)], "dtype~none k~0"),
        (Activation(ActivationFunction.TANH, a=1.5), [(2,)], "function=TANH a=1.5 b~1"),
        (Activation(ActivationFunction.TANH, b=0), [(2,)], "function=TANH a~1 b=0"),
        (Activation(ActivationFunction.RELU), [(2,)], "function=RELU a~0 b~0"),
    ],
)
def test_attributes_of_every_kind_are_shown(op, inputs, text, echo):
    graph = Graph()
    values = [graph.add(Input(n), outputs=[TensorInfo(shape)]).output for n, shape in enumerate(inputs)]
    graph.add(op, values, name="it")
    [match] = said(echo, graph, type(op))
    assert sorted(match.partition(" ) ")[2].split()) == sorted(text.split())


def test_zeros_of_both_signs_are_told_apart(echo):
    graph = Graph()
    x = graph.add(Input(), outputs=[TensorInfo((2,))]).output
    for value in (0.0, -0.0, 0.0):
        graph.add(Pad(((1, 1),), value), [x])
    assert [text.split("pad_value")[1].split()[0] for text in said(echo, graph, Pad)] == ["~0", "=-0", "~0"]


def test_lists_of_choices_are_shown(echo):
    created = attributes.shown(LstmSequence, VOCABULARY_REVISION + 1).table(
        LstmSequence(activations=(ActivationFunction.SIGMOID, ActivationFunction.TANH, ActivationFunction.RELU))
    )
    assert created.length == len(LstmSequence.attributes)


def test_names_beyond_ascii_absent_operands_and_constants_are_shown(echo):
    graph = Graph("netz")
    x = graph.add(Input(), outputs=[TensorInfo((1, 2, 2, 1))], name="größe").output
    w = graph.constant(np.float32([[[[7.5]]]]), name="w")
    op = TransposeConvolution2d(data_layout=DataLayout.NHWC)
    graph.add(op, [x, w], name="auf")
    [match] = said(echo, graph, TransposeConvolution2d)
    assert match.startswith("TransposeConvolution2d auf( größe:11[1,2,2,1] w:11[1,1,1,1] const 4 bytes 7.5 -> auf:11[")
    assert "output_shape~none" in match


def test_unknown_extents_are_shown_as_minus_one(echo):
    graph = Graph()
    x = graph.add(Input(), outputs=[TensorInfo(("n", 2))], name="x").output
    graph.add(Addition(), [x, x], name="sum")
    [match] = said(echo, graph, Addition)
    assert match.startswith("Addition sum( x:11[-1,2] x:11[-1,2] -> sum:11[-1,2] )")


def test_operators_of_other_packages_are_shown_in_every_version(echo):
    graph = Graph()
    x = graph.add(Input(), outputs=[TensorInfo((2,))], name="x").output
    graph.add(Foreign(0.25), [x], name="f")
    assert said(echo, graph, Foreign) == ["Foreign f( x:11[2] -> f:11[2] ) rate=0.25"]


# --- what is withheld -------------------------------------------------------------------------------------------------


def withheld(layer, minor=0):
    return Withholding(minor).problems([layer]).get(layer)


def layer_of(operator, *infos, declared=()):
    graph = Graph()
    values = [graph.add(Input(n), outputs=[info], name=f"x{n}").output for n, info in enumerate(infos)]
    for value in values:
        value.info = value.declared
    layer = graph.add(operator, values, outputs=declared)
    for value in layer.outputs:
        value.info = value.declared or infos[0]
    return layer


TEXT, UNRANKED = TensorInfo((2,), "string"), TensorInfo(...)


@pytest.fixture
def versions(monkeypatch):
    """Changes the vocabulary, as if names had come later."""
    monkeypatch.setattr(attributes, "_shown", {})
    return lambda table, name, value: monkeypatch.setitem(getattr(attributes, table), name, value)


def test_a_type_of_layer_that_is_newer_is_withheld(versions):
    versions("LAYERS", "Addition", (1, {"a": 1, "b": 1}, {}))
    layer = layer_of(Addition(), TensorInfo((2,)), TensorInfo((2,)))
    assert withheld(layer, 0) == "layer type newer than revision 0 of the vocabulary"
    assert withheld(layer, 1) is None


def test_a_type_of_layer_that_is_in_no_version_yet_is_withheld(versions):
    versions("LAYERS", "Addition", (attributes.NEVER, {}, {}))
    assert (
        withheld(layer_of(Addition(), TensorInfo((2,)), TensorInfo((2,))))
        == "layer type newer than revision 0 of the vocabulary"
    )


def test_an_attribute_that_is_newer_is_left_out_at_its_default_and_withholds_the_layer_otherwise(versions):
    since, operands, known = vocabulary.LAYERS["Activation"]
    attributes = known | {"b": ("float", 1)}
    versions("LAYERS", "Activation", (since, operands, attributes))
    plain, changed = (Activation(ActivationFunction.RELU, b=b) for b in (0.0, 2.0))
    assert withheld(layer_of(plain, TensorInfo((2,)))) is None
    assert withheld(layer_of(changed, TensorInfo((2,)))) == "attribute b newer than revision 0 of the vocabulary"
    assert withheld(layer_of(changed, TensorInfo((2,))), 1) is None
    assert shown(Activation, 0).table(plain).length == sum(revision == 0 for _, revision in attributes.values())


def test_a_choice_that_is_newer_withholds_the_layer(versions):
    versions("CHOICES", "ActivationFunction", vocabulary.CHOICES["ActivationFunction"] | {"MISH": 1})
    both = ActivationFunction.MISH, ActivationFunction.RELU
    mish, relu = (layer_of(Activation(item), TensorInfo((2,))) for item in both)
    assert withheld(mish) == "function MISH newer than revision 0 of the vocabulary"
    assert withheld(relu) is None


def test_an_operand_that_is_newer_withholds_the_layers_that_use_it(versions):
    since, operands, known = vocabulary.LAYERS["Addition"]
    versions("LAYERS", "Addition", (since, operands | {"b": 1}, known))
    layer = layer_of(Addition(), TensorInfo((2,)), TensorInfo((2,)))
    assert withheld(layer) == "operand b newer than revision 0 of the vocabulary"


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (layer_of(Foreign(), TEXT), "tensors of type string, as 'x0', are not shown to plug-ins"),
        (layer_of(Foreign(), UNRANKED), "the rank of 'x0' is not known; such tensors are not shown to plug-ins"),
        (layer_of(Strange(), TensorInfo((2,))), "the attribute 'anything' cannot be shown to plug-ins"),
        (layer_of(Input(), declared=[TensorInfo((2,))]), "layers of type Input are not shown to plug-ins"),
        (layer_of(If(), TensorInfo((), "bool")), "layers of type If are not shown to plug-ins"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_withheld_with_a_reason(layer, reason):
    assert withheld(layer) == reason


def test_the_plug_in_never_sees_what_is_withheld_and_the_layer_is_refused_in_its_name(echo, versions):
    versions("LAYERS", "Activation", (1, {"input": 1}, {}))
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((2,)), name="x")
    network.add_activation_layer(network.add_addition_layer(x, x, name="sum"), name="new")
    graph = network.graph
    match = said(echo, graph, Addition, Activation)
    assert match == [
        "Addition sum( x:11[2] x:11[2] -> sum:11[2] ) operation~ADD",
        "layer type newer than revision 0 of the vocabulary",
    ]


def test_an_attribute_beyond_64_bits_is_refused():
    with pytest.raises(Exception, match="does not fit into the 64 bits that an attribute has for plug-ins"):
        shown(StridedSlice, 0).table(StridedSlice(begin=(0,), end=(1 << 64,), stride=(1,)))


# --- the tables themselves --------------------------------------------------------------------------------------------


def test_constants_lie_in_place_unless_alignment_forbids_it():
    raw = np.zeros(64, np.float32)
    odd = raw[1:33]
    graph = Graph()
    x = graph.add(Input(), outputs=[TensorInfo((32,))]).output
    layer = graph.add(Addition(), [x, graph.constant(odd)])
    infer_graph(graph)
    own = layer.inputs[1].constant
    for alignment, shared in ((1, True), (4096, False)):
        flat = FlatGraph([layer], [x], layer.outputs, alignment=alignment)
        assert np.shares_memory(flat.constants[0], own) is shared
        assert flat.constants[0].ctypes.data % alignment == 0


def test_tables_of_many_attributes_are_forgotten_one_day(monkeypatch):
    monkeypatch.setattr(attributes, "MOST_CACHED", 4)
    what = Shown(Foreign, 0)
    tables = [what.table(Foreign(rate)) for rate in range(10)]
    assert len(what._tables) <= 4
    assert len({table.address for table in tables}) == 10


def test_a_graph_of_no_layers_has_empty_tables():
    flat = FlatGraph([], [], [])
    assert (flat.struct.layer_count, flat.struct.tensor_count, flat.struct.constant_count) == (0, 0, 0)


# --- the vocabulary ---------------------------------------------------------------------------------------------------


def test_the_vocabulary_has_no_name_after_the_next_revision():
    numbers = {since for since, _, _ in vocabulary.LAYERS.values()} | set(vocabulary.DTYPES.values())
    assert max(numbers) <= VOCABULARY_REVISION + 1


def test_a_new_name_gets_the_next_revision_and_known_names_keep_theirs(monkeypatch):
    before = generator.known()
    layers = {name: item for name, item in before["LAYERS"].items() if name != "Addition"}
    monkeypatch.setattr(generator, "NEXT", 3)
    after = generator.wanted(before | {"LAYERS": layers})
    assert after["LAYERS"]["Addition"][0] == 3
    assert after["LAYERS"]["Pad"] == before["LAYERS"]["Pad"]


def test_a_frozen_name_that_goes_or_changes_is_complained_about(monkeypatch):
    before = generator.known()
    since, operands, known = before["LAYERS"]["Pad"]
    changed = {"Pad": (since, operands, known | {"pad_value": ("int", 0)}), "Gone": (0, {}, {})}
    monkeypatch.setattr(generator, "NEXT", 1)
    monkeypatch.setattr(generator, "known", lambda: before | {"LAYERS": before["LAYERS"] | changed})
    assert list(generator.frozen_problems()) == [
        "Pad: the attribute pad_value has changed in the C interface; it is frozen since revision 0",
        "the layer Gone has gone from the C interface; it is frozen since revision 0",
    ]


def test_every_kind_has_a_name():
    for name, (_, _, known) in vocabulary.LAYERS.items():
        assert all(text.split()[0].rstrip("?") in vocabulary_kinds() for text, _ in known.values()), name


def vocabulary_kinds():
    return {"bool", "int", "float", "text", "enum", "dtype", "ints", "floats", "enums"}


def test_annotations_that_have_no_kind_are_not_shown():
    assert [kinds.kind_of(hint) for hint in (Any, int | str, tuple[str, ...], dict[str, int])] == [None] * 4
    assert str(kinds.kind_of(tuple[tuple[int, int], ...])) == "ints 2"
    assert flatten.Withholding(0).problems([]) == {}
