"""Write every sample of every operator as TFLite, read it back, and report the results as a reference page.

``python tools/tflite_writer.py`` writes docs/reference/tflite-writer.md again. With ``--check`` it changes nothing, and
exits with status 1 if the page is outdated, or if a sample has wrong results. With names of operators it only tries
these, and prints the result of each sample. With ``--litert`` it also runs the written files in LiteRT's interpreter.
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
from interposer.frontends.tflite import load  # noqa: E402
from interposer.frontends.tflite.container import read_model  # noqa: E402
from interposer.testing import Sample, samples_of  # noqa: E402
from interposer.testing.oracle import reference_outputs  # noqa: E402
from interposer.testing.tolerances import Tolerances  # noqa: E402
from interposer.writers.tflite import write  # noqa: E402

PAGE: Final = "docs/reference/tflite-writer.md"
HEAD: Final = """# TFLite writer: operators

<!-- Written by tools/tflite_writer.py; do not edit. -->

This page lists every operator with the samples of the conformance kit that the reference kernels can run. The column
*Exact* counts the samples that `interposer.writers.tflite.write` expresses exactly: the file, read back and run by the
reference kernels, gives equal integers, and floats within the kit's tolerances. All other samples are refused, for the
reasons in the last column. [The guide](../tflite-writer.md) has more details.

