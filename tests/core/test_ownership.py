"""Files of other users: caches, saved networks and backends are used only if nobody else could have written them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from interposer import load
from interposer.core import cache
from interposer.core.cache import mapped_cached, read_cached, write_cached
from interposer.core.ownership import why_untrusted
from interposer.errors import UntrustedFileError
from interposer.plugins.discovery import load_dynamic_backends
from interposer.plugins.registry import BackendRegistry
from tests.serving.running import doubler

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no users")
ROOT = getattr(os, "geteuid", lambda: 1)() == 0
OTHER = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "file"
    path.write_bytes(b"x")
    path.chmod(0o644)
    return path


def give_away(path: Path) -> None:
    """Let a file belong to another user."""
    if not ROOT:
        pytest.skip("only root can give a file away")
    os.chown(path, OTHER, OTHER)


def test_a_file_of_this_user_is_trusted(file, folder):
    assert why_untrusted(file) == why_untrusted(folder) == why_untrusted("/") == ""
    assert why_untrusted(folder / "absent") == ""
    assert why_untrusted("a\0b") == ""


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_a_file_that_all_can_write_is_not_trusted(file, mode):
    file.chmod(mode)
    assert why_untrusted(file) == f"{file} can be written by all users (chmod o-w)"


def test_a_file_that_a_group_can_write_is_not_trusted(file):
    if not ROOT:
        pytest.skip("only root can give a file to any group")
    os.chown(file, -1, OTHER)
    file.chmod(0o664)
    assert "can be written by the group" in why_untrusted(file)


def test_a_folder_in_which_others_can_replace_files_is_not_trusted(file, folder):
    folder.chmod(0o777)
    assert why_untrusted(file) == f"{folder} can be written by all users (chmod o-w)"
    folder.chmod(0o1777)  # others cannot replace files there
    assert why_untrusted(file) == ""


def test_a_file_of_another_user_is_not_trusted(file, folder):
    give_away(file)
    assert why_untrusted(file).startswith(f"{file} belongs to the user")
    link = folder / "link"
    link.symlink_to(file)
    assert why_untrusted(link).startswith(f"{file} belongs to the user")


def test_a_folder_of_another_user_is_not_trusted(file, folder):
    give_away(folder)
    assert why_untrusted(file).startswith(f"{folder} belongs to the user")


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(folder: Path) -> str:
    """A cache folder with a file."""
    assert write_cached("networks/a", b"content", str(folder))
    assert read_cached("networks/a", str(folder)) == b"content"
    yield str(folder)
    cache._warned.clear()


def test_a_cache_folder_that_others_can_write_is_neither_read_nor_written(cached, caplog):
    os.chmod(cached, 0o777)
    with caplog.at_level(logging.WARNING, "interposer.cache"):
        assert read_cached("networks/a", cached) is None
        assert mapped_cached("networks/a", cached) is None
        assert not write_cached("networks/b", b"content", cached)
    assert len(caplog.records) == 1
    assert "is not used, because other users could have written to it" in caplog.text
    os.chmod(cached, 0o700)
    assert read_cached("networks/a", cached) == b"content"


@pytest.mark.parametrize("name", ["networks", "networks/a"])
def test_a_cached_file_that_others_can_replace_is_not_read(cached, name, caplog):
    os.chmod(Path(cached, name), 0o777)
    with caplog.at_level(logging.WARNING, "interposer.cache"):
        assert read_cached("networks/a", cached) is None
        assert mapped_cached("networks/a", cached) is None
    assert len(caplog.records) == 1
    assert "can be written by all users" in caplog.text


def test_a_cached_file_of_another_user_is_not_read(cached):
    give_away(Path(cached, "networks/a"))
    assert read_cached("networks/a", cached) is None


def test_a_poisoned_cache_does_not_change_answers(folder, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(folder))
    with load(doubler(shape=(1, 4)), ["CpuRef"]) as model:
        model.save(folder / "net.ipn")
    folder.chmod(0o777)
    with load(doubler(shape=(1, 4)), ["CpuRef"]) as model:
        np.testing.assert_array_equal(model.run([np.ones((1, 4), np.float32)])[0], np.full((1, 4), 2))


# --- saved networks ---------------------------------------------------------------------------------------------------


def test_an_unsigned_saved_network_that_others_can_write_is_refused(folder):
    path = folder / "net.ipn"
    with load(doubler(shape=(1, 4)), ["CpuRef"]) as model:
        model.save(path)
    load(path, ["CpuRef"]).close()
    path.chmod(0o666)
    with pytest.raises(UntrustedFileError, match="without a signature, because another user could have written it"):
        load(path, ["CpuRef"])
    path.chmod(0o644)
    load(path, ["CpuRef"]).close()


# --- backends ---------------------------------------------------------------------------------------------------------

BACKEND = """
import pathlib
from interposer.backend import Backend
pathlib.Path({mark!r}).touch()
class Written(Backend):
    id = "Written"
"""


def test_a_backend_that_others_can_write_does_not_run(folder, tmp_path):
    mark = tmp_path / "ran"
    path = folder / "Example_Written_backend.py"
    path.write_text(BACKEND.format(mark=str(mark)))
    path.chmod(0o666)
    registry = BackendRegistry()
    dynamic = load_dynamic_backends(registry, path=folder)
    record = next(record for record in dynamic.records if record.path == str(path))
    assert (record.step.value, record.reason) == (
        "owner", f"another user could have written it: {path} can be written by all users (chmod o-w)",
    )  # fmt: skip
    assert not mark.exists()
    dynamic.close()
