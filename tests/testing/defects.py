"""All defects that are planted for the conformance kit to find, and their table in `docs/conformance.md`.

`python -m tests.testing.defects` writes the table again.
"""

from __future__ import annotations

from pathlib import Path

from interposer.backend import Backend
from tests.testing import wrong, wrong_device, wrong_numbers, wrong_profiling
from tests.testing.planted import Planted

__all__ = ["PAGE", "PROBLEMS", "page_with_table", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_BEGIN, _END = "<!-- begin of the table of planted defects -->\n", "<!-- end of the table of planted defects -->\n"
_UNUSABLE = "^optimize_subgraph returned an answer that cannot be used: "
_NOT_ALONE = "^output 0 is not what it is when nothing else runs"


def _planted(
    kind: str, what: str, backend: type[Backend], case: str, message: str, *, names_it: bool = True
) -> Planted:
    return Planted(what, backend, case, message, kind, names_it=names_it)


def _numbers() -> list[Planted]:
    return [
        _planted("numbers", *row)
        for row in (
            ("Sums are one too large", wrong.WrongSums, "results/Addition-float32",
             "^output 0: 24 of 24 elements .*hint: every element is too high by 1: zero point or bias"),
            ("Sums are added to the previous content of the memory", wrong.ReliesOnZeros, "results/Addition-float32",
             "^output 0: 24 of 24 elements .*hint: .* what the kit filled the memory with"),
            ("Sums differ slightly from run to run", wrong.Drifts, "repetition/Addition-float32",
             "^output 0 is not the same when the network runs again on the same inputs"),
        )
    ]  # fmt: skip


def _support() -> list[Planted]:
    addition, options = "support/Addition-float32", "description/unknown-options"
    return [
        _planted("support", *row)
        for row in (
            ("A refusal has no reason", wrong.RefusesWithoutReason, addition, "^it refuses without saying why"),
            ("A refusal has a blank reason", wrong.RefusesWithBlanks, addition, "^it refuses without saying why"),
            ("Layers without a kernel are accepted", wrong.SaysYesToEverything, "results/Addition-int8",
             r"^it said yes, but then: layer 'layer' \(Addition\) got no workload .*: no kernel"),
            ("Two layers get one verdict", wrong.AnswersTooShort, addition,
             "^asked for a view of 2 layers it gave 1 verdicts"),
            ("Verdicts are of the wrong type", wrong.AnswersInTruthValues, addition,
             r"^asking raised TypeError: query gave \[True\]; expected a list of Support"),
            ("The query raises an error", wrong.RaisesWhenAsked, addition,
             "^asking raised ZeroDivisionError: integer division or modulo by zero"),
            ("The same query gets different verdicts", wrong.ChangesItsMind, addition,
             r"^asked twice it answered (yes, then no \(not today\)|no \(not today\), then yes)"),
            ("An unknown option leads to refusals", wrong.RefusesUnknownOptions, options,
             "^with an unknown option it refuses layers that it accepts without the option"),
            ("The error about an unknown option does not name it", wrong.NamesNoOption, options,
             "^it refuses an unknown option without naming it: there is a wrong option"),
            ("A kernel declares no data types, so that it accepts all", wrong.TakesEveryType, "claims/types",
             "^Addition: it takes .*float4_e2m1fn.*, which no sample has, so that no check tries them; declare"),
            ("A capability that is True or False is a text", wrong.OddCapabilities, "description/capabilities",
             "^the capability 'DynamicShapes' is 'yes'; expected True or False"),
        )
    ]  # fmt: skip


def _substitution() -> list[Planted]:
    chain = "substitution/chain-0"
    return [
        _planted("substitution", *row)
        for row in (
            ("Substituted parts overlap", wrong.Overlaps, chain, rf"{_UNUSABLE}layer '.*' \(.*\) is in two parts"),
            ("A substituted part is not convex", wrong.NotConvex, chain,
             f"{_UNUSABLE}the substituted parts would depend on each other in a cycle"),
            ("A substituted part leaves the view", wrong.LeavesTheView, chain,
             rf"{_UNUSABLE}layer 'input_0' \(Input\) is not in the view; "),
            ("The answer is about another view", wrong.AnswersForAnotherView, chain,
             "^optimize_subgraph gave an answer for another view"),
            ("A part is given back without a reason", wrong.GivesBackInSilence, "substitution/twice-0",
             "^the part '.*' is given back without a reason"),
            ("The graph of the view is changed", wrong.ChangesTheGraph, chain,
             "^optimize_subgraph changed the graph that it was shown"),
            ("The answer is None", wrong.GivesNoViews, chain,
             "^optimize_subgraph gave NoneType; expected OptimizationViews"),
            ("A compiled part computes something else", wrong.CompilesWrongly, "composition/chain-0",
             "^output 0: .* elements are wrong by more than"),
        )
    ]  # fmt: skip


def _memory() -> list[Planted]:
    order = "order/Addition-float32"
    return [
        _planted("memory and order", *row)
        for row in (
            ("A workload writes to its input", wrong.WritesToInputs, "inputs/Addition-float32",
             r"the workload of layer 'layer' \(Addition\) wrote to its input 0"),
            ("A workload writes to a constant", wrong.WritesToConstants, "inputs/Addition-constant-b",
             "^an array of the caller, or a constant, was written to\n.*wrote to its input 1"),
            ("Memory is released and acquired in every run", wrong.ReleasesInEveryRun, order,
             "^the memory was acquired 4 times in 3 runs; expected once, before the first\n"
             "the memory was released 3 times before the network was unloaded; expected only then"),
            ("Memory is acquired while a network is loaded", wrong.AcquiresTooEarly, order,
             "the memory was acquired while the network was loaded; expected in its first run"),
            ("Tensors are mapped and never unmapped", wrong.NeverUnmaps, order,
             "was mapped but not unmapped; every map needs one unmap"),
            ("All networks have one memory manager", wrong.SharesItsManager, "description/objects",
             "^create_memory_manager gave the same manager twice; every network needs one of its own"),
            ("Releasing memory fails", wrong.FailsToRelease, order,
             "^the memory manager raised OSError in release: the device is busy"),
            ("Tensors that are alive at the same time overlap", wrong.OverlapsInMemory, "composition/diamond-0",
             "^the workload of layer .* wrote to its input"),
            ("The element after the last one of an input is read", wrong.ReadsBeyondItsInputs, "guards/bound",
             r"^the backend crashed with SIGSEGV\nit was running layer 'layer' \(Addition\), Addition-float32, on "
             "inputs and outputs that end at a page that must not be accessed"),
            ("The element before the first one of an input is read", wrong.ReadsBeforeItsInputs, "guards/imported",
             "^the backend crashed with SIGSEGV\nit was .*, Addition-float32, on inputs and outputs that begin after a "
             "page that must not be accessed"),
            ("Memory far beyond an output is written to", wrong.WritesFarBeyondItsOutputs, "guards/bound",
             "^Addition-float32, on inputs and outputs that begin after a page .* wrote outside of output 0"),
            ("All networks have the same tensors", wrong.MixesNetworks, "threads/networks", _NOT_ALONE),
            ("All networks have one scratch buffer", wrong.SharesScratch, "threads/networks", _NOT_ALONE),
        )
    ]  # fmt: skip


def _left_behind() -> list[Planted]:
    return [
        _planted("leaks and contexts", *row)
        for row in (
            ("Workload factories stay alive after unloading", wrong.KeepsWorkloads, "leaks/objects",
             "^20 objects of the class ArenaMemoryManager are still alive after 20 networks were unloaded"),
            ("Eight mebibytes leak for every network", wrong.KeepsMemory, "leaks/memory", "^the process grew by "),
            ("The context returns False after a network was unloaded", wrong.SaysNoAfterwards, "context/notices",
             "^the context returned False from after_unload_network"),
        )
    ]  # fmt: skip


PROBLEMS: tuple[Planted, ...] = (
    *_numbers(), *wrong_numbers.PROBLEMS, *_support(), *_substitution(), *_memory(), *_left_behind(),
    *wrong_device.PLANTED, *wrong_profiling.PLANTED,
)  # fmt: skip
"""Every planted defect, in the order of the table."""


def table() -> str:
    """Return the table of planted defects in Markdown."""
    rows = [
        f"| {planted.kind} | {planted.what} | `{planted.case}` | {'yes' if planted.names_it else 'no'} |"
        for planted in PROBLEMS
    ]
    return "\n".join(["| group | error | found by | named |", "|---|---|---|---|", *rows, ""])


def page_with_table() -> str:
    """Return the page of the conformance kit with the current table."""
    page = PAGE.read_text(encoding="utf-8")
    return page.partition(_BEGIN)[0] + _BEGIN + table() + _END + page.partition(_END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
