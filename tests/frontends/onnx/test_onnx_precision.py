"""The precision that a node asks some of its work to be done in."""

import numpy as np
import pytest
from onnx import TensorProto

from interposer.frontends.onnx import load
from tests.frontends.onnx.models import ours, single, theirs

X = np.random.default_rng(0).normal(3, 2, (2, 4, 6))


def normalizations(dtype, **attributes):
    x = X.astype(dtype)
    by_row = [np.full(6, 2, dtype), np.ones(6, dtype)]
    by_channel = [np.full(4, 2, dtype), np.ones(4, dtype)]
    yield single("LayerNormalization", x, *by_row, opset=21, **attributes), x
    yield single("RMSNormalization", x, by_row[0], opset=23, **attributes), x
    yield single("GroupNormalization", x, *by_channel, opset=21, num_groups=2, **attributes), x


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("stash", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_normalizations_are_computed_in_the_stash_type(dtype, stash):
    """The result is as exact as that type allows."""
    own = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}[stash]
    tolerance = 20 * max(np.finfo(dtype).eps, np.finfo(own).eps)
    wide = [ours(arguments, x)[0] for arguments, x in normalizations(np.float64, stash_type=TensorProto.DOUBLE)]
    for (value, x), exact in zip(normalizations(dtype, stash_type=stash), wide, strict=True):
        [result] = ours(value, x)
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def test_float64_loses_digits_in_a_stash_of_float32():
    both = [normalizations(np.float64, stash_type=stash) for stash in (TensorProto.FLOAT, TensorProto.DOUBLE)]
    for (rounded, x), (exact, _) in zip(*both, strict=True):
        result, expected = ours(rounded, x)[0], ours(exact, x)[0]
        assert np.abs(result - expected).max() > 1e-9
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_mean_and_deviation_have_the_stash_type():
    x = X.astype(np.float64)
    value = single("LayerNormalization", x, np.ones(6), opset=21, outputs=3, stash_type=TensorProto.FLOAT)
    result = ours(value, x)
    assert [array.dtype for array in result] == [np.float64, np.float32, np.float32]
    np.testing.assert_allclose(result[1], x.mean(axis=-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("precision", [0, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_softmax_in_attention_is_computed_as_asked_for(precision):
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, 2, 5, 8)).astype(np.float32) for _ in range(3))
    attributes = {"softmax_precision": precision} if precision else {}
    value = single("Attention", q, k, v, opset=23, **attributes)
    [layer] = [layer for layer in load(value) if layer.kind == "Attention"]
    assert (layer.op.softmax_precision is None) == (precision == 0)
    tolerance = 2e-3 if precision == TensorProto.FLOAT16 else 1e-5
    np.testing.assert_allclose(ours(value, q)[0], theirs(value, q)[0], rtol=tolerance, atol=tolerance)
