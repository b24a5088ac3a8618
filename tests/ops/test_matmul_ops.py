"""Shapes and errors of products of matrices."""

import pytest

from interposer.core.types import Quantization, TensorInfo
from interposer.ops import BatchMatMul, FullyConnected


@pytest.mark.parametrize(
    ("op", "x", "weights", "expected"),
    [
        (FullyConnected(), (5, 6), (6, 4), (5, 4)),
        (FullyConnected(transpose_weight_matrix=True), (5, 6), (4, 6), (5, 4)),
        (FullyConnected(), (5, 2, 3), (6, 4), (5, 4)),
        (FullyConnected(), (5, 2, 3), (3, 4), (10, 4)),
        (FullyConnected(keep_dims=True), (5, 2, 3), (3, 4), (5, 2, 4)),
        (FullyConnected(), ("batch", 2, 3), (6, 4), ("batch", 4)),
        (FullyConnected(), (6,), (6, 4), (1, 4)),
    ],
)
def test_rows_are_taken_across_axes(op, x, weights, expected):
    infos = TensorInfo(x), TensorInfo(weights)
    assert op.violations(*infos) == []
    assert op.infer_infos(*infos)[0].shape == TensorInfo(expected).shape


@pytest.mark.parametrize(
    ("op", "shapes", "fault"),
    [
        (
            FullyConnected(),
            [(5, 7), (6, 4)],
            "input of shape [5, 7] cannot be divided into rows of 6 elements, as weights require",
        ),
        (
            FullyConnected(keep_dims=True),
            [(3, 2, 3), (6, 4)],
            "input has rows of 3 elements, but weights expect 6",
        ),
        (FullyConnected(), [(5, 6), (0, 4)], "weights expect rows of 0 elements; expected at least 1"),
        (FullyConnected(), [(5, 6), (6, 4), (6,)], "bias has 6 elements; expected 4, one for each output"),
    ],
)
def test_weights_that_do_not_fit_are_named(op, shapes, fault):
    assert op.violations(*map(TensorInfo, shapes)) == [fault]


def test_scales_of_weights_must_lie_along_the_outputs():
    weights = TensorInfo((6, 2), "int8", Quantization([1.0, 2.0], axis=1))
    x = TensorInfo((1, 6), "int8", Quantization(1.0))
    assert FullyConnected().violations(x, weights) == []
    assert FullyConnected(transpose_weight_matrix=True).violations(TensorInfo((1, 2), "int8"), weights) == [
        "weights are quantized along axis 1; expected axis 0, the outputs' axis"
    ]


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        (BatchMatMul(), (3, 4), (4, 5), (3, 5)),
        (BatchMatMul(), (2, 1, 3, 4), (6, 4, 5), (2, 6, 3, 5)),
        (BatchMatMul(transpose_x=True), (4, 3), (4, 5), (3, 5)),
        (BatchMatMul(transpose_y=True), (3, 4), (5, 4), (3, 5)),
        (BatchMatMul(), (4,), (4, 5), (5,)),
        (BatchMatMul(), (3, 4), (4,), (3,)),
        (BatchMatMul(), (4,), (4,), ()),
        (BatchMatMul(), ("n", 3, 4), (4, 5), ("n", 3, 5)),
    ],
)
def test_matrices_are_multiplied_over_a_batch(op, a, b, expected):
    infos = TensorInfo(a), TensorInfo(b)
    assert op.violations(*infos) == []
    assert op.infer_infos(*infos)[0].shape == TensorInfo(expected).shape


@pytest.mark.parametrize(
    ("op", "a", "b", "fault"),
    [
        (BatchMatMul(), (3, 4), (5, 6), "a [3, 4] has rows of 4 elements, but b [5, 6] has columns of 5"),
        (
            BatchMatMul(), (2, 3, 4), (3, 4, 6),
            "the batches of a, [2, 3, 4], and of b, [3, 4, 6], cannot be broadcast together",
        ),
        (BatchMatMul(adjoint_x=True), (3, 4), (4, 6), "a has shape [3, 4]; only square matrices have an adjoint"),
    ],
)  # fmt: skip
def test_matrices_that_do_not_fit_are_named(op, a, b, fault):
    assert op.violations(TensorInfo(a), TensorInfo(b)) == [fault]
