from interposer.core.types import DataLayout, Quantization, TensorInfo, TensorShape
from interposer.ops import Resize, ResizeMethod


def test_height_and_width_are_replaced_in_both_layouts():
    assert Resize(7, 5).infer_infos(TensorInfo(("n", 3, 8, 8)))[0].shape == TensorShape(("n", 3, 5, 7))
    nhwc = Resize(7, 5, data_layout=DataLayout.NHWC)
    assert nhwc.infer_infos(TensorInfo((1, 8, 8, 3)))[0].shape == (1, 5, 7, 3)


def test_a_resize_as_arm_nn_declares_it_is_nearest_and_channels_first():
    assert Resize(1, 1).method is ResizeMethod.NEAREST_NEIGHBOR
    assert Resize(1, 1).data_layout is DataLayout.NCHW


def test_corners_and_centers_exclude_each_other():
    op = Resize(4, 4, align_corners=True, half_pixel_centers=True)
    assert op.violations(TensorInfo((1, 1, 2, 2))) == ["align_corners and half_pixel_centers exclude each other"]


def test_nothing_cannot_be_resized():
    assert Resize(4, 4).violations(TensorInfo((1, 1, 0, 2))) == ["the input of shape [1, 1, 0, 2] has no pixels"]


def test_a_resize_keeps_the_quantization():
    info = TensorInfo((1, 1, 2, 2), "uint8", Quantization(0.5, 3))
    assert Resize(4, 4).infer_infos(info)[0] == TensorInfo((1, 1, 4, 4), "uint8", Quantization(0.5, 3))
