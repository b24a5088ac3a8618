"""Checking mode, which detects writes of a plug-in outside of its outputs, to its inputs or to constants."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final

import numpy as np

from interposer.core.addresses import address_of
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo
from interposer.plugins.capi.library.executable import Executable

__all__ = ["GuardedRun"]

MARGIN: Final = 4096
"""The size in bytes of the guard area before and after each output, and the alignment of outputs in this mode."""
_CANARY: Final = 0xA5


class GuardedRun:
    """A context manager for one run in checking mode, which detects what a plug-in must not write.

    The run writes to `outputs`, arrays with guard areas around them. At the end of the block they are checked and
    copied to the arrays `written`.

    Raises:
        BackendContractError: at the end of the block, if memory outside of the outputs was written.
    """

    def __init__(
        self, executable: Executable, read: Sequence[Array], written: Sequence[Array], infos: Sequence[TensorInfo]
    ) -> None:
        self._executable, self._read, self._written = executable, read, written
        self._inputs_before = [array.tobytes() for array in read]
        self._fields = [_field(array.nbytes) for array in written]
        self.outputs = [
            field[MARGIN : MARGIN + array.nbytes].view(array.dtype).reshape(array.shape)
            for field, array in zip(self._fields, written, strict=True)
        ]

    def __enter__(self) -> GuardedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._check()
            for guarded_array, array in zip(self.outputs, self._written, strict=True):
                np.copyto(array, guarded_array)

    def _check(self) -> None:
        backend = self._executable.library.id
        for index, (field, array) in enumerate(zip(self._fields, self._written, strict=True)):
            offset = _first_change(field, array.nbytes)
            if offset is not None:
                raise BackendContractError(
                    f"execute wrote outside of output {index}, at byte {offset:,} of {array.nbytes:,}", backend=backend
                )
        for index, (array, bytes_before) in enumerate(zip(self._read, self._inputs_before, strict=True)):
            if array.tobytes() != bytes_before:
                raise BackendContractError(f"execute wrote to input {index}", backend=backend)
        self._executable.check_constants()


def _field(size: int) -> Array:
    guarded_bytes = np.full(size + 3 * MARGIN, _CANARY, np.uint8)
    start = -address_of(guarded_bytes) % MARGIN
    return guarded_bytes[start : start + size + 2 * MARGIN]


def _first_change(field: Array, size: int) -> int | None:
    """Return where the plug-in first wrote outside of an output, as a byte offset from its start; None if it did not.

    `field` is the memory with guard areas before and after the `size` bytes of the output.
    """
    is_changed = field != _CANARY
    is_changed[MARGIN : MARGIN + size] = False
    return int(is_changed.argmax()) - MARGIN if is_changed.any() else None
