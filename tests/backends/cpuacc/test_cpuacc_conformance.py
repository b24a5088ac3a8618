"""CpuAcc and the conformance kit: for each instruction set on a part of the samples, and slowly as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.backends.cpuacc.building import built, sanitizer_environment
from tests.instruction_sets import INSTRUCTION_SETS, needs_instruction_set
from tests.parameters import slow_unless

ROOT = Path(__file__).parents[3]
STRICT = "tests.backends.cpuacc.strict"
IN_QUICK_RUNS = {"baseline", "avx2", "avx512"}
"""Those that tests try by default; the other tests of CpuAcc use the best one of the processor."""


def checked(only, every, *mode, **environment):
    """What a process of its own says of CpuAcc; no other has opened the library in it."""
    words = [*warm.python(), "-m", STRICT, only, str(every), *mode]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **environment}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=settings, cwd=ROOT)


@pytest.mark.parametrize("isa", slow_unless(IN_QUICK_RUNS.__contains__, INSTRUCTION_SETS))
def test_every_instruction_set_is_exact_on_some_samples(cpuacc, isa):
    needs_instruction_set(isa)
    done = checked("results/*", 41, INTERPOSER_CPUACC_ISA=isa)
    assert done.returncode == 0, done.stdout + done.stderr


def test_fast_math_is_within_its_bound_on_some_samples(cpuacc):
    done = checked("results/*", 41, "fast")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "avx512bf16"])
def test_fast_math_is_within_its_bound_on_all_samples(cpuacc, isa):
    needs_instruction_set(isa)
    done = checked("results/*", 1, "fast", INTERPOSER_CPUACC_ISA=isa)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_it_conforms_on_some_networks(cpuacc):
    done = checked("[cdt]*/*", 97)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_it_passes_the_whole_kit_on_every_instruction_set(cpuacc, isa):
    needs_instruction_set(isa)
    done = checked("*", 1, INTERPOSER_CPUACC_ISA=isa, INTERPOSER_CHECK_BACKENDS="yes")
    assert done.returncode == 0, done.stdout + done.stderr


NOT_A_NUMBER = """
import numpy as np
import interposer as ip
from interposer.ops import Attention, Softmax
query, key, value = np.random.default_rng(0).normal(0, 300, (3, 1, 2, 40, 8)).astype(np.float32)
query[0, 0, 3] = key[0, 1, 33] = np.nan
network = ip.Network("attention")
inputs = [network.add_input_layer(n, ip.TensorInfo(query.shape)) for n in range(3)]
network.add_output_layer(0, network.add_layer(Attention(is_causal=True), *inputs))
network.add_output_layer(1, network.add_layer(Softmax(), inputs[1]))
ip.load(network, ["CpuAcc"]).run([query, key, value])
"""


@pytest.mark.slow
def test_sanitizers_find_no_overflow_in_exponentials_of_scores_that_are_not_numbers(natives):
    library = built(natives.folder / "cpuacc-sanitized", sanitize="address,undefined")
    environment = os.environ | sanitizer_environment() | {"INTERPOSER_BACKEND_PATH": str(library.parent)}
    words = [sys.executable, "-c", NOT_A_NUMBER]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_sanitizers_find_nothing_in_the_whole_kit(natives):
    library = built(natives.folder / "cpuacc-sanitized", sanitize="address,undefined")
    environment = sanitizer_environment() | {
        "INTERPOSER_BACKEND_PATH": str(library.parent), "INTERPOSER_PROBE_SECONDS": "0",
    }  # fmt: skip
    done = checked("[!l]*/*", 1, **environment)  # leaks: the allocator of the sanitizer keeps what is freed
    assert done.returncode == 0, done.stdout + done.stderr
