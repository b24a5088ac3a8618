import pytest

from interposer.core.types import DataLayout, TensorInfo
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    RmsNormalization,
)

IMAGE = TensorInfo((1, 3, 8, 5))
THREE, FIVE = TensorInfo((3,)), TensorInfo((5,))


def test_statistics_belong_to_the_channels_wherever_the_layout_has_them():
    assert BatchNormalization().violations(IMAGE, THREE, THREE, THREE, THREE) == []
    last = BatchNormalization(data_layout=DataLayout.NHWC)
    assert last.violations(IMAGE, FIVE, FIVE, FIVE, FIVE) == []


def test_statistics_that_do_not_fit_the_channels_are_named():
    errors = BatchNormalization().violations(IMAGE, THREE, FIVE, THREE, THREE)
    assert errors == ["variance has shape [5]; expected 3 elements, one per channel"]


def test_statistics_of_unknown_length_are_left_alone():
    unknown = TensorInfo((None,))
    assert BatchNormalization().violations(IMAGE, unknown, unknown, unknown, unknown) == []


def test_a_single_scale_serves_all_channels_of_an_instance():
    assert InstanceNormalization().violations(IMAGE, TensorInfo(), None) == []
    [error] = InstanceNormalization().violations(IMAGE, FIVE)
    assert error == "gamma has shape [5]; expected 3 elements, one per channel, or a single one"


@pytest.mark.parametrize(("op", "axis"), [(L2Normalization(), 1), (L2Normalization(axis=-1), 3)])
def test_the_length_is_taken_along_the_channels_unless_an_axis_is_given(op, axis):
    assert op.normalized_axis(4) == axis


def test_a_window_within_a_channel_needs_an_image():
    within = Normalization(NormalizationAlgorithmChannel.WITHIN, norm_size=3)
    assert within.window_axes(4) == (2, 3)
    assert within.violations(TensorInfo((3, 4))) == ["input has rank 2, shape [3, 4]; expected rank 4 for WITHIN"]


def test_what_scales_a_layer_must_broadcast_to_it():
    op = LayerNormalization(axis=2)
    assert op.violations(IMAGE, TensorInfo((8, 5)), FIVE) == []
    [error] = op.violations(IMAGE, TensorInfo((2, 1, 1, 5)))
    assert error == "gamma has shape [2, 1, 1, 5], which does not broadcast to the input, [1, 3, 8, 5]"


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        (BatchNormalization(), (THREE,) * 4),
        (InstanceNormalization(), ()),
        (L2Normalization(), ()),
        (Normalization(norm_size=3), ()),
        (LayerNormalization(), ()),
    ],
)
def test_normalizing_changes_neither_shape_nor_type(op, parameters):
    assert op.infer_infos(IMAGE, *parameters) == (IMAGE,)


def test_groups_divide_the_channels():
    assert GroupNormalization(3).violations(TensorInfo((1, 4, 2, 2))) == ["4 channels cannot be divided into 3 groups"]
    assert GroupNormalization(3, data_layout=DataLayout.NHWC).violations(TensorInfo((1, 2, 2, 6))) == []
    assert GroupNormalization(3).violations(TensorInfo((1, None, 2, 2))) == []


def test_the_factor_of_a_root_mean_square_broadcasts_to_the_input():
    assert RmsNormalization().violations(TensorInfo((2, 3)), TensorInfo((2,))) == [
        "gamma has shape [2], which does not broadcast to the input, [2, 3]"
    ]


def test_mean_and_variance_go_over_axes_that_are_there():
    assert MeanVarianceNormalization().violations(TensorInfo((2, 3))) == [
        "axis is 2, but the input has rank 2; expected -2 to 1"
    ]


def test_a_window_within_a_channel_is_that_of_an_image():
    volume = Normalization(NormalizationAlgorithmChannel.WITHIN, data_layout=DataLayout.NDHWC)
    [error] = volume.violations(IMAGE)
    assert error == "data_layout is NDHWC; expected NCHW or NHWC for WITHIN"
