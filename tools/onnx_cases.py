"""Run the test cases of the package onnx with its own runner, and write the results as a reference page.

``python tools/onnx_cases.py`` writes docs/reference/onnx.md again. With ``--check`` it changes nothing, and exits with
status 1 if the page is outdated, or if a case fails that is not listed as failing. With a pattern it only runs the
cases whose names match, and prints the result of each.
"""

from __future__ import annotations

import argparse
import re
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from onnx.defs import get_all_schemas  # noqa: E402

from interposer.core.errors import InterposerError, UnsupportedOperatorError  # noqa: E402
from interposer.core.families import import_families  # noqa: E402
from interposer.frontends.onnx.onnx_converters import operators, title  # noqa: E402
from interposer.session.onnx_backend import InterposerBackend  # noqa: E402

import_families("interposer.frontends.onnx")

PAGE: Final = "docs/reference/onnx.md"
VERSION: Final = "1.23.2"
"""The version of the package onnx whose cases the page lists."""
GROUPS: Final = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
}
DIFFERENT: Final = {
    "test_dft_inverse": "the case's own numbers are off by 2e-7, where the right ones are 0",
    "test_dft_inverse_opset19": "the case's own numbers are off by 2e-7, where the right ones are 0",
    "test_attention_4d_causal_fp16_expanded": "two of 192 numbers are one step of float16 from the case's",
    "test_loop16_seq_none": "they are the case's, but the runner cannot compare a scalar in a sequence",
    **dict.fromkeys(
        (f"test_bernoulli{form}{expanded}" for form in ("", "_double", "_seed") for expanded in ("", "_expanded")),
        "drawn at random, so that no two evaluators give the same",
    ),
}
"""Cases whose results are not those that the case wants, and why; some agree by chance, or on some processors."""


class Outcome(NamedTuple):
    """The result of a case: "passed", "refused", "different" or "crashed"; the last three have a reason."""

    name: str
    group: str
    operator: str
    status: str
    reasons: tuple[str, ...] = ()


class _Backend(InterposerBackend):
    """Interposer's backend for the runner of the ONNX test cases, without a check before each case.

    The runner skips cases that a backend calls incompatible; this one only refuses by exceptions, which are recorded.
    """

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        return True


class _Result(unittest.TestResult):
    """A test result that stores the error of its only test."""

    error: BaseException | None = None

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802 - as unittest calls it
        self.error = err[1]

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self.error = err[1]


@cache
def _cases() -> dict[str, type[unittest.TestCase]]:
    from onnx.backend.test import BackendTest  # noqa: PLC0415 - makes all cases when it is imported

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case_classes: dict[str, type[unittest.TestCase]] = BackendTest(_Backend, __name__).test_cases
    return case_classes


@cache
def _kinds() -> dict[str, str]:
    """Return the name of the operator that each case about a single node tests, by the case's name.

    An expanded case, whose nodes are the body of an operator's function, counts for that operator.
    """
    from onnx.backend.test.loader import load_model_tests  # noqa: PLC0415

    kinds = {case.name: _kind(case) for case in load_model_tests(kind="node")}
    return {name: kinds.get(name.partition("_expanded")[0], kind) for name, kind in kinds.items()}


def _kind(case: Any) -> str:
    node = case.model.graph.node[0]
    return title(node.domain, node.op_type)


def names(pattern: str = "") -> list[tuple[str, str]]:
    """Return all cases as pairs of group and name whose names match the regular expression `pattern`."""
    return [
        (group, name.removesuffix("_cpu"))
        for kind, group in GROUPS.items()
        for name in unittest.defaultTestLoader.getTestCaseNames(_cases()[kind])
        if name.endswith("_cpu") and re.search(pattern, name)
    ]


def outcome(group: str, name: str) -> Outcome:
    """Run one case with the tolerances of ONNX's runner, and return its result."""
    kind = next(kind for kind, group_name in GROUPS.items() if group_name == group)
    collected = _Result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _cases()[kind](f"{name}_cpu").run(collected)
    operator = _kinds().get(name, "") if group == "node" else ""
    return Outcome(name, group, operator, *_judged(collected.error))


def _judged(error: BaseException | None) -> tuple[str, tuple[str, ...]]:
    if error is None:
        return "passed", ()
    if isinstance(error, UnsupportedOperatorError):
        return "refused", tuple(_reason(operator, error.notes.get(operator, "")) for operator in error.operators)
    if isinstance(error, InterposerError):
        return "refused", (str(error).partition("\n")[0],)
    if isinstance(error, AssertionError):
        return "different", (" ".join(str(error).split())[:200],)
    return "crashed", (f"{type(error).__name__}: {error}",)


