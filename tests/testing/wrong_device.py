"""Devices with their own memory and one planted defect each, for the conformance kit to find.

`Board` does nothing wrong: it computes on tensors in a private heap, which the host cannot map, and a copy engine
brings tensors in and out. Every other backend here is a board with one error.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    Capabilities,
    KernelTable,
    KernelWorkload,
    KernelWorkloadFactory,
    MemoryManager,
    MemorySource,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.backend.planner import Lifetime, plan
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import Addition, PreCompiled
from interposer.testing import Settings
from tests.testing import wrong
from tests.testing.planted import QUICK, Planted

ROW = 32
FACTORY = "Planted/Board/Heap"


class Heap(MemoryManager):
    """The memory of one run; tensors that do not live at the same time share bytes."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.tensors: list[Tensor] = []
        self.lives: list[Lifetime] = []
        self.moment = 0
        self.bytes: Array | None = None

    def begin(self, tensor: Tensor) -> None:
        self.moment += 1
        tensor.number = len(self.tensors)
        self.tensors.append(tensor)
        self.lives.append(Lifetime(self.board.room(tensor), self.moment, self.moment))

    def end(self, tensor: Tensor) -> None:
        self.moment += 1
        self.lives[tensor.number] = replace(self.lives[tensor.number], ends=self.moment)

    def acquire(self) -> None:
        memory_plan = plan(self.lives, ROW)
        self.bytes = np.full(memory_plan.size + ROW, 0xA5, np.uint8)
        for tensor, offset in zip(self.tensors, self.board.offsets(memory_plan.offsets), strict=True):
            tensor.lie_in(self.bytes, offset)

    def release(self) -> None:
        self.bytes = None
        for tensor in self.tensors:
            tensor.lie_in(None, 0)


