"""Fixtures of all tests: no clocks, no settings or caches of the user who runs them, and compiled plug-ins.

Tests that need CpuRef are skipped where the environment disables it, and only there. CpuAcc and GpuAcc are disabled, as
they are not built everywhere and round otherwise than CpuRef; the tests that are about them take the fixtures `cpuacc`
or `shared_cpuacc`, and `gpuacc`. Only tests with the latter can open drivers of OpenCL.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

from tests import parameters, warm
from tests.native import OPENCL_CACHE, Natives

# How long a test takes says nothing on a busy machine. Drawn examples are the same in every run, so that who changes
# nothing breaks nothing; `make test-all` draws others each time, and more, with --hypothesis-profile=random.
ON_A_BUSY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", ON_A_BUSY_MACHINE, derandomize=True, max_examples=60)
settings.register_profile("random", ON_A_BUSY_MACHINE, max_examples=200)
settings.load_profile("repeatable")

MARKER = "needs_cpuref: runs networks on CpuRef; skipped where INTERPOSER_DISABLED_BACKENDS names that backend"
DISABLED = "INTERPOSER_DISABLED_BACKENDS"
OWN_FOLDERS = {
    "INTERPOSER_CACHE_DIR": "cache", "XDG_CONFIG_HOME": "settings", "XDG_CONFIG_DIRS": "machine",
    "OCL_ICD_VENDORS": "no-drivers",
}  # fmt: skip
DRIVERS, OWN_DRIVERS = "OCL_ICD_VENDORS", "INTERPOSER_TESTS_OCL_ICD_VENDORS"  # the second: what the user has set


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    parameters.slow_are_wanted = config.getoption("markexpr") != "not slow"
    if not config.getoption("--hypothesis-profile"):
        draw_no_constants_of_modules()
    if not hasattr(config, "workerinput"):  # workers of xdist inherit the environment
        folder = tempfile.mkdtemp(prefix="interposer-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ[OWN_DRIVERS] = os.environ.get(DRIVERS, "")
        os.environ.update({name: str(Path(folder, below)) for name, below in OWN_FOLDERS.items()})
        os.environ["POCL_CACHE_DIR"] = str(OPENCL_CACHE)
        os.environ[DISABLED] = ",".join(filter(None, (os.environ.get(DISABLED), "CpuAcc,GpuAcc")))
    else:  # a folder that others write to is listed again and again
        os.environ["INTERPOSER_CACHE_DIR"] += f"-{config.workerinput['workerid']}"


def draw_no_constants_of_modules() -> None:
    """Let Hypothesis not draw the constants of the modules that are imported, which other tests may import.

    Drawn examples are then the same whichever tests run, and no second is spent on reading all modules again.
    Versions of Hypothesis that keep these constants elsewhere, or draw none, stay as they are.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from hypothesis.internal.conjecture import providers

        constants = providers._local_constants
        providers._get_local_constants = lambda: constants


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    """Make no items of slow functions where none is to run, which would take as long as those of others."""
    is_left_out = not parameters.slow_are_wanted and isfunction(obj) and "slow" in _names_of_marks(obj)
    return [] if is_left_out else None


def _names_of_marks(function: FunctionType) -> set[str]:
    return {mark.name for mark in getattr(function, "pytestmark", ())}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from interposer.core.config import disabled_backends

    if "CpuRef" not in disabled_backends():
        return
    skip = pytest.mark.skip(reason=f"{DISABLED} disables CpuRef")
    for item in items:
        if item.get_closest_marker("needs_cpuref"):
            item.add_marker(skip)


def pytest_collection() -> None:
    """Turn the garbage collector off while tests are collected; almost nothing is garbage then."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting the collected tests and their modules, which exist until the end.

    Many tests call `gc.collect`, which would take most of their time.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def what_a_module_leaves_is_not_visited_either() -> Iterator[None]:
    """Do the same with the caches that the tests of a module have filled, such as that of all samples."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def natives() -> Natives:
    """Compiles shared objects, each once in a session."""
    return Natives(Path(os.environ["INTERPOSER_CACHE_DIR"]).parent / "natives")


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets programs of Python that the package starts be forks of a process that has imported it; see `tests.warm`."""
    monkeypatch.setattr(sys, "executable", warm.executable())


@pytest.fixture
def new_interpreter(warm_python: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes `warm_python` for a test of a module that uses it: programs are new interpreters, which signals reach."""
    monkeypatch.setattr(sys, "executable", warm.NEW_INTERPRETER)


@pytest.fixture
def cpuacc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the native backend of the package be used; skips the test where it was not built."""
    yield from _enabled("CpuAcc", monkeypatch)


@pytest.fixture(scope="module")
def shared_cpuacc() -> Iterator[None]:
    """Does what `cpuacc` does, but the tests of a module share the default runtime, and compiled parts are not cached.

    It is for modules whose tests change no settings of the runtime, and takes half of the time.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
        yield from _enabled("CpuAcc", monkeypatch)


@pytest.fixture
def gpuacc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the OpenCL backend of the package be used; skips the test where it was not built or finds no device."""
    from interposer.session.runtimes import default_runtime

    monkeypatch.delenv(DRIVERS)
    if os.environ[OWN_DRIVERS]:
        monkeypatch.setenv(DRIVERS, os.environ[OWN_DRIVERS])
    for _ in _enabled("GpuAcc", monkeypatch):
        reason = default_runtime().registry.reason_absent("GpuAcc")
        if reason is not None:
            pytest.skip(f"there is no GpuAcc: {reason}")
        yield


def _enabled(backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from interposer.plugins.capi.loading.paths import own_files, reason_not_built
    from interposer.session.runtimes import _only_runtime

    if backend not in own_files():
        pytest.skip(f"there is no {backend}: {reason_not_built()}")
    others = [name for name in os.environ[DISABLED].split(",") if name != backend]
    monkeypatch.setenv(DISABLED, ",".join(others))
    _only_runtime.cache_clear()  # the one that others have used does without it
    yield
    _only_runtime.cache_clear()