def _reason(operator: str, note: str) -> str:
    """Return "operator: reason" for a refused operator, without the node's name in `note`, which cases differ in."""
    _, _, reason = re.sub(r"; first as node '[^']*'", "", note).partition(": ")
    return f"{operator}: {reason or 'not supported'}"


def outcomes(pattern: str = "") -> list[Outcome]:
    """Run all cases whose names match the regular expression `pattern`, and return their results."""
    return [outcome(*name) for name in names(pattern)]


# --- the page ---------------------------------------------------------------------------------------------------------


def page(all_outcomes: Iterable[Outcome]) -> str:
    """Return the page in Markdown that lists the results of all cases."""
    every = [case._replace(status="different") if case.name in DIFFERENT else case for case in all_outcomes]
    lines = [
        "# ONNX: operators and test cases",
        "",
        "<!-- Written by tools/onnx_cases.py; do not edit. -->",
        "",
        f"This page lists the results of the test cases in the package onnx, version {VERSION}. The runner of the",
        "package runs them on CpuRef, with its own tolerances. Unsupported models are refused when they are loaded,",
        "and no case crashes.",
        "",
        *_counts(every),
        "",
        *_operators([case for case in every if case.group == "node"]),
        "",
        *_refusals([case for case in every if case.status == "refused"]),
        "",
        *_differences([case for case in every if case.status in {"different", "crashed"}]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _counts(all_outcomes: list[Outcome]) -> Iterator[str]:
    yield from ("| cases | passed | refused | different | all |", "| --- | ---: | ---: | ---: | ---: |")
    for group in GROUPS.values():
        counts = Counter(case.status for case in all_outcomes if case.group == group)
        numbers = (counts["passed"], counts["refused"], counts["different"] + counts["crashed"], counts.total())
        yield f"| {group} | {' | '.join(f'{number:,}' for number in numbers)} |"


def _operators(all_outcomes: list[Outcome]) -> Iterator[str]:
    imported = {name.replace(":", "."): versions for name, versions in operators().items()}
    standard = {title(schema.domain, schema.name) for schema in get_all_schemas() if not schema.deprecated}
    counts = Counter((case.operator, case.status == "passed") for case in all_outcomes)
    yield from (
        "## Operators",
        "",
        "A version is the first version of the operator set for which a form of the operator is supported, until the",
        "next version in the list. *function* marks an operator that is replaced by the standard's function for it.",
        "",
        "| operator | versions since | cases passed |",
        "| --- | --- | ---: |",
    )
    for name in sorted(
        {*imported, *standard, *(case.operator for case in all_outcomes)},
        key=lambda name: ("." in name, name),
    ):
        passed, total = counts[name, True], counts[name, True] + counts[name, False]
        versions = ", ".join(map(str, imported.get(name, ()))) or ("*function*" if passed else "not supported")
        yield f"| {name} | {versions} | {f'{passed} of {total}' if total else ''} |"


def _refusals(refused: list[Outcome]) -> Iterator[str]:
    yield from ("## Refused cases", "", "Each reason, with the number of refused cases by operator.", "")
    yield from ("| reason | cases |", "| --- | --- |")
    reasons: dict[str, Counter[str]] = {}
    for case in refused:
        for reason in case.reasons:
            reasons.setdefault(reason, Counter())[case.operator or case.group] += 1
    for reason, counts in sorted(reasons.items()):
        cases = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
        yield f"| {reason.replace('|', '&#124;')} | {cases} |"


def _differences(different: list[Outcome]) -> Iterator[str]:
    if different:
        yield from ("## Different results", "", "These cases run, but their results differ from the expected ones, or")
        yield from ("agree by chance.", "")
        yield from (f"- `{case.name}`: {DIFFERENT.get(case.name, 'not known why')}" for case in different)


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Run the test cases of the package onnx.")
    parser.add_argument("pattern", nargs="?", help="only run the cases whose names match, and print their results")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the page is outdated")
    args = parser.parse_args(arguments)
    all_outcomes = outcomes(args.pattern or "")
    if args.pattern:
        for case in all_outcomes:
            print(f"{case.status:9} {case.name} {'; '.join(case.reasons)}".rstrip())
        return 0
    target, text = ROOT / PAGE, page(all_outcomes)
    stale = not target.exists() or target.read_text(encoding="utf-8") != text
    if stale and not args.check:
        target.write_text(text, encoding="utf-8")
    print(f"{'stale' if args.check else 'written'}: {PAGE}" if stale else f"fresh: {PAGE}")
    unknown = [case for case in all_outcomes if case.status in {"different", "crashed"} and case.name not in DIFFERENT]
    for case in unknown:
        print(f"{case.status}: {case.name}: {'; '.join(case.reasons)}", file=sys.stderr)
    return int(bool(unknown) or (stale and args.check))


if __name__ == "__main__":
    sys.exit(main())
