"""The forms that NNAPI's operators have, and what of them is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer.core.errors import ParseError
from interposer.frontends import nnapi
from tests.frontends.nnapi.models import compute, counting, ints, omitted, one_operation, quant8, scalar, tensor

NHWC, NCHW = scalar(False), scalar(True)
SAME, VALID = scalar(1), scalar(2)
NO_ACTIVATION = scalar(0)


def refusal(name: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> str:
    with pytest.raises(ParseError) as error:
        nnapi.build(one_operation(name, inputs, outputs))
    assert error.value.where == f"operations[0] {name}"
    return error.value.message


OPERATORS = """
    ABS ADD ARGMAX ARGMIN AVERAGE_POOL_2D AXIS_ALIGNED_BBOX_TRANSFORM BATCH_MATMUL BATCH_TO_SPACE_ND
    BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN BOX_WITH_NMS_LIMIT CAST CHANNEL_SHUFFLE CONCATENATION
    CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DETECTION_POSTPROCESSING DIV ELU EMBEDDING_LOOKUP EQUAL
    EXP EXPAND_DIMS FILL FLOOR FULLY_CONNECTED GATHER GENERATE_PROPOSALS GREATER GREATER_EQUAL GROUPED_CONV_2D
    HARD_SWISH HASHTABLE_LOOKUP HEATMAP_MAX_KEYPOINT IF INSTANCE_NORMALIZATION L2_NORMALIZATION L2_POOL_2D LESS
    LESS_EQUAL LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX
    LSH_PROJECTION LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PAD_V2 POW PRELU
    QUANTIZE QUANTIZED_16BIT_LSTM QUANTIZED_LSTM RANDOM_MULTINOMIAL RANK REDUCE_ALL REDUCE_ANY REDUCE_MAX
    REDUCE_MIN REDUCE_PROD REDUCE_SUM RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE
    RNN ROI_ALIGN ROI_POOLING RSQRT SELECT SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SQRT SQUEEZE
    STRIDED_SLICE SUB SVDF TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV_2D UNIDIRECTIONAL_SEQUENCE_LSTM
    UNIDIRECTIONAL_SEQUENCE_RNN WHILE
