"""Campaigns: random networks in child processes, what ends these, and what is written of findings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.core.errors import InterposerError, InvalidArgumentError, UnknownBackendError
from interposer.ops import Activation, Addition, Softmax, Transpose
from interposer.testing import campaign, judge_network
from interposer.testing.judge import Campaign, Finding
from interposer.testing.judge.crew import Crew
from interposer.testing.judge.serving import Setup
from interposer.testing.judge.subject import Outcome, Sort
from interposer.testing.judge.tasks import Judged, Plan
from interposer.testing.judge.workers import Worker, nursery_for
from tests.parameters import one_in
from tests.plugins.install import ROOT
from tests.testing.judge import misbehaving
from tests.testing.judge.graphs import Built, built

pytestmark = pytest.mark.usefixtures("warm_python")

NAME = "tests.testing.judge.misbehaving"


def on_softmax(backend: object, **options: object) -> Campaign:
    """A campaign in which softmax comes often."""
    return campaign(backend, 12, seed=1, favoured=[Softmax], jobs=2, shrink=1, engines=(), **options)


def first(report: Campaign) -> Finding:
    return next(finding for finding in report.findings if finding.network)


# --- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [misbehaving.Exact, f"{NAME}:Exact"], ids=["an object", "a name"])
def test_a_backend_that_is_right_has_no_findings(backend):
    seen: list[Judged] = []
    report = campaign(backend, 20, seed=2, jobs=2, progress=seen.append)
    assert (report.ok, report.backends, dict(report.networks)) == (True, ("Exact",), {"float": 10, "quantized": 10})
    assert sorted(judged.number for judged in seen) == list(range(20))
    assert sum(report.counts.values()) == sum(len(judged.verdicts) for judged in seen)
    assert str(report).splitlines()[-1].startswith("Exact: 10 float, 10 quantized networks of seed 2 in ")
    assert str(report).endswith(", no findings")


def test_a_crash_is_a_finding_that_names_the_signal_and_the_next_networks_go_on():
    report = on_softmax(f"{NAME}:Crashing")
    assert sum(report.networks.values()) == 12
    finding = first(report)
    assert (finding.sort, finding.verdict.culprit) == ("crash", "Crashing")
    assert finding.verdict.text == "it crashes with SIGSEGV"
    assert finding.operators == ("Softmax",)
    assert {finding.verdict.culprit for finding in report.findings} == {"Crashing"}


def test_a_crash_of_a_backend_that_is_an_object_is_found_in_a_fork():
    finding = first(on_softmax(misbehaving.Crashing))
    assert (finding.sort, finding.operators) == ("crash", ("Softmax",))


def test_a_hang_is_a_finding_that_names_the_limit():
    built_network = built(lambda it: it.add(Softmax(), it.input(np.ones((2, 2), np.float32))))
    verdict = judge_network(f"{NAME}:Hanging", built_network.network, built_network.feeds, seconds=2)
    assert (verdict.sort, verdict.culprit) == (Sort.HANG, "Hanging")
    assert verdict.text == "it hangs: there is no result after 2 seconds"


def test_too_much_memory_is_a_finding_that_names_the_limit():
    built_network = built(lambda it: it.add(Softmax(), it.input(np.ones((2, 2), np.float32))))
    verdict = judge_network(f"{NAME}:Greedy", built_network.network, built_network.feeds, memory=200 << 20)
    assert (verdict.sort, verdict.culprit) == (Sort.MEMORY, "Greedy")
    assert verdict.text == "it uses more than 200 MiB of memory"


def test_wrong_numbers_are_reduced_located_and_described():
    report = campaign(misbehaving.FlatTransposing, 12, favoured=[Transpose], jobs=2, shrink=1, engines=())
    finding = first(report)
    assert (finding.sort, finding.operators) == ("difference", ("Transpose",))
    assert finding.where.endswith("(Transpose). It fails by itself.")
    assert finding.to_dict()["culprit"] == "FlatTransposing"
    text = str(finding).splitlines()
    assert text[0].endswith("difference, the cause: FlatTransposing")
    assert "  The smallest network that fails in the same way (Transpose):" in text


def test_what_is_wrong_only_in_a_fusion_is_reduced_to_the_fusion():
    report = campaign(
        misbehaving.WrongTogether, 10, seed=3, favoured=[Addition, Activation], jobs=2, shrink=1, engines=()
    )
    finding = first(report)
    assert finding.operators == ("Addition", "Activation")
    assert finding.where.endswith("By itself it is right; only after others it is wrong.")


def test_of_an_ordered_list_the_backend_at_fault_is_named():
    backends = [misbehaving.Partial, misbehaving.FlatTransposing]
    report = campaign(backends, 12, favoured=[Transpose], jobs=2, shrink=1, engines=())
    assert report.backends == ("Partial", "FlatTransposing")
    assert {finding.verdict.culprit for finding in report.findings} == {"FlatTransposing"}


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_the_same_seed_judges_the_same_networks():
    one_job, two_jobs = (campaign(misbehaving.FlatTransposing, 16, seed=5, jobs=jobs, shrink=0) for jobs in (1, 2))
    assert one_job.counts == two_jobs.counts
    assert [(finding.id, finding.verdict) for finding in one_job.findings] == [
        (finding.id, finding.verdict) for finding in two_jobs.findings
    ]


def test_a_backend_that_is_unknown_is_an_error():
    with pytest.raises(UnknownBackendError, match="unknown backend 'Nobody'"):
        campaign("Nobody", 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"count": 0}, "count is 0 and start 0; expected at least 1 and 0"),
        ({"start": -1}, "count is 1000 and start -1; expected at least 1 and 0"),
        ({"kind": "floats"}, "unknown kind of random networks 'floats'; did you mean 'float'?"),
        ({"backends": []}, "no backend was given; name one, or several in order of preference"),
        ({"jobs": 0}, "jobs is 0; expected at least 1"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments, text):
    with pytest.raises(InvalidArgumentError) as caught:
        campaign(**{"backends": "CpuRef", **arguments})
    assert str(caught.value) == text


def test_options_go_to_the_backend():
    with pytest.raises(InvalidArgumentError, match="there is no option 'Speed'"):
        campaign(misbehaving.Picky, 2, jobs=1, options={"Picky": {"Speed": 3}}).findings[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CrashingAtStart", "cannot be created: it crashes with SIGSEGV"),
        ("ExitingAtStart", "gives no backend: SystemExit: 3"),
    ],
)
def test_a_backend_that_cannot_be_created_is_named_with_the_reason(name: str, text: str):
    with pytest.raises(InterposerError) as caught:
        campaign(f"{NAME}:{name}", 2, jobs=1)
    assert name in str(caught.value)
    assert text in str(caught.value)


def test_a_backend_that_is_given_twice_is_refused():
    with pytest.raises(InvalidArgumentError, match="every backend can be given only once, but these are given: CpuRef"):
        campaign(["CpuRef", "CpuRef"], 1, jobs=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"backends": 5}, "backends must be an id or a function, or a list of these, not 5"),
        ({"backends": ["CpuRef", 5]}, "a backend must be given by an id or a function, not 5"),
        ({"backends": []}, "no backend was given; name one, or several in order of preference"),
        ({"count": "1"}, "count must be an integer, not '1'"),
        ({"seed": "x"}, "seed must be an integer, not 'x'"),
        ({"start": -1}, "count is 1 and start -1; expected at least 1 and 0"),
        ({"kind": 3}, "the kind of random networks must be a text, not 3"),
        ({"jobs": "2"}, "jobs must be an integer or None, not '2'"),
        ({"favoured": ["Addition"]}, "favoured must hold classes of operators, such as ops.Softmax, not 'Addition'"),
        ({"seconds": -1}, "seconds must be more than 0, and finite, not -1"),
        ({"seconds": "1"}, "seconds must be more than 0, and finite, not '1'"),
        ({"memory": 0}, "memory is 0 bytes; expected at least 1"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused(arguments: dict[str, Any], text: str):
    with pytest.raises(InvalidArgumentError) as caught:
        campaign(**{"backends": "CpuRef", "count": 1} | arguments)
    assert str(caught.value) == text


def test_a_worker_that_is_lost_after_its_last_result_is_a_finding():
    setup = Setup((misbehaving.Exact,))
    with nursery_for(setup) as nursery:
        crew, numbers = Crew(nursery, Plan(1), jobs=1, seconds=30.0, idle=[]), range(1)
        worker = Worker(nursery, 30.0)
        crew._begin(worker, numbers)
        crew._busy[worker.channel.fileno()].done = len(numbers)
        os.kill(worker.pid, signal.SIGKILL)
        all_judged = [judged for _ in range(20) if crew._busy for judged in crew._listen()]
    assert [(judged_network.number, judged_network.verdicts[-1].text) for judged_network in all_judged][-1] == (
        0,
        "it crashes with SIGKILL",
    )


# --- what is written --------------------------------------------------------------------------------------------------


def run(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script from some folder, in an environment that knows nothing of the tests."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-P", str(script)]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.parametrize("name", one_in(2, ["FlatTransposing", "Crashing"]))
def test_a_script_shows_the_failure_again_from_any_folder(tmp_path, name):
    backend = getattr(misbehaving, name)
    report = campaign(
        backend,
        12,
        seed=1,
        favoured=[Softmax, Transpose],
        jobs=1,
        shrink=1,
        engines=(),
        folder=tmp_path / "made",
    )
    finding = first(report)
    done = run(Path(finding.script), tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == f"{finding.sort}, the cause: {name}"
    assert {path.suffix for path in (tmp_path / "made").iterdir()} >= {".py", ".txt", ".onnx", ".npz"}


def test_a_script_of_a_backend_without_a_name_says_what_to_do(tmp_path):
    report = campaign(
        partial(misbehaving.FlatTransposing), 12, favoured=[Transpose], jobs=1, shrink=1, engines=(),
        folder=tmp_path,
    )  # fmt: skip
    done = run(Path(first(report).script), tmp_path)
    assert done.returncode == 1
    assert "the backend cannot be imported by a name" in done.stderr


def test_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert first(on_softmax(misbehaving.Raising)).script == ""
    assert list(tmp_path.iterdir()) == []


# --- a network of one's own -------------------------------------------------------------------------------------------


def test_any_network_can_be_judged():
    it = Built()
    x = it.input(np.arange(6, dtype=np.float32).reshape(2, 3))
    it.output(it.add(Transpose((1, 0)), x))
    assert judge_network("CpuRef", it.network, it.feeds).outcome is Outcome.PASS
    assert judge_network(misbehaving.FlatTransposing, it.network, it.feeds).sort is Sort.DIFFERENCE
    assert (ROOT / "src").exists()
