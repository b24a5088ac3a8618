"""Workloads of the runtime itself: copies between backends, and the output of Debug layers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np

from interposer.backend import MemorySource, TensorHandle, Workload
from interposer.core.errors import BackendContractError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.ops.control import Debug

__all__ = [
    "CopyWorkload",
    "DebugCallback",
    "DebugWorkload",
    "DeviceCopyWorkload",
    "ImportWorkload",
    "TransferCounts",
    "TransferReport",
]

DebugCallback = Callable[[str, int, Array], None]


class TransferCounts:
    """Counts how many tensors are copied and imported between kinds of memory in all runs of one network.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(TransferReport.__slots__, 0)

    def add(self, **increments: int) -> None:
        """Add to counters, by the field names of `TransferReport`."""
        with self._lock:
            for name, count in increments.items():
                self._counts[name] += count

    @property
    def report(self) -> TransferReport:
        """The current counts."""
        with self._lock:
            return TransferReport(**self._counts)


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The copies and imports between kinds of memory in all runs of a loaded network.

    `copies` were made by the host and `device_copies` by devices; `copied_bytes` is the total of both. `imports` had no
    cost, except for the `refused_imports` that became copies because the memory did not fit. Copies of the caller's
    inputs and outputs are not counted.
    """

    copies: int = 0
    device_copies: int = 0
    imports: int = 0
    refused_imports: int = 0
    copied_bytes: int = 0


class CopyWorkload(Workload):
    """The workload of a MemCopy layer: the host copies a tensor between handles of any kinds of memory."""

    concurrent = strided = True

    def __init__(self, counts: TransferCounts) -> None:
        self._counts = counts

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Map the source and copy it into the target."""
        [source], [target] = inputs, outputs
        if source is None:
            raise BackendContractError("there is nothing to copy from")
        with source.mapped() as array:
            target.copy_in(array)
            self._counts.add(copies=1, copied_bytes=array.nbytes)


class ImportWorkload(CopyWorkload):
    """The workload of a MemImport layer: the output's handle uses the memory of the input's handle.

    If the output's handle refuses the memory, it gets its own, and the tensor is copied.
    """

    def __init__(self, source: MemorySource, counts: TransferCounts) -> None:
        super().__init__(counts)
        self._source = source

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Let the output's handle use the memory that the input's handle exports; copy the tensor if it refuses."""
        [source], [target] = inputs, outputs
        if source is None:
            raise BackendContractError("there is nothing to import")
        if target.import_memory(source.export_memory(self._source)):
            self._counts.add(imports=1)
            return
        target.allocate()
        super().execute(inputs, outputs)
        self._counts.add(refused_imports=1)


class DeviceCopyWorkload(Workload):
    """The workload of a MemCopy layer between a device and the host: it runs the device's own copy workload.

    `backend` is the id of the device's backend.
    """

    def __init__(self, workload: Workload, counts: TransferCounts, backend: str = "") -> None:
        self.workload, self._counts, self.backend = workload, counts, backend
        self.concurrent, self.strided = workload.concurrent, workload.strided
        self.asynchronous = workload.asynchronous

    def post_allocation_configure(self) -> None:
        """Notify the workload of the device."""
        self.workload.post_allocation_configure()

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run the device's workload, and count the copy."""
        self.workload.execute(inputs, outputs)
        self.count(outputs)

    def count(self, outputs: Sequence[TensorHandle]) -> None:
        """Count a copy to these outputs."""
        self._counts.add(device_copies=1, copied_bytes=int(outputs[0].info.num_bytes))


class DebugWorkload(Workload):
    """The workload of a Debug layer, which reports a tensor and passes it on.

    The tensor is passed to the callback if there is one, else printed as a line of JSON on standard output.
    """

    concurrent = strided = True

    def __init__(self, op: Debug) -> None:
        self.op = op
        self.callback: DebugCallback | None = None

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Copy the tensor, then report the copy."""
        [source], [target] = inputs, outputs
        if source is None:
            raise BackendContractError("there is nothing to show")
        with source.mapped() as array:
            target.copy_in(array)
        with target.mapped() as array:
            if self.callback is not None:
                self.callback(self.op.watched, self.op.slot, array)
            else:
                sys.stdout.write(json.dumps(_described(self.op, array), allow_nan=False) + "\n")


def _described(op: Debug, array: Array) -> dict[str, object]:
    numbers = array.astype(np.float64) if array.dtype.kind not in "biufO" else array
    has_range = array.size > 0 and array.dtype.kind != "O"
    if any(isinstance(element, np.ndarray) for element in array.flat):
        return {
            "layerName": op.watched,
            "outputSlot": op.slot,
            "elements": [_described(op, element) for element in array],
        }
    return {
        "layerName": op.watched,
        "outputSlot": op.slot,
        "shape": list(array.shape),
        "min": _plain(np.asarray(numbers.min())) if has_range else None,
        "max": _plain(np.asarray(numbers.max())) if has_range else None,
        "data": _plain(numbers),
    }


def _plain(numbers: Array) -> object:
    """Return an array as nested lists; if it has infinities or NaN, which JSON lacks, they are strings."""
    if numbers.dtype.kind != "f" or np.isfinite(numbers).all():
        return numbers.tolist()
    return np.where(np.isfinite(numbers), numbers.astype(object), numbers.astype(str).astype(object)).tolist()
