"""A plug-in whose parts and copies are submitted to queues: two devices that run on threads."""

from __future__ import annotations

import ctypes
import gc
import select
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import interposer
from interposer import CreationOptions, DeviceSpec, Network, OptimizerOptions, RunControl, Runtime, TensorInfo, optimize
from interposer.backend import ArrayHandle, Backend, KernelTable, SkippedError, ThreadQueue, WorkloadInfo
from interposer.core.errors import (
    BackendError,
    DeadlineExceededError,
    ExecutionError,
    InvalidValueError,
    LoadError,
    RunCancelledError,
)
from interposer.core.types import DataType
from interposer.ops import Activation, ActivationFunction, Addition, Gather, Multiplication, PreCompiled
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library import library
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.plugins.registry import BackendRegistry
from interposer.profiling import Category, Recorder
from interposer.runtime import asynchronous

INFO = TensorInfo((8,))
X = np.linspace(-1, 1, 8, dtype=np.float32)
RELU = Activation(ActivationFunction.RELU)
SIGMOID = Activation(ActivationFunction.SIGMOID)
UNCHANGED = OptimizerOptions(rewrite=False)
LIVE = ("queues", "tensors", "pools", "executables", "gates")
SECOND = 1_000_000_000


class Fake:
    """The opened plug-in, with the functions that it exports for tests."""

    def __init__(self, library, options):
        defaults = {name: value for name, value in options.items() if name != "Lacks"}
        self.backend = DynamicBackend(library, defaults)
        self._functions = ctypes.CDLL(library.path)
        self._functions.fake_live.restype = ctypes.c_int64
        self._functions.fake_advance.argtypes = [ctypes.c_int64]

    def advance(self, ns=SECOND):
        self._functions.fake_advance(ns)

    @property
    def live(self):
        return {name: self._functions.fake_live(number) for number, name in enumerate(LIVE)}


@pytest.fixture
def fake(opened, monkeypatch):
    """Opens the plug-in, with another id than "Fake" if one is given; keyword arguments are its options."""

    def fake(backend_id="Fake", **options):
        monkeypatch.setenv("FAKE_ID", backend_id)
        return Fake(opened("fake_async.cpp", options=options), options)

    return fake


def chain(*ops):
    network = Network("chain")
    value = network.add_input_layer(0, INFO, name="x")
    for number, op in enumerate(ops):
        value = network.add_layer(op, *[value] * len(op.operands), name=f"layer {number}")
    network.add_output_layer(0, value)
    return network


def branches(*names):
    """Branches ``f(x)``, sigmoid for "host" and doubled for "device", and their product if there are two."""
    network = Network("branches")
    x = network.add_input_layer(0, INFO, name="x")
    values = []
    for name in names:
        op, operands = (SIGMOID, [x]) if name.startswith("host") else (Addition(), [x, x])
        values.append(network.add_layer(op, *operands, name=name))
    network.add_output_layer(0, network.add_layer(Multiplication(), *values, name="product"))
    return network


def gather():
    network = Network("gather")
    x, indices = network.add_input_layer(0, INFO, name="x"), network.add_input_layer(1, TensorInfo((2,), "int32"))
    network.add_output_layer(0, network.add_layer(Gather(axis=0), x, indices, name="rows"))
    return network


def loaded(runtime, network, *backends):
    return runtime.load_network(optimize(network, backends, runtime.device_spec, UNCHANGED))


def test_parts_and_copies_are_submitted_beside_layers_of_the_host(fake, runtime_with):
    device = fake()
    runtime = runtime_with(device.backend)
    number = loaded(runtime, branches("device", "host"), "Fake", "CpuRef")
    for array in (X, -X, 2 * X):
        result = runtime.enqueue_workload(number, {0: array})[0]
        np.testing.assert_allclose(result, 2 * array / (1 + np.exp(-array)), rtol=1e-6)
    assert runtime.transfers(number).device_copies == 9
    assert device.live["queues"] == 2  # one of them is for copies


