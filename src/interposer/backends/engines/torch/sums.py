"""Matrix products, reductions and normalizations."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from interposer.backends.engines.engine import RefusedError
from interposer.backends.engines.torch.package import functional, torch
from interposer.backends.engines.torch.table import FLOATS, NUMBERS, Function, in_float32, kind_of, makes
from interposer.core.types import DataLayout
from interposer.ir.graph import Layer
from interposer.ops import (
    ArgMinMax,
    ArgMinMaxFunction,
    BatchMatMul,
    BatchNormalization,
    FullyConnected,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    Mean,
    Reduce,
    ReduceOperation,
    RmsNormalization,
)

__all__: list[str] = []


@makes(FullyConnected)
def fully_connected(op: FullyConnected, layer: Layer) -> Function:
    """Return the torch function; inputs are flattened to rows of the weights' input size."""
    shape = [int(size) for size in layer.output_infos[0].shape]
    size = int(layer.values[1].known.shape[1 if op.transpose_weight_matrix else 0])

    def compute(x: Any, weights: Any, bias: Any) -> Any:
        rows = x.reshape(-1, size) if size else x.reshape(shape[0], 0)
        return functional.linear(rows, weights if op.transpose_weight_matrix else weights.t(), bias).reshape(shape)

    return compute


@makes(BatchMatMul)
def batch_matmul(op: BatchMatMul, layer: Layer) -> Function:
    """Return a function that multiplies matrices in the last two axes; the other axes broadcast."""
    if op.adjoint_x or op.adjoint_y:
        raise RefusedError("torch has no adjugates of matrices")
    if min(value.known.rank for value in layer.values) < 2:
        raise RefusedError("an operand is not a matrix")

    def compute(a: Any, b: Any) -> Any:
        return torch.matmul(a.mT if op.transpose_x else a, b.mT if op.transpose_y else b)

    return compute


_R: Final = ReduceOperation
_OF_INTEGERS: Final = {_R.MAX, _R.MIN}


@cache
def _reductions() -> dict[ReduceOperation, Any]:
    return {
        _R.SUM: torch.sum,
        _R.MEAN: torch.mean,
        _R.MAX: torch.amax,
        _R.MIN: torch.amin,
        _R.L1: lambda x, axes, keepdim: torch.sum(torch.abs(x), axes, keepdim),
        _R.L2: lambda x, axes, keepdim: torch.sqrt(torch.sum(torch.square(x), axes, keepdim)),
        _R.LOG_SUM: lambda x, axes, keepdim: torch.log(torch.sum(x, axes, keepdim)),
        _R.LOG_SUM_EXP: torch.logsumexp,
        _R.SUM_SQUARE: lambda x, axes, keepdim: torch.sum(torch.square(x), axes, keepdim),
    }


@makes(Mean, Reduce, types=NUMBERS)
def reduce(op: Mean | Reduce, layer: Layer) -> Function:
    """Return a function that reduces along some axes, or all."""
    info, kind = layer.values[0].known, kind_of(layer.values[0])
    operation = op.operation if isinstance(op, Reduce) else _R.MEAN
    if operation not in _reductions() or not (kind in FLOATS or operation in _OF_INTEGERS):
        raise RefusedError(f"there is no torch function for {operation.name} of {kind}")
    axes = tuple(sorted({axis % info.rank for axis in op.axis})) or tuple(range(info.rank))
    if not axes or 0 in info.shape:
        raise RefusedError("there is nothing to reduce")
    function, keep = _reductions()[operation], op.keep_dims
    return in_float32(lambda x: function(x, axes, keep), kind)


@makes(ArgMinMax, types=FLOATS)
def arg_min_max(op: ArgMinMax, layer: Layer) -> Function:
    """Return a function that finds the index of the extreme element along an axis.

    Of equal elements it finds the first one, or the last one by searching in reverse.
    """
    find = torch.argmax if op.function is ArgMinMaxFunction.MAX else torch.argmin
    torch_dtype, last_index = getattr(torch, str(op.dtype)), int(layer.values[0].known.shape[op.axis]) - 1
    if not op.select_last_index:
        return lambda x: find(x, op.axis, op.keep_dims).to(torch_dtype)
    return lambda x: (last_index - find(x.flip(op.axis), op.axis, op.keep_dims)).to(torch_dtype)


# --- normalization ----------------------------------------------------------------------------------------------------


def _channels(layout: DataLayout, layer: Layer) -> list[int]:
    """Return the shape, such as [1, -1, 1, 1], in which one number per channel broadcasts with the first operand."""
    rank = layer.values[0].known.rank
    shape = [1] * rank
    shape[1 if layout is DataLayout.NCHW else rank - 1] = -1
    return shape


@makes(BatchNormalization)
def batch_normalization(op: BatchNormalization, layer: Layer) -> Function:
    """Return a function that computes a batch normalization as one factor and one offset per channel."""
    shape = _channels(op.data_layout, layer)

    def compute(x: Any, mean: Any, variance: Any, beta: Any, gamma: Any) -> Any:
        mean, variance, beta, gamma = (parameter.reshape(shape) for parameter in (mean, variance, beta, gamma))
        return (x - mean) * (gamma * torch.rsqrt(variance + op.eps)) + beta

    return compute


@makes(InstanceNormalization)
def instance_normalization(op: InstanceNormalization, layer: Layer) -> Function:
    """Return a function that normalizes over the spatial elements of each image and channel."""
    shape = _channels(op.data_layout, layer)
    axes = tuple(axis for axis in range(1, len(shape)) if shape[axis] == 1)
    if 0 in layer.values[0].known.shape:
        raise RefusedError("there is nothing to normalize")

    def compute(x: Any, gamma: Any, beta: Any) -> Any:
        normalized = (x - x.mean(axes, keepdim=True)) * torch.rsqrt(x.var(axes, correction=0, keepdim=True) + op.eps)
        normalized = normalized if gamma is None else normalized * gamma.reshape(shape)
        return normalized if beta is None else normalized + beta.reshape(shape)

    return in_float32(compute, kind_of(layer.values[0]))


@makes(LayerNormalization)
def layer_normalization(op: LayerNormalization, layer: Layer) -> Function:
    """Return a function that normalizes over all axes from `axis` on."""
    shape = _normalized(op.axis, layer)
    return lambda x, gamma, beta: functional.layer_norm(x, shape, gamma, beta, op.eps)


@makes(RmsNormalization)
def rms_normalization(op: RmsNormalization, layer: Layer) -> Function:
    """Return a root-mean-square normalization, which subtracts no mean."""
    shape = _normalized(op.axis, layer)
    return lambda x, gamma: functional.rms_norm(x, shape, gamma, op.eps)


def _normalized(axis: int, layer: Layer) -> list[int]:
    """Return the sizes of the normalized axes; raise `RefusedError` if the weights have other sizes."""
    shape = [int(size) for size in layer.values[0].known.shape]
    shape = shape[axis % len(shape) :]
    if any(list(value.known.shape) != shape for value in layer.values[1:]):
        raise RefusedError("torch supports only factors and offsets of the normalized shape")
    return shape


@makes(GroupNormalization)
def group_normalization(op: GroupNormalization, layer: Layer) -> Function:
    """Return torch's group normalization, which expects channels first."""
    info = layer.values[0].known
    channels = int(info.shape[1])
    if op.data_layout is not DataLayout.NCHW or any(value.known.shape[0] != channels for value in layer.values[1:]):
        raise RefusedError("torch supports only channels first, with a factor and an offset per channel")
    return lambda x, gamma, beta: functional.group_norm(x, op.num_groups, gamma, beta, op.eps)
