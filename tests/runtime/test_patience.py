"""The time limit for devices that were asked to end their work."""

from __future__ import annotations

import pytest

from interposer.runtime import patience
from interposer.runtime.patience import Patience


class Process:
    """A clock, and the files in which the system reports how long the threads of a process waited for a processor."""

    def __init__(self, folder):
        self.folder, self.now = folder, 0.0
        folder.mkdir()

    def report(self, thread, seconds):
        (self.folder / thread).mkdir(exist_ok=True)
        (self.folder / thread / "schedstat").write_text(f"1000 {int(seconds * 1e9)} 5\n", encoding="ascii")


@pytest.fixture
def process(tmp_path, monkeypatch):
    process = Process(tmp_path / "task")
    monkeypatch.setattr(patience, "TASKS", str(process.folder))
    monkeypatch.setattr(patience, "monotonic", lambda: process.now)
    return process


def test_a_limit_is_over_after_its_time(process):
    limit = Patience(2)
    process.now = 2
    assert not limit.is_over
    process.now = 2.1
    assert limit.is_over


def test_the_time_that_the_most_delayed_thread_waits_for_a_processor_does_not_count(process):
    process.report("1", 100)
    process.report("2", 7)
    limit = Patience(2)
    process.report("1", 103)
    process.report("2", 8)
    process.now = 4.9
    assert not limit.is_over
    process.now = 5.1
    assert limit.is_over


def test_threads_that_began_after_the_limit_count_too(process):
    limit = Patience(2)
    process.report("3", 4)
    process.now = 5
    assert not limit.is_over


def test_a_limit_ends_on_the_busiest_machine(process):
    limit = Patience(2)
    process.report("1", 1000)
    process.now = 30.1
    assert limit.is_over


def test_reports_that_cannot_be_read_delay_nothing(process):
    (process.folder / "ended").mkdir()
    (process.folder / "other").mkdir()
    (process.folder / "other" / "schedstat").write_text("?\n", encoding="ascii")
    limit = Patience(2)
    process.now = 2.1
    assert limit.is_over


def test_limits_work_where_the_system_reports_nothing(process, monkeypatch):
    monkeypatch.setattr(patience, "TASKS", str(process.folder / "absent"))
    limit = Patience(2)
    process.now = 2.1
    assert limit.is_over
