"""Every tensor handle that a backend gives is destroyed exactly once, when nobody needs it any more."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    ArrayHandle,
    Backend,
    KernelWorkloadFactory,
    MemoryManager,
    Options,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import ExecutionError, LoadError
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.kernels import reference
from interposer.ops import Addition, Multiplication, Splitter
from tests.devices import single, sums
from tests.plugins.install import ROOT

INFO = TensorInfo((4, 6))
X = np.arange(24, dtype=np.float32).reshape(4, 6)


class Counted(ArrayHandle):
    """A handle that writes down when it is created and destroyed."""

    imports: ClassVar[bool] = True

    def __init__(self, log: list[tuple[str, int]], info: TensorInfo, array: Array | None = None) -> None:
        super().__init__(info, array)
        self.log, self.number = log, len([what for what, _ in log if what == "created"])
        log.append(("created", self.number))

    def map(self) -> Array:
        assert ("destroyed", self.number) not in self.log, "it is used after it was destroyed"
        return super().map()

    def destroy(self) -> None:
        self.log.append(("destroyed", self.number))


class CountingFactory(KernelWorkloadFactory):
    def __init__(self, backend: Counting) -> None:
        super().__init__(backend.kernels, None)
        self.backend = backend

    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        if len(self.backend.log) == self.backend.most:
            raise OSError("the device has no more tensors")
        return Counted(self.backend.log, info)

    def create_constant_handle(self, info: TensorInfo, array: Array) -> TensorHandle:
        return Counted(self.backend.log, info, array)

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return super().create_workload(layer, info)


class Counting(Backend):
    """Adds and multiplies, and counts its handles."""

    id: ClassVar = "Counting"
    kernels: ClassVar = sums

    def __init__(self, most: int = -1) -> None:
        self.log: list[tuple[str, int]] = []
        self.most = most

    def create_memory_manager(self) -> None:
        return None

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return CountingFactory(self)

    def numbers(self, what: str) -> list[int]:
        return [number for event, number in self.log if event == what]

    def once(self) -> bool:
        """True if every handle was destroyed exactly once."""
        return Counter(self.numbers("created")) == Counter(self.numbers("destroyed"))


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture
def runtime(backend: Counting) -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Counting", single(backend))
        yield new_runtime


def network() -> Network:
    """Return a network that computes (x + c) * x, with one constant."""
    new_network = Network()
    x = new_network.add_input_layer(0, INFO)
    c = new_network.add_constant_layer(X)
    new_network.add_output_layer(0, new_network.add_layer(Multiplication(), new_network.add_layer(Addition(), x, c), x))
    return new_network


def load(runtime: Runtime, made: Network | None = None, *backends: str) -> int:
    chosen: Sequence[str] = backends or ["Counting"]
    options = OptimizerOptions(rewrite=False)
    return runtime.load_network(optimize(made or network(), chosen, runtime.device_spec, options))


def test_unloading_a_network_destroys_every_handle_and_its_constants_last(runtime: Runtime, backend: Counting) -> None:
    number = load(runtime)
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X})[0], 2 * X * X)
    assert backend.numbers("destroyed") == []
    runtime.unload_network(number)
    assert backend.once()
    assert len(backend.numbers("created")) == 4
    assert backend.log[-1] == ("destroyed", 3), "the constant was created when the layers' tensors were there"


def test_unloading_destroys_the_handles_of_working_memories_that_are_still_there(
    runtime: Runtime, backend: Counting
) -> None:
    number = load(runtime)
    mine = runtime.create_working_mem_handle(number)
    runtime.execute(number, mine, {0: X})
    runtime.unload_network(number)
    assert backend.once()
    for _ in range(2):  # the first error must not leave the memory in use
        with pytest.raises(ExecutionError, match="this working memory is closed; make another one"):
            mine.run({0: X}, {})


def test_closing_a_working_memory_destroys_its_handles_only(runtime: Runtime, backend: Counting) -> None:
    number = load(runtime)
    before = set(backend.numbers("created"))
    with runtime.create_working_mem_handle(number) as mine:
        runtime.execute(number, mine, {0: X})
    assert set(backend.numbers("destroyed")) == set(backend.numbers("created")) - before
    mine.close()
    with pytest.raises(ExecutionError, match="this working memory is closed"):
        runtime.execute(number, mine, {0: X})
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X})[0], 2 * X * X)
    runtime.unload_network(number)
    assert backend.once()


def test_a_working_memory_that_nobody_closed_is_destroyed_with_its_last_reference(
    runtime: Runtime, backend: Counting
) -> None:
    number = load(runtime)
    before = set(backend.numbers("created"))
    mine = runtime.create_working_mem_handle(number)
    del mine
    gc.collect()
    assert set(backend.numbers("destroyed")) == set(backend.numbers("created")) - before


def test_freeing_a_working_memory_destroys_nothing_as_it_can_run_again(runtime: Runtime, backend: Counting) -> None:
    number = load(runtime)
    mine = runtime.create_working_mem_handle(number)
    runtime.execute(number, mine, {0: X})
    mine.free()
    assert backend.numbers("destroyed") == []
    np.testing.assert_array_equal(runtime.execute(number, mine, {0: X})[0], 2 * X * X)


def test_clearing_an_import_destroys_the_handles_that_were_created_for_it(runtime: Runtime, backend: Counting) -> None:
    number = load(runtime)
    y = np.empty_like(X)
    before = set(backend.numbers("created"))
    value, expected = runtime.import_inputs(number, {0: X}), runtime.import_outputs(number, {0: y})
    runtime.enqueue_workload(number, imported_inputs=value, imported_outputs=expected)
    np.testing.assert_array_equal(y, 2 * X * X)
    for _ in range(2):  # the second import replaces the first one
        runtime.clear_imported_inputs(number, value)
        assert set(backend.numbers("destroyed")) == set(backend.numbers("created")) - before
        value = runtime.import_inputs(number, {0: X})
        runtime.enqueue_workload(number, imported_inputs=value, imported_outputs=expected)
    runtime.unload_network(number)
    assert backend.once()


@pytest.mark.parametrize("most", range(4))
def test_loading_that_fails_half_way_destroys_what_was_created(most: int) -> None:
    backend = Counting(most)
    with Runtime() as runtime:
        runtime.registry.register("Counting", single(backend))
        if most == 3:
            number = load(runtime)
            runtime.unload_network(number)
        else:
            with pytest.raises(LoadError, match="the device has no more tensors"):
                load(runtime)
        assert len(backend.numbers("created")) >= most
        assert backend.once()


class DestroyedByAnError(Counted):
    def destroy(self) -> None:
        super().destroy()
        raise OSError("the device is gone")


def test_an_error_in_destroy_is_logged_and_the_other_handles_are_destroyed(
    runtime: Runtime, backend: Counting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        CountingFactory, "create_tensor_handle", lambda self, info: DestroyedByAnError(self.backend.log, info)
    )
    runtime.unload_network(load(runtime))
    assert backend.once()
    expected = "the tensor handle of float32[4, 6] could not be destroyed: OSError: the device is gone"
    assert expected in caplog.text


def test_a_sub_tensor_is_destroyed_before_its_parent() -> None:
    class Piece(TensorHandle):
        def __init__(self, parent: Whole, info: TensorInfo) -> None:
            super().__init__(info)
            self.parent = parent

        def map(self) -> Array:
            return self.parent.map()[: self.info.shape[0]]

        def destroy(self) -> None:
            order.append(("piece", self.parent))

    class Whole(ArrayHandle):
        def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle:
            return Piece(self, info)

        def destroy(self) -> None:
            order.append(("whole", self))

    class Factory(KernelWorkloadFactory):
        supports_sub_tensors = True

        def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
            return Whole(info)

    class Splitting(Backend):
        id: ClassVar = "Splitting"

        def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
            return Factory(self.kernels, None)

    Splitting.kernels = reference()
    order: list[tuple[str, TensorHandle]] = []
    new_network = Network()
    x = new_network.add_input_layer(0, INFO)
    parts = new_network.add_layer(Splitter(axis=0, sizes=(2, 2)), x)
    y = new_network.add_layer(Addition(), *parts.outputs)
    new_network.add_output_layer(0, y)
    with Runtime() as runtime:
        runtime.registry.register("Splitting", Splitting)
        runtime.unload_network(load(runtime, new_network, "Splitting"))
    pieces = [at for at, (what, _) in enumerate(order) if what == "piece"]
    assert len(pieces) == 2
    parent = order[pieces[0]][1]
    assert order.index(("whole", parent)) > max(pieces)


AT_EXIT = """
import numpy as np
from interposer import Runtime
from tests.runtime import test_destroyed_handles as t
from tests.devices import single

