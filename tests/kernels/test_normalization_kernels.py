import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataLayout, Quantization
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    NormalizationAlgorithmMethod,
    RmsNormalization,
)
from tests.computing import compute

F32 = np.float32
IMAGE = np.arange(1, 13, dtype=F32).reshape(1, 2, 3, 2)


def to_nhwc(x):
    return np.moveaxis(x, 1, -1)


def test_a_batch_is_normalized_by_the_statistics_that_are_given():
    result = compute(
        BatchNormalization(eps=0.0), F32([[1, 10], [3, 30]]), F32([1, 10]), F32([4, 100]), F32([0, 1]), F32([2, 3])
    )
    assert result.tolist() == [[0, 1], [2, 7]]


@given(arrays.arrays(F32, (4, 3), elements=st.floats(0.5, 2, width=32)))
def test_the_layout_only_says_where_the_channels_are(statistics):
    first = compute(BatchNormalization(), IMAGE.reshape(1, 3, 2, 2), *statistics)
    last = compute(BatchNormalization(data_layout=DataLayout.NHWC), to_nhwc(IMAGE.reshape(1, 3, 2, 2)), *statistics)
    np.testing.assert_allclose(last, to_nhwc(first), rtol=1e-6)


def test_an_instance_is_normalized_by_its_own_statistics():
    result = compute(InstanceNormalization(eps=0.0), IMAGE, F32([1, 2]), F32([0, 1]))
    np.testing.assert_allclose(result.mean(axis=(2, 3)), [[0, 1]], atol=1e-6)
    np.testing.assert_allclose(result.std(axis=(2, 3)), [[1, 2]], rtol=1e-6)


def test_an_instance_needs_no_scale_and_no_shift():
    result = compute(InstanceNormalization(data_layout=DataLayout.NHWC), to_nhwc(IMAGE), None, None)
    np.testing.assert_allclose(result, to_nhwc(compute(InstanceNormalization(), IMAGE, F32(1), F32(0))), rtol=1e-6)


def test_a_layer_is_normalized_from_an_axis_on():
    x = F32([[1, 3], [10, 30]])
    np.testing.assert_allclose(compute(LayerNormalization(eps=0.0), x), [[-1, 1], [-1, 1]])
    shifted = compute(LayerNormalization(eps=0.0), x, F32([2, 3]), F32([0, 1]))
    np.testing.assert_allclose(shifted, [[-2, 4], [-2, 4]])
    normalized = compute(LayerNormalization(axis=0), x)
    np.testing.assert_allclose([normalized.mean(), normalized.std()], [0, 1], atol=1e-6)


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_a_vector_is_divided_by_its_length(dtype):
    result = compute(L2Normalization(axis=-1), np.array([[3, 4], [0, 0]], dtype))
    np.testing.assert_allclose(result.astype(F32), [[0.6, 0.8], [0, 0]], rtol=1e-2)


def test_the_length_is_taken_along_the_channels_of_the_layout():
    x = F32([3, 4]).reshape(1, 2, 1, 1)
    assert compute(L2Normalization(), x).ravel() == pytest.approx([0.6, 0.8])
    assert compute(L2Normalization(data_layout=DataLayout.NHWC), x).ravel() == pytest.approx([1, 1])


def test_a_vector_in_other_steps_than_tflite_prescribes_is_rounded_from_real_numbers():
    result = compute(
        L2Normalization(axis=-1), np.int8([3, 4]), quantized=[Quantization(0.5)], result=Quantization(0.1, 1)
    )
    assert result.tolist() == [7, 9]


def test_a_response_is_divided_by_those_of_the_neighbours():
    op = Normalization(norm_size=3, alpha=1.0, beta=1.0, k=1.0)
    result = compute(op, F32([1, 2, 3, 4]).reshape(1, 4, 1, 1)).ravel()
    np.testing.assert_allclose(result, [1 / 6, 2 / 15, 3 / 30, 4 / 26], rtol=1e-6)


def test_an_even_window_reaches_further_to_the_end():
    op = Normalization(norm_size=2, alpha=1.0, beta=1.0, axis=-1)
    np.testing.assert_allclose(compute(op, F32([1, 2, 3])), [1 / 5, 2 / 13, 3 / 9], rtol=1e-6)


@pytest.mark.parametrize("layout", [DataLayout.NCHW, DataLayout.NHWC])
def test_a_window_within_a_channel_is_square(layout):
    op = Normalization(
        NormalizationAlgorithmChannel.WITHIN, norm_size=3, alpha=1.0, beta=1.0, k=0.0, data_layout=layout
    )
    x = np.ones((1, 1, 3, 3), F32) if layout is DataLayout.NCHW else np.ones((1, 3, 3, 1), F32)
    np.testing.assert_allclose(compute(op, x).reshape(3, 3) * [[4, 6, 4], [6, 9, 6], [4, 6, 4]], 1, rtol=1e-6)