class Tensor(TensorHandle):
    """A tensor on the board, with rows at multiples of 32 bytes."""

    def __init__(self, info: TensorInfo, heap: Heap | None) -> None:
        super().__init__(info)
        self.heap, self.number = heap, -1
        self.memory: Array | None = None
        self.offset = 0
        self.host: Array | None = None
        shape, size = tuple(map(int, info.shape)), info.dtype.numpy.itemsize
        self.row = -(-shape[-1] * size // ROW) * ROW if shape else ROW

    def manage(self) -> None:
        if self.heap is not None:
            self.heap.begin(self)

    def allocate(self) -> None:
        if self.heap is not None and self.number >= 0:
            self.heap.end(self)
        else:
            self.lie_in(np.full(self.size, 0xA5, np.uint8), 0)

    @property
    def size(self) -> int:
        return self.row * math.prod(map(int, self.info.shape[:-1]))

    def lie_in(self, memory: Array | None, offset: int) -> None:
        self.memory, self.offset = memory, offset

    def map(self) -> Array:
        raise OSError("the memory of the board cannot be mapped")

    def on_board(self) -> Array:
        assert self.memory is not None, "the tensor has no memory"
        shape, size = tuple(map(int, self.info.shape)), self.info.dtype.numpy.itemsize
        outer = [self.row * math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]
        strides = (*outer, size) if shape else ()
        return np.ndarray(shape, self.info.dtype.numpy, self.memory.data, self.offset, strides)


class Mapped(Tensor):
    """A tensor that the host sees: `map` downloads it, the last `unmap` uploads it."""

    maps = 0

    def map(self) -> Array:
        if not self.maps:
            self.host = self.on_board().copy()
        self.maps += 1
        assert self.host is not None
        return self.host

    def unmap(self) -> None:
        if self.maps < 1:
            raise OSError("it is not mapped")
        self.maps -= 1
        if not self.maps:
            self.on_board()[...] = self.host


class Engine(Workload):
    """Copies to and from the board."""

    strided = True

    def __init__(self, board: Board) -> None:
        self.board = board

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        [source], [target] = inputs, outputs
        if isinstance(target, Tensor) and source is not None:
            with source.mapped() as array:
                self.board.upload(array, target)
        elif isinstance(source, Tensor):
            with target.mapped() as array:
                self.board.download(source, array)


class BoardFactory(TensorHandleFactory):
    """Creates tensors on the board."""

    id = FACTORY

    def __init__(self, board: Board, heap: Heap) -> None:
        self.board, self.heap = board, heap
        self.supports_map = board.maps
        self.supports_device_copy = not board.maps
        self.supports_sub_tensors = board.sub_tensors
        self.export_sources = self.import_sources = board.shares

    def create(self, info: TensorInfo) -> TensorHandle:
        return self.board.tensor(info, self.heap)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        return self.board.constant(info, array)

    def create_device_copy(self) -> Workload:
        return Engine(self.board)


class Layers(KernelWorkload):
    """Runs a kernel on the board."""

    concurrent = in_place = strided = False

    def __init__(self, board: Board, op: Any, kernel: Any, info: Any) -> None:
        super().__init__(op, kernel, info)
        self.board = board

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        self.board.run(self, inputs, outputs)

    def compute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [None if operand is None else seen(operand) for operand in inputs]
        self.kernel.call(self.op, arrays, self.info, [seen(output) for output in outputs], self.prepared)

    def prepare(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> Callable[[], None]:
        return lambda: self.execute(inputs, outputs)


def seen(handle: TensorHandle) -> Array:
    assert isinstance(handle, Tensor)
    return handle.on_board()


class Workloads(KernelWorkloadFactory):
    def __init__(self, board: Board) -> None:
        super().__init__(board.kernels, None)
        self.board = board

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        workload = super().create_workload(layer, info)
        assert isinstance(workload, KernelWorkload)
        return self.board.workload(workload)


class Board(Backend):
    """Adds and multiplies float32 tensors in its own memory, and does nothing wrong."""

    id: ClassVar = "Board"
    kernels: ClassVar = wrong.table
    maps: ClassVar = False
    sub_tensors: ClassVar = False
    shares: ClassVar = MemorySource.UNDEFINED
    kind: ClassVar[type[Tensor]] = Tensor

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        return (FACTORY,)

    def create_memory_manager(self) -> None:
        return None

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        heap = self.heap()
        registry.register_memory_manager(heap)
        registry.register_factory(self.factory(heap))

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return Workloads(self)

    def heap(self) -> Heap:
        return Heap(self)

    def factory(self, heap: Heap) -> TensorHandleFactory:
        return BoardFactory(self, heap)

    def tensor(self, info: TensorInfo, heap: Heap | None) -> Tensor:
        return self.kind(info, heap)

    def constant(self, info: TensorInfo, array: Array) -> Tensor:
        tensor = self.tensor(info, None)
        tensor.allocate()
        tensor.on_board()[...] = array
        return tensor

    def workload(self, made: KernelWorkload) -> Layers:
        return Layers(self, made.op, made.kernel, made.info)

    def room(self, tensor: Tensor) -> int:
        return tensor.size

    def offsets(self, planned: Sequence[int]) -> Sequence[int]:
        return planned

    def upload(self, array: Array, tensor: Tensor) -> None:
        tensor.on_board()[...] = array

    def download(self, tensor: Tensor, array: Array) -> None:
        array[...] = tensor.on_board()

    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        layer.compute(inputs, outputs)


class MappedBoard(Board):
    """The same, with memory that the host can map."""

    id: ClassVar = "MappedBoard"
    maps: ClassVar = True
    kind: ClassVar = Mapped


PLANTED: list[Planted] = []


def planted(
    what: str, case: str, message: str, settings: Settings = QUICK, *, names_it: bool = True
) -> Callable[[type[Backend]], type[Backend]]:
    """Add a backend to the list of planted defects, and give it its class's name as its id."""

    def add(backend: type[Backend]) -> type[Backend]:
        backend.id = backend.__name__  # type: ignore[assignment]
        kind = "a device with its own memory" if issubclass(backend, Board) else "claims"
        PLANTED.append(Planted(what, backend, case, message, kind, names_it=names_it, settings=settings))
        return backend

    return add


# --- copies -----------------------------------------------------------------------------------------------------------


@planted("The device's copies to the host return the content before the latest write", "order/Addition-float32",
         "the device copy of .* copied wrong values to")  # fmt: skip
class StaleCopyBack(Board):
    def __init__(self) -> None:
        self.old: dict[int, Array] = {}

    def download(self, tensor: Tensor, array: Array) -> None:
        now = tensor.on_board().copy()
        array[...] = self.old.get(id(tensor), now)
        self.old[id(tensor)] = now


@planted("Uploads ignore the gaps between the rows of the target", "memory/contents",
         "a tensor of Planted/Board/Heap, .* does not hold what it was given", names_it=False)  # fmt: skip
class WrongStrideOnUpload(Board):
    def upload(self, array: Array, tensor: Tensor) -> None:
        assert tensor.memory is not None
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        tensor.memory[tensor.offset : tensor.offset + raw.size] = raw


@planted("Copies return before the data has arrived", "order/Addition-float32",
         "the device copy of .* copied wrong values to")  # fmt: skip
class CopiesWithoutWaiting(Board):
    def upload(self, array: Array, tensor: Tensor) -> None:
        copy, place = array.copy(), tensor.on_board()

        def later() -> None:
            time.sleep(0.002)
            place[...] = copy

        threading.Thread(target=later).start()


@planted(
    "Downloads return tensors with the last two axes exchanged",
    "memory/contents",
    "does not hold what it was given",
    names_it=False,
)
class TransposedDownload(Board):
    def download(self, tensor: Tensor, array: Array) -> None:
        own = tensor.on_board()
        array[...] = own.swapaxes(-1, -2).reshape(own.shape) if own.ndim > 1 else own


@planted("Only the first upload to a tensor is executed", "order/Addition-float32",
         "the device copy of .* copied wrong values to")  # fmt: skip
class UploadsOnce(Board):
    def __init__(self) -> None:
        self.known: dict[int, Tensor] = {}

    def upload(self, array: Array, tensor: Tensor) -> None:
        if tensor.host is None:
            super().upload(array, tensor)
            tensor.host = array.copy()


@planted("Uploads change the array of the host in place", "inputs/Addition-float32",
         "an array of the caller, or a constant, was written to")  # fmt: skip
class UploadsDestructively(Board):
    def upload(self, array: Array, tensor: Tensor) -> None:
        super().upload(array, tensor)
        ctypes.memset(array.ctypes.data, 0, array.nbytes if array.flags.c_contiguous else 0)


# --- the heap ---------------------------------------------------------------------------------------------------------


@planted("Each tensor overlaps the next one by one row", "memory/contents",
         "changed a tensor that lives at the same time, .* they overlap")  # fmt: skip
class HeapOffByOne(Board):
    def room(self, tensor: Tensor) -> int:
        return max(1, tensor.size - ROW)


@planted("Two tensors that live at the same time share their bytes", "composition/diamond-*",
         "was changed by the workload of layer .* tensors that live at the same time must not overlap")  # fmt: skip
class AliasesLiveTensors(Board):
    def offsets(self, planned: Sequence[int]) -> Sequence[int]:
        return [0 if number > 2 else place for number, place in enumerate(planned)]


@planted("All working memories share one heap", "memory/working-memories",
         "changed a tensor of another working memory that lives at the same time")  # fmt: skip
class OneHeapForAll(Board):
    shared: ClassVar = np.full(1 << 16, 0xA5, np.uint8)

    def heap(self) -> Heap:
        board = self

        class Shared(Heap):
            def acquire(self) -> None:
                for tensor, offset in zip(self.tensors, plan(self.lives, ROW).offsets, strict=True):
                    tensor.lie_in(board.shared, offset)

        return Shared(self)


@planted("Constants are allocated in the heap, where tensors overwrite them", "memory/constants",
         "a constant of .* has other values after tensors were written to")  # fmt: skip
class ConstantsInTheHeap(Board):
    def __init__(self) -> None:
        self.latest: Heap | None = None
        self.constants: list[Tensor] = []

    def heap(self) -> Heap:
        board = self

        class Sharing(Heap):
            def acquire(self) -> None:
                super().acquire()
                assert self.bytes is not None
                for constant in board.constants[-1:]:
                    held = constant.on_board().copy()
                    if constant.size <= len(self.bytes):
                        constant.lie_in(self.bytes, 0)
                        constant.on_board()[...] = held

        return Sharing(self)

    def constant(self, info: TensorInfo, array: Array) -> Tensor:
        self.constants.append(super().constant(info, array))
        return self.constants[-1]


@planted("The same heap is registered for every network", "order/Addition-float32",
         "it returned a memory manager a second time; every network needs one of its own")  # fmt: skip
class OneManagerForAll(Board):
    def __init__(self) -> None:
        self.only = Heap(self)

    def heap(self) -> Heap:
        return self.only


# --- handles ----------------------------------------------------------------------------------------------------------


@planted("Every tensor is stored in a list of the backend", "leaks/objects",
         r"\d+ objects of the class Tensor are still alive after \d+ networks were unloaded")  # fmt: skip
class KeepsHandles(Board):
    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def tensor(self, info: TensorInfo, heap: Heap | None) -> Tensor:
        self.kept.append(super().tensor(info, heap))
        return self.kept[-1]


@planted("The memory manager destroys the tensors, which the runtime does", "order/Addition-float32",
         "was destroyed 2 times; only the runtime may destroy it, and does so once")  # fmt: skip
class DestroysTwice(Board):
    def heap(self) -> Heap:
        class Eager(Heap):
            def release(self) -> None:
                super().release()
                for tensor in self.tensors:
                    tensor.destroy()

        return Eager(self)


@planted("The factory creates a spare tensor for each one, and never destroys it", "order/Addition-float32",
         "was created but never destroyed; who creates a handle beside the runtime must destroy it")  # fmt: skip
class NeverDestroys(Board):
    def factory(self, heap: Heap) -> TensorHandleFactory:
        class Spare(BoardFactory):
            inside = False

            def create(self, info: TensorInfo) -> TensorHandle:
                if not self.inside:
                    self.inside = True
                    self.spare = self.create(info)
                    self.inside = False
                return super().create(info)

        return Spare(self, heap)


@planted("Tensors are freed when their last reader begins, not when it has run", "results/Addition-float32",
         "failed on backend FreesWhileInUse: AssertionError: the tensor has no memory", names_it=False)  # fmt: skip
class FreesWhileInUse(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        for operand in inputs:
            if isinstance(operand, Tensor):
                operand.lie_in(None, 0)
        super().run(layer, inputs, outputs)


@planted("A tensor is mapped again after the runtime has destroyed it", "order/Addition-float32",
         "was used after it was destroyed: map")  # fmt: skip
class UsedAfterDestroy(MappedBoard):
    def heap(self) -> Heap:
        return Heap(self)

    class Returning(Mapped):
        def destroy(self) -> None:
            self.lie_in(np.full(self.size, 0, np.uint8), 0)
            threading.Thread(target=self._look).run()

        def _look(self) -> None:
            UsedAfterDestroy.late.append(self)
            if len(UsedAfterDestroy.late) > 1:
                other = UsedAfterDestroy.late.pop(0)
                other.map()
                other.unmap()

    late: ClassVar[list[Mapped]] = []
    kind: ClassVar = Returning


@planted("The same handle is given for two tensors of a kind", "order/Addition-float32",
         "returned a handle for a second time")  # fmt: skip
class GivesHandlesTwice(Board):
    def factory(self, heap: Heap) -> TensorHandleFactory:
        class Reusing(BoardFactory):
            def __init__(self, board: Board, heap: Heap) -> None:
                super().__init__(board, heap)
                self.known: dict[TensorInfo, TensorHandle] = {}

            def create(self, info: TensorInfo) -> TensorHandle:
                return self.known.setdefault(info, super().create(info))

        return Reusing(self, heap)


# --- maps -------------------------------------------------------------------------------------------------------------


def downloaded(handle: TensorHandle | None) -> Array | None:
    return None if handle is None else handle.map()


@planted("Workloads map tensors and do not unmap them", "order/Addition-float32",
         "was mapped but not unmapped; every map needs one unmap")  # fmt: skip
class MapsWithoutUnmap(MappedBoard):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        for operand in inputs[:1]:
            downloaded(operand)
        super().run(layer, inputs, outputs)


@planted("Workloads unmap tensors that they did not map", "order/Addition-float32",
         "was unmapped more often than mapped; every map needs one unmap")  # fmt: skip
class UnmapsWithoutMap(MappedBoard):
    class Lenient(Mapped):
        def unmap(self) -> None:
            if self.maps:
                super().unmap()

    kind: ClassVar = Lenient

    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        outputs[0].unmap()


@planted("Unmap does not bring back what the host wrote", "memory/maps",
         "what is written to a mapped tensor of .* is lost when it is unmapped")  # fmt: skip
class UnmapForgets(MappedBoard):
    class Forgetting(Mapped):
        def unmap(self) -> None:
            self.maps -= 1

    kind: ClassVar = Forgetting


@planted("The factory declares `supports_map`, but its memory cannot be mapped", "memory/maps",
         "says that it supports maps, but: OSError: the memory of the board cannot be mapped")  # fmt: skip
class ClaimsMaps(Board):
    maps: ClassVar = True


# --- what is written to -----------------------------------------------------------------------------------------------


@planted("Layers use their first input as scratch memory", "inputs/Addition-float32",
         "wrote to its input 0")  # fmt: skip
class WritesToDeviceInputs(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        assert inputs[0] is not None
        seen(inputs[0])[...] = 0


@planted("Layers write to their constants", "inputs/Addition-constant-b", "wrote to its input 1, a constant")
class WritesToDeviceConstants(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        for operand in inputs[1:]:
            if isinstance(operand, Tensor) and operand.heap is None:
                operand.on_board()[...] *= 2


@planted("Layers write one row past their output", "composition/*", "was changed by the workload of layer")
class WritesPastOutputs(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        [out] = outputs
        assert isinstance(out, Tensor)
        assert out.memory is not None
        end = out.offset + out.size
        out.memory[end : end + ROW] = 0
        before = max(0, out.offset - ROW)
        out.memory[before : out.offset] = 0


# --- sharing memory ---------------------------------------------------------------------------------------------------


class Sharing(MappedBoard):
    """A board whose tensors lie in ordinary memory, which others may use in place; this one is right."""

    id: ClassVar = "Sharing"
    shares: ClassVar = MemorySource.MALLOC

    class Shared(Tensor):
        imports: ClassVar = True

        def __init__(self, info: TensorInfo, heap: Heap | None) -> None:
            super().__init__(info, heap)
            self.given: Array | None = None

        def map(self) -> Array:
            return self.on_board()

        def on_board(self) -> Array:
            return super().on_board() if self.given is None else self.given

        def export_memory(self, source: MemorySource) -> Array:
            return self.on_board()

        def import_memory(self, array: Array) -> bool:
            self.given = array
            return True

        def forget_memory(self) -> None:
            self.given = None

    kind: ClassVar = Shared


@planted("Exported memory is a copy of the tensor", "memory/exports",
         "exports a copy, not its own memory: later writes do not show")  # fmt: skip
class ExportsCopies(Sharing):
    class Copying(Sharing.Shared):
        def export_memory(self, source: MemorySource) -> Array:
            return self.on_board().copy()

    kind: ClassVar = Copying


@planted("Exported memory has its axes in another order", "memory/exports", "exports other values than it holds")
class ExportsTransposed(Sharing):
    class Turned(Sharing.Shared):
        def export_memory(self, source: MemorySource) -> Array:
            own = self.on_board()
            return own.T.reshape(own.shape)

    kind: ClassVar = Turned


@planted("Imported memory is copied, though the handle reports that it is used in place", "memory/imports",
         "says that it imported memory, but has a copy: writes do not show there")  # fmt: skip
class ImportsCopies(Sharing):
    class Copying(Sharing.Shared):
        def import_memory(self, array: Array) -> bool:
            self.given = array.copy()
            return True

    kind: ClassVar = Copying


@planted("Sub-tensors begin one element too early", "memory/sub-tensors",
         "says that it supports sub-tensors, but what is written to one of .* does not show at its place")  # fmt: skip
class WrongSubTensors(Sharing):
    sub_tensors: ClassVar = True

    class Whole(Sharing.Shared):
        def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
            return Part(self, [max(0, start - 1) for start in origin], info)

    kind: ClassVar = Whole


class Part(Sharing.Shared):
    def __init__(self, whole: Tensor, origin: Sequence[int], info: TensorInfo) -> None:
        super().__init__(info, None)
        self.whole = whole
        self.place = tuple(slice(start, start + int(size)) for start, size in zip(origin, info.shape, strict=True))

    def on_board(self) -> Array:
        return self.whole.on_board()[self.place]


# --- claims -----------------------------------------------------------------------------------------------------------


class Striding(Sharing):
    """A board that is right and says that its workloads are strided."""

    id: ClassVar = "Striding"
    sub_tensors: ClassVar = True

    class Whole(Sharing.Shared):
        def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
            return Part(self, origin, info)

    kind: ClassVar = Whole

    def workload(self, made: KernelWorkload) -> Layers:
        workload = super().workload(made)
        workload.strided = True
        return workload


@planted("Workloads declare `strided`, but ignore the gaps between rows", "claims/strided",
         "its workload says `strided`, but on sub-tensors, .* output 0 is wrong")  # fmt: skip
class ClaimsStrided(Striding):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        out = seen(outputs[0])
        if not out.flags.c_contiguous and out.ndim > 1:
            out[...] = np.roll(out, 1, 0)


@planted("Strided workloads write to the gaps between rows", "claims/strided", "it wrote to the gaps beside output 0")
class WritesToGaps(Striding):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        if isinstance(outputs[0], Part):
            outputs[0].whole.on_board()[..., -1] = 0


@planted("The backend declares `DynamicShapes`, but keeps using the first size that it sees", "claims/dynamic-shapes",
         "it says that it has DynamicShapes, but output 0, of shape .*, is wrong")  # fmt: skip
class ClaimsDynamicShapes(wrong.Right):
    capabilities: ClassVar = Capabilities(DynamicShapes=True)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return _FixedFactory(self.kernels, memory_manager)


class _FixedFactory(KernelWorkloadFactory):
    """Makes workloads that compute only as many rows as there were when the first one was made."""

    def __init__(self, kernels: KernelTable, memory_manager: MemoryManager | None) -> None:
        super().__init__(kernels, memory_manager)
        self.rows: dict[object, int] = {}

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        workload = super().create_workload(layer, info)
        rows = self.rows.setdefault(layer.guid, int(info.outputs[0].shape[0]) if info.outputs[0].rank else 1)
        execute = workload.execute

        def first_rows(inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
            execute(inputs, outputs)
            with outputs[0].mapped() as array:
                if array.ndim:
                    array[rows:] = 0

        workload.execute = first_rows  # type: ignore[method-assign]
        return workload


class Compiled:
    """A compiled part that says that it reads no constants of the network, as if it had copies of all."""

    constants: ClassVar = ()


@planted("Compiled parts read the constants of the network, though they declare copies",
         "claims/keeps-constants", "it says that it keeps copies of its constants, but reads the ones")  # fmt: skip
class ClaimsToKeepConstants(wrong.Right):
    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        layers = [layer for layer in view if isinstance(layer.op, Addition) and layer.values[1].is_constant]
        if len(view) != 1 or not layers or layers[0].values[0].is_constant:
            return OptimizationViews(view)
        compiled = Compiled()
        compiled.constant = layers[0].values[1].constant  # type: ignore[attr-defined]
        return OptimizationViews(view, substitutions=[Substitution(view, PreCompiled(1, compiled))])

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        class Parts(KernelWorkloadFactory):
            def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
                if isinstance(layer.op, PreCompiled):
                    return Adding(layer.op.object)
                return super().create_workload(layer, info)

        return Parts(self.kernels, memory_manager)


class Adding(Workload):
    def __init__(self, part: Any) -> None:
        self.constant = part.constant

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        assert inputs[0] is not None
        with inputs[0].mapped() as array, outputs[0].mapped() as out:
            np.add(array, self.constant, out=out)


# --- leaks, state and hangs -------------------------------------------------------------------------------------------


@planted("A few hundred bytes of every network are never freed", "leaks/small",
         "(Python objects|bytes) leak for every small network that is loaded")  # fmt: skip
class LeaksPerLoad(Board):
    def __init__(self) -> None:
        self.lost: list[int] = []

    def workload(self, made: KernelWorkload) -> Layers:
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        self.lost.append(libc.malloc(ctypes.c_size_t(300)))
        return super().workload(made)


@planted("Every run leaks objects", "leaks/small", "leak for every small network that is loaded")
class LeaksPerRun(Board):
    def __init__(self) -> None:
        self.lost: list[object] = []

    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        self.lost += [bytearray(64), object()]


@planted("Denormals are flushed to zero in the calling thread after a run", "order/Addition-float32",
         "the floating-point mode of the calling thread changed: denormals are flushed to zero")  # fmt: skip
class FlushesToZero(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        flush_to_zero()


def flush_to_zero() -> None:
    """Set FTZ and DAZ in MXCSR, as native libraries do; `fesetenv` takes the words that `fegetenv` gave."""
    libm = ctypes.CDLL("libm.so.6")
    words = (ctypes.c_uint32 * 8)()
    libm.fegetenv(ctypes.byref(words))
    words[7] |= 0x8040
    libm.fesetenv(ctypes.byref(words))


PATIENT = Settings(examples=10, loads=20, patience=2.0)


@planted("A second layer waits for a lock that the first one never gives back", "results/Addition-float32",
         r"the backend hangs: nothing happened for 2 seconds\nit was running layer 'layer'", PATIENT)  # fmt: skip
class Deadlocks(Board):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        self.lock.acquire()
        super().run(layer, inputs, outputs)


@planted("A native call of the device never returns, and keeps the interpreter's lock", "results/Addition-float32",
         r"the backend hangs: nothing happened for 2 seconds", PATIENT)  # fmt: skip
class NeverReturns(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        ctypes.PyDLL(None).pause()


@planted("Results of the second network that is loaded are those of the first one's weights", "results/*",
         "elements are wrong", names_it=False)  # fmt: skip
class WrongAfterSecondLoad(Board):
    def __init__(self) -> None:
        self.first: dict[TensorInfo, Array] = {}

    def constant(self, info: TensorInfo, array: Array) -> Tensor:
        first_array = self.first.setdefault(info.with_constant(None), array.copy() + 1)
        return super().constant(info, first_array if len(self.first) > 1 else array)


@planted("The results of one run are added to those of the next run", "repetition/Addition-float32",
         "output 0 is not the same when the network runs again on the same inputs")  # fmt: skip
class KeepsStateBetweenRuns(Board):
    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        out = seen(outputs[0])
        out += getattr(layer, "rest", 0)
        layer.rest = float(np.nanmean(out)) / 100  # type: ignore[attr-defined]


@planted("The factory of one heap serves several working memories at once", "threads/one-network",
         "(output 0 is not what it is when nothing else runs|a thread that ran concurrently .* raised)")  # fmt: skip
class SharesTensorsBetweenRuns(Board):
    def workload(self, made: KernelWorkload) -> Layers:
        workload = super().workload(made)
        workload.concurrent = True
        return workload

    def __init__(self) -> None:
        self.scratch: dict[tuple[int, ...], Array] = {}

    def run(self, layer: Layers, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().run(layer, inputs, outputs)
        out = seen(outputs[0])
        self.scratch[out.shape] = out.copy()
        time.sleep(0.0005)
        out[...] = self.scratch[out.shape]


@planted("The handle factories of networks that are loaded at the same time exchange their tensors",
         "threads/optimizing",
         "(output 0 is not what it is when nothing else runs|a thread that ran concurrently .* raised)")  # fmt: skip
class FactoriesConfuseThreads(Board):
    def __init__(self) -> None:
        self.latest: Tensor | None = None

    def tensor(self, info: TensorInfo, heap: Heap | None) -> Tensor:
        self.latest = super().tensor(info, heap)
        time.sleep(0.0002)
        return self.latest
