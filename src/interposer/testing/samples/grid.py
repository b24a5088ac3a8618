"""Samples of GridSample and AffineGrid."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType, Quantization
from interposer.ops import AffineGrid, GridPadding, GridSample, GridSampleMode
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, QUANTIZED, SMALL_FLOATS, declared, f32, typed

__all__: list[str] = []

LINEAR, NEAREST, CUBIC = GridSampleMode.LINEAR, GridSampleMode.NEAREST, GridSampleMode.CUBIC
IMAGES = {1: ((2, 2, 5), (2, 4, 1)), 2: ((2, 2, 3, 4), (2, 3, 5, 2)), 3: ((1, 2, 3, 2, 3), (1, 2, 2, 3, 3))}


@samples(GridSample)
def sampled() -> Iterator[Sample]:
    """Yield GridSample samples.

    They cover every mode and padding, one to three spatial axes, and positions inside and outside the image.
    """
    for mode in GridSampleMode:
        for padding in GridPadding:
            for align_corners in (False, True):
                title = f"{mode.name.lower()}-{padding.name.lower()}-{'align_corners' if align_corners else 'edges'}"
                op = GridSample(mode, padding, align_corners)
                for axes, (image, grid) in IMAGES.items():
                    yield Sample(op, [given(image), given(grid, low=-2.5, high=2.5)], name=f"{title}-{axes}d")
    for image, grid in (((2, 0, 3, 3), (2, 2, 2, 2)), ((1, 1, 0, 3), (1, 2, 2, 2)), ((1, 1, 2, 2), (1, 0, 2, 2))):
        yield Sample(GridSample(), [given(image), given(grid)], name=f"empty-{'x'.join(map(str, image + grid))}")


@samples(GridSample)
def types() -> Iterator[Sample]:
    """Yield GridSample samples: every float and quantized type of images and grids; NEAREST in all but strings."""
    image, grid_shape = (1, 2, 3, 4), (1, 3, 5, 2)
    for mode in (LINEAR, CUBIC):
        for dtype in (*FLOATS, *SMALL_FLOATS):
            op, grid = GridSample(mode), given(grid_shape, low=-1.5, high=1.5)
            yield Sample(op, [given(image, dtype), grid], name=f"{mode.name.lower()}-{dtype}")
        for dtype, quantization in QUANTIZED.items():
            operands, coarser_quantization = (
                [given(image, dtype, quantization), grid],
                Quantization(quantization.scale * 2, quantization.zero_point),
            )
            yield Sample(op, operands, name=f"{mode.name.lower()}-quantized-{dtype}")
            info = declared(op, *operands, q=coarser_quantization)
            yield Sample(op, operands, [info], f"{mode.name.lower()}-two-scales-{dtype}")
    for dtype in FLOATS:
        grid = given(grid_shape, dtype, low=-1.5, high=1.5)
        yield Sample(GridSample(), [given(image, dtype), grid], name=f"places-{dtype}")
    for label, operand in typed(image, [DataType.STRING]):
        yield Sample(
            GridSample(NEAREST), [operand, given(grid_shape, low=-1.5, high=1.5)], name=f"nearest-type-{label}"
        )


@samples(GridSample)
def worked() -> Iterator[Sample]:
    """Yield worked GridSample examples for the corners, edges, center and outside of an image of two by two pixels."""
    image, grid = of([[[[1, 2], [3, 4]]]]), of([[[[-1, -1], [1, -1], [0, 0], [-1, 0], [3, 3]]]])
    for op, title, expected in (
        (GridSample(align_corners=True), "corners", [1, 2, 2.5, 2, 0]),
        (GridSample(), "edges", [0.25, 0.5, 2.5, 1, 0]),
        (GridSample(padding_mode=GridPadding.BORDER), "border", [1, 2, 2.5, 2, 4]),
        (GridSample(NEAREST, GridPadding.REFLECTION), "reflection", [1, 2, 1, 1, 1]),
    ):
        yield Sample(op, [image, grid], name=f"worked-{title}", expected=[f32([[[expected]]])])


@samples(AffineGrid)
def grids() -> Iterator[Sample]:
    """Yield AffineGrid samples.

    They cover two and three spatial axes, with and without aligned corners, every type, one pixel and no pixels.
    """
    for align_corners in (False, True):
        title = "corners" if align_corners else "edges"
        for dtype in FLOATS:
            yield Sample(AffineGrid((3, 4), align_corners), [given((2, 2, 3), dtype)], name=f"{title}-2d-{dtype}")
            yield Sample(AffineGrid((2, 3, 2), align_corners), [given((2, 3, 4), dtype)], name=f"{title}-3d-{dtype}")
        for sizes in ((1, 1), (0, 2)):
            yield Sample(AffineGrid(sizes, align_corners), [given((1, 2, 3))], name=f"{title}-{sizes}")
    theta = of([[[1, 0, 0.5], [0, 2, 0]]])
    expected = f32([[[[-0.5, -2], [1.5, -2]], [[-0.5, 2], [1.5, 2]]]])
    yield Sample(AffineGrid((2, 2), True), [theta], name="worked", expected=[expected])
