"""Operators accept the largest rank of a tensor; the tests of each operator show that they refuse one more."""

import pytest

from interposer.core.types import MAX_RANK, TensorInfo
from interposer.ops import BroadcastTo, Einsum, Fill, Gather, RandomBits, RandomFill, Reshape, StridedSlice
from interposer.ops.dynamic import DynamicReshape

ONES = (1,) * MAX_RANK
SCALAR, DIMS, INDICES = TensorInfo(()), TensorInfo((MAX_RANK,), "int32"), TensorInfo(ONES[1:], "int32")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (Reshape(ONES), [TensorInfo((1,))]),
        (BroadcastTo(ONES), [SCALAR]),
        (Fill(), [DIMS]),
        (RandomFill(), [DIMS]),
        (RandomBits(ONES), [TensorInfo((2,), "uint64")]),
        (Gather(0), [TensorInfo((1, 1)), INDICES]),
        (Einsum("abcdefgh,ijklmnop->abcdefghijklmnop"), [TensorInfo(ONES[:8]), TensorInfo(ONES[:8])]),
        (StridedSlice((0,), (1,), (1,), new_axis_mask=1), [TensorInfo(ONES[1:])]),
        (DynamicReshape(), [SCALAR, TensorInfo((MAX_RANK,), "int64")]),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_a_result_of_the_largest_rank_is_accepted(op, inputs):
    assert op.violations(*inputs) == []
