"""Write every sample of every operator as ONNX, read it back, and report the results as a reference page.

``python tools/onnx_writer.py`` writes docs/reference/onnx-writer.md again. With ``--check`` it changes nothing, and
exits with status 1 if the page is outdated, or if a sample has wrong results. With names of operators it only tries
these, and prints the result of each sample.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import interposer.ops  # noqa: E402, F401 - declares the operators
from interposer.core.errors import InterposerError, UnboundInputError, UnwritableError  # noqa: E402
from interposer.core.schema import Op, registered_ops  # noqa: E402
from interposer.frontends.onnx import load  # noqa: E402
from interposer.testing import Sample, samples_of  # noqa: E402
from interposer.testing.oracle import reference_outputs  # noqa: E402
from interposer.testing.tolerances import Tolerances  # noqa: E402
from interposer.writers.onnx import write  # noqa: E402

PAGE: Final = "docs/reference/onnx-writer.md"
VERSION: Final = "1.23.2"
"""The version of the package onnx whose newest opset the page describes."""
HEAD: Final = f"""# ONNX writer: operators

<!-- Written by tools/onnx_writer.py; do not edit. -->

This page lists every operator with the samples of the conformance kit that the reference kernels can run. The column
*Exact* counts the samples that `interposer.writers.onnx.write` expresses exactly: the model, read back and run by the
reference kernels, gives equal integers, and floats within the kit's tolerances. The column *QDQ* counts the samples
that are only written with `exact=False`, as float layers between DequantizeLinear and QuantizeLinear; their results may
differ by quantization steps. All other samples are refused, for the reasons in the last column. `onnx.checker` accepts
every file. The opset is the first one that can express the sample, among 20, 23 and {{opset}}, the newest of
onnx {VERSION}. [The guide](../onnx-writer.md) describes the limits of older opsets.

