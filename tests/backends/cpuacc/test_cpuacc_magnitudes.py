"""CpuAcc computes with numbers from 2e-38 to 3e38, in double precision where float32 would overflow on the way."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import registered_ops
from interposer.core.types import DataLayout
from interposer.ops import ActivationFunction, PoolingAlgorithm
from interposer.testing import check_backend, samples_of

pytestmark = pytest.mark.usefixtures("shared_cpuacc")


def test_samples_of_extreme_magnitudes_give_the_results_of_the_reference() -> None:
    samples = [sample for op in registered_ops().values() for sample in samples_of(op) if sample.extreme]
    report = check_backend("CpuAcc", only="results/*", samples=samples)
    assert report.failures == []
    assert report.counts["pass"] > 400


@pytest.mark.parametrize("x", [1e22, 3e38])
@pytest.mark.parametrize("function", [ActivationFunction.MISH, ActivationFunction.HARD_SWISH, ActivationFunction.GELU])
def test_an_activation_that_is_the_identity_far_from_zero_does_not_overflow(function, x) -> None:
    network = ip.Network()
    layer = network.add_activation_layer(network.add_input_layer(0, ip.TensorInfo((37,))), function=function)
    network.add_output_layer(0, layer)
    values = np.full(37, x, np.float32)
    np.testing.assert_allclose(ip.load(network, backends=["CpuAcc"])(values), values, rtol=1e-6)


@pytest.mark.parametrize("channels", [3, 16, 32])
def test_a_pool_of_a_window_with_infinity_is_still_infinite(channels) -> None:
    network = ip.Network()
    image = network.add_input_layer(0, ip.TensorInfo((1, 4, 4, channels)))
    layer = network.add_pooling2d_layer(
        image,
        pool_type=PoolingAlgorithm.AVERAGE,
        pool_width=2,
        pool_height=2,
        stride_x=2,
        stride_y=2,
        data_layout=DataLayout.NHWC,
    )
    network.add_output_layer(0, layer)
    values = np.full((1, 4, 4, channels), 3e38, np.float32)
    values[0, 0, 0, 1] = np.inf
    means = ip.load(network, backends=["CpuAcc"])(values)
    assert np.isinf(means).sum() == 1
    np.testing.assert_allclose(means[np.isfinite(means)], 3e38, rtol=1e-6)
