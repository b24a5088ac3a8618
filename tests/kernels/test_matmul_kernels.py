"""Products of matrices."""

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import BatchMatMul, FullyConnected
from tests.computing import compute

ONE = Quantization(1.0)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (5, 2, 3), (2, 5, 1, 6)])
def test_a_fully_connected_layer_multiplies_rows_with_the_weights_and_adds_the_bias(shape, transposed):
    x, weights, bias = numbers(*shape), numbers(6, 4, seed=1), numbers(4, seed=2)
    op = FullyConnected(transpose_weight_matrix=transposed)
    result = compute(op, x, weights.T if transposed else weights, bias)
    np.testing.assert_array_equal(result, x.reshape(-1, 6) @ weights + bias)


def test_leading_axes_are_kept_where_asked():
    x, weights = numbers(2, 5, 6), numbers(6, 4, seed=1)
    np.testing.assert_array_equal(compute(FullyConnected(keep_dims=True), x, weights), x @ weights)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_numbers_of_any_type_are_multiplied(dtype):
    kind = DataType.of(dtype).numpy
    a, b = numbers(2, 3, 4), numbers(4, 5, seed=1)
    for op in (FullyConnected(keep_dims=True), BatchMatMul()):
        result = compute(op, a.astype(kind), b.astype(kind))
        assert result.dtype == kind
        np.testing.assert_array_equal(result.astype(np.float32), a @ b)


@pytest.mark.parametrize(("sum_", "expected"), [(1, 1), (-1, -1), (3, 2), (-3, -2), (2, 1)])
def test_a_quantized_fully_connected_layer_rounds_halves_away_from_zero(sum_, expected):
    x, weights = np.int8([[sum_]]), np.int8([[1]])
    scales = [Quantization(0.5), Quantization(1.0)]
    assert compute(FullyConnected(), x, weights, quantized=scales, result=Quantization(1.0)).item() == expected


def test_zero_points_of_input_weights_and_output_count():
    x, weights, bias = np.uint8([[10, 20]]), np.uint8([[5], [7]]), np.int32([100])
    scales = [Quantization(1.0, 8), Quantization(1.0, 4)]
    result = compute(FullyConnected(), x, weights, bias, quantized=scales, result=Quantization(2.0, 3))
    assert result.item() == (2 * 1 + 12 * 3 + 100) // 2 + 3


def test_every_output_has_a_scale_of_its_own():
    weights = np.int8([[8, 8]])
    for transposed, w in ((False, weights), (True, weights.T)):
        scales = [ONE, Quantization([1.0, 0.25], axis=0 if transposed else 1)]
        op = FullyConnected(transpose_weight_matrix=transposed)
        assert compute(op, np.int8([[2]]), w, quantized=scales, result=ONE).tolist() == [[16, 4]]


def test_sums_of_sixteen_bit_numbers_have_sixty_four_bits():
    x, weights = np.full((1, 4096), 32767, np.int16), np.full((4096, 1), 127, np.int8)
    bias = np.array([-4096 * 32767 * 127 + 5], np.int64)
    result = compute(FullyConnected(), x, weights, bias, quantized=[ONE, ONE], result=ONE)
    assert result.item() == 5


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((4,), (2, 4, 5)), ((3, 4), (4,)), ((4,), (4,))]
)
def test_matrices_are_multiplied_as_numpy_does(a, b):
    left, right = numbers(*a), numbers(*b, seed=1)
    np.testing.assert_array_equal(compute(BatchMatMul(), left, right), left @ right)


def test_operands_are_transposed_where_asked():
    a, b = numbers(2, 4, 3), numbers(2, 5, 4, seed=1)
    result = compute(BatchMatMul(transpose_x=True, transpose_y=True), a, b)
    np.testing.assert_array_equal(result, a.swapaxes(1, 2) @ b.swapaxes(1, 2))


def test_a_matrix_times_its_adjoint_is_its_determinant_on_the_diagonal():
    a = np.random.default_rng(0).normal(size=(2, 4, 4))
    expected = np.linalg.det(a)[:, None, None] * np.eye(4)
    np.testing.assert_allclose(compute(BatchMatMul(adjoint_x=True), a, a), expected, atol=1e-9)


def test_quantized_matrices_are_multiplied_without_their_zero_points():
    a, b = np.int8([[1, 2], [3, 4]]), np.int8([[5, 6], [7, 8]])
    scales = [Quantization(0.5, 1), Quantization(0.5, 2)]
    result = compute(BatchMatMul(), a, b, quantized=scales, result=Quantization(0.25, -1))
    assert result.tolist() == ((a.astype(int) - 1) @ (b.astype(int) - 2) - 1).tolist()


@pytest.mark.parametrize(
    ("b", "output", "reason"),
    [
        (TensorInfo((2, 2), "int8"), TensorInfo((2, 2), "int8", ONE), "a is quantized, but b or the output is not"),
        (
            TensorInfo((2, 2), "int8", Quantization([1.0, 2.0], axis=0)),
            TensorInfo((2, 2), "int8", ONE),
            "b is quantized along axis 0; takes one scale, or scales of its columns",
        ),
        (
            TensorInfo((2, 2), "int8", Quantization([1.0, 2.0], [0, 1], axis=1)),
            TensorInfo((2, 2), "int8", ONE),
            "b has several zero points; takes one",
        ),
        (
            TensorInfo((2, 2), "int8", ONE),
            TensorInfo((2, 2), "int8", Quantization([1.0, 2.0], axis=1)),
            "a or the output is quantized along an axis; takes one scale for each",
        ),
    ],
)
def test_scales_that_no_kernel_takes_are_refused(b, output, reason):
    with pytest.raises(InvalidArgumentError, match=f"^BatchMatMul: .*{reason}"):
        evaluate(BatchMatMul(), [None, None], [TensorInfo((2, 2), "int8", ONE), b], [output])
