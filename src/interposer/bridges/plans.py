"""Plans for networks of hosts: a plan names nodes, and the layers of a part have the labels of nodes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.ir.graph import Graph
from interposer.runtime import Runtime
from interposer.session.placement.origin import made_with
from interposer.session.placement.plan import TYPE, Plan

__all__ = ["PartPlan", "log_differences", "part_plan"]

_log: Final = logging.getLogger("interposer.bridges")
_LABELED: Final = re.compile(r"n(\d+)(?!\d)")


@dataclass(frozen=True)
class PartPlan(Plan):
    """A plan for a network, which is applied to parts of it.

    `titles` has the names of each node under which the plan may have it; the names of the layers of a part begin with
    the label of their node.
    """

    titles: tuple[tuple[str, ...], ...] = ()

    def hints(self, graph: Graph) -> dict[str, str]:
        """Return the backend id of each layer of a part for which the plan has an entry, by the name of the layer."""
        names = {layer.name: self._names(layer.name) for layer in graph}
        hints = self.hints_by_name({name: layer.kind for layer in graph for name in names[layer.name]})
        return {
            layer: hints[name] for layer, of_layer in names.items() for name in self._by_precedence(of_layer, hints)
        }

    def _by_precedence(self, names: Sequence[str], hints: Mapping[str, str]) -> list[str]:
        """Return the names of one layer that have a hint, so that the last one decides: an entry that is a name."""
        return sorted((name for name in reversed(names) if name in hints), key=self.layers.__contains__)

    def _names(self, layer: str) -> list[str]:
        label = _LABELED.match(layer)
        if label is None:
            return [layer]
        return [title + layer[label.end() :] for title in self.titles[int(label[1])]]

    def differences(self, graph: Graph, made_with: Mapping[str, Any], available: tuple[str, ...]) -> Iterator[str]:
        """Yield nothing: `log_differences` compares the plan with the whole network."""
        return iter(())


def part_plan(plan: Plan, titles: Sequence[tuple[str, ...]], backends: Sequence[str]) -> PartPlan:
    """Return a plan for the parts of a network whose nodes have these names; layers run on one of `backends`."""
    facts = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    return replace(PartPlan(**facts), backends=tuple(backends), titles=tuple(titles))


def log_differences(plan: Plan, titles: Sequence[tuple[str, ...]], runtime: Runtime) -> None:
    """Log why a plan may not hold for a network whose nodes have these names, in this environment."""
    available_backends = runtime.registry.available()
    kinds = {title: "" for of_node in titles for title in of_node}
    named_layers = {name: backend for name, backend in plan.layers.items() if not name.startswith(TYPE)}
    changes = plan.changes(made_with(runtime, plan.backends), available_backends)
    for difference in (*replace(plan, layers=named_layers).unused(kinds), *changes):
        _log.warning("the plan for %r: %s", plan.network, difference)
