"""The default passes as a whole: what they keep, what they say, where they end."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidNetworkError, VerificationError
from interposer.core.types import DataLayout, DataType, TensorInfo
from interposer.ir.continuity import is_discontinuous
from interposer.ir.graph import Graph
from interposer.ir.network import Network
from interposer.ir.text import print_graph
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchNormalization,
    Concat,
    Constant,
    Convolution2d,
    Debug,
    DepthwiseConvolution2d,
    Floor,
    FullyConnected,
    Maximum,
    Minimum,
    Multiplication,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Reshape,
    Transpose,
)
from interposer.optimizer.passes import (
    DEFAULT_PASSES,
    GraphPass,
    PassRecord,
    RewritePass,
    insert_debug_layers,
    run_passes,
)
from interposer.rewriting.driver import Rewritten
from interposer.rewriting.pattern import New, Rewrite, rewrite
from interposer.testing.random_networks import RandomNetwork
from tests.graphs import graphs, random_networks
from tests.optimizer.rewriting import assert_same_results, graph_of, lines

NHWC = DataLayout.NHWC
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
REWRITES = [item for step in DEFAULT_PASSES if isinstance(step, RewritePass) for item in step.rewrites]


class Images:
    """Draws networks of the layers that vision models have, on images of four channels."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.network = Network()
        self.values = [self.network.add_input_layer(0, TensorInfo((1, 6, 6, 4))).output]

    def add(self, op, *inputs):
        self.values.append(self.network.add_layer(op, *inputs).output)

    def constant(self, *shape, least=-2.0):
        numbers = self.draw(st.integers(0, 99))
        return self.network.add_constant_layer(
            np.random.default_rng(numbers).uniform(least, 2, size=shape).astype(np.float32)
        )

    def grow(self) -> None:
        value = self.values[-1] if self.draw(st.integers(0, 3)) else self.draw(st.sampled_from(self.values))
        getattr(self, self.draw(st.sampled_from(self.KINDS)))(value)

    KINDS = (
        "transpose",
        "activate",
        "combine",
        "bound",
        "pad",
        "convolve",
        "normalize",
        "pool",
        "reshape",
        "join",
        "turned",
    )

    def transpose(self, value):
        self.add(Transpose(self.draw(st.sampled_from([TO_NCHW, TO_NHWC, (0, 1, 2, 3), (0, 2, 1, 3)]))), value)

    def turned(self, value):
        self.transpose(value)
        self.activate(self.values[-1])
        self.combine(self.values[-1])
        self.transpose(self.values[-1])

    def activate(self, value):
        function = self.draw(st.sampled_from(["RELU", "BOUNDED_RELU", "TANH", "LINEAR"]))
        self.add(Activation(ActivationFunction[function], 1.0, self.draw(st.sampled_from([0.0, -1.0]))), value)

    def combine(self, value):
        other = self.draw(st.sampled_from([item for item in self.values if item.known == value.known]))
        if self.draw(st.booleans()):
            other = self.constant(*self.draw(st.sampled_from([(), (1,), value.known.shape[-1:]])))
        self.add(self.draw(st.sampled_from([Addition(), Multiplication()])), value, other)

    def bound(self, value):
        item = self.network.add_layer(Activation(ActivationFunction.RELU), self.constant(1)).output
        other = self.constant()
        self.add(Maximum(), value, item)
        self.add(Minimum(), self.values[-1], other)

    def pad(self, value):
        if max(value.known.shape) < 12:
            self.add(Pad(((0, 0), (1, 1), (0, 1), (0, 0)), self.draw(st.sampled_from([0.0, 1.0, -np.inf]))), value)

    def convolve(self, value):
        channels = value.known.shape[3]
        if self.draw(st.booleans()):
            self.add(DepthwiseConvolution2d(pad_left=1, data_layout=NHWC), value, self.constant(1, 2, 1, channels))
        else:
            self.add(Convolution2d(data_layout=NHWC), value, self.constant(4, 1, 2, channels), self.constant(4))

    def padded(self, value):
        self.pad(value)
        self.draw(st.sampled_from([self.pool, self.convolve]))(self.values[-1])

    def normalized(self, value):
        self.convolve(value)
        self.normalize(self.values[-1])

    def normalize(self, value):
        channels = value.known.shape[3]
        statistics = [self.constant(channels, least=0.5) for _ in range(4)]
        self.add(BatchNormalization(data_layout=NHWC), value, *statistics)

    def pool(self, value):
        kind = self.draw(st.sampled_from(list(PoolingAlgorithm)))
        size = {"pool_width": 2, "pool_height": 2, "stride_x": 1, "stride_y": 1}
        self.add(Pooling2d(kind, data_layout=NHWC, **size), value)

    def reshape(self, value):
        shape = value.known.shape
        self.add(Reshape((1, shape[2], shape[1], shape[3])), value)

    def join(self, value):
        self.add(Concat(3), *[value] * self.draw(st.integers(1, 2)))


