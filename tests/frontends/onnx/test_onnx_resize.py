"""Resizing: every way to find places, by our own operator or without it, against ONNX's reference evaluator."""

import itertools

import numpy as np
import onnx
import pytest

from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import agree, ours, single

X = np.random.default_rng(9).uniform(-3, 3, (1, 2, 4, 6)).astype(np.float32)
MODES = ["align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def kinds(given):
    return [layer.kind for layer in load(given) if layer.kind not in {"Input", "Output", "Constant"}]


@pytest.mark.parametrize(("places", "nearest"), list(itertools.product(MODES, NEAREST)))
def test_the_nearest_pixel_is_the_one_meant(places, nearest):
    common = {"coordinate_transformation_mode": places, "nearest_mode": nearest}
    agree(single("Resize", X, None, None, np.array([1, 2, 7, 5]), **common), X)
    agree(single("Resize", X, None, np.float32([1, 1, 2, 0.5]), **common), X)


def test_pixels_of_tensorflow_begin_at_their_corners_in_tf_half_pixel_for_nn():
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    model = single("Resize", X, None, None, np.array([1, 2, 7, 5]), opset=15, **attributes)
    assert kinds(model) == ["Resize"]
    rows, columns = np.floor((np.arange(7) + 0.5) * 4 / 7), np.floor((np.arange(5) + 0.5) * 6 / 5)
    [result] = ours(model, X)
    np.testing.assert_array_equal(result, X[:, :, rows.astype(int)][..., columns.astype(int)])


@pytest.mark.parametrize(("places", "mode"), list(itertools.product(MODES, ["linear", "cubic"])))
def test_pixels_are_mixed_as_meant(places, mode):
    common = {"coordinate_transformation_mode": places, "mode": mode}
    agree(single("Resize", X, None, None, np.array([1, 2, 7, 5]), **common), X, atol=1e-5)
    agree(single("Resize", X, None, np.float32([1, 1, 0.6, 1.7]), **common), X, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"exclude_outside": 1}, {"cubic_coeff_a": -0.5}])
def test_cubic_mixing_has_its_own_attributes(attributes):
    agree(single("Resize", X, None, np.float32([1, 1, 2, 0.8]), mode="cubic", **attributes), X, atol=1e-5)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_the_aspect_ratio_may_be_kept(policy):
    value = single("Resize", X, None, None, np.array([7, 7]), axes=[2, 3], keep_aspect_ratio_policy=policy)
    agree(value, X)


@pytest.mark.parametrize("scales", [[2, 1, 1, 1], [1, 1.5, 1, 2]])
def test_any_axis_may_change(scales):
    agree(single("Resize", X, None, np.float32(scales), mode="linear"), X, atol=1e-5)
    agree(single("Resize", X, None, np.float32(scales)), X)


@pytest.mark.parametrize(("size", "target"), [(14, 11), (18, 13), (10, 29), (27, 8)])
def test_a_size_is_the_product_with_its_scale_in_float32(size, target):
    image = np.zeros((1, 1, 1, size), np.float32)
    scales = np.float32([1, 1, 1, target / size])
    for mode in ("nearest", "linear"):
        model = single("Resize", image, None, scales, mode=mode)
        assert ours(model, image)[0].shape == (1, 1, 1, target)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_axis_may_shrink_to_nothing(mode):
    (result,) = ours(single("Resize", X, np.float32([1, 1, 0.2, 2]), opset=10, mode=mode), X)
    assert result.shape == (1, 2, 0, 12)


def picked(opset, size, scale, **attributes):
    """The numbers of the pixels that a row of `size` pixels is resized to, in mode nearest."""
    row = np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)
    operands = (None, np.float32([1, 1, 1, scale])) if opset > 10 else (np.float32([1, 1, 1, scale]),)
    [result] = ours(single("Resize", row, *operands, opset=opset, mode="nearest", **attributes), row)
    return result.reshape(-1).astype(int).tolist()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [[1, 2, 0, 9], [1, 2, 0, 6], [3, 2, 0, 9]])
def test_an_axis_without_elements_may_stay_so(sizes, mode):
    empty = np.zeros((1, 2, 0, 6), np.float32)
    [result] = ours(single("Resize", empty, None, None, np.array(sizes), mode=mode), empty)
    assert result.shape == tuple(sizes)


def test_before_opset_11_coordinates_are_rounded_up_where_an_axis_shrinks():
    assert picked(10, 4, 0.75) == [0, 2, 3]
    assert picked(10, 4, 1.5) == [0, 0, 1, 2, 2, 3]


