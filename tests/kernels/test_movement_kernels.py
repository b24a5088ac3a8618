"""The kernels that only move elements, for elements of every type."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError, InvalidValueError
from interposer.core.types import ANY_TYPE, DataLayout, DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import (
    BatchToSpaceNd,
    BroadcastTo,
    ChannelShuffle,
    Concat,
    DepthToSpace,
    DepthToSpaceMode,
    Fill,
    Gather,
    GatherNd,
    Pad,
    PaddingMode,
    Permute,
    Rank,
    Reshape,
    Resize,
    ResizeMethod,
    ReverseV2,
    Shape,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW


def run(op, *arrays, quantized=None, output=None):
    """The operator's results on arrays, which may be quantized, one quantization for each."""
    infos = [TensorInfo.of(x, q) for x, q in zip(arrays, quantized or [None] * len(arrays), strict=True)]
    assert op.violations(*infos) == []
    outputs = [info.with_quantization(output or info.quantization) for info in op.infer_infos(*infos)]
    return evaluate(op, arrays, infos, outputs)


def elements(dtype, shape=(2, 4, 4, 4)):
    """Small numbers of a type, or texts."""
    numbers = np.arange(np.prod(shape)).reshape(shape) % 7
    return numbers.astype(str).astype(object) if dtype is DataType.STRING else numbers.astype(dtype.numpy)


MOVES = [
    (Reshape((-1, 8)), lambda x: x.reshape(-1, 8)),
    (Transpose((3, 1, 0, 2)), lambda x: x.transpose(3, 1, 0, 2)),
    (Permute((3, 1, 0, 2)), lambda x: x.transpose(2, 1, 3, 0)),
    (BroadcastTo((3, 2, 4, 4, 4)), lambda x: np.broadcast_to(x, (3, 2, 4, 4, 4))),
    (Slice((0, 1, 0, 2), (1, 2, -1, -1)), lambda x: x[:1, 1:3, :, 2:]),
    (StridedSlice((1, 1), (0, 0), (1, 1), ellipsis_mask=2, shrink_axis_mask=1), lambda x: x[1]),
    (StridedSlice((1, -1), (2, 0), (1, -2), begin_mask=1), lambda x: x[:2, -1:0:-2]),
    (Tile((1, 2, 1, 3)), lambda x: np.tile(x, (1, 2, 1, 3))),
    (ReverseV2((-1, 0)), lambda x: x[::-1, :, :, ::-1]),
    (ChannelShuffle(2, 1), lambda x: x[:, [0, 2, 1, 3]]),
    (Resize(8, 4), lambda x: x.repeat(2, axis=3)),
    (Stack(1), lambda x: x[:, None]),
    (Concat(-1), lambda x: x),
    (Pad(((0, 0), (1, 2), (0, 0), (0, 1)), padding_mode=PaddingMode.EDGE), None),
    (SpaceToDepth(2), None),
    (DepthToSpace(2), None),
    (SpaceToBatchNd((2, 2)), None),
    (BatchToSpaceNd((2, 1)), None),
]


@pytest.mark.parametrize("dtype", sorted(ANY_TYPE - {DataType.STRING}, key=str), ids=str)
def test_elements_of_every_type_are_moved_as_numbers_are(dtype):
    x = elements(dtype)
    places = np.arange(x.size).reshape(x.shape)
    for op, _ in MOVES:
        [moved], [where] = run(op, x), run(op, places)
        assert moved.dtype == x.dtype
        np.testing.assert_array_equal(
            moved.astype(np.float64), x.reshape(-1)[where].astype(np.float64), err_msg=repr(op)
        )


@pytest.mark.parametrize(("op", "expected"), [pytest.param(*pair, id=repr(pair[0])[:40]) for pair in MOVES if pair[1]])
def test_elements_are_moved_as_numpy_says(op, expected):
    x = np.arange(128).reshape(2, 4, 4, 4)
    np.testing.assert_array_equal(run(op, x)[0], expected(x))


def test_texts_are_moved_too():
    x = elements(DataType.STRING)
    assert run(Transpose((1, 0, 2, 3)), x)[0].tolist() == x.transpose(1, 0, 2, 3).tolist()
    assert run(Concat(0), x, x)[0].tolist() == np.concatenate([x, x]).tolist()
    assert run(Gather(1), x, np.array([3, 0]))[0].tolist() == x[:, [3, 0]].tolist()


