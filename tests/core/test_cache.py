"""The cache folder: where it is, and that nothing about it can fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from interposer.core.cache import (
    cache_folder,
    cached_files,
    forget_cached,
    has_cached,
    later,
    own_names,
    read_cached,
    settle,
    trim_cached,
    write_cached,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_written_is_read_again_and_a_later_text_replaces_it(folder):
    assert read_cached("some/name") is None
    assert write_cached("some/name", b"first")
    assert write_cached("some/name", b"second")
    assert read_cached("some/name") == b"second"
    assert [path.name for path in (folder / "some").iterdir()] == ["name"]


def test_the_folder_is_for_the_user_alone(folder):
    write_cached("some/name", b"")
    assert (folder / "some").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"INTERPOSER_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"INTERPOSER_CACHE_DIR": "~/a", "HOME": "/c"}, "/c/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/interposer"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/interposer"),
        ({"HOME": "/c"}, "/c/.cache/interposer"),
    ],
)
def test_the_folder_is_where_the_environment_says(environment, expected, monkeypatch):
    for name in ("INTERPOSER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_an_empty_path_means_no_cache(monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    assert cache_folder() is None
    assert not write_cached("name", b"content")
    assert read_cached("name") is None


def test_a_file_in_the_place_of_the_folder_is_survived(folder, caplog):
    folder.write_text("not a folder")
    with caplog.at_level("INFO"):
        assert not write_cached("name", b"content")
    assert read_cached("name") is None
    assert caplog.messages[0].startswith(f"name cannot be stored in the cache folder {folder}: ")


def test_a_name_that_no_file_can_have_is_survived(folder):
    assert not write_cached("n" * 1000, b"content")
    assert not write_cached("\0", b"content")
    assert read_cached("\0") is None


def test_a_full_disk_is_survived_and_leaves_nothing(folder):
    import resource
    import signal

    old_handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert not write_cached("name", bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_survived(monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "/proc/interposer")
    assert not write_cached("name", b"content")


def test_the_oldest_files_go_first(folder):
    for number, name in enumerate("abc"):
        write_cached(f"some/{name}", bytes(100))
        os.utime(folder / "some" / name, (number, number))
    (folder / "some" / "theirs.onnx").write_bytes(bytes(1000))
    write_cached("some/below/a", bytes(1000))
    trim_cached("some", own_names("[a-z]"), 250)
    assert [(file.name, file.size) for file in cached_files("some")] == [
        ("some/b", 100), ("some/below/a", 1000), ("some/c", 100), ("some/theirs.onnx", 1000),
    ]  # fmt: skip
    (folder / "some" / ".b.0a_begun").write_bytes(bytes(100))
    trim_cached("some", own_names("[a-z]"), 0)
    assert [file.name for file in cached_files()] == ["some/below/a", "some/theirs.onnx"]


def test_the_newest_8192_files_remain_however_small_they_are(folder):
    (folder / "some").mkdir(parents=True)
    for number in range(8_195):
        (folder / "some" / f"a{number}").touch()
    for number in range(3):
        os.utime(folder / "some" / f"a{number}", (number, number))
    trim_cached("some", own_names("a[0-9]+"), 1 << 30)
    assert {file.name for file in cached_files()} == {f"some/a{number}" for number in range(3, 8_195)}


def test_to_make_room_where_there_is_no_folder_is_nothing(folder, monkeypatch):
    for name in ("some", "\0"):
        trim_cached(name, own_names("[a-z]"), 0)
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    trim_cached("some", own_names("[a-z]"), 0)


def test_to_make_room_does_not_wait_for_what_is_written_later(folder):
    let = threading.Event()
    later("some/large", lambda: let.wait(300))
    write_cached("some/a", bytes(100))
    trim_cached("some", own_names("[a-z]"), 0)
    gone = not (folder / "some" / "a").exists()
    let.set()
    settle()
    assert gone


def test_a_folder_that_goes_while_it_is_listed_is_survived(folder, monkeypatch):
    for name in ("gone/one", "kept/two"):
        write_cached(name, b"content")
    look = os.scandir

    def late(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(path)
        return look(path)

    monkeypatch.setattr(os, "scandir", late)
    assert [file.name for file in cached_files()] == ["kept/two"]


def test_a_file_that_a_listing_misses_is_found_by_those_who_read_it(folder):
    write_cached("parts/one.a", b"1")
    assert (has_cached("parts", ".a"), has_cached("parts", ".b")) == (True, False)
    old_status = os.stat(folder / "parts")
    (folder / "parts" / "two.b").write_bytes(b"2")
    os.utime(folder / "parts", ns=(old_status.st_atime_ns, old_status.st_mtime_ns))  # a clock that has not advanced

    assert read_cached("parts/two.b") == b"2"

    (folder / "parts" / "three.c").write_bytes(b"3")
    os.utime(folder / "parts", ns=(old_status.st_atime_ns, old_status.st_mtime_ns + 1))
    assert (has_cached("parts", ".b"), has_cached("parts", ".c")) == (True, True)


def test_what_is_not_there_cannot_be_deleted(folder, monkeypatch):
    assert not forget_cached("some/name")
    assert (forget_cached("\0"), cached_files("\0"), cached_files(folder="\0")) == (False, [], [])
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    assert (forget_cached("some/name"), cached_files()) == (False, [])


def test_what_is_written_later_is_there_for_whoever_reads_it(folder):
    let, begun = threading.Event(), threading.Event()

    def job():
        begun.set()
        let.wait(300)
        return write_cached("some/large", b"content")

    later("some/large", job)
    assert begun.wait(300)
    assert read_cached("some/other") is None
    threading.Timer(0.01, let.set).start()
    assert read_cached("some/large") == b"content"


def test_a_job_that_fails_is_told_in_the_log_and_disturbs_no_other(folder, caplog):
    later("some/one", lambda: 1 // 0)
    later("some/two", lambda: trim_cached("some", own_names("[a-z]"), 0) or write_cached("some/two", b"content"))
    settle()
    assert "ZeroDivisionError" in caplog.text
    assert [file.name for file in cached_files()] == ["some/two"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("failure", ["job", "log"])
def test_no_failure_stops_what_comes_after_it(failure, folder, monkeypatch):
    def failing(*_):
        raise SystemExit if failure == "job" else OSError("the log is full")

    monkeypatch.setattr(logging.getLogger("interposer.cache"), "exception", failing)
    let = threading.Event()
    later("zero", lambda: let.wait(300))
    later("one", failing)
    later("two", lambda: write_cached("two", b"content"))
    let.set()
    settle(seconds=10)
    assert read_cached("two") == b"content"


def test_a_process_that_ends_writes_first_what_it_was_to_write_later(folder):
    code = "from interposer.core.cache import later, write_cached; import time\n"
    code += "later('one', lambda: time.sleep(0.05)); later('two', lambda: write_cached('two', b'content'))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert read_cached("two") == b"content"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_what_its_parent_writes(folder):
    let = threading.Event()
    later("one", lambda: let.wait(300))
    child = os.fork()
    if child == 0:
        os._exit(0 if read_cached("one") is None and cached_files() == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    let.set()
    settle()
