"""Samples of Resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interposer.core.types import DataLayout, DataType
from interposer.ops import Resize, ResizeMethod
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import f32, image_shape, quantized, typed

__all__: list[str] = []

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
LAYOUTS: Final = {"nhwc": NHWC, "nchw": NCHW}
BILINEAR, NEAREST = ResizeMethod.BILINEAR, ResizeMethod.NEAREST_NEIGHBOR
PLACES: Final = {
    "corners": {},
    "aligned": {"align_corners": True},
    "centers": {"half_pixel_centers": True},
}
SIZES: Final = ((4, 6), (2, 3), (1, 1), (3, 7), (8, 12), (5, 2))


@samples(Resize)
def sizes() -> Iterator[Sample]:
    """Yield Resize samples.

    They cover smaller, larger and equal sizes, both methods, all coordinate conventions, and both layouts.
    """
    for label, layout in LAYOUTS.items():
        for method in ResizeMethod:
            for convention, options in PLACES.items():
                for height, width in SIZES:
                    op = Resize(width, height, method, layout, **options)
                    title = f"{method.name.lower()}-{convention}-{height}x{width}-{label}"
                    yield Sample(op, [given(image_shape(layout, 2, 4, 6, 2))], name=title)
                    if layout is NHWC:
                        for dtype in (DataType.INT8, DataType.UINT8):
                            image = quantized((1, 4, 6, 2), dtype)
                            yield Sample(op, [image], name=f"{title}-quantized-{dtype}")


@samples(Resize)
def types() -> Iterator[Sample]:
    """Yield Resize samples: all types, booleans and strings only with NEAREST; no images, and images of one pixel."""
    for label, image in typed((1, 3, 4, 2)):
        yield Sample(Resize(6, 5, NEAREST, NHWC), [image], name=f"type-nearest-{label}")
    for label, image in typed((1, 3, 4, 2), [DataType.STRING, DataType.BOOL]):
        yield Sample(Resize(6, 5, BILINEAR, NHWC), [image], name=f"type-bilinear-{label}")
    for method in ResizeMethod:
        for title, shape in {"no-images": (0, 2, 2, 1), "pixel": (1, 1, 1, 2)}.items():
            yield Sample(Resize(3, 3, method, NHWC), [given(shape)], name=f"{title}-{method.name.lower()}")


@samples(Resize)
def worked() -> Iterator[Sample]:
    """Yield worked Resize examples: two pixels resized to four, by each method and each coordinate convention."""
    row = of(f32([0, 3]).reshape(1, 1, 2, 1))
    for method, convention, expected in [
        (NEAREST, "corners", [0, 0, 3, 3]),
        (NEAREST, "aligned", [0, 0, 3, 3]),
        (NEAREST, "centers", [0, 0, 3, 3]),
        (BILINEAR, "corners", [0, 1.5, 3, 3]),
        (BILINEAR, "aligned", [0, 1, 2, 3]),
        (BILINEAR, "centers", [0, 0.75, 2.25, 3]),
    ]:
        array = f32(expected).reshape(1, 1, 4, 1)
        op, title = Resize(4, 1, method, NHWC, **PLACES[convention]), f"worked-{method.name.lower()}-{convention}"
        yield Sample(op, [row], name=title, expected=[array])