@st.composite
def images(draw) -> Graph:
    drawn = Images(draw)
    for _ in range(draw(st.integers(1, 10))):
        if min(drawn.values[-1].known.shape[1:]) > 1:
            drawn.grow()
    for index, value in enumerate(value for value in drawn.values if not value.uses):
        drawn.network.add_output_layer(index, value)
    try:
        drawn.network.validate()
    except InvalidNetworkError:
        reject()
    return drawn.network.graph


@settings(max_examples=50, deadline=None)
@given(graph=images())
def test_the_default_passes_keep_what_an_image_network_computes(graph):
    before = graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert_same_results(before, graph, rtol=1e-3, atol=1e-3)


def is_smooth(drawn: RandomNetwork) -> bool:
    """True if other orders of additions cannot change much: no discontinuous layers, all in float32 or wider."""
    infos = [value.known for layer in drawn.network for value in layer.outputs]
    wide = all(info.dtype in {DataType.FLOAT32, DataType.FLOAT64} for info in infos)
    if not wide or any(map(is_discontinuous, drawn.network)):
        return False
    return all(np.isfinite(array).all() for array in drawn.feeds.values())


SMOOTH = (Addition, BatchNormalization, Convolution2d, FullyConnected, Multiplication, Reshape, Transpose)


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.filter_too_much],
)
@given(drawn=random_networks(favoured=SMOOTH).filter(is_smooth))
def test_the_default_passes_keep_what_a_network_computes(drawn):
    graph = drawn.network.graph
    before = graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert_same_results(before, graph, rtol=1e-3, atol=1e-3, feeds=dict(drawn.feeds))


@settings(max_examples=50, deadline=None)
@given(graph=graphs() | images())
def test_the_default_passes_find_nothing_to_do_after_themselves(graph):
    run_passes(graph, DEFAULT_PASSES)
    text = print_graph(graph)
    again = run_passes(graph, DEFAULT_PASSES)
    assert [str(record) for record in again if record.changed] == []
    assert print_graph(graph) == text


@settings(max_examples=50, deadline=None)
@given(graph=graphs() | images())
def test_no_rewrite_changes_a_graph_by_itself(graph):
    text = print_graph(graph)
    for layer in graph:
        for item in REWRITES:
            item(layer)
    assert print_graph(graph) == text


@settings(max_examples=50, deadline=None)
@given(graph=graphs() | images())
def test_every_layer_that_goes_is_remembered_by_one_that_stays(graph):
    run_passes(graph, DEFAULT_PASSES[:1])
    names = {layer.name for layer in graph if not isinstance(layer.op, Constant)}
    run_passes(graph, DEFAULT_PASSES)
    cached = {name for layer in graph for name in (layer.name, *layer.replaced)}
    assert names <= cached


# --- worked examples --------------------------------------------------------------------------------------------------


