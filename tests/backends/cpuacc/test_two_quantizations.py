"""Operators whose result has another quantization than the operand give what the reference gives, also if refused."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Quantization, TensorInfo
from interposer.ops import Pooling2d, PoolingAlgorithm, Resize, ResizeMethod

OPERATORS = [
    *(Resize(5, 7, method) for method in ResizeMethod),
    *(Pooling2d(pool_type=kind, pool_width=2, pool_height=2) for kind in PoolingAlgorithm),
]


@pytest.mark.usefixtures("shared_cpuacc")
@pytest.mark.needs_cpuref
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_a_result_of_another_quantization_is_right(op, dtype):
    shape = (1, 16, 3, 4)
    network = ip.Network("rescaled")
    x = network.add_input_layer(0, TensorInfo(shape, dtype, Quantization(0.5, 3)))
    [info] = op.infer_infos(TensorInfo(shape, dtype, Quantization(0.5, 3)))
    layer = network.add_layer(op, x, outputs=[info.with_quantization(Quantization(0.75, 5))])
    network.add_output_layer(0, layer)
    array = np.random.default_rng(5).integers(0, 100, shape).astype(dtype)
    ours, theirs = (ip.load(network, backends).run([array])[0] for backends in (["CpuAcc", "CpuRef"], ["CpuRef"]))
    np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(ours, ip.load(same_quantization(op, shape, dtype), ["CpuRef"]).run([array])[0])


def same_quantization(op, shape, dtype):
    network = ip.Network("same")
    x = network.add_input_layer(0, TensorInfo(shape, dtype, Quantization(0.5, 3)))
    network.add_output_layer(0, network.add_layer(op, x))
    return network
