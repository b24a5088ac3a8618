"""Operators that group rows, compare sets, and change diagonals, strings and spectra give what worked examples say."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.tensorflow import load
from tests.frontends.tensorflow.graphs import Type, const, graph, node, one, placeholder

X = np.arange(12, dtype=np.float32).reshape(4, 3)
NUMBERS = np.int32([1, 0, 1, 3])
LEAST = np.finfo(np.float32).min


def run(data, *inputs, **arguments):
    results = [ip.load(load(data, **arguments), ids).run(list(inputs)) for ids in (["CpuRef"], None)]
    for first, second in zip(*results, strict=True):
        assert first.tolist() == second.tolist()
    return results[0]


def test_rows_are_divided_by_numbers_and_put_together_again():
    data = graph(
        placeholder("x", (None, 3)), placeholder("numbers", (None,), "int32"),
        const("first", np.int32(0)), const("step", np.int32(1)),
        node("Size", "count", "numbers"), node("Range", "all", "first", "count", "step"),
        node("DynamicPartition", "rows", "x", "numbers", num_partitions=2, T=Type("float32")),
        node("DynamicPartition", "places", "all", "numbers", num_partitions=2, T=Type("int32")),
        node("Neg", "negative", "rows:1"),
        node("DynamicStitch", "y", "places", "places:1", "rows", "negative", N=2),
    )  # fmt: skip
    numbers = np.int32([1, 0, 1, 0])
    [zeros, y] = run(data, X, numbers, outputs=["rows", "y"])
    assert zeros.tolist() == X[[1, 3]].tolist()
    assert y.tolist() == np.where(numbers[:, None] == 1, -X, X).tolist()


def test_rows_that_nothing_is_written_to_are_zero():
    data = one("DynamicStitch", [X[:2]], {0: np.int32([3, 1])}, N=1)
    assert run(data, X[:2])[0].tolist() == [[0] * 3, [3, 4, 5], [0] * 3, [0, 1, 2]]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("SegmentSum", [X[0] + X[1], np.zeros(3), X[2] + X[3]]),
        ("SegmentMean", [(X[0] + X[1]) / 2, np.zeros(3), (X[2] + X[3]) / 2]),
    ],
)
def test_rows_of_sorted_segments_are_added(op, expected):
    [result] = run(one(op, [X, np.int32([0, 0, 2, 2])]), X, np.int32([0, 0, 2, 2]))
    assert result.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("UnsortedSegmentSum", [X[1], X[0], [0] * 3]),
        ("UnsortedSegmentProd", [X[1], X[0], [1] * 3]),
        ("UnsortedSegmentMax", [X[1], X[0], [LEAST] * 3]),
        ("UnsortedSegmentMin", [X[1], X[0], [-LEAST] * 3]),
    ],
)
def test_rows_without_a_segment_are_dropped(op, expected):
    numbers = np.int32([1, 0, -1, -5])
    [result] = run(one(op, [X, numbers], {2: np.int32(3)}), X, numbers)
    assert result.tolist() == np.array(expected, np.float32).tolist()


def test_unsorted_segments_combine_their_rows():
    [result] = run(one("UnsortedSegmentMax", [X, NUMBERS], {2: np.int32(4)}), X, NUMBERS)
    assert result.tolist() == [X[1].tolist(), X[2].tolist(), [LEAST] * 3, X[3].tolist()]


def test_elements_that_another_list_has_are_removed():
    data = one("ListDiff", [np.int32([5, 2, 7, 2, 9]), np.int32([2, 9])], out_idx=Type("int64"))
    values, places = run(data, np.int32([5, 2, 7, 2, 9]), np.int32([2, 9]), outputs=["y", "y:1"])
    assert (values.tolist(), places.tolist(), places.dtype) == ([5, 7], [0, 2], np.int64)


@pytest.mark.parametrize(
    ("weights", "more", "expected"),
    [
        (np.zeros(0, np.float32), {}, [1, 2, 0, 1]),
        (np.float32([1, 2, 3, 4]), {}, [2, 4, 0, 4]),
        (np.zeros(0, np.float32), {"binary_output": True}, [1, 1, 0, 1]),
    ],
)
def test_occurrences_of_numbers_are_counted(weights, more, expected):
    data = one("DenseBincount", [NUMBERS], {1: np.int32(4), 2: weights}, **more)
    assert run(data, NUMBERS)[0].tolist() == expected


@pytest.mark.parametrize(
    ("weights", "more", "expected"),
    [
        (np.zeros((0,), np.float32), {}, [[2, 0, 1], [0, 1, 1]]),
        (np.float32([[1, 2, 3], [4, 5, 6]]), {}, [[4, 0, 2], [0, 6, 5]]),
        (np.zeros((0,), np.float32), {"binary_output": True}, [[1, 0, 1], [0, 1, 1]]),
    ],
)
def test_the_numbers_of_every_row_of_a_matrix_are_counted(weights, more, expected):
    rows = np.int32([[0, 2, 0], [7, 2, 1]])
    data = one("DenseBincount", [rows], {1: np.int32(3), 2: weights}, **more)
    assert run(data, rows)[0].tolist() == expected


@pytest.mark.parametrize(
    ("indices", "values", "expected"),
    [
        (np.int32([[0, 1], [2, 0]]), np.float32([5, 6]), [[-1, 5], [-1, -1], [6, -1]]),
        (np.int32([[1, 1]]), np.float32(4), [[-1, -1], [-1, 4], [-1, -1]]),
    ],
)
def test_sparse_values_become_dense(indices, values, expected):
    data = one("SparseToDense", [values], {0: indices, 1: np.int32([3, 2]), 3: np.float32(-1)})
    assert run(data, values)[0].tolist() == expected


def test_elements_are_put_into_buckets():
    x = np.float32([-5, 0, 1.5, 9, np.nan])
    [result] = run(one("Bucketize", [x], boundaries=[0.0, 1.0, 2.0]), x)
    assert result.tolist() == [0, 1, 2, 3, 3]


def test_diagonals_become_matrices_and_back():
    more = {1: np.int32(0), 2: np.int32(-1), 3: np.int32(-1), 4: np.float32(0)}
    assert run(one("MatrixDiagV3", [X], more), X)[0].tolist() == [np.diag(row).tolist() for row in X]
    square = np.stack([X, X + 20])[:, :3]
    part = one("MatrixDiagPartV3", [square], {1: np.int32(0), 2: np.float32(0)})
    assert run(part, square)[0].tolist() == [np.diag(item).tolist() for item in square]
    row = np.float32([[7, 8, 9], [4, 5, 6]])
    [result] = run(one("MatrixSetDiagV3", [square, row], {2: np.int32(0)}), square, row)
    expected = square.copy()
    expected[:, range(3), range(3)] = row
    assert result.tolist() == expected.tolist()
    with pytest.raises(UnsupportedOperatorError, match=r"k is \[1\]; only the main diagonal is supported"):
        load(one("MatrixDiagPartV3", [square], {1: np.int32(1), 2: np.float32(0)}))


def test_strings_are_joined_compared_and_change_their_case():
    texts = np.array(["Ab c", "xx", ""], object)
    data = graph(
        placeholder("s", (None,), "str"),
        node("StringLower", "low", "s"), node("StringUpper", "high", "s"),
        node("StringJoin", "both", "s", "low", N=2, separator="-"),
        node("StaticRegexFullMatch", "matches", "s", pattern="x+"),
    )  # fmt: skip
    low, high, both, matches = run(data, texts, outputs=["low", "high", "both", "matches"])
    assert (low.tolist(), high.tolist()) == (["ab c", "xx", ""], ["AB C", "XX", ""])
    assert (both.tolist(), matches.tolist()) == (["Ab c-ab c", "xx-xx", "-"], [False, True, False])


@pytest.mark.parametrize("length", [3, 4, 6])
def test_fourier_transforms_have_magnitudes_and_parts(length):
    data = graph(
        placeholder("x", (4, 3)), const("length", np.int32([length])), node("RFFT", "spectrum", "x", "length"),
        node("Identity", "same", "spectrum"), node("ComplexAbs", "size", "same"),
        node("Real", "real", "spectrum"), node("Imag", "imaginary", "spectrum"),
    )  # fmt: skip
    expected = np.fft.rfft(X, length)
    results = ip.load(load(data, outputs=["size", "real", "imaginary"]), ["CpuRef"]).run([X])
    for result, part in zip(results, (np.abs(expected), expected.real, expected.imag), strict=True):
        np.testing.assert_allclose(result, part, rtol=1e-4, atol=1e-4)


def test_other_operators_refuse_complex_numbers():
    data = graph(
        placeholder("x", (4, 3)), const("length", np.int32([3])), node("RFFT", "spectrum", "x", "length"),
        node("Neg", "y", "spectrum"),
    )  # fmt: skip
    with pytest.raises(ParseError) as caught:
        load(data)
    assert str(caught.value) == "node 'y' (Neg): its input number 0 is complex; expected a tensor"
