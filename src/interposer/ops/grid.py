"""Sampling of images at positions that are data, and grids of such positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import DataType, Dim, TensorInfo, differ
from interposer.ops.axes import quantized_axis_problems

__all__ = ["AffineGrid", "GridPadding", "GridSample", "GridSampleMode"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)


class GridSampleMode(Enum):
    """How `GridSample` interpolates between the pixels around a position."""

    LINEAR = 0
    """Linear interpolation between the two nearest pixels along each axis."""
    NEAREST = 1
    """The nearest pixel; half-way between two pixels, the one with the even index."""
    CUBIC = 2
    """Keys' cubic convolution of the four nearest pixels along each axis, with a = -0.75."""


class GridPadding(Enum):
    """How `GridSample` extends the image beyond its border."""

    ZEROS = 0
    """Zeros."""
    BORDER = 1
    """The nearest pixel of the border, for each of the pixels that are mixed."""
    REFLECTION = 2
    """The image mirrored at its edges, repeatedly."""


@op
class GridSample(Op):
    """Sample images at the positions of a grid.

    A position has one coordinate per spatial axis, the last axis first (x, then y). With ``align_corners``, -1 and 1
    are the centers of the first and the last pixel, else their outer edges.

    Shapes (for images with two spatial axes; other numbers of spatial axes work alike):
        input: (N, C, H, W)
        grid: (N, OH, OW, 2)
        output: (N, C, OH, OW)

    Example:
        >>> image = [[[[1.0, 2.0, 3.0]]]]
        >>> places = [[[[-1.0, 0.0], [0.5, 0.0], [1.0, 0.0], [2.0, 0.0]]]]
        >>> compute(GridSample(align_corners=True), image, places).tolist()
        [[[[1.0, 2.5, 3.0, 0.0]]]]
        >>> nearest = GridSample(mode=GridSampleMode.NEAREST, padding_mode=GridPadding.BORDER, align_corners=True)
        >>> compute(nearest, image, places).tolist()
        [[[[1.0, 3.0, 3.0, 3.0]]]]

    Source:
        ONNX GridSample-22.
    """

    input = operand(rank=(3, 8))
    grid = operand(role=Role.PARAMETER, rank=(3, 8), dtypes=_FLOATS)
    output = result(dtype_of="input")

    mode: GridSampleMode = attribute(default=GridSampleMode.LINEAR, doc="How pixels are interpolated.")
    padding_mode: GridPadding = attribute(default=GridPadding.ZEROS, doc="How the image is extended beyond its border.")
    align_corners: bool = attribute(
        default=False, doc="The coordinates -1 and 1 are the centers of the outer pixels, not their edges."
    )

    @property
    def traits(self) -> Trait:
        return Trait.DISCONTINUOUS if self.mode is GridSampleMode.NEAREST else Trait.NONE

    def check(self, input: TensorInfo, grid: TensorInfo) -> Iterator[str]:
        axes = input.rank - 2
        if grid.rank != input.rank or differ(grid.shape[-1], axes):
            expected = f"rank {input.rank}, and {axes} coordinates as its last dimension"
            yield f"grid has shape {grid.shape}; expected {expected}"
        elif differ(input.shape[0], grid.shape[0]):
            yield f"input has shape {input.shape} and grid {grid.shape}; expected the same batch size"
        if 0 in input.shape[2:] and self.padding_mode is not GridPadding.ZEROS:
            yield f"the images of shape {input.shape} have no pixels"
        yield from quantized_axis_problems(input, range(2, input.rank), "sample")

    def infer(self, input: TensorInfo, grid: TensorInfo) -> TensorInfo:
        batch = grid.shape[0] if isinstance(input.shape[0], Dim) else input.shape[0]
        return input.with_shape((batch, input.shape[1], *grid.shape[1:-1]))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        pixels = {GridSampleMode.LINEAR: 2, GridSampleMode.NEAREST: 1, GridSampleMode.CUBIC: 4}[self.mode]
        return 2 * int(outputs[0].num_elements) * int(pixels ** (outputs[0].rank - 2))


@op
class AffineGrid(Op):
    """A grid for `GridSample`: the positions of an image's pixels under an affine transformation.

    The position p of a pixel, in the coordinates of `GridSample`, becomes theta[:, :-1] p + theta[:, -1].

    Shapes:
        theta: (N, 2, 3), or (N, 3, 4)
        output: (N, H, W, 2), or (N, D, H, W, 3)

    Example:
        >>> mirror = [[[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
        >>> grid = compute(AffineGrid(extents=(1, 4)), mirror)
        >>> grid.tolist()
        [[[[0.75, 0.0], [0.25, 0.0], [-0.25, 0.0], [-0.75, 0.0]]]]
        >>> compute(GridSample(), [[[[1.0, 2.0, 3.0, 4.0]]]], grid).tolist()
        [[[[4.0, 3.0, 2.0, 1.0]]]]

    Source:
        ONNX AffineGrid-20, whose second input ends with ``extents``.
    """

    theta = operand(rank=3, dtypes=_FLOATS)
    output = result(rank=(4, 5), dtype_of="theta")

    extents: tuple[int, ...] = attribute(ge=0, doc="Height and width of the image, or depth, height and width.")
    align_corners: bool = attribute(
        default=False, doc="The coordinates -1 and 1 are the centers of the outer pixels, not their edges."
    )

    def check(self, theta: TensorInfo) -> Iterator[str]:
        axes = len(self.extents)
        if axes not in (2, 3):
            yield f"extents is {self.extents}; expected two or three"
        elif differ(theta.shape[1], axes) or differ(theta.shape[2], axes + 1):
            yield f"theta has shape {theta.shape}; expected matrices of {axes} rows and {axes + 1} columns"

    def infer(self, theta: TensorInfo) -> TensorInfo:
        return theta.with_shape((theta.shape[0], *self.extents, len(self.extents)))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 2 * int(outputs[0].num_elements) * len(self.extents) + math.prod(self.extents)