@pytest.mark.parametrize("lacks", ["gates", "timelines", "flush", "copies", "engine", "handles", "devices", "members"])
def test_what_is_optional_may_be_absent(lacks, fake, runtime_with):
    device = fake(Lacks=lacks)
    runtime = runtime_with(device.backend)
    number = loaded(runtime, branches("device", "host"), "Fake", "CpuRef")
    for array in (X, -X):
        result = runtime.enqueue_workload(number, {0: array})[0]
        np.testing.assert_allclose(result, 2 * array / (1 + np.exp(-array)), rtol=1e-6)
    runtime.unload_network(number)
    assert {name: device.live[name] for name in ("queues", "tensors", "pools", "gates")} == dict.fromkeys(
        ("queues", "tensors", "pools", "gates"), 0
    )


@pytest.mark.parametrize("lacks", ["", "handles", "handles timelines", "handles timelines gates"])
def test_two_plug_ins_wait_for_each_other(lacks, fake, runtime_with):
    """By the timeline of the other one, by gates, or by this process."""
    one, two = fake(Lacks=lacks, Work=1_000_000), fake("Other", Lacks=lacks, Work=1_000_000)
    runtime = runtime_with(one.backend, two.backend)
    hints = {f"layer {number}": "Other" for number in (1, 3)}
    options = OptimizerOptions(rewrite=False, hints=hints)
    network = chain(RELU, Addition(), RELU, Addition(), RELU)
    number = runtime.load_network(optimize(network, ["Fake", "Other"], runtime.device_spec, options))
    for array in (X, -X, 3 * X):
        np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: array})[0], 4 * np.maximum(array, 0))
    runtime.unload_network(number)
    assert one.live["gates"] == two.live["gates"] == one.live["queues"] == two.live["queues"] == 0


class Telling(Backend):
    """Computes sigmoids on the host, and says when it has done so."""

    id = "Telling"

    def __init__(self):
        self.has_run = threading.Event()
        table = KernelTable()

        @table(Activation, dtypes={DataType.FLOAT32}, when=_only_sigmoid)
        def sigmoid(op, x, *, out):
            np.divide(1, 1 + np.exp(-x), out=out)
            self.has_run.set()

        self.kernels = table


def _only_sigmoid(op, info):
    return None if op.function is ActivationFunction.SIGMOID else "not a sigmoid"


def finished(device, *runs):
    """Let time pass until the runs are over; gives their outputs."""
    while not all(run.done() for run in runs):
        device.advance()
    return [run.result()[0] for run in runs]


def test_the_host_works_while_the_device_does(fake, runtime_with):
    device, host = fake(Clock="manual", Work=SECOND), Telling()
    runtime = runtime_with(device.backend, host)
    number = loaded(runtime, branches("device", "host"), "Fake", "Telling")
    run = runtime.submit(number, {0: X})
    assert host.has_run.wait(10), "no time of the device has passed"
    assert not run.done()
    [result] = finished(device, run)
    np.testing.assert_allclose(result, 2 * X / (1 + np.exp(-X)), rtol=1e-6)


def test_runs_that_were_submitted_are_on_the_device_together(fake, runtime_with):
    device = fake(Clock="manual", Work=SECOND)
    runtime = runtime_with(device.backend, num_threads=3)
    number = loaded(runtime, chain(RELU), "Fake")
    runs = [runtime.submit(number, {0: factor * X}) for factor in (1, 2, 3)]
    while device.live["queues"] < 6:  # each has a queue for copies, and one for its part
        device.advance(0)
    for factor, result in zip((1, 2, 3), finished(device, *runs), strict=True):
        np.testing.assert_array_equal(result, factor * np.maximum(X, 0))


def test_imported_tensors_are_used_by_queues(fake, runtime_with):
    device = fake(Lacks="handles")
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU, Addition()), "Fake")
    x, y = X.copy(), np.empty_like(X)
    [x_id], [y_id] = runtime.import_inputs(number, {0: x}), runtime.import_outputs(number, {0: y})
    run = runtime.prepare_run(number, [x_id], [y_id])
    for factor in (1, -2):
        x[:] = factor * X
        assert run()
        np.testing.assert_array_equal(y, 2 * np.maximum(factor * X, 0))


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_names_its_layer_and_the_next_run_succeeds(fake, runtime_with):
    device = fake(Lacks="copies", Fault="fail@2")
    runtime = runtime_with(device.backend, Telling())
    network = Network("three parts")
    x = network.add_input_layer(0, INFO, name="x")
    first = network.add_layer(RELU, x, name="first")
    host = network.add_layer(SIGMOID, first, name="host")
    second = network.add_layer(Addition(), host, host, name="second")
    other = network.add_layer(SIGMOID, second, name="other")
    network.add_output_layer(0, network.add_layer(RELU, other, name="third"))
    number = loaded(runtime, network, "Fake", "Telling")
    with pytest.raises(ExecutionError, match="'PreCompiled:second'.* on backend Fake: .*planted fault") as raised:
        runtime.enqueue_workload(number, {0: X})
    assert raised.value.backend == "Fake"
    assert np.isfinite(runtime.enqueue_workload(number, {0: X})[0]).all()


