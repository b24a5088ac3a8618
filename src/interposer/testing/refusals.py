"""Detection of operators that a backend refuses as a whole, so that not every sample of them needs a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.backend import KernelSupport, Support
from interposer.core.schema import Op
from interposer.ir.subgraph import SubgraphView, is_placed_by_a_backend
from interposer.plugins.capi.running.support import DynamicSupport, Verdict
from interposer.testing.sample import Sample

__all__ = ["Refusals"]

_LAYER_TYPE: Final = 1
"""The reason code of the C interface for an unsupported type of layer."""
_PROBE_INTERVAL: Final = 16
"""The sampling interval of probes: every n-th sample of an operator, besides one for each data type."""

Reasons = tuple[str, ...]


class Refusals:
    """Detects operators that a backend does not support at all, so that not every sample of them needs a query.

    The backend is asked when the first sample of an operator is tried. It refuses an operator as a whole in three
    cases: its kernel table has no entry, a shared object reports the type of the layer as the reason, or all probes are
    refused for the same reason. Probes are one sample of each data type, and some of the others.
    """

    def __init__(self) -> None:
        self._reasons_of_op: dict[type[Op], Reasons | None] = {}
        self._first_samples: dict[type[Op], Sample] = {}
        self._seen_reasons: dict[type[Op], set[Reasons]] = {}
        self._text_of_op: dict[type[Op], str] = {}

    def of(self, sample: Sample, bench: Any) -> Reasons | None:
        """Return the reasons why a backend refuses the operator of a sample whatever its tensors and attributes are.

        None if it supports the operator in some cases. `bench` is the `Bench` of the backend.
        """
        op_class = type(sample.op)
        if op_class not in self._reasons_of_op:
            try:
                self._reasons_of_op[op_class] = _reasons_for_all(op_class, bench)
            except Exception:  # the checks of samples report the error
                self._reasons_of_op[op_class] = None
        return self._reasons_of_op[op_class]

    def is_known(self, sample: Sample) -> bool:
        """Return True if samples of the operator are refused without another query."""
        return self._reasons_of_op.get(type(sample.op)) is not None and type(sample.op) in self._first_samples

    def is_queried_twice(self, sample: Sample, reasons: Reasons) -> bool:
        """Return True if the backend is asked again after it refused this sample, to check that the verdicts are equal.

        That is the case if these reasons are new for the operator, and are its 1st, 2nd, 4th, 8th ... different ones.
        """
        distinct_reasons = self._seen_reasons.setdefault(type(sample.op), set())
        if reasons in distinct_reasons:
            return False
        distinct_reasons.add(reasons)
        return len(distinct_reasons).bit_count() == 1

    def is_first(self, sample: Sample) -> bool:
        """Return True if this is the first sample of its operator since the object was created."""
        is_first = type(sample.op) not in self._first_samples
        self._first_samples.setdefault(type(sample.op), sample)
        return is_first

    def of_operator(self, sample: Sample) -> str:
        """Return why the operator of a sample is refused as a whole; empty if it is not, or not known yet.

        The text is also empty for the operator's first sample, which is always queried, and for a refusal without a
        reason.
        """
        op_class = type(sample.op)
        if self._first_samples.get(op_class, sample) is sample:
            return ""
        if op_class not in self._text_of_op:
            reasons = self._reasons_of_op.get(op_class) or ()
            is_explained = any(text.strip() and text not in Support.no().reasons for text in reasons)
            self._text_of_op[op_class] = "; ".join(reasons) if is_explained else ""
        return self._text_of_op[op_class]


def _reasons_for_all(op_class: type[Op], bench: Any) -> Reasons | None:
    samples = bench.samples_of(op_class)
    probes = list(_probes(samples))
    support = bench.backend.layer_support(bench.settings.options)
    if type(support) is KernelSupport and op_class not in support.kernels and probes[0].op.canonical() is probes[0].op:
        return (f"no kernel for {op_class.op_name()}",)
    reasons: Reasons | None = None
    for sample in probes if len(samples) > len(probes) else ():
        graph = sample.network()[0].graph
        view = SubgraphView(graph, filter(is_placed_by_a_backend, graph))
        if not all(info.is_concrete and info.is_tensor for layer in view for info in layer.output_infos):
            continue
        [verdict] = bench.query(view)
        if isinstance(support, DynamicSupport) and not isinstance(verdict, Verdict):
            continue  # the shared object was not shown the layer
        if verdict or (reasons or verdict.reasons) != verdict.reasons:
            return None
        reasons = verdict.reasons
        if getattr(verdict, "code", 0) == _LAYER_TYPE:
            break
    return reasons


def _probes(samples: Sequence[Sample]) -> Iterator[Sample]:
    seen_types = set()
    for number, sample in enumerate(samples):
        dtype = next((operand.info.dtype for operand in sample.inputs if operand is not None), None)
        if dtype not in seen_types or number % _PROBE_INTERVAL == 0:
            yield sample
        seen_types.add(dtype)
