"""Memory of callers that networks use where it lies: checked once, then read and written in every run."""

from __future__ import annotations

import array
import gc
import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import MemoryDescriptor, MemorySource, Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.core.errors import (
    BindingError,
    ExecutionError,
    InvalidArgumentError,
    MemoryImportError,
    RunCancelledError,
    UnknownNetworkError,
)
from interposer.ops import Activation, ActivationFunction, Addition, Concat, Multiplication, Splitter
from tests.devices import Device, Sums

INFO = TensorInfo((2, 3))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def calculation() -> Network:
    """Y = (a + b) * b, and sum = a + b."""
    network = Network("calculation")
    a = network.add_input_layer(0, INFO, name="a")
    b = network.add_input_layer(1, INFO, name="b")
    both = network.add_layer(Addition(), a, b)
    network.add_output_layer(0, network.add_layer(Multiplication(), both, b), name="y")
    return network


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        for backend in (Sums, Device):
            new_runtime.registry.register(backend.id, backend)
        yield new_runtime


def load(runtime: Runtime, network: Network, *backends: str) -> int:
    return runtime.load_network(optimize(network, backends or ["Sums"], runtime.device_spec))


def memfd(size: int, content: bytes = b"") -> int:
    fd = os.memfd_create("test")
    os.ftruncate(fd, size)
    os.pwrite(fd, content, 0)
    return fd


