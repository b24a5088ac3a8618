"""Quick runs, which the event loop does itself: for which models and shapes, and what follows from failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer import Model
from interposer.serving.quick import QuickShapes, shapes_of
from interposer.serving.runs import Plain
from interposer.serving.statistics import Timing
from tests.runtime.test_control_flow import choice
from tests.serving.running import doubler, model

pytestmark = pytest.mark.needs_cpuref

SHORT, LONG = 1e-5, 1e-2
ROW = ((1, 4),)


def test_shapes_are_quick_from_the_first_short_run_on():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, LONG)
    assert not quick.has(ROW)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW) and not quick.has(((2, 4),))


def test_one_long_run_among_short_ones_changes_nothing():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    for seconds in (SHORT, LONG, *[SHORT] * 60):
        quick.ran(ROW, seconds)
        assert quick.has(ROW)


def test_shapes_whose_runs_have_become_long_are_not_quick():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, SHORT)
    for _ in range(63):
        quick.ran(ROW, LONG)
    assert not quick.has(ROW)


def test_a_failure_ends_quick_runs():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    quick.ran(ROW, SHORT)
    quick.failed(ROW)
    assert not quick.has(ROW)


def test_models_with_control_flow_are_never_quick():
    quick = QuickShapes(model(choice()))
    quick.ran(ROW, SHORT)
    assert not quick.has(ROW)


def test_models_for_any_number_of_rows_are_quick_for_those_that_were_measured():
    served = model(doubler())
    served.run([np.ones((1, 4), np.float32)])
    quick = QuickShapes(served)
    quick.ran(ROW, SHORT)
    assert quick.has(ROW) and not quick.has(((1000, 4),))


def test_shapes_are_remembered_up_to_a_limit():
    quick = QuickShapes(model(doubler(shape=(1, 4))))
    for rows in range(1000):
        quick.ran(((rows, 4),), SHORT)
    assert sum(quick.has(((rows, 4),)) for rows in range(1000)) <= 256


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