def test_an_exported_network_becomes_what_its_author_wrote():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[1, 4, 4, 1]
          %unused = Floor %x
          %t = Transpose(permutation=(0, 3, 1, 2)) %x
          %p = Pad(pad_list=((0, 0), (0, 0), (1, 1), (1, 1))) %t
          %codes = Constant(value=int8[1, 1, 3, 3]{1, 2, 3, 4, 5, 6, 7, 8, 9}, quantization=q(0.5, 0))
          %weights = Dequantize %codes
          %conv = Convolution2d %p, %weights
          %one = Constant(value=float32[1]{1})
          %bn = BatchNormalization(eps=0.0) %conv, %one, %one, %one, %one
          %zero = Constant(value=float32[]{0})
          %six = Constant(value=float32[]{6})
          %low = Maximum %bn, %zero
          %high = Minimum %low, %six
          %back = Transpose(permutation=(0, 2, 3, 1)) %high
          %shape = Shape %back
          %flat = Reshape(target_shape=(16, 1)) %back
          %again = Reshape(target_shape=(1, -1)) %flat
          Output %again as "y"
          Output(binding_id=1) %shape as "s"
        }
        """
    )
    before = graph.clone()
    records = run_passes(graph, DEFAULT_PASSES)
    assert_same_results(before, graph, rtol=1e-6)
    assert lines(graph).splitlines() == [
        '%shape = Constant(value=int32[4]{1, 4, 4, 1}) replacing "shape"',
        'Output(binding_id=1) %shape as "s"',
        "%weights = Constant(value=float32[1, 1, 3, 3]{0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5})",
        "%bias-conv = Constant(value=float32[1]{0.0})",
        "%t = Reshape(target_shape=(1, 1, 4, 4)) %x",
        "%conv = Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1) %t, %weights, %bias-conv "
        'replacing "p", "conv", "weights", "bn"',
        '%high = Activation(function=BOUNDED_RELU, a=6.0) %conv replacing "low", "high"',
        '%again = Reshape(target_shape=(1, 16)) %high replacing "back", "flat", "again"',
        'Output %again as "y"',
    ]
    assert [record.name for record in records] == [default_rewrite.name for default_rewrite in DEFAULT_PASSES]


def test_a_record_says_what_a_pass_did():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[2]
          %a = Reshape(target_shape=(2,)) %x
          %b = Floor %a
          Output %b as "y"
        }
        """
    )
    records = run_passes(graph, DEFAULT_PASSES)
    [record] = [record for record in records if record.changed]
    assert record == PassRecord("fold constants", {"drop_idle_reshape": 1}, 4, 3)
    assert str(record) == "fold constants: 4 -> 3 layers (1 x drop_idle_reshape)"
    assert record.to_dict() == {
        "pass": "fold constants",
        "counts": {"drop_idle_reshape": 1},
        "layers_before": 4,
        "layers_after": 3,
        "finished": True,
    }
    assert str(records[-1]) == "squash layers that became equal: 3 -> 3 layers (nothing to do)"


def test_passes_reach_into_the_regions_of_layers():
    graph = graph_of('graph {\n  %x = Input : float32[2]\n  Output %x as "y"\n}')
    region = graph_of(
        """
        graph {
          %x = Input : float32[2]
          %a = Reshape(target_shape=(2,)) %x
          Output %a as "y"
        }
        """
    )
    graph.layer("x").regions = (region,)
    run_passes(graph, DEFAULT_PASSES)
    assert [layer.name for layer in region] == ["x", "y"]


def test_a_pass_that_damages_the_graph_is_named_with_the_damage():
    def take_name(graph):
        graph.layer("f").name = "x"
        return Rewritten(Counter({"take_name": 1}))

    with pytest.raises(VerificationError) as caught:
        run_passes(
            a_floor(), [GraphPass("unchanged", lambda graph: Rewritten()), GraphPass("thief", take_name)], rounds=1
        )
    assert str(caught.value) == (
        "the graph is not valid after the passes 'thief':\n"
        "  - 2 layers are called 'x'\n"
        "  - the name 'f' is taken, but no layer has it"
    )


# --- the driver -------------------------------------------------------------------------------------------------------


def a_floor() -> Graph:
    return graph_of('graph {\n  %x = Input : float32[2]\n  %f = Floor %x\n  Output %f as "y"\n}')


def run(graph: Graph, one: Rewrite) -> PassRecord:
    return run_passes(graph, [RewritePass("test", (one,))], rounds=1)[0]


