import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.types import DataType, Quantization
from interposer.ops.einsum import Einsum
from interposer.ops.matmul import BatchMatMul
from interposer.ops.matrices import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu
from interposer.ops.quantization import Bitcast
from tests.computing import compute

F32 = np.float32
NUMBERS = st.integers(-9, 9).map(F32)


@given(arrays.arrays(F32, (2, 3, 4), elements=NUMBERS), st.integers(-4, 4))
def test_two_triangles_make_up_a_matrix(x, k):
    upper, lower = compute(Trilu(k), x), compute(Trilu(k - 1, upper=False), x)
    np.testing.assert_array_equal(upper + lower, x)
    np.testing.assert_array_equal(upper, np.triu(x, k))


def test_the_zeros_of_a_quantized_triangle_are_real_ones():
    assert compute(Trilu(), np.uint8([[9, 9], [9, 9]]), quantized=[Quantization(0.5, 7)]).tolist() == [[9, 9], [7, 9]]


def test_an_identity_is_of_the_type_that_is_asked_for():
    result = compute(EyeLike(-1, DataType.FLOAT16), np.zeros((2, 3), np.int8))
    assert (result.dtype, result.tolist()) == (np.float16, [[0, 0, 0], [1, 0, 0]])
    assert compute(EyeLike(), np.zeros((1, 1), ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


@given(arrays.arrays(F32, (2, 3), elements=NUMBERS))
def test_a_diagonal_that_is_spread_or_set_can_be_read_again(diagonal):
    spread = compute(MatrixDiag(), diagonal)
    np.testing.assert_array_equal(np.diagonal(spread, axis1=1, axis2=2), diagonal)
    assert np.count_nonzero(spread) == np.count_nonzero(diagonal)
    result = compute(MatrixSetDiag(), np.full((2, 3, 4), F32(5)), diagonal)
    np.testing.assert_array_equal(np.diagonal(result, axis1=1, axis2=2), diagonal)
    assert (result == 5).sum() >= 2 * 9


@given(arrays.arrays(F32, (2, 3, 3), elements=NUMBERS), arrays.arrays(F32, (2, 3, 3), elements=NUMBERS))
def test_determinants_multiply(a, b):
    product = compute(Det(), compute(BatchMatMul(), a, b))
    np.testing.assert_allclose(product, compute(Det(), a) * compute(Det(), b), rtol=1e-4, atol=0.1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64])
def test_an_equation_multiplies_matrices_of_any_type(dtype):
    a, b = np.array([[1, 2], [3, 4]], dtype), np.array([[5, 6], [7, 8]], dtype)
    result = compute(Einsum("ij,jk->ik"), a, b)
    assert (result.dtype, result.astype(float).tolist()) == (a.dtype, [[19, 22], [43, 50]])


@given(arrays.arrays(F32, (3, 3), elements=NUMBERS))
def test_a_letter_twice_is_the_diagonal(x):
    np.testing.assert_array_equal(compute(Einsum("ii->i"), x), np.diagonal(x))
    np.testing.assert_allclose(compute(Einsum("ii"), x), np.trace(x))


def test_quantized_sums_are_those_of_real_numbers():
    a, b = np.uint8([[3, 5]]), np.uint8([[9], [7]])
    q = Quantization(0.5, 3)
    result = compute(Einsum("ij,jk->ik"), a, b, quantized=[q, q], result=Quantization(0.25, 1))
    assert result.tolist() == [[(0 * 6 + 2 * 4) + 1]]


def test_bits_are_read_as_another_type():
    assert compute(Bitcast(DataType.UINT32), F32([1, -0.0])).tolist() == [0x3F800000, 0x80000000]
    ints = np.array([-1, 7, -8], ml_dtypes.int4)
    assert compute(Bitcast(DataType.UINT4), ints).astype(int).tolist() == [15, 7, 8]
    back = compute(Bitcast(DataType.INT4), compute(Bitcast(DataType.UINT4), ints))
    assert back.astype(int).tolist() == [-1, 7, -8]
    assert compute(Bitcast(DataType.BOOL), np.uint8([0, 2])).tolist() == [False, True]
