"""Sessions of ONNX Runtime with the provider, each in a process of its own, by what it prints and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.bridges.files import library
from interposer.plugins.capi.loading.paths import own_files

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")
pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.skipif(not Path(library(check=False)).is_file(), reason="the library of the bridges was not built"),
]
ROOT = Path(__file__).parents[3]
OPTIONS = (
    "backends, min-nodes, threads, isolate, strict, explain, plan, cache-dir, reduce-fp32-to-fp16, "
    "options.<backend>.<name>"
)
SCENARIOS = {
    "threads": "200",
    "sessions": "3 7",
    "unregister": "",
    "at_exit": "(2, 16)",
    "kept_until_the_end": "",
    "io_binding": "",
    "shapes": "True",
    "unknown_option": f"there is no option 'backend'; did you mean 'backends'? (there are: {OPTIONS})",
    "asked_second": "{'CPUExecutionProvider runs it, which the session asked first'} ()",
    "undeclared_shape": "InvalidArgument\n(2, 16)",
    "named_backend": "('CpuRef',)",
    "providers": "InterposerExecutionProvider",
    "parallel": "",
    "control_flow": "",
    "strict": "True",
    "texts": """(2, 16) (2, 16) [('text', ("'t' has texts, which are left to the host",))]""",
    "explain_file": "network 'net'",
    "forked": "7",
    "tiny_backend": "('Tiny',) 3",
    "failing_backend": """["backend 'Failing' replaced", "backend 'Failing' replaced"]""",
    "failing_only_backend": "Fail True",
    "wrong_value": "InvalidArgument True\n(1, 16)",
    "interrupted": "KeyboardInterrupt None\n[]",
    "interrupted_while_asked": "KeyboardInterrupt",
    "two_copies": "3 {1, 2}",
    "profiled": "True",
    "from_program_without_files": "",
    "many_sessions": "True",
}
SLOW = {"many_sessions", "interrupted", "interrupted_while_asked", "two_copies"}


def ended(scenario: str, backends: str, **environment: str) -> tuple[int, str, str]:
    script = str(Path(__file__).with_name("scenarios.py"))
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]).strip(os.pathsep)
    disabled = {"INTERPOSER_DISABLED_BACKENDS": ""}
    done = subprocess.run(
        [sys.executable, script, scenario, backends],
        env=os.environ | {"PYTHONPATH": path} | disabled | environment,
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("scenario", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in SCENARIOS])
def test_a_session_works_and_its_process_ends_well(scenario):
    code, printed, errors = ended(scenario, "CpuRef")
    assert (code, printed) == (0, SCENARIOS[scenario]), errors


def test_a_process_keeps_the_exit_code_of_the_program():
    assert ended("exit_inside", "CpuRef")[0] == 3


@pytest.mark.slow
def test_an_exit_in_a_signal_handler_ends_the_process_at_once():
    code, _, errors = ended("exit_in_a_signal_handler", "CpuRef")
    assert (code, errors) == (4, "")


@pytest.mark.slow
@pytest.mark.skipif("CpuAcc" not in own_files(), reason="CpuAcc was not built")
def test_each_set_of_shapes_runs_without_python_once_it_was_seen():
    code, printed, errors = ended("direct_shapes", "CpuAcc")
    assert (code, printed) == (0, "23 5"), errors


@pytest.mark.slow
@pytest.mark.skipif("CpuAcc" not in own_files(), reason="CpuAcc was not built")
def test_runs_with_new_shapes_end_while_other_threads_run_all_the_time():
    code, printed, errors = ended("new_shapes_beside_runs", "CpuAcc")
    assert (code, printed) == (0, "done"), errors


def test_a_claim_that_fails_is_warned_about_once_and_left_to_onnx_runtime():
    code, printed, errors = ended("failing_claim", "CpuRef")
    assert (code, printed) == (0, "0\nTrue"), errors
    assert errors.count("all nodes are left to ONNX Runtime: ") == 1, errors


def test_an_option_of_an_unknown_backend_fails_with_the_nearest_name():
    code, printed, errors = ended("option_of_unknown_backend", "CpuRef")
    assert code == 0, errors
    assert "did you mean 'CpuRef'" in printed


@pytest.mark.parametrize(
    ("scenario", "provider", "option"),
    [("unknown_backend", "Acme", "backends"), ("unknown_isolated_backend", "Interposer", "isolate")],
)
def test_an_unknown_backend_is_named_with_those_that_there_are(scenario, provider, option):
    code, printed, errors = ended(scenario, "CpuRef")
    assert code == 0, errors
    assert printed.startswith(f"{provider}ExecutionProvider: no backend has the id 'Acme' (there are: CpuRef, ")
    assert printed.endswith(f"; the option {option!r} names others")


@pytest.mark.skipif("CpuAcc" not in own_files(), reason="CpuAcc was not built")
@pytest.mark.parametrize(
    "scenario",
    [
        *("threads", "kept_until_the_end", "io_binding", "shapes", "undeclared_shape", "forked", "killed_child"),
        pytest.param("many_sessions", marks=pytest.mark.slow),
    ],
)
def test_the_native_backend_works_likewise(scenario):
    code, printed, errors = ended(scenario, "CpuAcc")
    assert (code, printed) == (0, SCENARIOS.get(scenario, "True")), errors
