"""Operators with windows along any number of spatial axes: max and Lp pooling, unpooling, and Col2Im."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, DataType, TensorInfo, differ
from interposer.ops.pooling import OutputShapeRounding
from interposer.ops.window import Window

__all__ = ["Col2Im", "LpPooling", "MaxPoolingWithIndices", "MaxUnpooling"]


@op(register=False)
class _Windowed(Op):
    """Base class of operators with a window along all axes except batch and channels: attributes and checks."""

    window_shape: tuple[int, ...] = attribute(ge=1, doc="The size of the window along each spatial axis.")
    strides: tuple[int, ...] = attribute(default=(), ge=1, doc="The stride along each spatial axis; empty means 1.")
    dilations: tuple[int, ...] = attribute(default=(), ge=1, doc="The dilation along each spatial axis; empty means 1.")
    pad_list: tuple[tuple[int, int], ...] = attribute(
        default=(), ge=0, doc="Padding before and after each spatial axis; empty means none."
    )

    def windows(self) -> list[Window]:
        """Return the sliding windows, one for each spatial axis."""
        axes = len(self.window_shape)
        ones = (1,) * axes
        pads = self.pad_list or ((0, 0),) * axes
        by_axis = zip(self.window_shape, self.strides or ones, self.dilations or ones, pads, strict=True)
        return [Window(size, stride, dilation, before, after) for size, stride, dilation, (before, after) in by_axis]

    def _axes_problems(self, axes: int) -> Iterator[str]:
        for name in ("window_shape", "strides", "dilations", "pad_list"):
            values = getattr(self, name)
            if len(values) != axes and (values or name == "window_shape"):
                yield f"{name} is {values}; expected one for each of {axes} spatial axes"


@op(register=False)
class _Pooling(_Windowed):
    """Base class of `MaxPoolingWithIndices` and `LpPooling`: checks and the output shape."""

    input = operand(rank=(3, MAX_RANK))

    output_shape_rounding: OutputShapeRounding = attribute(
        default=OutputShapeRounding.FLOOR, doc="Rounding of the output size."
    )

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(self._axes_problems(input.rank - 2))
        yield from errors
        if not errors:
            for index, (window, size) in enumerate(zip(self.windows(), input.shape[2:], strict=True)):
                rounded_up = self.output_shape_rounding is OutputShapeRounding.CEILING
                yield from window.problems(size, f"axis {index + 2}", rounded_up=rounded_up)

    def _shape(self, input: TensorInfo) -> tuple[int, ...]:
        output_sizes = (
            self._places(*window_and_size) for window_and_size in zip(self.windows(), input.shape[2:], strict=True)
        )
        return (*input.shape[:2], *output_sizes)

    def _places(self, window: Window, size: int) -> int:
        is_floor = self.output_shape_rounding is OutputShapeRounding.FLOOR
        return window.places(size) if is_floor else window.places_rounded_up(size)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return int(outputs[0].num_elements) * math.prod(self.window_shape)


@op(traits=Trait.CHOOSES)
class MaxPoolingWithIndices(_Pooling):
    """Max pooling that also returns the index of each maximum.

    Among several equal maxima, the first one in the window is returned.

    Indices refer to the flattened tensor in row-major order; with ``column_major``, each channel is flattened in
    column-major order. A window that contains only padding gives 0 with index -1.

    Shapes:
        input: (N, C, D1, D2, ...)
        output, indices: (N, C, P1, P2, ...), with sizes as in `Pooling2d`

    Example:
        >>> op = MaxPoolingWithIndices(window_shape=(2,), strides=(2,))
        >>> values, places = compute(op, [[[1.0, 3.0, 7.0, 5.0]]])
        >>> values.tolist(), places.tolist()
        ([[[3.0, 7.0]]], [[[1, 2]]])

    Source:
        ONNX MaxPool-22 with its second output.
    """

    output = result(dtype_of="input")
    indices = result(dtypes=[DataType.INT64])

    column_major: bool = attribute(default=False, doc="Flatten each channel in column-major order for the indices.")

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        shape = self._shape(input)
        return input.with_shape(shape), TensorInfo(shape, DataType.INT64)


@op
class LpPooling(_Pooling):
    """Lp pooling: the norm (sum of abs(x)**p)**(1 / p) of every window.

    Shapes:
        input: (N, C, D1, D2, ...)
        output: (N, C, P1, P2, ...), with sizes as in `Pooling2d`

    Example:
        >>> compute(LpPooling(window_shape=(2,)), [[[3.0, 4.0, 0.0]]]).tolist()
        [[[5.0, 4.0]]]

    Source:
        ONNX LpPool-22. (L2 pooling in TFLite and NNAPI divides by the number of cells; see `Pooling2d`.)
    """

    output = result(dtype_of="input")

    p: int = attribute(default=2, ge=1, doc="The exponent of the norm.")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_shape(self._shape(input))


@op(traits=Trait.MOVES | Trait.FILLS)
class MaxUnpooling(Op):
    """Write elements to the indices that `MaxPoolingWithIndices` returned, and zeros everywhere else.

    Shapes:
        input, indices: (N, C, P1, P2, ...)
        output: (N, C, D1, D2, ...), with ``extents`` D1, D2, ...

    Example:
        >>> places = np.int64([[[1, 2]]])
        >>> compute(MaxUnpooling(extents=(4,)), [[[3.0, 7.0]]], places).tolist()
        [[[0.0, 3.0, 7.0, 0.0]]]

    Source:
        ONNX MaxUnpool-22, where ``extents`` follow from the window.
    """

    input = operand(rank=(3, MAX_RANK))
    indices = operand(role=Role.INDICES, rank=(3, MAX_RANK), dtypes=[DataType.INT64])
    output = result(dtype_of="input")

    extents: tuple[int, ...] = attribute(ge=0, doc="The spatial sizes of the result.")

    def check(self, input: TensorInfo, indices: TensorInfo) -> Iterator[str]:
        if not input.shape.accepts(indices.shape):
            yield f"indices has shape {indices.shape}; expected {input.shape}, the shape of input"
        if len(self.extents) != input.rank - 2:
            yield f"extents is {self.extents}; expected one for each of {input.rank - 2} spatial axes"
        if input.dtype is DataType.STRING:
            yield "input is string, which has no zero; expected another type"

    def infer(self, input: TensorInfo, indices: TensorInfo) -> TensorInfo:
        return input.with_shape((*input.shape[:2], *self.extents))


@op
class Col2Im(_Windowed):
    """Combine the columns of a sliding window into an image; overlapping elements are summed (inverse of im2col).

    Shapes:
        input: (N, C * K, L), where K is the number of cells of the window and L the number of its positions
        output: (N, C, D1, D2, ...), with ``image_shape`` D1, D2, ...

    Example:
        >>> op = Col2Im(window_shape=(2,), image_shape=(3,))
        >>> compute(op, [[[1.0, 2.0], [10.0, 20.0]]]).tolist()
        [[[1.0, 12.0, 20.0]]]

    Source:
        ONNX Col2Im-18.
    """

    input = operand(rank=3)
    output = result(rank=(3, MAX_RANK), dtype_of="input")

    image_shape: tuple[int, ...] = attribute(default=(), ge=0, doc="The spatial dimensions of the image.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        axes = len(self.image_shape)
        errors = list(self._axes_problems(axes))
        if not 1 <= axes <= MAX_RANK - 2:
            errors.append(f"image_shape is {self.image_shape}; expected 1 to {MAX_RANK - 2} dimensions")
        yield from errors
        if errors:
            return
        cells = math.prod(self.window_shape)
        place_count = math.prod(max(0, place_count) for place_count in self.places())
        if input.shape[1] % cells:
            yield f"input has {input.shape[1]} rows; expected a multiple of the window's {cells} cells"
        if differ(input.shape[2], place_count):
            yield f"input has {input.shape[2]} columns; expected {place_count}, one for each position of the window"

    def places(self) -> list[int]:
        """Return the number of window positions along each spatial axis."""
        return [window.places(size) for window, size in zip(self.windows(), self.image_shape, strict=True)]

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(
            (input.shape[0], input.shape[1] // math.prod(self.window_shape), *self.image_shape), input.dtype
        )