def test_runs_read_and_write_what_was_imported(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    a, b, y = X.copy(), X + 1, np.zeros_like(X)
    inputs = runtime.import_inputs(number, {0: a, 1: b})
    outputs = runtime.import_outputs(number, {0: y})
    for _ in range(3):
        a += 1
        result = runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        np.testing.assert_array_equal(y, (a + b) * b)
        assert np.shares_memory(result[0], y)


def test_some_of_the_tensors_may_be_imported(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    [b] = runtime.import_inputs(number, {1: X + 1})
    [y] = runtime.import_outputs(number, {0: np.zeros_like(X)})
    np.testing.assert_array_equal(
        runtime.enqueue_workload(number, {0: X}, imported_inputs=[b])[0], (2 * X + 1) * (X + 1)
    )
    target = np.zeros_like(X)
    runtime.enqueue_workload(number, {0: X}, {0: target}, imported_inputs=[b])
    np.testing.assert_array_equal(target, (2 * X + 1) * (X + 1))
    result = runtime.enqueue_workload(number, {0: X, 1: X}, imported_outputs=[y])
    np.testing.assert_array_equal(result[0], 2 * X * X)


def test_imports_serve_working_memory_of_ones_own_and_runs_with_a_deadline(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    y = np.zeros_like(X)
    inputs, outputs = runtime.import_inputs(number, {0: X, 1: X}), runtime.import_outputs(number, {0: y})
    working = runtime.create_working_mem_handle(number)
    for _ in range(2):
        y[:] = 0
        runtime.execute(number, working, imported_inputs=inputs, imported_outputs=outputs)
        np.testing.assert_array_equal(y, 2 * X * X)
        working.free()
    y[:] = 0
    runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs, deadline=600)
    np.testing.assert_array_equal(y, 2 * X * X)
    y[:] = 0
    runtime.submit(number, imported_inputs=inputs, imported_outputs=outputs).result()
    np.testing.assert_array_equal(y, 2 * X * X)


def split_and_merged() -> Network:
    """The halves of x, doubled, and the other way round."""
    network = Network("halves")
    x = network.add_input_layer(0, TensorInfo((4, 3)))
    upper, lower = network.add_layer(Splitter(axis=0, sizes=(2, 2)), x).outputs
    halves = [network.add_layer(Addition(), half, half) for half in (lower, upper)]
    network.add_output_layer(0, network.add_layer(Concat(axis=0), *halves))
    return network


@pytest.mark.needs_cpuref
def test_pieces_of_what_is_imported_lie_there_too(runtime: Runtime) -> None:
    number = load(runtime, split_and_merged(), "Sums", "CpuRef")
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((4, 3), np.float32)
    inputs, outputs = runtime.import_inputs(number, {0: x}), runtime.import_outputs(number, {0: y})
    for _ in range(2):
        x += 1
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        np.testing.assert_array_equal(y, 2 * np.roll(x, 2, axis=0))


def test_two_sets_of_imports_take_turns(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    sets = []
    for factor in (1, 10):
        y = np.zeros_like(X)
        ids = runtime.import_inputs(number, {0: factor * X, 1: X}), runtime.import_outputs(number, {0: y})
        sets.append((factor, y, ids))
    for factor, y, (inputs, outputs) in sets * 3:
        y[:] = 0
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        np.testing.assert_array_equal(y, (factor * X + X) * X)


def test_threads_run_on_imports_of_their_own(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    wrong: list[int] = []

    def work(seed: int) -> None:
        a, b, y = X + seed, X, np.zeros_like(X)
        inputs, outputs = runtime.import_inputs(number, {0: a, 1: b}), runtime.import_outputs(number, {0: y})
        for _ in range(200):
            y[:] = -1
            runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
            if not np.array_equal(y, (a + b) * b):
                wrong.append(seed)
        runtime.clear_imported_inputs(number, inputs)
        runtime.clear_imported_outputs(number, outputs)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_networks_on_several_backends_take_imports_too(runtime: Runtime) -> None:
    network = Network("mixed")
    x = network.add_input_layer(0, INFO, name="x")
    positive = network.add_layer(Activation(ActivationFunction.RELU), network.add_layer(Addition(), x, x))
    network.add_output_layer(0, network.add_layer(Addition(), positive, x), name="y")
    number = load(runtime, network, "Sums", "Device")
    y = np.zeros_like(X)
    inputs, outputs = runtime.import_inputs(number, {0: X - 2}), runtime.import_outputs(number, {0: y})
    for _ in range(2):
        y[:] = 0
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        np.testing.assert_array_equal(y, np.maximum(2 * (X - 2), 0) + X - 2)


# --- where memory comes from ------------------------------------------------------------------------------------------


def _sources(folder: Path) -> Iterator[tuple[str, Any]]:
    yield "array", X.copy()
    yield "bytearray as the buffer protocol shows it", memoryview(bytearray(X.tobytes())).cast("f", (2, 3))
    yield "map", memoryview(mmap.mmap(-1, X.nbytes)).cast("B").cast("f", (2, 3))
    mapped = np.memmap(folder / "x.bin", np.float32, "w+", shape=(2, 3))
    yield "mapped file", mapped
    yield "memfd", MemoryDescriptor(memfd(X.nbytes), owned=True)
    yield "memfd from the middle", MemoryDescriptor(memfd(8192), offset=4160, owned=True)


def test_memory_of_every_kind_is_read_and_written_in_place(runtime: Runtime, tmp_path: Path) -> None:
    number = load(runtime, calculation())
    for (kind, source), (_, target) in zip(_sources(tmp_path), _sources(tmp_path), strict=True):
        inputs, outputs = runtime.import_inputs(number, {0: source, 1: X}), runtime.import_outputs(number, {0: target})
        if isinstance(source, MemoryDescriptor):
            os.pwrite(source.fd, X.tobytes(), source.offset)
        else:
            np.asarray(source)[:] = X
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
        where = target.offset if isinstance(target, MemoryDescriptor) else 0
        raw = os.pread(target.fd, 24, where) if isinstance(target, MemoryDescriptor) else np.asarray(target).tobytes()
        np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(2, 3), 2 * X * X, kind)
        runtime.clear_imported_inputs(number, inputs)
        runtime.clear_imported_outputs(number, outputs)


def _swapped() -> Any:
    return X.astype(X.dtype.newbyteorder("S"))


def _frozen() -> Any:
    frozen = X.copy()
    frozen.flags.writeable = False
    return frozen


INPUT_PROBLEMS = {
    "shape": (lambda: np.zeros(3, np.float32), "it has shape [3]; expected [2, 3]"),
    "type": (lambda: X.astype(np.float64), "it is float64; expected float32"),
    "byte order": (_swapped, "it is float32 with its bytes the other way round; expected float32"),
    "list": (lambda: [[0.0] * 3] * 2, "a list has neither __dlpack__ nor the buffer protocol"),
    "turned": (
        lambda: np.asfortranarray(X),
        "its elements are not contiguous (strides of [1, 2] elements); import a contiguous copy",
    ),
    "between elements": (
        lambda: np.frombuffer(bytearray(25), np.uint8)[1:].view(np.float32).reshape(2, 3),
        "its address is not a multiple of 4 bytes",
    ),
}


@pytest.mark.parametrize("name", INPUT_PROBLEMS)
def test_what_cannot_be_used_where_it_lies_is_refused_with_the_reason(runtime: Runtime, name: str) -> None:
    number = load(runtime, calculation())
    make, reason = INPUT_PROBLEMS[name]
    for kind, take, title in (("input", runtime.import_inputs, "a"), ("output", runtime.import_outputs, "y")):
        with pytest.raises(MemoryImportError) as caught:
            take(number, {0: make()})
        assert str(caught.value) == f"{kind} 0 ({title}) cannot be imported: {reason}"
        assert caught.value.refusals == {(kind, 0): reason}


def test_read_only_memory_serves_as_input_only(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    inputs = runtime.import_inputs(number, {0: _frozen(), 1: memoryview(X.tobytes()).cast("f", (2, 3))})
    np.testing.assert_array_equal(runtime.enqueue_workload(number, imported_inputs=inputs)[0], 2 * X * X)
    with pytest.raises(MemoryImportError, match="it is read-only; give memory that can be written to"):
        runtime.import_outputs(number, {0: _frozen()})


def test_a_plain_run_copies_what_an_import_would_refuse_and_says_so_when_asked(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    turned, target = np.asfortranarray(X), np.zeros((3, 2), np.float32).T
    runtime.enqueue_workload(number, {0: turned, 1: X}, {0: target})
    np.testing.assert_array_equal(target, 2 * X * X)
    reasons = runtime.copy_reasons(number, {0: turned, 1: X}, {0: target})
    assert list(reasons) == [("input", 0), ("output", 0)]
    assert "its elements are not contiguous" in reasons["input", 0]


def test_all_refusals_come_at_once_and_nothing_is_imported(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    with pytest.raises(MemoryImportError) as caught:
        runtime.import_inputs(number, {0: X[0], 1: X.astype(np.int32)})
    assert str(caught.value) == (
        "2 errors:\n  - input 0 (a) cannot be imported: it has shape [3]; expected [2, 3]\n"
        "  - input 1 (b) cannot be imported: it is int32; expected float32"
    )


def test_a_device_with_memory_of_its_own_refuses_but_copies_in_a_plain_run(runtime: Runtime) -> None:
    network = Network("positive")
    x = network.add_input_layer(0, INFO, name="x")
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.RELU), x), name="y")
    number = load(runtime, network, "Device")
    assert runtime.copy_reasons(number, {0: X}, {0: X.copy()}) == {
        ("input", 0): "backend Device stores it in separate memory",
        ("output", 0): "backend Device stores it in separate memory",
    }
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X - 2})[0], np.maximum(X - 2, 0))


