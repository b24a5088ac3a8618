"""`tools.bench`: one network on several choices of backends. Nothing here says how long anything takes."""

import numpy as np
import pytest

from interposer import Network, Runtime, TensorInfo
from interposer.analysis.bench import bench, candidates, random_inputs
from interposer.core.errors import InvalidArgumentError
from interposer.ops import ActivationFunction
from tests.devices import Device, Sums

pytestmark = pytest.mark.needs_cpuref
QUICK = {"rounds": 2, "seconds": 0.0}


@pytest.fixture
def runtime():
    """With Sums, which adds and multiplies, and Device, which can only do ReLU, beside what is installed."""
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        runtime.registry.register("Device", Device)
        yield runtime


@pytest.fixture
def network():
    """Return a network that computes x + x, and a ReLU of the sum."""
    network = Network("doubled")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    relu = network.add_activation_layer(network.add_addition_layer(x, x), function=ActivationFunction.RELU)
    network.add_output_layer(0, relu, name="y")
    return network


def test_every_available_backend_is_a_candidate_and_cpuref_the_last(runtime):
    choices = candidates(runtime)

    assert choices[-1] == ("CpuRef",)
    assert {("Sums", "CpuRef"), ("Device", "CpuRef")} <= {*choices}


def test_candidates_are_loaded_compared_and_timed(runtime, network):
    report = bench(network, [("Sums", "CpuRef"), ("Sums", "Device"), ("CpuRef",)], runtime=runtime, **QUICK)

    first, mix, reference = report.candidates
    assert [candidate.name for candidate in report.candidates] == ["Sums", "Sums,Device", "CpuRef"]
    assert first.layers == {"Sums": 1, "CpuRef": 1}
    assert mix.layers == {"Sums": 1, "Device": 1}
    assert (mix.copies, reference.copies) == (1, 0)
    assert (first.deviation, mix.deviation, reference.deviation) == (0.0, 0.0, None)
    assert all(len(candidate.timing.turns) == 2 and candidate.load_ms > 0 for candidate in report.candidates)
    assert report.quickest in report.candidates


def test_the_search_of_auto_is_neither_part_of_its_load_nor_silent(runtime, network, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    report = bench(network, [("auto",), ("CpuRef",)], runtime=runtime, budget_seconds=1e-6, **QUICK)
    auto, reference = report.candidates
    assert any(remark.endswith(" was not timed: the budget of 1e-06 s was spent") for remark in auto.remarks)
    assert reference.remarks == ()
    assert auto.load_ms > 0
    assert auto.first_ms > 0
    described = report.to_dict()["candidates"][0]
    assert described["remarks"] == list(auto.remarks)
    assert described["first_ms"] == auto.first_ms


def test_auto_measures_a_network_of_open_shapes_for_the_inputs(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 4)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    inputs = {"x": np.ones((2, 4), np.float32)}
    report = bench(network, [("auto",)], inputs, runtime=runtime, budget_seconds=1e-6, **QUICK)
    [auto] = report.candidates
    assert auto.reason == ""
    assert auto.remarks


def test_a_candidate_that_cannot_run_the_network_is_left_out_with_its_reason(runtime, network):
    report = bench(network, [("Device",), ("CpuRef",)], runtime=runtime, **QUICK)

    refused, reference = report.candidates
    assert refused.timing is None
    assert refused.reason.startswith("no backend in ['Device'] can run layer")
    assert report.quickest is reference


def test_what_is_done_is_told(runtime, network):
    reported = []

    bench(network, [("CpuRef",)], runtime=runtime, progress=lambda *words: reported.append(words), **QUICK)

    assert reported == [("loading on CpuRef", 0, 1), ("taking turns", 1, 2), ("taking turns", 2, 2)]


def test_the_report_is_plain_data(runtime, network):
    facts = bench(network, [("CpuRef",)], {"x": np.ones((1, 4), np.float32)}, runtime=runtime, **QUICK).to_dict()

    [item] = facts["candidates"]
    assert (facts["network"], facts["quickest"]) == ("doubled", "CpuRef")
    assert {name for name, value in item.items() if value is None} == {"deviation"}
    assert len(item["turns_ms"]) == 2


def test_inputs_of_a_network_are_random_but_always_the_same():
    network = Network("inputs")
    infos = [TensorInfo((3,)), TensorInfo((2,), "uint8"), TensorInfo((2,), "int64"), TensorInfo((2,), "bfloat16")]
    for number, info in enumerate(infos):
        network.add_input_layer(number, info, name=f"x{number}")

    first, second = random_inputs(network), random_inputs(network)

    assert [array.dtype.name for array in first.values()] == ["float32", "uint8", "int64", "bfloat16"]
    assert not first["x2"].any()
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_an_input_of_unknown_shape_must_be_given(runtime):
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 4)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x))

    with pytest.raises(
        InvalidArgumentError, match=r"^input 'x' is float32\[\?, 4\]; give an array for it, or its shape$"
    ):
        bench(network, [("CpuRef",)], runtime=runtime, **QUICK)
    assert bench(network, [("CpuRef",)], {"x": np.ones((2, 4), np.float32)}, runtime=runtime, **QUICK).quickest


@pytest.mark.parametrize(
    ("choices", "more", "said"),
    [
        ([], {}, "there is nothing to compare: give backends for each candidate"),
        ([()], {}, "there is nothing to compare: give backends for each candidate"),
        ([("CpuRef",)], {"rounds": 0}, "expected 1 round or more of 0 seconds or more, not 0 of 0.0"),
        ([("CpuRef",)], {"seconds": -1}, "expected 1 round or more of 0 seconds or more, not 2 of -1"),
    ],
    ids=["none", "empty", "rounds", "seconds"],
)
def test_what_cannot_be_measured_is_refused(runtime, network, choices, more, said):
    with pytest.raises(InvalidArgumentError) as raised:
        bench(network, choices, runtime=runtime, **(QUICK | more))

    assert str(raised.value) == said