def test_a_stand_in_of_another_shape_is_refused_with_the_name_of_the_rewrite():
    @rewrite(Floor)
    def widen(op, layer):
        return New(Reshape((1, 2)), [layer.inputs[0]], info=TensorInfo((1, 2)))

    with pytest.raises(VerificationError) as caught:
        run(a_floor(), widen)
    assert str(caught.value) == (
        "the graph is not valid after widen on layer 'f' (Floor):\n  - f, float32[2], would become float32[1, 2]"
    )


def test_a_new_layer_that_does_not_take_its_inputs_is_refused():
    @rewrite(Floor)
    def tear(op, layer):
        return New(Reshape((3,)), layer.inputs)

    with pytest.raises(VerificationError, match="an input of shape \\[2\\] cannot be reshaped to \\(3,\\)"):
        run(a_floor(), tear)


def test_rewrites_that_go_round_in_circles_are_stopped(caplog):
    @rewrite(Floor)
    def turn(op, layer):
        return New(Floor(), layer.inputs)

    graph = a_floor()
    record = run(graph, turn)
    assert not record.finished
    assert len(graph) == 3
    assert "rewrites stopped after 64 applications: {'turn': 64}" in caplog.text


def test_a_new_layer_used_twice_is_made_once_and_gets_source_and_hint_of_what_it_stands_for():
    @rewrite(Floor)
    def twice(op, layer):
        half = New(Activation(ActivationFunction.RELU), layer.inputs, name="half")
        return New(Addition(), [half, half])

    graph = a_floor()
    graph.layer("f").source, graph.layer("f").hint = "a.onnx", "CpuRef"
    run(graph, twice)
    half = graph.layer("half")
    assert [str(layer) for layer in graph] == ["'x' (Input)", "'y' (Output)", "'half' (Activation)", "'f' (Addition)"]
    assert [(layer.source, layer.hint) for layer in (half, graph.layer("f"))] == [("a.onnx", "CpuRef")] * 2


def test_a_layer_that_leaves_a_trace_is_never_rewritten():
    @rewrite(Debug)
    def hide(op, layer):
        return layer.inputs[0]

    graph = a_floor()
    insert_debug_layers(graph)
    assert not run(graph, hide).changed


@pytest.mark.parametrize("count", [1000])
def test_a_long_network_is_done_in_a_few_looks_at_every_layer(count):
    looks = 0

    @rewrite(Floor)
    def look(op, layer):
        nonlocal looks
        looks += 1

    network = Network()
    value = network.add_input_layer(0, TensorInfo((2, 3))).output
    for index in range(count // 2):
        value = network.add_layer(Transpose((1, 0)) if index % 2 else Floor(), value).output
    network.add_output_layer(0, value)
    [step] = [default_rewrite for default_rewrite in DEFAULT_PASSES if default_rewrite.name == "join transposes"]
    run_passes(network.graph, [RewritePass("test", (look, *step.rewrites))])
    assert len(network.graph) <= count // 4 + 4
    assert looks < 20 * count


# --- debug layers -----------------------------------------------------------------------------------------------------


def test_every_output_but_those_of_constants_is_watched():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[2]
          %c = Constant(value=float32[2]{1, 2})
          %s:0, %s:1 = Splitter(axis=0, sizes=(1, 1)) %x
          %a = Addition %x, %c
          Output %a as "y"
          Output(binding_id=1) %s:1 as "z"
        }
        """
    )
    debug_layers = insert_debug_layers(graph)
    assert [layer.name for layer in debug_layers] == [
        "DebugLayerAfterx", "DebugLayerAfters", "DebugLayerAfters_1", "DebugLayerAftera",
    ]  # fmt: skip
    assert lines(graph).splitlines() == [
        "%c = Constant(value=float32[2]{1.0, 2.0})",
        '%DebugLayerAfterx = Debug(watched="x") %x',
        "%s:0, %s:1 = Splitter(axis=0, sizes=(1, 1)) %DebugLayerAfterx",
        "%a = Addition %DebugLayerAfterx, %c",
        '%DebugLayerAfters = Debug(watched="s") %s:0',
        '%DebugLayerAfters_1 = Debug(watched="s", slot=1) %s:1',
        'Output(binding_id=1) %DebugLayerAfters_1 as "z"',
        '%DebugLayerAftera = Debug(watched="a") %a',
        'Output %DebugLayerAftera as "y"',
    ]
