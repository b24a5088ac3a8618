"""`interposer cache` on what any backend leaves in the folder, and on files that are not of this package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interposer.cli.main import main
from interposer.core.cache import cached_files, write_cached
from interposer.session import default_runtime
from interposer.session.placement import Plan
from interposer.session.placement.origin import made_with

PLAN = f"plan-{'0' * 32}.json"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def measured(**changed: str) -> bytes:
    versions = made_with(default_runtime(), ["CpuRef"])
    return Plan("net", ("CpuRef",), {}, made_with={**versions, **changed}).to_json().encode()


def test_nothing_is_deleted_or_listed_that_others_put_into_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = [
        "backends/gpu/notes.txt", "backends/notes.txt", "compiled/main.o", "documents/thesis.txt", "mine.txt",
        f"networks/{'a' * 32}.onnx", "networks/mine.onnx", "networks/old/mine.onnx", "plan-of-my-house.json",
        "probed/rocks.json",
    ]  # fmt: skip
    for name in theirs:
        write_cached(name, b"precious")
    write_cached("backends/some.so-12345678/tuned", b"")
    write_cached(PLAN, measured())
    assert main(["cache", "list"]) == 0
    assert "2 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert [file.name for file in cached_files()] == theirs


def test_a_folder_that_is_named_has_only_networks_and_parts_of_this_package(tmp_path: Path) -> None:
    where = str(tmp_path / "nightly")
    theirs = ["backends/nightly-20241121/main.c", PLAN, f"probed/{'a' * 64}-1.0.json"]
    for name in theirs:
        write_cached(name, b"precious", where)
    write_cached(f"networks/{'a' * 32}", b"damaged", where)
    assert main(["cache", "clear", "--dir", where]) == 0
    assert [file.name for file in cached_files("", where)] == theirs


def test_what_a_process_did_not_finish_writing_is_damaged(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write_cached(f"networks/.{'a' * 32}.0a_begun", b"half")
    write_cached(f"compiled/.{'a' * 32}.1-2-3-4-5.0a_begun", b"half")
    write_cached(f"probed/{'a' * 64}-1.0.json", b"{}")
    assert main(["cache", "list"]) == 0
    assert "3 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert cached_files() == []


def test_measured_placements_are_listed_and_what_is_stale_of_them_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    write_cached(PLAN, measured())
    write_cached(PLAN.replace("0", "1"), measured(interposer="0.0.0"))
    write_cached(PLAN.replace("0", "2"), b"{")
    assert main(["cache", "list", "--json"]) == 0
    rows = [(row["kind"], row["what"], row["reason"]) for row in json.loads(capsys.readouterr().out)]
    assert rows[:2] == [
        ("measured placement", "net on CpuRef", ""),
        ("measured placement", "net on CpuRef", "interposer changed since it was measured"),
    ]
    assert rows[2][2].startswith("it is damaged: the plan is no JSON")
    assert main(["cache", "clear", "--stale"]) == 0
    assert [file.name for file in cached_files()] == [PLAN]


def test_files_that_are_stale_for_the_same_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for digit in "012":
        write_cached(PLAN.replace("0", digit), measured(interposer="0.0.0"))
    assert main(["cache", "why"]) == 0
    assert capsys.readouterr().out == (
        "net on CpuRef and 2 more (measured placement): interposer changed since it was measured\n"
    )
