"""Every sample of the conformance kit to TFLite and back: the same results; and what LiteRT makes of some."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tools.tflite_writer import main, operators, ordinary_samples, outcome

OPERATORS = operators()
FEW = 4

needs_litert = pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")


@pytest.mark.parametrize("name", OPERATORS)
def test_some_samples_of_every_operator_give_the_same_after_a_round_trip(name):
    samples = ordinary_samples(OPERATORS[name])
    outcomes = {sample.id: outcome(sample) for sample in samples[:: max(1, len(samples) // FEW)]}
    assert {id: result for id, result in outcomes.items() if result.status == "wrong"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_all_samples_of_every_operator_give_the_same_after_a_round_trip(name):
    outcomes = {sample.id: outcome(sample) for sample in ordinary_samples(OPERATORS[name])}
    assert {id: result for id, result in outcomes.items() if result.status == "wrong"} == {}


@pytest.mark.slow
def test_the_page_tells_what_is_written_now():
    assert main(["--check"]) == 0


LITERT = ["Convolution2d", "DepthwiseConvolution2d", "FullyConnected", "Pooling2d", "Addition", "Concat", "Transpose"]


@needs_litert
@pytest.mark.parametrize("name", LITERT)
def test_litert_gives_the_same_for_what_convolutional_networks_are_made_of(name):
    samples = [sample for sample in ordinary_samples(OPERATORS[name]) if "empty" not in sample.id]
    outcomes = {sample.id: outcome(sample, litert=True) for sample in samples[:: max(1, len(samples) // FEW)]}
    assert {id: result for id, result in outcomes.items() if result.status == "wrong"} == {}
