"""Judging of one network: comparison of the backends' results with those of the reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from interposer.core.errors import InterposerError
from interposer.core.types import Array
from interposer.ir.graph import Graph, Value, binding_id
from interposer.ir.network import Network
from interposer.testing.judge.reference import ValueArrays, all_values, computing_layers
from interposer.testing.judge.routes import Route, bound_again, through
from interposer.testing.judge.seat import Ran, Seat
from interposer.testing.judge.spread import Spread, inexact_values, spreads
from interposer.testing.judge.subject import AS_BUILT, Conditions, Outcome, Sort, Subject, Verdict
from interposer.testing.single_layers import layer_alone
from interposer.testing.tolerances import Tolerances

__all__ = ["INTERPOSER", "Comparison", "culprit", "judge", "judged_without_culprit"]

INTERPOSER: Final = "Interposer"
"""The culprit of a failure that occurs without any of the backends under test."""

Feeds = Mapping[int, Array]


def judge(seat: Seat, subject: Subject, ids: Sequence[str] | None = None) -> Verdict:
    """Judge a network under the subject's conditions.

    A failure is repeated with fewer backends to determine the culprit.

    Args:
        seat: the backends.
        subject: the network, its inputs and conditions.
        ids: the backends to use, in order of preference; None means all of the seat.
    """
    ids = seat.ids if ids is None else ids
    verdict = judged_without_culprit(seat, subject, ids)
    if not verdict.is_finding or verdict.culprit:
        return verdict
    return verdict.blaming(culprit(verdict, ids, lambda fewer: judged_without_culprit(seat, subject, fewer)))


def culprit(verdict: Verdict, ids: Sequence[str], judged: Callable[[Sequence[str]], Verdict]) -> str:
    """Return the culprit: "Interposer" if the failure occurs without any backend, or a backend that fails alone.

    Args:
        verdict: the failure, with all backends.
        ids: the ids of these backends.
        judged: a function that judges the same network with fewer backends.
    """
    if judged(()).alike(verdict):
        return INTERPOSER
    if len(ids) == 1:
        return ids[0]
    culprits = (backend_id for backend_id in ids if judged((backend_id,)).alike(verdict))
    return next(culprits, " and ".join(ids))


def judged_without_culprit(seat: Seat, subject: Subject, ids: Sequence[str]) -> Verdict:
    conditions = subject.conditions
    if conditions.route == AS_BUILT:
        return _as_built(seat, subject.network, subject.feeds, conditions, ids)
    route = Route(conditions.route)
    try:
        imported_network = through(route, subject.network)
    except InterposerError as error:
        message = f"what was written as {route.value} cannot be read: {error}"
        return Verdict(Outcome.FINDING, conditions, Sort.TRANSLATION, message, INTERPOSER)
    if isinstance(imported_network, str):
        return Verdict(Outcome.UNWRITABLE, conditions, text=imported_network)
    feeds = bound_again(subject.network, imported_network, subject.feeds)
    if isinstance(feeds, str):
        return Verdict(Outcome.UNWRITABLE, conditions, text=feeds)
    is_exact = route.is_exact(subject.network)
    problem = _translation_problem(seat, subject, imported_network, feeds) if is_exact else ""
    if problem:
        return Verdict(Outcome.FINDING, conditions, Sort.TRANSLATION, problem, INTERPOSER)
    return _as_built(seat, imported_network, feeds, conditions, ids)


def _translation_problem(seat: Seat, subject: Subject, imported_network: Network, feeds: Feeds) -> str:
    """Return how a network that was written as a model and imported again differs from the original.

    Empty if it does not. The reference kernels run both. `feeds` are the inputs of the imported network by binding id.
    """
    try:
        original_values = seat.reference_values(subject.network, subject.feeds)
    except InterposerError:
        return ""
    try:
        imported_values = seat.reference_values(imported_network, feeds)
    except InterposerError as error:
        return f"the reference cannot run what was read back: {error}"
    comparison = Comparison(subject.network.graph, subject.feeds, original_values, seat.tolerances)
    outputs = [binding_id(layer) for layer in subject.network.graph.outputs]
    arrays = [imported_values[layer.values[0]] for layer in imported_network.graph.outputs]
    return comparison.problems(dict(zip(outputs, arrays, strict=True)))


def _as_built(seat: Seat, network: Network, feeds: Feeds, conditions: Conditions, ids: Sequence[str]) -> Verdict:
    try:
        reference_values = None if _is_random(network.graph) else seat.reference_values(network, feeds)
    except InterposerError:
        reference_values = None
    try:
        run_result = seat.run(network, feeds, conditions, ids, always=not ids)
    except MemoryError as error:
        return Verdict(Outcome.FINDING, conditions, Sort.MEMORY, f"out of memory: {error}")
    except Exception as error:
        return _failed(conditions, error, reference_values)
    if not run_result.taken and ids:
        return Verdict(Outcome.LEFT, conditions)
    if run_result.overwritten:
        message = f"it writes to the arrays of its {run_result.overwritten}"
        return Verdict(Outcome.FINDING, conditions, Sort.INPUTS, message)
    if run_result.values:
        return Verdict(Outcome.FINDING, conditions, Sort.VALUES, run_result.values)
    if reference_values is None:
        return Verdict(Outcome.UNJUDGED, conditions)
    return _compared(seat, network, feeds, conditions, ids, reference_values, run_result)


def _failed(conditions: Conditions, error: Exception, reference_values: ValueArrays | None) -> Verdict:
    error_text = f"{type(error).__name__}: {error}"
    if _is_out_of_memory(error):
        return Verdict(Outcome.FINDING, conditions, Sort.MEMORY, error_text)
    if reference_values is None and isinstance(error, InterposerError):
        return Verdict(Outcome.UNJUDGED, conditions, text=error_text)
    return Verdict(Outcome.FINDING, conditions, Sort.ERROR, error_text)


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "MemoryError" in str(error) or "bad_alloc" in str(error):
            return True
        error = error.__cause__
    return False


def _is_random(graph: Graph) -> bool:
    return any(not layer.op.pure or any(map(_is_random, layer.regions)) for layer in computing_layers(graph))


def _compared(
    seat: Seat,
    network: Network,
    feeds: Feeds,
    conditions: Conditions,
    ids: Sequence[str],
    reference_values: ValueArrays,
    ran: Ran,
) -> Verdict:
    graph = network.graph
    if conditions.integers and conditions.rewrite:
        graph = seat.simplified(network, conditions, ids).graph
        reference_values = all_values(graph, feeds)
    comparison = Comparison(graph, feeds, reference_values, seat.tolerances)
    if comparison.is_near(ran.outputs):
        outcome = Outcome.PASS
    elif errors := comparison.problems(ran.outputs):
        return Verdict(Outcome.FINDING, conditions, Sort.DIFFERENCE, errors, gross=comparison.is_gross(ran.outputs))
    else:
        outcome = Outcome.EXPLAINED
    if not ran.stable:
        message = "a second run on the same inputs gives something else, though the backend calls itself deterministic"
        return Verdict(Outcome.FINDING, conditions, Sort.UNSTABLE, message)
    if outcome is Outcome.EXPLAINED and (error := _layer_problem(seat, network, feeds, conditions, ids)):
        return Verdict(Outcome.FINDING, conditions, Sort.DIFFERENCE, error)
    return Verdict(outcome, conditions)


# --- comparison -------------------------------------------------------------------------------------------------------


class Comparison:
    """Compares the results of a network with those of the reference kernels.

    Args:
        graph: the network's graph.
        feeds: the arrays of its inputs by binding id.
        reference_values: every value of the network as the reference computes it.
        tolerances: the allowed differences of one layer's results.
        rounded_feeds: whether float inputs were rounded when they were stored, and may differ by that error.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Feeds,
        reference_values: ValueArrays,
        tolerances: Tolerances,
        *,
        rounded_feeds: bool = False,
    ) -> None:
        self.graph, self.feeds, self.tolerances = graph, feeds, tolerances
        self.reference_values = reference_values
        self.rounded_feeds = rounded_feeds
        self._spreads: dict[Value, Spread] | None = None

    def is_near(self, feeds: Feeds) -> bool:
        """Return True if the outputs `feeds` are within a single layer's tolerances, so that no more checks are needed.

        If all layers that a result depends on are exact, the result must be exact too.
        """
        inexact, exact_tolerances = inexact_values(self.graph, self.tolerances), self.tolerances.exact(bits=False)
        for layer in self.graph.outputs:
            value = layer.values[0]
            tolerances = self.tolerances if value in inexact else exact_tolerances
            if not tolerances.is_near(feeds[binding_id(layer)], self.reference_values[value], value.known):
                return False
        return True

    def is_gross(self, feeds: Feeds) -> bool:
        """Return True if the outputs `feeds` are wrong even if every quantized result may be one step off."""
        wider_tolerances = Tolerances(self.tolerances.floats, max(1, self.tolerances.steps))
        return bool(Comparison(self.graph, self.feeds, self.reference_values, wider_tolerances).problems(feeds))

    def spread(self, value: Value) -> Spread:
        """Return the allowed range of a value, which is estimated on first use."""
        if self._spreads is None:
            self._spreads = spreads(
                self.graph, self.feeds, self.reference_values, self.tolerances, rounded_feeds=self.rounded_feeds
            )
        return self._spreads[value]

    def problems(self, feeds: Feeds) -> str:
        """Return which of the outputs `feeds`, by binding id, are outside of their allowed range, a line each.

        Empty if none.
        """
        if self.is_near(feeds):
            return ""
        return "\n".join(self._problems(feeds))

    def _problems(self, feeds: Feeds) -> Iterator[str]:
        for layer in self.graph.outputs:
            number = binding_id(layer)
            error = described(feeds[number], self.spread(layer.values[0]))
            yield from [f"output {number}: {error}"] if error else []


