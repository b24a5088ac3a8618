"""Operators that change the shape of a tensor, or create a tensor from a shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, TensorShape, differ
from interposer.ops.axes import broadcast_shapes

__all__ = ["BroadcastTo", "Fill", "Rank", "Reshape", "Shape"]

_INDEX_TYPES = (DataType.INT32, DataType.INT64)


@op(traits=Trait.MOVES)
class Reshape(Op):
    """Reshape a tensor; the elements and their order are unchanged.

    Shapes:
        input: any
        output: ``target_shape``, where one dimension of -1 is inferred

    Example:
        >>> compute(Reshape(target_shape=(3, -1)), [[1, 2, 3], [4, 5, 6]]).tolist()
        [[1, 2], [3, 4], [5, 6]]
        >>> compute(Reshape(target_shape=(0, 1, -1), copy_zeros=True), [[1, 2, 3], [4, 5, 6]]).shape
        (2, 1, 3)

    Source:
        ONNX Reshape-21, Flatten-21, Squeeze-21, Unsqueeze-21; TFLite RESHAPE, SQUEEZE, EXPAND_DIMS; NNAPI RESHAPE;
        Arm NN ReshapeDescriptor.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result(dtype_of="input")

    target_shape: tuple[int, ...] = attribute(ge=-1, doc="The dimensions; at most one is -1.")
    copy_zeros: bool = attribute(default=False, doc="A dimension of 0 copies the input's dimension at the same index.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        target_shape = self.target_shape
        if len(target_shape) > MAX_RANK:
            yield f"target_shape has rank {len(target_shape)}; ranks 0 to {MAX_RANK} are supported"
        elif target_shape.count(-1) > 1:
            yield f"target_shape is {target_shape}; at most one dimension may be -1"
        elif self.copy_zeros and 0 in target_shape[input.rank :]:
            yield f"target_shape is {target_shape}; it copies a dimension that the input of shape {input.shape} lacks"
        elif not self._fits(input.shape):
            yield f"an input of shape {input.shape} cannot be reshaped to {target_shape}"

    def _fits(self, shape: TensorShape) -> bool:
        target = self._target(shape)
        if -1 not in target:
            return not differ(shape.num_elements, math.prod(target))
        known_elements = math.prod(dim for dim in self._not_copied(target) if dim != -1)
        return known_elements != 0 and bool(TensorShape(self._not_copied(shape)).num_elements % known_elements == 0)

    def _not_copied(self, sizes: Sequence[int]) -> list[int]:
        """Return the sizes along the axes that are not copied, which determine -1 even if a copied one is 0."""
        return [
            dim
            for axis, dim in enumerate(sizes)
            if not (self.copy_zeros and self.target_shape[axis : axis + 1] == (0,))
        ]

    def _target(self, shape: TensorShape) -> tuple[int, ...]:
        if not self.copy_zeros:
            return self.target_shape
        return tuple(shape[axis] if dim == 0 else dim for axis, dim in enumerate(self.target_shape))

    def infer(self, input: TensorInfo) -> TensorInfo:
        target = self._target(input.shape)
        uncopied = self._not_copied(input.shape), self._not_copied(target)
        dims = [_inferred_dim(*uncopied) if _is_inferred(dim) else dim for dim in target]
        shape = TensorShape(dims)
        quantization = input.quantization
        if (
            quantization is not None
            and quantization.axis is not None
            and not _axis_stays(input.shape, shape, quantization.axis)
        ):
            return TensorInfo(shape, input.dtype)
        return TensorInfo(shape, input.dtype, quantization)


def _is_inferred(dim: int) -> bool:
    return dim == -1 and not isinstance(dim, Dim)


def _inferred_dim(shape: Sequence[int], target: Sequence[int]) -> int:
    """Return the dimension that -1 stands for if a tensor of this shape is reshaped to the `target` dimensions.

    Equal dimensions on both sides cancel out, even unknown ones. The result is an unknown dimension if it depends on
    others.
    """
    remaining_dims = list(shape)
    known_product = 1
    for dim in target:
        if isinstance(dim, Dim) and dim in remaining_dims:
            remaining_dims.remove(dim)
        elif isinstance(dim, Dim):
            return UNKNOWN
        elif not _is_inferred(dim):
            known_product *= dim
    unknown_dims = [dim for dim in remaining_dims if isinstance(dim, Dim)]
    product = math.prod(dim for dim in remaining_dims if not isinstance(dim, Dim))
    if not known_product:
        return UNKNOWN
    if not unknown_dims:
        return product // known_product
    return unknown_dims[0] if len(unknown_dims) == 1 and product == known_product else UNKNOWN


def _axis_stays(old_shape: TensorShape, new_shape: TensorShape, axis: int) -> bool:
    if axis >= len(new_shape) or old_shape[axis] != new_shape[axis]:
        return False
    return bool(math.prod(old_shape[:axis]) == math.prod(new_shape[:axis]))


@op(traits=Trait.MOVES)
class BroadcastTo(Op):
    """Broadcast a tensor to a shape, along its axes of size 1 and along new axes at the front.

    Shapes:
        input: any that broadcasts to ``shape`` by NumPy's rule
        output: ``shape``

    Example:
        >>> compute(BroadcastTo(shape=(2, 3)), [[1], [2]]).tolist()
        [[1, 1, 1], [2, 2, 2]]
        >>> compute(BroadcastTo(shape=(2, 2)), [1, 2]).tolist()
        [[1, 2], [1, 2]]

    Source:
        ONNX Expand-13; TFLite BROADCAST_TO; Arm NN BroadcastToDescriptor.
    """

    input = operand()
    output = result(dtype_of="input")

    shape: tuple[int, ...] = attribute(ge=0, doc="The dimensions of the result.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if len(self.shape) > MAX_RANK:
            yield f"shape has rank {len(self.shape)}; ranks 0 to {MAX_RANK} are supported"
            return
        broadcast = broadcast_shapes(input.shape, TensorShape(self.shape))
        if broadcast is None or tuple(broadcast) != self.shape:
            yield f"an input of shape {input.shape} cannot be broadcast to {TensorShape(self.shape)}"

    def infer(self, input: TensorInfo) -> TensorInfo:
        per_axis = input.quantization is not None and input.quantization.per_axis
        return TensorInfo(self.shape, input.dtype, None if per_axis else input.quantization)


@op(traits=Trait.EXACT)
class Shape(Op):
    """The shape of a tensor, as a tensor.

    Shapes:
        input: any of rank R
        output: (R,)

    Example:
        >>> compute(Shape(), [[1, 2, 3], [4, 5, 6]]).tolist()
        [2, 3]

    Source:
        ONNX Shape-21; TFLite SHAPE; Arm NN ShapeLayer.
    """

    input = operand()
    output = result(rank=1, dtypes=_INDEX_TYPES)

    dtype: DataType = attribute(default=DataType.INT32, choices=_INDEX_TYPES, doc="The type of the dimensions.")

    def infer(self, input: TensorInfo) -> TensorInfo:
        constant = np.array(input.shape, self.dtype.numpy) if input.is_concrete else None
        return TensorInfo((input.rank,), self.dtype, constant=constant)


@op(traits=Trait.EXACT)
class Rank(Op):
    """The number of axes of a tensor, as a scalar.

    Shapes:
        input: any
        output: ()

    Example:
        >>> compute(Rank(), [[1, 2, 3], [4, 5, 6]]).tolist()
        2

    Source:
        TFLite RANK; NNAPI RANK; Arm NN RankLayer.
    """

    input = operand()
    output = result(rank=0, dtypes=[DataType.INT32])

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((), DataType.INT32, constant=np.array(input.rank, np.int32))


@op
class Fill(Op):
    """A tensor with one value in all elements; an operand holds the tensor's shape.

    Shapes:
        dims: (R,)
        output: the dimensions in ``dims``

    Example:
        >>> compute(Fill(value=7.0), [2, 3]).tolist()
        [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]
        >>> compute(Fill(value=1.5, dtype=DataType.UINT8), [3], quantization={"output": Quantization(0.5)}).tolist()
        [3, 3, 3]

    Source:
        ONNX ConstantOfShape-21; TFLite FILL; NNAPI FILL; Arm NN FillDescriptor.
    """

    dims = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(dynamic=True)

    value: float = attribute(default=0.0, doc="Value of every element: a float value, also for quantized tensors.")
    dtype: DataType = attribute(default=DataType.FLOAT32, doc="The type of the result.")

    def check(self, dims: TensorInfo) -> Iterator[str]:
        if dims.shape[0] > MAX_RANK:
            yield f"dims has {dims.shape[0]} dimensions; ranks 0 to {MAX_RANK} are supported"
        elif isinstance(dims.shape[0], Dim):
            yield "the number of dimensions in dims is not known"
        elif dims.constant is not None and (dims.constant < 0).any():
            yield f"dims is {dims.constant.tolist()}; a dimension must not be negative"
        if self.dtype is DataType.STRING:
            yield "a tensor of strings cannot be filled with a number"

    def infer(self, dims: TensorInfo) -> TensorInfo:
        if dims.constant is not None:
            return TensorInfo(dims.constant.tolist(), self.dtype)
        return TensorInfo([UNKNOWN] * dims.shape[0], self.dtype)
