"""The kernels that look up, choose and scatter: worked examples and properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidValueError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import (
    EmbeddingLookup,
    HashtableLookup,
    LshProjection,
    LshProjectionType,
    OneHot,
    RandomMultinomial,
    ScatterFunction,
    ScatterNd,
    TopK,
)


def run(op, *arrays, quantized=(), results=()):
    """Return all results on arrays, the first of which have these quantizations; results have their declared ones."""
    quantizations = [*quantized, *[None] * (len(arrays) - len(quantized))]
    infos = [None if x is None else TensorInfo(x.shape, x.dtype, q) for x, q in zip(arrays, quantizations, strict=True)]
    assert op.violations(*infos) == []
    outputs = list(op.infer_infos(*infos))
    for i, q in enumerate(results):
        outputs[i] = outputs[i].with_quantization(q)
    return evaluate(op, arrays, infos, outputs)


def test_rows_are_picked_by_number_and_there_are_none_of_negative_ones():
    table = np.float32([[1, 2], [3, 4], [5, 6]])
    assert run(EmbeddingLookup(), np.int32([2, 0]), table)[0].tolist() == [[5, 6], [1, 2]]
    for number in (-1, 3):
        with pytest.raises(InvalidValueError, match=rf"^lookups has {number} at \[0\]; expected 0 to 2$"):
            run(EmbeddingLookup(), np.int32([number]), table)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_rows_are_picked_by_key_whatever_their_order(order):
    keys, values = np.int32([-11, 0, 1234])[order], np.float32([[0, 0.1], [1, 1.1], [2, 2.1]])[order]
    result, hits = run(HashtableLookup(), np.int32([1234, -292, -11, 0]), keys, values)
    np.testing.assert_array_equal(result, np.float32([[2, 2.1], [0, 0], [0, 0.1], [1, 1.1]]))
    assert hits.tolist() == [1, 0, 1, 1]


def test_a_key_of_texts_that_is_not_there_gives_an_empty_one():
    values = np.array(["one", "two"], object)
    result, hits = run(HashtableLookup(), np.int32([2, 5]), np.int32([1, 2]), values)
    assert result.tolist() == ["two", ""]
    assert hits.tolist() == [1, 0]


SEEDS = np.float32([[0.123, 0.456], [-0.321, -0.654], [1.234, 5.678], [-4.321, -8.765]])
KEYS = np.int32([[12345, 54321], [67890, 9876], [-12345678, -87654321]])


@pytest.mark.parametrize(
    ("kind", "weights", "expected"),
    [
        (LshProjectionType.SPARSE_DEPRECATED, None, [1, 2, 2, 0]),
        (LshProjectionType.SPARSE, None, [1, 6, 10, 12]),
        (LshProjectionType.SPARSE, [0.12, 0.34, 0.56], [3, 6, 11, 14]),
        (LshProjectionType.DENSE, [0.12, 0.34, 0.56], [1, 1, 1, 0, 1, 1, 1, 0]),
    ],
)
def test_a_tensor_is_hashed_as_tflite_and_nnapi_do(kind, weights, expected):
    result = run(LshProjection(kind), SEEDS, KEYS, None if weights is None else np.float32(weights))
    assert result[0].tolist() == expected


def test_seeds_of_half_precision_are_hashed_as_floats():
    halves = SEEDS.astype(np.float16)
    assert run(LshProjection(), halves, KEYS, None)[0].tolist() == run(
        LshProjection(), halves.astype(np.float32), KEYS, None
    )[0].tolist()  # fmt: skip


def test_one_hot_has_one_value_at_the_place_and_another_elsewhere():
    indices = np.int64([1, -1, 3])
    assert run(OneHot(3, on_value=5.0, off_value=2.0), indices)[0].tolist() == [[2, 5, 2], [2, 2, 2], [2, 2, 2]]
    assert run(OneHot(3, from_end=True), indices)[0].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert run(OneHot(2, axis=0, dtype=DataType.BOOL), np.uint8([[0, 1]]))[0].tolist() == [[[1, 0]], [[0, 1]]]


def test_one_hot_is_quantized_as_its_result():
    [result] = run(OneHot(2, dtype=DataType.UINT8), np.int32([1]), results=[Quantization(0.25, 10)])
    assert result.tolist() == [[10, 14]]


# --- choosing ---------------------------------------------------------------------------------------------------------

arrays = st.lists(st.integers(-3, 3), min_size=1, max_size=8)
DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool"]


@given(arrays, st.sampled_from(DTYPES), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_best_come_first_and_of_equal_ones_the_first(numbers, dtype, largest, data):
    x = np.abs(numbers).astype(DataType.of(dtype).numpy) if dtype in {"uint8", "bool"} else None
    x = np.array(numbers).astype(DataType.of(dtype).numpy) if x is None else x
    k = data.draw(st.integers(0, len(numbers)))
    values, indices = run(TopK(k, largest=largest), x)
    plain = x.astype(np.float64)
    expected = sorted(range(len(x)), key=lambda i: (-plain[i] if largest else plain[i], i))[:k]
    assert indices.tolist() == expected
    np.testing.assert_array_equal(values.astype(np.float64), plain[expected])


def test_the_best_are_found_along_any_axis():
    x = np.float32([[1, 5, 2], [4, 0, 6]])
    values, indices = run(TopK(1, axis=0), x)
    assert (values.tolist(), indices.tolist()) == ([[4, 5, 6]], [[1, 0, 1]])


def test_classes_are_drawn_as_often_as_their_probabilities_say():
    probabilities = np.array([[0.1, 0.2, 0.0, 0.7], [0.25, 0.25, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities).astype(np.float32) + 3
    [result] = run(RandomMultinomial(20000), logits, np.int32([37, 42]))
    counts = [np.bincount(row, minlength=4) / row.size for row in result]
    np.testing.assert_allclose(counts, probabilities, atol=0.015)


def test_seeds_decide_what_is_drawn():
    logits = np.zeros((2, 50), np.float32)

    def drawn(*seeds):
        return run(RandomMultinomial(30), logits, np.int32(seeds) if seeds else None)[0].tolist()

    assert drawn(1, 2) == drawn(1, 2)
    assert drawn(1, 2) != drawn(2, 1)
    assert drawn(-1, 2) != drawn(1, 2)
    assert drawn() != drawn()
    assert drawn(0, 0) != drawn(0, 0)


# --- scattering -------------------------------------------------------------------------------------------------------

BASE = np.float32([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ScatterFunction.UPDATE, [[1, 2], [3, 4], [7, 1]]),
        (ScatterFunction.ADD, [[1, 2], [3, 4], [14, 15]]),
        (ScatterFunction.SUB, [[1, 2], [3, 4], [-4, -3]]),
        (ScatterFunction.MAX, [[1, 2], [3, 4], [7, 8]]),
        (ScatterFunction.MIN, [[1, 2], [3, 4], [2, 1]]),
        (ScatterFunction.MUL, [[1, 2], [3, 4], [70, 48]]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "uint8"])
def test_updates_are_combined_with_what_is_there(function, expected, dtype):
    numpy = DataType.of(dtype).numpy
    operands = BASE.astype(numpy), np.int32([[2], [-1]]), np.array([[2, 8], [7, 1]]).astype(numpy)
    [result] = run(ScatterNd(function), *operands)
    np.testing.assert_array_equal(result, np.array(expected).astype(numpy))


def test_single_elements_and_whole_tensors_can_be_updates():
    [single] = run(ScatterNd(), BASE, np.int64([[0, 1], [2, 0]]), np.float32([8, 9]))
    assert single.tolist() == [[1, 8], [3, 4], [9, 6]]
    [updated] = run(ScatterNd(ScatterFunction.ADD), BASE, np.zeros((2, 0), np.int64), np.stack([BASE, BASE]))
    np.testing.assert_array_equal(updated, 3 * BASE)


def test_updates_on_zeros_are_added_up_where_that_is_asked_for():
    op = ScatterNd(ScatterFunction.ADD, input_enabled=False)
    operands = np.int32([4]), np.int32([[1], [3], [1]]), np.float32([1, 2, 5])
    infos = [TensorInfo.of(operands[0]), *(TensorInfo(x.shape, x.dtype) for x in operands[1:])]
    assert evaluate(op, operands, infos, op.infer_infos(*infos))[0].tolist() == [0, 6, 0, 2]
    assert run(op, *operands)[0].tolist() == [0, 6, 0, 2]


def test_quantized_updates_are_the_real_numbers_that_they_are():
    codes, indices = np.uint8([10, 12, 14]), np.int32([[1]])
    same, other = Quantization(0.5, 10), Quantization(0.25, 0)
    for function, expected in ((ScatterFunction.ADD, [10, 16, 14]), (ScatterFunction.UPDATE, [10, 14, 14])):
        [result] = run(ScatterNd(function), codes, indices, np.uint8([8]), quantized=[same, None, other])
        assert result.tolist() == expected
    [moved] = run(ScatterNd(), codes, indices, np.uint8([8]), quantized=[same, None, same])
    assert moved.tolist() == [10, 8, 14]
    shape = np.int32([3])
    [zeros] = run(ScatterNd(input_enabled=False), shape, indices, np.uint8([8]), quantized=[None, None, same])
    assert zeros.tolist() == [10, 8, 10]


def test_texts_can_be_moved():
    texts = np.array(["a", "b", "c"], object)
    [result] = run(ScatterNd(), texts, np.int32([[2]]), np.array(["z"], object))
    assert result.tolist() == ["a", "b", "z"]


def test_an_index_outside_is_named():
    with pytest.raises(InvalidValueError) as caught:
        run(ScatterNd(), BASE, np.int32([[3]]), np.float32([[0, 0]]))
    assert str(caught.value) == "indices has 3 at [0, 0]; expected -3 to 2"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([4, -3], "input has -3 at [1]; expected 0 or more"),
        ([4, 5], "updates has shape [2, 3]; expected [2, 5]"),
        ([4, 2], "updates has shape [2, 3]; expected [2, 2]"),
    ],
)
def test_a_shape_that_is_only_known_while_running_must_fit_the_updates(shape, expected):
    arrays = np.int32(shape), np.int32([[0], [1]]), np.ones((2, 3), np.float32)
    op = ScatterNd(input_enabled=False)
    with pytest.raises(InvalidValueError) as caught:
        run(op, *arrays)
    assert str(caught.value) == expected
