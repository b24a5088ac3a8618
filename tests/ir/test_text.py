"""The text form: what it looks like, and that it is read back exactly."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.equality import differences, same_graph
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ir.network import Network
from interposer.ir.text import parse_graph, print_graph
from interposer.ops import (
    Activation,
    ActivationFunction,
    Constant,
    Input,
    Pad,
    PreCompiled,
    Quantize,
    Splitter,
    StandIn,
)
from tests.graphs import annotated, graphs


def text_of(*layers):
    return "\n".join(["graph {", *(f"  {layer}" for layer in layers), "}"])


def assert_read_back(graph):
    assert list(differences(graph, parse_graph(print_graph(graph)))) == []


def test_a_whole_graph_in_text():
    network = Network("net")
    x = network.add_input_layer(3, TensorInfo((1, None, "batch", 4)), name="x")
    parts = network.add_layer(Splitter(axis=3, sizes=(1, 3)), x, name="parts")
    bound = network.add_constant_layer(np.array([1.5, -0.0], np.float32), name="bound")
    relu = network.add_layer(Activation(ActivationFunction.BOUNDED_RELU, 6.0), parts.outputs[1], source="net.onnx")
    relu.backend, relu.hint, relu.replaced = "CpuRef", "CpuAcc", ("relu", "clip")
    codes = network.add_layer(Quantize(DataType.INT8), bound, outputs=TensorInfo((2,), "int8", Quantization(0.5, 3)))
    network.add_output_layer(0, relu)
    network.add_output_layer(1, codes, name="codes out")

    assert (
        print_graph(network.graph)
        == """\
