"""Pooling of volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import DataLayout, TensorInfo
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, PoolingAlgorithm, places_of_pool, pool_window
from interposer.ops.volume import VOLUMES, Windows, spatial_axes, window_problems

__all__ = ["Pooling3d"]


@op
class Pooling3d(Op):
    """3D pooling: reduce every window that slides through a volume, independently for each channel.

    MAX takes the maximum, AVERAGE the mean, L2 the root of the mean square. MAX ignores padding, and a window that
    contains only padding gives 0. If all strides and all sizes are 0, the window is the whole volume (global pooling).

    Shapes (NDHWC; NCDHW in brackets):
        input: (N, D, H, W, C) [(N, C, D, H, W)]
        output: (N, OD, OH, OW, C) [(N, C, OD, OH, OW)],
            where OD = round((D + pads - (pool_depth - 1) * dilation - 1) / stride) + 1, OH and OW likewise;
            with CEILING, a last window that would begin after the volume and its leading padding is dropped

    Example:
        >>> volume = np.arange(12.0).reshape(1, 1, 2, 2, 3)
        >>> compute(Pooling3d(pool_type=PoolingAlgorithm.AVERAGE), volume).tolist()
        [[[[[5.5]]]]]
        >>> op = Pooling3d(pool_width=2, pool_height=2, pool_depth=2, stride_x=1, stride_y=1, stride_z=1)
        >>> compute(op, volume).tolist()
        [[[[[10.0, 11.0]]]]]

    Source:
        ONNX MaxPool-22, AveragePool-22, GlobalMaxPool-22, GlobalAveragePool-22, LpPool-22 of rank 5;
        Arm NN Pooling3dDescriptor.
    """

    input = operand(rank=5)
    output = result(rank=5, dtype_of="input")

    pool_type: PoolingAlgorithm = attribute(default=PoolingAlgorithm.MAX, doc="The function that reduces a window.")
    pad_left: int = attribute(default=0, ge=0, doc="Padding on the left, in columns.")
    pad_right: int = attribute(default=0, ge=0, doc="Padding on the right, in columns.")
    pad_top: int = attribute(default=0, ge=0, doc="Padding at the top, in rows.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Padding at the bottom, in rows.")
    pad_front: int = attribute(default=0, ge=0, doc="Padding at the front, in planes.")
    pad_back: int = attribute(default=0, ge=0, doc="Padding at the back, in planes.")
    pool_width: int = attribute(default=0, ge=0, doc="Width of the window; 0 means the whole width.")
    pool_height: int = attribute(default=0, ge=0, doc="Height of the window; 0 means the whole height.")
    pool_depth: int = attribute(default=0, ge=0, doc="Depth of the window; 0 means the whole depth.")
    stride_x: int = attribute(default=0, ge=0, doc="Stride along the width; 0 in all directions means a single window.")
    stride_y: int = attribute(
        default=0, ge=0, doc="Stride along the height; 0 in all directions means a single window."
    )
    stride_z: int = attribute(default=0, ge=0, doc="Stride along the depth; 0 in all directions means a single window.")
    output_shape_rounding: OutputShapeRounding = attribute(
        default=OutputShapeRounding.FLOOR, doc="Rounding of the output size."
    )
    padding_method: PaddingMethod = attribute(default=PaddingMethod.EXCLUDE, doc="Whether an average includes padding.")
    data_layout: DataLayout = attribute(default=DataLayout.NCDHW, choices=VOLUMES, doc="The layout of the volume.")
    dilation_x: int = attribute(default=1, ge=1, doc="Dilation along the width.")
    dilation_y: int = attribute(default=1, ge=1, doc="Dilation along the height.")
    dilation_z: int = attribute(default=1, ge=1, doc="Dilation along the depth.")

    @property
    def traits(self) -> Trait:
        return Trait.CHOOSES if self.pool_type is PoolingAlgorithm.MAX else Trait.NONE

    def windows(self, depth: int, height: int, width: int) -> Windows:
        """Return the sliding windows along depth, height and width for a volume of this size."""
        return (
            pool_window(self.pool_depth, depth, self.stride_z, self.dilation_z, self.pad_front, self.pad_back),
            pool_window(self.pool_height, height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            pool_window(self.pool_width, width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    def check(self, input: TensorInfo) -> Iterator[str]:
        strides = (self.stride_z, self.stride_y, self.stride_x)
        sizes = (self.pool_depth, self.pool_height, self.pool_width)
        if any(strides) and not all(strides):
            yield f"the strides (z, y, x) are {strides}; expected all or none to be 0"
        elif any(strides) and not all(sizes):
            yield f"the window has the dimensions (depth, height, width) {sizes}; expected at least 1"
        else:
            dimensions = self._dimensions(input)
            rounded_up = self.output_shape_rounding is OutputShapeRounding.CEILING
            yield from window_problems(self.windows(*dimensions), dimensions, rounded_up=rounded_up)

    def _dimensions(self, input: TensorInfo) -> list[int]:
        return [input.shape[axis] for axis in spatial_axes(self.data_layout)]

    def infer(self, input: TensorInfo) -> TensorInfo:
        shape, sizes = list(input.shape), self._dimensions(input)
        for axis, window in zip(spatial_axes(self.data_layout), self.windows(*sizes), strict=True):
            shape[axis] = places_of_pool(window, shape[axis], self.output_shape_rounding, self.stride_x > 0)
        return input.with_shape(shape)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        input = inputs[0]
        assert input is not None
        depth, height, width = self.windows(*self._dimensions(input))
        return int(outputs[0].num_elements) * depth.size * height.size * width.size
