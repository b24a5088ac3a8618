"""Run PyTorch's own samples of its operators here and eagerly, and count how many results agree.

``python tools/torch_cases.py`` runs two samples of each operator in PyTorch's database of operators (``op_db``), in
float32, int64 and bool, on CpuRef and on CpuAcc, and lists the samples that differ or are refused. It needs PyTorch and
the package expecttest. A pattern selects operators by name, and ``--types`` and ``--samples`` choose other samples.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import interposer as ip  # noqa: E402
from interposer.errors import InterposerError, UnsupportedOperatorError  # noqa: E402
from interposer.frontends.torch.program import Program, read  # noqa: E402
from interposer.frontends.torch.tensors import array_of  # noqa: E402

BACKENDS: Final = ("CpuRef",), ("CpuAcc", "CpuRef")
TOLERANCES: Final = {"float16": 4e-3, "bfloat16": 3e-2}
RANDOM: Final = re.compile(r"rand|empty|bernoulli|uniform|normal|dropout|multinomial|exponential|geometric|cauchy")
"""Operators whose results are random, or not defined."""
UNORDERED: Final = frozenset({"topk", "kthvalue"})
"""Operators that return values and indices, and any of several indices if values are equal."""


class Sample(torch.nn.Module):  # type: ignore[misc] # PyTorch has no types here
    """A module that calls an operator; tensors are its inputs, and all other arguments are fixed."""

    def __init__(self, function: Any, arguments: Any) -> None:
        super().__init__()
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.function = function
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[index].detach().clone() for index in self.places)

    def forward(self, *tensors: Any) -> Any:
        """Call the operator."""
        leaves = list(self.leaves)
        for index, tensor in zip(self.places, tensors, strict=True):
            leaves[index] = tensor
        arguments, keywords = pytree.tree_unflatten(leaves, self.structure)
        return self.function(*arguments, **keywords)


class Outcome(NamedTuple):
    """What became of a sample: "agrees", "differs", "refused", "error", or "skipped" as PyTorch cannot export it."""

    status: str
    reason: str = ""


def outcome_of(sample: Sample, tolerance: float) -> Outcome:
    """Export a sample, run it here, and compare the results with eager ones."""
    try:
        with torch.no_grad():
            expected = pytree.tree_leaves(sample(*(tensor.clone() for tensor in sample.tensors)))
            expected = expected[:1] if sample.function.__name__ in UNORDERED else expected
            program = torch.export.export(sample.eval(), sample.tensors, strict=False)
    except Exception as error:
        return Outcome("skipped", str(error).partition("\n")[0])
    try:
        return _compared(read(program), sample.tensors, expected, tolerance)
    except UnsupportedOperatorError as error:
        return Outcome("refused", ", ".join(error.operators))
    except InterposerError as error:
        return Outcome("error", str(error))


def _compared(program: Program, tensors: Sequence[Any], expected: Sequence[Any], tolerance: float) -> Outcome:
    network = program.imported({}).network
    inputs = {argument.name: tensor for argument, tensor in zip(program.arguments, tensors, strict=True)}
    feeds = {layer.name: array_of(inputs[layer.name], layer.name) for layer in network.graph.inputs}
    for backends in BACKENDS:
        model = ip.load(network, backends, fallback=False)
        results = dict(zip(model.outputs, model.run(feeds), strict=True))
        for program_output, leaf in zip(program.results, expected, strict=False):
            error = _difference(results[program_output.name], leaf, tolerance) if program_output.name else ""
            if error:
                return Outcome("differs", f"{backends[0]}: {error}")
    return Outcome("agrees")


def _difference(actual: Any, expected: Any, tolerance: float) -> str:
    """Return how a result differs from the expected tensor or number; empty if it agrees."""
    target = array_of(expected, "it") if isinstance(expected, torch.Tensor) else np.asarray(expected)
    if (actual.shape, actual.dtype) != (target.shape, target.dtype):
        return f"{actual.dtype}{list(actual.shape)} for {target.dtype}{list(target.shape)}"
    a, b = actual.astype(np.float64), target.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=1)
    near = np.isclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True)
    if near.all():
        return ""
    place = tuple(np.argwhere(~near)[0].tolist())
    return f"{np.count_nonzero(~near)} of {near.size} elements, such as {a[place]} for {b[place]} at {list(place)}"


def samples(info: Any, dtype: Any, count: int) -> Iterator[Sample]:
    """Yield some of PyTorch's samples of an operator, the same ones on every call."""
    torch.manual_seed(1)
    try:
        listed = list(info.sample_inputs("cpu", dtype))
    except Exception:
        return
    chosen = random.Random(7).sample(listed, count) if len(listed) > count else listed
    for sample_input in chosen:
        sample = Sample(info.op, ((sample_input.input, *sample_input.args), sample_input.kwargs))
        if sample.tensors:
            yield sample


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status: 1 if a result differs."""
    parser = argparse.ArgumentParser(description="Compare samples of PyTorch's operators with eager execution.")
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression that the operators' names match")
    parser.add_argument("--types", default="float32,int64,bool", help="data types, separated by commas")
    parser.add_argument("--samples", type=int, default=2, help="the largest number of samples for operator and type")
    chosen = parser.parse_args(arguments)
    counts = Counter[str]()
    for info in op_db:
        name = ".".join(filter(None, (info.name, info.variant_test_name)))
        if not re.search(chosen.pattern, name) or RANDOM.search(name):
            continue
        for kind in chosen.types.split(","):
            dtype = getattr(torch, kind)
            for sample in samples(info, dtype, chosen.samples) if info.supports_dtype(dtype, "cpu") else ():
                outcome = outcome_of(sample, TOLERANCES.get(kind, 1e-4))
                counts[outcome.status] += 1
                if outcome.status not in {"agrees", "skipped"}:
                    print(f"{name} ({kind}) {outcome.status}: {outcome.reason}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return 1 if counts["differs"] or counts["error"] else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
