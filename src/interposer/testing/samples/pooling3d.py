"""Samples of 3D pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataLayout, DataType, Quantization
from interposer.ops import OutputShapeRounding, PaddingMethod, Pooling3d, PoolingAlgorithm
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, SMALL_FLOATS, TINY_INTEGERS, plain

__all__: list[str] = []

QUANTIZED: Final = {
    DataType.UINT8: Quantization(1 / 32, 128),
    DataType.INT8: Quantization(1 / 32, -3),
    DataType.INT16: Quantization(1 / 4096),
}
CUBE: Final[dict[str, Any]] = {
    "pool_width": 2, "pool_height": 2, "pool_depth": 2, "stride_x": 2, "stride_y": 1, "stride_z": 2,
}  # fmt: skip
WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "global": {},
    "plain": CUBE,
    "pads": CUBE | {"pad_left": 1, "pad_bottom": 1, "pad_front": 1, "pad_back": 1},
    "ceiling": CUBE | {"output_shape_rounding": OutputShapeRounding.CEILING},
    "dilations": CUBE | {"dilation_z": 2, "dilation_x": 3, "pad_right": 1},
    "with-padding": CUBE | {"pad_top": 1, "pad_back": 1, "padding_method": PaddingMethod.IGNORE_VALUE},
}
SHAPES: Final = {DataLayout.NDHWC: (2, 4, 5, 5, 3), DataLayout.NCDHW: (2, 3, 4, 5, 5)}


@samples(Pooling3d)
def pooling3d() -> Iterator[Sample]:
    """Yield Pooling3d samples.

    They cover every pooling type, window, layout and type; integers that are not quantized only with MAX.
    """
    for algorithm in PoolingAlgorithm:
        for name, window in WINDOWS.items():
            for layout, shape in SHAPES.items():
                op = Pooling3d(algorithm, **window, data_layout=layout)
                title = f"{algorithm.name.lower()}-{name}-{layout}"
                for dtype in FLOATS:
                    yield Sample(op, [given(shape, dtype)], name=f"{title}-{dtype}")
                for dtype, quantization in QUANTIZED.items():
                    yield Sample(op, [given(shape, dtype, quantization)], name=f"{title}-quantized-{dtype}")
                if algorithm is PoolingAlgorithm.MAX:
                    yield Sample(op, [given(shape, DataType.INT32, high=90)], name=f"{title}-int32")
    for dtype in (*SMALL_FLOATS, *INTEGERS, *TINY_INTEGERS):
        yield Sample(Pooling3d(**CUBE), [plain((1, 3, 4, 5, 2), dtype)], name=f"type-{dtype}")


@samples(Pooling3d)
def worked() -> Iterator[Sample]:
    """Yield a worked Pooling3d example for each algorithm: the window is the eight cells of a cube."""
    cells = of(np.array([1, 2, 3, 4, 5, 6, 7, 9.0]).reshape(1, 1, 2, 2, 2))
    roots = {PoolingAlgorithm.MAX: 9, PoolingAlgorithm.AVERAGE: 37 / 8, PoolingAlgorithm.L2: np.sqrt(221 / 8)}
    for algorithm, value in roots.items():
        expected = np.full((1, 1, 1, 1, 1), value, np.float32)
        yield Sample(Pooling3d(algorithm), [cells], name=f"worked-{algorithm.name.lower()}", expected=[expected])