def test_pieces_of_a_tensor_make_it_whole_again():
    x = np.arange(24).reshape(2, 12)
    pieces = run(Splitter(1, (5, 0, 7)), x)
    assert [piece.shape for piece in pieces] == [(2, 5), (2, 0), (2, 7)]
    np.testing.assert_array_equal(run(Concat(1), *pieces)[0], x)


@pytest.mark.parametrize("layout", [NHWC, NCHW])
@pytest.mark.parametrize("shape", [(2, 4, 6, 12), (1, 2, 2, 4)])
def test_folding_and_unfolding_cancel_out(layout, shape):
    x = np.arange(np.prod(shape)).reshape(shape)
    x = x if layout is NHWC else x.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(run(DepthToSpace(2, layout), run(SpaceToDepth(2, layout), x)[0])[0], x)
    there = run(SpaceToBatchNd((2, 2), ((1, 1), (0, 2)), layout), x)[0]
    np.testing.assert_array_equal(run(BatchToSpaceNd((2, 2), ((1, 1), (0, 2)), layout), there)[0], x)


def test_depth_to_space_counts_channels_in_either_way():
    x = np.arange(8).reshape(1, 1, 1, 8)
    assert run(DepthToSpace(2), x)[0].tolist() == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    assert run(DepthToSpace(2, mode=DepthToSpaceMode.CRD), x)[0].tolist() == [[[[0, 4], [1, 5]], [[2, 6], [3, 7]]]]


def test_blocks_of_one_axis_and_of_an_empty_batch_are_folded():
    x = np.arange(12).reshape(1, 4, 3)
    assert run(SpaceToBatchNd((2,), ((0, 0),), NHWC), x)[0].tolist() == [x[0, ::2].tolist(), x[0, 1::2].tolist()]
    assert run(BatchToSpaceNd((2, 2), data_layout=NHWC), np.zeros((0, 2, 2, 1)))[0].shape == (0, 4, 4, 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_a_border_of_a_quantized_tensor_stands_for_its_value(dtype):
    x, q = np.array([5], dtype), Quantization(0.5, 3)
    assert run(Pad(((1, 1),)), x, quantized=[q])[0].tolist() == [3, 5, 3]
    assert run(Pad(((1, 0),), pad_value=2.0), x, quantized=[q])[0].tolist() == [7, 5]
    assert run(Pad(((1, 0),), pad_value=1e9), x, quantized=[q])[0].tolist() == [np.iinfo(dtype).max, 5]
    assert run(SpaceToBatchNd((2,), ((1, 0),), NHWC), x.reshape(1, 1, 1), quantized=[q])[0].ravel().tolist() == [3, 5]


def test_a_border_with_a_scale_for_each_channel_has_a_code_for_each():
    x, q = np.array([[1, 2]], np.int8), Quantization([0.5, 0.25], axis=1)
    assert run(Pad(((1, 0), (0, 0)), pad_value=1.0), x, quantized=[q])[0].tolist() == [[2, 4], [1, 2]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (PaddingMode.CONSTANT, [0, 0, 1, 2, 3, 0]),
        (PaddingMode.REFLECT, [3, 2, 1, 2, 3, 2]),
        (PaddingMode.SYMMETRIC, [2, 1, 1, 2, 3, 3]),
        (PaddingMode.EDGE, [1, 1, 1, 2, 3, 3]),
        (PaddingMode.WRAP, [2, 3, 1, 2, 3, 1]),
    ],
)
def test_every_kind_of_border(mode, expected):
    assert run(Pad(((2, 1),), padding_mode=mode), np.array([1, 2, 3]))[0].tolist() == expected


def test_joined_tensors_are_brought_to_one_quantization():
    a, b = np.array([10, 250], np.uint8), np.array([0, 4], np.uint8)
    scales = [Quantization(0.5, 0), Quantization(1.0, 2)]
    [result] = run(Concat(0), a, b, quantized=scales, output=Quantization(1.0, 10))
    assert result.tolist() == [15, 135, 8, 12]  # 5, 125, -2 and 2 are meant
    [same] = run(Stack(0), a, b, quantized=[scales[0]] * 2)
    assert same.tolist() == [[10, 250], [0, 4]]


