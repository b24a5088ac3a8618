"""Every sample of the conformance kit to ONNX and back: the same results, and files that the checker accepts."""

from __future__ import annotations

import onnx
import pytest

from tools.onnx_writer import VERSION, main, operators, ordinary_samples, outcome

OPERATORS = operators()
FEW = 8
OPSETS = [13, 17, 21]


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
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", OPERATORS)
def test_older_opsets_give_the_same_too_or_refuse(name, opset):
    samples = ordinary_samples(OPERATORS[name])
    outcomes = {sample.id: outcome(sample, opset=opset) for sample in samples[:: max(1, len(samples) // FEW)]}
    assert {id: result for id, result in outcomes.items() if result.status == "wrong"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_every_refusal_of_a_quantized_sample_tells_what_to_do_or_why_nothing_helps(name):
    for sample in ordinary_samples(OPERATORS[name]):
        result = outcome(sample)
        if result.status == "refused" and "exact=False" in result.reason:
            assert outcome(sample, exact=False).kinds or "exact=False" not in outcome(sample, exact=False).reason


@pytest.mark.slow
@pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the page describes onnx {VERSION}")
def test_the_page_tells_what_is_written_now():
    assert main(["--check"]) == 0