class Reporting(t.Counting):
    pass

backend = Reporting()
runtime = Runtime()
runtime.registry.register("Counting", single(backend))
number = t.load(runtime)
runtime.enqueue_workload(number, {0: t.X})

class Log(list):
    def append(self, one):
        super().append(one)
        print(*one, flush=True)

log, backend.log = backend.log, Log(backend.log)
import gc
for one in gc.get_objects():
    if isinstance(one, t.Counted):
        one.log = backend.log
"""


def test_handles_of_a_network_that_is_still_loaded_are_destroyed_when_the_interpreter_exits() -> None:
    path = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", AT_EXIT], env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert sorted(lines) == [f"destroyed {number}" for number in range(4)]
    assert lines[-1] == "destroyed 3", "the constant is the last one"


AFTER_EXIT = """
import atexit

@atexit.register
def registered_before_the_import():
    try:
        print(runtime.enqueue_workload(number, {0: t.X}))
    except Exception as error:
        print(type(error).__name__, error)
    print(backend.once())

from interposer import Runtime
from tests.devices import single
from tests.runtime import test_destroyed_handles as t

backend, runtime = t.Counting(), Runtime()
runtime.registry.register("Counting", single(backend))
number = t.load(runtime)
"""


def test_a_run_is_refused_after_the_handles_were_destroyed_at_exit() -> None:
    path = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", AFTER_EXIT], env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    refusal = "ExecutionError the network 'network' was unloaded before the run began"
    assert done.stdout.splitlines() == [refusal, "True"]
