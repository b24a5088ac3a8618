"""Location of a failure: the first layer with a wrong result, and whether the layer fails alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from interposer.core.errors import InterposerError
from interposer.ir.graph import Layer
from interposer.testing.judge.draft import Draft, Place
from interposer.testing.judge.reference import ValueArrays, all_values
from interposer.testing.judge.subject import AS_BUILT, Subject, Verdict
from interposer.testing.single_layers import layer_alone

__all__ = ["located"]

Judge = Callable[[Subject], Verdict]


def located(subject: Subject, verdict: Verdict, judge: Judge) -> str:
    """Return one or two sentences that name the first failing layer of a network; empty if no subgraph fails.

    Every subgraph that ends with one of the layers is judged, and then that layer alone.

    Args:
        subject: a network that fails as it was built.
        verdict: its failure.
        judge: a function that judges a network, in a process that may crash.
    """
    if subject.conditions.route != AS_BUILT:
        return ""
    layer = _first(subject, verdict, judge)
    if layer is None:
        return "No part of the network fails by itself."
    sentence = f"The first wrong result is that of layer {layer}."
    single_layer = _alone(subject, layer)
    if single_layer is None:
        return sentence
    is_wrong = judge(single_layer).alike(verdict)
    return (
        f"{sentence} {'It fails by itself.' if is_wrong else 'By itself it is right; only after others it is wrong.'}"
    )


def _first(subject: Subject, verdict: Verdict, judge: Judge) -> Layer | None:
    draft = Draft.of(subject.network, subject.feeds)
    for subgraph_of in (_of_one_layer, _of_all_before):
        for number, step in enumerate(draft.steps):
            if step.computes and _fails(subject, verdict, judge, subgraph_of(draft, number)):
                return subject.network.graph.layer(step.name)
    return None


def _of_one_layer(draft: Draft, number: int) -> Draft:
    """Return the subgraph that computes the results of the step with this number, which are its outputs."""
    places = tuple(Place(number, result) for result in range(len(draft.steps[number].quantizations)))
    return replace(draft, outputs=places).needed()


def _of_all_before(draft: Draft, number: int) -> Draft:
    """Return the draft without the steps after the one with this number.

    Its outputs are those of the draft's outputs that are left, and all results that no step reads any more.
    """
    steps = draft.steps[: number + 1]
    read_places = {place for step in steps for place in step.inputs}
    result_places = (
        Place(index_of_step, index)
        for index_of_step, step in enumerate(steps)
        for index in range(len(step.quantizations))
    )
    open_results = tuple(
        place
        for place in result_places
        if place in draft.outputs or (place not in read_places and steps[place.step].computes)
    )
    return replace(draft, steps=steps, outputs=open_results).needed()


def _fails(subject: Subject, verdict: Verdict, judge: Judge, draft: Draft) -> bool:
    try:
        network, feeds = draft.built()
    except (InterposerError, ValueError):
        return False
    return judge(replace(subject, network=network, feeds=feeds)).alike(verdict)


def _alone(subject: Subject, layer: Layer) -> Subject | None:
    try:
        values: ValueArrays = all_values(subject.network.graph, subject.feeds)
    except InterposerError:
        return None
    network, feeds = layer_alone(layer, values)
    return replace(subject, network=network, feeds=feeds)
