"""Samples of windows that slide along any number of axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType, Quantization
from interposer.ops import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling, OutputShapeRounding
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, QUANTIZED, SMALL_FLOATS, declared, f32, plain, typed

__all__: list[str] = []

IMAGES: Final[dict[str, tuple[int, ...]]] = {"1d": (2, 3, 7), "2d": (2, 2, 5, 6), "3d": (1, 2, 4, 3, 5)}
WINDOWS: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "plain": {"window_shape": (2, 3, 2)},
    "strides": {"window_shape": (2, 2, 2), "strides": (2, 1, 3)},
    "pads": {"window_shape": (3, 2, 3), "strides": (2, 2, 1), "pad_list": ((1, 1), (0, 1), (2, 0))},
    "dilations": {"window_shape": (2, 2, 2), "dilations": (2, 2, 3), "pad_list": ((0, 1), (1, 0), (1, 1))},
}
CEILING: Final = OutputShapeRounding.CEILING


def _window(name: str, axes: int) -> dict[str, Any]:
    return {key: numbers[:axes] for key, numbers in WINDOWS[name].items()}


@samples(MaxPoolingWithIndices)
def maxima() -> Iterator[Sample]:
    """Yield MaxPoolingWithIndices samples.

    They cover every window with one to three axes, both orders of index numbering, every type, and equal elements.
    """
    for axes, (dimensions, shape) in enumerate(IMAGES.items(), start=1):
        for name in WINDOWS:
            op = MaxPoolingWithIndices(**_window(name, axes))
            for label, variant in (
                ("", op),
                ("-ceiling", op.replace(output_shape_rounding=CEILING)),
                ("-columns", op.replace(column_major=True)),
            ):
                yield Sample(variant, [given(shape)], name=f"{dimensions}-{name}{label}")
    op = MaxPoolingWithIndices(**_window("pads", 2))
    for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS):
        yield Sample(op, [plain((1, 2, 4, 4), dtype)], name=f"type-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        yield Sample(op, [given((1, 2, 4, 4), dtype, quantization)], name=f"quantized-{dtype}")
    yield Sample(op, [given((0, 2, 4, 4))], name="empty")
    worked = [f32([[[3, 3, 2]]]), np.array([[[1, 1, 2]]])]
    window = MaxPoolingWithIndices(window_shape=(2,))
    yield Sample(window, [of([[[1, 3, 2, 2]]])], name="worked", expected=worked)
    columns = [f32([[[[8]]]]), np.array([[[[4]]]])]
    image = of([[[[1, 2, 8], [3, 4, 5]]]])
    op = MaxPoolingWithIndices(window_shape=(2, 3), column_major=True)
    yield Sample(op, [image], name="worked-columns", expected=columns)


@samples(LpPooling)
def norms() -> Iterator[Sample]:
    """Yield LpPooling samples: every window with one to three axes, several exponents, and every type."""
    for axes, (dimensions, shape) in enumerate(IMAGES.items(), start=1):
        for name in WINDOWS:
            for p in (1, 2, 3):
                op = LpPooling(**_window(name, axes), p=p)
                yield Sample(op, [given(shape)], name=f"{dimensions}-{name}-{p}")
                ceiling = op.replace(output_shape_rounding=CEILING)
                yield Sample(ceiling, [given(shape)], name=f"{dimensions}-{name}-{p}-ceiling")
    op = LpPooling(**_window("pads", 2))
    for dtype in (*FLOATS, *SMALL_FLOATS):
        yield Sample(op, [given((1, 2, 4, 4), dtype)], name=f"type-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        x = given((1, 2, 4, 4), dtype, quantization)
        coarser_info = declared(op, x, q=Quantization(quantization.scale * 4, quantization.zero_point))
        yield Sample(op, [x], [coarser_info], f"quantized-{dtype}")
    yield Sample(LpPooling(window_shape=(2,)), [of([[[3, 4, 0]]])], name="worked", expected=[f32([[[5, 4]]])])


@samples(MaxUnpooling)
def unpooled() -> Iterator[Sample]:
    """Yield MaxUnpooling samples: one, two and three axes, and every type."""
    for label, x in typed((1, 1, 2, 2), [DataType.STRING]):
        indices = of([[[[0, 3], [10, 15]]]], DataType.INT64)
        yield Sample(MaxUnpooling((4, 4)), [x, indices], name=f"type-{label}")
    for shape, sizes in (((2, 3, 2), (5,)), ((1, 2, 1, 2), (3, 4)), ((1, 1, 2, 1, 1), (4, 2, 2)), ((1, 0, 2), (4,))):
        flat_indices = np.arange(math.prod(shape)).reshape(shape) * 2
        operands = [given(shape), of(flat_indices, DataType.INT64)]
        yield Sample(MaxUnpooling(sizes), operands, name="x".join(map(str, shape)))
    worked = [of([[[3, 7]]]), of([[[1, 2]]], DataType.INT64)]
    yield Sample(MaxUnpooling((4,)), worked, name="worked", expected=[f32([[[0, 3, 7, 0]]])])


@samples(Col2Im)
def overlaid() -> Iterator[Sample]:
    """Yield Col2Im samples: every window with one to three axes, and every type."""
    for axes, (dimensions, shape) in enumerate(IMAGES.items(), start=1):
        for name in WINDOWS:
            op = Col2Im(**_window(name, axes), image_shape=shape[2:])
            rows, columns = shape[1] * math.prod(op.window_shape), math.prod(op.places())
            yield Sample(op, [given((shape[0], rows, columns))], name=f"{dimensions}-{name}")
    op = Col2Im(window_shape=(2, 2), image_shape=(3, 3))
    for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS):
        yield Sample(op, [plain((2, 8, 4), dtype, low=-9, high=9)], name=f"type-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        x = given((2, 8, 4), dtype, quantization)
        yield Sample(
            op,
            [x],
            [declared(op, x, q=Quantization(quantization.scale * 4, quantization.zero_point))],
            f"quantized-{dtype}",
        )
    op = Col2Im(window_shape=(2,), image_shape=(3,))
    yield Sample(op, [of([[[1, 2], [10, 20]]])], name="worked", expected=[f32([[[1, 12, 20]]])])
