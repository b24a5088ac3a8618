"""Fused operators, which backends substitute for several operators that they compute together."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import TensorInfo, TensorShape
from interposer.ops.axes import broadcast_shapes

__all__ = ["Fused", "FusedKernelType"]


class FusedKernelType(Enum):
    """The sequence of operators that a `Fused` operator computes at once."""

    ADD_MUL_ADD = 0
    """Addition, Multiplication, Addition."""


@op
class Fused(Op):
    """Add two tensors, multiply by a third one and add a fourth one: ``(a + b) * multiplier + addend``.

    With two outputs, the first one is the sum ``a + b``. The sum and the product are not rounded to the type of the
    outputs, or quantized, between the steps.

    Shapes:
        a, b: any that broadcast by NumPy's rule
        multiplier, addend: any that broadcast to the shape of ``a + b``
        outputs: the shape of ``a + b``

    Example:
        >>> total, output = compute(Fused(), [1, 2], [10, 20], [2, 3], [100, 0])
        >>> total.tolist(), output.tolist()
        ([11, 22], [122, 66])

    Source:
        Arm NN FusedDescriptor (AddMulAdd).
    """

    a = operand()
    b = operand(same_dtype_as="a")
    multiplier = operand(role=Role.PARAMETER, same_dtype_as="a")
    addend = operand(role=Role.PARAMETER, same_dtype_as="a")
    outputs = result(dtype_of="a", variadic=True)

    kernel_type: FusedKernelType = attribute(default=FusedKernelType.ADD_MUL_ADD, doc="The fused operators.")
    num_outputs: int = attribute(default=2, ge=1, le=2, doc="2 to return the first sum as well.")

    def num_results(self) -> int:
        return self.num_outputs

    def check(self, a: TensorInfo, b: TensorInfo, multiplier: TensorInfo, addend: TensorInfo) -> Iterator[str]:
        sum_shape = broadcast_shapes(a.shape, b.shape)
        if sum_shape is None:
            yield f"a has shape {a.shape} and b {b.shape}, which do not broadcast"
            return
        for name, info in (("multiplier", multiplier), ("addend", addend)):
            if not _fits(info.shape, sum_shape):
                yield f"{name} has shape {info.shape}, which does not broadcast to {sum_shape}"

    def infer(self, a: TensorInfo, b: TensorInfo, multiplier: TensorInfo, addend: TensorInfo) -> tuple[TensorInfo, ...]:
        return (TensorInfo(broadcast_shapes(a.shape, b.shape) or (), a.dtype),) * self.num_outputs


def _fits(shape: TensorShape, target: TensorShape) -> bool:
    broadcast = broadcast_shapes(shape, target)
    return broadcast is not None and broadcast.accepts(target)
