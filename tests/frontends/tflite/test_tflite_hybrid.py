"""Hybrid operators of TFLite: float activations and quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer.frontends import tflite
from tests.evaluation import run_network

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.one_operator import T, one_operator

DRAW = np.random.default_rng(5)
BITS = DRAW.integers(-127, 128, (4, 6)).astype(np.int8)
X = DRAW.normal(size=(3, 6)).astype(np.float32)
VALID = {"padding": 1, "stride_w": 1, "stride_h": 1}


def outputs(data: bytes, *feeds: Any) -> list[Any]:
    network = tflite.load(data)
    names = [layer.name for layer in network.inputs.values()]
    return list(run_network(network, dict(zip(names, feeds, strict=True))).values())


@pytest.mark.parametrize("zero_point", [0, 128])
def test_uint8_weights_of_a_float_fully_connected_are_read_as_int8(zero_point):
    weights = T((4, 6), "uint8", (0.25, zero_point), value=BITS.view(np.uint8))
    data = one_operator("FULLY_CONNECTED", [T((3, 6)), weights, None], [T((3, 4))], ("FullyConnectedOptions", {}))
    [result] = outputs(data, X)
    np.testing.assert_allclose(result, X @ (BITS * np.float32(0.25)).T, rtol=1e-5)


def test_uint8_weights_of_a_float_convolution_are_read_as_int8():
    weights = T((4, 1, 1, 6), "uint8", (0.25, 0), value=BITS.view(np.uint8).reshape(4, 1, 1, 6))
    inputs: list[T | None] = [T((1, 3, 1, 6)), weights, None]
    [result] = outputs(
        one_operator("CONV_2D", inputs, [T((1, 3, 1, 4))], ("Conv2DOptions", VALID)), X.reshape(1, 3, 1, 6)
    )
    np.testing.assert_allclose(result.reshape(3, 4), X @ (BITS * np.float32(0.25)).T, rtol=1e-5)


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
