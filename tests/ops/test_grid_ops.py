import pytest

from interposer.core.types import DataType, Dim, Quantization, TensorInfo
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode


def test_the_result_has_the_channels_of_the_image_and_the_places_of_the_grid():
    [info] = GridSample().infer_infos(TensorInfo((None, 3, 8, 8)), TensorInfo((2, 5, "w", 2)))
    assert tuple(info.shape) == (2, 3, 5, Dim("w"))
    [info] = AffineGrid((4, 5, 6)).infer_infos(TensorInfo(("n", 3, 4)))
    assert tuple(info.shape) == (Dim("n"), 4, 5, 6, 3)


@pytest.mark.parametrize(
    ("op", "shapes", "fault"),
    [
        (
            GridSample(),
            [(1, 3, 8, 8), (1, 5, 5, 3)],
            "grid has shape [1, 5, 5, 3]; expected rank 4, and 2 coordinates as its last dimension",
        ),
        (
            GridSample(),
            [(1, 3, 8, 8), (2, 5, 5, 2)],
            "input has shape [1, 3, 8, 8] and grid [2, 5, 5, 2]; expected the same batch size",
        ),
        (
            GridSample(padding_mode=GridPadding.BORDER),
            [(1, 3, 0, 8), (1, 5, 5, 2)],
            "the images of shape [1, 3, 0, 8] have no pixels",
        ),
        (AffineGrid((2, 2)), [(1, 3, 4)], "theta has shape [1, 3, 4]; expected matrices of 2 rows and 3 columns"),
        (AffineGrid((2,)), [(1, 2, 3)], "extents is (2,); expected two or three"),
    ],
)
def test_a_fault_says_what_was_expected(op, shapes, fault):
    assert op.violations(*(TensorInfo(shape) for shape in shapes)) == [fault]


def test_scales_along_an_image_cannot_be_sampled():
    image = TensorInfo((1, 1, 2, 2), DataType.INT8, Quantization([0.1, 0.2], axis=2))
    assert GridSample().violations(image, TensorInfo((1, 1, 1, 2))) == [
        "the input is quantized along axis 2, which the operator would sample; dequantize it first"
    ]


@pytest.mark.parametrize(("mode", "cells"), list(zip(GridSampleMode, (4, 1, 16), strict=True)))
def test_the_cost_grows_with_the_pixels_that_are_mixed(mode, cells):
    op = GridSample(mode)
    inputs = [TensorInfo((1, 3, 8, 8)), TensorInfo((1, 5, 5, 2))]
    assert op.operations(inputs, op.infer_infos(*inputs)) == 2 * 75 * cells
