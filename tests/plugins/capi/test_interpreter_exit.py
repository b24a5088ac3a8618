"""What runs while the interpreter ends: functions of `atexit`, ``__del__`` of module contents, then ``shutdown``."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import atexit, os, sys

    state = {}

    @atexit.register
    def registered_before_the_import():
        print("before", state["model"].run([X])[0].tolist(), loaded().run([X])[0].tolist())

    import numpy as np
    import interposer as ip

    X = np.float32([1, 2])

    def loaded():
        network = ip.Network("twice")
        x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
        network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
        return ip.load(network, [BACKEND], runtime=RUNTIME)

    class Holder:
        def __init__(self, name):
            self.model, self.x, self.name = loaded(), X, name

        def __del__(self):
            print(self.name, self.model.run([self.x])[0].tolist())

    RUNTIME = ip.Runtime(ip.CreationOptions(dynamic_backends_path=PATH or None))
    state["model"] = loaded()
    held = Holder("held")
    cycle = Holder("cycle")
    cycle.itself = cycle
    atexit.register(lambda: print("after", state["model"].run([X])[0].tolist()))
"""


@pytest.fixture
def warm_python() -> None:
    """New interpreters are started here."""


def said_at_exit(backend: str, path: str, **environment: str) -> list[str]:

    code = f"BACKEND, PATH = {backend!r}, {path!r}\n{textwrap.dedent(SCRIPT)}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


FOUND = ["after [2.0, 4.0]", "before [2.0, 4.0] [2.0, 4.0]", "cycle [2.0, 4.0]", "held [2.0, 4.0]"]


@pytest.mark.needs_cpuref
def test_the_reference_runs_while_the_interpreter_ends() -> None:
    assert sorted(said_at_exit("CpuRef", "")) == FOUND


def test_a_shared_object_runs_while_the_interpreter_ends_and_is_shut_down_after_that(install) -> None:
    at_shutdown = 'write(1, "shut down\\n", 10) == 10 || (abort(), 0);'
    path = install(AT_SHUTDOWN=at_shutdown)
    *result, last = said_at_exit("Adder", str(path.parent), PYTHONUNBUFFERED="1", INTERPOSER_PROBE_SECONDS="0")
    assert sorted(result) == FOUND
    assert last == "shut down"


@pytest.mark.usefixtures("cpuacc")
def test_the_native_backend_runs_while_the_interpreter_ends() -> None:
    assert sorted(said_at_exit("CpuAcc", "")) == FOUND
