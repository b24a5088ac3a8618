"""Calibration data: which forms are accepted, and what is wrong with others."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.core.errors import InvalidArgumentError
from interposer.quantization.samples import samples_of


def two_inputs(batch: int | None = 2) -> Network:
    network = Network("two")
    network.add_input_layer(0, TensorInfo((batch, 3)), name="a")
    network.add_input_layer(1, TensorInfo((batch,), "int32"), name="b")
    return network


def one_input() -> Network:
    network = Network("one")
    network.add_input_layer(0, TensorInfo((2, 3)), name="a")
    return network


def test_arrays_are_divided_into_batches_along_the_first_axis():
    samples = samples_of(two_inputs(), {"a": np.zeros((6, 3)), "b": np.arange(6)})
    assert [(sample["a"].shape, sample["b"].tolist()) for sample in samples] == [
        ((2, 3), [0, 1]), ((2, 3), [2, 3]), ((2, 3), [4, 5]),
    ]  # fmt: skip
    assert samples[0]["a"].dtype == np.float32


def test_an_array_with_one_more_axis_has_a_sample_for_each_index():
    assert [sample["a"].shape for sample in samples_of(one_input(), np.zeros((5, 2, 3)))] == [(2, 3)] * 5


def test_rows_are_samples_if_the_batch_is_open():
    network = Network("open")
    network.add_input_layer(0, TensorInfo((None, 3)), name="a")
    assert [sample["a"].shape for sample in samples_of(network, np.zeros((4, 3)))] == [(1, 3)] * 4


@pytest.mark.parametrize(
    "sample", [{"a": np.ones((2, 3)), "b": [1, 2]}, [np.ones((2, 3)), [1, 2]], (np.ones((2, 3)), np.int32([1, 2]))]
)
def test_samples_are_mappings_or_sequences(sample):
    [result] = samples_of(two_inputs(), iter([sample]))
    assert (result["a"].tolist(), result["b"].tolist()) == ([[1.0] * 3] * 2, [1, 2])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "there is no calibration data; give at least one sample"),
        (np.zeros((0, 3)), "there is no calibration data; give at least one sample"),
        (7, "calibration data is arrays or an iterable of samples, not 7"),
        (
            np.zeros((3, 3)),
            "the data for input 'a' has 3 rows, which cannot be divided into batches of 2",
        ),
        (
            np.zeros(3),
            "the data for input 'a' has shape [3]; expected the samples along axis 0 of arrays for float32[2, 3]",
        ),
        ([np.zeros((2, 4))], "sample 0 of input 'a' has shape [2, 4]; expected float32[2, 3]"),
        (
            [np.zeros((2, 3)), np.full((2, 3), np.nan)],
            "sample 1 of input 'a' has NaN; calibration data must be finite",
        ),
        (
            [np.full((2, 3), np.inf)],
            "sample 0 of input 'a' has an infinite value; calibration data must be finite",
        ),
        ([np.full((2, 3), "x")], "sample 0 of input 'a' is <U1; expected float32[2, 3]"),
        (
            [{"c": np.zeros((2, 3))}],
            "sample 0 has an array 'c', but the network has no such input (it has: a)",
        ),
        ({}, "the data has no array for the input 'a' float32[2, 3]"),
        (
            [7],
            "sample 0 must be an array, a mapping, or a sequence of 1 arrays, one for each input",
        ),
    ],
)
def test_wrong_data_is_named(data, message):
    with pytest.raises(InvalidArgumentError) as caught:
        samples_of(one_input(), data)
    assert str(caught.value) == message


def test_several_inputs_need_names_and_equal_numbers_of_samples():
    with pytest.raises(
        InvalidArgumentError, match=r"the network has 2 inputs; name the arrays of the data \('a', 'b'\)"
    ):
        samples_of(two_inputs(), np.zeros((2, 3)))
    with pytest.raises(InvalidArgumentError, match="the inputs have different numbers of samples: 'a' 1, 'b' 2"):
        samples_of(two_inputs(), {"a": np.zeros((2, 3)), "b": np.zeros(4, np.int32)})
    with pytest.raises(InvalidArgumentError, match=r"sample 0 of input 'b' is float64; expected int32\[2\]"):
        samples_of(two_inputs(), [[np.zeros((2, 3)), np.zeros(2)]])
