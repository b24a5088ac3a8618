"""Direct calls: runs of a network that is one compiled part, from arrays to arrays, in the extension ``_direct``.

The extension is optional. The build leaves it out if it cannot compile it, and `INTERPOSER_DIRECT_CALLS` disables it.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from interposer.core.config import settings
from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.plugins.capi.abi.calls import watchers
from interposer.plugins.capi.running.workload import DynamicWorkload, RunTables

if TYPE_CHECKING:
    from interposer.plugins.capi.running._direct import DirectCall

__all__ = ["NetworkFacts", "direct_call", "extension"]

_log = logging.getLogger("interposer.plugins")
VERSION = 1
"""The version of the extension that this module can use; it is increased with that of native/direct/direct.cpp."""

MOST_ALIGNMENT = 16
"""The alignment in bytes that every new array has, because ``malloc`` gives it."""


@dataclass(frozen=True)
class NetworkFacts:
    """The facts about a network that a direct call needs, if a compiled part is the network's only layer.

    `inputs` and `outputs` are the names and infos of the network's tensors. `operands` are the indices of the inputs
    that the part reads, and `results` those of the outputs that it writes. `constants` are sorted, disjoint ranges of
    addresses that outputs must not overlap. `room` is the most bytes that outputs of unknown shapes may take together.
    `runs` maps the id of a thread to its run in progress. `failed` converts
    the exception of a run into the one to raise. `left` is called at the end of a run during which the network was
    unloaded.
    """

    inputs: Sequence[tuple[str, TensorInfo]]
    outputs: Sequence[tuple[str, TensorInfo]]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    constants: tuple[tuple[int, int], ...]
    room: int
    runs: dict[int, Any]
    failed: Callable[[Exception], Exception]
    left: Callable[[], object]


@cache
def extension() -> ModuleType | None:
    """Return the extension module, or None if it was not built or does not fit this version of NumPy.

    An extension that was built from another version of Interposer is logged once and not used.
    """
    try:
        from interposer.plugins.capi.running import _direct  # noqa: PLC0415 - it may be missing
    except ImportError:
        return None
    version = getattr(_direct, "version", 0)
    if version != VERSION:
        _log.warning(
            "the compiled extension %s is of another version of Interposer (%s, not %s), so networks run without it; "
            "build it again with `make native` in a checkout, or else install interposer-nn again",
            _direct.__file__, version, VERSION,
        )  # fmt: skip
        return None
    probe = np.zeros((2, 3), np.int16)
    expected_layout = probe.ctypes.data, probe.shape, probe.dtype, probe.flags.num
    return _direct if _direct.layout(probe) == expected_layout else None


def direct_call(workload: DynamicWorkload, facts: NetworkFacts) -> DirectCall | None:
    """Return an object that runs a network directly from C; None if runs of the network need Python code.

    The network must consist of one compiled part: `workload` is that part.
    """
    module = extension() if settings()["direct_calls"].read() is not False else None
    if module is None or workload.executable.library.checking or not _is_plain(workload, facts):
        return None
    return _created(module, workload, facts)


def _created(module: ModuleType, workload: DynamicWorkload, facts: NetworkFacts) -> DirectCall:
    """Return the object of the extension that runs the network."""
    executable, library = workload.executable, workload.executable.library
    alignment, turn = library.info.alignment, executable.turn
    call: DirectCall = module.DirectCall(
        inputs=tuple(_described(name, info, alignment) for name, info in facts.inputs),
        outputs=tuple(_described(name, info, alignment) for name, info in facts.outputs),
        operands=facts.operands,
        results=facts.results,
        constants=facts.constants,
        room=facts.room,
        execute=ctypes.cast(library.functions["execute"], ctypes.c_void_p).value,
        backend=library.self,
        executable=executable.handle,
        log=library.log_address,
        array_type=np.ndarray,
        empty=np.empty,
        library=library,
        inside=library.active_calls,
        watchers=watchers,
        runs=facts.runs,
        pop=workload.free.pop,
        create=workload.new_tables,
        append=workload.free.append,
        failed=partial(_fail, facts.failed),
        read_log=library.read_log,
        left=facts.left,
        acquire=None if turn is None else turn.acquire,
        release=None if turn is None else turn.release,
    )
    return call


def _is_plain(workload: DynamicWorkload, facts: NetworkFacts) -> bool:
    """Return True if all tensors are numeric, of known rank, and as aligned as every new NumPy array.

    Only outputs may have unknown dimensions.
    """
    infos = [info for _, info in (*facts.inputs, *facts.outputs)]
    alignment = workload.executable.library.info.alignment
    return (
        alignment <= MOST_ALIGNMENT
        and all(info.is_concrete for _, info in facts.inputs)
        and all(info.is_tensor and info.shape.is_ranked and not info.dtype.numpy.hasobject for info in infos)
    )


def _described(name: str, info: TensorInfo, alignment: int) -> tuple[str, Any, tuple[int, ...], int, int]:
    """Return the facts about a tensor: a size of -1 is unknown, and the bytes are then those of one element."""
    dtype = info.dtype.numpy
    size = int(info.num_bytes) if info.is_concrete else dtype.itemsize
    return name, dtype, tuple(map(int, info.shape)), size, max(alignment, dtype.alignment, 1)


def _fail(failed: Callable[[Exception], Exception], tables: RunTables, status: int) -> NoReturn:
    """Raise the error of a direct call with these tables that ended with this status, converted by `failed`."""
    try:
        tables.fail(status)
    except Exception as error:
        raise failed(error) from error
