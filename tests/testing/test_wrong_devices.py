"""The kit finds every fault that is planted in a device with its own memory, and says what it is."""

from __future__ import annotations

import pytest

from interposer.backend import Backend
from interposer.testing import Conformance, Settings
from tests.testing import wrong_device
from tests.testing.planted import SUMS, Planted, failures_of
from tests.testing.test_wrong_backends import SAMPLES

QUICK = Settings(examples=5, loads=20)


@pytest.mark.parametrize("planted", wrong_device.PLANTED, ids=lambda planted: planted.name)
def test_a_fault_in_a_device_is_found_and_named(planted: Planted) -> None:
    failures = failures_of(planted)
    assert any(planted.is_named_by(one) for one in failures), "\n".join(f"{one.id}: {one.text}" for one in failures)


def test_at_least_twenty_faults_are_planted_in_a_device() -> None:
    assert len({planted.name for planted in wrong_device.PLANTED}) == len(wrong_device.PLANTED) >= 20
    assert all(planted.operators == SUMS for planted in wrong_device.PLANTED)


@pytest.mark.parametrize(
    "backend", [wrong_device.Board, wrong_device.MappedBoard, wrong_device.Sharing, wrong_device.Striding]
)
def test_a_device_that_is_right_passes_every_case(backend: type[Backend]) -> None:
    report = Conformance(backend, samples=SAMPLES, settings=QUICK).report()
    assert [(one.id, one.text) for one in report.failures] == []
