"""Checks of a backend's tensor handle factories, which are called directly, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np

from interposer.backend import (
    DEFAULT_FACTORY,
    MemorySource,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
)
from interposer.core.addresses import aligned_empty
from interposer.core.types import Array, TensorInfo
from interposer.testing.bench import Bench
from interposer.testing.contents import Contents, unlike
from interposer.testing.contracts import on_backend
from interposer.testing.progress import note
from interposer.testing.tolerances import same

__all__: list[str] = []

_MOST_INFOS: Final = 8
_ALIGNMENT: Final = 64


@on_backend("contents", "working-memories", "constants", "maps", "sub-tensors", "exports", "imports")
def memory(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if tensors of the backend's handle factories lose their values or break the factory's claims.

    Tensors with overlapping lifetimes must not overlap in memory, within one working memory or across several.
    Constants must retain their values. Sub-tensors must share the memory of their parents. Exported or imported memory
    must be shared, not copied. A backend that registers no tensor handle factories passes.
    """
    check = _CHECKS[variant]
    with _memories(bench, 2) as memories:
        for mine, others in zip(memories[0].factories, memories[1].factories, strict=True):
            note(f"using the handle factory {mine.id}")
            yield from check(bench, memories, mine, others)


class _Memory:
    """The backend's tensor handle factories and memory managers as one network would get them, without a network.

    It owns the tensors that a check creates; `close` destroys them.
    """

    def __init__(self, bench: Bench) -> None:
        registry = TensorHandleFactoryRegistry()
        bench.backend.register_tensor_handle_factories(registry, bench.settings.options)
        self.factories = [item for item in registry if item.id != DEFAULT_FACTORY]
        self.managers = registry.memory_managers
        self.contents = Contents()
        self.handles: list[TensorHandle] = []
        self._acquired = 0

    def create(self, factory: TensorHandleFactory, infos: Sequence[TensorInfo]) -> list[TensorHandle]:
        """Create a tensor for each info by the factory, with lifetimes that all overlap; return the handles."""
        created = [self.own(factory, factory.create(info)) for info in infos]
        for handle in created:
            handle.manage()
        for handle in created:
            handle.allocate()
        return created

    def own(self, factory: TensorHandleFactory, handle: TensorHandle) -> TensorHandle:
        """Remember a handle so that `close` destroys it."""
        self.handles.append(handle)
        self.contents.origins[id(handle)] = factory
        return handle

    def acquire(self) -> None:
        """Acquire the memory of all managers."""
        for manager in self.managers:
            manager.acquire()
            self._acquired += 1

    def close(self) -> None:
        """Destroy all handles and release the memory."""
        for manager in self.managers[: self._acquired]:
            with suppress(Exception):
                manager.release()
        for handle in reversed(self.handles):
            with suppress(Exception):
                handle.destroy()


@contextmanager
def _memories(bench: Bench, count: int) -> Iterator[list[_Memory]]:
    created = [_Memory(bench) for _ in range(count)]
    try:
        yield created
    finally:
        for item in created:
            item.close()


