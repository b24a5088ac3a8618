import numpy as np
import pytest

from interposer.core.types import UNKNOWN, DataType, Quantization, TensorInfo
from interposer.ops.sequence import CumProd, CumSum, Range, ReverseSequence

LENGTHS = TensorInfo((3,), DataType.INT64)


def number(value, dtype=np.int64):
    return TensorInfo.of(np.array(value, dtype))


@pytest.mark.parametrize("op", [CumSum(2), CumProd(2)])
def test_an_axis_that_is_not_there_is_named(op):
    assert op.violations(TensorInfo((2, 3))) == ["axis is 2, but the input has rank 2; expected -2 to 1"]


def test_there_is_a_length_for_every_sample():
    assert ReverseSequence().violations(TensorInfo((5, 3, 2)), LENGTHS) == []
    assert ReverseSequence(1, 0).violations(TensorInfo((5, 3)), LENGTHS) == [
        "lengths has 3 elements; expected 5, one for each sample"
    ]
    assert ReverseSequence(1, -2).violations(TensorInfo((None, 3)), LENGTHS) == []


def test_samples_and_steps_are_two_axes():
    assert ReverseSequence(1, -1).violations(TensorInfo((3, 3)), LENGTHS) == [
        "time_axis, batch_axis is (1, -1), which names an axis twice"
    ]


def test_scales_that_lie_along_the_steps_cannot_be_turned_round():
    info = TensorInfo((2, 3), DataType.INT8, Quantization([0.1, 0.2], axis=0))
    assert ReverseSequence().violations(info, LENGTHS) == [
        "the input is quantized along axis 0, which the operator would turn; dequantize it first"
    ]


@pytest.mark.parametrize(
    ("start", "limit", "delta", "length"),
    [(0, 10, 3, 4), (10, 0, -3, 4), (0, 9, 3, 3), (5, 5, 1, 0), (5, 0, 1, 0), (0, 2**62, 2**60, 4)],
)
def test_a_range_of_known_numbers_has_a_known_length(start, limit, delta, length):
    [info] = Range().infer_infos(number(start), number(limit), number(delta))
    assert tuple(info.shape) == (length,)
    assert len(range(start, limit, delta)) == length


def test_a_range_of_parts_stops_before_its_limit():
    [info] = Range().infer_infos(*(number(x, np.float32) for x in (0, 1, 0.25)))
    assert tuple(info.shape) == (4,)
    [info] = Range().infer_infos(*(number(x, np.float32) for x in (0, np.inf, 1)))
    assert tuple(info.shape) == (0,)


def test_a_range_of_numbers_to_come_has_a_length_to_come():
    [info] = Range().infer_infos(number(0), TensorInfo((), DataType.INT64), number(1))
    assert tuple(info.shape) == (UNKNOWN,)


def test_a_range_takes_three_numbers_and_has_to_lead_somewhere():
    assert Range().violations(number(0), TensorInfo((2,), DataType.INT64), number(0)) == [
        "limit has shape [2]; expected one element",
        "delta is 0; expected another number",
    ]
