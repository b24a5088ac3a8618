"""Optimization of a part by a plug-in, into compiled units, replacements and rejected layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interposer.backend.allocator import CustomAllocator
from interposer.backend.views import Failure, OptimizationViews, Substitution
from interposer.core.errors import BackendContractError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.subgraph import SubgraphView, quotient_is_acyclic, select
from interposer.ops.control import Output, PreCompiled
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.located import faulty_layer
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable
from interposer.plugins.capi.running.answers import Replacement, optimized
from interposer.plugins.capi.running.compiling import compile_part
from interposer.plugins.capi.running.support import ask

__all__ = ["Optimizer", "flat_view"]

MOST_NAMES: Final = 8
"""How many layers a warning names."""


def flat_view(library: Library, view: SubgraphView) -> FlatGraph:
    """Return the layers of a view as the tables that the plug-in reads."""
    return FlatGraph.of(view, **library.table_rules)


class Optimizer:
    """One call of `optimize_subgraph`: it lets a plug-in optimize a view, and compiles the result."""

    def __init__(
        self,
        library: Library,
        view: SubgraphView,
        options: OptionTable,
        owner: object = None,
        allocator: CustomAllocator | None = None,
    ) -> None:
        self._library, self._view, self._options, self._owner = library, view, options, owner
        self._allocator = allocator
        self._substitutions: list[Substitution] = []
        self._failures: list[Failure] = []

    def views(self) -> OptimizationViews:
        """Return the result: what the plug-in compiled or replaced, and what it rejected.

        Raises:
            BackendContractError: the answer is not valid.
            CallError: the plug-in failed.
        """
        waiting_parts = [self._view]
        while waiting_parts:
            part = waiting_parts.pop()
            refused_layers = self._library.withholding.problems(part)
            flat_graph = None if refused_layers else flat_view(self._library, part)
            if flat_graph is not None:
                refused_layers = self._refused(flat_graph)
            if refused_layers or flat_graph is None:
                self._record_failures(part, refused_layers)
                waiting_parts += self._divided(layer for layer in part if layer not in refused_layers)
            elif "optimize" in self._library.functions:
                waiting_parts += self._optimize(part, flat_graph)
            else:
                waiting_parts += self._compile(part, flat_graph)
        return OptimizationViews(self._view, substitutions=self._substitutions, failed=self._failures)

    def _refused(self, flat_graph: FlatGraph) -> dict[Layer, str]:
        """Return the layers of a part that the plug-in does not support in it, with the reasons as text.

        The plug-in is asked about the part alone, so layers are found that it supports only together with missing
        layers.
        """
        verdicts = ask(self._library, flat_graph, self._options)
        return {
            layer: "; ".join(verdict.reasons)
            for layer, verdict in zip(flat_graph.layers, verdicts, strict=True)
            if not verdict
        }

    def _record_failures(self, part: SubgraphView, reasons: dict[Layer, str]) -> None:
        for reason in dict.fromkeys(reasons.values()):
            layers = [layer for layer in reasons if reasons[layer] == reason]
            self._failures.append(Failure(part.part(layers), reason))

    def _divided(self, layers: Iterable[Layer]) -> list[SubgraphView]:
        """Group layers that are not compiled yet into connected, convex parts of the view's graph."""
        remaining_guids = {layer.guid for layer in layers}
        return (
            select(self._view.graph, lambda layer: True if layer.guid in remaining_guids else None)
            if remaining_guids
            else []
        )

    def _compile(self, part: SubgraphView, flat_graph: FlatGraph) -> list[SubgraphView]:
        """Compile a part, whose tables are `flat_graph`, as one unit, and record the result.

        If the plug-in reports a layer that it cannot compile, this layer is recorded as failed. The other layers are
        returned as connected parts, which the caller tries again.
        """
        try:
            executable = compile_part(self._library, flat_graph, self._options, self._owner, self._allocator)
        except CallError as error:
            failed_layer = faulty_layer(flat_graph, error) if error.status == abi.UNSUPPORTED else None
            failed_part = part if failed_layer is None else part.part([failed_layer])
            if error.status != abi.UNSUPPORTED:
                self._warn(failed_part, error)
            self._failures.append(Failure(failed_part, error.reason))
            return self._divided(layer for layer in part if layer not in failed_part)
        unit = PreCompiled(num_outputs=len(part.outputs), object=executable)
        self._substitutions.append(Substitution(part, unit))
        return []

    def _warn(self, part: SubgraphView, error: CallError) -> None:
        """Log that the plug-in failed for layers that it supports, which then run on other backends."""
        names = [layer.name for layer in part]
        names_text = ", ".join(names[:MOST_NAMES]) + (
            f" and {len(names) - MOST_NAMES} more" if names[MOST_NAMES:] else ""
        )
        self._library.log.warning("backend %s could not compile %s: %s", self._library.id, names_text, error.reason)

    def _optimize(self, part: SubgraphView, flat_graph: FlatGraph) -> list[SubgraphView]:
        answer = optimized(self._library, flat_graph, self._options)
        groups = [*answer.units, *(layers for layers, _ in answer.replaced)]
        if not quotient_is_acyclic(part, groups):
            raise BackendContractError(
                "optimize gave substitutions that depend on each other in a cycle", backend=self._library.id
            )
        self._failures += [Failure(part.part(layers), reason) for layers, reason in answer.failed]
        for layers, replacement in answer.replaced:
            self._substitutions.append(self._substitution(part.part(layers), replacement))
        units = [part.part(layers) for layers in answer.units]
        return [uncompiled for unit in units for uncompiled in self._compile(unit, flat_view(self._library, unit))]

    def _substitution(self, part: SubgraphView, replacement: Replacement) -> Substitution:
        if set(replacement.outputs) != set(part.outputs):
            expected_names, given_names = (_names(values) for values in (part.outputs, replacement.outputs))
            raise BackendContractError(
                f"optimize gave a replacement for the tensors {given_names}; "
                f"those that leave the part are {expected_names}",
                backend=self._library.id,
            )
        _sort_outputs(replacement.graph, [replacement.outputs.index(value) for value in part.outputs])
        return Substitution(part, replacement.graph, replacement.inputs)


def _sort_outputs(graph: Graph, order: Sequence[int]) -> None:
    """Renumber the outputs of a graph, so that the output with number ``order[0]`` becomes the first one, and so on."""
    sources = [layer.values[0] for layer in graph.outputs]
    for layer in graph.outputs:
        graph.erase(layer)
    for binding, number in enumerate(order):
        graph.add(Output(binding), [sources[number]])


def _names(values: Iterable[Value]) -> str:
    return ", ".join(repr(value.name) for value in values) or "none"
