"""Arrays that end, or begin, at a memory page that must not be accessed, and the check that runs layers on them.

A backend that reads or writes one element beyond such an array gets a segmentation fault, which ends its process. The
check therefore runs only in a process of its own, whose end the kit reports as a failure of the backend.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import numpy as np

from interposer.core.addresses import address_of
from interposer.core.errors import InterposerError
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import binding_id
from interposer.testing.bench import Bench, Loaded
from interposer.testing.contents import rubbish
from interposer.testing.contracts import on_backend
from interposer.testing.outcome import Skipped
from interposer.testing.progress import circumstances, is_watched
from interposer.testing.sample import Sample

__all__ = ["Edge", "GuardedPages"]

_PAGE: Final = mmap.PAGESIZE
_NO_ACCESS: Final = 0
_CANARY: Final = 0xA5
_VECTOR: Final = 16
_PER_OPERATOR: Final = 6
_LARGEST: Final = 1 << 20


class Edge(Enum):
    """Which end of an array is next to a page that must not be accessed; the value completes a sentence."""

    END = "that end at a page that must not be accessed"
    BEGIN = "that begin after a page that must not be accessed"


class GuardedPages:
    """An array of its own pages, between two pages that cannot be read or written.

    Args:
        shape: the sizes of the array.
        dtype: its NumPy type, which must not be a type of objects.
        edge: the end of the array that is next to a page without access.
        alignment: the address is a multiple of this number of bytes. If the array's size is not, an array with
            `Edge.END` ends up to ``alignment - 1`` bytes before the page.

    Raises:
        OSError: the protection of the pages cannot be changed.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], edge: Edge, alignment: int = 1) -> None:
        size = dtype.itemsize * math.prod(shape)
        room = max(1, -(-size // _PAGE)) * _PAGE
        self._pages = mmap.mmap(-1, room + 2 * _PAGE)
        field = np.frombuffer(self._pages, np.uint8)
        for start in (0, _PAGE + room):
            _forbid_access(address_of(field) + start)
        self._room = field[_PAGE : _PAGE + room]
        self._room.fill(_CANARY)
        self._start = 0 if edge is Edge.BEGIN else (room - size) // alignment * alignment
        self._size = size
        self.array: Array = self._room[self._start : self._start + size].view(dtype).reshape(shape)

    def is_changed_outside(self) -> bool:
        """Return True if bytes of the array's pages beside the array have changed since it was created."""
        bytes_before, bytes_after = self._room[: self._start], self._room[self._start + self._size :]
        return bool((bytes_before != _CANARY).any() or (bytes_after != _CANARY).any())


def _forbid_access(address: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), _NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect cannot forbid the access to a page")


@on_backend("bound", "imported")
def guards(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if a layer accesses memory outside of its inputs and outputs, which crashes the process.

    A few samples of every supported operator run on arrays of the caller that end at a page without access, and then on
    arrays that begin after one. Among them are tensors without elements, of one element, and of sizes that are no
    multiples of a vector. The arrays are bound for one run, or imported.
    """
    if not is_watched():
        raise Skipped("it needs a process of its own, which may crash; Settings.patience is None, or it cannot fork")
    for sample in _chosen(bench):
        network, feeds = sample.network()
        try:
            optimized = bench.optimize(network)
            with bench.loaded(optimized) as loaded_network:
                for edge in Edge:
                    yield from _on_guarded(
                        bench, sample, loaded_network, feeds, edge, is_imported=variant == "imported"
                    )
        except InterposerError as error:
            yield f"{sample.id}: {error}"


def _chosen(bench: Bench) -> Iterator[Sample]:
    """Yield a few supported samples of every operator, of different types and kinds of sizes."""
    samples_of_op: dict[type, dict[object, Sample]] = {}
    for sample in bench.samples:
        sample_of_kind = samples_of_op.setdefault(type(sample.op), {})
        kind = _kind(sample)
        if (
            kind is not None
            and kind not in sample_of_kind
            and len(sample_of_kind) < _PER_OPERATOR
            and bench.takes(sample)
        ):
            sample_of_kind[kind] = sample
    for sample_of_kind in samples_of_op.values():
        yield from sample_of_kind.values()


def _kind(sample: Sample) -> object:
    """Return the data type and the kind of size of the first operand; None if the sample has no guarded arrays."""
    infos = [operand.info for operand in sample.inputs if operand is not None and not operand.constant]
    if not infos or not all(_is_guarded(info) for info in infos):
        return None
    size = infos[0].num_elements * infos[0].dtype.itemsize
    is_rest = size % _VECTOR != 0
    return infos[0].dtype, "empty" if not size else "one" if infos[0].num_elements == 1 else is_rest


def _is_guarded(info: TensorInfo) -> bool:
    return info.is_tensor and info.is_concrete and not info.dtype.numpy.hasobject


def _on_guarded(
    bench: Bench, sample: Sample, loaded_network: Loaded, feeds: Mapping[int, Array], edge: Edge, *, is_imported: bool
) -> Iterator[str]:
    """Run a loaded network on arrays at the edge of their pages, and compare the results with those of a usual run."""
    alignment = bench.alignment
    inputs = {key: _copied(array, edge, alignment) for key, array in feeds.items()}
    infos = {binding_id(layer): layer.values[0].known for layer in loaded_network.optimized.graph.outputs}
    outputs = {
        key: GuardedPages(tuple(int(size) for size in info.shape), info.dtype.numpy, edge, alignment)
        for key, info in infos.items()
        if _is_guarded(info)
    }
    if len(outputs) != len(infos):
        return
    for key, pages in outputs.items():
        pages.array[...] = rubbish(infos[key].dtype)
    with circumstances(f"{sample.id}, on inputs and outputs {edge.value}"):
        expected = loaded_network.run(feeds)
        arrays = {key: pages.array for key, pages in inputs.items()}, {key: p.array for key, p in outputs.items()}
        if is_imported:
            if not loaded_network.run_imported(*arrays):
                return
        else:
            loaded_network.run(*arrays)
    for key, pages in outputs.items():
        error = None if sample.statistical else bench.tolerances.difference(pages.array, expected[key], infos[key])
        if error:
            yield f"{sample.id}, on inputs and outputs {edge.value}: output {key}: {error}"
        if pages.is_changed_outside():
            yield f"{sample.id}, on inputs and outputs {edge.value}: something wrote outside of output {key}"


def _copied(array: Array, edge: Edge, alignment: int) -> GuardedPages:
    pages = GuardedPages(array.shape, array.dtype, edge, max(alignment, array.dtype.alignment))
    pages.array[...] = array
    return pages
