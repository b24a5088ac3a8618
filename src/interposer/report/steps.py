"""Which layers of a compiled part run in the same step, if a backend measured its steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from interposer.report.facts import Facts

__all__ = ["fused_layers", "leading_layers"]


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
    unit = _Unit(facts, layers, measured)
    return {name: unit.leader(name) for name in layers}


def fused_layers(facts: Facts, layers: Sequence[str], measured: Collection[str]) -> dict[str, str]:
    """Return the layer after which a step is named for each layer that this step surely computes too.

    It is for backends that also have steps with names of their own, in which layers without a step may be computed. A
    step surely computes the pointwise layers that follow the layer that it is named after, as an activation follows a
    convolution. If it is named after a pointwise layer, as a step is that was fused up to a sum, it also computes the
    layers before that whose results only this layer takes, directly or through other pointwise layers.

    Args:
        facts: has the layers with the producers of their inputs.
        layers: the names of the layers of one running layer, in running order.
        measured: the names of those after which a step is named.
    """
    unit = _Unit(facts, layers, measured)
    leaders = {name: unit.measured_before(name) or unit.measured_after(name) for name in layers}
    return {name: leader for name, leader in leaders.items() if leader is not None}


class _Unit:
    """The layers of one running layer, with their neighbours in it; some are those after which steps are named."""

    def __init__(self, facts: Facts, layers: Sequence[str], measured: Collection[str]) -> None:
        self._facts, self._measured = facts, measured
        self._order = {name: number for number, name in enumerate(layers)}
        self._producers = {name: self._producers_of(name) for name in layers}
        self._consumers = {
            name: [reader for reader in facts.readers.get(name, ()) if reader in self._order] for name in layers
        }

    def _producers_of(self, name: str) -> list[str]:
        """Return the names of the layers of the unit that compute inputs of a layer, the last one first."""
        layer_facts = self._facts.layers.get(name)
        inputs = () if layer_facts is None else layer_facts.inputs
        names = dict.fromkeys(tensor.layer for tensor in inputs if tensor.layer in self._order)
        return sorted(names, key=lambda producer: self._order[producer], reverse=True)

    def leader(self, name: str) -> str:
        """Return the layer after which the step of a layer is named, or the one of the nearest step."""
        first_layer = self._first_of_chain(name)
        if first_layer in self._measured:
            return first_layer
        layers_after = self._reached(first_layer, self._consumers)
        layers_before = self._reached(name, self._producers)
        if layers_after:
            return min(layers_after, key=lambda reached: self._order[reached])
        if layers_before:
            return max(layers_before, key=lambda reached: self._order[reached])
        return min(self._measured, key=lambda candidate: abs(self._order[candidate] - self._order[name]))

    def measured_before(self, name: str) -> str | None:
        """Return the measured layer that a layer is, or after which there are only pointwise layers up to it."""
        first_layer = self._first_of_chain(name)
        return first_layer if first_layer in self._measured else None

    def measured_after(self, name: str) -> str | None:
        """Return the measured layer that alone takes the results of a layer, through pointwise layers; None without."""
        last_layer = name
        while last_layer not in self._measured:
            readers = self._facts.readers.get(last_layer, ())
            if len(readers) != 1 or readers[0] not in self._order or not self._facts.layers[readers[0]].pointwise:
                return None
            last_layer = readers[0]
        return last_layer

    def _first_of_chain(self, name: str) -> str:
        """Return the layer before a chain of pointwise layers that ends with a layer, or a measured layer in it."""
        first_layer = name
        while (
            first_layer not in self._measured
            and self._facts.layers[first_layer].pointwise
            and self._producers[first_layer]
        ):
            first_layer = self._producers[first_layer][0]
        return first_layer

    def _reached(self, start: str, neighbours: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the measured layers that are reached from a layer, without going beyond measured ones."""
        return [name for name in self._walk(start, neighbours) if name in self._measured]

    def _walk(self, start: str, neighbours: Mapping[str, Sequence[str]]) -> Iterator[str]:
        stack, visited_layers = [start], {start}
        while stack:
            name = stack.pop()
            yield name
            following_layers = [] if name in self._measured else neighbours[name]
            new_layers = [neighbour for neighbour in following_layers if neighbour not in visited_layers]
            visited_layers.update(new_layers)
            stack += new_layers
