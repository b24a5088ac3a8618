"""Hybrid operators of TFLite: float activations and quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import OptimizerOptions
from interposer.frontends import tflite
from interposer.kernels import compute
from interposer.ops import DynamicFakeQuantization
from tests.evaluation import run_network

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.one_operator import T, one_operator

DRAW = np.random.default_rng(5)
BITS = DRAW.integers(-127, 128, (4, 6)).astype(np.int8)
X = DRAW.normal(size=(3, 6)).astype(np.float32)
VALID = {"padding": 1, "stride_w": 1, "stride_h": 1}


def rounded(x, axes=(-1,), asymmetric=False):
    return compute(DynamicFakeQuantization(axes, asymmetric), x)


def outputs(data: bytes, *feeds: Any) -> list[Any]:
    network = tflite.load(data)
    names = [layer.name for layer in network.inputs.values()]
    return list(run_network(network, dict(zip(names, feeds, strict=True))).values())


@pytest.mark.parametrize("zero_point", [0, 128])
def test_uint8_weights_of_a_float_fully_connected_are_read_as_int8(zero_point):
    weights = T((4, 6), "uint8", (0.25, zero_point), value=BITS.view(np.uint8))
    data = one_operator("FULLY_CONNECTED", [T((3, 6)), weights, None], [T((3, 4))], ("FullyConnectedOptions", {}))
    [result] = outputs(data, X)
    np.testing.assert_allclose(result, rounded(X) @ (BITS * np.float32(0.25)).T, rtol=1e-5)


def test_uint8_weights_of_a_float_convolution_are_read_as_int8():
    weights = T((4, 1, 1, 6), "uint8", (0.25, 0), value=BITS.view(np.uint8).reshape(4, 1, 1, 6))
    inputs: list[T | None] = [T((1, 3, 1, 6)), weights, None]
    [result] = outputs(
        one_operator("CONV_2D", inputs, [T((1, 3, 1, 4))], ("Conv2DOptions", VALID)), X.reshape(1, 3, 1, 6)
    )
    np.testing.assert_allclose(result.reshape(3, 4), rounded(X, ()) @ (BITS * np.float32(0.25)).T, rtol=1e-5)


def test_a_uint8_table_of_a_float_embedding_is_read_as_int8():
    table = T((4, 6), "uint8", (0.25, 0), value=BITS.view(np.uint8))
    [result] = outputs(
        one_operator("EMBEDDING_LOOKUP", [T((2,), "int32"), table], [T((2, 6))]), np.array([3, 1], np.int32)
    )
    np.testing.assert_array_equal(result, BITS[[3, 1]] * np.float32(0.25))


def test_a_dequantize_of_uint8_keeps_the_type():
    data = one_operator("DEQUANTIZE", [T((2,), "uint8", (0.5, 128))], [T((2,))])
    [result] = outputs(data, np.array([128, 255], np.uint8))
    assert result.tolist() == [0.0, 63.5]


WEIGHTS = T((4, 6), "int8", (0.25, 0), value=BITS)
CHANNELS = T((4, 6), "int8", ([0.25, 0.5, 1.0, 2.0], [0] * 4), value=BITS)
PLAIN = BITS * np.float32(0.25)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_rows_of_a_hybrid_fully_connected_are_rounded_to_8_bits(asymmetric):
    options = ("FullyConnectedOptions", {"asymmetric_quantize_inputs": asymmetric})
    [result] = outputs(one_operator("FULLY_CONNECTED", [T((3, 6)), WEIGHTS, None], [T((3, 4))], options), X)
    np.testing.assert_allclose(result, rounded(X, asymmetric=asymmetric) @ PLAIN.T, rtol=1e-5)
    assert np.abs(result - X @ PLAIN.T).max() > 0.01


def test_a_row_of_a_hybrid_fully_connected_may_have_several_axes():
    data = one_operator("FULLY_CONNECTED", [T((3, 2, 3)), WEIGHTS, None], [T((3, 4))], ("FullyConnectedOptions", {}))
    [result] = outputs(data, X.reshape(3, 2, 3))
    np.testing.assert_allclose(result, rounded(X) @ PLAIN.T, rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_a_hybrid_matrix_product_are_rounded_along_the_summed_axis(transposed):
    x = X.T.copy() if transposed else X
    options = ("BatchMatMulOptions", {"adj_x": transposed, "adj_y": True})
    [result] = outputs(one_operator("BATCH_MATMUL", [T(x.shape), WEIGHTS], [T((3, 4))], options), x)
    np.testing.assert_allclose(result, rounded(X) @ PLAIN.T, rtol=1e-5)


@pytest.mark.parametrize(("weights", "asymmetric"), [(WEIGHTS, False), (CHANNELS, True)])
def test_scales_of_channels_make_the_images_of_a_convolution_asymmetric(weights, asymmetric):
    constant = T((4, 1, 1, 6), "int8", weights.scaled, value=BITS.reshape(4, 1, 1, 6))
    data = one_operator("CONV_2D", [T((3, 1, 1, 6)), constant, None], [T((3, 1, 1, 4))], ("Conv2DOptions", VALID))
    [result] = outputs(data, X.reshape(3, 1, 1, 6))
    scales = np.float32(weights.scaled[0]).reshape(-1, 1)
    np.testing.assert_allclose(result.reshape(3, 4), rounded(X, asymmetric=asymmetric) @ (BITS * scales).T, rtol=1e-5)


def test_images_of_a_hybrid_depthwise_convolution_are_rounded_asymmetrically():
    constant = T((1, 1, 1, 6), "int8", ([0.25] * 6, [0] * 6), 3, value=BITS[:1].reshape(1, 1, 1, 6))
    options = ("DepthwiseConv2DOptions", VALID | {"depth_multiplier": 1})
    data = one_operator("DEPTHWISE_CONV_2D", [T((3, 1, 1, 6)), constant, None], [T((3, 1, 1, 6))], options)
    [result] = outputs(data, X.reshape(3, 1, 1, 6))
    np.testing.assert_allclose(result.reshape(3, 6), rounded(X, asymmetric=True) * PLAIN[:1], rtol=1e-5)


def test_the_rounding_of_activations_can_be_turned_off():
    data = one_operator("FULLY_CONNECTED", [T((3, 6)), WEIGHTS, None], [T((3, 4))], ("FullyConnectedOptions", {}))
    [result] = ip.load(data, ["CpuRef"]).run([X])
    np.testing.assert_allclose(result, rounded(X) @ PLAIN.T, rtol=1e-5)
    [result] = ip.load(data, ["CpuRef"], options=OptimizerOptions(round_activations=False)).run([X])
    np.testing.assert_allclose(result, X @ PLAIN.T, rtol=1e-5)


def engines_result(data, *feeds):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    reference = interpreter.OpResolverType.BUILTIN_REF
    engine = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=reference)
    engine.allocate_tensors()
    for details, feed in zip(engine.get_input_details(), feeds, strict=True):
        engine.set_tensor(details["index"], feed)
    engine.invoke()
    return [engine.get_tensor(details["index"]) for details in engine.get_output_details()]


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("weights", [WEIGHTS, CHANNELS, T((4, 6), "uint8", (0.25, 0), value=BITS.view(np.uint8))])
def test_litert_gives_the_same_for_hybrid_products(weights, asymmetric):
    options = ("FullyConnectedOptions", {"asymmetric_quantize_inputs": asymmetric})
    data = one_operator("FULLY_CONNECTED", [T((3, 6)), weights, None], [T((3, 4))], options)
    np.testing.assert_allclose(outputs(data, X)[0], engines_result(data, X)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scales", [(0.25, 0), ([0.25, 0.5, 0.125, 1.0], [0] * 4)])
def test_litert_gives_the_same_for_hybrid_transpose_convolutions(scales):
    kernel = T((4, 3, 3, 6), "int8", scales, value=DRAW.integers(-127, 128, (4, 3, 3, 6)).astype(np.int8))
    shape = T((4,), "int32", value=np.array([1, 6, 6, 4], np.int32))
    inputs: list[T | None] = [shape, kernel, T((1, 4, 4, 6))]
    data = one_operator("TRANSPOSE_CONV", inputs, [T((1, 6, 6, 4))], ("TransposeConvOptions", VALID))
    feed = DRAW.normal(size=(1, 4, 4, 6)).astype(np.float32)
    np.testing.assert_allclose(outputs(data, feed)[0], engines_result(data, feed)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("transposed", [False, True])
def test_columns_of_a_quantized_matrix_product_may_have_scales(transposed):
    x = DRAW.integers(-128, 128, (2, 3, 6)).astype(np.int8)
    weights = CHANNELS if transposed else T((6, 4), "int8", CHANNELS.scaled, 1, value=BITS.T)
    inputs: list[T | None] = [T(x.shape, "int8", (0.5, 3)), weights]
    result = T((2, 3, 4), "int8", (64.0, -2))
    data = one_operator("BATCH_MATMUL", inputs, [result], ("BatchMatMulOptions", {"adj_y": transposed}))
    exact = ((x.astype(np.float64) - 3) * 0.5) @ (BITS.T * np.array([0.25, 0.5, 1.0, 2.0]))
    expected = np.clip(np.round(exact / 64) - 2, -128, 127)
    for backends in (["CpuRef"], None):
        with ip.load(data, backends) as model:
            assert np.abs(model.run([x])[0] - expected).max() <= 1
