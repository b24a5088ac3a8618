"""The runtime's own workloads: copies between backends, and the showing of tensors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import numpy as np

from interposer.backend import TensorHandle, Workload
from interposer.errors import BackendContractError
from interposer.ir.graph import Layer
from interposer.ops.control import Debug, MemCopy, MemImport
from interposer.types import Array

__all__ = ["CopyWorkload", "DebugCallback", "DebugWorkload", "runtime_workload"]

DebugCallback = Callable[[str, int, Array], None]


class CopyWorkload(Workload):
    """Copies a tensor from one handle to another, whatever memory is behind them."""

    concurrent = strided = True

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map the source and let the target take it in."""
        [source], [target] = inputs, outputs
        if source is None:
            raise BackendContractError("there is nothing to copy from")
        with source.mapped() as array:
            target.copy_in(array)


class DebugWorkload(CopyWorkload):
    """Passes a tensor on and shows it to the callback, or as a line of JSON on standard output."""

    def __init__(self, op: Debug) -> None:
        self.op = op
        self.callback: DebugCallback | None = None

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Copy, then show the copy."""
        super().execute(inputs, outputs)
        with outputs[0].mapped() as array:
            if self.callback is not None:
                self.callback(self.op.watched, self.op.slot, array)
            else:
                sys.stdout.write(json.dumps(_described(self.op, array), allow_nan=False) + "\n")


def _described(op: Debug, array: Array) -> dict[str, object]:
    numbers = array.astype(np.float64) if array.dtype.kind not in "biufO" else array
    sized = array.size > 0 and array.dtype.kind != "O"
    if any(isinstance(one, np.ndarray) for one in array.flat):
        return {"layerName": op.watched, "outputSlot": op.slot, "elements": [_described(op, one) for one in array]}
    return {
        "layerName": op.watched,
        "outputSlot": op.slot,
        "shape": list(array.shape),
        "min": _plain(np.asarray(numbers.min())) if sized else None,
        "max": _plain(np.asarray(numbers.max())) if sized else None,
        "data": _plain(numbers),
    }


def _plain(numbers: Array) -> object:
    """Infinities and NaN, which JSON lacks, as texts."""
    if numbers.dtype.kind != "f" or np.isfinite(numbers).all():
        return numbers.tolist()
    return np.where(np.isfinite(numbers), numbers.astype(object), numbers.astype(str).astype(object)).tolist()


def runtime_workload(layer: Layer) -> Workload | None:
    """The workload of a layer that the runtime runs itself, or None where a backend has to."""
    if isinstance(layer.op, Debug):
        return DebugWorkload(layer.op)
    return CopyWorkload() if isinstance(layer.op, MemCopy | MemImport) else None
