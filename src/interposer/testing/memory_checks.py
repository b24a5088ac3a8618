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

_MAX_INFOS: Final = 8
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
        for factory, second_factory in zip(memories[0].factories, memories[1].factories, strict=True):
            note(f"using the handle factory {factory.id}")
            yield from check(bench, memories, factory, second_factory)


class _Memory:
    """The backend's tensor handle factories and memory managers as one network would get them, without a network.

    It owns the tensors that a check creates; `close` destroys them.
    """

    def __init__(self, bench: Bench) -> None:
        registry = TensorHandleFactoryRegistry()
        bench.backend.register_tensor_handle_factories(registry, bench.settings.options)
        self.factories = [factory for factory in registry if factory.id != DEFAULT_FACTORY]
        self.managers = registry.memory_managers
        self.contents = Contents()
        self.handles: list[TensorHandle] = []
        self._acquired = 0

    def create(self, factory: TensorHandleFactory, infos: Sequence[TensorInfo]) -> list[TensorHandle]:
        """Create a tensor for each info by the factory, with lifetimes that all overlap; return the handles."""
        handles = [self.own(factory, factory.create(info)) for info in infos]
        for handle in handles:
            handle.manage()
        for handle in handles:
            handle.allocate()
        return handles

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
    memories = [_Memory(bench) for _ in range(count)]
    try:
        yield memories
    finally:
        for working_memory in memories:
            working_memory.close()


