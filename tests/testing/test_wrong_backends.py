"""The kit finds what is wrong with a backend, and says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from interposer.backend import Backend
from interposer.ops import Addition, Multiplication
from interposer.testing import Conformance, Settings, Status, samples_of
from tests.plugins.install import ROOT
from tests.testing import wrong

SAMPLES = [*samples_of(Addition), *samples_of(Multiplication)]


QUICK = Settings(examples=30, loads=20)


def outcome(backend: type[Backend], case: str, settings: Settings = QUICK) -> tuple[Status, str]:
    conformance = Conformance(backend, only=case, samples=SAMPLES, settings=settings)
    [result] = conformance.report().results
    return result.status, result.text


UNUSABLE = "optimize_subgraph gave an answer that cannot be used: "
NOT_ALONE = "output 0 is not what it is when nothing else runs"


@pytest.mark.parametrize(
    ("backend", "case", "text"),
    [
        # what it computes
        (wrong.WrongSums, "results/Addition-float32",
         "output 0: 24 of 24 elements are wrong by more than 0.0001 and 1e-05 of the largest; the first at [0, 0, 0]"),
        (wrong.ReliesOnZeros, "results/Addition-float32", "output 0: 24 of 24 elements are wrong by more than"),
        (wrong.WritesToInputs, "inputs/Addition-float32",
         "an array of the caller, or a constant, was written to\n"
         "the workload of layer 'layer' (Addition) wrote to its input 0"),
        (wrong.WritesToConstants, "inputs/Addition-constant-b",
         "an array of the caller, or a constant, was written to\n"
         "the workload of layer 'layer' (Addition) wrote to its input 1"),
        (wrong.Drifts, "repetition/Addition-float32",
         "output 0 is not the same when the network runs again on the same inputs"),
        (wrong.SharesScratch, "threads/networks", NOT_ALONE),
        (wrong.SharesScratch, "threads/optimizing", NOT_ALONE),
        # what it says
        (wrong.RefusesWithoutReason, "support/Addition-float32", "it refuses without saying why"),
        (wrong.RefusesWithBlanks, "support/Addition-float32", "it refuses without saying why"),
        (wrong.SaysYesToEverything, "results/Addition-int8",
         "it said yes, but then: layer 'layer' (Addition) got no workload on backend SaysYesToEverything: no kernel"),
        (wrong.AnswersTooShort, "support/Addition-float32", "asked for a view of 2 layers it gave 1 verdicts"),
        (wrong.AnswersInTruthValues, "support/Addition-float32",
         "asking raised TypeError: query gave [True]; expected a list of Support"),
        (wrong.RaisesWhenAsked, "support/Addition-float32",
         "asking raised ZeroDivisionError: integer division or modulo by zero"),
        (wrong.ChangesItsMind, "support/Addition-float32", "asked twice it answered yes, then no (not today)"),
        (wrong.RefusesUnknownOptions, "description/unknown-options",
         "with an option that it does not know it refuses what it takes without"),
        (wrong.NamesNoOption, "description/unknown-options",
         "it refuses an option that it does not know without naming it: there is a wrong option"),
        (wrong.OddCapabilities, "description/capabilities",
         "the capability 'DynamicShapes' is 'yes'; expected True or False"),
        # what it makes of parts
        (wrong.Overlaps, "substitution/chain-0", f"{UNUSABLE}layer 'multiplication' (Multiplication) is in two parts"),
        (wrong.NotConvex, "substitution/chain-0",
         f"{UNUSABLE}the substituted parts would depend on each other in a cycle"),
        (wrong.LeavesTheView, "substitution/chain-0", f"{UNUSABLE}layer 'input_0' (Input) is not in the view; "),
        (wrong.AnswersForAnotherView, "substitution/chain-0", "optimize_subgraph gave an answer for another view"),
        (wrong.GivesBackInSilence, "substitution/twice-0",
         "the part 'addition', 'addition_1' is given back without a reason"),
        (wrong.ChangesTheGraph, "substitution/chain-0", "optimize_subgraph changed the graph that it was shown"),
        (wrong.GivesNoViews, "substitution/chain-0", "optimize_subgraph gave NoneType; expected OptimizationViews"),
        (wrong.CompilesWrongly, "composition/chain-0", "output 0: 24 of 24 elements are wrong by more than"),
        # memory and order
        (wrong.ReleasesInEveryRun, "order/Addition-float32",
         "the memory was acquired 4 times in 3 runs; expected once, before the first\n"
         "the memory was released 3 times before the network was unloaded; expected only then\n"
         "the handle of float32[2, 3, 4] was mapped after its memory was released"),
        (wrong.AcquiresTooEarly, "order/Addition-float32",
         "the memory was acquired 2 times in 3 runs; expected once, before the first\n"
         "the memory was acquired while the network was loaded; expected in its first run"),
        (wrong.NeverUnmaps, "order/Addition-float32",
         "the handle of float32[2, 3, 4] was mapped but not unmapped; every map needs one unmap"),
        (wrong.SharesItsManager, "description/objects",
         "create_memory_manager gave the same manager twice; every network needs one of its own"),
        (wrong.FailsToRelease, "order/Addition-float32",
         "the memory manager raised OSError in release: the device is busy"),
        (wrong.OverlapsInMemory, "composition/diamond-0", "the workload of layer "),
        (wrong.MixesNetworks, "threads/networks", NOT_ALONE),
        # what stays behind, and contexts
        (wrong.KeepsWorkloads, "leaks/objects",
         "20 objects of the class ArenaMemoryManager are still there after 20 networks were unloaded"),
        (wrong.KeepsMemory, "leaks/memory", "the process grew by "),
        (wrong.SaysNoAfterwards, "context/notices", "the context said no in after_unload_network"),
    ],
    ids=lambda value: getattr(value, "__name__", value) if not isinstance(value, str) or "/" in value else "",
)  # fmt: skip
def test_a_fault_is_found_and_named(backend: type[Backend], case: str, text: str) -> None:
    status, found = outcome(backend, case)
    assert (status, found[: len(text)]) == (Status.FAIL, text)


def test_a_backend_that_is_right_passes_every_case() -> None:
    report = Conformance(wrong.Right, samples=SAMPLES, settings=QUICK).report()
    assert report.failures == []
    assert report.counts["pass"] > 400


def test_a_backend_may_say_that_its_results_differ_a_little_from_run_to_run() -> None:
    assert outcome(wrong.DriftsAndSaysSo, "repetition/Addition-float32") == (Status.PASS, "")


def test_a_backend_may_name_an_option_that_it_does_not_know_in_an_error() -> None:
    assert outcome(wrong.NamesUnknownOptions, "description/unknown-options") == (Status.PASS, "")


def test_what_a_backend_gives_back_with_a_reason_counts_as_refused() -> None:
    class Reluctant(wrong.Compiling):
        parts = staticmethod(lambda view: wrong.OptimizationViews.all_failed(view, "no registers are left"))

    expected = (Status.REFUSED, "gave it back: no registers are left")
    assert outcome(Reluctant, "results/Addition-float32") == expected


def test_a_random_network_that_fails_is_made_small_and_written_as_a_script_that_shows_it_again(tmp_path) -> None:
    pytest.importorskip("hypothesis")
    folder = tmp_path / "failures"
    status, text = outcome(wrong.WrongSums, "random/whole", Settings(folder=str(folder)))
    assert status is Status.FAIL
    assert "Addition" in text
    assert text.count("\n") < 12, "the network is a small one"
    [script] = folder.iterdir()
    assert text.splitlines()[-1] == f"python {script} shows it again"
    again = script.read_text(encoding="utf-8").replace('replay("WrongSums"', 'replay("tests.testing.wrong:WrongSums"')
    script.write_text(again, encoding="utf-8")
    path = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, script], env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, text.splitlines()[0]), done.stderr
