"""A second process for code that may crash: what it reports, how it ends, and that it is gone afterwards."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from interposer.core.child_process import Child, ForkedChild
from tests.native import children, open_descriptors

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only on Linux does it die with its parent"
)

CODE = """
import os, signal, sys, time
def main(report, what):
    report.send(ready=True)
    {"nothing": lambda: None, "hang": lambda: time.sleep(1000), "exit": lambda: os._exit(3), "abort": os.abort,
     "kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "shout": lambda: print("first\\nlast words", flush=True),
     "nonsense": lambda: os.write(report._pipe.fileno(), b"{nonsense\\n"),
     "fork": lambda: os.fork() or time.sleep(1000),
     "flood": lambda: [os.write(1, bytes(10000)) for _ in range(1 << 30)]}[what]()
    report.send(done=True)
"""


@pytest.fixture
def warm_python() -> None:
    """New interpreters are started here."""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Starts a process that does something."""
    (tmp_path / "done_by_the_child.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda what: Child("done_by_the_child", {"what": what})


def soon(seconds=60):
    return time.monotonic() + seconds


def course_of(child):
    """Return the messages after the first one, and how the process ends."""
    assert child.receive(soon()) == {"ready": True}
    result = []
    while (message := child.receive(soon(20))) is not None:
        result.append(message)
    return result, child.ending(soon(20))


@pytest.mark.parametrize(
    ("what", "messages", "ending"),
    [
        ("nothing", [{"done": True}], None),
        ("exit", [], "ended its process with status 3"),
        ("abort", [], "crashed with SIGABRT"),
        ("kill", [], "crashed with SIGKILL"),
        ("shout", [{"done": True}], None),
    ],
)
def test_messages_come_and_the_ending_is_told(what, messages, ending, child):
    before = children(), open_descriptors()
    with child(what) as item:
        assert course_of(item) == (messages, ending)
        assert item.wrote == ("last words" if what == "shout" else "")
    assert (children(), open_descriptors()) == before


@pytest.mark.parametrize("what", ["hang", "flood"])
def test_who_waits_too_long_is_told_and_the_process_is_ended(what, child):
    before = children()
    with child(what) as item:
        assert item.receive(soon()) == {"ready": True}
        with pytest.raises(TimeoutError):
            item.receive(soon(0.3))
    assert children() == before


def test_what_is_no_message_is_an_error(child):
    with child("nonsense") as item:
        item.receive(soon())
        with pytest.raises(ValueError, match="Expecting property name"):
            item.receive(soon())


def test_what_the_process_has_started_ends_with_it(child):
    before = children()
    with child("fork") as item:
        assert course_of(item) == ([{"done": True}], None)
    assert children() == before


def test_the_process_does_not_outlive_this_one(tmp_path):
    (tmp_path / "done_by_the_child.py").write_text(CODE)
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from interposer.core.child_process import Child\n"
        "one = Child('done_by_the_child', {'what': 'hang'}); one.receive(time.monotonic() + 300)\n"
        "print(one._process.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        number = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    end = soon(20)
    while _is_running(number) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _is_running(number)


def _is_running(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_sends_what_it_computes_from_objects_of_this_process():
    numbers = [2, 3]
    with ForkedChild(lambda report: report.send(total=sum(numbers))) as child:
        assert child.receive(soon()) == {"total": 5}
        assert child.ending(soon()) is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_that_raises_ends_with_status_1():
    with ForkedChild(lambda report: report.missing()) as child:
        assert child.ending(soon()) == "ended its process with status 1"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_that_is_left_at_once_is_gone():
    with ForkedChild(lambda report: time.sleep(600)) as child:
        pass
    assert not os.path.exists(f"/proc/{child.pid}")


def test_a_fork_that_the_system_refuses_leaves_no_descriptors_open(monkeypatch):
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    before = open_descriptors()
    with pytest.raises(BlockingIOError):
        ForkedChild(lambda report: None)
    assert open_descriptors() == before
