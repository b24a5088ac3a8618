import pytest

from interposer.core.types import DataType, Dim, TensorInfo
from interposer.ops.pooling import OutputShapeRounding
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling

CEILING = OutputShapeRounding.CEILING


@pytest.mark.parametrize(
    ("op", "shape", "expected"),
    [
        (LpPooling((2,)), (1, 2, 5), (1, 2, 4)),
        (LpPooling((2, 3), strides=(2, 1)), (1, 2, 5, 5), (1, 2, 2, 3)),
        (LpPooling((2, 3), strides=(2, 1), output_shape_rounding=CEILING), (1, 2, 5, 5), (1, 2, 3, 3)),
        (LpPooling((3,), pad_list=((1, 1),), dilations=(2,)), (1, 2, 7), (1, 2, 5)),
        (LpPooling((3,), strides=(2,)), ("n", 2, None), (Dim("n"), 2, Dim())),
    ],
)
def test_a_window_has_as_many_places_as_fit(op, shape, expected):
    [info] = op.infer_infos(TensorInfo(shape))
    assert tuple(info.shape) == expected


def test_every_maximum_has_a_place():
    values, places = MaxPoolingWithIndices((2, 2)).infer_infos(TensorInfo((1, 2, 3, 3), DataType.INT8))
    assert (values.dtype, places.dtype) == (DataType.INT8, DataType.INT64)
    assert tuple(values.shape) == tuple(places.shape) == (1, 2, 2, 2)


def test_an_image_is_as_large_as_it_is_asked_for():
    [info] = MaxUnpooling((4, 5)).infer_infos(TensorInfo((None, 2, 2, 2)), TensorInfo((1, 2, 2, 2), DataType.INT64))
    assert tuple(info.shape) == (Dim(), 2, 4, 5)
    [info] = Col2Im((2, 2), image_shape=(3, 4)).infer_infos(TensorInfo((1, "rows", 6)))
    assert tuple(info.shape) == (1, Dim(), 3, 4)


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (
            LpPooling((2,)),
            [TensorInfo((1, 2, 3, 3))],
            "window_shape is (2,); expected one for each of 2 spatial axes",
        ),
        (
            MaxPoolingWithIndices((2, 2), pad_list=((1, 1),)),
            [TensorInfo((1, 2, 3, 3))],
            "pad_list is ((1, 1),); expected one for each of 2 spatial axes",
        ),
        (
            LpPooling((4,)),
            [TensorInfo((1, 2, 3))],
            "the window spans 4 cells in axis 2, but the padded input has only 3",
        ),
        (
            MaxUnpooling((4,)),
            [TensorInfo((1, 2, 3)), TensorInfo((1, 2, 4), DataType.INT64)],
            "indices has shape [1, 2, 4]; expected [1, 2, 3], the shape of input",
        ),
        (
            MaxUnpooling((4, 4)),
            [TensorInfo((1, 2, 3)), TensorInfo((1, 2, 3), DataType.INT64)],
            "extents is (4, 4); expected one for each of 1 spatial axes",
        ),
        (Col2Im((2,)), [TensorInfo((1, 2, 3))], "window_shape is (2,); expected one for each of 0 spatial axes"),
        (
            Col2Im((2, 2), image_shape=(3, 3)),
            [TensorInfo((1, 6, 4))],
            "input has 6 rows; expected a multiple of the window's 4 cells",
        ),
        (
            Col2Im((2, 2), image_shape=(3, 3)),
            [TensorInfo((1, 4, 5))],
            "input has 5 columns; expected 4, one for each position of the window",
        ),
    ],
)
def test_a_fault_says_what_was_expected(op, infos, fault):
    assert op.violations(*infos)[0] == fault
