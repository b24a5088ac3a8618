"""Gather operators, which select elements by indices that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, DataType, Dim, TensorInfo, TensorShape
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems, same_shapes

__all__ = ["Gather", "GatherElements", "GatherNd"]

_INDEX_TYPES = (DataType.INT32, DataType.INT64)


@op(traits=Trait.MOVES)
class Gather(Op):
    """Select slices of a tensor along an axis: ``params[..., indices, ...]``.

    Negative indices count from the end. The first ``batch_dims`` axes of both tensors are batch axes: the indices at
    one batch position select from the part of ``params`` at the same position.

    Shapes:
        params: any of rank 1 or more
        indices: any
        output: params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis + 1:]

    Example:
        >>> table = [[1, 2, 3], [4, 5, 6]]
        >>> compute(Gather(axis=1), table, [2, 0, -1]).tolist()
        [[3, 1, 3], [6, 4, 6]]
        >>> compute(Gather(axis=1, batch_dims=1), table, [[2, 2], [0, 1]]).tolist()
        [[3, 3], [4, 5]]

    Source:
        ONNX Gather-13; TFLite GATHER; NNAPI GATHER, EMBEDDING_LOOKUP; Arm NN GatherDescriptor.
    """

    params = operand(rank=(1, MAX_RANK))
    indices = operand(role=Role.INDICES, dtypes=_INDEX_TYPES)
    output = result(dtype_of="params")

    axis: int = attribute(default=0, doc="The axis along which slices are selected; negative ones count from the end.")
    batch_dims: int = attribute(default=0, ge=0, doc="Number of leading batch axes of params and indices.")

    def check(self, params: TensorInfo, indices: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), params.rank))
        axis = normal_axis(self.axis, params.rank)
        errors += () if errors else _batch_problems(self.batch_dims, params, indices, min(axis, indices.rank))
        yield from errors
        if not errors:
            yield from _rank_problems(params.rank - 1 + indices.rank - self.batch_dims)
            yield from _range_problems(indices, params.shape[axis : axis + 1])
            yield from quantized_axis_problems(params, (axis,), "pick from")

    def infer(self, params: TensorInfo, indices: TensorInfo) -> TensorInfo:
        axis = normal_axis(self.axis, params.rank)
        shape = (*params.shape[:axis], *indices.shape[self.batch_dims :], *params.shape[axis + 1 :])
        return _gathered(params, shape)


@op(traits=Trait.MOVES)
class GatherNd(Op):
    """Select slices of a tensor by index tuples, which are stored along the last axis of ``indices``.

    Negative indices count from the end. The first ``batch_dims`` axes of both tensors are batch axes: the indices at
    one batch position select from the part of ``params`` at the same position.

    Shapes:
        params: any of rank 1 or more
        indices: (..., K), where K is at most the rank of params less ``batch_dims``
        output: indices.shape[:-1] + params.shape[batch_dims + K:]

    Example:
        >>> table = [[1, 2], [3, 4]]
        >>> compute(GatherNd(), table, [[0, 1], [1, 0]]).tolist()
        [2, 3]
        >>> compute(GatherNd(), table, [[1]]).tolist()
        [[3, 4]]

    Source:
        ONNX GatherND-13; TFLite GATHER_ND; Arm NN GatherNdLayer.
    """

    params = operand(rank=(1, MAX_RANK))
    indices = operand(role=Role.INDICES, rank=(1, MAX_RANK), dtypes=_INDEX_TYPES)
    output = result(dtype_of="params")

    batch_dims: int = attribute(default=0, ge=0, doc="Number of leading batch axes of params and indices.")

    def check(self, params: TensorInfo, indices: TensorInfo) -> Iterator[str]:
        errors = list(_batch_problems(self.batch_dims, params, indices, min(params.rank, indices.rank) - 1))
        depth = indices.shape[-1]
        if isinstance(depth, Dim):
            errors.append("the last dimension of indices is not known")
        elif depth > params.rank - self.batch_dims:
            errors.append(
                f"the last dimension of indices is {depth}; params has {params.rank - self.batch_dims} axes for it"
            )
        yield from errors
        if not errors:
            yield from _rank_problems(indices.rank - 1 + params.rank - self.batch_dims - depth)
            yield from _range_problems(indices, params.shape[self.batch_dims : self.batch_dims + depth])
            yield from quantized_axis_problems(params, range(MAX_RANK), "pick from")

    def infer(self, params: TensorInfo, indices: TensorInfo) -> TensorInfo:
        shape = (*indices.shape[:-1], *params.shape[self.batch_dims + indices.shape[-1] :])
        return _gathered(params, shape)


@op(traits=Trait.MOVES)
class GatherElements(Op):
    """Select single elements along an axis; the result has the shape of ``indices``.

    For rank 3 and ``axis`` 1, element (i, j, k) of the result is ``params[i, indices[i, j, k], k]``. Negative indices
    count from the end.

    Shapes:
        params: any of rank 1 or more
        indices: the same rank; except along ``axis``, no dimension is greater than that of params
        output: indices.shape

    Example:
        >>> compute(GatherElements(axis=1), [[1, 2, 3], [4, 5, 6]], [[2, 0], [-1, 1]]).tolist()
        [[3, 1], [6, 5]]

    Source:
        ONNX GatherElements-13.
    """

    params = operand(rank=(1, MAX_RANK))
    indices = operand(role=Role.INDICES, rank=(1, MAX_RANK), dtypes=_INDEX_TYPES)
    output = result(dtype_of="params")

    axis: int = attribute(
        default=0, doc="The axis along which elements are selected; negative ones count from the end."
    )

    def check(self, params: TensorInfo, indices: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), params.rank))
        axis = normal_axis(self.axis, params.rank)
        errors += () if errors else elements_problems(params, indices, "params", axis)
        yield from errors
        if not errors:
            yield from _range_problems(indices, params.shape[axis : axis + 1])
            yield from quantized_axis_problems(params, range(MAX_RANK), "pick from")

    def infer(self, params: TensorInfo, indices: TensorInfo) -> TensorInfo:
        return _gathered(params, indices.shape)


def elements_problems(tensor: TensorInfo, indices: TensorInfo, name: str, axis: int) -> Iterator[str]:
    """Yield an error if indices of single elements along an axis do not fit the tensor: their ranks must be equal.

    No dimension of the indices may be greater than that of the tensor, except along `axis`. The error calls the tensor
    `name`.
    """
    if indices.rank != tensor.rank:
        yield f"indices has rank {indices.rank}; expected {tensor.rank}, the rank of {name}"
    elif any(
        index_size > dim
        for position, (index_size, dim) in enumerate(zip(indices.shape, tensor.shape, strict=True))
        if position != axis
    ):
        yield f"indices has shape {indices.shape}, which exceeds {name} {tensor.shape} along an axis other than {axis}"


def _batch_problems(batch_dims: int, params: TensorInfo, indices: TensorInfo, limit: int) -> Iterator[str]:
    if batch_dims > limit:
        yield f"batch_dims is {batch_dims}; these axis and ranks allow at most {limit}"
    elif batch_dims and not same_shapes([TensorShape(info.shape[:batch_dims]) for info in (params, indices)]):
        yield f"params has shape {params.shape} and indices {indices.shape}; their first {batch_dims} dimensions differ"


def _rank_problems(rank: int) -> Iterator[str]:
    if rank > MAX_RANK:
        yield f"the result has rank {rank}; ranks 0 to {MAX_RANK} are supported"


def _range_problems(indices: TensorInfo, dims: Sequence[int]) -> Iterator[str]:
    """Yield an error if constant indices are out of range for axes of the sizes `dims`.

    With several sizes, the last axis of `indices` has one index for each.
    """
    if indices.constant is None or indices.constant.size == 0:
        return
    indices_by_axis = indices.constant.reshape(-1, len(dims)).T if len(dims) > 1 else indices.constant.reshape(1, -1)
    for axis_indices, dim in zip(indices_by_axis, dims, strict=False):
        for extreme_index in (int(axis_indices.min()), int(axis_indices.max())):
            if extreme_index >= dim or extreme_index < -dim:
                yield f"index {extreme_index} is out of range for an axis of size {dim}"
                break


def _gathered(params: TensorInfo, shape: Sequence[int]) -> TensorInfo:
    per_axis = params.quantization is not None and params.quantization.per_axis
    return TensorInfo(shape, params.dtype, None if per_axis else params.quantization)