@pytest.mark.needs_cpuref
def test_outputs_that_are_no_results_are_refused(runtime: Runtime) -> None:
    network = Network()
    x = network.add_input_layer(0, INFO, name="x")
    total = network.add_layer(Addition(), x, x)
    for number, value in enumerate((total, total, x, network.add_constant_layer(X))):
        network.add_output_layer(number, value)
    loaded = load(runtime, network, "Sums", "CpuRef")
    reasons = runtime.copy_reasons(loaded, None, {number: np.zeros_like(X) for number in range(4)})
    assert reasons == {
        ("output", 1): "it is the same tensor as output 0, and copied from there",
        ("output", 2): "it is the input 'x', which is always copied",
        ("output", 3): "it is a constant, which is always copied",
    }
    [first] = runtime.import_outputs(loaded, {0: np.zeros_like(X)})
    result = runtime.enqueue_workload(loaded, {0: X}, imported_outputs=[first])
    for array_, expected in zip(result.values(), (2 * X, 2 * X, X, X), strict=True):
        np.testing.assert_array_equal(array_, expected)


# --- numbers, and lifetimes ------------------------------------------------------------------------------------------


def test_wrong_numbers_are_named(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    a, _ = runtime.import_inputs(number, {0: X, 1: X})
    again = runtime.import_inputs(number, {0: X})
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"imported_outputs": [a]}, f"no output of 'calculation' was imported as number {a}"),
        ({"imported_inputs": [99]}, "no input of 'calculation' was imported as number 99"),
        ({"imported_inputs": [a, *again]}, "input 0 (a) was imported twice; a run takes one of them"),
        ({"imported_inputs": "12"}, "what was imported is given by its numbers, not by '12'"),
        ({"imported_inputs": [X]}, "what was imported is given by its numbers, not by array"),
        (
            {"imported_inputs": [a], "inputs": {0: X, 1: X}},
            "input 0 is given twice: as it was imported, and as an array",
        ),
        ({"imported_inputs": [a]}, "no tensor was given for input 1 (b)"),
    ]
    for how, text in wrong:
        with pytest.raises(BindingError) as caught:
            runtime.enqueue_workload(number, **how)
        assert str(caught.value).startswith(text)
    with pytest.raises(BindingError, match="no input has the binding id 7; there are 0"):
        runtime.import_inputs(number, {7: X})
    with pytest.raises(UnknownNetworkError):
        runtime.import_inputs(number + 1, {0: X})


