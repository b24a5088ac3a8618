"""Operators that stand for several: shapes, errors, and that they give what the several ones give."""

import numpy as np
import pytest

from interposer.core.types import TensorInfo
from interposer.kernels import evaluate
from interposer.ops import Addition, Fused, Multiplication

A, B, CHANNELS = TensorInfo((2, 3, 4)), TensorInfo((3, 1)), TensorInfo((4,))


def test_there_are_one_or_two_results_of_one_shape():
    assert Fused(num_outputs=1).infer_infos(A, B, CHANNELS, CHANNELS) == (A,)
    assert Fused().infer_infos(A, B, CHANNELS, CHANNELS) == (A, A)


@pytest.mark.parametrize(
    ("b", "addend", "fault"),
    [
        (TensorInfo((5, 1)), CHANNELS, "a has shape [2, 3, 4] and b [5, 1], which do not broadcast"),
        (B, TensorInfo((9, 2, 3, 4)), "addend has shape [9, 2, 3, 4], which does not broadcast to [2, 3, 4]"),
        (B, TensorInfo((3,)), "addend has shape [3], which does not broadcast to [2, 3, 4]"),
    ],
)
def test_what_does_not_broadcast_is_named(b, addend, fault):
    assert Fused().violations(A, b, CHANNELS, addend) == [fault]


def test_an_unknown_extent_stays_unknown():
    late = TensorInfo((None, 3, 4))
    assert Fused(num_outputs=1).violations(late, B, CHANNELS, CHANNELS) == []
    assert Fused(num_outputs=1).infer_infos(late, B, CHANNELS, CHANNELS)[0].shape == late.shape


def test_the_results_are_those_of_the_three_operators():
    generator = np.random.default_rng(0)
    a, b, factor, offset = (generator.normal(size=info.shape).astype(np.float32) for info in (A, B, CHANNELS, CHANNELS))
    [total] = evaluate(Addition(), [a, b], [A, B], [A])
    [product] = evaluate(Multiplication(), [total, factor], [A, CHANNELS], [A])
    [expected] = evaluate(Addition(), [product, offset], [A, CHANNELS], [A])
    result = evaluate(Fused(), [a, b, factor, offset], [A, B, CHANNELS, CHANNELS], [A, A])
    np.testing.assert_array_equal(result[0], total)
    np.testing.assert_array_equal(result[1], expected)
