"""One network on one backend: what is wrong is found, whose error it is, and what is right passes."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.backend import Backend
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Det,
    DynamicFakeQuantization,
    FullyConnected,
    Gather,
    Multiplication,
    Quantize,
    RandomFill,
    Softmax,
    Subtraction,
    Transpose,
)
from interposer.testing.judge.judging import INTERPOSER, judge
from interposer.testing.judge.seat import Seat
from interposer.testing.judge.subject import Conditions, Outcome, Sort, Subject, Verdict
from interposer.testing.random_networks import random_network
from tests.testing.judge import misbehaving
from tests.testing.judge.graphs import Built, built

F32 = np.float32
NUMBERS = np.linspace(-3, 4, 6, dtype=F32).reshape(2, 3)


def judged(made: Built, *backends: type[Backend], **conditions: object) -> Verdict:
    return judge(Seat([backend() for backend in backends]), Subject(made.network, made.feeds, Conditions(**conditions)))


def fully_connected(it: Built, bias: float = 1.0) -> object:
    weights = it.constant(np.arange(6, dtype=F32).reshape(3, 2))
    return it.add(FullyConnected(), it.input(NUMBERS), weights, it.constant(np.full(2, bias, F32)))


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [misbehaving.Exact, misbehaving.Reordering])
@pytest.mark.parametrize("number", range(8))
def test_a_backend_that_is_right_passes(backend, number):
    built_network = random_network(5, number)
    verdict = judge(Seat([backend()]), Subject(built_network.network, built_network.feeds))
    assert verdict.outcome in (Outcome.PASS, Outcome.EXPLAINED), verdict


@pytest.mark.parametrize("backend", [misbehaving.Exact, misbehaving.Partial])
def test_rounding_of_activations_is_judged_whether_or_not_a_backend_supports_it(backend):
    def make(it: Built) -> object:
        return it.add(Softmax(), it.add(DynamicFakeQuantization(), it.input(NUMBERS + F32(0.3))))

    assert judged(built(make), backend).outcome is Outcome.PASS


def test_rounding_that_is_amplified_is_explained_by_conditioning():
    """(a * b - c) * 1e6, where c is the product but for its rounding."""

    def make(it: Built) -> object:
        a = it.add(Multiplication(), it.input(np.full(4, 1.1, F32)), it.constant(np.full(4, 1.3, F32)))
        rest = it.add(Subtraction(), a, it.constant(np.full(4, F32(1.1) * F32(1.3), F32)))
        return it.add(Multiplication(), rest, it.constant(np.full(4, 1e6, F32)))

    assert judged(built(make), misbehaving.Exact).outcome is Outcome.PASS
    assert judged(built(make), misbehaving.Reordering).outcome is Outcome.EXPLAINED


def test_a_backend_that_takes_no_layer_leaves_all_to_the_reference():
    built_network = built(lambda it: it.add(Softmax(), it.input(NUMBERS)))
    assert judged(built_network, misbehaving.Exact, held_back=("softmax",)).outcome is Outcome.LEFT


def test_what_the_reference_cannot_run_is_not_compared():
    built_network = built(lambda it: it.add(Gather(axis=0), it.input(NUMBERS), it.input(np.int32([7]))))
    assert judged(built_network, misbehaving.Exact).outcome is Outcome.UNJUDGED


def test_random_results_are_not_compared():
    built_network = built(lambda it: it.add(RandomFill(), it.constant(np.int64([4]))))
    assert judged(built_network, misbehaving.Exact).outcome is Outcome.UNJUDGED


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_wrong_layout_is_found():
    verdict = judged(built(lambda it: it.add(Transpose((1, 0)), it.input(NUMBERS))), misbehaving.FlatTransposing)
    assert (verdict.sort, verdict.culprit) == (Sort.DIFFERENCE, "FlatTransposing")
    assert verdict.text.startswith("output 0: 4 of 6 elements differ, the first at [0, 1]: ")


def test_a_dropped_bias_is_found():
    verdict = judged(built(fully_connected), misbehaving.Dropping)
    assert (verdict.sort, verdict.culprit) == (Sort.DIFFERENCE, "Dropping")


def test_a_dropped_bias_is_found_although_what_follows_explains_any_result():
    """To the sums, what is left of two large numbers is added that are equal but for their rounding."""

    def make(it: Built) -> object:
        large = [it.add(Multiplication(), it.input(np.full(1, 1e6, F32)), it.constant(np.ones(1, F32))) for _ in "ab"]
        return it.add(Addition(), fully_connected(it), it.add(Subtraction(), *large))

    verdict = judged(built(make), misbehaving.Dropping)
    assert verdict.is_finding
    begin = "layer 'fullyconnected' (FullyConnected), on the operands that it was given: output 0: 4 of 4"
    assert verdict.text.startswith(begin)


@pytest.mark.parametrize("backend", [misbehaving.Truncating, misbehaving.RoundingToEven])
def test_a_wrong_rounding_mode_is_found(backend):
    info = TensorInfo((3,), "int8", Quantization(0.5, 0))
    halves = np.array([1.25, -1.25, 0.4], F32)
    built_network = built(lambda it: it.add(Quantize(DataType.INT8), it.input(halves), outputs=info))
    verdict = judged(built_network, backend)
    assert (verdict.sort, verdict.gross) == (Sort.DIFFERENCE, False)


def together(it: Built) -> object:
    total = it.add(Addition(), it.input(NUMBERS), it.input(NUMBERS))
    return it.add(Activation(ActivationFunction.RELU), total)


def test_what_is_wrong_only_in_a_fusion_is_found():
    assert judged(built(together), misbehaving.WrongTogether).sort is Sort.DIFFERENCE
    assert judged(built(together), misbehaving.WrongTogether, held_back=("addition",)).outcome is Outcome.PASS


def test_results_that_change_from_run_to_run_are_found():
    built_network = built(lambda it: it.add(Softmax(), it.input(NUMBERS)))
    verdict = judged(built_network, misbehaving.Wavering)
    assert (verdict.sort, verdict.culprit) == (Sort.UNSTABLE, "Wavering")


def test_a_backend_that_writes_to_its_inputs_is_found():
    built_network = built(lambda it: it.add(Softmax(), it.input(NUMBERS.copy())))
    assert judged(built_network, misbehaving.Scribbling).sort is Sort.INPUTS


def test_a_backend_that_writes_to_constants_is_found_though_the_reference_shares_them():
    verdict = judged(built(fully_connected), misbehaving.ClampingWeights)
    assert (verdict.sort, verdict.text) == (Sort.INPUTS, "it writes to the arrays of its constants")
    assert verdict.culprit == "ClampingWeights"


def test_an_exception_is_an_error_and_lack_of_memory_is_called_that():
    built_network = built(lambda it: it.add(Softmax(), it.input(NUMBERS)))
    verdict = judged(built_network, misbehaving.Raising)
    assert (verdict.sort, verdict.culprit) == (Sort.ERROR, "Raising")
    assert "the device is on fire" in verdict.text
    assert judged(built_network, misbehaving.Starving).sort is Sort.MEMORY


# --- whose error it is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_several_backends_the_one_that_fails_alone_is_at_fault(order):
    backends = [misbehaving.Exact, misbehaving.FlatTransposing]

    def make(it: Built) -> object:
        return it.add(Transpose((1, 0)), it.input(NUMBERS), name="turn")

    verdict = judged(built(make), *(backends[at] for at in order))
    assert verdict.culprit == ("" if order == (0, 1) else "FlatTransposing")
    assert verdict.is_finding is (order == (1, 0))


def test_what_fails_without_any_backend_is_the_fault_of_interposer(monkeypatch):
    """The runtime itself gives other results than the kernels."""
    built_network = built(lambda it: it.add(Softmax(), it.input(NUMBERS)))
    seat = Seat([misbehaving.Exact()])
    monkeypatch.setattr("interposer.testing.bench.Loaded.run", lambda self, feeds: {0: np.zeros((2, 3), F32)})
    assert judge(seat, Subject(built_network.network, built_network.feeds)).culprit == INTERPOSER


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["onnx", "onnx-inexact", "tflite"])
def test_a_network_is_judged_through_model_files(route):
    assert judged(built(together), misbehaving.Exact, route=route).outcome is Outcome.PASS
    verdict = judged(built(together), misbehaving.WrongTogether, route=route)
    assert (verdict.sort, verdict.conditions.route) == (Sort.DIFFERENCE, route)


def test_what_a_format_cannot_express_is_counted_with_the_reason():
    built_network = built(lambda it: it.add(Det(), it.input(np.eye(2, dtype=F32))))
    verdict = judged(built_network, misbehaving.Exact, route="tflite")
    assert verdict.outcome is Outcome.UNWRITABLE
    assert "layer 'det' (Det)" in verdict.text


def test_a_model_that_does_not_mean_what_was_written_is_the_fault_of_interposer(monkeypatch):
    other_network = built(lambda it: it.add(Activation(ActivationFunction.ABS), it.input(NUMBERS)))
    monkeypatch.setattr("interposer.frontends.onnx.load", lambda model: other_network.network)
    built_network = built(lambda it: it.add(Activation(ActivationFunction.RELU), it.input(NUMBERS)))
    verdict = judged(built_network, misbehaving.Exact, route="onnx")
    assert (verdict.sort, verdict.culprit) == (Sort.TRANSLATION, INTERPOSER)
