"""Backends with one planted defect each, for the conformance kit to find."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from interposer.backend import (
    ArenaMemoryManager,
    ArrayHandle,
    Backend,
    BackendContext,
    Capabilities,
    Failure,
    KernelTable,
    KernelWorkload,
    KernelWorkloadFactory,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    Support,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.backend.planner import MemoryPlan
from interposer.backend.support import KernelSupport
from interposer.core.errors import InvalidArgumentError, InvalidValueError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import Addition, Gather, Multiplication, PreCompiled

FLOAT = {DataType.FLOAT32}
table = KernelTable()


@table(Addition, dtypes=FLOAT)
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


@table(Multiplication, dtypes=FLOAT)
def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
    np.multiply(a, b, out=out)


class Right(Backend):
    """Adds and multiplies, and does nothing wrong."""

    id: ClassVar = "Right"
    kernels: ClassVar = table


def with_addition(compute: Callable[..., None]) -> KernelTable:
    """A table of kernels in which `compute(a, b, out)` stands for Addition."""
    kernel_table = KernelTable()

    @kernel_table(Addition, dtypes=FLOAT)
    def kernel(op: Addition, a: Array, b: Array, *, out: Array) -> None:
        compute(a, b, out)

    kernel_table(Multiplication, dtypes=FLOAT)(multiply)
    return kernel_table


# --- what it computes -------------------------------------------------------------------------------------------------


def one_too_much(a: Array, b: Array, out: Array) -> None:
    np.add(a, b + 1, out=out)


class WrongSums(Right):
    """Gives one too much."""

    id: ClassVar = "WrongSums"
    kernels: ClassVar = with_addition(one_too_much)


def in_place(a: Array, b: Array, out: Array) -> None:
    if a.shape == out.shape:
        np.add(a, b, out=out)
        ctypes.memmove(a.ctypes.data, out.ctypes.data, out.nbytes)  # past NumPy, which knows that it is read-only
    else:
        np.add(a, b, out=out)


class WritesToInputs(Right):
    """Uses its first input as memory to compute in."""

    id: ClassVar = "WritesToInputs"
    kernels: ClassVar = with_addition(in_place)


def clearing(a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out=out)
    ctypes.memset(b.ctypes.data, 0, b.nbytes)  # as native code could, which does not see that an array is read-only


class WritesToConstants(Right):
    """Clears its second input, which may be a constant."""

    id: ClassVar = "WritesToConstants"
    kernels: ClassVar = with_addition(clearing)


def on_top(a: Array, b: Array, out: Array) -> None:
    out += a
    out += b


class ReliesOnZeros(Right):
    """Adds to what its output holds, which is zero where memory happens to be fresh."""

    id: ClassVar = "ReliesOnZeros"
    kernels: ClassVar = with_addition(on_top)


drift = itertools.count()


def drifting(a: Array, b: Array, out: Array) -> None:
    np.add(a, b + np.float32(next(drift) * 1e-6), out=out)


class Drifts(Right):
    """Gives something else every time, not by much."""

    id: ClassVar = "Drifts"
    kernels: ClassVar = with_addition(drifting)


class DriftsAndSaysSo(Drifts):
    """The same, and says that it is not deterministic."""

    id: ClassVar = "DriftsAndSaysSo"
    capabilities: ClassVar = Capabilities(Deterministic=False)


scratch: dict[str, Array] = {}


def by_way_of_scratch(a: Array, b: Array, out: Array) -> None:
    scratch["sum"] = a + b
    time.sleep(0.0005)
    sums = scratch["sum"]
    np.copyto(out, sums if sums.shape == out.shape else a + b)


class SharesScratch(Right):
    """Keeps what it computes in one place for all networks, for a moment."""

    id: ClassVar = "SharesScratch"
    kernels: ClassVar = with_addition(by_way_of_scratch)


def crashing(a: Array, b: Array, out: Array) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class Crashing(Right):
    """Ends its process."""

    id: ClassVar = "Crashing"
    kernels: ClassVar = with_addition(crashing)


def reading_one_more(a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out=out)
    ctypes.string_at(a.ctypes.data + a.nbytes, a.itemsize)


class ReadsBeyondItsInputs(Right):
    """Reads the element after the last one of its first input, and makes nothing of it."""

    id: ClassVar = "ReadsBeyondItsInputs"
    kernels: ClassVar = with_addition(reading_one_more)


def reading_one_before(a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out=out)
    ctypes.string_at(b.ctypes.data - b.itemsize, b.itemsize)


class ReadsBeforeItsInputs(Right):
    """Reads the element before the first one of its second input, and makes nothing of it."""

    id: ClassVar = "ReadsBeforeItsInputs"
    kernels: ClassVar = with_addition(reading_one_before)


def writing_far_beyond(a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out=out)
    if out.ctypes.data % mmap.PAGESIZE == 0:  # only on memory that begins at a page, and beyond the margin of the kit
        ctypes.memset(out.ctypes.data + out.nbytes + 512, 0, 1)


class WritesFarBeyondItsOutputs(Right):
    """Writes to memory half a kilobyte after its output, if this begins at a page."""

    id: ClassVar = "WritesFarBeyondItsOutputs"
    kernels: ClassVar = with_addition(writing_far_beyond)


# --- what it says -----------------------------------------------------------------------------------------------------


class TakesEveryType(Right):
    """Has a kernel without data types, which therefore takes all of them."""

    id: ClassVar = "TakesEveryType"
    kernels: ClassVar = KernelTable()


@TakesEveryType.kernels(Addition)
def add_anything(op: Addition, a: Array, b: Array) -> Array:
    """Add arrays of any type."""
    return np.asarray(np.add(a, b))


class Answering(Right):
    """Answers as `verdicts` says."""

    id: ClassVar = "Answering"
    verdicts: ClassVar[Callable[[SubgraphView], Any]]

    def layer_support(self, options: Options) -> LayerSupport:
        support = LayerSupport()
        support.query = type(self).verdicts  # type: ignore[method-assign]
        return support


class RefusesWithoutReason(Answering):
    """Says no, and nothing else."""

    id: ClassVar = "RefusesWithoutReason"
    verdicts: ClassVar = staticmethod(lambda view: [Support.no() for _ in view])


class RefusesWithBlanks(Answering):
    """Has a reason that says nothing."""

    id: ClassVar = "RefusesWithBlanks"
    verdicts: ClassVar = staticmethod(lambda view: [Support.no("  ") for _ in view])


class SaysYesToEverything(Answering):
    """Has kernels for two operators, and says yes to all."""

    id: ClassVar = "SaysYesToEverything"
    verdicts: ClassVar = staticmethod(lambda view: [Support.yes() for _ in view])


class AnswersTooShort(Answering):
    """Gives one verdict, however many layers it is asked about."""

    id: ClassVar = "AnswersTooShort"
    verdicts: ClassVar = staticmethod(lambda view: [Support.yes()])


class AnswersInTruthValues(Answering):
    """Has not heard of `Support`."""

    id: ClassVar = "AnswersInTruthValues"
    verdicts: ClassVar = staticmethod(lambda view: [True] * len(view))


class RaisesWhenAsked(Answering):
    """Cannot be asked."""

    id: ClassVar = "RaisesWhenAsked"
    verdicts: ClassVar = staticmethod(lambda view: 1 // 0)


moods = itertools.cycle([Support.yes(), Support.no("not today")])


class ChangesItsMind(Answering):
    """Says yes, then no, then yes again."""

    id: ClassVar = "ChangesItsMind"
    verdicts: ClassVar = staticmethod(lambda view: [next(moods)] * len(view))


class RefusesUnknownOptions(Right):
    """Takes nothing where it is given an option that it does not know."""

    id: ClassVar = "RefusesUnknownOptions"

    def layer_support(self, options: Options) -> LayerSupport:
        return LayerSupport() if options else KernelSupport(self.kernels)


class NamesNoOption(Right):
    """Says that an option is wrong, but not which."""

    id: ClassVar = "NamesNoOption"

    def layer_support(self, options: Options) -> LayerSupport:
        if options:
            raise InvalidArgumentError("there is a wrong option")
        return KernelSupport(self.kernels)


class NamesUnknownOptions(Right):
    """Takes no option that it does not know, and says which: nothing is wrong with that."""

    id: ClassVar = "NamesUnknownOptions"

    def layer_support(self, options: Options) -> LayerSupport:
        if options:
            raise InvalidArgumentError(f"there is no option {next(iter(options))!r}")
        return KernelSupport(self.kernels)


class OddCapabilities(Right):
    """Means True by a text."""

    id: ClassVar = "OddCapabilities"
    capabilities: ClassVar = Capabilities(DynamicShapes="yes")


# --- what it makes of parts -------------------------------------------------------------------------------------------


class Summing(Workload):
    """Runs a part as if it were one addition of its inputs."""

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [handle.map() for handle in inputs if handle is not None]
        for handle in outputs:
            handle.copy_in(np.broadcast_to(sum(arrays), tuple(handle.info.shape)).astype(np.float32))
        for handle in inputs:
            handle.unmap()


class SummingFactory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return Summing() if isinstance(layer.op, PreCompiled) else super().create_workload(layer, info)


def compiled(part: SubgraphView) -> Substitution:
    return Substitution(part, PreCompiled(len(part.outputs)))


class Compiling(Right):
    """Replaces parts as `parts` says."""

    id: ClassVar = "Compiling"
    parts: ClassVar[Callable[[SubgraphView], Any]]

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        return type(self).parts(view)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return SummingFactory(self.kernels, memory_manager)


def overlapping(view: SubgraphView) -> OptimizationViews:
    return OptimizationViews(view, substitutions=[compiled(view), compiled(view.part(view.layers[:1]))])


class Overlaps(Compiling):
    """Replaces the whole view, and its first layer once more."""

    id: ClassVar = "Overlaps"
    parts: ClassVar = staticmethod(overlapping)


def ends(view: SubgraphView) -> OptimizationViews:
    return OptimizationViews(view, substitutions=[compiled(view.part([view.layers[0], view.layers[-1]]))])


class NotConvex(Compiling):
    """Makes one of the first and the last layer, with the others between them."""

    id: ClassVar = "NotConvex"
    parts: ClassVar = staticmethod(ends)


def beyond(view: SubgraphView) -> OptimizationViews:
    whole = SubgraphView(view.graph, view.graph)
    return OptimizationViews(view, substitutions=[compiled(whole)])


class LeavesTheView(Compiling):
    """Replaces the inputs and outputs of the network too."""

    id: ClassVar = "LeavesTheView"
    parts: ClassVar = staticmethod(beyond)


def another(view: SubgraphView) -> OptimizationViews:
    return OptimizationViews(view.part(view.layers))


class AnswersForAnotherView(Compiling):
    """Answers for a view that is like the one that it was shown."""

    id: ClassVar = "AnswersForAnotherView"
    parts: ClassVar = staticmethod(another)


def silent(view: SubgraphView) -> OptimizationViews:
    return OptimizationViews(view, failed=[Failure(view, " ")])


class GivesBackInSilence(Compiling):
    """Gives back what it was given, and does not say why."""

    id: ClassVar = "GivesBackInSilence"
    parts: ClassVar = staticmethod(silent)


def marking(view: SubgraphView) -> OptimizationViews:
    for layer in view:
        layer.backend = "Mine"
    return OptimizationViews(view)


class ChangesTheGraph(Compiling):
    """Writes on the layers that it is shown."""

    id: ClassVar = "ChangesTheGraph"
    parts: ClassVar = staticmethod(marking)


def wholly(view: SubgraphView) -> OptimizationViews:
    return OptimizationViews(view, substitutions=[compiled(view)] if len(view) > 1 else [])


class CompilesWrongly(Compiling):
    """Makes one addition of every part with more than one layer."""

    id: ClassVar = "CompilesWrongly"
    parts: ClassVar = staticmethod(wholly)


class GivesNoViews(Compiling):
    """Has nothing to say about parts, not even that."""

    id: ClassVar = "GivesNoViews"
    parts: ClassVar = staticmethod(lambda view: None)


# --- memory and order -------------------------------------------------------------------------------------------------


class Meddling(KernelWorkload):
    """A workload that does something with the memory manager around its work."""

    manager: MemoryManager

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        super().execute(inputs, outputs)
        copies = [handle.map().copy() for handle in outputs]
        for handle in outputs:
            handle.unmap()
        self.manager.release()
        self.manager.acquire()
        for handle, array in zip(outputs, copies, strict=True):
            handle.copy_in(array)


class MeddlingFactory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        workload = super().create_workload(layer, info)
        workload.__class__ = Meddling
        workload.manager = self.memory_manager  # type: ignore[attr-defined]
        return workload


class ReleasesInEveryRun(Right):
    """Gives its memory back after every layer, and takes it again."""

    id: ClassVar = "ReleasesInEveryRun"

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return MeddlingFactory(self.kernels, memory_manager)


class AcquiringFactory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        assert self.memory_manager is not None
        self.memory_manager.acquire()
        return super().create_workload(layer, info)


class AcquiresTooEarly(Right):
    """Takes its memory while the network is loaded."""

    id: ClassVar = "AcquiresTooEarly"

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return AcquiringFactory(self.kernels, memory_manager)


class Unmapping(KernelWorkload):
    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [None if handle is None else handle.map() for handle in inputs]
        self.kernel.call(self.op, arrays, self.info, [handle.map() for handle in outputs])


class UnmappingFactory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        workload = super().create_workload(layer, info)
        workload.__class__ = Unmapping
        return workload


class NeverUnmaps(Right):
    """Maps tensors and leaves them mapped."""

    id: ClassVar = "NeverUnmaps"

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return UnmappingFactory(self.kernels, memory_manager)


class SharesItsManager(Right):
    """Has one memory manager for all networks."""

    id: ClassVar = "SharesItsManager"

    def __init__(self) -> None:
        self.manager = ArenaMemoryManager()

    def create_memory_manager(self) -> MemoryManager:
        return self.manager


class FailsToRelease(Right):
    """Cannot give its memory back."""

    id: ClassVar = "FailsToRelease"

    def create_memory_manager(self) -> MemoryManager:
        return Stubborn()


class Stubborn(ArenaMemoryManager):
    def release(self) -> None:
        raise OSError("the device is busy")


class Careless(ArenaMemoryManager):
    """Lets every tensor lie at the start of the arena."""

    @property
    def plan(self) -> MemoryPlan:
        plan = super().plan
        return replace(plan, offsets=(0,) * len(plan.offsets))


class OverlapsInMemory(Right):
    """Does not look whether the place of a tensor is still needed."""

    id: ClassVar = "OverlapsInMemory"

    def create_memory_manager(self) -> MemoryManager:
        return Careless()


places: dict[tuple[object, ...], Array] = {}


class SharedHandle(ArrayHandle):
    """Lies where it was made to lie, at the border too; others get their turn while it is looked at."""

    def map(self) -> Array:
        time.sleep(0)
        return super().map()


class SharingFactory(KernelWorkloadFactory):
    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        number = len(self.given)
        self.given.append(info)
        key = (number, tuple(info.shape), str(info.dtype))
        return SharedHandle(info, places.setdefault(key, np.empty(tuple(info.shape), info.dtype.numpy)))

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        return ArrayHandle(info, array)

    def __init__(self, kernels: KernelTable) -> None:
        super().__init__(kernels)
        self.given: list[TensorInfo] = []


class MixesNetworks(Right):
    """Keeps the tensors of all networks in the same places."""

    id: ClassVar = "MixesNetworks"

    def create_memory_manager(self) -> None:
        return None

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return SharingFactory(self.kernels)


# --- what remains, and contexts ---------------------------------------------------------------------------------------


class KeepsWorkloads(Right):
    """Remembers every workload that it made."""

    id: ClassVar = "KeepsWorkloads"

    def __init__(self) -> None:
        self.kept: list[object] = []

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        kernel_workload_factory = KernelWorkloadFactory(self.kernels, memory_manager)
        self.kept.append(kernel_workload_factory)
        return kernel_workload_factory


class KeepsMemory(Right):
    """Takes eight mebibytes for every network, more than others can have left over, and never gives them back."""

    id: ClassVar = "KeepsMemory"

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def create_memory_manager(self) -> MemoryManager:
        self.kept.append(bytes(np.random.default_rng(len(self.kept)).integers(0, 256, 1 << 23, np.uint8)))
        return ArenaMemoryManager()


class Grudging(BackendContext):
    def after_unload_network(self, network_id: int) -> bool:
        return False


class SaysNoAfterwards(Right):
    """Its context returns False after a network was unloaded, which is only logged."""

    id: ClassVar = "SaysNoAfterwards"

    def create_backend_context(self, options: Options) -> BackendContext:
        return Grudging()


# --- values that cannot be used ---------------------------------------------------------------------------------------

gathering = KernelTable()


@gathering(Gather, dtypes={"params": FLOAT})
def take(op: Gather, params: Array, indices: Array) -> Array:
    return params.take(indices, op.axis)  # which raises IndexError


class FailsOnWrongIndices(Backend):
    """Gathers, and fails where an index is out of range."""

    id: ClassVar = "FailsOnWrongIndices"
    kernels: ClassVar = gathering


careful = KernelTable()


@careful(Gather, dtypes={"params": FLOAT})
def take_carefully(op: Gather, params: Array, indices: Array) -> Array:
    try:
        return params.take(indices, op.axis)
    except IndexError as error:
        raise InvalidValueError(str(error), operand="indices") from error


class ReportsWrongIndices(Backend):
    """Gathers, and reports an index that is out of range."""

    id: ClassVar = "ReportsWrongIndices"
    kernels: ClassVar = careful