def test_shape_rank_and_fill():
    x = np.zeros((3, 0, 2))
    assert run(Shape(DataType.INT64), x)[0].tolist() == [3, 0, 2]
    assert run(Rank(), x)[0].item() == 3
    filled = run(Fill(2.0, DataType.INT8), np.array([2, 2]), output=Quantization(0.5, 1))[0]
    assert filled.tolist() == [[5, 5], [5, 5]]
    assert run(Fill(1.5, DataType.BFLOAT16), np.array([], np.int32))[0].dtype == DataType.BFLOAT16.numpy


def test_gathering_with_batches_goes_row_by_row():
    params, which = np.arange(12).reshape(2, 3, 2), np.array([[2, 0], [1, -1]])
    assert run(Gather(1, batch_dims=1), params, which)[0].tolist() == [[[4, 5], [0, 1]], [[8, 9], [10, 11]]]
    assert run(GatherNd(1), params, which)[0].tolist() == [4, 9]
    assert run(GatherNd(), params, np.zeros((2, 0), np.int32))[0].tolist() == [params.tolist()] * 2
    assert run(Gather(1, batch_dims=1), np.zeros((0, 3)), np.zeros((0, 2), int))[0].shape == (0, 2)


def test_an_index_outside_is_an_error_that_names_it():
    infos = [TensorInfo((2, 3)), TensorInfo((2,), "int32")]
    with pytest.raises(InvalidValueError, match=r"^indices has 3 at \[1\]; expected -3 to 2$"):
        evaluate(Gather(1), [np.zeros((2, 3), np.float32), np.array([0, 3], np.int32)], infos, [TensorInfo((2, 2))])


@given(st.data())
@settings(max_examples=60)
def test_gathering_agrees_with_numpy(data):
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    which = np.array(data.draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), max_size=4)), np.int64)
    params = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(run(Gather(axis), params, which)[0], params.take(which, axis))


@pytest.mark.parametrize("method", ResizeMethod)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8])
def test_a_resize_to_the_same_size_changes_nothing_in_either_layout(method, dtype):
    x = np.arange(24).reshape(1, 2, 3, 4).astype(dtype)
    for layout in (NCHW, NHWC):
        h, w, _ = layout.axes()
        op = Resize(x.shape[w], x.shape[h], method, layout, half_pixel_centers=True)
        np.testing.assert_array_equal(run(op, x)[0], x)


def test_a_bilinear_resize_of_few_pixels():
    x = np.array([[[[0, 10], [20, 30]]]], np.float32)
    result = run(Resize(4, 1, ResizeMethod.BILINEAR), x)[0]
    np.testing.assert_allclose(result, [[[[0, 5, 10, 10]]]])
    centered = run(Resize(4, 1, ResizeMethod.BILINEAR, half_pixel_centers=True), x)[0]
    np.testing.assert_allclose(centered, [[[[10, 12.5, 17.5, 20]]]])
    corners = run(Resize(3, 2, ResizeMethod.BILINEAR, align_corners=True), x)[0]
    np.testing.assert_allclose(corners, [[[[0, 5, 10], [20, 25, 30]]]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize(
    ("method", "expected"), [(ResizeMethod.NEAREST_NEIGHBOR, [5, 5, 9, 9]), (ResizeMethod.BILINEAR, [5, 7, 9, 9])]
)
def test_a_resize_to_another_scale_keeps_the_numbers(dtype, method, expected):
    x = np.array([[[[3, 11]]]], dtype)  # 0 and 4
    scales = {"quantized": [Quantization(0.5, 3)], "output": Quantization(1.0, 5)}
    [result] = run(Resize(4, 1, method), x, **scales)
    assert result.ravel().tolist() == expected


def test_texts_and_truths_have_no_weighted_mean():
    infos = [TensorInfo((1, 1, 2, 2), "bool")]
    with pytest.raises(InvalidArgumentError, match="^Resize: input is bool; BILINEAR takes floats and integers$"):
        evaluate(Resize(1, 1, ResizeMethod.BILINEAR), [np.zeros((1, 1, 2, 2), bool)], infos, [TensorInfo((1, 1, 1, 1))])