| Operator | Samples | Exact | Operators of TFLite | Reasons for refusal |
| --- | ---: | ---: | --- | --- |
"""
_TYPES: Final = re.compile(r"(\w+) (takes no quantized|takes no|has no type) (\w+)")
_MOST_KINDS: Final = 8
_MOST_REASONS: Final = 4


class Outcome(NamedTuple):
    """Whether a sample could be written as a TFLite file: the status, its reason, and the operators that were written.

    The status is "expressed", "refused", "wrong" (other results than the network), or "unknown" if the reference
    kernels do not support the sample.
    """

    status: str
    reason: str = ""
    kinds: tuple[str, ...] = ()


def outcome(sample: Sample, *, litert: bool = False) -> Outcome:
    """Write a sample as a TFLite file, read it back, and compare the results of both networks.

    With `litert`, the results of LiteRT's interpreter on the file are compared too.
    """
    network, feeds = sample.network()
    try:
        expected = reference_outputs(network.graph, feeds)
    except InterposerError:
        return Outcome("unknown")
    try:
        content = write(network)
    except UnwritableError as error:
        return Outcome("refused", next(iter(error.layers.values()))[1])
    kinds = tuple(operator.name for subgraph in read_model(content).subgraphs for operator in subgraph.operators)
    named_feeds = {f"input_{key}": array for key, array in feeds.items()}
    problem = _difference(sample, network, _outputs(content, named_feeds), expected, steps=0)
    if litert and not problem:
        outputs = _run(content, [feeds[layer.op.binding_id] for layer in network.graph.inputs])
        problem = outputs if isinstance(outputs, str) else _difference(sample, network, outputs, expected, steps=1)
        problem = problem and f"LiteRT: {problem} "
    return Outcome("wrong" if problem else "expressed", problem or "", kinds)


def _difference(sample: Sample, network: Any, actual: Any, expected: Any, *, steps: int) -> str | None:
    for key, array in expected.items():
        info = network.graph.layer("layer").outputs[key].known
        if sample.statistical:
            difference = None if actual[key].shape == array.shape else f"shape {actual[key].shape}"
        else:
            difference = Tolerances(steps=steps).difference(actual[key], array, info)
        if difference:
            return f"output {key}: {difference}"
    return None


def _outputs(content: bytes, feeds: dict[str, Any], names: tuple[str, ...] = ()) -> dict[int, Any]:
    """Return the results of a file on the reference kernels by binding id; `feeds` are its inputs by name.

    The inputs in `names`, and others whose values must be known during the import, become constants.
    """
    try:
        graph = load(content, dynamic=True, values={name: feeds[name] for name in names}).graph
    except UnboundInputError as error:
        if not set(error.inputs) - set(names):
            raise
        return _outputs(content, feeds, (*names, *error.inputs))
    numbers = {layer.name: layer.op.binding_id for layer in graph.inputs}
    return reference_outputs(graph, {number: feeds[name] for name, number in numbers.items()})


def _run(content: bytes, arrays: list[Any]) -> dict[int, Any] | str:
    """Return the results of LiteRT's interpreter on a file by output number, or its error message.

    `arrays` are the values of the inputs, in order.
    """
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where it is asked for

    try:
        interpreter = Interpreter(model_content=content, num_threads=1)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        return str(error).replace("\n", " ")
    details = interpreter.get_output_details()
    return {number: interpreter.get_tensor(detail["index"]) for number, detail in enumerate(details)}


def operators() -> dict[str, type[Op]]:
    """Return the operators that have samples, by name."""
    return {name: op for name, op in registered_ops().items() if op.executable and samples_of(op)}


def ordinary_samples(op: type[Op]) -> list[Sample]:
    """Return the samples of an operator whose values do not overflow in a composition of other operators."""
    return [sample for sample in samples_of(op) if not sample.extreme]


class Row(NamedTuple):
    """The results of an operator's samples, as a row of the page.

    `samples` counts those that the reference supports; `kinds` are the most frequent TFLite operators, and `reasons`
    the most frequent reasons of refusals.
    """

    name: str
    samples: int
    exact: int
    kinds: list[str]
    reasons: list[str]

    def __str__(self) -> str:
        kinds, reasons = ", ".join(self.kinds), "; ".join(self.reasons)
        return f"| {self.name} | {self.samples} | {self.exact} | {kinds} | {reasons} |"


def row(name: str, op: type[Op]) -> Row:
    """Try to write all samples of an operator, and return their results; a wrong result ends the program."""
    exact, judged, kinds, reasons = 0, 0, Counter[str](), Counter[str]()
    for sample in ordinary_samples(op):
        tried = outcome(sample)
        judged += tried.status != "unknown"
        if tried.status == "wrong":
            raise SystemExit(f"{sample.id}: {tried.reason}")
        if tried.status == "expressed":
            exact += 1
            kinds.update(list(dict.fromkeys(tried.kinds)))  # in the order of the file, not of hashes
        elif tried.status == "refused":
            reasons[tried.reason] += 1
    most = [kind for kind, _ in kinds.most_common(_MOST_KINDS)]
    return Row(name, judged, exact, most, list(_reported(reasons))[:_MOST_REASONS])


def _reported(reasons: Counter[str]) -> Iterator[str]:
    """Yield the reasons of refusals, most frequent first; those that differ only in a type are merged into one."""
    types: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        match = _TYPES.fullmatch(reason)
        if match:
            types.setdefault((match[1], match[2]), []).append(match[3])
    yield from (reason for reason, _ in reasons.most_common() if not _TYPES.fullmatch(reason))
    yield from (f"{kind} {verb} {', '.join(sorted(names))}" for (kind, verb), names in types.items())


def page() -> str:
    """Return the whole page in Markdown: a table of operators."""
    rows = [row(name, op) for name, op in operators().items()]
    samples, exact = (sum(getattr(each, field) for each in rows) for field in ("samples", "exact"))
    return HEAD + "".join(f"{each}\n" for each in rows) + f"| **all** | {samples} | {exact} | | |\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Write every sample as TFLite and read it back.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where the page is stale")
    parser.add_argument("--litert", action="store_true", help="run what was written in LiteRT, of operators named")
    parser.add_argument("operators", nargs="*", help="only these, with what became of each sample")
    args = parser.parse_args(arguments)
    if args.operators:
        return _print(args.operators, args.litert)
    text, path = page(), ROOT / PAGE
    if args.check:
        stale = not path.exists() or path.read_text(encoding="utf-8") != text
        print(f"stale: {PAGE}" if stale else f"up to date: {PAGE}")
        return int(stale)
    path.write_text(text, encoding="utf-8")
    print(text.rstrip().rpartition("\n")[2])
    return 0


def _print(names: Iterable[str], litert: bool) -> int:
    wrong = 0
    for name in names:
        for sample in ordinary_samples(operators()[name]):
            tried = outcome(sample, litert=litert)
            wrong += tried.status == "wrong"
            print(f"{sample.id}: {tried.status} {tried.reason}{' '.join(tried.kinds)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