def test_what_was_let_go_of_is_free_and_cannot_be_used(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    a, y = X.copy(), X.copy()
    gone = [weakref.ref(a), weakref.ref(y)]
    inputs, outputs = runtime.import_inputs(number, {0: a, 1: X}), runtime.import_outputs(number, {0: y})
    runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
    del a, y
    gc.collect()
    assert all(item() is not None for item in gone)
    runtime.clear_imported_inputs(number, inputs)
    runtime.clear_imported_outputs(number, outputs)
    gc.collect()
    assert all(item() is None for item in gone)
    with pytest.raises(BindingError, match=f"no input of 'calculation' was imported as number {inputs[0]}"):
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
    with pytest.raises(BindingError, match="no input of 'calculation' was imported as number"):
        runtime.clear_imported_inputs(number, inputs)


def test_unloading_lets_go_of_everything(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    a, fd = X.copy(), memfd(24)
    gone = weakref.ref(a)
    runtime.import_inputs(number, {0: a, 1: MemoryDescriptor(fd, owned=True)})
    working = runtime.create_working_mem_handle(number)
    del a
    runtime.unload_network(number)
    gc.collect()
    assert gone() is None
    with pytest.raises(OSError):
        os.fstat(fd)
    del working


def test_outputs_must_not_lie_where_something_else_does(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    room = np.zeros(18, np.float32)
    a, b, y = (room[start : start + 6].reshape(2, 3) for start in (0, 4, 2))
    inputs = runtime.import_inputs(number, {0: a, 1: b})
    outputs = runtime.import_outputs(number, {0: y})
    with pytest.raises(BindingError, match=r"^output 0 \(y\) overlaps input 0 \(a\) in memory"):
        runtime.enqueue_workload(number, imported_inputs=inputs, imported_outputs=outputs)
    with pytest.raises(BindingError, match=r"^output 0 \(y\) overlaps input 1 in memory"):
        runtime.enqueue_workload(number, {0: X, 1: b}, imported_outputs=outputs)


# --- descriptors ------------------------------------------------------------------------------------------------------


def test_the_first_run_waits_for_the_fence(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    ready, done = os.pipe()
    fd = memfd(24)
    inputs = runtime.import_inputs(number, {0: MemoryDescriptor(fd, fence=ready), 1: X})
    values: list[Any] = []
    thread = threading.Thread(target=lambda: values.append(runtime.enqueue_workload(number, imported_inputs=inputs)))
    thread.start()
    thread.join(0.1)
    assert not values
    os.pwrite(fd, X.tobytes(), 0)
    os.write(done, b"x")
    thread.join()
    np.testing.assert_array_equal(values[0][0], 2 * X * X)
    for item in (ready, done, fd):
        os.close(item)
    assert len(runtime.enqueue_workload(number, imported_inputs=inputs)) == 1


def test_a_wait_for_a_fence_ends_with_the_deadline_or_by_cancelling(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    ready, done = os.pipe()
    inputs = runtime.import_inputs(number, {0: MemoryDescriptor(memfd(24), fence=ready, owned=True), 1: X})
    with pytest.raises(
        ExecutionError, match=r"took longer than 0.05 seconds; it waited for the fence of input 0 \(a\)"
    ):
        runtime.enqueue_workload(number, imported_inputs=inputs, deadline=0.05)
    control = ip.RunControl()
    control.cancel()
    with pytest.raises(RunCancelledError, match=r"cancelled while it waited for the fence of input 0 \(a\)"):
        runtime.enqueue_workload(number, imported_inputs=inputs, control=control)
    os.close(done)
    with pytest.raises(ExecutionError, match=r"^input 0 \(a\): the fence \d+ failed"):
        runtime.enqueue_workload(number, imported_inputs=inputs)


def test_memory_that_became_smaller_is_noticed_before_it_is_touched(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    fd = memfd(24)
    inputs = runtime.import_inputs(number, {0: MemoryDescriptor(fd), 1: X})
    os.ftruncate(fd, 8)
    with pytest.raises(ExecutionError, match=r"^input 0 \(a\): the descriptor \d+ has 8 bytes; the tensor ends at 24"):
        runtime.enqueue_workload(number, imported_inputs=inputs)
    os.close(fd)


def test_a_source_is_compared_with_what_was_asked_for(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    with pytest.raises(MemoryImportError, match="it is memory of the source MALLOC; DMA_BUF was asked for"):
        runtime.import_inputs(number, {0: X}, MemorySource.DMA_BUF)
    with pytest.raises(InvalidArgumentError, match="the memory source must be a MemorySource, not 'malloc'"):
        runtime.import_inputs(number, {0: X}, "malloc")  # type: ignore[arg-type]
    runtime.import_inputs(number, {0: MemoryDescriptor(memfd(24), owned=True)}, MemorySource.DMA_BUF)


def test_descriptors_are_as_many_as_before(runtime: Runtime) -> None:
    number = load(runtime, calculation())

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = count()
    for _ in range(50):
        inputs = runtime.import_inputs(number, {0: MemoryDescriptor(memfd(24), owned=True), 1: X})
        runtime.enqueue_workload(number, imported_inputs=inputs)
        runtime.clear_imported_inputs(number, inputs)
        fd = memfd(24)
        with pytest.raises(MemoryImportError):
            runtime.import_inputs(number, {0: MemoryDescriptor(fd, owned=True), 1: X[0]})
        os.close(fd)  # it was not taken over
    gc.collect()
    assert count() == before


def test_what_has_the_buffer_protocol_takes_outputs_in_a_plain_run(runtime: Runtime) -> None:
    number = load(runtime, calculation())
    room = array.array("f", bytes(24))
    target = memoryview(room).cast("B").cast("f", (2, 3))
    runtime.enqueue_workload(number, {0: X, 1: X}, {0: target})
    assert room.tolist() == (2 * X * X).reshape(-1).tolist()


def test_imports_of_inputs_can_be_forbidden(runtime: Runtime) -> None:
    options = OptimizerOptions(import_enabled=False)
    number = runtime.load_network(optimize(calculation(), ["Sums"], runtime.device_spec, options))
    why = "the network was optimized with import_enabled=False"
    assert runtime.copy_reasons(number, {0: X, 1: X}, {0: X.copy()}) == {("input", 0): why, ("input", 1): why}
    with pytest.raises(MemoryImportError, match=rf"input 0 \(a\) cannot be imported: {why}"):
        runtime.import_inputs(number, {0: X})
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X, 1: X + 1})[0], (2 * X + 1) * (X + 1))


def test_exports_of_outputs_can_be_forbidden(runtime: Runtime) -> None:
    options = OptimizerOptions(export_enabled=False)
    number = runtime.load_network(optimize(calculation(), ["Sums"], runtime.device_spec, options))
    why = "the network was optimized with export_enabled=False"
    target = np.zeros_like(X)
    assert runtime.copy_reasons(number, {0: X, 1: X}, {0: target}) == {("output", 0): why}
    with pytest.raises(MemoryImportError, match=rf"output 0 \(y\) cannot be imported: {why}"):
        runtime.import_outputs(number, {0: target})
    for _ in range(2):
        runtime.enqueue_workload(number, {0: X, 1: X + 1}, {0: target})
        np.testing.assert_array_equal(target, (2 * X + 1) * (X + 1))


def test_inputs_of_late_shape_are_copied_if_imports_are_forbidden() -> None:
    network = Network()
    dims = network.add_input_layer(0, TensorInfo((1,), "int32"), name="dims")
    x = network.add_fill_layer(dims, value=2)
    network.add_output_layer(0, network.add_addition_layer(x, x))
    options = OptimizerOptions(import_enabled=False, export_enabled=False)
    with ip.load(network, ["CpuRef"], options=options) as model:
        assert [model([count]).tolist() for count in (1, 3)] == [[4], [4, 4, 4]]
