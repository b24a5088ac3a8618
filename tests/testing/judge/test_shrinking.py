"""A network that fails is reduced to the smallest one that fails in the same way, and the failure is located."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Concat,
    Convolution2d,
    FullyConnected,
    Multiplication,
    Quantize,
    Reshape,
    Softmax,
    Splitter,
    Transpose,
)
from interposer.testing.judge.draft import Draft
from interposer.testing.judge.judging import judge
from interposer.testing.judge.locating import located
from interposer.testing.judge.reference import all_values
from interposer.testing.judge.seat import Seat
from interposer.testing.judge.shrinking import shrunk
from interposer.testing.judge.subject import Conditions, Outcome, Sort, Subject, Verdict
from interposer.testing.random_networks import random_network
from tests.testing.judge import misbehaving
from tests.testing.judge.graphs import Built

F32 = np.float32


def kinds(network: Network) -> list[str]:
    return [layer.kind for layer in network if layer.kind not in ("Input", "Constant", "Output")]


def failing_if(predicate: Callable[[Network], bool]) -> Callable[[Subject], Verdict]:
    """Stands for a backend that fails on some networks."""

    def judged(subject: Subject) -> Verdict:
        wrong = predicate(subject.network)
        outcome = Outcome.FINDING if wrong else Outcome.PASS
        return Verdict(outcome, subject.conditions, Sort.DIFFERENCE if wrong else None, culprit="B" if wrong else "")

    return judged


def reduced(subject: Subject, judged: Callable[[Subject], Verdict]) -> Subject:
    return shrunk(subject, judged(subject), judged, seconds=60)[0]


def large() -> Subject:
    """A chain with branches, of two outputs."""
    it = Built()
    image = it.input(np.linspace(-2, 2, 96, dtype=F32).reshape(2, 3, 4, 4))
    weights = it.constant(np.linspace(-1, 1, 135, dtype=F32).reshape(5, 3, 3, 3))
    sums = it.add(Convolution2d(1, 1, 1, 1), image, weights, it.constant(np.ones(5, F32)))
    active = it.add(Activation(ActivationFunction.RELU), sums)
    left, right = it.layer(Splitter(1, (2, 3)), active).outputs
    merged = it.add(Concat(1), right, left)
    scores = it.add(Softmax(beta=2.0, axis=1), merged)
    it.output(scores, it.add(Multiplication(), active, sums))
    return Subject(it.network, it.feeds, Conditions(held_back=("concat",)), "large")


def test_layers_outputs_sizes_attributes_and_numbers_are_reduced():
    subject = reduced(large(), failing_if(lambda network: "Softmax" in kinds(network)))
    assert kinds(subject.network) == ["Softmax"]
    [(array)] = subject.feeds.values()
    assert array.size == 1
    assert not array.any()
    assert subject.network.graph.layer("softmax").op == Softmax()
    assert subject.conditions == Conditions(rewrite=False)


def test_numbers_are_reduced_where_nothing_else_can_be():
    network = Network("numbers")
    x = network.add_input_layer(0, TensorInfo((4,)))
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.RELU), x))
    subject = Subject(network, {0: F32([1.5, 2.5, -3.5, 4.5])}, Conditions())
    judged = failing_if(lambda network: network.inputs[0].output.known.shape == (4,) and bool(kinds(network)))
    assert reduced(subject, judged).feeds[0].tolist() == [0, 0, 0, 0]


def test_what_is_needed_for_the_failure_stays():
    def needs(network: Network) -> bool:
        layers = {layer.kind: layer for layer in network}
        if not {"Convolution2d", "Activation"} <= layers.keys():
            return False
        return layers["Convolution2d"].output.known.shape[1] >= 2

    subject = reduced(large(), failing_if(needs))
    assert kinds(subject.network) == ["Convolution2d", "Activation"]
    assert subject.network.graph.layer("convolution2d").output.known.shape == (1, 2, 1, 1)
    assert len(subject.network.graph.outputs) == 1


def test_a_failure_of_another_sort_is_not_taken_for_the_same():
    def judged(subject: Subject) -> Verdict:
        sort = Sort.CRASH if len(kinds(subject.network)) < 3 else Sort.DIFFERENCE
        return Verdict(Outcome.FINDING, subject.conditions, sort, culprit="B")

    assert len(kinds(reduced(large(), judged).network)) == 3


def test_it_ends_when_its_time_is_over():
    subject, verdict = large(), Verdict(Outcome.FINDING, Conditions(), Sort.DIFFERENCE)
    assert shrunk(subject, verdict, failing_if(lambda network: True), seconds=-1) == (subject, verdict)


@pytest.mark.parametrize("number", range(12))
def test_a_draft_gives_the_network_again(number):
    """The same layers, infos and results."""
    built_network = random_network(9, number)
    network, feeds = Draft.of(built_network.network, built_network.feeds).built()
    assert [layer.kind for layer in network] == [
        layer.kind for layer in built_network.network.graph.topological() if layer.kind != "Output"
    ] + ["Output"] * len(built_network.network.graph.outputs)
    values, values_again = (
        all_values(built_network.network.graph, built_network.feeds),
        all_values(network.graph, feeds),
    )
    for old, new in zip(built_network.network.graph.outputs, network.graph.outputs, strict=True):
        assert old.values[0].known == new.values[0].known
        np.testing.assert_array_equal(values[old.values[0]], values_again[new.values[0]])


def test_scales_of_channels_are_cut_with_their_axis():
    it = Built()
    q = Quantization([0.5, 0.25, 1.0], [0, 0, 0], axis=0)
    weights = it.constant(np.ones((3, 2), np.int8), q)
    info = TensorInfo((1, 3), "int8", Quantization(1.0, 0))
    x = it.input(np.ones((1, 2), np.int8), Quantization(1.0, 0))
    it.output(it.add(FullyConnected(transpose_weight_matrix=True), x, weights, outputs=info))
    subject = reduced(Subject(it.network, it.feeds), failing_if(lambda network: "FullyConnected" in kinds(network)))
    [constant] = [layer for layer in subject.network if layer.kind == "Constant"]
    assert constant.output.known == TensorInfo((1, 1), "int8", Quantization([0.5], [0], axis=0))


# --- where it comes from ----------------------------------------------------------------------------------------------


def where(subject: Subject, backend: type[misbehaving.Exact]) -> str:
    seat = Seat([backend()])
    return located(subject, judge(seat, subject), lambda item: judge(seat, item))


def test_the_first_wrong_layer_is_named():
    it = Built()
    x = it.input(np.arange(6, dtype=F32).reshape(2, 3))
    it.output(it.add(Softmax(), it.add(Transpose((1, 0)), it.add(Activation(ActivationFunction.RELU), x))))
    text = "The first wrong result is that of layer 'transpose' (Transpose). It fails by itself."
    assert where(Subject(it.network, it.feeds), misbehaving.FlatTransposing) == text


def test_a_layer_that_is_wrong_only_after_others_is_named_so():
    it = Built()
    x = it.input(np.arange(-3, 3, dtype=F32).reshape(2, 3))
    total = it.add(Addition(), x, x)
    it.output(it.add(Reshape((-1,)), it.add(Activation(ActivationFunction.RELU), total)))
    text = (
        "The first wrong result is that of layer 'activation' (Activation). "
        "By itself it is right; only after others it is wrong."
    )
    assert where(Subject(it.network, it.feeds), misbehaving.WrongTogether) == text


def test_rounding_stays_gross_while_it_is_reduced():
    """Of results that are several steps off, the smallest network has a result that is several steps off."""
    it = Built()
    info = TensorInfo((4,), "int8", Quantization(0.5, 0))
    it.output(it.add(Quantize(DataType.INT8), it.input(np.array([0.4, 9.4, 20.4, 0.3], F32)), outputs=info))
    seat = Seat([misbehaving.Halving()])
    subject = Subject(it.network, it.feeds)
    verdict = judge(seat, subject)
    assert verdict.gross
    assert shrunk(subject, verdict, lambda item: judge(seat, item), seconds=60)[1].gross
