import pytest

from interposer.core.types import DataLayout, TensorInfo, TensorShape
from interposer.ops import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW


def shape_of(op, info):
    assert op.violations(info) == []
    return op.infer_infos(info)[0].shape


def test_depth_becomes_space_in_both_layouts():
    assert shape_of(DepthToSpace(2), TensorInfo((1, 3, "w", 8))) == TensorShape((1, 6, None, 2))
    assert shape_of(DepthToSpace(2, NCHW), TensorInfo((1, 8, 3, 5))) == (1, 2, 6, 10)


def test_depth_to_space_names_the_channels_that_do_not_divide():
    [problem] = DepthToSpace(block_size=2).violations(TensorInfo((1, 4, 4, 6)))
    assert problem == "input has 6 channels; expected a multiple of block_size**2 = 4"


def test_space_becomes_depth_in_both_layouts():
    assert shape_of(SpaceToDepth(2), TensorInfo((1, 6, 10, 2))) == (1, 3, 5, 8)
    assert shape_of(SpaceToDepth(2, NCHW), TensorInfo((1, 2, 6, 10))) == (1, 8, 3, 5)
    assert SpaceToDepth(4).violations(TensorInfo((1, 6, 8, 2))) == [
        "the height is 6; expected a multiple of block_size = 4"
    ]


@pytest.mark.parametrize(
    ("op", "shape", "expected"),
    [
        (SpaceToBatchNd((2, 3), ((1, 1), (0, 1)), NHWC), (2, 4, 5, 3), (12, 3, 2, 3)),
        (SpaceToBatchNd((2, 3), ((1, 1), (0, 1)), NCHW), (2, 3, 4, 5), (12, 3, 3, 2)),
        (SpaceToBatchNd((2,), ((0, 0),), NHWC), (2, 4, 3), (4, 2, 3)),
        (SpaceToBatchNd((1, 1), data_layout=NHWC), ("n", 4, 5, 3), (None, 4, 5, 3)),
    ],
)
def test_blocks_of_space_go_into_the_batch_and_back(op, shape, expected):
    assert shape_of(op, TensorInfo(shape)) == TensorShape(expected)
    back = BatchToSpaceNd(op.block_shape, op.pad_list, op.data_layout)
    assert shape_of(back, TensorInfo(expected))[1:] == shape[1:]


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (
            SpaceToBatchNd((2, 2), data_layout=NHWC),
            "axis 1 has size 5 after padding; expected a multiple of the block size 2",
        ),
        (SpaceToBatchNd((1, 1), ((0, 0),), NHWC), "pad_list is ((0, 0),); expected 2 pairs of 0 or more"),
        (BatchToSpaceNd((1, 2), data_layout=NHWC), "the batch is 3; expected a multiple of the block's 2 elements"),
        (
            BatchToSpaceNd((1, 1), ((3, 3), (0, 0)), NHWC),
            "the crops (3, 3) remove all elements of axis 1, which has size 5",
        ),
        (BatchToSpaceNd((1, 1), ((0, -1), (0, 0)), NHWC), "crops is ((0, -1), (0, 0)); expected 2 pairs of 0 or more"),
        (
            SpaceToBatchNd((1,) * 4, ((0, 0),) * 4, NHWC),
            "the input has rank 4, which is too small for the 4 axes of the block (1, 1, 1, 1)",
        ),
    ],
)
def test_blocks_that_do_not_fit_are_refused(op, text):
    assert op.violations(TensorInfo((3, 5, 4, 2))) == [text]


def test_a_shuffle_needs_equal_groups():
    assert shape_of(ChannelShuffle(3, -1), TensorInfo((2, 6))) == (2, 6)
    assert ChannelShuffle(4, 1).violations(TensorInfo((2, 6))) == [
        "axis 1 has size 6, which num_groups = 4 does not divide"
    ]