def test_a_failure_skips_what_depends_on_it_and_stays_the_cause(fake, runtime_with):
    device = fake(Fault="fail@1")
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    with pytest.raises(ExecutionError, match="the planted fault") as raised:
        runtime.enqueue_workload(number, {0: X})
    assert "MemCopy" in str(raised.value), "the copy to the device has failed, not the part"


def test_a_wrong_value_is_an_error_of_the_caller(fake, runtime_with):
    device = fake()
    runtime = runtime_with(device.backend)
    number = loaded(runtime, gather(), "Fake")
    rows = np.int32([1, 9])
    with pytest.raises(InvalidValueError, match="indices has 9 at") as raised:
        runtime.enqueue_workload(number, {0: X, 1: rows})
    error = raised.value
    assert (error.operand, error.position, error.value, error.allowed) == ("indices", (1,), 9, (-8, 7))
    assert "rows" in error.layer
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X, 1: rows - 2})[0], X[[-1, 7]])


def test_a_run_on_the_device_is_cancelled(fake, runtime_with):
    device = fake(Clock="manual", Work=SECOND)
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    control = RunControl()
    timer = threading.Timer(0.05, control.cancel)
    timer.start()
    with pytest.raises(RunCancelledError, match="cancelled"):
        runtime.enqueue_workload(number, {0: X}, control=control)
    timer.join()
    [result] = finished(device, runtime.submit(number, {0: X}))
    np.testing.assert_array_equal(result, np.maximum(X, 0))


def test_a_submitted_run_is_cancelled(fake, runtime_with):
    device = fake(Clock="manual", Work=SECOND)
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    run = runtime.submit(number, {0: X})
    while not device.live["queues"]:
        device.advance(0)
    run.cancel()
    with pytest.raises(RunCancelledError):
        run.result(10)


def test_a_late_run_ends_at_its_deadline_and_its_memory_is_used_again(fake, runtime_with):
    device = fake(Lacks="copies", Fault="never@1")
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    with pytest.raises(DeadlineExceededError, match="took longer than 1 seconds.* on backend Fake"):
        runtime.enqueue_workload(number, {0: X}, deadline=1)
    for thread in threading.enumerate():
        if thread.name == "interposer-run":  # which gives the working memory of the late run back
            thread.join(10)
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X}, deadline=10)[0], np.maximum(X, 0))


def test_a_device_that_hangs_is_given_up_and_nothing_of_it_is_freed(fake, runtime_with, monkeypatch):
    monkeypatch.setattr(asynchronous, "GRACE", 0.1)
    device = fake(Lacks="copies", Fault="ignore@1")
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    with pytest.raises(DeadlineExceededError):
        runtime.enqueue_workload(number, {0: X}, deadline=0.5)
    while not device.backend.library.refuses:
        time.sleep(0.001)
    with pytest.raises(LoadError, match="did not end its work"):
        runtime.enqueue_workload(number, {0: X})
    before = device.live
    assert before["queues"] == 1
    runtime.unload_network(number)
    gc.collect()
    assert device.live == before
    assert device.backend.library.close() is False


def test_other_backends_take_over_from_a_device_that_hangs_and_closing_it_does_not_wait(
    fake, runtime_with, monkeypatch
):
    monkeypatch.setattr(asynchronous, "GRACE", 0.1)
    monkeypatch.setattr(library, "PATIENCE", 1000)
    device = fake(Lacks="copies", Fault="ignore@1")
    runtime = runtime_with(device.backend)
    model = interposer.load(chain(RELU), backends=["Fake", "CpuRef"], runtime=runtime, fallback=True)
    result = model.run([X], deadline=1)
    np.testing.assert_array_equal(result[0], np.maximum(X, 0))
    assert [event.backend for event in model.events] == ["Fake"]
    assert device.backend.library.close() is False


