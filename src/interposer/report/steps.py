"""Which layers of a compiled part run in the same step, if a backend measured its steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from interposer.report.facts import Facts

__all__ = ["leading_layers"]


def leading_layers(facts: Facts, layers: Sequence[str], measured: Collection[str]) -> dict[str, str]:
    """Return for each layer the layer after which the step that computes it is named.

    Backends name a step after one of its layers. Another layer is assumed to be computed in the step before it if it is
    pointwise, as an activation after a convolution is, and else in the step after it, as the first convolution of a
    fused block is.

    Args:
        facts: has the layers with the producers of their inputs.
        layers: the names of the layers of one running layer, in running order.
        measured: the names of those after which a step is named; at least one.
    """
    order = {name: number for number, name in enumerate(layers)}
    producers = {name: _producers(facts, name, order) for name in layers}
    consumers: dict[str, list[str]] = {name: [] for name in layers}
    for name, before in producers.items():
        for producer in before:
            consumers[producer].append(name)
    return {name: _leader(facts, name, producers, consumers, measured, order) for name in layers}


def _producers(facts: Facts, name: str, order: Mapping[str, int]) -> list[str]:
    """Return the names of the layers that compute inputs of a layer, the last one first; only those in `order`."""
    known = facts.layers.get(name)
    names = [tensor.layer for tensor in known.inputs if tensor.layer in order] if known is not None else []
    return sorted(dict.fromkeys(names), key=lambda producer: order[producer], reverse=True)


def _leader(
    facts: Facts,
    name: str,
    producers: Mapping[str, Sequence[str]],
    consumers: Mapping[str, Sequence[str]],
    measured: Collection[str],
    order: Mapping[str, int],
) -> str:
    first = name
    while first not in measured and facts.layers[first].pointwise and producers[first]:
        first = producers[first][0]
    if first in measured:
        return first
    after = [reached for reached in _reached(first, consumers, measured) if reached in measured]
    before = [reached for reached in _reached(name, producers, measured) if reached in measured]
    if after:
        return min(after, key=lambda reached: order[reached])
    if before:
        return max(before, key=lambda reached: order[reached])
    return min(measured, key=lambda other: abs(order[other] - order[name]))


def _reached(start: str, neighbours: Mapping[str, Sequence[str]], measured: Collection[str]) -> Iterator[str]:
    """Yield the layers that are reached from a layer, without going beyond measured ones."""
    pending, seen = [start], {start}
    while pending:
        name = pending.pop()
        yield name
        following = [] if name in measured else [other for other in neighbours[name] if other not in seen]
        seen.update(following)
        pending += following
