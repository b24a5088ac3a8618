"""Devices with memory of their own that are right pass every case of the kit."""

from __future__ import annotations

import pytest

from interposer.backend import Backend
from interposer.testing import Conformance, Settings
from interposer.testing.checks import SAMPLE_CHECKS
from tests.parameters import slow_unless
from tests.testing import wrong_device
from tests.testing.test_wrong_backends import SAMPLES

QUICK = Settings(examples=5, loads=20)


DEVICES = [wrong_device.Board, wrong_device.MappedBoard, wrong_device.Sharing, wrong_device.Striding]


@pytest.mark.parametrize("backend", DEVICES)
def test_a_device_that_is_right_passes_every_check_of_samples(backend: type[Backend]) -> None:
    only = [f"{check.name}/*" for check in SAMPLE_CHECKS]
    report = Conformance(backend, samples=SAMPLES, only=only, settings=QUICK).report()
    assert [(failure.id, failure.text) for failure in report.failures] == []


@pytest.mark.parametrize("backend", slow_unless(lambda device: device is wrong_device.Sharing, DEVICES))
def test_a_device_that_is_right_passes_every_case(backend: type[Backend]) -> None:
    report = Conformance(backend, samples=SAMPLES, settings=QUICK).report()
    assert [(failure.id, failure.text) for failure in report.failures] == []