def _infos(bench: Bench) -> list[TensorInfo]:
    """Return the infos of tensors to try: some of those of the layers that the backend supports."""
    infos: dict[TensorInfo, None] = {}
    for sample in bench.taken:
        layer = sample.network()[0].graph.layer("layer")
        for info in (*layer.input_infos, *layer.output_infos):
            if info is not None and info.is_tensor and info.is_concrete and info.dtype.bits and info.num_elements:
                infos.setdefault(info.with_constant(None))
    with_several_elements = [info for info in infos if info.num_elements > 1]
    return [*with_several_elements, *infos][:: max(1, len(with_several_elements) // _MAX_INFOS)][:_MAX_INFOS]


def _pattern(info: TensorInfo, seed: int) -> Array:
    """Return values that differ between tensors (by `seed`) and between neighbouring elements."""
    numbers = (np.arange(int(info.num_elements)) * 7 + 31 * seed + 1) % 113
    return numbers.astype(info.dtype.numpy).reshape(tuple(info.shape))


def _readable(factory: TensorHandleFactory) -> bool:
    return factory.supports_map or factory.supports_device_copy


# --- contents of tensors ----------------------------------------------------------------------------------------------


def _contents(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if _readable(factory):
        yield from _filled(bench, [(memories[0], factory)])


def _working_memories(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if _readable(factory):
        yield from _filled(bench, [(memories[0], factory), (memories[1], second_factory)])


def _filled(bench: Bench, sources: Sequence[tuple[_Memory, TensorHandleFactory]]) -> Iterator[str]:
    """Fill tensors one after the other, check all of them after each write, and yield an error if one has changed.

    The tensors are created by each of the factories in `sources`, with lifetimes that overlap.
    """
    tensors: list[tuple[_Memory, TensorHandle]] = []
    infos = _infos(bench)
    for memory_of_network, factory in sources:
        tensors += [(memory_of_network, handle) for handle in memory_of_network.create(factory, [*infos, *infos])]
    for memory_of_network, _ in sources:
        memory_of_network.acquire()
    patterns: list[Array] = []
    factory_id = f"{sources[0][1].id}"
    for number, (memory_of_network, handle) in enumerate(tensors):
        patterns.append(_pattern(handle.info, number))
        memory_of_network.contents.fill(handle, patterns[-1])
        for index, expected in enumerate(patterns):
            contents = tensors[index][0].contents.read(tensors[index][1])
            if same(contents, expected):
                continue
            if index == number:
                yield (
                    f"a tensor of {factory_id}, {handle.info}, does not hold what it was given: "
                    f"{unlike(contents, expected)}"
                )
            else:
                where = "" if tensors[index][0] is memory_of_network else " of another working memory"
                yield (
                    f"writing to a tensor of {factory_id}, {handle.info}, changed a tensor{where} that lives at the "
                    "same "
                    f"time, {tensors[index][1].info}: they overlap; {unlike(contents, expected)}"
                )
            return


def _constants(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if not _readable(factory):
        return
    working_memory, infos = memories[0], _infos(bench)
    arrays = [_pattern(info, number) for number, info in enumerate(infos)]
    expected_arrays = [array.copy() for array in arrays]
    constants = [
        working_memory.own(factory, factory.create_constant(info, array))
        for info, array in zip(infos, arrays, strict=True)
    ]
    tensors = working_memory.create(factory, infos)
    for moment in ("when it was created", "after memory was acquired", "after tensors were written to"):
        for info, handle, expected in zip(infos, constants, expected_arrays, strict=True):
            contents = working_memory.contents.read(handle)
            if not same(contents, expected):
                yield f"a constant of {factory.id}, {info}, has other values {moment}: {unlike(contents, expected)}"
                return
        if moment == "when it was created":
            working_memory.acquire()
        else:
            for number, handle in enumerate(tensors):
                working_memory.contents.fill(handle, _pattern(handle.info, number + 50))
    if not all(
        same(given_array, expected_array) for given_array, expected_array in zip(arrays, expected_arrays, strict=True)
    ):
        yield f"create_constant of {factory.id} wrote to the array that it was given"


def _maps(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if not factory.supports_map:
        return
    working_memory, infos = memories[0], _infos(bench)
    tensors = working_memory.create(factory, infos)
    working_memory.acquire()
    for number, handle in enumerate(tensors):
        pattern = _pattern(handle.info, number)
        try:
            mapped_array, _ = handle.map(), handle.map()
        except Exception as error:
            yield f"{factory.id} says that it supports maps, but: {type(error).__name__}: {error}"
            return
        mapped_array[...] = pattern
        handle.unmap()
        handle.unmap()
        with handle.mapped() as array:
            if not same(array.copy(), pattern):
                yield f"what is written to a mapped tensor of {factory.id}, {handle.info}, is lost when it is unmapped"
                return


def _sub_tensors(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if not (factory.supports_sub_tensors and _readable(factory)):
        return
    working_memory = memories[0]
    parent_infos = [info for info in _infos(bench) if max(info.shape, default=0) > 1]
    tensors = working_memory.create(factory, parent_infos)
    sub_tensors = []
    for handle in tensors:
        axis = int(np.argmax([int(size) for size in handle.info.shape]))
        origin = [int(other_axis == axis) for other_axis in range(handle.info.rank)]
        shape = [int(size) - int(other_axis == axis) for other_axis, size in enumerate(handle.info.shape)]
        sub_tensor = factory.create_sub_tensor(handle, origin, handle.info.with_shape(shape))
        if sub_tensor is not None:
            sub_tensors.append(
                (handle, working_memory.own(factory, sub_tensor), tuple(slice(start, None) for start in origin))
            )
    working_memory.acquire()
    for number, (parent, sub_tensor, region) in enumerate(sub_tensors):
        expected = _pattern(parent.info, number)
        working_memory.contents.fill(parent, expected)
        expected[region] = _pattern(sub_tensor.info, number + 40)
        working_memory.contents.fill(sub_tensor, expected[region])
        contents = working_memory.contents.read(parent)
        if not same(contents, expected):
            yield (
                f"{factory.id} says that it supports sub-tensors, but what is written to one of {parent.info} does not "
                f"show at its place: {unlike(contents, expected)}"
            )
            return


# --- shared memory ----------------------------------------------------------------------------------------------------


def _exports(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if not (factory.export_sources & MemorySource.MALLOC and _readable(factory)):
        return
    working_memory = memories[0]
    tensors = working_memory.create(factory, _infos(bench))
    working_memory.acquire()
    for number, handle in enumerate(tensors):
        first_pattern, second_pattern = _pattern(handle.info, number), _pattern(handle.info, number + 1)
        working_memory.contents.fill(handle, first_pattern)
        exported_memory = handle.export_memory(MemorySource.MALLOC)
        if not same(np.array(exported_memory), first_pattern):
            yield (
                f"a tensor of {factory.id}, {handle.info}, exports other values than it holds: "
                f"{unlike(exported_memory, first_pattern)}"
            )
            return
        working_memory.contents.fill(handle, second_pattern)
        if not same(np.array(exported_memory), second_pattern):
            yield (
                f"a tensor of {factory.id}, {handle.info}, exports a copy, not its own memory: later writes do not show"
            )
            return


def _imports(
    bench: Bench, memories: Sequence[_Memory], factory: TensorHandleFactory, second_factory: TensorHandleFactory
) -> Iterator[str]:
    if not (factory.import_sources & MemorySource.MALLOC and _readable(factory)):
        return
    working_memory = memories[0]
    for number, info in enumerate(_infos(bench)):
        handle = working_memory.own(factory, factory.create(info))
        if not handle.imports:
            return
        first_pattern, second_pattern = _pattern(info, number), _pattern(info, number + 1)
        memory = aligned_empty(tuple(info.shape), info.dtype.numpy, _ALIGNMENT)
        memory[...] = first_pattern
        if not handle.import_memory(memory):
            continue
        contents = working_memory.contents.read(handle)
        if not same(contents, first_pattern):
            difference = unlike(contents, first_pattern)
            yield f"a tensor of {factory.id} that imported memory holds something else: {difference}"
            return
        working_memory.contents.fill(handle, second_pattern)
        if not same(memory, second_pattern):
            yield f"a tensor of {factory.id} says that it imported memory, but has a copy: writes do not show there"
            return
        handle.forget_memory()


_MemoryCheck = Callable[[Bench, Sequence[_Memory], TensorHandleFactory, TensorHandleFactory], Iterator[str]]
_CHECKS: Final[dict[str, _MemoryCheck]] = {
    "contents": _contents,
    "working-memories": _working_memories,
    "constants": _constants,
    "maps": _maps,
    "sub-tensors": _sub_tensors,
    "exports": _exports,
    "imports": _imports,
}