def test_a_method_that_nobody_defines_is_refused():
    op = Normalization(method_type=NormalizationAlgorithmMethod.LOCAL_CONTRAST, norm_size=3)
    with pytest.raises(InvalidArgumentError, match="^Normalization: LOCAL_CONTRAST is not computed$"):
        compute(op, IMAGE)


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        (BatchNormalization(), [np.ones(2, F32)] * 4),
        (InstanceNormalization(), []),
        (LayerNormalization(), []),
        (L2Normalization(eps=1e-6), []),
        (Normalization(norm_size=3, alpha=0.1, beta=0.5, k=1.0), []),
    ],
)
def test_quantized_images_are_normalized_as_real_numbers(op, parameters):
    codes = IMAGE.astype(np.uint8)
    result = compute(op, codes, *parameters, quantized=[Quantization(0.5, 3)], result=Quantization(0.05, 100))
    expected = compute(op, (IMAGE - 3) / 2, *parameters)
    np.testing.assert_allclose((result.astype(F32) - 100) * 0.05, expected, atol=0.0251)


def test_plain_integers_are_refused():
    with pytest.raises(InvalidArgumentError) as error:
        compute(LayerNormalization(), np.int32([1, 2]))
    assert str(error.value) == "LayerNormalization: input is int32; takes floats and quantized tensors"


def test_a_layer_is_divided_by_the_root_of_its_mean_square():
    result = compute(RmsNormalization(eps=0.0), F32([[1, 7], [5, 5]]), F32([1, 2]))
    np.testing.assert_allclose(result, [[0.2, 2.8], [1, 2]], rtol=1e-6)


@given(arrays.arrays(F32, (2, 3), elements=st.floats(0.5, 4, width=32)), st.sampled_from([0.25, -8]))
def test_a_factor_does_not_change_but_the_sign_of_what_is_divided_by_its_root_mean_square(x, factor):
    op = RmsNormalization(eps=0.0)
    expected = np.sign(factor) * compute(op, x, None)
    np.testing.assert_allclose(compute(op, x * F32(factor), None), expected, rtol=1e-5)


@pytest.mark.parametrize("layout", [DataLayout.NCHW, DataLayout.NHWC])
def test_one_group_is_a_layer_and_a_group_for_each_channel_an_instance(layout):
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 4)).astype(F32)
    gamma, beta = F32([1, 2, 3, 4]), F32([0, 1, 0, 1])
    single = compute(GroupNormalization(4, 1e-5, layout), x, gamma, beta)
    np.testing.assert_allclose(single, compute(InstanceNormalization(1e-5, layout), x, gamma, beta), rtol=1e-4)
    one_group = compute(GroupNormalization(1, 1e-5, layout), x, None, None)
    np.testing.assert_allclose(one_group, compute(LayerNormalization(1), x, None, None), rtol=1e-4, atol=1e-6)


def test_a_group_takes_channels_that_follow_one_another():
    result = compute(GroupNormalization(2, eps=0.0), F32([[1, 3, 10, 30]]), None, None)
    np.testing.assert_allclose(result, [[-1, 1, -1, 1]])


def test_what_has_mean_and_variance_along_axes_loses_them():
    result = compute(MeanVarianceNormalization((0, 2)), IMAGE[0])
    np.testing.assert_allclose([result.mean(axis=(0, 2)), result.std(axis=(0, 2))], [[0] * 3, [1] * 3], atol=1e-6)


@pytest.mark.parametrize("value", [0.1, 10.121602, 12.040234, -3e5])
@pytest.mark.parametrize(
    "op",
    [
        LayerNormalization(eps=1e-12),
        InstanceNormalization(eps=1e-12),
        GroupNormalization(num_groups=1, eps=1e-12),
        MeanVarianceNormalization(axis=(2, 3)),
    ],
    ids=lambda op: type(op).__name__,
)
@pytest.mark.parametrize("length", [5, 15, 100])
def test_equal_elements_are_normalized_to_zeros_whatever_their_rounded_mean_is(op, value, length):
    assert not compute(op, np.full((1, 1, 1, length), value, F32)).any()


def test_nearly_equal_elements_are_normalized_without_the_rounding_error_of_their_mean():
    x = np.full(15, 11.666428, F32)
    x[[5, 6, 7, 13]] = np.nextafter(x[0], F32(0))
    exact = x.astype(np.float64) - x.astype(np.float64).mean()
    np.testing.assert_allclose(compute(LayerNormalization(eps=1e-5), x), exact / np.sqrt(exact.var() + 1e-5), rtol=1e-5)
