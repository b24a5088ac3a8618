import numpy as np
import pytest

from interposer.core.types import UNKNOWN, DataType, Quantization, TensorInfo
from interposer.ops.selection import Compress, NonZero, Unique

IMAGE = TensorInfo((2, 3, 4))


def shapes(op, *infos):
    assert op.violations(*infos) == []
    return [tuple(info.shape) for info in op.infer_infos(*infos)]


def test_how_many_there_are_is_not_known():
    condition = TensorInfo((3,), DataType.BOOL)
    assert shapes(NonZero(), IMAGE) == [(3, UNKNOWN)]
    assert shapes(Compress(), IMAGE, condition) == [(UNKNOWN,)]
    assert shapes(Compress(-2), IMAGE, condition) == [(2, UNKNOWN, 4)]
    assert shapes(Unique(), IMAGE) == [(UNKNOWN,), (UNKNOWN,), (24,), (UNKNOWN,)]
    assert shapes(Unique(1), IMAGE) == [(2, UNKNOWN, 4), (UNKNOWN,), (3,), (UNKNOWN,)]


def test_a_condition_that_is_known_says_how_many():
    assert shapes(Compress(1), IMAGE, TensorInfo.of(np.array([True, False, True]))) == [(2, 2, 4)]


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (NonZero(), [TensorInfo((2,), DataType.STRING)], "input is string, which has no zero; expected another type"),
        (
            Compress(3),
            [IMAGE, TensorInfo((1,), DataType.BOOL)],
            "axis is 3, but the input has rank 3; expected -3 to 2",
        ),
        (
            Compress(1),
            [IMAGE, TensorInfo((4,), DataType.BOOL)],
            "condition has 4 elements, but there are 3 to choose from",
        ),
        (
            Compress(0),
            [TensorInfo((2,), DataType.INT8, Quantization([0.1, 0.2], axis=0)), TensorInfo((1,), DataType.BOOL)],
            "the input is quantized along axis 0, which the operator would choose from; dequantize it first",
        ),
        (Unique(3), [IMAGE], "axis is 3, but the input has rank 3; expected -3 to 2"),
    ],
)
def test_a_fault_says_what_was_expected(op, infos, fault):
    assert op.violations(*infos) == [fault]
