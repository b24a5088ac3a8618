"""Which nodes of a host's graph a bridge takes, and in which groups.

A node is *taken* if a backend of the user runs all its layers. Everything else is left to the host. Taken nodes form
*groups* that the host can run as one node each: no path from a group leads through a node of the host back to it. A
group is compiled before it is claimed, since a host does not take back a claimed group that fails to compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import partial
from time import perf_counter
from typing import Final, Protocol, TypeAlias

from interposer.bridges.options import REFERENCE, BridgeOptions
from interposer.bridges.plans import log_differences, part_plan
from interposer.bridges.warnings import unexpected, warn_once
from interposer.core.errors import ExecutionError, InterposerError, InvalidArgumentError, UnsupportedLayerError
from interposer.core.records import dataclass
from interposer.core.types import Dim
from interposer.frontends.template import Template
from interposer.ir.graph import Layer
from interposer.ir.network import Network
from interposer.report.estimate import operations
from interposer.report.optimized import OptimizedNetwork
from interposer.report.records import Refusal
from interposer.session import Model

__all__ = [
    "Claims",
    "Group",
    "HostGraph",
    "HostNode",
    "claims",
    "compiled",
    "convex_groups",
    "in_names_of_host",
    "label",
    "nodes_of",
]

HEAVY: Final = 16
"""The operations for each element of its results with which a layer counts as arithmetic, such as a matrix product."""
SAMPLES: Final = (2, 64, 224, 1)
"""The sizes of open dimensions with which backends are asked about nodes, in the order in which they are tried."""
_LABEL: Final = re.compile(r"(?<![\w.])n(\d+)(?!\d)")
Grouping: TypeAlias = Callable[[Set[int]], list[list[int]]]
"""A function that divides the taken nodes of a graph, by their indices, into groups."""
_COUNTED: Final = re.compile(r"^\d+ x ")


@dataclass(frozen=True, slots=True)
class HostNode:
    """A node of a host's graph.

    `name` and `kind` are those of the host, for reports. `inputs` and `outputs` are names of values, including those
    that only subgraphs of the node read; "" is an absent operand. `obstacle` says why the node must stay with the host,
    such as a text tensor; empty if it may be taken.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    obstacle: str = ""
    layer: str = ""

    @property
    def titles(self) -> tuple[str, ...]:
        """The names under which a plan may have the node."""
        return (self.name, self.layer) if self.layer else (self.name,)