"""


def test_all_operators_are_known():
    assert nnapi.operators() == OPERATORS.split()


# --- elementwise ------------------------------------------------------------------------------------------------------


def test_activations_are_fused_behind_arithmetic():
    document = one_operation("SUB", [tensor([3]), tensor([3]), scalar(3)], [tensor([3])])
    [result] = compute(document, [1, 5, 9], [2, 1, 1])
    np.testing.assert_array_equal(result, [0, 4, 6])


def test_quotients_of_integers_are_rounded_down():
    whole = tensor([3], "TENSOR_INT32")
    [result] = compute(one_operation("DIV", [whole, whole, NO_ACTIVATION], [whole]), [5, -5, 6], [2, 2, 3])
    np.testing.assert_array_equal(result, [2, -3, 2])


def test_select_takes_one_shape_for_all():
    said = refusal("SELECT", [tensor([2], "TENSOR_BOOL8"), tensor([2, 2]), tensor([2, 2])], [tensor([2, 2])])
    assert said == "input 1 has shape [2, 2]; expected that of input 0, [2]"


def test_casting_to_8_bits_clamps():
    document = one_operation("CAST", [tensor([3], "TENSOR_INT32")], [quant8([3], 1.0, 0)])
    [result] = compute(document, [-1, 100, 300])
    np.testing.assert_array_equal(result, [0, 100, 255])


# --- windows ----------------------------------------------------------------------------------------------------------


def convolved(parameters: list[dict[str, Any]], shape: list[int], output: list[int]) -> np.ndarray:
    """A 3x3 image of 0 to 8, or of shape, with a 2x2 filter of ones."""
    filters, bias = tensor([1, 2, 2, 1], value=np.ones(4)), tensor([1], value=[0.0])
    [result] = compute(
        one_operation("CONV_2D", [tensor(shape), filters, bias, *parameters], [tensor(output)]), counting(9)
    )
    return result


EXPLICIT = [scalar(0), scalar(1), scalar(0), scalar(1), scalar(2), scalar(2), NO_ACTIVATION]
IMPLICIT = [SAME, scalar(2), scalar(2), NO_ACTIVATION]
SUMS = np.float32([[8, 7], [13, 8]])


@pytest.mark.parametrize("behind", [[], [NHWC], [NHWC, scalar(1), scalar(1)]])
@pytest.mark.parametrize("padding", [EXPLICIT, IMPLICIT])
def test_a_convolution_has_two_forms_of_padding_with_and_without_layout_and_dilation(padding, behind):
    np.testing.assert_array_equal(convolved([*padding, *behind], [1, 3, 3, 1], [1, 2, 2, 1])[0, :, :, 0], SUMS)


@pytest.mark.parametrize("parameters", [[*EXPLICIT, NCHW], [*IMPLICIT, NCHW]])
def test_an_image_with_channels_first_meets_the_same_filter(parameters):
    np.testing.assert_array_equal(convolved(parameters, [1, 1, 3, 3], [1, 1, 2, 2])[0, 0], SUMS)


def test_the_dilation_along_the_width_comes_first():
    result = convolved(
        [VALID, scalar(1), scalar(1), NO_ACTIVATION, NHWC, scalar(2), scalar(1)], [1, 3, 3, 1], [1, 2, 1, 1]
    )
    np.testing.assert_array_equal(result.ravel(), [0 + 2 + 3 + 5, 3 + 5 + 6 + 8])


def test_filters_that_are_inputs_are_turned_for_channels_first():
    inputs = [tensor([1, 2, 2, 2]), tensor([1, 2, 2, 2]), tensor([1]), *IMPLICIT, NCHW]
    image, filters = counting(1, 2, 2, 2), counting(1, 2, 2, 2)
    [result] = compute(one_operation("CONV_2D", inputs, [tensor([1, 1, 1, 1])]), image, filters, [0])
    assert result.item() == (image * filters.transpose(0, 3, 1, 2)).sum()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ([scalar(3), scalar(1), scalar(1), NO_ACTIVATION],
         "the padding scheme (input 3) is 3; expected 1 (SAME) or 2 (VALID)"),
        ([SAME, scalar(0), scalar(1), NO_ACTIVATION], "the stride (input 4) is 0; expected at least 1"),
        ([scalar(-1), *EXPLICIT[1:]], "the padding (input 3) is -1; expected 0 or more"),
        ([*EXPLICIT, scalar(0)], "the layout (input 10) is INT32; expected a truth value"),
    ],
)  # fmt: skip
def test_parameters_of_windows_are_checked(parameters, said):
    inputs = [tensor([1, 3, 3, 1]), tensor([1, 2, 2, 1]), tensor([1]), *parameters]
    assert refusal("CONV_2D", inputs, [tensor([1, 2, 2, 1])]) == said


def test_the_filter_of_a_depthwise_convolution_must_begin_with_1():
    inputs = [
        tensor([1, 3, 3, 2]),
        tensor([2, 2, 2, 4]),
        tensor([4]),
        VALID,
        scalar(1),
        scalar(1),
        scalar(2),
        scalar(0),
    ]
    said = refusal("DEPTHWISE_CONV_2D", inputs, [tensor([1, 2, 2, 4])])
    assert said == "weights have shape [2, 2, 2, 4]; expected [1, height, width, channels * multiplier]"


def test_the_depth_multiplier_must_agree_with_the_filter():
    inputs = [
        tensor([1, 3, 3, 2]),
        tensor([1, 2, 2, 4]),
        tensor([4]),
        VALID,
        scalar(1),
        scalar(1),
        scalar(3),
        scalar(0),
    ]
    said = refusal("DEPTHWISE_CONV_2D", inputs, [tensor([1, 2, 2, 4])])
    assert said == "the filter has shape [1, 2, 2, 4]; expected 2 x 3 channels, as the multiplier says"


def test_groups_divide_the_channels():
    ones = tensor([2, 1, 1, 1], value=[1.0, 10.0])
    inputs = [tensor([1, 1, 1, 2]), ones, tensor([2], value=[0.0, 0.0]), VALID, scalar(1), scalar(1), scalar(2),
              NO_ACTIVATION, NHWC]  # fmt: skip
    [result] = compute(one_operation("GROUPED_CONV_2D", inputs, [tensor([1, 1, 1, 2])]), [3, 4])
    np.testing.assert_array_equal(result.ravel(), [3, 40])


@pytest.mark.parametrize("batch", [1, 0])
def test_a_transpose_convolution_fills_the_shape_that_it_is_given(batch):
    filters, bias = tensor([1, 3, 3, 1], value=[9, 5, 6, 9, 8, 5, 3, 1, 4]), tensor([1], value=[-1.0])
    parameters = [ints(batch, 3, 4, 1), SAME, scalar(3), scalar(3), scalar(1), NHWC]
    inputs = [tensor([batch, 1, 2, 1]), filters, bias, *parameters]
    document = one_operation("TRANSPOSE_CONV_2D", inputs, [tensor([batch, 3, 4, 1])])
    if not batch:
        assert str(nnapi.build(document).outputs[0].values[0].known) == "float32[?, 3, 4, 1]"
        return
    [result] = compute(document, [3, 5])
    np.testing.assert_array_equal(result[0, :, :, 0], [[14, 17, 44, 24], [23, 14, 44, 39], [2, 11, 14, 4]])


@pytest.mark.parametrize("parameters", [
    [scalar(0), scalar(1), scalar(0), scalar(1), scalar(2), scalar(2), scalar(2), scalar(2), NO_ACTIVATION],
    [SAME, scalar(2), scalar(2), scalar(2), scalar(2), NO_ACTIVATION, NHWC],
])  # fmt: skip
def test_padding_does_not_count_in_means(parameters):
    document = one_operation("AVERAGE_POOL_2D", [tensor([1, 3, 3, 1]), *parameters], [tensor([1, 2, 2, 1])])
    [result] = compute(document, counting(9))
    np.testing.assert_array_equal(result[0, :, :, 0], [[2, 3.5], [6.5, 8]])


def test_the_window_of_pooling_has_an_extent():
    inputs = [tensor([1, 3, 3, 1]), SAME, scalar(1), scalar(1), scalar(0), scalar(1), NO_ACTIVATION]
    assert refusal("MAX_POOL_2D", inputs, [tensor([1, 3, 3, 1])]) == (
        "the dimension of the window (input 4) is 0; expected at least 1"
    )


@pytest.mark.parametrize("size", [(scalar(4), scalar(2)), (scalar(2.0), scalar(1.1))])
def test_an_image_is_resized_to_a_size_or_by_factors_of_which_the_width_comes_first(size):
    document = one_operation("RESIZE_NEAREST_NEIGHBOR", [tensor([1, 2, 2, 1]), *size], [tensor([1, 2, 4, 1])])
    [result] = compute(document, counting(4))
    np.testing.assert_array_equal(result[0, :, :, 0], [[0, 0, 1, 1], [2, 2, 3, 3]])


def test_an_image_is_resized_with_aligned_corners():
    inputs = [tensor([1, 1, 1, 2]), scalar(3), scalar(1), NCHW, scalar(True), scalar(False)]
    [result] = compute(one_operation("RESIZE_BILINEAR", inputs, [tensor([1, 1, 1, 3])]), [0, 4])
    np.testing.assert_array_equal(result.ravel(), [0, 2, 4])


def test_a_factor_is_positive():
    inputs = [tensor([1, 2, 2, 1]), scalar(2.0), scalar(-1.0)]
    said = refusal("RESIZE_BILINEAR", inputs, [tensor([1, 2, 2, 1])])
    assert said == "the factor (input 2) is -1.0; expected a positive number"


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_a_reduction_of_all_axes_leaves_an_axis():
    document = one_operation("REDUCE_SUM", [tensor([2, 3]), ints(0, -1, 0), scalar(False)], [tensor([1])])
    np.testing.assert_array_equal(compute(document, counting(6)), [[15]])


def test_a_mean_says_with_a_number_whether_it_keeps_axes():
    document = one_operation("MEAN", [tensor([2, 3]), ints(1), scalar(1)], [tensor([2, 1])])
    np.testing.assert_array_equal(compute(document, counting(6)), [[[1], [4]]])


def test_a_reduction_needs_axes():
    said = refusal("REDUCE_MAX", [tensor([2, 3]), ints(), scalar(False)], [tensor([2, 3])])
    assert said == "there are no axes (input 1)"


def test_the_place_of_the_greatest_in_a_row_is_a_row():
    document = one_operation("ARGMAX", [tensor([3]), scalar(-1)], [tensor([1], "TENSOR_INT32")])
    np.testing.assert_array_equal(compute(document, [1, 7, 2]), [[1]])


def test_a_shape_that_is_an_input_is_that_of_the_output():
    document = one_operation("RESHAPE", [tensor([2, 3]), tensor([1], "TENSOR_INT32")], [tensor([6])])
    np.testing.assert_array_equal(compute(document, counting(6), [-1]), [counting(6)])


def test_a_shape_that_nobody_knows_is_refused():
    said = refusal("RESHAPE", [tensor([2, 3]), tensor([1], "TENSOR_INT32")], [tensor([0])])
    assert said == "the shape (input 1) is computed while running; only constants are supported"


@pytest.mark.parametrize(("axes", "shape"), [(omitted("TENSOR_INT32"), [2]), (ints(2), [1, 2]), (ints(-1, 0), [2])])
def test_axes_are_squeezed_out(axes, shape):
    document = one_operation("SQUEEZE", [tensor([1, 2, 1]), axes], [tensor(shape)])
    assert compute(document, [1, 2])[0].shape == tuple(shape)


def test_an_axis_of_more_than_1_is_not_squeezed_out():
    said = refusal("SQUEEZE", [tensor([1, 2]), ints(1)], [tensor([1])])
    assert said == "axis 1 of shape [1, 2] cannot be dropped"


def test_an_axis_is_inserted_from_behind():
    document = one_operation("EXPAND_DIMS", [tensor([2]), scalar(-1)], [tensor([2, 1])])
    assert compute(document, [1, 2])[0].shape == (2, 1)


@pytest.mark.parametrize(("value", "type"), [(scalar(7), "TENSOR_INT32"), (scalar(7.0), "TENSOR_FLOAT32")])
def test_a_tensor_is_filled(value, type):
    document = one_operation("FILL", [ints(2, 1), value], [tensor([2, 1], type)])
    np.testing.assert_array_equal(compute(document), [[[7], [7]]])


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "size", "arrays"),
    [
        (ints(1, 0), ints(1, 2), []),
        (ints(1, 0), ints(-1, 2), []),
        (ints(1, 0), tensor([2], "TENSOR_INT32"), [[1, 2]]),
        (tensor([2], "TENSOR_INT32"), ints(1, 2), [[1, 0]]),
        (tensor([2], "TENSOR_INT32"), tensor([2], "TENSOR_INT32"), [[1, 0], [1, 2]]),
    ],
)
def test_begin_and_size_of_a_slice_may_be_inputs(begin, size, arrays):
    document = one_operation("SLICE", [tensor([2, 3]), begin, size], [tensor([1, 2])])
    np.testing.assert_array_equal(compute(document, counting(6), *arrays), [[[3, 4]]])


def test_the_size_of_a_slice_must_be_told_somewhere():
    index = tensor([2], "TENSOR_INT32")
    said = refusal("SLICE", [tensor([2, 3]), index, index], [tensor([0, 2])])
    assert said == "the size (input 2) is computed while running; only constants are supported"


def test_multiples_that_are_inputs_are_those_of_the_shapes():
    document = one_operation("TILE", [tensor([1, 2]), tensor([2], "TENSOR_INT32")], [tensor([2, 2])])
    np.testing.assert_array_equal(compute(document, [1, 2], [2, 1]), [[[1, 2], [1, 2]]])
    said = refusal("TILE", [tensor([2]), tensor([1], "TENSOR_INT32")], [tensor([3])])
    assert said == "an input of shape [2] cannot be repeated to shape [3]"


def test_axes_are_turned_round_where_no_order_is_given():
    document = one_operation("TRANSPOSE", [tensor([2, 3, 1])], [tensor([1, 3, 2])])
    np.testing.assert_array_equal(compute(document, counting(6)), [counting(2, 3, 1).T])


def test_the_axis_of_joining_comes_last_and_may_count_from_behind():
    document = one_operation("CONCATENATION", [tensor([2, 1]), tensor([2, 1]), scalar(-1)], [tensor([2, 2])])
    np.testing.assert_array_equal(compute(document, [1, 2], [3, 4]), [[[1, 3], [2, 4]]])


def test_the_axis_of_packing_comes_first():
    document = one_operation("PACK", [scalar(1), tensor([2]), tensor([2])], [tensor([2, 2])])
    np.testing.assert_array_equal(compute(document, [1, 2], [3, 4]), [[[1, 3], [2, 4]]])


def test_an_axis_that_cannot_be_cut_equally_is_refused():
    said = refusal("SPLIT", [tensor([5]), scalar(0), scalar(2)], [tensor([2]), tensor([2])])
    assert said == "an axis of size 5 cannot be cut into 2 equal pieces"


def test_pieces_are_as_many_as_outputs():
    for size, count in ((6, 3), (0, 2**31 - 1)):  # a size of 0 is unknown
        said = refusal("SPLIT", [tensor([size]), scalar(0), scalar(count)], [tensor([2]), tensor([2])])
        assert said == f"it has 2 outputs; expected {count}"


def test_a_slice_with_steps_has_the_shape_that_the_document_says():
    inputs = [tensor([2, 3]), ints(0, 0), ints(1, 3), ints(1, 1), scalar(0), scalar(0), scalar(1)]
    np.testing.assert_array_equal(
        compute(one_operation("STRIDED_SLICE", inputs, [tensor([3])]), counting(6)), [[0, 1, 2]]
    )
    said = refusal("STRIDED_SLICE", inputs, [tensor([1, 3])])
    assert said == "its output 0 has shape [1, 3] in the document, but it gives [3]"


def test_a_border_of_stored_integers_is_given_as_one():
    x = quant8([2], 0.5, 3)
    [result] = compute(
        one_operation("PAD_V2", [x, tensor([1, 2], "TENSOR_INT32", [1, 1]), scalar(9)], [quant8([4], 0.5, 3)]), [1, 2]
    )
    np.testing.assert_array_equal(result, [9, 1, 2, 9])


def test_a_border_of_zeros_is_one_of_zero_points():
    x = quant8([2], 0.5, 3)
    [result] = compute(one_operation("PAD", [x, tensor([1, 2], "TENSOR_INT32", [0, 2])], [quant8([4], 0.5, 3)]), [1, 2])
    np.testing.assert_array_equal(result, [1, 2, 3, 3])


def test_a_border_is_mirrored_in_two_ways():
    pads = tensor([1, 2], "TENSOR_INT32", [2, 0])
    for mode, expected in ((0, [2, 1, 0, 1, 2]), (1, [1, 0, 0, 1, 2])):
        document = one_operation("MIRROR_PAD", [tensor([3]), pads, scalar(mode)], [tensor([5])])
        np.testing.assert_array_equal(compute(document, [0, 1, 2]), [expected])
    assert refusal("MIRROR_PAD", [tensor([3]), pads, scalar(2)], [tensor([5])]) == (
        "the mode (input 2) is 2; expected 0 (reflect) or 1 (symmetric)"
    )


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
def test_a_border_of_a_tensor_of_ten_axes_is_mirrored(mode):
    shape, paddings = [1] * 9 + [3], [[0, 0]] * 9 + [[2, 1]]
    operands = [tensor(shape), tensor([10, 2], "TENSOR_INT32", np.ravel(paddings)), scalar(int(mode == "symmetric"))]
    [result] = compute(one_operation("MIRROR_PAD", operands, [tensor([1] * 9 + [6])]), counting(*shape))
    np.testing.assert_array_equal(result, np.pad(counting(*shape), paddings, mode=mode))


def test_rows_of_the_second_tensor_are_looked_up():
    document = one_operation("EMBEDDING_LOOKUP", [tensor([2], "TENSOR_INT32"), tensor([3, 1])], [tensor([2, 1])])
    np.testing.assert_array_equal(compute(document, [2, 0], [5, 6, 7]), [[[7], [5]]])


# --- layouts ----------------------------------------------------------------------------------------------------------

FILTER, BIAS = tensor([2, 2, 3, 4], value=counting(2, 2, 3, 4) / 50), tensor([2], value=[0.5, -0.5])
DEPTHWISE, GROUPED = tensor([1, 2, 3, 8], value=counting(48) / 50), tensor([2, 2, 3, 2], value=counting(24) / 50)
STEPS = [SAME, scalar(2), scalar(1)]
BOXES = [tensor([2, 4], value=[0, 0, 4, 3, 1, 1, 5, 3]), tensor([2], "TENSOR_INT32", value=[1, 0])]
BINS = [*BOXES, scalar(2), scalar(3), scalar(1.0), scalar(1.0)]

LAYOUTS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("CONV_2D", [FILTER, BIAS, *STEPS, NO_ACTIVATION], []),
    ("DEPTHWISE_CONV_2D", [DEPTHWISE, tensor([8], value=counting(8)), *STEPS, scalar(2), NO_ACTIVATION], []),
    ("GROUPED_CONV_2D", [GROUPED, BIAS, *STEPS, scalar(2), NO_ACTIVATION], []),
    ("TRANSPOSE_CONV_2D", [FILTER, BIAS, *[scalar(1)] * 4, scalar(2), scalar(2), NO_ACTIVATION], []),
    ("AVERAGE_POOL_2D", [*STEPS, scalar(3), scalar(2), NO_ACTIVATION], []),
    ("MAX_POOL_2D", [*[scalar(1)] * 4, *[scalar(2)] * 4, NO_ACTIVATION], []),
    ("L2_POOL_2D", [*STEPS, scalar(3), scalar(2), NO_ACTIVATION], []),
    ("RESIZE_BILINEAR", [scalar(9), scalar(3)], [scalar(False), scalar(True)]),
    ("RESIZE_NEAREST_NEIGHBOR", [scalar(1.5), scalar(0.5)], []),
    ("DEPTH_TO_SPACE", [scalar(2)], []),
    ("SPACE_TO_DEPTH", [scalar(2)], []),
    ("BATCH_TO_SPACE_ND", [ints(1, 2)], []),
    ("SPACE_TO_BATCH_ND", [ints(3, 2), tensor([2, 2], "TENSOR_INT32", value=[1, 1, 0, 2])], []),
    ("INSTANCE_NORMALIZATION", [scalar(2.0), scalar(1.0), scalar(0.1)], []),
    ("ROI_ALIGN", [*BINS, scalar(2), scalar(0)], []),
    ("ROI_POOLING", BINS, []),
]


@pytest.mark.parametrize(("name", "before", "behind"), LAYOUTS, ids=[name for name, *_ in LAYOUTS])
def test_an_image_gives_the_same_in_both_layouts(name, before, behind):
    image = np.sin(counting(2, 4, 6, 4))
    last, first = [tensor([2, 4, 6, 4]), *before, NHWC, *behind], [tensor([2, 4, 4, 6]), *before, NCHW, *behind]
    [expected] = compute(one_operation(name, last, [tensor([])]), image)
    [result] = compute(one_operation(name, first, [tensor([])]), image.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(result.transpose(0, 2, 3, 1), expected, rtol=1e-6)


# --- recurrent layers -------------------------------------------------------------------------------------------------


def zeros(*dims: int) -> dict[str, Any]:
    return tensor(dims, value=np.zeros(dims))


@pytest.mark.parametrize("outputs", [[[2, 3, 4]], [[2, 3, 4], [2, 4]]])
def test_the_state_of_a_sequence_is_an_output_if_the_document_has_it(outputs):
    inputs = [
        tensor([2, 3, 5]),
        zeros(4, 5),
        zeros(4, 4),
        tensor([4], value=np.ones(4)),
        zeros(2, 4),
        scalar(1),
        scalar(0),
    ]
    result = compute(
        one_operation("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, [tensor(dims) for dims in outputs]), counting(30)
    )
    assert [array.shape for array in result] == [tuple(dims) for dims in outputs]
    assert all((array == 1).all() for array in result)


@pytest.mark.parametrize(("merge", "outputs"), [(False, [[2, 3, 4], [2, 3, 1]]), (True, [[2, 3, 5]])])
def test_the_backward_direction_comes_second_or_is_merged(merge, outputs):
    forward = [zeros(4, 5), zeros(4, 4), tensor([4], value=np.ones(4)), zeros(2, 4)]
    backward = [zeros(1, 5), zeros(1, 1), tensor([1], value=[2.0]), zeros(2, 1)]
    parameters = [omitted(), omitted(), omitted(), scalar(0), scalar(False), scalar(merge)]
    inputs = [tensor([2, 3, 5]), *forward, *backward, *parameters]
    result = compute(
        one_operation("BIDIRECTIONAL_SEQUENCE_RNN", inputs, [tensor(dims) for dims in outputs]), counting(30)
    )
    np.testing.assert_array_equal(np.concatenate(result, axis=-1), np.broadcast_to([1, 1, 1, 1, 2], (2, 3, 5)))


def lstm(cifg: bool, peephole: bool) -> dict[str, Any]:
    """Return an LSTM operation of two inputs and three units; all other optional weights are absent."""
    weights = [omitted(dims=[3, 2]) if cifg else zeros(3, 2), *[zeros(3, 2)] * 3]
    recurrent = [omitted() if cifg else zeros(3, 3), *[zeros(3, 3)] * 3]
    cell = [zeros(3)] * 3 if peephole else [omitted()] * 3
    biases = [omitted() if cifg else zeros(3), *[zeros(3)] * 3]
    states = [zeros(1, 3), tensor([1, 3], value=np.ones(3))]
    parameters = [omitted(), omitted(), *states, scalar(4), scalar(0.0), scalar(0.0)]
    outputs = [tensor([1, 9 if cifg else 12]), tensor([1, 3]), tensor([1, 3]), tensor([1, 3])]
    return one_operation("LSTM", [tensor([1, 2]), *weights, *recurrent, *cell, *biases, *parameters], outputs)


@pytest.mark.parametrize("cifg", [True, False])
@pytest.mark.parametrize("peephole", [True, False])
def test_what_an_lstm_does_follows_from_the_operands_that_are_there(cifg, peephole):
    scratch, output_state, cell_state, output = compute(lstm(cifg, peephole), [0, 0])
    assert scratch.shape == (1, 9 if cifg else 12)
    np.testing.assert_array_equal(cell_state, [[0.5, 0.5, 0.5]])
    np.testing.assert_allclose(output, 0.5 * np.tanh(cell_state), rtol=1e-6)
    np.testing.assert_array_equal(output_state, output)


def test_an_lstm_that_lacks_an_operand_is_refused():
    document = lstm(cifg=False, peephole=False)
    document["operands"][12].update(omitted())
    with pytest.raises(ParseError, match=r"LSTM: input_gate_bias is not connected, but cifg_enabled is False"):
        nnapi.build(document)


def test_a_recurrent_layer_has_one_of_some_activations():
    inputs = [tensor([1, 2]), zeros(3, 2), zeros(3, 3), zeros(3), zeros(1, 3), scalar(5)]
    said = refusal("RNN", inputs, [tensor([1, 3]), tensor([1, 3])])
    assert said == "the activation (input 5) is 5; expected one of 0, 1, 2, 3, 4, 6"


# --- boxes, choices and keys ------------------------------------------------------------------------------------------


def test_the_best_box_of_every_class_is_kept():
    scores, boxes = tensor([2, 2], value=[0.1, 0.9, 0.2, 0.8]), tensor([2, 8], value=[0, 0, 9, 9] * 4)
    parameters = [scalar(0.3), scalar(-1), scalar(0), scalar(0.5), scalar(0.0), scalar(0.3)]
    outputs = [tensor([0]), tensor([0, 4]), tensor([0], "TENSOR_INT32"), tensor([0], "TENSOR_INT32")]
    document = one_operation("BOX_WITH_NMS_LIMIT", [scores, boxes, ints(0, 0), *parameters], outputs)
    cached, places, classes, images = compute(document)
    np.testing.assert_array_equal(places, [[0, 0, 9, 9]])
    assert (cached.tolist(), classes.tolist(), images.tolist()) == ([np.float32(0.9)], [1], [0])


def test_suppression_has_one_of_three_kernels():
    inputs = [tensor([2, 2]), tensor([2, 8]), ints(0, 0), scalar(0.3), scalar(-1), scalar(3), *[scalar(0.5)] * 3]
    outputs = [tensor([0]), tensor([0, 4]), tensor([0], "TENSOR_INT32"), tensor([0], "TENSOR_INT32")]
    assert refusal("BOX_WITH_NMS_LIMIT", inputs, outputs) == "the kernel (input 5) is 3; expected 0 to 2"


def test_detections_give_scores_first_and_leave_the_background_out():
    scores = tensor([1, 2, 3], value=[0.0, 0.9, 0.1, 0.0, 0.2, 0.8])
    anchors = tensor([2, 4], value=[5, 5, 2, 2, 50, 50, 2, 2])
    parameters = [
        *[scalar(10.0)] * 4,
        scalar(True),
        scalar(2),
        scalar(1),
        scalar(2),
        scalar(0.3),
        scalar(0.5),
        scalar(False),
    ]
    outputs = [tensor([1, 2]), tensor([1, 2, 4]), tensor([1, 2], "TENSOR_INT32"), tensor([1], "TENSOR_INT32")]
    inputs = [scores, zeros(1, 2, 4), anchors, *parameters]
    result, boxes, classes, count = compute(one_operation("DETECTION_POSTPROCESSING", inputs, outputs))
    np.testing.assert_allclose(result, [[0.9, 0.8]])
    np.testing.assert_array_equal(boxes, [[[4, 4, 6, 6], [49, 49, 51, 51]]])
    assert (classes.tolist(), count.tolist()) == ([[0, 1]], [2])


@pytest.mark.parametrize(
    ("classes", "outputs", "expected"),
    [
        (3, 1, "it has 1 outputs; expected 4"),
        (0, 4, "input 0 has shape [1, 2, ?]; the number of classes must be known"),
    ],
)
def test_detections_have_a_known_number_of_classes_and_four_outputs(classes, outputs, expected):
    parameters = [*[scalar(1.0)] * 4, scalar(False), *[scalar(1)] * 3, *[scalar(0.5)] * 2, scalar(False)]
    created = [tensor([]), tensor([]), tensor([], "TENSOR_INT32"), tensor([], "TENSOR_INT32")]
    inputs = [tensor([1, 2, classes]), tensor([1, 2, 4]), tensor([2, 4]), *parameters]
    assert refusal("DETECTION_POSTPROCESSING", inputs, created[:outputs]) == expected


def test_rows_are_looked_up_by_their_keys():
    keys, values = ints(5, 7), tensor([2, 1], value=[50, 70])
    outputs = [tensor([3, 1]), quant8([3], 1.0, 0)]
    document = one_operation("HASHTABLE_LOOKUP", [tensor([3], "TENSOR_INT32"), keys, values], outputs)
    rows, hits = compute(document, [7, 6, 5])
    assert (rows.ravel().tolist(), hits.tolist()) == ([70, 0, 50], [1, 0, 1])


def test_the_largest_of_a_row_are_chosen():
    document = one_operation("TOPK_V2", [tensor([4]), scalar(2)], [tensor([2]), tensor([2], "TENSOR_INT32")])
    values, indices = compute(document, [3, 9, 1, 4])
    assert (values.tolist(), indices.tolist()) == ([9, 4], [1, 3])


def test_a_projection_has_one_of_three_types():
    inputs = [tensor([2, 2], value=[0.1, 0.2, 0.3, 0.4]), tensor([3]), omitted(), scalar(4)]
    said = refusal("LSH_PROJECTION", inputs, [tensor([2], "TENSOR_INT32")])
    assert said == "the type (input 3) is 4; expected 1 to 3"
