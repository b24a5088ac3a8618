"""CpuAcc on random networks: a few on every run; slowly, thousands on each instruction set, and under sanitizers."""

from __future__ import annotations

import pytest

from interposer.testing import Campaign, campaign
from tests.backends.cpuacc.building import built, sanitizer_environment
from tests.instruction_sets import INSTRUCTION_SETS, needs_instruction_set


def judged(count: int, seed: int, **environment: str) -> Campaign:
    """A campaign with environment variables of its own; what fails is not reduced."""
    return campaign("CpuAcc", count, seed=seed, jobs=2, shrink=0, environment=environment)


def test_it_agrees_with_the_reference_on_some_random_networks(cpuacc):
    report = judged(80, 1)
    assert report.ok, report
    assert dict(report.networks) == {"float": 40, "quantized": 40}


@pytest.mark.slow
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_it_agrees_on_every_instruction_set(cpuacc, isa):
    needs_instruction_set(isa)
    report = judged(2000, 2, INTERPOSER_CPUACC_ISA=isa)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_it_agrees_with_every_number_of_threads(cpuacc, threads):
    report = judged(2000, 3, INTERPOSER_NUM_THREADS=threads)
    assert report.ok, report


@pytest.mark.slow
def test_sanitizers_find_nothing_on_random_networks(natives):
    library = built(natives.folder / "cpuacc-sanitized", sanitize="address,undefined")
    environment = sanitizer_environment() | {
        "INTERPOSER_DISABLED_BACKENDS": "CpuAcc",
        "INTERPOSER_BACKEND_PATH": str(library.parent),
        "INTERPOSER_PROBE_SECONDS": "0",
    }
    report = judged(2000, 4, **environment)
    assert report.ok, report
