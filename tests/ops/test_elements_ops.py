import numpy as np
import pytest

from interposer.core.types import DataType, Dim, Quantization, TensorInfo
from interposer.ops.gather import GatherElements
from interposer.ops.scatter import DynamicUpdateSlice, ScatterElements, TensorScatter


def indices(*shape):
    return TensorInfo(shape, DataType.INT64)


def test_picked_elements_have_the_shape_of_their_indices():
    [info] = GatherElements(1).infer_infos(TensorInfo((4, 9), DataType.INT8), indices(3, "n"))
    assert (info.dtype, tuple(info.shape)) == (DataType.INT8, (3, Dim("n")))


@pytest.mark.parametrize(
    ("op", "infos", "problems"),
    [
        (
            GatherElements(),
            [TensorInfo((2, 3)), indices(2)],
            ["indices has rank 1; expected 2, the rank of params"],
        ),
        (
            GatherElements(1),
            [TensorInfo((2, 3)), indices(3, 1)],
            ["indices has shape [3, 1], which exceeds params [2, 3] along an axis other than 1"],
        ),
        (
            GatherElements(1),
            [TensorInfo((2, 3)), TensorInfo.of(np.array([[0, 3]]))],
            ["index 3 is out of range for an axis of size 3"],
        ),
        (
            ScatterElements(),
            [TensorInfo((2, 3)), indices(1, 3), TensorInfo((1, 2))],
            ["updates has shape [1, 2]; expected [1, 3], the shape of indices"],
        ),
        (
            ScatterElements(0),
            [TensorInfo((2, 3)), TensorInfo.of(np.array([[-3]])), TensorInfo((1, 1))],
            ["index -3 is out of range for an axis of size 2"],
        ),
        (
            ScatterElements(),
            [
                TensorInfo((2,), DataType.INT8, Quantization([0.1, 0.2], axis=0)),
                indices(1),
                TensorInfo((1,), DataType.INT8),
            ],
            ["the input is quantized along axis 0, which the operator would write to; dequantize it first"],
        ),
        (
            TensorScatter(0),
            [TensorInfo((2, 3))] * 2,
            ["axis is 0, the axis of the samples; expected the axis of the steps"],
        ),
        (
            TensorScatter(1),
            [TensorInfo((2, 3)), TensorInfo((2, 4)), indices(3)],
            [
                "updates has shape [2, 4]; expected [2, 3] but for fewer steps along axis 1",
                "start has 3 elements; expected 2, one for each sample",
            ],
        ),
        (
            TensorScatter(1),
            [TensorInfo((2, 3), DataType.INT8, Quantization(0.1)), TensorInfo((2, 1), DataType.INT8)],
            ["the update and the input have different quantizations; requantize one of them first"],
        ),
        (
            DynamicUpdateSlice(),
            [TensorInfo((2, 3)), TensorInfo((3, 1)), indices(3)],
            [
                "update has shape [3, 1], which does not fit into [2, 3]",
                "start has 3 elements; expected 2, the rank of input",
            ],
        ),
    ],
)
def test_a_fault_says_what_was_expected(op, infos, problems):
    assert op.violations(*infos) == problems


def test_nothing_is_said_of_extents_that_are_not_known():
    assert GatherElements().violations(TensorInfo((None, 3)), indices(9, None)) == []
    assert TensorScatter().violations(TensorInfo((2, None, 3)), TensorInfo((None, 4, 3))) == []
    assert DynamicUpdateSlice().violations(TensorInfo((None,)), TensorInfo((4,)), indices(1)) == []
