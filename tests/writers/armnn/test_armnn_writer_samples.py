"""Samples of the conformance kit and random networks give the same after they were written and read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer.core.errors import InterposerError, UnwritableError
from interposer.core.families import import_families
from interposer.core.schema import Op, registered_ops
from interposer.frontends.armnn import load
from interposer.ir.network import Network
from interposer.ops.quantization import Requantization
from interposer.testing import Sample, samples_of
from interposer.testing.oracle import reference_outputs
from interposer.testing.random_networks import random_network
from interposer.testing.tolerances import Tolerances
from interposer.writers.armnn import write
from interposer.writers.armnn.armnn_layer_writers import LAYER_WRITERS

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which writes the files, is not installed")

import_families("interposer.writers.armnn")
HALF_TO_EVEN = Requantization.HALF_TO_EVEN
WRITTEN = {name: op for name, op in registered_ops().items() if LAYER_WRITERS.find(op)}
OPERATORS = {name: op for name, op in WRITTEN.items() if op.executable and samples_of(op)}
FEW = 12
FEW_NETWORKS, MANY_NETWORKS = 60, 1500


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_some_samples_of_every_operator_give_the_same_after_a_round_trip(name: str) -> None:
    samples = ordinary_samples(OPERATORS[name])
    assert problems(samples[:: max(1, len(samples) // FEW)]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("release", [None, "20.08", "24.05"])
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_all_samples_of_every_operator_give_the_same_after_a_round_trip(name: str, release: str | None) -> None:
    assert problems(ordinary_samples(OPERATORS[name]), release) == {}


def test_random_networks_give_the_same_after_a_round_trip() -> None:
    outcomes = [outcome(random_network(11, number)) for number in range(FEW_NETWORKS)]
    assert [item for item in outcomes if item not in {"same", "refused"}] == []
    assert outcomes.count("same") > FEW_NETWORKS / 6


@pytest.mark.slow
def test_many_random_networks_give_the_same_after_a_round_trip() -> None:
    outcomes = [outcome(random_network(12, number)) for number in range(MANY_NETWORKS)]
    assert [item for item in outcomes if item not in {"same", "refused"}] == []


def ordinary_samples(op: type[Op]) -> list[Sample]:
    """Return the samples of an operator whose values do not overflow in a composition of other operators."""
    return [sample for sample in samples_of(op) if not sample.extreme]


def problems(samples: list[Sample], release: str | None = None) -> dict[str, str]:
    """Return what is wrong with samples that were written and read, by their ids."""
    result = {sample.id: problem(*sample.network(), release=release) for sample in samples}
    return {id: text for id, text in result.items() if text not in {"same", "refused"}}


def outcome(created: Any) -> str:
    """Return "same", "refused", or how a random network differs from the one that is read back.

    Of a quantized network, the one that was read is written again, as the scales of a file have 32 bits.
    """
    network = created.network
    if created.kind == "quantized":
        try:
            network = load(write(network))
        except UnwritableError:
            return "refused"
    feeds = {
        layer.op.binding_id: created.feeds[layer.op.binding_id].reshape(tuple(layer.output.known.shape))
        for layer in network.graph.inputs
    }
    result = problem(network, feeds)
    return result if result in {"same", "refused"} else f"{created.id}: {result}"


def problem(network: Network, feeds: dict[int, Any], *, release: str | None = None) -> str:
    """Return "same", "refused", or how the results of a network differ from those of the one that is read back."""
    try:
        expected = reference_outputs(network.graph, feeds)
        content = write(network, release=release)
    except (InterposerError, UnwritableError):
        return "refused"
    # what rounds half to even is written as layers that round in fixed point: results may differ by one step
    steps = int(any(getattr(layer.op, "requantization", None) is HALF_TO_EVEN for layer in network.graph))
    graph = load(content).graph
    infos = {layer.op.binding_id: layer.output.known for layer in graph.inputs}  # type: ignore[attr-defined]
    inputs = {number: feeds[number].reshape(tuple(info.shape)) for number, info in infos.items()}
    result = reference_outputs(graph, inputs)
    outputs = {layer.op.binding_id: layer.values[0].known for layer in network.graph.outputs}  # type: ignore[attr-defined]
    for number, array in expected.items():
        if result[number].size != array.size:
            return f"output {number} has the shape {result[number].shape}"
        difference = Tolerances(steps=steps).difference(result[number].reshape(array.shape), array, outputs[number])
        if difference:
            return f"output {number}: {difference}"
    return "same"


def test_the_names_of_operators_that_are_written_are_those_with_samples() -> None:
    assert {"Convolution2d", "Lstm", "QLstm", "ScatterNd", "BatchMatMul"} <= OPERATORS.keys()
    assert np.all([LAYER_WRITERS.find(op) is not None for op in OPERATORS.values()])
