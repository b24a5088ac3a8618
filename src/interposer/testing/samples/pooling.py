"""Samples of 2D pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import (
    FLOATS,
    INTEGERS,
    SMALL_FLOATS,
    TINY_INTEGERS,
    declared,
    f32,
    image_shape,
    plain,
)

__all__: list[str] = []

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
LAYOUTS: Final = {"nhwc": NHWC, "nchw": NCHW}
MAX, AVERAGE, L2 = PoolingAlgorithm.MAX, PoolingAlgorithm.AVERAGE, PoolingAlgorithm.L2
SQUARE: Final[dict[str, Any]] = {"pool_width": 3, "pool_height": 3, "stride_x": 2, "stride_y": 2}
WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "global": {},
    "square": SQUARE,
    "padded": {**SQUARE, "pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1},
    "uneven": {"pool_width": 2, "pool_height": 3, "stride_x": 3, "stride_y": 1, "pad_left": 1, "pad_bottom": 2},
    "ceiling": {**SQUARE, "pad_top": 1, "output_shape_rounding": OutputShapeRounding.CEILING},
    "dilated": {**SQUARE, "dilation_x": 2, "dilation_y": 2, "pad_left": 1, "pad_right": 1},
    "pixels": {"pool_width": 1, "pool_height": 1, "stride_x": 1, "stride_y": 1},
    "wide-pads": {"pool_width": 2, "pool_height": 2, "stride_x": 2, "stride_y": 2, "pad_left": 2, "pad_top": 3},
}
QUANTIZED: Final = {
    DataType.UINT8: Quantization(1 / 32, 120),
    DataType.INT8: Quantization(1 / 32, -3),
    DataType.INT16: Quantization(1 / 4096),
}


@samples(Pooling2d)
def windows() -> Iterator[Sample]:
    """Yield Pooling2d samples: every pooling type with every window, in both layouts, in floats and quantized."""
    for label, layout in LAYOUTS.items():
        for pool_type in PoolingAlgorithm:
            for title, window in WINDOWS.items():
                op = Pooling2d(pool_type, data_layout=layout, **window)
                yield from _in_common_types(
                    op, image_shape(layout, 2, 6, 7, 3), f"{pool_type.name.lower()}-{title}-{label}"
                )


def _in_common_types(op: Pooling2d, shape: tuple[int, ...], title: str) -> Iterator[Sample]:
    for dtype in (DataType.FLOAT32, DataType.FLOAT16):
        yield Sample(op, [given(shape, dtype)], name=f"{title}-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        image = given(shape, dtype, quantization)
        yield Sample(op, [image], [declared(op, image, q=quantization)], f"{title}-{dtype}")


@samples(Pooling2d)
def padding_methods() -> Iterator[Sample]:
    """Yield Pooling2d samples.

    They cover averages with and without the padding, and windows that exceed the padding by CEILING.
    """
    for pool_type in (AVERAGE, L2):
        for method in PaddingMethod:
            for rounding in OutputShapeRounding:
                for title in ("padded", "uneven", "wide-pads"):
                    window = WINDOWS[title] | {"padding_method": method, "output_shape_rounding": rounding}
                    op = Pooling2d(pool_type, data_layout=NHWC, **window)
                    label = f"{pool_type.name}-{method.name}-{rounding.name}-{title}".lower()
                    yield from _in_common_types(op, (1, 6, 7, 2), label)


@samples(Pooling2d)
def types() -> Iterator[Sample]:
    """Yield Pooling2d samples: all types; integers that are not quantized only with MAX."""
    for dtype in (*FLOATS, *SMALL_FLOATS):
        for pool_type in PoolingAlgorithm:
            op = Pooling2d(pool_type, **SQUARE)
            yield Sample(op, [given((1, 2, 5, 5), dtype)], name=f"type-{pool_type.name.lower()}-{dtype}")
    for dtype in (*INTEGERS, *TINY_INTEGERS):
        yield Sample(Pooling2d(MAX, **SQUARE), [plain((1, 2, 5, 5), dtype)], name=f"type-max-{dtype}")


@samples(Pooling2d)
def rescaled() -> Iterator[Sample]:
    """Yield quantized Pooling2d samples whose output has another scale than the input."""
    for pool_type in PoolingAlgorithm:
        for dtype, quantization in QUANTIZED.items():
            op = Pooling2d(pool_type, data_layout=NHWC, **SQUARE)
            output = TensorInfo((1, 2, 2, 2), dtype, Quantization(quantization.scale * 1.5, quantization.zero_point))
            yield Sample(
                op, [given((1, 5, 5, 2), dtype, quantization)], [output], f"rescaled-{pool_type.name.lower()}-{dtype}"
            )


@samples(Pooling2d)
def unusual_shapes() -> Iterator[Sample]:
    """Yield Pooling2d samples: an empty batch, images without channels, and an image of one pixel."""
    for pool_type in PoolingAlgorithm:
        for title, shape in {"no-images": (0, 5, 5, 2), "no-channels": (2, 5, 5, 0), "whole": (1, 3, 3, 1)}.items():
            op = Pooling2d(pool_type, data_layout=NHWC, **SQUARE)
            yield Sample(op, [given(shape)], name=f"{pool_type.name.lower()}-{title}")


@samples(Pooling2d)
def worked() -> Iterator[Sample]:
    """Yield worked Pooling2d examples: a window over the numbers 1 to 9, and the corner of a padded image."""
    image = of(np.arange(1, 10).reshape(1, 1, 3, 3))
    for pool_type, expected in {MAX: 9, AVERAGE: 5, L2: np.sqrt(285 / 9)}.items():
        expected_arrays = [np.full((1, 1, 1, 1), expected, np.float32)]
        yield Sample(Pooling2d(pool_type), [image], name=f"worked-{pool_type.name.lower()}", expected=expected_arrays)
    corner: dict[str, Any] = {
        "pool_width": 2,
        "pool_height": 2,
        "stride_x": 4,
        "stride_y": 4,
        "pad_left": 1,
        "pad_top": 1,
    }
    for method, expected in {PaddingMethod.EXCLUDE: 1.0, PaddingMethod.IGNORE_VALUE: 0.25}.items():
        op = Pooling2d(AVERAGE, padding_method=method, **corner)
        expected_arrays = [np.full((1, 1, 1, 1), expected, np.float32)]
        yield Sample(op, [image], name=f"worked-corner-{method.name.lower()}", expected=expected_arrays)
    negative_image = of(f32([[-3, -2], [-5, -4]]).reshape(1, 1, 2, 2))
    op = Pooling2d(MAX, pool_width=2, pool_height=2, stride_x=2, stride_y=2, pad_left=1, pad_right=1)
    expected = f32([-3, -2]).reshape(1, 1, 1, 2)
    yield Sample(op, [negative_image], name="worked-padding-never-wins", expected=[expected])
