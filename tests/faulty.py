"""A backend that really adds, and misbehaves on command: where, how and how often the test says."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    BackendContext,
    Capabilities,
    KernelTable,
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
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer
from interposer.ops import Addition, PreCompiled

table = KernelTable()


@table(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


def segfault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def endless_loop() -> None:
    while True:
        pass


def native_sleep() -> None:
    """Sleeps in C, without letting go of the interpreter."""
    ctypes.PyDLL(None).sleep(1000)


def exhaust_memory() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))


def exit_process() -> None:
    os._exit(7)


def system_exit() -> None:
    sys.exit("no licence")


def raise_error() -> None:
    raise ValueError("out of sorts")


def sockets() -> list[int]:
    return [fd for fd in range(3, 64) if _is_socket(fd)]


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def close_connection() -> None:
    for fd in sockets():
        os.close(fd)
    time.sleep(1000)


def write_garbage() -> None:
    for fd in sockets():
        os.write(fd, b"\x00garbage\xff" * 100)


PROBLEMS: dict[str, Callable[[], None]] = {
    item.__name__: item
    for item in (
        segfault, abort, endless_loop, native_sleep, exhaust_memory, exit_process, system_exit, raise_error,
        close_connection, write_garbage,
    )
}  # fmt: skip
PLACES = (
    "make", "layer_support", "query", "optimize", "context", "before_load", "after_load", "manager", "factory",
    "constant", "workload", "configure", "acquire", "execute", "release", "before_unload", "after_unload",
)  # fmt: skip


class Faulty(Backend):
    """Adds float32 tensors; one of several additions becomes a precompiled part.

    `where` names one of `PLACES`, `how` one of `Errors`. With a `folder`, every call of the place leaves a file there,
    and only those calls misbehave whose numbers (from 0) are in `which`.
    """

    id: ClassVar = "Faulty"
    version: ClassVar = "2.1"
    capabilities: ClassVar = Capabilities(HasFp16=False, NumberOfThreads=1)

    def __init__(
        self,
        where: str = "",
        how: str = "segfault",
        folder: str = "",
        which: Sequence[int] = (0,),
        compiles: bool = False,
    ) -> None:
        self.where, self.how, self.folder, self.which, self.compiles = where, how, folder, which, compiles
        self.pass_by("make")

    def pass_by(self, place: str) -> None:
        """Misbehave, if this is the place and the time."""
        if place == self.where and self._number() in self.which:
            PROBLEMS[self.how]()

    def _number(self) -> int:
        if not self.folder:
            return self.which[0]
        number = len(os.listdir(self.folder))
        Path(self.folder, str(number)).touch()
        return number

    def layer_support(self, options: Options) -> LayerSupport:
        self.pass_by("layer_support")
        return _Picky(self)

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        self.pass_by("optimize")
        if not self.compiles:
            return OptimizationViews(view)
        parts = [view.part([layer]) for layer in view]
        created = [Substitution(part, PreCompiled(object=_Compiled(part))) for part in parts]
        return OptimizationViews(view, substitutions=created)

    def create_memory_manager(self) -> MemoryManager | None:
        self.pass_by("manager")
        return _Manager(self)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        self.pass_by("factory")
        return _Factory(self)

    def create_backend_context(self, options: Options) -> BackendContext:
        self.pass_by("context")
        return _Context(self)


class _Picky(LayerSupport):
    def __init__(self, backend: Faulty) -> None:
        self.backend = backend

    def is_layer_supported(self, layer: Layer) -> Support:
        self.backend.pass_by("query")
        return Support.yes() if isinstance(layer.op, Addition) else Support.no("it only adds")


class _Manager(MemoryManager):
    def __init__(self, backend: Faulty) -> None:
        self.backend = backend

    def acquire(self) -> None:
        self.backend.pass_by("acquire")

    def release(self) -> None:
        self.backend.pass_by("release")


class _Context(BackendContext):
    def __init__(self, backend: Faulty) -> None:
        self.backend = backend

    def before_load_network(self, network_id: int) -> bool:
        self.backend.pass_by("before_load")
        return True

    def after_load_network(self, network_id: int) -> bool:
        self.backend.pass_by("after_load")
        return True

    def before_unload_network(self, network_id: int) -> bool:
        self.backend.pass_by("before_unload")
        return True

    def after_unload_network(self, network_id: int) -> bool:
        self.backend.pass_by("after_unload")
        return True


class _Compiled:
    """A sum of inputs (by number) and constants."""

    def __init__(self, part: SubgraphView) -> None:
        [layer] = part.layers
        self.operands = [
            part.inputs.index(value) if value.constant is None else np.array(value.constant) for value in layer.values
        ]


class _Factory(KernelWorkloadFactory):
    def __init__(self, backend: Faulty) -> None:
        super().__init__(table)
        self.backend = backend

    def create_constant_handle(self, info: Any, array: Array) -> TensorHandle:
        self.backend.pass_by("constant")
        return super().create_constant_handle(info, array)

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        self.backend.pass_by("workload")
        if isinstance(layer.op, PreCompiled):
            return _Sum(self.backend, layer.op.object)
        return _Careless(self.backend, super().create_workload(layer, info))


class _Sum(Workload):
    def __init__(self, backend: Faulty, compiled: _Compiled) -> None:
        self.backend, self.compiled = backend, compiled

    def post_allocation_configure(self) -> None:
        self.backend.pass_by("configure")

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [handle.map() for handle in inputs if handle is not None]
        a, b = (arrays[operand] if isinstance(operand, int) else operand for operand in self.compiled.operands)
        out = outputs[0].map()
        out[...] = -1
        self.backend.pass_by("execute")
        np.add(a, b, out=out)


class _Careless(Workload):
    def __init__(self, backend: Faulty, inner: Workload) -> None:
        self.backend, self.inner = backend, inner

    def post_allocation_configure(self) -> None:
        self.backend.pass_by("configure")

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        outputs[0].map()[...] = -1
        self.backend.pass_by("execute")
        self.inner.execute(inputs, outputs)
