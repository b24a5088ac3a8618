"""Direct runs: a model that is one compiled part of a native backend runs in C, without the interpreter's lock.

The C code (``native/bridge/direct.c``) gets a description of unsigned 64-bit words:

- the addresses of ``execute``, its ``self``, the executable and the log of the backend,
- the number under which `read_log` finds the backend, and the alignment of tensors in bytes,
- the numbers of inputs, outputs, operands, results, watched addresses and tables,
- for each input and output its bytes, its rank and its dimensions,
- the numbers of the inputs that are operands, and of the outputs that are results,
- the watched addresses of 64-bit numbers: while one of them is not 0, runs take the way through Python,
- for each table the addresses of its ``ipr_run`` and its ``ipr_error``.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from interposer.bridges.embedding import native
from interposer.core.config import settings, thread_budget
from interposer.core.types import Array, TensorInfo
from interposer.plugins.capi.abi.calls import watchers
from interposer.profiling.recorder import active
from interposer.runtime import OnlyPart
from interposer.session import Model

__all__ = ["DirectPart", "direct_part", "direct_part_of_shapes", "read_log"]

_libraries: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
_numbers: Final = itertools.count(1)


class DirectPart:
    """A compiled part that C code can run: `address` is that of its description in C, until `close`.

    `unpin` is called then. With `is_serial`, the part does not allow concurrent runs. Direct runs then wait for each
    other; the caller pauses them during runs through Python.
    """

    def __init__(
        self, address: int, owner: object, unpin: Callable[[], object] = lambda: None, *, is_serial: bool = False
    ) -> None:
        self.address, self.is_serial = address, is_serial
        self._owner, self._unpin = owner, unpin

    def pause(self, paused: bool) -> None:
        """Let no run be direct, and wait for those in progress; or resume direct runs."""
        native().interposer_bridge_direct_pause(self.address, paused)

    def close(self) -> None:
        """Release the description; no thread may run the part any more."""
        native().interposer_bridge_direct_free(self.address)
        self.address, self._owner = 0, None
        self._unpin()


def direct_part(model: Model) -> DirectPart | None:
    """Return what C code needs to run a model; None if its runs need Python.

    The model must be one compiled part of a native backend, and have numeric tensors of known shapes that are not
    empty.
    """
    part = model.only_part() if _has_direct_runs() else None
    return None if part is None else _described(part, lambda: None)


def direct_part_of_shapes(model: Model, arrays: Mapping[str, Array]) -> DirectPart | None:
    """Like `direct_part`, for a model with open dimensions that has run with inputs of the shapes of `arrays`.

    The network for these shapes stays loaded until the result is closed.
    """
    pinned_part = model.pinned_part(arrays) if _has_direct_runs() else None
    if pinned_part is None:
        return None
    part, unpin = pinned_part
    direct = _described(part, unpin) if [name for name, _ in part.facts.inputs] == [*model.inputs] else None
    if direct is None:
        unpin()
    return direct


def _has_direct_runs() -> bool:
    return settings()["direct_calls"].read() is not False and bool(_size_addresses())


def _described(part: OnlyPart, unpin: Callable[[], object]) -> DirectPart | None:
    if not part.facts.inputs:
        return None
    executable, facts = part.workload.executable, part.facts
    library = executable.library
    if library.checking or not all(_is_plain(info) for _, info in (*facts.inputs, *facts.outputs)):
        return None
    number = next(_numbers)
    _libraries[number] = library
    is_serial = executable.turn is not None
    concurrent_runs = 1 if is_serial else max(2, thread_budget(), os.cpu_count() or 1)
    tables = [part.workload.new_tables() for _ in range(concurrent_runs)]
    words = array("Q", _words(number, part, tables))
    address = native().interposer_bridge_direct_new(words.buffer_info()[0], len(words))
    return DirectPart(address, (part, tables), unpin, is_serial=is_serial) if address else None


def read_log(number: int) -> int:
    """Pass on the lines that the backend with this number has logged; called from C."""
    library = _libraries.get(number)
    if library is not None:
        library.read_log()
    return 0


def _words(number: int, part: Any, tables: Sequence[Any]) -> list[int]:
    executable, facts = part.workload.executable, part.facts
    library, watched_addresses = executable.library, _size_addresses()
    execute = ctypes.cast(library.functions["execute"], ctypes.c_void_p).value or 0
    inputs, outputs = ([info for _, info in pairs] for pairs in (facts.inputs, facts.outputs))
    alignment = max([library.info.alignment, 1, *(info.dtype.numpy.alignment for info in (*inputs, *outputs))])
    lists = inputs, outputs, facts.operands, facts.results, watched_addresses, tables
    return [
        *(execute, library.self or 0, executable.handle or 0, library.log_address, number, alignment),
        *map(len, lists),
        *(word for info in (*inputs, *outputs) for word in _tensor_words(info)),
        *facts.operands,
        *facts.results,
        *watched_addresses,
        *(address for table in tables for address in (table.address, table.error_address)),
    ]


def _tensor_words(info: TensorInfo) -> list[int]:
    return [int(info.num_bytes), info.rank, *map(int, info.shape)]


def _is_plain(info: TensorInfo) -> bool:
    return bool(info.is_tensor and info.is_concrete and not info.dtype.numpy.hasobject and info.num_bytes)


def _size_addresses() -> list[int]:
    """Return the addresses of the sizes of the lists of recorders and watchers; empty if lists have another layout.

    The size of a list follows its reference count and its type.
    """
    offset = object.__basicsize__
    probe = [None] * 5
    if ctypes.c_ssize_t.from_address(id(probe) + offset).value != len(probe):
        return []
    return [id(observed_list) + offset for observed_list in (active, watchers)]