graph "net" {
  %x = Input(binding_id=3) : float32[1, ?, batch, 4]
  %parts:0, %parts:1 = Splitter(axis=3, sizes=(1, 3)) %x : float32[1, ?, batch, 1], float32[1, ?, batch, 3]
  %bound = Constant(value=float32[2]{1.5, -0.0}) : float32[2]
  %activation = Activation(function=BOUNDED_RELU, a=6.0) %parts:1 @CpuRef hint CpuAcc : float32[1, ?, batch, 3] \
from "net.onnx" replacing "relu", "clip"
  %quantize = Quantize(dtype=int8) %bound : int8[2] q(0.5, 3) declared
  Output %activation as "output_0"
  Output(binding_id=1) %quantize as "codes out"
}"""
    )
    assert_read_back(network.graph)


@given(annotated())
@settings(max_examples=60)
def test_every_graph_is_read_back_as_it_was(graph):
    text = print_graph(graph)
    again = parse_graph(text)
    assert list(differences(graph, again)) == []
    assert print_graph(again) == text


@given(graphs())
@settings(max_examples=30)
def test_infos_that_the_text_leaves_out_can_be_inferred(graph):
    bare = graph.clone()
    for layer in bare:
        for value in layer.outputs if not isinstance(layer.op, Input) else ():
            value.info = None
    again = parse_graph(print_graph(bare))
    infer_graph(again)
    assert [value.info for layer in again for value in layer.outputs] == [
        value.info for layer in graph.topological() for value in layer.outputs
    ]


def test_layers_stand_in_running_order_however_they_were_added():
    graph = Graph()
    late = graph.add(Activation(), name="late")
    x = graph.add(Input(), name="x", outputs=[TensorInfo((2,))])
    graph.set_input(late, 0, x.output)
    assert print_graph(graph).splitlines()[1:3] == ["  %x = Input : _ declared float32[2]", "  %late = Activation %x"]


def test_a_graph_that_depends_on_itself_is_printed_and_read_all_the_same():
    text = text_of("%a = Activation %b", "%b = Activation %a")
    assert print_graph(parse_graph(text)) == text


def test_a_graph_with_broken_uses_is_printed_all_the_same():
    graph = parse_graph(text_of("%a = Input : float32[2]", "%b = Activation %a"))
    del graph._layers[graph.layer("b").guid]
    assert print_graph(graph) == text_of("%a = Input : float32[2]")


def test_comments_and_line_breaks_within_brackets_may_be_added_by_hand():
    text = text_of(
        "# the input", "%x = Input( # its number", "  binding_id = 1, ) : float32[", "1, 2]", "", "Output %x", 'as "y"'
    )
    assert print_graph(parse_graph(text)) == text_of("%x = Input(binding_id=1) : float32[1, 2]", 'Output %x as "y"')


def test_absent_operands_are_told_only_before_others():
    graph = Graph()
    x = graph.add(Input(), name="x").output
    y = graph.add(StandIn(), [None, x, None], name="y")
    graph.set_input(y, 2, None)
    assert print_graph(graph) == text_of("%x = Input", "%y = StandIn _, %x")
    assert_read_back(graph)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "a", "1", "a/b.c-d_$", "model/conv:0", "two words", "", "_", "%x", '"', "\\", "\n", "ü", "\u2028", "名前",
    "a" * 500,
])  # fmt: skip
def test_any_name_is_read_back(name):
    graph = Graph(name)
    x = graph.add(Input(), name=name or "x", outputs=[TensorInfo((2, name))])
    y = graph.add(Splitter(0, (1, 1)), [x.output], name=f"{name}y", source=name)
    y.backend = y.hint = name
    y.replaced = (name,)
    assert_read_back(graph)


def test_a_plain_name_is_printed_bare_and_another_in_quotes():
    graph = Graph()
    for name in ("conv/Relu-6", "conv:0"):
        graph.add(Input(), name=name)
    assert print_graph(graph) == text_of("%conv/Relu-6 = Input", '%"conv:0" = Input')


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "text"), [
    (Activation(), "Activation"),
    (Activation(a=math.inf, b=-math.inf), "Activation(a=inf, b=-inf)"),
    (Activation(a=math.nan, b=0.1), "Activation(a=nan, b=0.1)"),
    (Activation(ActivationFunction.ELU, 1e-7), "Activation(function=ELU, a=1e-07)"),
    (Pad(((0, 1),), -0.0), "Pad(pad_list=((0, 1),), pad_value=-0.0)"),
    (StandIn(1, 'say "hi"\n'), r'StandIn(description="say \"hi\"\n")'),
    (Constant(np.float32(0.1)), "Constant(value=float32[]{0.1})"),
    (Constant(np.zeros((0, 2), bool)), "Constant(value=bool[0, 2]{})"),
    (Constant(np.array([True, False])), "Constant(value=bool[2]{True, False})"),
    (Constant(np.array(["a", 'b"\n'])), r'Constant(value=string[2]{"a", "b\"\n"})'),
    (Constant(np.array([1, -2], "int8"), Quantization(1 / 3, -3)),
     "Constant(value=int8[2]{1, -2}, quantization=q(0.3333333333333333, -3))"),
    (Constant(np.array([[1], [2]], "int8"), Quantization([0.5, 1e-30], [0, 1], 0)),
     "Constant(value=int8[2, 1]{1, 2}, quantization=q([0.5, 1e-30], [0, 1], axis=0))"),
    (PreCompiled(object="a"), 'PreCompiled(object="a")'),
], ids=str)  # fmt: skip
def test_values_are_printed_as_short_as_they_can_be_read_back(op, text):
    graph = Graph()
    graph.add(op, name="x")
    assert print_graph(graph) == text_of(f"%x = {text}")
    assert_read_back(graph)


ARRAYS = hnp.arrays(
    hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biuf" and dtype.itemsize <= 8),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(ARRAYS)
def test_every_bit_of_an_array_is_read_back(array):
    graph = Graph()
    graph.add(Constant(array))
    assert_read_back(graph)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=8), st.sampled_from(["bfloat16", "float8_e4m3fn", "float16"]))
def test_every_bit_of_a_narrow_float_is_read_back(codes, name):
    graph = Graph()
    graph.add(Constant(np.array(codes * 2, np.uint8).view(DataType.of(name).numpy)))
    assert_read_back(graph)


@pytest.mark.parametrize(("array", "text"), [
    (np.array([0.1, 1e20, 3.4e38], np.float32), "float32[3]{0.1, 1e+20, 3.4e+38}"),
    (np.array([0.1, 65504], np.float16), "float16[2]{0.1, 65500.0}"),
    (np.array([0.1, 2], ml_dtypes.bfloat16), "bfloat16[2]{0.100098, 2.0}"),
    (np.array([1, 7]).astype(ml_dtypes.int4), "int4[2]{1, 7}"),
    (np.array([2**64 - 1], np.uint64), "uint64[1]{18446744073709551615}"),
    (np.array([math.nan], np.float32), "float32[1]{nan}"),
    (np.array([0x7FC00001], np.uint32).view(np.float32), 'float32[1]{base64 "AQDAfw=="}'),
    (np.arange(33, dtype=np.int8), 'int8[33]{base64 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"}'),
], ids=str)  # fmt: skip
def test_numbers_are_printed_where_they_are_few_and_say_every_bit(array, text):
    graph = Graph()
    graph.add(Constant(array), name="x")
    assert print_graph(graph) == text_of(f"%x = Constant(value={text})")


def test_a_big_constant_is_elided_on_request_and_then_cannot_be_read_back():
    graph = Graph()
    graph.constant(np.arange(6, dtype=np.int8))
    assert print_graph(graph, elide=6) == text_of("%constant = Constant(value=int8[6]{0, 1, 2, 3, 4, 5}) : int8[6]")
    text = print_graph(graph, elide=5)
    assert text == text_of("%constant = Constant(value=int8[6]{... 17e88db1}) : int8[6]")
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    assert str(caught.value) == "2:37: these elements were left out when the graph was printed"


def test_a_graph_shown_by_str_elides_its_big_constants():
    graph = Graph()
    graph.constant(np.zeros(33))
    assert "{... " in str(graph)


# --- infos ------------------------------------------------------------------------------------------------------------


def test_a_value_that_is_known_before_running_stands_behind_the_info():
    graph = Graph()
    x = graph.add(StandIn(2), name="x", outputs=[None, TensorInfo.of(np.array([3], "int64"))])
    x.outputs[0].info = TensorInfo.of(np.array([1, 2], "int64"))
    assert print_graph(graph) == text_of(
        "%x:0, %x:1 = StandIn(num_outputs=2) : int64[2] = {1, 2}, _ declared int64[1] = {3}"
    )
    assert_read_back(graph)


def test_a_known_value_of_a_tensor_of_unknown_shape_says_its_own():
    graph = Graph()
    x = graph.add(StandIn(1), name="x")
    x.output.info = TensorInfo((None,), "int64", None, np.array([1, 2], "int64"))
    assert print_graph(graph) == text_of("%x = StandIn : int64[?] = int64[2]{1, 2}")
    assert_read_back(graph)


@pytest.mark.parametrize(("info", "declared", "text"), [
    (None, None, ""), (TensorInfo((2,)), None, " : float32[2] declared _"),
    (TensorInfo((2,)), TensorInfo((2,)), " : float32[2]"), (None, TensorInfo((2,)), " : _ declared float32[2]"),
    (TensorInfo((2,)), TensorInfo((None,)), " : float32[2] declared float32[?]"),
], ids=str)  # fmt: skip
def test_an_input_is_declared_as_its_info_says_unless_it_says_otherwise(info, declared, text):
    graph = Graph()
    layer = graph.add(Input(), name="x", outputs=[declared])
    layer.output.info = info
    assert print_graph(graph) == text_of(f"%x = Input{text}")
    assert_read_back(graph)


# --- opaque objects and regions ---------------------------------------------------------------------------------------


def test_an_object_that_text_cannot_hold_must_be_given_to_the_parser():
    graph, blob = Graph(), object()
    graph.add(PreCompiled(object=blob), name="part")
    text = text_of("%part = PreCompiled(object=<opaque>)")
    assert print_graph(graph) == text
    assert same_graph(parse_graph(text, opaque={"part": blob}), graph)
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    assert str(caught.value) == "2:23: text cannot hold object of layer 'part'; give it as opaque['part']"


def test_regions_stand_inside_their_layer():
    graph = Graph()
    graph.add(StandIn(0), name="if").regions = (Graph("then"), Graph())
    assert (
        print_graph(graph)
        == """\
graph {
  StandIn(num_outputs=0) as "if" {
    graph "then" {
    }
    graph {
    }
  }
}"""
    )
    assert_read_back(graph)
