"""The table that the families add their kernels to, and the evaluation of one operator with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.errors import InvalidArgumentError
from interposer.kernels.table import KernelInfo, KernelTable
from interposer.schema import Op
from interposer.types import Array, TensorInfo

__all__ = ["evaluate", "kernel", "reference"]

kernel: Final = KernelTable()


def reference() -> KernelTable:
    """The table of the reference kernels of all families."""
    import interposer.kernels.families  # noqa: F401, PLC0415 - the families fill the table

    return kernel


def evaluate(
    op: Op, arrays: Sequence[Array | None], inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]
) -> list[Array]:
    """Compute one operator on arrays.

    Raises:
        InvalidArgumentError: no reference kernel takes the operator on these tensors; says why.
    """
    info = KernelInfo.of(op, inputs, outputs)
    found = reference().find(op, info)
    if found is None:
        raise InvalidArgumentError(f"{op.op_name()}: {'; '.join(reference().reasons(op, info))}")
    return found.values(op, arrays, info, found.make_ready(op, info))
