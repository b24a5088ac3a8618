"""Windows and reductions of quantized values are the reference's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.ops import PaddingMethod, Pooling2d, PoolingAlgorithm, Reduce, ReduceOperation, Requantization
from tests.backends.cpuacc.single import Layers

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

NCHW, NHWC = DataLayout.NCHW, DataLayout.NHWC
WINDOWS = {
    "2x2": Pooling2d(pool_height=2, pool_width=2, stride_x=2, stride_y=2),
    "3x3": Pooling2d(pool_height=3, pool_width=3, stride_x=2, stride_y=2, pad_left=1, pad_top=1, pad_right=1),
    "2x3": Pooling2d(pool_height=2, pool_width=3, stride_x=3, stride_y=1, dilation_x=2, pad_bottom=1),
    "9x8": Pooling2d(pool_height=9, pool_width=8, stride_x=1, stride_y=4),
    "17x17": Pooling2d(pool_height=17, pool_width=17, stride_x=1, stride_y=1),
    "all": Pooling2d(pool_height=18, pool_width=21, stride_x=1, stride_y=1),
}
SAME, OTHER = Quantization(0.05, 3), Quantization(0.0371, 9)


def add(layers: Layers, op: Pooling2d | Reduce, shape: tuple[int, ...], dtype: str, out: Quantization) -> None:
    """Add a layer on random values, and one on values at their limits."""
    limits = np.iinfo(dtype)
    result = op.infer(TensorInfo(shape, dtype, SAME)).with_quantization(out)
    rng = np.random.default_rng(3)
    for low, high in ((limits.min, limits.max), (limits.min, limits.min + 1)):
        given = rng.integers(low, high, shape, endpoint=True).astype(dtype)
        layers.add(f"{op} of {shape} from {low} to {high}", op, [given], quantization=SAME, result=result)


SHAPES = [(NCHW, (1, 2, 18, 21)), (NHWC, (1, 18, 21, 3)), (NHWC, (1, 18, 21, 21))]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("window", WINDOWS)
def test_averages_of_windows(window: str, dtype: str) -> None:
    layers = Layers()
    for layout, shape in SHAPES:
        op = WINDOWS[window].replace(pool_type=PoolingAlgorithm.AVERAGE, data_layout=layout)
        exact = op.replace(requantization=Requantization.HALF_TO_EVEN)
        add(layers, op, shape, dtype, SAME)
        add(layers, op.replace(padding_method=PaddingMethod.IGNORE_VALUE), shape, dtype, SAME)
        add(layers, exact, shape, dtype, SAME)
        add(layers, exact, shape, dtype, OTHER)
    layers.assert_like_the_reference()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_largest_values_of_windows(window: str, dtype: str) -> None:
    layers = Layers()
    for layout, shape in SHAPES:
        add(layers, WINDOWS[window].replace(data_layout=layout), shape, dtype, SAME)
    layers.assert_like_the_reference()


@pytest.mark.parametrize("axes", [(2, 3), (1, 2), (3,), (1, 3), (0, 1, 2, 3), (1,)], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "operation", [ReduceOperation.MEAN, ReduceOperation.SUM, ReduceOperation.MAX, ReduceOperation.MIN]
)
def test_reductions_of_rows_columns_and_other_axes(
    operation: ReduceOperation, dtype: str, axes: tuple[int, ...]
) -> None:
    layers, chooses = Layers(), operation in (ReduceOperation.MAX, ReduceOperation.MIN)
    for width in (5, 70):
        op = Reduce(axis=axes, operation=operation)
        add(layers, op, (2, 3, 9, width), dtype, SAME if chooses else OTHER)
        if not chooses:
            add(layers, op.replace(requantization=Requantization.HALF_TO_EVEN), (2, 3, 9, width), dtype, OTHER)
    layers.assert_like_the_reference()