class HostGraph(Protocol):
    """The graph of a host, as far as claims need it."""

    name: str

    @property
    def nodes(self) -> Sequence[HostNode]:
        """The nodes of the graph, in any order."""

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the values that the graph returns."""

    def template(self, members: Sequence[int]) -> Template:
        """Return the part of the graph that consists of these nodes, whose layers have names that begin with `label`.

        The inputs of the part are the values that its nodes read and others compute, and its outputs those that others
        read, all under the host's names.
        """


def label(index: int) -> str:
    """Return the name of the layers of the node with this index in the part of a graph."""
    return f"n{index}"


def in_names_of_host(text: str, nodes: Sequence[HostNode]) -> str:
    """Return a message with the host's names of nodes instead of labels."""
    return _LABEL.sub(lambda label: nodes[int(label[1])].name if int(label[1]) < len(nodes) else label[0], text)


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that run as one: their indices, and the compiled model.

    `seconds` is how long it took to compile. `is_dynamic` is True if shapes of inputs are open, so that the model
    compiles a network for each set of shapes; `sample` then has those with which it was tried. `compile` returns a
    model of another network with the same backends. `is_stored` is True if the model was loaded from a saved network,
    whose layers have the labels of another graph.
    """

    members: tuple[int, ...]
    model: Model
    seconds: float
    is_dynamic: bool
    optimized: OptimizedNetwork
    compile: Callable[[Network | Template], Model]
    sample: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_stored: bool = False


@dataclass(frozen=True, eq=False)
class Claims:
    """The groups of a graph, and for each node that is not taken the reasons, by index."""

    graph: HostGraph
    backends: tuple[str, ...]
    groups: tuple[Group, ...]
    reasons: Mapping[int, tuple[str, ...]]
    seconds: float


def claims(
    graph: HostGraph, options: BridgeOptions, grouped: Grouping | None = None, stored: Sequence[Group] = ()
) -> Claims:
    """Return what the backends of `options` take of a graph, compiled.

    Args:
        graph: the graph.
        options: what the user asks for.
        grouped: returns the nodes with some indices in the groups in which the host would run them; None means
            `convex_groups`.
        stored: groups that are taken in any case, of nodes with an `obstacle`.

    Raises:
        InvalidArgumentError: the option ``strict`` is set, and a node is not taken.
        InterposerError: a backend is unknown, or an option is not valid.
    """
    begin = perf_counter()
    search = _Search(graph, options, grouped or partial(convex_groups, graph.nodes))
    groups = (*stored, *search.groups())
    reasons = {
        n: node_reasons for n, node_reasons in search.reasons.items() if not any(n in group.members for group in stored)
    }
    compiled_claims = Claims(graph, options.backends, groups, reasons, perf_counter() - begin)
    if options.strict and compiled_claims.reasons:
        raise InvalidArgumentError(_not_taken(compiled_claims))
    return compiled_claims


def _not_taken(claimed: Claims) -> str:
    nodes = claimed.graph.nodes
    lines = [
        f"{nodes[n].name!r} ({nodes[n].kind}): {'; '.join(node_reasons)}"
        for n, node_reasons in sorted(claimed.reasons.items())
    ]
    return "\n  - ".join([f"the option 'strict' is set, and {len(lines)} of {len(nodes)} nodes are not taken:", *lines])


def compiled(source: Network | Template, options: BridgeOptions, nodes: Sequence[HostNode] = ()) -> Model:
    """Return a model for the backends and the plan of `options`; `nodes` are those of the graph of which it is a part.

    The reference backend completes a call if the others fail, unless the user disabled it.
    """
    runtime, backends = options.runtime(), options.backends
    if REFERENCE not in backends and runtime.registry.is_available(REFERENCE):
        backends = (*backends, REFERENCE)
    if options.plan is None:
        return Model(source, runtime, backends, options.optimizer_options())
    plan = part_plan(options.plan, [node.titles for node in nodes], backends)
    return Model(source, runtime, None, options.optimizer_options(), plan=plan)


# --- groups -----------------------------------------------------------------------------------------------------------


def convex_groups(nodes: Sequence[HostNode], claimed: Set[int]) -> list[list[int]]:
    """Return the taken nodes in groups, none of which is connected with itself through a node that is not taken.

    The level of a node is the largest number of steps from a taken to another node on a path that leads to it. The
    taken nodes of one level form a group. The nodes may be in any order.
    """
    producers = {output: index for index, node in enumerate(nodes) for output in node.outputs if output}
    producers_of_node = [{producers[name] for name in node.inputs if name in producers} for node in nodes]
    levels: dict[int, int] = {}
    for index in _topological(producers_of_node):
        steps = [
            levels[producer] + (producer in claimed and index not in claimed) for producer in producers_of_node[index]
        ]
        levels[index] = max(steps, default=0)
    groups: dict[int, list[int]] = {}
    for index in sorted(claimed):
        groups.setdefault(levels[index], []).append(index)
    return [groups[level] for level in sorted(groups)]


def _topological(predecessors: Sequence[Collection[int]]) -> list[int]:
    """Return the indices of nodes so that each follows those in its element of `predecessors`."""
    order: dict[int, None] = {}
    for root in range(len(predecessors)):
        stack = [root]
        while stack:
            waiting_nodes = [index for index in predecessors[stack[-1]] if index not in order]
            if waiting_nodes and stack[-1] not in order:
                stack += waiting_nodes
            else:
                order.setdefault(stack.pop())
    return list(order)


# --- the search -------------------------------------------------------------------------------------------------------


class _Search:
    """Finds the groups of one graph. `reasons` has the reasons against nodes that are not taken, by index."""

    def __init__(self, graph: HostGraph, options: BridgeOptions, grouping: Grouping) -> None:
        self.graph, self.options, self._grouped = graph, options, grouping
        options.optimizer_options()  # an unknown backend is an error, and no reason against nodes
        if options.plan is not None:
            log_differences(options.plan, [node.titles for node in graph.nodes], options.runtime())
        self.reasons: dict[int, tuple[str, ...]] = {
            n: (node.obstacle,) for n, node in enumerate(graph.nodes) if node.obstacle
        }
        self._heavy: set[int] = set()
        self._compiled: dict[tuple[int, ...], Group] = {}

    def groups(self) -> tuple[Group, ...]:
        """Return the groups that are worth running as one, compiled."""
        claimed_nodes = self._taken(range(len(self.graph.nodes)))
        while True:
            chosen_groups = self._worthwhile(self._grouped(claimed_nodes))
            nodes_left = {n for members in chosen_groups for n in self._taken(members)}
            if len(nodes_left) == sum(map(len, chosen_groups)):
                return self._kept([tuple(members) for members in chosen_groups])
            claimed_nodes = nodes_left

    def _kept(self, chosen_groups: Sequence[tuple[int, ...]]) -> tuple[Group, ...]:
        """Return the compiled groups of these members, and close all others."""
        for members, group in self._compiled.items():
            if members not in chosen_groups:
                group.model.close()
        return tuple(self._opened(self._compiled[members]) for members in chosen_groups)

    def _opened(self, group: Group) -> Group:
        """Return a group whose model takes all shapes, if the one that was compiled is only for a sample."""
        if not group.is_dynamic:
            return group
        group.model.close()
        return replace(group, model=self._model(self.graph.template(group.members)))

    def _taken(self, candidates: Iterable[int]) -> set[int]:
        """Return those of some nodes that the backends take, and compile them as one group."""
        members = [n for n in candidates if n not in self.reasons]
        while members and tuple(members) not in self._compiled:
            try:
                group = self._group(members)
            except InterposerError as error:
                self._refuse(members, error)
            except Exception as error:  # an error in Interposer itself must not end the host's session
                warn_once(f"{len(members)} nodes are left to the host", error)
                self._refuse(members, ExecutionError(unexpected(error)))
            else:
                self._note_layers(group)
                self._compiled[group.members] = group
            members = [n for n in members if n not in self.reasons]
        return {*members}

    def _group(self, members: Sequence[int]) -> Group:
        begin = perf_counter()
        template = self.graph.template(members)
        is_dynamic = not all(info.is_concrete for info in template.inputs.values())
        model = self._sampled(template) if is_dynamic else self._model(template.network())
        sample = {name: tuple(map(int, info.shape)) for name, info in model.inputs.items()} if is_dynamic else {}
        return Group(tuple(members), model, perf_counter() - begin, is_dynamic, model.optimized, self._model, sample)

    def _sampled(self, template: Template) -> Model:
        """Return a model for sample sizes of the open dimensions; raise the error of the first size if none works."""
        errors = []
        for size in SAMPLES:
            try:
                return self._model(template.network(shapes=_sample(template, size)))
            except InterposerError as error:
                errors.append(error)
        raise errors[0]

    def _model(self, source: Network | Template) -> Model:
        return compiled(source, self.options, self.graph.nodes)

    # --- reasons

    def _refuse(self, members: Sequence[int], error: InterposerError) -> None:
        """Record an error as the reason against the nodes that it names, or against all members if it names none."""
        lines = str(error).splitlines()
        reason_of_named = {int(n): _plain(line) for line in reversed(lines) for n in _LABEL.findall(line)}
        new_reasons = {n: text for n, text in reason_of_named.items() if n in members and n not in self.reasons}
        by_layer = _reasons_by_layer(error.refusals) if isinstance(error, UnsupportedLayerError) else {}
        backend_reasons = {n: reasons for name, reasons in by_layer.items() for n in nodes_of(name)}
        for n in new_reasons or members:
            reasons = backend_reasons.get(n) or (new_reasons.get(n, lines[0]),)
            self.reasons[n] = tuple(map(self._in_names_of_host, reasons))

    def _in_names_of_host(self, text: str) -> str:
        return in_names_of_host(text, self.graph.nodes)

    def _note_layers(self, group: Group) -> None:
        """Record the reasons against nodes of which another backend than the user's would run a layer.

        Nodes without a layer were computed from constants. If a node that is not taken needs their results, the host
        computes them too.
        """
        requested_backends, refusals = {*self.options.backends}, _reasons_by_layer(group.optimized.refusals)
        for placement in group.optimized.placements:
            reasons = refusals.get(placement.layer) or (f"only {placement.backend} would run it",)
            for n in [] if placement.backend in requested_backends else nodes_of(placement.layer, placement.replaced):
                self.reasons.setdefault(n, tuple(map(self._in_names_of_host, reasons)))
        layers = [*group.optimized.divided()]
        self._heavy |= {n for layer in layers if _is_heavy(layer) for n in nodes_of(layer.name, layer.replaced)}
        with_layers = {n for layer in layers for n in nodes_of(layer.name, layer.replaced)}
        self._leave_folded([n for n in group.members if n not in with_layers])

    def _leave_folded(self, folded_nodes: Sequence[int]) -> None:
        nodes, readers = self.graph.nodes, _readers(self.graph.nodes)
        for n in reversed(folded_nodes):
            outputs = [name for name in nodes[n].outputs if name]
            used_by = {reader for name in outputs for reader in readers.get(name, ())}
            if used_by & self.reasons.keys() or not {*outputs}.isdisjoint(self.graph.outputs):
                self.reasons.setdefault(n, ("it is computed from constants, and nodes of the host need it",))

    def _worthwhile(self, groups: list[list[int]]) -> list[list[int]]:
        """Return the groups to claim; record the reason against the nodes of the others."""
        worthwhile_groups = []
        for members in groups:
            reason = self._too_small(members)
            if reason:
                self.reasons |= {n: (reason,) for n in members}
            else:
                worthwhile_groups.append(members)
        return worthwhile_groups

    def _too_small(self, members: Sequence[int]) -> str:
        """Return the reason why a group is not worth its call, or an empty text."""
        min_nodes = self.options.min_nodes
        if min_nodes is not None:
            has_too_few = len(members) < min_nodes
            return f"its group has {_count(members)}, fewer than min-nodes={min_nodes}" if has_too_few else ""
        if len(members) == len(self.graph.nodes) or not self._heavy.isdisjoint(members):
            return ""
        return f"its group of {_count(members)} has no layer with much arithmetic; min-nodes=1 takes it"


def _plain(line: str) -> str:
    """Return a line of an error of a front end without its list mark, count, and advice that no host can follow."""
    return _COUNTED.sub("", line.strip(" -")).partition("; give ")[0]


def _count(members: Sequence[int]) -> str:
    return "1 node" if len(members) == 1 else f"{len(members)} nodes"


def _sample(template: Template, size: int) -> dict[str, tuple[int, ...]]:
    """Return a shape for each input, with `size` for each dimension that is open."""
    return {
        name: tuple(size if isinstance(dim, Dim) else dim for dim in info.shape)
        for name, info in template.inputs.items()
        if info.is_tensor and info.is_ranked
    }


def nodes_of(name: str, replaced: Iterable[str] = ()) -> set[int]:
    """Return the indices of the nodes of which a layer is, by its name and the names of layers that it replaces."""
    return {int(n) for text in (name, *replaced) for n in _LABEL.findall(text)}


def _readers(nodes: Sequence[HostNode]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for n, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, []).append(n)
    return readers


def _reasons_by_layer(refusals: Iterable[Refusal]) -> dict[str, tuple[str, ...]]:
    reasons: dict[str, tuple[str, ...]] = {}
    for refusal in refusals:
        texts = tuple(f"{refusal.backend}: {reason}" for reason in refusal.reasons)
        reasons[refusal.layer] = (*reasons.get(refusal.layer, ()), *texts)
    return reasons


def _is_heavy(layer: Layer) -> bool:
    """Return True if a layer does much arithmetic for each element of its results, such as a convolution."""
    count = operations(layer)
    elements = sum(int(info.num_elements) for info in layer.output_infos) if count else 0
    return count >= HEAVY * max(elements, 1) > 0
