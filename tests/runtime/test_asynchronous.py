"""Backends in Python whose workloads are submitted to queues."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from interposer import CreationOptions, Network, OptimizerOptions, RunControl, Runtime, TensorInfo, optimize
from interposer.backend import (
    READY,
    Backend,
    Event,
    KernelTable,
    KernelWorkload,
    KernelWorkloadFactory,
    SkippedError,
    ThreadQueue,
)
from interposer.core.errors import DeadlineExceededError, ExecutionError, InvalidArgumentError, RunCancelledError
from interposer.core.types import DataType
from interposer.ops import Addition, Multiplication
from interposer.runtime import asynchronous
from tests.devices import Sums

INFO = TensorInfo((4,))
X = np.float32([1, 2, 3, 4])
UNCHANGED = OptimizerOptions(rewrite=False)


class QueuedWorkload(KernelWorkload):
    """A kernel that is submitted."""

    asynchronous = True


class QueuedFactory(KernelWorkloadFactory):
    def create_workload(self, layer, info):
        made = super().create_workload(layer, info)
        return QueuedWorkload(made.op, made.kernel, made.info)


class Queued(Backend):
    """Multiplies on the thread of a queue, once `may_run` is set; the number 13 is an error."""

    id: ClassVar = "Queued"
    asynchronous = True

    def __init__(self):
        self.may_run, self.threads = threading.Event(), set()
        self.queues, self.abandoned = [], []
        self.may_run.set()
        table = KernelTable()

        @table(Multiplication, dtypes={DataType.FLOAT32})
        def multiply(op, a, b, *, out):
            self.threads.add(threading.current_thread().name)
            self.may_run.wait()
            if 13 in a:
                raise ValueError("13 brings bad luck")
            np.multiply(a, b, out=out)

        self.kernels = table

    def create_workload_factory(self, memory_manager, options):
        return QueuedFactory(self.kernels, memory_manager)

    def create_queue(self, options):
        self.queues.append(ThreadQueue(self.id))
        return self.queues[-1]

    def abandon(self, reason):
        self.abandoned.append(reason)


@pytest.fixture
def queued():
    return Queued()


@pytest.fixture
def runtime(queued):
    with Runtime(CreationOptions(num_threads=4)) as made:
        made.registry.register("Queued", lambda: queued)
        made.registry.register("Sums", Sums)
        yield made
        queued.may_run.set()


def powers():
    """Gives ``x**2``, ``x + x`` and ``x**4 + 2x``."""
    network = Network("powers")
    x = network.add_input_layer(0, INFO, name="x")
    square = network.add_layer(Multiplication(), x, x, name="square")
    double = network.add_layer(Addition(), x, x, name="double")
    fourth = network.add_layer(Multiplication(), square, square, name="fourth")
    total = network.add_layer(Addition(), fourth, double, name="total")
    for number, value in enumerate((square, double, total)):
        network.add_output_layer(number, value)
    return network


def loaded(runtime, network=None):
    backends = ["Queued", "Sums", "CpuRef"]
    return runtime.load_network(optimize(network or powers(), backends, runtime.device_spec, UNCHANGED))


def check(outputs, x=X):
    for number, expected in enumerate((x**2, 2 * x, x**4 + 2 * x)):
        np.testing.assert_array_equal(outputs[number], expected)


def test_layers_run_in_a_queue_beside_a_synchronous_backend(queued, runtime):
    number = loaded(runtime)
    for x in (X, 2 * X, -X):
        check(runtime.enqueue_workload(number, {0: x}), x)
    assert queued.threads == {"interposer-Queued"}
    assert len(queued.queues) == 1


def test_runs_that_overlap_have_queues_of_their_own(queued, runtime):
    number = loaded(runtime)
    queued.may_run.clear()
    runs = [runtime.submit(number, {0: factor * X}) for factor in (1, 2, 3)]
    while len(queued.queues) < 3:
        pass
    queued.may_run.set()
    for factor, run in zip((1, 2, 3), runs, strict=True):
        check(run.result(), factor * X)


def test_the_layer_that_failed_is_named_and_the_queue_is_used_again(queued, runtime):
    number = loaded(runtime)
    with pytest.raises(ExecutionError, match="'square'.*: ValueError: 13 brings bad luck") as raised:
        runtime.enqueue_workload(number, {0: X + 12})
    assert (raised.value.layer, raised.value.backend) == ("square", "Queued")
    check(runtime.enqueue_workload(number, {0: X}))
    assert len(queued.queues) == 1


def test_a_run_is_cancelled_before_what_has_not_begun(queued, runtime):
    number, control = loaded(runtime), RunControl()
    queued.may_run.clear()
    run = runtime.submit(number, {0: X})
    while not queued.threads:
        pass
    run.cancel()
    queued.may_run.set()
    with pytest.raises(RunCancelledError):
        run.result(10)
    control.cancel()
    with pytest.raises(RunCancelledError):
        runtime.enqueue_workload(number, {0: X}, control=control)
    check(runtime.enqueue_workload(number, {0: X}))


def test_a_queue_that_hangs_is_given_up_with_its_memory(queued, runtime, monkeypatch):
    monkeypatch.setattr(asynchronous, "GRACE", 0.05)
    number = loaded(runtime)
    queued.may_run.clear()
    with pytest.raises(DeadlineExceededError, match="'square'"):
        runtime.enqueue_workload(number, {0: X}, deadline=1)
    while not queued.abandoned:
        pass
    queued.may_run.set()
    assert "did not end its work" in queued.abandoned[0]
    check(runtime.enqueue_workload(number, {0: X}))
    assert len(queued.queues) == 2


def test_a_backend_whose_queue_is_none_says_so(runtime, queued, monkeypatch):
    monkeypatch.setattr(queued, "create_queue", lambda options: None)
    with pytest.raises(ExecutionError, match="create_queue of backend 'Queued' returned NoneType"):
        runtime.enqueue_workload(loaded(runtime), {0: X})


def test_a_backend_without_create_queue_says_so(runtime, queued, monkeypatch):
    monkeypatch.delattr(Queued, "create_queue")
    with pytest.raises(ExecutionError, match="Queued creates no queues"):
        runtime.enqueue_workload(loaded(runtime), {0: X})


def test_imports_run_in_queues(runtime, queued):
    number = loaded(runtime)
    x, outputs = X.copy(), {number: np.empty_like(X) for number in range(3)}
    run = runtime.prepare_run(number, runtime.import_inputs(number, {0: x}), runtime.import_outputs(number, outputs))
    for factor in (1, 2):
        x[:] = factor * X
        if not run():
            outputs = runtime.enqueue_workload(number, {0: x})
        check(outputs, factor * X)


# --- queues by themselves ---------------------------------------------------------------------------------------------


def test_a_queue_runs_what_it_gets_in_order():
    queue, order = ThreadQueue("test"), []
    events = [queue.call(lambda number=number: order.append(number)) for number in range(100)]
    assert events[-1].wait(10)
    assert order == list(range(100))
    assert all(event.done() and event.error() is None for event in events)
    queue.destroy()
    with pytest.raises(InvalidArgumentError, match="destroyed"):
        queue.call(print)


def test_queues_wait_for_each_other_and_pass_failures_on():
    one, two = ThreadQueue("one"), ThreadQueue("two")
    gate, results = threading.Event(), []
    first = one.call(gate.wait)
    second = two.call(lambda: results.append("second"), after=[first, READY])
    assert not second.wait(0.01)
    assert second.error() is None
    gate.set()
    assert second.wait(10)
    failing = one.call(lambda: 1 / 0)
    after_it, elsewhere = one.call(print), two.call(print, after=[failing])
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        failing.wait(10)
    for event, text in ((after_it, "submission 2 of its queue failed"), (elsewhere, "depends on failed")):
        with pytest.raises(SkippedError, match=f"{text}: ZeroDivisionError"):
            event.wait(10)
    one.reset()
    two.reset()
    assert one.call(lambda: None).wait(10)
    assert two.call(lambda: None).wait(10)


def test_a_deadline_ends_a_submission_that_waits():
    one, two = ThreadQueue("one"), ThreadQueue("two")
    gate = threading.Event()
    late = two.call(print, after=[one.call(lambda: gate.wait(60))], deadline=time.monotonic())
    with pytest.raises(DeadlineExceededError, match="before it began in the queue 'two'"):
        late.wait(10)
    gate.set()


def test_an_event_of_a_queue_has_a_descriptor_that_is_readable_when_it_is_over():
    import select

    queue, gate = ThreadQueue("test"), threading.Event()
    event = queue.call(gate.wait)
    poll = select.poll()
    poll.register(event.fileno(), select.POLLIN)
    assert poll.poll(10) == []
    gate.set()
    assert poll.poll(10_000)
    assert event.wait(10)


def test_an_event_that_is_ready_is_over_without_an_error():
    assert isinstance(READY, Event)
    assert READY.done()
    assert READY.wait()
    assert (READY.error(), READY.fileno()) == (None, None)
