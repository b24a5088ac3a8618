"""Comparison with installed inference engines, for networks on which a backend and the reference disagree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import InterposerError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.ir.graph import binding_id
from interposer.session import default_runtime
from interposer.testing.judge.reference import all_values, computing_layers
from interposer.testing.judge.seat import Seat
from interposer.testing.judge.serving import Task, Workplace
from interposer.testing.judge.subject import AS_BUILT, Conditions, Sort, Subject, Verdict
from interposer.testing.judge.workers import Lost

__all__ = ["REFERENCE", "installed_engines", "opinions"]

REFERENCE: Final = "CpuRef"
"""The name of the reference kernels in a report: the id of their backend."""


def installed_engines(without: Collection[str] = ()) -> tuple[str, ...]:
    """Return the ids of the installed engines (backends that run only if a caller names them) except `without`."""
    registry = default_runtime().registry
    available_names = (name for name in registry.available() if registry.get(name).capabilities.has("OnlyByName"))
    return tuple(name for name in available_names if name not in without)


def opinions(
    subject: Subject, verdict: Verdict, ids: Sequence[str], names: Sequence[str], do: Callable[[Task], Any]
) -> tuple[str, ...]:
    """Run a network on installed engines; return sentences that say with which result each engine agrees.

    Args:
        subject: a network, as built, on which the backend differs from the reference.
        verdict: the difference.
        ids: the ids of the backends under test that were used.
        names: the ids of the engines.
        do: a function that runs a task in a worker process and returns its result.
    """
    if verdict.sort is not Sort.DIFFERENCE or subject.conditions.route != AS_BUILT:
        return ()
    return tuple(_sentences(verdict.culprit, {name: _asked(subject, name, ids, do) for name in names}))


def _asked(subject: Subject, name: str, ids: Sequence[str], do: Callable[[Task], Any]) -> _Opinion:
    try:
        opinion: _Opinion = do(_Ask(subject, name, tuple(ids)))
    except Lost as lost:
        return _Opinion(failed=lost.text.partition(";")[0])
    return opinion


@dataclass(frozen=True)
class _Opinion:
    """Whether an engine's results agree with the reference or with the backend under test.

    Only elements in which these two differ are counted: `with_reference` of `total` are nearer to the reference, and
    `with_backend` nearer to the backend. `failed` says why the engine has no result. `part` says how many layers the
    engine runs, unless it runs all.
    """

    with_reference: int = 0
    with_backend: int = 0
    total: int = 0
    part: str = ""
    failed: str = ""


def _sentences(backend: str, opinions: Mapping[str, _Opinion]) -> Iterator[str]:
    with_result = {name: opinion for name, opinion in opinions.items() if opinion.total}
    for side, other_side, num_agreeing in (
        (
            REFERENCE,
            backend,
            [name for name, opinion in with_result.items() if opinion.with_reference == opinion.total],
        ),
        (backend, REFERENCE, [name for name, opinion in with_result.items() if opinion.with_backend == opinion.total]),
    ):
        if num_agreeing:
            names = [f"{name}{with_result[name].part}" for name in num_agreeing]
            yield f"{_listed([side, *names])} agree; {other_side} differs."
    for name, opinion in with_result.items():
        if opinion.total not in (opinion.with_reference, opinion.with_backend):
            yield (
                f"{name}{opinion.part} is nearer to {REFERENCE} in {opinion.with_reference} of {opinion.total} "
                "elements, "
                f"and nearer to {backend} in {opinion.with_backend}."
            )
    yield from (f"{name} cannot be asked: {opinion.failed}." for name, opinion in opinions.items() if opinion.failed)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]])


@dataclass(frozen=True, eq=False)
class _Ask:
    """A task that runs a network on an engine and on the backends `ids`, and compares the results."""

    subject: Subject
    engine: str
    ids: tuple[str, ...]

    def results(self, workplace: Workplace) -> Iterator[_Opinion]:
        """Yield one result: the `_Opinion` of the engine."""
        try:
            yield self._opinion(workplace.seat)
        except InterposerError as error:
            yield _Opinion(failed=type(error).__name__)

    def _opinion(self, seat: Seat) -> _Opinion:
        network, feeds = self.subject.network, self.subject.feeds
        engine = Seat([default_runtime().registry.get(self.engine)])
        engine_run = engine.run(network, feeds, Conditions(rewrite=False), engine.ids)
        if not engine_run.taken:
            return _Opinion()
        values = all_values(network.graph, feeds)
        under_test = seat.run(network, feeds, self.subject.conditions, self.ids).outputs
        num_near, num_far, num_elements = 0, 0, 0
        for layer in network.graph.outputs:
            number, expected = binding_id(layer), values[layer.values[0]]
            counts = _nearer(engine_run.outputs[number], expected, under_test[number])
            num_near, num_far, num_elements = (num_near + counts[0], num_far + counts[1], num_elements + counts[2])
        layers = len(computing_layers(network.graph))
        share = "" if engine_run.taken >= layers else f" (for {engine_run.taken} of {layers} layers)"
        return _Opinion(num_near, num_far, num_elements, share)


def _nearer(array: Array, reference: Array, backend: Array) -> tuple[int, int, int]:
    """Return three counts: elements nearer to the reference, elements nearer to the backend, and all compared ones.

    Only elements in which the reference and the backend clearly differ are compared.
    """
    if not array.shape == reference.shape == backend.shape or array.dtype == object:
        return 0, 0, 0
    difference = _distance(reference, backend)
    is_compared = difference > 1e-3 * difference.max(initial=0.0)  # rounding errors beside the differences say nothing
    to_reference, to_backend = _distance(array, reference), _distance(array, backend)
    return tuple(
        int(np.count_nonzero(is_nearer & is_compared))
        for is_nearer in (to_reference < to_backend, to_backend < to_reference, is_compared)
    )  # type: ignore[return-value]


def _distance(array: Array, other_array: Array) -> Array:
    """Return the absolute differences of elements: 0 if both are NaN or equal, and infinity if only one is NaN."""
    with np.errstate(all="ignore"):
        a, b = array.astype(np.float64), other_array.astype(np.float64)
        distance = np.where(a == b, 0.0, np.abs(a - b))
        return np.where(np.isnan(a) & np.isnan(b), 0.0, np.where(np.isnan(distance), np.inf, distance))
