"""Tensor handles, and the arena in which tensors share memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.backend import ArenaMemoryManager, ArrayHandle, MemorySource, WorkloadFactory
from interposer.backend.memory import ALIGNMENT
from interposer.core.errors import BackendContractError
from interposer.core.types import TensorInfo

TYPES = ("float32", "int8", "bool", "float16", "int64", "bfloat16", "int4")

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
infos = st.builds(TensorInfo, shapes, st.sampled_from(TYPES))


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[TensorInfo, int, int]]:
    """Tensors, each with the moments at which it begins and ends to live."""
    created = draw(st.lists(st.tuples(infos, st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=25))
    return [(info, min(item, other), max(item, other)) for info, item, other in created]


def planned(tensors: list[tuple[TensorInfo, int, int]]) -> tuple[ArenaMemoryManager, list[ArrayHandle]]:
    """Return the handles of tensors, after all their lifetimes were reported to a manager."""
    manager = ArenaMemoryManager()
    handles = [ArrayHandle(info, manager=manager) for info, _, _ in tensors]
    for moment in range(22):
        for handle, (_, begin, _) in zip(handles, tensors, strict=True):
            if begin == moment:
                handle.manage()
        for handle, (_, _, end) in zip(handles, tensors, strict=True):
            if end == moment:
                handle.allocate()
    return manager, handles


def address(handle: ArrayHandle) -> int:
    return int(handle.map().ctypes.data)


@settings(max_examples=60, deadline=None)
@given(lives())
def test_tensors_that_live_at_the_same_time_never_overlap(tensors: list[tuple[TensorInfo, int, int]]) -> None:
    manager, handles = planned(tensors)
    manager.acquire()
    for index, (handle, (_, begin, end)) in enumerate(zip(handles, tensors, strict=True)):
        for other, (_, start, stop) in list(zip(handles, tensors, strict=True))[:index]:
            if begin <= stop and start <= end:
                assert not np.shares_memory(handle.map(), other.map())


@settings(max_examples=40, deadline=None)
@given(lives())
def test_every_tensor_has_its_shape_and_type_at_an_aligned_address(tensors: list[tuple[TensorInfo, int, int]]) -> None:
    manager, handles = planned(tensors)
    manager.acquire()
    for handle in handles:
        with handle.mapped() as array:
            assert (array.shape, array.dtype) == (handle.info.shape, handle.info.dtype.numpy)
        assert handle.info.num_elements == 0 or address(handle) % ALIGNMENT == 0
    total = sum(-(-int(info.num_bytes) // ALIGNMENT) * ALIGNMENT for info, _, _ in tensors)
    assert manager.planned_bytes <= total


def test_tensors_of_a_chain_take_turns_in_two_places() -> None:
    manager, handles = planned([(TensorInfo((16,)), moment, moment + 1) for moment in range(10)])
    manager.acquire()
    assert manager.planned_bytes == 2 * 64
    assert len({address(handle) for handle in handles}) == 2


def test_a_gap_is_used_where_it_is_wide_enough() -> None:
    wide, narrow = TensorInfo((32,)), TensorInfo((16,))
    manager, (first, _, fits, after) = planned([(wide, 0, 1), (wide, 0, 9), (narrow, 2, 9), (narrow, 3, 9)])
    manager.acquire()
    assert manager.planned_bytes == 128 + 128
    assert {address(fits), address(after)} == {address(first), address(first) + 64}


def test_a_tensor_without_elements_takes_no_memory() -> None:
    manager, handles = planned([(TensorInfo((0, 3)), 0, 2), (TensorInfo((16,)), 0, 2), (TensorInfo((0,)), 1, 1)])
    manager.acquire()
    assert manager.planned_bytes == 64
    assert [handle.map().shape for handle in handles] == [(0, 3), (16,), (0,)]


def test_strings_get_arrays_of_their_own() -> None:
    manager, [names, numbers] = planned([(TensorInfo((2,), "string"), 0, 1), (TensorInfo((16,)), 0, 1)])
    manager.acquire()
    names.copy_in(np.array(["one", "two"], object))
    assert names.map().tolist() == ["one", "two"]
    assert manager.planned_bytes == 64
    numbers.copy_in(np.arange(16, dtype=np.float32))
    assert names.map().tolist() == ["one", "two"]


def test_memory_is_there_from_acquire_to_release_and_can_be_acquired_again() -> None:
    manager, [handle] = planned([(TensorInfo((2,)), 0, 1)])
    text = "the tensor float32[2] cannot be mapped because it has no memory"
    for _ in range(2):
        with pytest.raises(BackendContractError, match=text.replace("[", r"\[")):
            handle.map()
        manager.acquire()
        handle.copy_in(np.float32([1, 2]))
        assert handle.map().tolist() == [1, 2]
        manager.release()


def test_a_handle_without_a_manager_gets_memory_when_it_is_allocated() -> None:
    handle = ArrayHandle(TensorInfo((2,)))
    handle.manage()
    with pytest.raises(BackendContractError):
        handle.map()
    handle.allocate()
    handle.copy_in(np.float32([1, 2]))
    assert handle.map().tolist() == [1, 2]
    assert handle.manager is None


def test_a_constant_is_used_in_place() -> None:
    array = np.float32([1, 2])
    assert WorkloadFactory(ArenaMemoryManager()).create_constant_handle(TensorInfo.of(array), array).map() is array


def test_a_constant_is_copied_where_handles_are_of_another_kind() -> None:
    class Own(ArrayHandle):
        pass

    class Factory(WorkloadFactory):
        def create_tensor_handle(self, info: TensorInfo) -> Own:
            return Own(info)

    array = np.float32([1, 2])
    handle = Factory().create_constant_handle(TensorInfo.of(array), array)
    assert type(handle) is Own
    assert not np.shares_memory(handle.map(), array)
    assert handle.map().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros(3, np.float32), "the handle of float32[2] maps to float32[3]"),
        (np.zeros(2, np.int32), "the handle of float32[2] maps to int32[2]"),
        (None, "the handle of float32[2] maps to NoneType, which is not an array"),
    ],
)
def test_a_handle_that_maps_to_another_tensor_is_found_out(array: object, text: str) -> None:
    class Liar(ArrayHandle):
        unmapped = 0

        def map(self) -> object:  # type: ignore[override]
            return array

        def unmap(self) -> None:
            self.unmapped += 1

    handle = Liar(TensorInfo((2,)))
    for use in (handle.copy_in, handle.copy_out):
        with pytest.raises(BackendContractError) as caught:
            use(np.zeros(2, np.float32))
        assert str(caught.value) == text
    assert handle.unmapped == 2


def test_memory_sources_have_the_values_that_other_programs_know() -> None:
    assert [(item.name, int(item)) for item in MemorySource] == [
        ("MALLOC", 1),
        ("DMA_BUF", 2),
        ("DMA_BUF_PROTECTED", 4),
        ("GRALLOC", 8),
    ]


def test_a_sub_tensor_of_a_scalar_is_a_view_of_it() -> None:
    whole = ArrayHandle(TensorInfo(()), np.array(1, np.float32))
    piece = whole.create_sub_tensor((), TensorInfo(()))
    with piece.mapped() as array:
        array[...] = 2
    with whole.mapped() as array:
        assert array == 2
