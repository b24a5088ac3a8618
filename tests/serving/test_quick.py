"""Quick runs, which the event loop does itself: for which models and shapes, and what follows from failures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from interposer import CreationOptions, Model, Network, Runtime, TensorInfo
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import DeadlineExceededError
from interposer.serving import quick as quick_runs
from interposer.serving.quick import QuickShapes, shapes_of
from interposer.serving.runs import Plain
from interposer.serving.statistics import Timing
from tests.failing import Failing
from tests.runtime.test_control_flow import choice
from tests.serving.running import doubler, model

pytestmark = pytest.mark.needs_cpuref

SHORT, LONG, ENDLESS, MINUTE = 1e-5, 1e-2, 1.0, 60.0
ROW = ((1, 4),)


def test_shapes_are_quick_from_the_first_short_run_on():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, LONG)
    assert not quick.has(ROW, MINUTE)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, MINUTE) and not quick.has(((2, 4),), MINUTE)


def test_one_long_run_among_short_ones_changes_nothing():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    for seconds in (SHORT, LONG, *[SHORT] * 60):
        quick.ran(ROW, seconds)
        assert quick.has(ROW, MINUTE)


def test_shapes_whose_runs_have_become_long_are_not_quick():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, SHORT)
    for _ in range(63):
        quick.ran(ROW, LONG)
    assert not quick.has(ROW, MINUTE)


def test_a_run_that_holds_others_up_ends_quick_runs_for_a_while():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    for seconds in (SHORT, ENDLESS, *[SHORT] * 31):
        quick.ran(ROW, seconds)
    assert not quick.has(ROW, MINUTE)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, MINUTE)


def test_models_of_texts_are_never_quick_as_texts_have_any_length():
    network = Network("texts")
    x = network.add_input_layer(0, TensorInfo((1, 4), "string"), name="x")
    network.add_output_layer(0, network.add_string_concat_layer(x, x), name="y")
    quick = QuickShapes(model(network))
    quick.ran(ROW, SHORT)
    assert not quick.has(ROW, MINUTE)


def test_a_failure_ends_quick_runs():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, SHORT)
    quick.failed(ROW)
    assert not quick.has(ROW, MINUTE)


def test_models_with_control_flow_are_never_quick():
    quick = QuickShapes(model(choice()))
    quick.ran(ROW, SHORT)
    assert not quick.has(ROW, MINUTE)


def test_models_for_any_number_of_rows_are_quick_for_those_that_were_measured():
    served = model(doubler())
    served.run([np.ones((1, 4), np.float32)])
    quick = QuickShapes(served)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, MINUTE) and not quick.has(((1000, 4),), MINUTE)


def test_shapes_are_remembered_up_to_a_limit():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    for rows in range(1000):
        quick.ran(((rows, 4),), SHORT)
    assert sum(quick.has(((rows, 4),), MINUTE) for rows in range(1000)) <= 256


def without_waiting(coroutine: Any) -> Any:
    """Return the result of a coroutine that must not wait for anything."""
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


def test_a_quick_run_ends_without_waiting_for_a_thread():
    served: Model = model(doubler(shape=(1, 4)))
    runner, timing, x = Plain(served), Timing(), {"x": np.ones((1, 4), np.float32)}
    runner._quick.ran(shapes_of(x), SHORT)
    (y,) = without_waiting(runner.run(x, ["y"], 10.0, {}, timing))
    assert y.tolist() == [[2, 2, 2, 2]] and timing.compute > 0 and timing.queue == 0


def test_a_network_that_was_unloaded_is_built_again_in_a_thread():
    served = model(doubler())
    runner, x = Plain(served), {"x": np.ones((1, 4), np.float32)}
    served.run(x)
    runner._quick.ran(shapes_of(x), SHORT)
    for rows in range(2, 12):
        served.run({"x": np.ones((rows, 4), np.float32)})
    assert served.run_if_loaded(x) is None
    (y,) = asyncio.run(runner.run(x, ["y"], 10.0, {}, Timing()))
    assert y.tolist() == [[2, 2, 2, 2]] and served.run_if_loaded(x) is not None


def test_a_quick_run_does_not_wait_while_a_network_of_the_model_is_built():
    served, x = model(doubler()), {"x": np.ones((1, 4), np.float32)}
    served.run(x)
    with ThreadPoolExecutor() as threads, served._loaded.lock:
        assert threads.submit(served.run_if_loaded, x).result() is None


class InWhichThread:
    """A failure of a backend that notes in which thread it happens."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __call__(self) -> None:
        self.threads.append(threading.get_ident())
        raise RuntimeError("the device is gone")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Model]:
    """A function that returns a model on a backend F, whose runs may be quick and fail as its arguments say."""
    monkeypatch.setattr(quick_runs, "_BACKENDS", frozenset({"F", "CpuRef"}))

    def load(**how: Any) -> Model:
        runtime = Runtime(CreationOptions())
        runtime.registry.register("F", lambda: Failing(ReferenceBackend, "F", **how))
        return model(doubler(shape=(1, 4)), runtime, "F", "CpuRef")

    return load


def test_a_backend_that_fails_in_a_quick_run_is_replaced_in_another_thread(failing):
    failure, x = InWhichThread(), {"x": np.ones((1, 4), np.float32)}
    served = failing(at=2, how=failure)
    runner = Plain(served)
    served.run(x)
    runner._quick.ran(shapes_of(x), SHORT)
    (y,) = asyncio.run(runner.run(x, ["y"], MINUTE, {}, Timing()))
    here, other = failure.threads
    assert y.tolist() == [[2, 2, 2, 2]] and here == threading.get_ident() != other
    assert [event.backend for event in served.events] == ["F"]
    assert set(served.optimized.backends) == {"CpuRef"}


def test_all_shapes_are_measured_again_when_another_backend_runs_the_model(failing):
    served = failing(at=1)
    quick = QuickShapes(served)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, MINUTE)
    served.run({"x": np.ones((1, 4), np.float32)})
    assert not quick.has(ROW, MINUTE)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, MINUTE)


def test_a_run_whose_deadline_is_near_is_in_a_thread_that_can_stop_it():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, SHORT)
    assert quick.has(ROW, 0.1) and not quick.has(ROW, 0.001)


def test_a_quick_run_that_exceeds_its_deadline_is_late():
    served = model(doubler(shape=(1, 4)))
    runner, x = Plain(served), {"x": np.ones((1, 4), np.float32)}
    runner._quick.ran(shapes_of(x), SHORT)

    def slowly(*arguments: Any) -> Any:
        return time.sleep(0.02) or type(served).run_if_loaded(served, *arguments)

    served.run_if_loaded = slowly  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceededError, match=r"longer than 0\.01 seconds"):
        asyncio.run(runner.run(x, ["y"], 0.01, {}, Timing()))
