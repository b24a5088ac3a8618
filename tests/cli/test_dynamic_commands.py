"""Shared objects on the command line: ``interposer backends`` and ``interposer check-backend PATH``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.cli.main import main
from interposer.testing import outside
from interposer.testing.outside import MOST_CRASHES
from tests.native import children

ADDITIONS = ["--family", "elementwise", "--only", "*/Addition-float32*"]

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux"),
    pytest.mark.usefixtures("warm_python"),
]


@pytest.fixture
def plugin(natives, tmp_path):
    """Puts an adder, with statements in its functions, into a folder of its own."""

    def plugin(name="Tests_Adder_backend.so", **statements):
        flags = [f"-D{key}={value}" for key, value in statements.items()]
        return natives.install(tmp_path / "plugins", name, Path("adder.c"), *flags)

    return plugin


@pytest.fixture
def check(capsys):
    """Checks a file and gives the exit status and what is printed."""

    def check(path, *words):
        before = children()
        status = main(["check-backend", str(path), *ADDITIONS, *words])
        assert children() <= before
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return check


# --- check-backend ----------------------------------------------------------------------------------------------------


def test_a_shared_object_that_conforms_passes(plugin, check):
    status, out, err = check(plugin())
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert "pass" in lines[0].split()
    assert lines[-1].startswith("Adder conforms: ")


def test_wrong_results_are_failures(plugin, check):
    path = plugin(AT_EXECUTE="memset(ipr_output_at(run, 0)->data, 0, ipr_output_at(run, 0)->size); return IPR_OK;")
    status, out, _ = check(path)
    assert status == 1
    assert "\nfail: results/Addition-float32" in out


def test_a_crash_fails_the_case_and_the_next_goes_on_in_a_new_process(plugin, check, monkeypatch):
    monkeypatch.setattr(outside, "MOST_CRASHES", 3)
    status, out, err = check(plugin(AT_COMPILE="CRASH"), "--only", "*/Addition-float32")
    assert (status, err) == (1, "")
    assert "fail: results/Addition-float32\n  the backend crashed with SIGSEGV" in out
    assert out.splitlines()[-1].startswith("Adder does not conform: ")


def test_a_hang_fails_the_case_when_its_time_is_over(plugin, check):
    status, out, _ = check(plugin(AT_EXECUTE="HANG"), "--only", "results/Addition-float32", "--timeout", "1.5")
    assert status == 1
    assert "the backend hangs: nothing happened for 1.5 seconds" in out


@pytest.mark.parametrize("most", [2, pytest.param(MOST_CRASHES, marks=pytest.mark.slow)])
def test_after_some_crashes_the_rest_is_not_tried(most, plugin, check, monkeypatch):
    monkeypatch.setattr(outside, "MOST_CRASHES", most)
    status, out, _ = check(plugin(AT_SUPPORT="CRASH"), "--only", "support/Addition-*", "--json")
    report = json.loads(out)
    assert (status, report["counts"]["fail"]) == (1, most)
    assert report["results"][-1]["text"] == f"not tried: the backend has crashed {most} times"


@pytest.mark.parametrize(
    ("statements", "text"),
    [
        ({"AT_LOAD": "CRASH"}, "(probe): the backend crashed with SIGSEGV while it is loaded"),
        ({"MAJOR": "9"}, "(version): it needs version 9.0 of the backend interface; this is 1.0"),
        ({"AT_FACTORY": "return NULL;"}, "(factory): BackendFactory gave NULL"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_message(statements, text, plugin, check):
    path = plugin(**statements)
    status, out, err = check(path)
    assert (status, out) == (2, "")
    assert err == f"interposer: {path} cannot be used as a backend {text}\n"


def test_a_file_that_is_none_or_is_called_otherwise_is_one_message(plugin, check, tmp_path):
    path = plugin("adder.so")
    assert check(path)[2].startswith(f"interposer: {path} cannot be used as a backend (name): the file name ")
    text = tmp_path / "A_B_backend.so"
    assert "(file): it cannot be opened: No such file or directory" in check(text)[2]
    text.write_text("hello")
    assert check(text)[2] == f"interposer: {text} cannot be used as a backend (file): it is not an ELF file\n"


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan"])
def test_a_timeout_must_be_a_positive_number_of_seconds(seconds, plugin, check):
    status, _, err = check(plugin(), f"--timeout={seconds}")
    text = f"argument --timeout: expected a positive number of seconds, not {seconds!r}\n"
    assert (status, err.endswith(text)) == (2, True)


# --- backends ---------------------------------------------------------------------------------------------------------


def test_files_are_listed_with_what_became_of_them(plugin):
    good = plugin()
    bad = plugin("B_Bad_backend.so", ID='"Bad"', MAJOR="7")
    environment = os.environ | {"INTERPOSER_BACKEND_PATH": f"{good.parent}:/nothing"}

    def listed(*words):
        words = [sys.executable, "-m", "interposer", "backends", *words]
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=True)

    records = {record.get("file", record["id"]): record for record in json.loads(listed("--json").stdout)}
    assert records["Tests_Adder_backend.so"].items() >= {
        "id": "Adder", "available": True, "state": "loaded", "step": "register", "version": "1.2.3",
        "interface": "1.0", "path": str(good), "source": f"shared object {good}",
    }.items()  # fmt: skip
    assert records["B_Bad_backend.so"].items() >= {
        "available": False, "state": "refused", "step": "version", "path": str(bad),
        "reason": "it needs version 7.0 of the backend interface; this is 1.0",
    }.items()  # fmt: skip
    assert records["nothing"].items() >= {"available": False, "step": "folder", "source": "folder /nothing"}.items()
    table = listed()
    [line] = [line for line in table.stdout.splitlines() if "B_Bad_backend.so" in line]
    assert line.split()[:2] == ["-", "no"]
    assert table.stderr.splitlines() == [
        f"interposer: {bad} is refused: it needs version 7.0 of the backend interface; this is 1.0",
        "interposer: /nothing is refused: the folder does not exist",
    ]