def described(array: Array, spread: Spread) -> str:
    """Describe how many elements of a result are outside of the allowed range `spread`, with an example and a hint.

    Empty if there are none.
    """
    is_wrong = spread.wrong(array)
    if isinstance(is_wrong, str):
        return is_wrong
    count, expected = int(np.count_nonzero(is_wrong)), spread.reference
    if not count:
        return ""
    first_wrong = tuple(int(index) for index in np.argwhere(is_wrong)[0])
    description = f"{count} of {array.size} elements differ, the first at {list(first_wrong)}: {array[first_wrong]}"
    if expected.shape != array.shape:
        return description
    explanation = spread.tolerances.difference(array, expected, spread.info) or ""
    cause = explanation.partition("; hint: ")[2]
    return f"{description} instead of {expected[first_wrong]}{f'; hint: {cause}' if cause else ''}"


# --- the second look --------------------------------------------------------------------------------------------------


def _layer_problem(seat: Seat, network: Network, feeds: Feeds, conditions: Conditions, ids: Sequence[str]) -> str:
    """Return which layer of a failing network is wrong, given the operands that the backends computed.

    Empty if none is. The network runs on the backends `ids` with every value as an output. The reference then evaluates
    each layer on these values.
    """
    with_outputs, output_numbers = with_all_outputs(network)
    try:
        run_result = seat.run(with_outputs, feeds, replace(conditions, integers=False), ids)
    except InterposerError:
        return ""
    if not run_result.taken:
        return ""
    for layer in computing_layers(with_outputs.graph):
        error = _own_problem(seat, with_outputs.graph, layer.name, run_result.outputs, output_numbers)
        if error:
            return f"layer {layer}, on the operands that it was given: {error}"
    return ""