def test_other_backends_take_over_from_a_lost_device(fake, runtime_with):
    device = fake(Fault="lost@1")
    runtime = runtime_with(device.backend)
    model = interposer.load(chain(RELU), backends=["Fake", "CpuRef"], runtime=runtime)
    for array in (X, -X):
        np.testing.assert_array_equal(model.run([array])[0], np.maximum(array, 0))
    assert "device lost" in str(model.events[0])
    model.close()
    gc.collect()
    assert device.live["queues"] == 0


def test_plug_ins_with_classes_of_the_same_name_share_neither_backends_nor_lost_devices(backend, runtime_with):
    losing, lasting = backend("twin.cpp", "-DLOST", "-pthread"), backend("twin.cpp", "-pthread")
    assert (losing.id, lasting.id) == ("Losing", "Lasting")
    runtime = runtime_with(losing, lasting)
    model = interposer.load(chain(Addition()), backends=["Losing", "Lasting"], runtime=runtime)
    np.testing.assert_array_equal(model.run([X])[0], X + X)
    assert [event.backend for event in model.events] == ["Losing"]
    model.close()


# --- ends -------------------------------------------------------------------------------------------------------------


def test_tensors_pools_and_queues_end_with_their_working_memory(fake, runtime_with):
    device = fake()
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    runtime.enqueue_workload(number, {0: X})
    before = device.live
    with runtime.create_working_mem_handle(number) as memory:
        runtime.execute(number, memory, {0: X})
        assert device.live["queues"] == before["queues"] + 2
    assert device.live == before
    runtime.unload_network(number)
    assert [device.live[name] for name in ("queues", "tensors", "pools", "gates")] == [0, 0, 0, 0]


def test_a_network_is_unloaded_after_the_runs_that_were_submitted(fake, runtime_with):
    device = fake(Work=20_000_000)
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    run = runtime.submit(number, {0: X})
    while not device.live["queues"]:
        device.advance(0)
    runtime.unload_network(number)
    np.testing.assert_array_equal(run.result()[0], np.maximum(X, 0))
    assert device.live["queues"] == device.live["tensors"] == 0


def test_a_plug_in_is_not_shut_down_before_its_queues_are_over(fake):
    device = fake(Lacks="handles", Clock="manual", Work=SECOND)
    queue = device.backend.create_queue({})
    workload, handles = part(device.backend)
    event = queue.submit(workload, *handles)
    closed = threading.Thread(target=device.backend.library.close)
    closed.start()
    closed.join(0.1)
    assert closed.is_alive()
    assert not event.done()
    while closed.is_alive():
        device.advance()
    assert event.done()


def test_hundreds_of_failing_runs_leave_nothing(fake, runtime_with):
    device = fake(Lacks="copies", Fault="fail@1")
    runtime = runtime_with(device.backend)
    for _ in range(200):
        number = loaded(runtime, chain(RELU), "Fake")
        with pytest.raises(ExecutionError):
            runtime.enqueue_workload(number, {0: X})
        runtime.unload_network(number)
    gc.collect()
    assert device.live == dict.fromkeys(LIVE, 0)


# --- events -----------------------------------------------------------------------------------------------------------


def part(backend, op=RELU):
    """A compiled operation in memory of the host, and handles of its input and output."""
    registry = BackendRegistry()
    registry.register(backend.id, lambda: backend)
    optimized = optimize(chain(op), [backend.id], DeviceSpec(registry), UNCHANGED)
    [layer] = [layer for layer in optimized.graph.topological() if isinstance(layer.op, PreCompiled)]
    factory = backend.create_workload_factory(None, {})
    workload = factory.create_workload(layer, WorkloadInfo.of(layer))
    return workload, ([ArrayHandle(INFO, X.copy())], [ArrayHandle(INFO, np.empty_like(X))])