| Operator | Samples | Exact | QDQ | Nodes | Reasons for refusal |
| --- | ---: | ---: | ---: | --- | --- |
"""
_TYPES: Final = re.compile(r"(\w+) of ONNX \(since opset \d+\) (takes|gives) no (\w+)")
_MOST_KINDS: Final = 8
_MOST_REASONS: Final = 4


class Outcome(NamedTuple):
    """Whether a sample could be written as an ONNX model: the status, its reason, and the operators written.

    The status is "expressed", "refused", "wrong" (other results than the network), or "unknown" if the reference
    kernels do not support the sample.
    """

    status: str
    reason: str = ""
    kinds: tuple[str, ...] = ()


def outcome(sample: Sample, *, opset: int | None = None, exact: bool = True) -> Outcome:
    """Write a sample as an ONNX model, check the model, read it back, and compare the results of both networks.

    `opset` and `exact` are as for `write`.
    """
    import onnx  # noqa: PLC0415 - the tests of the tool are collected without it

    network, feeds = sample.network()
    try:
        expected = reference_outputs(network.graph, feeds)
    except InterposerError:
        return Outcome("unknown")
    try:
        model = write(network, opset=opset, exact=exact)
    except UnwritableError as error:
        return Outcome("refused", next(iter(error.layers.values()))[1])
    onnx.checker.check_model(model, full_check=True)
    kinds = tuple(node.op_type for node in model.graph.node)
    problem = _difference(sample, network, model, feeds, expected, exact=exact)
    return Outcome("wrong" if problem else "expressed", problem or "", kinds)


def _difference(sample: Sample, network: Any, model: Any, feeds: Any, expected: Any, *, exact: bool) -> str | None:
    outputs = _outputs(model, {f"input_{key}": array for key, array in feeds.items()})
    for key, array in expected.items():
        info = network.graph.layer("layer").outputs[key].known
        if sample.statistical:
            difference = None if outputs[key].shape == array.shape else f"shape {outputs[key].shape}"
        else:
            difference = Tolerances(steps=0 if exact else 1).difference(outputs[key], array, info)
        if difference:
            return f"output {key}: {difference}"
    return None


def _outputs(model: Any, feeds: dict[str, Any]) -> dict[int, Any]:
    """Return the results of a model on the reference kernels by binding id; `feeds` are its inputs by name.

    Inputs whose values must be known during the import become constants.
    """
    graph = _loaded(model, feeds, ()).graph
    numbers = {layer.name: layer.op.binding_id for layer in graph.inputs}
    return reference_outputs(graph, {number: feeds[name] for name, number in numbers.items()})


def _loaded(model: Any, feeds: dict[str, Any], known: tuple[str, ...]) -> Any:
    try:
        return load(model, values={name: feeds[name] for name in known})
    except UnboundInputError as error:
        if not set(error.inputs) - set(known):
            raise
        return _loaded(model, feeds, (*known, *error.inputs))


def operators() -> dict[str, type[Op]]:
    """Return the operators that have samples, by name."""
    return {name: op for name, op in registered_ops().items() if op.executable and samples_of(op)}


def ordinary_samples(op: type[Op]) -> list[Sample]:
    """Return the samples of an operator whose values do not overflow in a composition of other operators."""
    return [sample for sample in samples_of(op) if not sample.extreme]


class Row(NamedTuple):
    """The results of an operator's samples, as a row of the page.

    `exact` counts the samples that can be written exactly, `inexact` those that can be written with other rounding.
    `kinds` are the most frequent ONNX operators, `reasons` the most frequent reasons of refusals.
    """

    name: str
    samples: int
    exact: int
    inexact: int
    kinds: list[str]
    reasons: list[str]

    def __str__(self) -> str:
        kinds, reasons = ", ".join(self.kinds), "; ".join(self.reasons)
        return f"| {self.name} | {self.samples} | {self.exact} | {self.inexact or ''} | {kinds} | {reasons} |"


def row(name: str, op: type[Op]) -> Row:
    """Try to write all samples of an operator, and return their results; a wrong result ends the program."""
    exact, inexact, kinds, reasons = 0, 0, Counter[str](), Counter[str]()
    judged = 0
    for sample in ordinary_samples(op):
        tried = outcome(sample)
        judged += tried.status != "unknown"
        if tried.status == "wrong":
            raise SystemExit(f"{sample.id}: {tried.reason}")
        if tried.status == "expressed":
            exact += 1
            kinds.update(set(tried.kinds))
        elif tried.status == "refused":
            relaxed = outcome(sample, exact=False)
            inexact += relaxed.status != "refused"
            reasons.update([relaxed.reason] if relaxed.status == "refused" else [])
    most = [kind for kind, _ in kinds.most_common(_MOST_KINDS)]
    return Row(name, judged, exact, inexact, most, list(_reported(reasons))[:_MOST_REASONS])


def _reported(reasons: Counter[str]) -> Iterator[str]:
    """Yield the reasons of refusals, most frequent first; those that differ only in a type are merged into one."""
    types: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        match = _TYPES.fullmatch(reason)
        if match:
            types.setdefault((match[1], match[2]), []).append(match[3])
    yield from (reason for reason, _ in reasons.most_common() if not _TYPES.fullmatch(reason))
    yield from (f"{kind} {verb} no {', '.join(sorted(names))}" for (kind, verb), names in types.items())


def page() -> str:
    """Return the whole page in Markdown: a table of operators."""
    import onnx  # noqa: PLC0415

    rows = [row(name, op) for name, op in operators().items()]
    samples, exact, inexact = (sum(getattr(each, field) for each in rows) for field in ("samples", "exact", "inexact"))
    total = f"| **all** | {samples} | {exact} | {inexact} | | |\n"
    head = HEAD.format(opset=onnx.defs.onnx_opset_version())
    return head + "".join(f"{each}\n" for each in rows) + total


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Write every sample as ONNX and read it back.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where the page is stale")
    parser.add_argument("--opset", type=int, help="the opset for operators that are named")
    parser.add_argument("operators", nargs="*", help="only these, with what became of each sample")
    args = parser.parse_args(arguments)
    if args.operators:
        return _print(args.operators, args.opset)
    text, path = page(), ROOT / PAGE
    if args.check:
        stale = not path.exists() or path.read_text(encoding="utf-8") != text
        print(f"stale: {PAGE}" if stale else f"up to date: {PAGE}")
        return int(stale)
    path.write_text(text, encoding="utf-8")
    print(text.rstrip().rpartition("\n")[2])
    return 0


def _print(names: Iterable[str], opset: int | None) -> int:
    wrong = 0
    for name in names:
        for sample in ordinary_samples(operators()[name]):
            tried = outcome(sample, opset=opset)
            wrong += tried.status == "wrong"
            print(f"{sample.id}: {tried.status} {tried.reason}{' '.join(tried.kinds)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
