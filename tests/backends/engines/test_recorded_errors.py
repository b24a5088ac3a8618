"""Layers and pairs of layers that an engine was recorded to compute wrongly, and engines beside the reference."""

from __future__ import annotations

import json

import numpy as np
import pytest

import interposer as ip
from interposer.backends.engines.recorded import CONDITIONS, FOLDER, Recording
from interposer.core.schema import registered_ops
from interposer.core.types import DataType
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    ArgMinMax,
    Cast,
    Comparison,
    Concat,
    Gather,
    Maximum,
    Minimum,
    Multiplication,
    Reduce,
    Where,
)
from interposer.testing import samples_of
from interposer.testing.bench import Bench
from interposer.testing.conformance import all_samples
from interposer.testing.extremes import cells_of, errors, pairs
from tests.backends.engines.adapters import PLACES, engine_class, installed

RECORDING = Recording(
    "An engine",
    "1.0",
    {
        "Addition": {"int64": ["beyond31"], "int32": [], "float32": ["large"]},
        "Gather": {"int64": ["beyond31", "ends"], "int32": []},
        "Cast": {"int64 -> float32": ["beyond31"]},
        "Minimum": {"int32": []},
        "Maximum": {"int32": []},
    },
    {"Minimum, Maximum": {"int32": ["beyond24"]}},
)


@pytest.fixture(params=PLACES)
def engine(request):
    if request.param not in installed():
        pytest.skip(engine_class(request.param).unavailable())
    return request.param


def network_with(*dtypes: str) -> tuple[ip.Network, list]:
    network = ip.Network()
    infos = [ip.TensorInfo((2, 3), dtype) for dtype in dtypes]
    return network, [network.add_input_layer(index, info) for index, info in enumerate(infos)]


# --- what follows from a recording ------------------------------------------------------------------------------------


def test_a_layer_that_was_wrong_is_refused_with_the_engine_the_type_and_the_values():
    network, [x] = network_with("int64")
    layer = network.add_layer(Addition(), x, x)
    assert RECORDING.reasons(layer) == ["An engine computes Addition of int64 wrongly for integers above 2^31"]


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_a_layer_that_was_right_or_differs_for_huge_floats_only_is_not_refused(dtype):
    network, [x] = network_with(dtype)
    assert RECORDING.reasons(network.add_layer(Addition(), x, x)) == []


def test_a_layer_that_was_not_tried_is_refused_as_most_layers_of_its_type_are():
    network, [x, y] = network_with("int64", "int32")
    assert RECORDING.reasons(network.add_layer(Concat(0), x, x)) == [
        "An engine computes Concat of int64 wrongly for integers above 2^31"
    ]
    assert RECORDING.reasons(network.add_layer(Concat(0), y, y)) == []


def test_a_quantized_layer_is_not_judged_by_its_integers():
    network, info = ip.Network(), ip.TensorInfo((2,), "int8", ip.Quantization(0.5))
    x = network.add_input_layer(0, info)
    recording = Recording("An engine", "1.0", {"Addition": {"int8": ["ends"]}}, {})
    assert recording.reasons(network.add_layer(Addition(), x, x, outputs=[info])) == []


def test_the_second_layer_of_a_merged_pair_is_refused_and_names_the_first():
    network, [x, y] = network_with("int32", "int32")
    clamped = network.add_layer(Minimum(), x, y, name="upper")
    assert RECORDING.reasons(clamped) == []
    assert RECORDING.reasons(network.add_layer(Maximum(), y, x)) == []
    [reason] = RECORDING.reasons(network.add_layer(Maximum(), clamped, x))
    assert reason == (
        "An engine merges the two layers, and computes Maximum of int32 after Minimum 'upper' wrongly for integers "
        "above 2^24"
    )


def test_a_layer_whose_numbers_are_known_to_be_small_is_not_refused():
    network, [mask, ids] = network_with("bool", "int64")
    small = network.add_layer(Cast(dtype=DataType.INT64), mask)
    assert RECORDING.reasons(network.add_layer(Cast(dtype=DataType.FLOAT32), small)) == []
    assert RECORDING.reasons(network.add_layer(Cast(dtype=DataType.FLOAT32), ids))
    assert RECORDING.reasons(network.add_layer(Where(), mask, small, ids))
    assert RECORDING.reasons(network.add_layer(Where(), mask, small, small)) == []
    assert RECORDING.reasons(network.add_layer(Addition(), small, small)), "sums leave the range"


@pytest.mark.parametrize(("number", "refused"), [(7, False), (3_000_000_001, True)])
def test_a_table_of_constants_is_judged_by_its_numbers(number, refused):
    network, [x] = network_with("int32")
    table = network.add_constant_layer(np.array([0, number]))
    assert bool(RECORDING.reasons(network.add_layer(Gather(), table, x))) is refused


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_recording_has_known_operators_types_and_conditions(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.stem in PLACES
    for labels, types in {**content["layers"], **content["pairs"]}.items():
        assert {label.partition(".")[0] for label in labels.split(", ")} <= registered_ops().keys()
        for kinds, conditions in types.items():
            assert {DataType.of(name) for name in kinds.replace(" -> ", ", ").split(", ") if name}
            assert set(conditions) <= CONDITIONS.keys()


def test_another_version_than_the_recorded_one_is_reported(engine, monkeypatch):
    backend = engine_class(engine)()
    recorded = backend.recording.version
    monkeypatch.setattr(engine_class(engine), "version", recorded)
    assert backend.remark == ""
    monkeypatch.setattr(engine_class(engine), "version", "99.1")
    assert backend.remark == f"its known errors were recorded for {recorded}"


# --- engines beside the reference -------------------------------------------------------------------------------------


def judged(engine: str, subjects) -> list[str]:
    """What the adapter of an engine takes, although the engine gives other results than the reference."""
    bench = Bench(engine_class(engine)(), ())
    return [
        f"{subject.label} of {subject.types}, {name}: {text}"
        for subject in subjects
        for name, text in (errors(bench, subject) or {}).items()
        if CONDITIONS[name].is_refused
    ]


WIDE = ("int64", "int32", "float16", "int32 -> bool", "int64 -> bool")


FEW = (Addition, ArgMinMax, Comparison, Concat, Gather, Maximum, Multiplication, Reduce)


def subjects_of(samples) -> list:
    return [subject for (_, kind), [subject, *_] in cells_of(samples, 1).items() if kind in WIDE]


@pytest.mark.needs_cpuref
def test_layers_on_extreme_values_give_the_results_of_the_reference_or_are_refused(engine):
    assert judged(engine, subjects_of(sample for op in FEW for sample in samples_of(op))) == []


@pytest.mark.slow
@pytest.mark.needs_cpuref
def test_all_layers_and_pairs_on_extreme_values_give_the_results_of_the_reference_or_are_refused(engine):
    assert judged(engine, [*subjects_of(all_samples()), *pairs()]) == []


@pytest.mark.needs_cpuref
def test_a_clamp_of_integers_keeps_every_integer(engine):
    network, [x] = network_with("int32")
    bounds = [network.add_constant_layer(np.array([bound], np.int32)) for bound in (2147483646, -2147483648)]
    clamped = network.add_layer(Maximum(), network.add_layer(Minimum(), x, bounds[0]), bounds[1])
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.RELU), clamped))
    array = np.array([[2147483646, 2147483645, 16777217], [-5, 0, 7]], np.int32)
    [result] = ip.load(network, [engine, "CpuRef"], options=ip.OptimizerOptions(rewrite=False)).run([array])
    np.testing.assert_array_equal(result, np.maximum(array, 0))