def test_an_event_is_a_point_on_a_timeline(fake):
    device = fake(Lacks="handles", Clock="manual", Work=SECOND)
    queue = device.backend.create_queue({})
    workload, (inputs, outputs) = part(device.backend)
    first, second = (queue.submit(workload, inputs, outputs) for _ in range(2))
    assert not first.done()
    assert not first.wait(0.01)
    assert first.error() is None
    poll = select.poll()
    poll.register(first.fileno(), select.POLLIN)
    assert poll.poll(10) == []
    device.advance()
    assert first.wait()
    assert poll.poll(10_000)
    assert not second.done()
    device.advance()
    assert second.wait(10)
    assert second.error() is None
    with outputs[0].mapped() as array:
        np.testing.assert_array_equal(array, np.maximum(X, 0))
    queue.destroy()
    assert device.live["queues"] == 0


def test_what_follows_a_failure_is_skipped_until_the_queue_is_reset(fake):
    device = fake(Lacks="handles", Fault="fail@1")
    queue, other = device.backend.create_queue({}), device.backend.create_queue({"Fault": ""})
    workload, handles = part(device.backend)
    failing = queue.submit(workload, *handles)
    skipped, elsewhere = queue.submit(workload, *handles), other.submit(workload, *handles, after=[failing])
    with pytest.raises(BackendError, match="the planted fault"):
        failing.wait(10)
    with pytest.raises(SkippedError, match="submission 1 of its queue failed: the planted fault"):
        skipped.wait(10)
    with pytest.raises(SkippedError, match="submission 1 of another queue failed: the planted fault"):
        elsewhere.wait(10)
    for each in (queue, other):
        each.reset()
        assert each.submit(workload, *handles).wait(10)
        each.destroy()


@pytest.fixture(params=["fake_async.cpp", "twin.cpp"])
def additions(request, backend):
    """A backend, and two compiled additions with their tensors, as some run on one queue at a time."""
    own = backend(request.param, "-pthread", **({"options": {"Lacks": "handles"}} if "fake" in request.param else {}))
    return own, [(workload, *handles) for workload, handles in (part(own, Addition()) for _ in range(2))]


@pytest.fixture
def held():
    """Makes events that are over when the function beside them is called."""
    gates = []

    def held():
        gate = threading.Event()
        gates.append(gate)
        return ThreadQueue("host").call(partial(gate.wait, 60)), gate.set

    yield held
    for gate in gates:
        gate.set()


def test_a_submission_may_wait_for_a_queue_that_is_destroyed_before_it_begins(additions, held):
    backend, (one, two) = additions
    (before, release), (other, release_other) = held(), held()
    first, second = backend.create_queue({}), backend.create_queue({})
    awaited = first.submit(*one, [before])
    second.submit(*two, [other])
    dependent = second.submit(*two, [awaited])
    release()
    assert awaited.wait(10)
    first.destroy()
    third = backend.create_queue({})  # perhaps in the same memory
    release_other()
    assert dependent.wait(10)
    for queue in (second, third):
        queue.destroy()


def test_a_failure_of_a_destroyed_queue_skips_what_is_submitted_after_it(additions, held):
    backend, (one, two) = additions
    before, release = held()
    first, second = backend.create_queue({}), backend.create_queue({})
    cancelled = first.submit(*one, [before])
    first.cancel()
    with pytest.raises(RunCancelledError):
        cancelled.wait(10)
    first.destroy()
    with pytest.raises(SkippedError, match="cancelled before it began"):
        second.submit(*two, [cancelled])
    assert second.submit(*two).wait(10)
    release()
    second.destroy()


