"""`coverage_of`: the operators and data types that a backend without a table of kernels takes, found by asking it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from interposer.backend import Backend
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import DataType, TensorInfo
from interposer.testing.bench import view_of
from interposer.testing.known_samples import sampled_ops, samples_of
from interposer.testing.sample import Sample

__all__ = ["Coverage", "coverage_of"]


@dataclass
class Coverage:
    """The samples of one operator that a backend takes, of those whose main tensor is quantized, or is not.

    The main tensor is the first operand, or the first result of an operator without operands. `types` are the types of
    the main tensors of the samples that are taken.
    """

    op: type[Op]
    quantized: bool
    taken: int = 0
    asked: int = 0
    types: set[DataType] = field(default_factory=set)

    def add(self, dtype: DataType, is_taken: bool) -> None:
        """Count the answer for a sample whose main tensor has this type."""
        self.asked += 1
        self.taken += is_taken
        if is_taken:
            self.types.add(dtype)


def coverage_of(backend: Backend, report: Callable[[str, int, int], None] | None = None) -> list[Coverage]:
    """Ask a backend about all samples of the conformance kit; return what it takes, in the order of operator names.

    Operators of which the backend takes no sample are left out. `report` is called with the name of an operator, the
    number of operators that were asked about, and the number of all; at the end with "all operators".
    """
    ops = sorted(sampled_ops(), key=lambda op: op.op_name())
    coverages: list[Coverage] = []
    for position, op in enumerate(ops, 1):
        coverages += _coverages(backend, op)
        if report is not None:
            report(op.op_name() if position < len(ops) else "all operators", position, len(ops))
    return coverages


def _coverages(backend: Backend, op: type[Op]) -> Iterator[Coverage]:
    groups = {is_quantized: Coverage(op, is_quantized) for is_quantized in (False, True)}
    for sample in samples_of(op):
        view = view_of(sample.network()[0].graph)
        main = _main(sample, next(iter(view)).output_infos)
        verdicts = backend.layer_support({}).query(view)
        groups[main.quantization is not None].add(main.dtype, all(verdicts))
    return (group for group in groups.values() if group.taken)


def _main(sample: Sample, results: tuple[TensorInfo, ...]) -> TensorInfo:
    operands = [operand.info for operand in sample.inputs if operand is not None]
    return [*operands, *results][0]
