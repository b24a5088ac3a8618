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
    layer_facts = facts.layers.get(name)
    names = [tensor.layer for tensor in layer_facts.inputs if tensor.layer in order] if layer_facts is not None else []
    return sorted(dict.fromkeys(names), key=lambda producer: order[producer], reverse=True)


def _leader(
    facts: Facts,
    name: str,
    producers: Mapping[str, Sequence[str]],
    consumers: Mapping[str, Sequence[str]],
    measured: Collection[str],
    order: Mapping[str, int],
) -> str:
    first_layer = name
    while first_layer not in measured and facts.layers[first_layer].pointwise and producers[first_layer]:
        first_layer = producers[first_layer][0]
    if first_layer in measured:
        return first_layer
    layers_after = [reached for reached in _reached(first_layer, consumers, measured) if reached in measured]
    layers_before = [reached for reached in _reached(name, producers, measured) if reached in measured]
    if layers_after:
        return min(layers_after, key=lambda reached: order[reached])
    if layers_before:
        return max(layers_before, key=lambda reached: order[reached])
    return min(measured, key=lambda candidate: abs(order[candidate] - order[name]))


def _reached(start: str, neighbours: Mapping[str, Sequence[str]], measured: Collection[str]) -> Iterator[str]:
    """Yield the layers that are reached from a layer, without going beyond measured ones."""
    stack, visited_layers = [start], {start}
    while stack:
        name = stack.pop()
        yield name
        following_layers = (
            [] if name in measured else [neighbour for neighbour in neighbours[name] if neighbour not in visited_layers]
        )
        visited_layers.update(following_layers)
        stack += following_layers
