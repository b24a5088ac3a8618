"""Backends that installed packages bring along: found by their entry points, used, or recorded with what is wrong."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.install import ROOT, install, python, write_dist_info

EXAMPLE = ROOT / "examples" / "custom_backend"
BROKEN = Path(__file__).parent / "broken_project"

RECORDS = """
import json
from interposer import Runtime
print(json.dumps([record.to_dict() for record in Runtime().registry.records()]))
"""

ADDS_ON_FINE = """
import numpy as np
import interposer as ip
from interposer.ops import Addition

network = ip.Network()
x = network.add_input_layer(0, ip.TensorInfo((2,)))
network.add_output_layer(0, network.add_layer(Addition(), x, x))
print(ip.load(network, backends=["Fine"])(np.float32([1, 2])))
"""


@pytest.fixture(scope="module")
def with_broken_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    install(BROKEN, target)
    points = "[interposer.backends]\nCpuRef = broken_backends.fine:FalseReference"
    write_dist_info(target, "aaa-early", "1.0", points)
    write_dist_info(target, "malformed", "1.0", "[interposer.backends]\nthis line says nothing")
    return target


@pytest.fixture(scope="module")
def discovery(with_broken_packages: Path) -> subprocess.CompletedProcess[str]:
    done = python(with_broken_packages, "-c", RECORDS)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def records(discovery: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return json.loads(discovery.stdout)


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("RaisesAtImport", "RuntimeError: the driver is missing"),
        ("ExitsAtImport", "SystemExit: no device"),
        ("BadId", "InvalidArgumentError: a backend id must not contain blanks, commas or colons, as 'Bad Id' does"),
        ("NoModule", "ModuleNotFoundError: No module named 'broken_backends.nowhere'"),
        ("NoClass", "AttributeError: module 'broken_backends.fine' has no attribute 'Driver'"),
        ("NoBackend", "its factory returned NoBackend, which is not a Backend"),
        ("NotCallable", "TypeError: 'int' object is not callable"),
        ("WrongId", "its id is 'Other'"),
        ("NoId", "its id is None"),
        ("RaisesWhenMade", "OSError: cannot open /dev/accelerator"),
        ("OddCapabilities", "its capabilities are {'HasFp16': True}, which is not a Capabilities object"),
        ("TooNew", "it needs version 1.1 of the backend interface; this is 1.0"),
        ("NextMajor", "it needs version 2.0 of the backend interface; this is 1.0"),
        ("OddVersion", "its api_version is '1.0'; expected two numbers, such as (1, 0)"),
        ("Unavailable", "the package 'acme' is not installed: pip install acme"),
        ("OddlyUnavailable", "unavailable() gave False; expected a reason, or None if the backend works"),
        ("RaisesWhenAsked", "OSError: no such device"),
    ],
)
def test_a_broken_backend_is_a_record_with_its_reason_and_one_line_in_the_log(
    backend: str,
    reason: str,
    records: list[dict[str, Any]],
    discovery: subprocess.CompletedProcess[str],
) -> None:
    [record] = [record for record in records if record["id"] == backend]
    assert record == {
        "id": backend,
        "available": False,
        "source": "entry point of broken-backends",
        "reason": reason,
        "version": "",
        "capabilities": {},
    }
    line = f"backend {backend} (entry point of broken-backends) is not available: {reason}"
    says_so_itself = backend == "Unavailable"
    assert discovery.stderr.splitlines().count(line) == (0 if says_so_itself else 1)


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("Two Words", "a backend id must not contain blanks, commas or colons, as 'Two Words' does"),
        ("Unknown", "a backend id must be a text other than '' and 'Unknown', not 'Unknown'"),
    ],
)
def test_an_id_that_cannot_be_one_is_refused_and_recorded(
    backend: str, reason: str, records: list[dict[str, Any]], discovery: subprocess.CompletedProcess[str]
) -> None:
    [record] = [record for record in records if record["id"] == backend]
    assert (record["available"], record["reason"]) == (False, reason)
    assert f"entry point {backend!r} of broken-backends is skipped: {reason}" in discovery.stderr.splitlines()


@pytest.mark.needs_cpuref
def test_nobody_takes_the_id_of_a_backend_of_ours_away(records: list[dict[str, Any]]) -> None:
    ours, *others = [record for record in records if record["id"] == "CpuRef"]
    assert (ours["available"], ours["source"]) == (True, "entry point of interposer-nn")
    taken = "is refused: the id is taken (entry point of interposer-nn)"
    assert [(record["available"], record["reason"]) for record in others] == [
        (False, f"backend 'CpuRef' (entry point of aaa-early) {taken}"),
        (False, f"backend 'CpuRef' (entry point of broken-backends) {taken}"),
    ]


def test_entry_points_that_cannot_be_read_are_named_in_the_log(
    discovery: subprocess.CompletedProcess[str],
) -> None:
    assert "the entry points of malformed cannot be read: " in discovery.stderr


def test_the_order_of_discovery_is_always_the_same(records: list[dict[str, Any]], with_broken_packages: Path) -> None:
    again = json.loads(python(with_broken_packages, "-c", RECORDS).stdout)
    assert again == records


def test_broken_neighbours_do_not_keep_a_backend_from_working(with_broken_packages: Path) -> None:
    done = python(with_broken_packages, "-c", ADDS_ON_FINE)
    assert (done.returncode, done.stdout) == (0, "[2. 4.]\n"), done.stderr


def test_the_example_is_found_and_passes_its_own_tests_once_it_is_installed(tmp_path: Path) -> None:
    install(EXAMPLE, tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]  # by the process that was forked
    done = python(tmp_path, "-m", "pytest", *options, str(EXAMPLE / "tests"))
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_the_example_can_be_installed_with_pip_and_is_found(tmp_path: Path) -> None:
    quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    done = python(tmp_path, *quiet, *offline, "--target", str(tmp_path / "site"), str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    records = json.loads(python(tmp_path / "site", "-c", RECORDS).stdout)
    assert [record for record in records if record["id"] == "Custom"] == [
        {
            "id": "Custom",
            "available": True,
            "source": "entry point of interposer-custom-backend",
            "reason": "",
            "version": "1.0.0",
            "capabilities": {"NonConstWeights": False, "ConstantTensorsAsInputs": True},
        }
    ]
