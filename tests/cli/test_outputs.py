"""The top classes, figures, and files of outputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from interposer import Quantization, TensorInfo
from interposer.cli.outputs import figures, has_classes, save, top


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 1, 5)])
def test_a_vector_has_classes(shape):
    assert has_classes(np.zeros(shape))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 5), (5, 1), (1, 3, 3), (0,), (1, 0)])
def test_what_is_no_vector_has_none(shape):
    assert not has_classes(np.zeros(shape))


def test_texts_are_no_classes():
    assert not has_classes(np.array(["a", "b"], dtype=object))


def classes(array: np.ndarray, count: int = 3, **about: object) -> list[tuple[object, ...]]:
    info = TensorInfo(array.shape, array.dtype, **about)
    return [
        (ranked.index, ranked.label, ranked.score, ranked.value) for ranked in top(array, info, count, {0: "a", 2: "c"})
    ]


def test_the_highest_scores_come_first_and_of_equal_ones_the_first_class():
    assert classes(np.float32([0.25, 0.5, 0.5, 0])) == [(1, None, 0.5, None), (2, "c", 0.5, None), (0, "a", 0.25, None)]


def test_there_are_no_more_classes_than_there_are():
    assert len(classes(np.float32([[0.25, 0.75]]), 5)) == 2


def test_a_quantized_score_is_as_stored_beside_the_number_that_it_stands_for():
    assert classes(np.uint8([[205, 0, 26]]), 2, quantization=Quantization(1 / 256, 0)) == [
        (0, "a", 205, 205 / 256),
        (2, "c", 26, 26 / 256),
    ]
    assert classes(np.int8([[127, -128]]), 1, quantization=Quantization(0.5, -128)) == [(0, "a", 127, 127.5)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "uint8", "int4", "bool"])
def test_scores_of_every_type_are_ranked(dtype):
    array = np.array([0, 1, 0, 0]).astype(TensorInfo((), dtype).dtype.numpy)
    assert classes(array, 1) == [(1, None, 1, None)]


def test_nan_is_not_hidden():
    [(index, _, score, _)] = classes(np.float32([1, np.nan, 2]), 1)
    assert (index, np.isnan(score)) == (1, True)


def test_figures_are_least_greatest_and_mean():
    array = np.float32([[1, 2], [3, 6]])
    assert figures("y", array, TensorInfo((None, 2))) == {
        "name": "y", "info": "float32[2, 2]", "shape": [2, 2], "min": 1.0, "max": 6.0, "mean": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.array(["a"], dtype=object)])
def test_where_there_are_no_numbers_there_are_no_figures(array):
    assert figures("y", array, TensorInfo.of(array)).keys() == {"name", "info", "shape"}


def test_saved_outputs_can_be_loaded_by_name(tmp_path):
    arrays = {
        "file": np.float32([1.5]),
        "StatefulPartitionedCall:0": np.uint8([[1, 2]]),
        "half": np.array([0.5], ml_dtypes.bfloat16),
        "small": np.array([-3], ml_dtypes.int4),
        "texts": np.array(["grün", "b"], dtype=object),
    }
    save(str(tmp_path / "out.npz"), arrays)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert {name: archive[name].tolist() for name in archive} == {
            name: array.tolist() for name, array in arrays.items()
        }
        assert [archive[name].dtype.name for name in ("file", "half", "small")] == ["float32", "float32", "int8"]