def test_a_deadline_ends_a_submission_that_waits_and_what_is_after_it(additions, held):
    backend, (one, _) = additions
    before, release = held()
    queue = backend.create_queue({})
    late = queue.submit(*one, [before], time.monotonic() + 0.02)
    after = queue.submit(*one)
    with pytest.raises(DeadlineExceededError, match="its deadline had passed before it began"):
        late.wait(10)
    with pytest.raises(SkippedError, match="its deadline had passed"):
        after.wait(10)
    release()
    queue.reset()
    assert queue.submit(*one, (), time.monotonic() + 60).wait(10)
    queue.destroy()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (abi.POINT_QUEUE, "a queue that was destroyed"),
        (abi.POINT_GATE, "a gate that was destroyed"),
        (abi.POINT_TIMELINE, "a point of kind 4"),
    ],
)
def test_points_that_the_queues_of_cpp_do_not_know_are_refused(kind, text, backend):
    own = backend("twin.cpp", "-pthread")
    workload, (inputs, outputs) = part(own, Addition())
    queue = own.create_queue({})
    tables = workload.bound_tables(inputs, outputs)
    points = (abi.Point * 1)(abi.Point(kind=kind, handle=99, value=1))
    submission = abi.Submission(
        struct_size=ctypes.sizeof(abi.Submission), executable=workload.executable.handle, run=tables.address,
        wait_count=1, wait_stride=ctypes.sizeof(abi.Point), waits=ctypes.addressof(points),
    )  # fmt: skip
    with pytest.raises(BackendError, match=text):
        queue.queues.call("submit", queue.handle, ctypes.addressof(submission), ctypes.addressof(ctypes.c_uint64()))
    assert queue.submit(workload, inputs, outputs).wait(10)
    queue.destroy()


def test_the_times_of_a_profile_are_those_of_the_device(fake, runtime_with):
    device = fake(Work=20_000_000)
    runtime = runtime_with(device.backend, Telling())
    number = loaded(runtime, branches("device", "host"), "Fake", "Telling")
    runtime.enqueue_workload(number, {0: X})
    with Recorder() as recorder:
        runtime.enqueue_workload(number, {0: X})
    times = {
        interval.site.name: interval.end - interval.begin
        for interval in recorder.recording().intervals
        if interval.site.name in dict(runtime._loaded(number).steps) and interval.run >= 0
    }
    assert len(times) == 6
    assert min(times.values()) >= 0, "also if a busy processor notes an end late"
    assert sum(times.values()) > 40_000_000, "the times of the device, and not those of the submissions"


def test_intervals_of_devices_belong_to_the_runs_in_which_they_were_measured(fake, runtime_with):
    device = fake(Lacks="copies", Work=1_000_000)
    runtime = runtime_with(device.backend)
    number = loaded(runtime, chain(RELU), "Fake")
    with Recorder(thread=threading.get_ident()) as recorder:
        other = threading.Thread(target=runtime.enqueue_workload, args=(number, {0: X}))
        other.start()
        other.join()
        for _ in range(2):
            runtime.enqueue_workload(number, {0: X})
    intervals = recorder.recording().intervals
    runs = [interval.run for interval in intervals if interval.site.category is Category.RUN]
    assert len(runs) == 2
    assert [interval.run for interval in intervals if interval.site.device] == runs


def test_an_explanation_measures_each_part_alone_and_shows_the_overlap(fake, runtime_with):
    device = fake(Lacks="copies", Work=20_000_000)
    other = fake("Other", Lacks="copies", Work=20_000_000)
    runtime = runtime_with(device.backend, other.backend)
    network = Network("two")
    x = network.add_input_layer(0, INFO, name="x")
    for number, name in enumerate(("one", "two")):
        network.add_output_layer(number, network.add_layer(Addition(), x, x, name=name))
    options = OptimizerOptions(rewrite=False, hints={"two": "Other"})
    with interposer.load(network, backends=["Fake", "Other"], options=options, runtime=runtime) as model:
        explanation = model.explain(measure=True, budget_seconds=0.2)
    times = explanation.times
    parts = [ms for name, ms in times.units.items() if name.startswith("PreCompiled")]
    assert len(parts) == 2
    assert all(ms >= 20 for ms in parts)
    assert times.overlap > 0, "two of them run at the same time in a whole run"
    assert "measured alone; devices and the host overlap by" in str(explanation)
    assert times.devices["fake:0"] >= 40, "both plug-ins call their device so"
    assert "fake:0 is busy for" in str(explanation)
    assert explanation.to_dict()["times"]["devices_ms"] == times.devices


def test_a_backend_in_a_process_of_its_own_is_synchronous(natives, tmp_path):
    natives.install(tmp_path / "plugins", "Tests_Fake_backend.so", Path("fake_async.cpp"))
    options = CreationOptions(dynamic_backends_path=tmp_path / "plugins", isolate={"Fake"})
    with Runtime(options) as runtime:
        number = loaded(runtime, chain(RELU, Addition()), "Fake")
        np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X})[0], 2 * np.maximum(X, 0))
