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
_EVERY: Final = 16
"""The sampling interval of probes: every n-th sample of an operator, besides one for each data type."""

Reasons = tuple[str, ...]


class Refusals:
    """Detects operators that a backend does not support at all, so that not every sample of them needs a query.

    The backend is asked when the first sample of an operator is tried. It refuses an operator as a whole in three
    cases: its kernel table has no entry, a shared object reports the type of the layer as the reason, or all probes are
    refused for the same reason. Probes are one sample of each data type, and some of the others.
    """

    def __init__(self) -> None:
        self._known: dict[type[Op], Reasons | None] = {}
        self._begun: dict[type[Op], Sample] = {}
        self._seen: dict[type[Op], set[Reasons]] = {}
        self._texts: dict[type[Op], str] = {}

    def of(self, sample: Sample, bench: Any) -> Reasons | None:
        """Return the reasons why a backend refuses the operator of a sample whatever its tensors and attributes are.

        None if it supports the operator in some cases. `bench` is the `Bench` of the backend.
        """
        kind = type(sample.op)
        if kind not in self._known:
            try:
                self._known[kind] = _asked(kind, bench)
            except Exception:  # the checks of samples report the error
                self._known[kind] = None
        return self._known[kind]

    def is_known(self, sample: Sample) -> bool:
        """Return True if samples of the operator are refused without another query."""
        return self._known.get(type(sample.op)) is not None and type(sample.op) in self._begun

    def is_queried_twice(self, sample: Sample, reasons: Reasons) -> bool:
        """Return True if the backend is asked again after it refused this sample, to check that the verdicts are equal.

        That is the case if these reasons are new for the operator, and are its 1st, 2nd, 4th, 8th ... different ones.
        """
        seen = self._seen.setdefault(type(sample.op), set())
        if reasons in seen:
            return False
        seen.add(reasons)
        return len(seen).bit_count() == 1

    def is_first(self, sample: Sample) -> bool:
        """Return True if this is the first sample of its operator since the object was created."""
        first = type(sample.op) not in self._begun
        self._begun.setdefault(type(sample.op), sample)
        return first

    def of_operator(self, sample: Sample) -> str:
        """Return why the operator of a sample is refused as a whole; empty if it is not, or not known yet.

        The text is also empty for the operator's first sample, which is always queried, and for a refusal without a
        reason.
        """
        kind = type(sample.op)
        if self._begun.get(kind, sample) is sample:
            return ""
        if kind not in self._texts:
            reasons = self._known.get(kind) or ()
            explained = any(text.strip() and text not in Support.no().reasons for text in reasons)
            self._texts[kind] = "; ".join(reasons) if explained else ""
        return self._texts[kind]


def _asked(kind: type[Op], bench: Any) -> Reasons | None:
    samples = bench.samples_of(kind)
    probes = list(_probes(samples))
    support = bench.backend.layer_support(bench.settings.options)
    if type(support) is KernelSupport and kind not in support.kernels and probes[0].op.canonical() is probes[0].op:
        return (f"no kernel for {kind.op_name()}",)
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
    types = set()
    for number, sample in enumerate(samples):
        dtype = next((item.info.dtype for item in sample.inputs if item is not None), None)
        if dtype not in types or number % _EVERY == 0:
            yield sample
        types.add(dtype)