def _infos(bench: Bench) -> list[TensorInfo]:
    """Return the infos of tensors to try: some of those of the layers that the backend supports."""
    result: dict[TensorInfo, None] = {}
    for sample in bench.taken:
        layer = sample.network()[0].graph.layer("layer")
        for info in (*layer.input_infos, *layer.output_infos):
            if info is not None and info.is_tensor and info.is_concrete and info.dtype.bits and info.num_elements:
                result.setdefault(info.with_constant(None))
    several = [info for info in result if info.num_elements > 1]
    return [*several, *result][:: max(1, len(several) // _MOST_INFOS)][:_MOST_INFOS]


def _pattern(info: TensorInfo, seed: int) -> Array:
    """Return values that differ between tensors (by `seed`) and between neighbouring elements."""
    numbers = (np.arange(int(info.num_elements)) * 7 + 31 * seed + 1) % 113
    return numbers.astype(info.dtype.numpy).reshape(tuple(info.shape))


def _readable(factory: TensorHandleFactory) -> bool:
    return factory.supports_map or factory.supports_device_copy


# --- contents of tensors ----------------------------------------------------------------------------------------------


def _contents(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if _readable(mine):
        yield from _filled(bench, [(memories[0], mine)])


def _working_memories(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if _readable(mine):
        yield from _filled(bench, [(memories[0], mine), (memories[1], others)])


def _filled(bench: Bench, places: Sequence[tuple[_Memory, TensorHandleFactory]]) -> Iterator[str]:
    """Fill tensors one after the other, check all of them after each write, and yield an error if one has changed.

    The tensors are created by each of the factories in `places`, with lifetimes that overlap.
    """
    tensors: list[tuple[_Memory, TensorHandle]] = []
    infos = _infos(bench)
    for place, factory in places:
        tensors += [(place, handle) for handle in place.create(factory, [*infos, *infos])]
    for place, _ in places:
        place.acquire()
    held: list[Array] = []
    title = f"{places[0][1].id}"
    for number, (place, handle) in enumerate(tensors):
        held.append(_pattern(handle.info, number))
        place.contents.fill(handle, held[-1])
        for index, expected in enumerate(held):
            result = tensors[index][0].contents.read(tensors[index][1])
            if same(result, expected):
                continue
            if index == number:
                yield f"a tensor of {title}, {handle.info}, does not hold what it was given: {unlike(result, expected)}"
            else:
                where = "" if tensors[index][0] is place else " of another working memory"
                yield (
                    f"writing to a tensor of {title}, {handle.info}, changed a tensor{where} that lives at the same "
                    f"time, {tensors[index][1].info}: they overlap; {unlike(result, expected)}"
                )
            return


def _constants(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if not _readable(mine):
        return
    place, infos = memories[0], _infos(bench)
    arrays = [_pattern(info, number) for number, info in enumerate(infos)]
    cached = [array.copy() for array in arrays]
    created = [place.own(mine, mine.create_constant(info, array)) for info, array in zip(infos, arrays, strict=True)]
    tensors = place.create(mine, infos)
    for moment in ("when it was created", "after memory was acquired", "after tensors were written to"):
        for info, handle, expected in zip(infos, created, cached, strict=True):
            result = place.contents.read(handle)
            if not same(result, expected):
                yield f"a constant of {mine.id}, {info}, has other values {moment}: {unlike(result, expected)}"
                return
        if moment == "when it was created":
            place.acquire()
        else:
            for number, handle in enumerate(tensors):
                place.contents.fill(handle, _pattern(handle.info, number + 50))
    if not all(same(now, before) for now, before in zip(arrays, cached, strict=True)):
        yield f"create_constant of {mine.id} wrote to the array that it was given"


def _maps(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if not mine.supports_map:
        return
    place, infos = memories[0], _infos(bench)
    tensors = place.create(mine, infos)
    place.acquire()
    for number, handle in enumerate(tensors):
        pattern = _pattern(handle.info, number)
        try:
            first, _ = handle.map(), handle.map()
        except Exception as error:
            yield f"{mine.id} says that it supports maps, but: {type(error).__name__}: {error}"
            return
        first[...] = pattern
        handle.unmap()
        handle.unmap()
        with handle.mapped() as array:
            if not same(array.copy(), pattern):
                yield f"what is written to a mapped tensor of {mine.id}, {handle.info}, is lost when it is unmapped"
                return


def _sub_tensors(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if not (mine.supports_sub_tensors and _readable(mine)):
        return
    place = memories[0]
    wholes = [info for info in _infos(bench) if max(info.shape, default=0) > 1]
    tensors = place.create(mine, wholes)
    pieces = []
    for handle in tensors:
        axis = int(np.argmax([int(size) for size in handle.info.shape]))
        origin = [int(at == axis) for at in range(handle.info.rank)]
        shape = [int(size) - int(at == axis) for at, size in enumerate(handle.info.shape)]
        piece = mine.create_sub_tensor(handle, origin, handle.info.with_shape(shape))
        if piece is not None:
            pieces.append((handle, place.own(mine, piece), tuple(slice(start, None) for start in origin)))
    place.acquire()
    for number, (whole, piece, where) in enumerate(pieces):
        expected = _pattern(whole.info, number)
        place.contents.fill(whole, expected)
        expected[where] = _pattern(piece.info, number + 40)
        place.contents.fill(piece, expected[where])
        result = place.contents.read(whole)
        if not same(result, expected):
            yield (
                f"{mine.id} says that it supports sub-tensors, but what is written to one of {whole.info} does not "
                f"show at its place: {unlike(result, expected)}"
            )
            return


# --- shared memory ----------------------------------------------------------------------------------------------------


def _exports(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if not (mine.export_sources & MemorySource.MALLOC and _readable(mine)):
        return
    place = memories[0]
    tensors = place.create(mine, _infos(bench))
    place.acquire()
    for number, handle in enumerate(tensors):
        first, second = _pattern(handle.info, number), _pattern(handle.info, number + 1)
        place.contents.fill(handle, first)
        exported = handle.export_memory(MemorySource.MALLOC)
        if not same(np.array(exported), first):
            yield f"a tensor of {mine.id}, {handle.info}, exports other values than it holds: {unlike(exported, first)}"
            return
        place.contents.fill(handle, second)
        if not same(np.array(exported), second):
            yield f"a tensor of {mine.id}, {handle.info}, exports a copy, not its own memory: later writes do not show"
            return


def _imports(
    bench: Bench, memories: Sequence[_Memory], mine: TensorHandleFactory, others: TensorHandleFactory
) -> Iterator[str]:
    if not (mine.import_sources & MemorySource.MALLOC and _readable(mine)):
        return
    place = memories[0]
    for number, info in enumerate(_infos(bench)):
        handle = place.own(mine, mine.create(info))
        if not handle.imports:
            return
        first, second = _pattern(info, number), _pattern(info, number + 1)
        memory = aligned_empty(tuple(info.shape), info.dtype.numpy, _ALIGNMENT)
        memory[...] = first
        if not handle.import_memory(memory):
            continue
        result = place.contents.read(handle)
        if not same(result, first):
            yield f"a tensor of {mine.id} that imported memory holds something else: {unlike(result, first)}"
            return
        place.contents.fill(handle, second)
        if not same(memory, second):
            yield f"a tensor of {mine.id} says that it imported memory, but has a copy: writes do not show there"
            return
        handle.forget_memory()


_Checked = Callable[[Bench, Sequence[_Memory], TensorHandleFactory, TensorHandleFactory], Iterator[str]]
_CHECKS: Final[dict[str, _Checked]] = {
    "contents": _contents,
    "working-memories": _working_memories,
    "constants": _constants,
    "maps": _maps,
    "sub-tensors": _sub_tensors,
    "exports": _exports,
    "imports": _imports,
}
