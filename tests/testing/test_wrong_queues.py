"""The checks of queues and devices find each planted fault of the fake device, and nothing where there is none."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from interposer.ops import Activation, Addition, Multiplication
from interposer.plugins.capi.library.library import open_library
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.testing import queue_checks
from interposer.testing.bench import Settings
from interposer.testing.conformance import Conformance
from interposer.testing.known_samples import samples_of
from interposer.testing.outcome import Status
from tests.native import install_plugin

QUEUES = ("order", "waits", "results", "failures", "cancel", "wakes", "ends", "runs")
DEVICES = ("list", "each", "together")
SAMPLES = [sample for op in (Addition, Multiplication, Activation) for sample in samples_of(op)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(queue_checks, "_PATIENCE", 1.5)
    monkeypatch.setattr(queue_checks, "_SOON", 1.0)


@pytest.fixture
def outcomes(natives, tmp_path):
    """Runs cases of the kit on the fake device with a planted fault: the status and the text of each, by name."""
    libraries = []

    def outcomes(names, fault="", lacks=""):
        path = str(install_plugin(natives.compiled(Path("fake_async.cpp")), tmp_path, "Tests_Fake_backend.so"))
        options = {name: value for name, value in (("Fault", fault), ("Lacks", lacks)) if value}
        libraries.append(open_library(ctypes.CDLL(path), path, options=options))
        backend = DynamicBackend(libraries[-1], {"Fault": fault} if fault else None)
        kit = Conformance(lambda: backend, samples=SAMPLES, settings=Settings(patience=None))
        found = {name: kit.outcome(kit.case(name)) for name in names}
        kit.bench.close()
        return found

    yield outcomes
    for library in libraries:
        library.close()


def test_a_right_device_passes_all_checks(outcomes):
    names = [*(f"queues/{name}" for name in QUEUES), *(f"devices/{name}" for name in DEVICES)]
    assert outcomes(names) == dict.fromkeys(names, (Status.PASS, ""))


@pytest.mark.parametrize("lacks", ["gates", "copies", "engine", "handles", "members"])
def test_a_device_that_lacks_what_is_optional_conforms(lacks, outcomes):
    names = [f"queues/{name}" for name in QUEUES]
    found = outcomes(names, lacks=lacks)
    assert {status for status, _ in found.values()} <= {Status.PASS, Status.REFUSED}, found
    assert found["queues/results"] == (Status.PASS, "")


def test_what_is_not_there_is_refused(outcomes):
    found = outcomes([f"devices/{name}" for name in DEVICES], lacks="devices")
    assert {status for status, _ in found.values()} == {Status.REFUSED}


@pytest.mark.parametrize(
    ("fault", "case", "text"),
    [
        ("early", "queues/results", "when its event was over, output"),
        ("fail@1", "queues/results", "the planted fault"),
        ("mute", "queues/failures", "does not say what failed"),
        ("unmarked", "queues/failures", "expected SkippedError"),
        ("forgetful", "queues/failures", "is IPR_OK, although"),
        ("reckless", "queues/failures", "expected SkippedError"),
        ("stubborn", "queues/failures", "reset left the failure"),
        ("numbers", "queues/order", "submit gave the number 2; expected 1"),
        ("unordered", "queues/waits", "before an event that it waits for"),
        ("dangling", "queues/waits", "of a queue that was destroyed when it was over"),
        ("blocking", "queues/waits", "submit waited for the events"),
        ("deaf", "queues/cancel", "after cancel, a submission that had not begun is not over"),
        ("silent", "queues/wakes", "is not readable"),
        pytest.param(  # on a busy machine, the submission may be over before the wait
            "impatient", "queues/results", "wait returned before submission", marks=pytest.mark.slow
        ),
        ("lost@1", "queues/runs", "the device is lost"),
        ("refuse@1", "queues/results", "it was not accepted"),
        ("never@1", "queues/order", "is not over after"),
        ("nameless", "devices/list", "must have different ids"),
        ("twins", "devices/each", "both have the tensor handle factory"),
    ],
)
def test_a_fault_is_found(fault, case, text, outcomes):
    [(status, found)] = outcomes([case], fault).values()
    assert status is Status.FAIL, found
    assert text in found


@pytest.mark.parametrize("fault", ["late", "spurious"])
def test_late_and_spurious_wakes_are_allowed(fault, outcomes):
    assert outcomes(["queues/wakes"], fault) == {"queues/wakes": (Status.PASS, "")}
