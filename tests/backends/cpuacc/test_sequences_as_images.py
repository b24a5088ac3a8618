"""One-dimensional convolutions and the layers between them: CpuAcc computes them on images in blocks of channels."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Convolution2d,
    GroupNormalization,
    InstanceNormalization,
    Multiplication,
    Prelu,
    Reshape,
)

pytestmark = [pytest.mark.usefixtures("cpuacc"), pytest.mark.needs_cpuref]

LENGTH = 23


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


class Sequences:
    """A network of convolutions of sequences (2, channels, 23), each between two reshapes."""

    def __init__(self, channels: int = 32) -> None:
        self.network, self.channels = ip.Network("sequences"), channels
        self.x = self.network.add_input_layer(0, TensorInfo((2, channels, LENGTH)), name="x")

    def add(self, op: object, *operands: Layer | Array) -> Layer:
        layers = [self.network.add_constant_layer(at) if isinstance(at, np.ndarray) else at for at in operands]
        return self.network.add_layer(op, *layers)

    def convolved(self, sequence: Layer) -> Layer:
        image = self.add(Reshape((2, self.channels, 1, LENGTH)), sequence)
        op = Convolution2d(pad_left=1, pad_right=1, data_layout=DataLayout.NCHW)
        image = self.add(op, image, numbers(self.channels, self.channels, 1, 3), numbers(self.channels))
        return self.add(Reshape((2, self.channels, LENGTH)), image)

    def normalized(self, sequence: Layer, groups: int) -> Layer:
        """Add a group normalization as exporters express it."""
        rows = self.add(Reshape((2, groups, -1)), sequence)
        rows = self.add(InstanceNormalization(1e-5), rows, np.ones(groups, np.float32), np.zeros(groups, np.float32))
        back = self.add(Reshape((2, self.channels, LENGTH)), rows)
        scaled = self.add(Multiplication(), back, numbers(self.channels, 1))
        return self.add(Addition(), scaled, numbers(1, self.channels, 1))

    def check(self, *results: Layer) -> None:
        """Compare CpuAcc with the reference."""
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        x = numbers(2, self.channels, LENGTH)
        found, expected = (ip.load(self.network, [backend]).run([x]) for backend in ("CpuAcc", "CpuRef"))
        for array, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, other, rtol=0, atol=1e-5 * float(np.abs(other).max()))


@pytest.fixture
def reported_steps(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[Sequences], str]:
    """What CpuAcc reports about the steps of a network."""

    def steps(sequences: Sequences) -> str:
        monkeypatch.setenv("INTERPOSER_CPUACC_PROFILE", "1")
        gc.collect()
        capfd.readouterr()
        with ip.load(sequences.network, ["CpuAcc"]) as model:
            model.run([numbers(2, sequences.channels, LENGTH)])
        gc.collect()
        captured = capfd.readouterr()
        return captured.out + captured.err

    return steps


@pytest.mark.parametrize("channels", [16, 24, 40])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_layers_between_convolutions_of_sequences_are_the_reference(channels, groups):
    sequences = Sequences(channels)
    first = sequences.convolved(sequences.x)
    value = sequences.add(Prelu(), first, numbers(channels, 1))
    value = sequences.add(Activation(ActivationFunction.TANH), sequences.normalized(value, groups))
    value = sequences.add(Multiplication(), value, sequences.add(Activation(ActivationFunction.SIGMOID), first))
    value = sequences.add(Addition(), value, sequences.x)
    sequences.check(sequences.convolved(value), value)


def test_operands_of_sequences_broadcast_along_each_axis():
    sequences = Sequences()
    value = sequences.convolved(sequences.x)
    for shape in ((), (1,), (LENGTH,), (32, 1), (32, LENGTH), (1, 32, 1), (2, 1, 1), (2, 32, LENGTH)):
        value = sequences.add(Addition(), value, numbers(*shape))
    sequences.check(sequences.convolved(value))


def test_layers_between_convolutions_of_sequences_need_no_copies(reported_steps):
    sequences = Sequences()
    value = sequences.convolved(sequences.x)
    value = sequences.add(Prelu(), sequences.normalized(value, 8), numbers(32, 1))
    sequences.network.add_output_layer(0, sequences.convolved(value))
    steps = reported_steps(sequences)
    assert steps.count("reorder") == 2  # of the input and of the output
    assert steps.count("GroupNormalization") == 1
    assert "Multiplication" not in steps


def test_parameters_that_are_not_by_channel_stay_separate_layers():
    sequences = Sequences()
    value = sequences.convolved(sequences.x)
    rows = sequences.add(Reshape((2, 4, -1)), value)
    rows = sequences.add(InstanceNormalization(1e-5), rows, numbers(4), numbers(4))
    value = sequences.add(Reshape((2, 32, LENGTH)), rows)
    value = sequences.add(Addition(), sequences.add(Multiplication(), value, numbers(LENGTH)), numbers(32, 1))
    sequences.check(sequences.convolved(value))


@pytest.mark.parametrize("channels", [5, 16, 24, 48, 96])
@pytest.mark.parametrize("groups", ["one", "three", "all"])
def test_groups_of_channels_in_blocks_are_normalized_like_the_reference(channels, groups):
    count = {"one": 1, "three": 3 if channels % 3 == 0 else 1, "all": channels}[groups]
    network = ip.Network("groups")
    x = network.add_input_layer(0, TensorInfo((2, channels, 9, 7)), name="x")
    op = Convolution2d(data_layout=DataLayout.NCHW)
    layer = network.add_layer(op, x, network.add_constant_layer(numbers(channels, channels, 1, 1)))
    gamma, beta = (network.add_constant_layer(numbers(size)) for size in (channels, 1))
    layer = network.add_layer(GroupNormalization(count, 1e-5), layer, gamma, beta)
    weights = network.add_constant_layer(numbers(8, channels, 1, 1))
    network.add_output_layer(0, network.add_layer(op, layer, weights))
    inputs = [numbers(2, channels, 9, 7) + np.float32(3)]
    [found], [expected] = (ip.load(network, [backend]).run(inputs) for backend in ("CpuAcc", "CpuRef"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * float(np.abs(expected).max()))
