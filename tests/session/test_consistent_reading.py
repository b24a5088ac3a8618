"""Reading what a model is, while others call it: each reader gets one consistent answer, and no call fails for it."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Runtime
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import InvalidValueError
from tests.failing import Failing
from tests.session.test_invalid_values import table_network

pytestmark = pytest.mark.needs_cpuref


def together(*functions: Callable[[], None]) -> list[str]:
    """Call each function 30 times in a thread of its own; return the errors."""
    errors: list[str] = []

    def repeated(function: Callable[[], None]) -> None:
        for _ in range(30):
            try:
                function()
            except BaseException as error:
                errors.append(f"{function.__name__}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=repeated, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def calls_of_many_shapes(model: ip.Model) -> Callable[[], None]:
    sizes = iter(range(10_000))

    def good_call() -> None:
        size = 1 + next(sizes) % 11  # more than are cached
        assert model.run([np.full(size, 2)])[0].tolist() == [[4, 5]] * size

    return good_call


def readers_of(model: ip.Model, folder: Path) -> list[Callable[[], None]]:
    def read() -> None:
        assert model.is_prepared
        assert len(model.optimized.placements) == 1
        assert "pick" in str(model.explain())
        assert model.values
        assert model.memory().constants >= 0
        model.transfers()
        assert "<" in model._repr_html_()
        assert isinstance(model.events, tuple)

    def save() -> None:
        path = folder / f"{threading.get_ident()}.ipn"
        model.save(path)
        assert path.stat().st_size > 0

    def duplicate() -> None:
        with copy.copy(model) as copied:
            assert copied.run([np.array([0])])[0].tolist() == [[0, 1]]

    return [read, save, duplicate]


def test_a_model_can_be_read_while_calls_of_many_shapes_load_and_unload_networks(tmp_path: Path) -> None:
    model = ip.load(table_network((None,)), ["CpuRef"])
    model.run([np.array([0])])
    good_call = calls_of_many_shapes(model)

    def pickled() -> None:
        with pickle.loads(pickle.dumps(model)) as loaded:
            assert loaded.run([np.array([2])])[0].tolist() == [[4, 5]]

    assert together(good_call, good_call, pickled, *readers_of(model, tmp_path)) == []


def test_a_model_can_be_read_while_calls_with_wrong_values_fail(tmp_path: Path) -> None:
    def fail_for_bad_values() -> None:
        if threading.current_thread().name == "bad":
            raise ValueError("a value was out of range, but this backend cannot say so")

    with Runtime() as runtime:
        backend = Failing(ReferenceBackend, "F", at=1, how=fail_for_bad_values)
        runtime.registry.register("F", lambda: backend)
        model = ip.load(table_network((None,)), ["F", "CpuRef"], runtime=runtime)
        model.run([np.array([0])])
        good_call = calls_of_many_shapes(model)

        def bad_call() -> None:
            threading.current_thread().name = "bad"
            with pytest.raises(InvalidValueError):
                model.run([np.array([0, 9])])

        assert together(good_call, good_call, bad_call, *readers_of(model, tmp_path)) == []
        assert model.events == ()
        assert {placement.backend for placement in model.optimized.placements} == {"F"}


def test_a_model_can_be_read_while_a_backend_fails_and_is_disabled(tmp_path: Path) -> None:
    with Runtime() as runtime:
        backend = Failing(ReferenceBackend, "F", at=20)  # every run fails from the twentieth on
        runtime.registry.register("F", lambda: backend)
        model = ip.load(table_network((None,)), ["F", "CpuRef"], runtime=runtime)
        model.run([np.array([0])])
        good_call = calls_of_many_shapes(model)
        assert together(good_call, good_call, *readers_of(model, tmp_path)) == []
        assert model.events
        assert {placement.backend for placement in model.optimized.placements} == {"CpuRef"}
