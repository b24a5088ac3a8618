import numpy as np
import pytest

from interposer.core.types import Quantization, TensorInfo, TensorShape
from interposer.ops import Gather, GatherNd


def shape_of(op, *infos):
    assert op.violations(*infos) == []
    return op.infer_infos(*infos)[0].shape


def indices(*shape):
    return TensorInfo(shape, "int32")


def test_the_picked_axis_becomes_the_axes_of_the_indices():
    assert shape_of(Gather(1), TensorInfo((2, 3, 4)), indices(5, 6)) == (2, 5, 6, 4)
    assert shape_of(Gather(-1), TensorInfo((2, 3)), indices()) == (2,)
    assert shape_of(Gather(0), TensorInfo((10, "d")), indices("n", 7)) == TensorShape(("n", 7, "d"))
    assert shape_of(Gather(2, batch_dims=1), TensorInfo((2, 3, 4)), indices(2, 7)) == (2, 3, 7)


def test_tuples_of_indices_are_the_last_axis():
    assert shape_of(GatherNd(), TensorInfo((2, 3, 4)), indices(5, 2)) == (5, 4)
    assert shape_of(GatherNd(1), TensorInfo((2, 3, 4)), indices(2, 1)) == (2, 4)
    assert shape_of(GatherNd(), TensorInfo((2, 3)), indices(4, 0)) == (4, 2, 3)


@pytest.mark.parametrize(
    ("op", "which", "text"),
    [
        (Gather(3), indices(1), "axis is 3, but the input has rank 3; expected -3 to 2"),
        (Gather(1, batch_dims=2), indices(2, 3), "batch_dims is 2; these axis and ranks allow at most 1"),
        (
            Gather(1, batch_dims=1),
            indices(5, 3),
            "params has shape [2, 3, 4] and indices [5, 3]; their first 1 dimensions differ",
        ),
        (Gather(0), TensorInfo.of(np.array([0, 2])), "index 2 is out of range for an axis of size 2"),
        (Gather(0), TensorInfo.of(np.array([-3])), "index -3 is out of range for an axis of size 2"),
        (Gather(0), indices(*[1] * 15), "the result has rank 17; ranks 0 to 16 are supported"),
        (GatherNd(), indices(4, 4), "the last dimension of indices is 4; params has 3 axes for it"),
        (GatherNd(), indices(4, None), "the last dimension of indices is not known"),
        (GatherNd(), TensorInfo.of(np.array([[1, 3]])), "index 3 is out of range for an axis of size 3"),
    ],
)
def test_picking_what_is_not_there_is_refused(op, which, text):
    assert op.violations(TensorInfo((2, 3, 4)), which) == [text]


@pytest.mark.parametrize(("op", "which"), [(Gather(0), np.array([5])), (GatherNd(), np.array([[5, 0]]))])
def test_nothing_is_outside_of_an_axis_of_unknown_extent(op, which):
    assert op.violations(TensorInfo((None, 3, 4)), TensorInfo.of(which)) == []


def test_indices_are_integers():
    [problem] = Gather().violations(TensorInfo((2, 3)), TensorInfo((1,), "float32"))
    assert problem == "indices is float32; expected one of int32, int64"


def test_picked_elements_stand_for_what_they_stood_for():
    params = TensorInfo((2, 3), "uint8", Quantization(0.5, 3))
    assert Gather().infer_infos(params, indices(4))[0].quantization == Quantization(0.5, 3)
    per_axis = TensorInfo((2, 3), "int8", Quantization([1.0, 2.0], axis=0))
    assert Gather().violations(per_axis, indices(4)) == [
        "the input is quantized along axis 0, which the operator would pick from; dequantize it first"
    ]