def with_all_outputs(network: Network) -> tuple[Network, dict[tuple[str, int], int]]:
    """Return a copy of a network in which every value is an output, and the binding ids of all these outputs.

    The binding ids are keyed by the layer's name and the index among its results.
    """
    with_outputs = Network(network.name, network.graph.clone())
    output_ids = ((layer.values[0], binding_id(layer)) for layer in with_outputs.graph.outputs)
    id_of_result = {(value.producer.name, value.index): number for value, number in output_ids}
    next_id = max((binding_id(layer) for layer in with_outputs.graph.outputs), default=-1) + 1
    for layer in with_outputs.graph.topological():
        for value in layer.outputs:
            if (layer.name, value.index) not in id_of_result:
                with_outputs.add_output_layer(next_id, value)
                id_of_result[layer.name, value.index] = next_id
                next_id += 1
    return with_outputs, id_of_result


def _own_problem(
    seat: Seat, graph: Graph, name: str, outputs: Feeds, output_numbers: Mapping[tuple[str, int], int]
) -> str:
    layer = graph.layer(name)
    operands = {value: outputs[output_numbers[value.producer.name, value.index]] for value in layer.values}
    single_layer, feeds = layer_alone(layer, operands)
    try:
        reference_values = all_values(single_layer.graph, feeds)
    except InterposerError:
        return ""
    results = {value.index: outputs[output_numbers[name, value.index]] for value in layer.outputs}
    return Comparison(single_layer.graph, feeds, reference_values, seat.tolerances, rounded_feeds=True).problems(
        results
    )
