"""Models on isolated backends that live until the interpreter ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests import warm

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.skipif(sys.platform != "linux", reason="needs isolation")]
SCRIPT = """
    import atexit, sys
    import numpy as np
    import interposer as ip

    X = np.float32([1, 2])
    network = ip.Network("twice")
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    runtime = ip.Runtime(ip.CreationOptions(isolate="CpuRef"))

    class Holder:
        def __init__(self, name):
            self.model, self.x, self.name = ip.load(network, ["CpuRef"], runtime=runtime), X, name

        def __del__(self):
            print(self.name, self.model.run([self.x])[0].tolist())

    held = Holder("held")
    cycle = Holder("cycle")
    cycle.itself = cycle
    atexit.register(lambda: print("atexit", held.model.run([X])[0].tolist()))
"""


def test_isolated_models_run_until_the_interpreter_has_ended_and_leave_quietly() -> None:
    command = [warm.NEW_INTERPRETER, "-X", "dev", "-W", "error", "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["atexit [2.0, 4.0]", "cycle [2.0, 4.0]", "held [2.0, 4.0]"]