def test_a_rounding_that_the_standard_does_not_have_is_refused():
    with pytest.raises(ParseError, match="its nearest_mode is 'simple'"):
        picked(13, 4, 0.75, nearest_mode="simple")


def test_coordinates_are_float32_numbers():
    asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    assert picked(13, 10, 0.8, **asymmetric)[4] == 5, "4 / 0.800000012 is 4.99999993"
    assert picked(13, 3, 4 / 3, **asymmetric) == [0, 0, 1, 2]


@pytest.mark.parametrize(("size", "target"), [(25, 49), (34, 33), (27, 28)])
def test_align_corners_aligns_them_for_scales_that_are_rounded(size, target):
    corners = {"coordinate_transformation_mode": "align_corners", "nearest_mode": "floor"}
    exact = np.arange(target) * (size - 1) // (target - 1)
    assert picked(13, size, target / size, **corners) == exact.tolist()


def test_what_our_operator_means_becomes_our_operator():
    double = np.float32([1, 1, 2, 2])
    assert kinds(single("Resize", X, None, double)) == ["Resize"]
    assert kinds(single("Resize", X, None, double, mode="linear")) == ["Resize"]
    corners = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    assert kinds(single("Resize", X, None, double, **corners)) == ["Resize"]
    assert kinds(single("Upsample", X, double, opset=9)) == ["Resize"]
    assert kinds(single("Resize", X, None, double, nearest_mode="ceil")) == ["Gather", "Gather"]
    assert kinds(single("Resize", X, None, double, mode="cubic")) == ["BatchMatMul", "BatchMatMul"]
    assert kinds(single("Resize", X, None, np.float32([1, 1, 1, 1]))) == []


@pytest.mark.parametrize(
    ("operands", "attributes", "reason"),
    [
        (
            [None, None, np.array([1, 2, 2**40, 6])],
            {},
            "it makes 1099511627776 out of 4 along axis 2",
        ),
        (
            [None, np.float32([1, 1, 0.5, 1])],
            {"antialias": 1, "mode": "nearest"},
            "it smooths (antialias) in mode nearest",
        ),
    ],
)
def test_what_cannot_be_expressed_is_refused(operands, attributes, reason):
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(single("Resize", X, *operands, **attributes))
    assert caught.value.notes == {"Resize": f"opset 21; node 'node': {reason}"}


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [[0.6, 0.4], [0.5, 1.5], [1.0, 0.3]])
def test_making_smaller_smooths_where_that_is_asked_for(mode, scales):
    agree(single("Resize", X, None, np.float32([1, 1, *scales]), mode=mode, antialias=1), X, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("part", [[0.25, 0, 0.75, 1], [-0.5, 0.25, 0.5, 1.5], [0, 0, 1, 1], [1, 0.75, 0, 0.25]])
def test_a_part_is_resized_and_what_lies_beyond_the_input_is_one_number(mode, part):
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    value = single("Resize", X, np.float32(part), None, np.array([3, 5]), axes=[2, 3], mode=mode, **options)
    agree(value, X, atol=1e-4)


def test_a_part_has_a_start_and_an_end_along_each_axis():
    value = single(
        "Resize", X, np.float32([0, 1]), None, np.array([3, 5]), axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    with pytest.raises(ParseError, match="its roi has 2 numbers; expected 4, a start and an end for each axis"):
        load(value)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_integers_of_8_bits_are_sampled_and_truncated_as_in_onnx_runtime(dtype, coordinates):
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    rng, limits = np.random.default_rng(5), np.iinfo(dtype)
    for height, width in [(3, 7), (8, 1), (1, 9), (4, 5)]:
        x = rng.integers(limits.min, limits.max + 1, (1, 2, 4, 5)).astype(dtype)
        sizes, attributes = np.array([1, 2, height, width]), {"coordinate_transformation_mode": coordinates}
        given = single("Resize", x, None, None, sizes, mode="linear", opset=19, **attributes)
        given = onnx.shape_inference.infer_shapes(given)
        session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
        [expected] = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_array_equal(ours(given, x)[0], expected)


def test_integers_that_onnx_runtime_samples_otherwise_are_refused():
    x = np.zeros((1, 4, 5, 2), np.uint8)
    with pytest.raises(UnsupportedOperatorError, match="it mixes elements of type uint8"):
        load(single("Resize", x, None, None, np.array([1, 8, 9, 2]), mode="linear"))
