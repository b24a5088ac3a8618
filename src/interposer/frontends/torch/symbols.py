"""Converters for sizes and numbers that a program computes at run time, from data or from sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from interposer.core.schema import Op
from interposer.core.types import DataType, Dim
from interposer.frontends.elementwise import CEIL, FLOOR, NEG, operators_by_name
from interposer.frontends.torch.call import Call, Operand
from interposer.frontends.torch.elementwise import truncated
from interposer.frontends.torch.registry import aten
from interposer.frontends.torch.sizes import size_of
from interposer.ir.graph import Value
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Shape

__all__: list[str] = []


@aten("sym_size.int", "size.int", open_sizes=True)
def sym_size(c: Call, x: Value, dim: int) -> Any:
    """Convert sym_size: a size, known or computed at run time."""
    size = x.known.shape[dim]
    if not isinstance(size, Dim):
        return size
    return _declared(c) or c.runtime_size(x, dim % x.known.rank)


def _declared(c: Call) -> Dim | None:
    """Return the named unknown dimension for the node's result, or None if data determine it."""
    size = size_of(c.val, {})
    return size if isinstance(size, Dim) and size.name else None


@aten("sym_numel", open_sizes=True)
def sym_numel(c: Call, x: Value) -> Any:
    """Convert sym_numel: the number of elements."""
    if x.known.shape.is_concrete:
        return math.prod(x.known.shape)
    return c.step(Reduce(operation=ReduceOperation.PROD), c.step(Shape(DataType.INT64), x))


@aten("sym_stride.int", "stride.int", open_sizes=True)
def sym_stride(c: Call, x: Value, dim: int) -> Any:
    """Convert sym_stride of a contiguous tensor: the product of the sizes after an axis."""
    sizes = c.sizes(x)[dim % x.known.rank + 1 :]
    stride: Any = math.prod(size for size in sizes if not isinstance(size, Value))
    for size in sizes:
        stride = c.times(size, stride) if isinstance(size, Value) else stride
    return stride


@aten("sym_storage_offset", "sym_is_contiguous", open_sizes=True)
def layout(c: Call, x: Value, *_: Any) -> Any:
    """Convert facts of the memory layout: every tensor is contiguous, and begins at the start of its memory."""
    return 0 if "offset" in str(c.node.target) else True


@aten("_local_scalar_dense", "item")
def local_scalar_dense(c: Call, x: Value) -> Value:
    """Convert item: a number from data, as a tensor of rank 0."""
    return c.reshape(x, [])


_OPERATORS: Final = operators_by_name(**{
    "operator.add": "ADD", "operator.sub": "SUB", "operator.mul": "MUL", "operator.floordiv": "FLOOR_DIV",
    "operator.mod": "MOD", "operator.pow": "POWER", "torch.sym_max": "MAXIMUM", "torch.sym_min": "MINIMUM",
})  # fmt: skip
_COMPARED: Final = operators_by_name(**{
    "operator.eq": "EQUAL", "operator.ne": "NOT_EQUAL", "operator.lt": "LESS", "operator.le": "LESS_OR_EQUAL",
    "operator.gt": "GREATER", "operator.ge": "GREATER_OR_EQUAL",
})  # fmt: skip


def _common(c: Call, a: Operand, b: Operand) -> tuple[Value, Value]:
    """Return two numbers as tensors of rank 0 of one type: float64 if one is a float, else int64."""
    is_float = any(x.known.dtype.is_float if isinstance(x, Value) else isinstance(x, float) for x in (a, b))
    dtype = DataType.FLOAT64 if is_float else DataType.INT64
    return c.cast(a, dtype), c.cast(b, dtype)


def _arithmetic(op: Op) -> Callable[[Call, Operand, Operand], Any]:
    def convert(c: Call, a: Operand, b: Operand) -> Any:
        """Convert arithmetic of two numbers, of which one is known at run time only."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            return Dim()
        return c.binary(op, *_common(c, a, b))

    return convert


def _comparing(op: Op) -> Callable[[Call, Operand, Operand], Value]:
    def convert(c: Call, a: Operand, b: Operand) -> Value:
        """Convert a comparison of two numbers, of which one is known at run time only."""
        return c.binary(op, *_common(c, a, b))

    return convert


for _name, _binary in _OPERATORS.items():
    aten(_name, open_sizes=True)(_arithmetic(_binary))
for _name, _comparison in _COMPARED.items():
    aten(_name)(_comparing(_comparison))


@aten("operator.truediv")
def true_divide(c: Call, a: Operand, b: Operand) -> Value:
    """Convert the division of two numbers to a float."""
    return c.over(c.cast(a, DataType.FLOAT64), c.cast(b, DataType.FLOAT64))


@aten("operator.neg")
def negate(c: Call, a: Value) -> Value:
    """Convert the negation of a number."""
    return c.step(NEG, a)


@aten("torch.sym_float")
def sym_float(c: Call, a: Operand) -> Value:
    """Convert sym_float: a number as a float."""
    return c.cast(a, DataType.FLOAT64)


@aten("torch.sym_int", "math.trunc")
def sym_int(c: Call, a: Value) -> Value:
    """Convert sym_int: a number, truncated to an integer."""
    return c.cast(truncated(c, a), DataType.INT64)


@aten("math.floor")
def floor(c: Call, a: Value) -> Value:
    """Convert the floor of a number, an integer."""
    return c.cast(c.step(FLOOR, c.cast(a, DataType.FLOAT64)), DataType.INT64)


@aten("math.ceil")
def ceil(c: Call, a: Value) -> Value:
    """Convert the ceiling of a number, an integer."""
    return c.cast(c.step(CEIL, c.cast(a, DataType.FLOAT64)), DataType.INT64)


@aten("torch.sym_not", "operator.not_")
def sym_not(c: Call, a: Value) -> Value:
    """Convert the negation of a truth value."""
    return c.negated(c.cast(a, DataType.BOOL))


@aten("torch.sym_ite")
def sym_ite(c: Call, condition: Operand, a: Operand, b: Operand) -> Value:
    """Convert the choice between two numbers."""
    return c.where(c.cast(condition, DataType.BOOL), *_common(c, a, b))
