"""`interposer cache` on what any backend leaves in the folder, and on files that are not of this package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interposer.cache import cached_files, write_cached
from interposer.cli.main import main
from interposer.session import default_runtime
from interposer.session.placement import Plan
from interposer.session.placement.origin import made_with

PLAN = f"plan-{'0' * 32}.json"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def measured(**changed: str) -> bytes:
    told = made_with(default_runtime(), ["CpuRef"])
    return Plan("net", ("CpuRef",), {}, made_with={**told, **changed}).to_json().encode()


def test_nothing_is_deleted_or_listed_that_others_put_into_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mine.txt", "documents/thesis.txt", "plan-of-my-house.json"):
        write_cached(name, b"precious")
    write_cached("backends/some.so-1/tuned", b"")
    write_cached(PLAN, measured())
    assert main(["cache", "list"]) == 0
    assert "2 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert [file.name for file in cached_files()] == ["documents/thesis.txt", "mine.txt", "plan-of-my-house.json"]


def test_measured_placements_are_listed_and_what_is_stale_of_them_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    write_cached(PLAN, measured())
    write_cached(PLAN.replace("0", "1"), measured(interposer="0.0.0"))
    write_cached(PLAN.replace("0", "2"), b"{")
    assert main(["cache", "list", "--json"]) == 0
    found = [(one["kind"], one["what"], one["reason"]) for one in json.loads(capsys.readouterr().out)]
    assert found[:2] == [
        ("measured placement", "net on CpuRef", ""),
        ("measured placement", "net on CpuRef", "interposer changed since it was measured"),
    ]
    assert found[2][2].startswith("it is damaged: the plan is no JSON")
    assert main(["cache", "clear", "--stale"]) == 0
    assert [file.name for file in cached_files()] == [PLAN]
