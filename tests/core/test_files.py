"""Output files are written whole or not at all, and a failure leaves only the old file."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import threading
from pathlib import Path

import pytest

from interposer.core.errors import FileWriteError, InvalidArgumentError
from interposer.core.files import is_same_file, missing_hint, replacing, write_file


def test_a_text_is_written_as_utf_8_and_replaces_the_old_file(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    write_file(target, "gr\u00fcn")
    assert target.read_bytes() == b"gr\xc3\xbcn"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_pieces_are_written_one_after_the_other(tmp_path):
    write_file(tmp_path / "a", [b"one", memoryview(b"two")])
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_a_failure_while_writing_keeps_the_old_file_and_leaves_no_other(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def failing():
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/else")

    with pytest.raises(FileWriteError) as raised:
        write_file(target, failing())
    assert str(raised.value) == f"{target}: the file cannot be written: No space left on device"
    assert (raised.value.path, raised.value.reason) == (str(target), "No space left on device")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interruption_keeps_the_old_file_too(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(target) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(("name", "reason"), [
    ("folder", "it is a folder"),
    ("nowhere/a.txt", "No such file or directory"),
    ("file/a.txt", "Not a directory"),
    ("n" * 300, "File name too long"),
    ("a\0b", "embedded null"),
])  # fmt: skip
def test_the_error_names_the_file_and_the_cause(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    target = f"{tmp_path}/{name}"
    with pytest.raises(FileWriteError) as raised:
        write_file(target, b"x")
    assert str(raised.value).startswith(f"{target}: the file cannot be written: ")
    assert reason in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_file_with_a_name_of_255_bytes_can_be_written(tmp_path):
    target = tmp_path / ("\u00fc" * 127 + "x")
    write_file(target, b"x")
    assert target.read_bytes() == b"x"


def test_the_error_is_an_argument_error_and_an_os_error_and_can_be_pickled():
    error = pickle.loads(pickle.dumps(FileWriteError("a.txt", "it is a folder")))
    assert isinstance(error, InvalidArgumentError)
    assert isinstance(error, OSError)
    assert (str(error), error.path) == ("a.txt: the file cannot be written: it is a folder", "a.txt")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_device_is_written_to_directly_and_told(tmp_path):
    with pytest.raises(FileWriteError, match="^/dev/full: the file cannot be written: No space left on device$"):
        write_file("/dev/full", b"x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_device_is_not_replaced_by_a_file():
    write_file(os.devnull, b"x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    datas: list[bytes] = []
    reader = threading.Thread(target=lambda: datas.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"through")
    reader.join()
    assert datas == [b"through"]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / "a.txt", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("a.txt")
    write_file(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_file_keeps_its_permissions_and_a_new_one_gets_the_default(tmp_path):
    existing, new, plain_file = tmp_path / "kept", tmp_path / "new", tmp_path / "plain"
    existing.touch()
    existing.chmod(0o640)
    plain_file.touch()
    write_file(existing, b"x")
    write_file(new, b"x")
    assert stat.S_IMODE(existing.stat().st_mode) == 0o640
    assert new.stat().st_mode == plain_file.stat().st_mode


def unprivileged(call) -> str:
    """What the exception says that a call raises for a user that is not root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            call()
            os.write(writer, b"nothing was raised")
        except BaseException as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as pipe:
        return pipe.read().decode()


@pytest.fixture
def everybodys(tmp_path):
    """A folder that another user can reach and write to."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if str(folder) != "/tmp" and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
    result = tmp_path / "everybodys"
    result.mkdir()
    result.chmod(0o777)
    return result


@pytest.mark.filterwarnings("ignore:This process.*:DeprecationWarning")
def test_a_read_only_folder_and_a_protected_file_are_told(everybodys):
    protected = everybodys / "protected"
    protected.write_text("old")
    protected.chmod(0o444)
    message = unprivileged(lambda: write_file(protected, b"x"))
    assert message == f"{protected}: the file cannot be written: it may not be written to"
    assert os.listdir(everybodys) == ["protected"]
    everybodys.chmod(0o555)
    message = unprivileged(lambda: write_file(everybodys / "new", b"x"))
    assert message == f"{everybodys / 'new'}: the file cannot be written: Permission denied"
    assert protected.read_text() == "old"


def test_one_file_is_known_by_whatever_path_leads_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a"
    file.touch()
    (tmp_path / "soft").symlink_to("a")
    (tmp_path / "hard").hardlink_to(file)
    (tmp_path / "copy").touch()
    assert all(is_same_file(file, other) for other in ("a", "./a", tmp_path / "soft", tmp_path / "hard"))
    assert not is_same_file(file, tmp_path / "copy")
    assert is_same_file("new", tmp_path / "new")
    assert not is_same_file("new", "newer")


def test_a_missing_target_of_a_link_and_a_file_with_almost_this_name_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").symlink_to("gone/model.onnx")
    (tmp_path / "linked.onnx").symlink_to("model.onnx")
    target = str(tmp_path.resolve() / "gone" / "model.onnx")
    for link in ("model.onnx", "linked.onnx"):
        assert missing_hint(link) == f"; it is a symbolic link to {target!r}, which does not exist"
    assert missing_hint("modle.onnx") == "; did you mean 'model.onnx'?"
    assert missing_hint("other.txt") == ""


def test_a_path_with_a_tilde_is_spelled_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "net.onnx").touch()
    assert missing_hint("~/net.onnx") == f"; '~' is expanded by shells only; give '{tmp_path}/net.onnx'"
    assert missing_hint("~/other.tflite") == ""
