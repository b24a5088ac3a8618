"""The backend-independent passes: their order, and the function that runs them.

A pass is a frozen dataclass with a name and an `apply`. `DEFAULT_PASSES` is the order in which `optimize` runs them.
Arm NN's pass AddBroadcastReshapeLayer has no equivalent, as operands of different ranks broadcast by themselves.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Protocol

from interposer.core.records import dataclass
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.regions import named_graphs
from interposer.ir.verify import verify
from interposer.ops import Constant, Debug, Output
from interposer.optimizer.rewrites.batchnorm import BATCH_NORMALIZATIONS
from interposer.optimizer.rewrites.blocks import BLOCKS
from interposer.optimizer.rewrites.broadcasts import BROADCASTS
from interposer.optimizer.rewrites.clamps import CLAMPS
from interposer.optimizer.rewrites.constants import fold_constants
from interposer.optimizer.rewrites.containers import take_apart
from interposer.optimizer.rewrites.conversions import INVERSES, drop_inserted_conversions
from interposer.optimizer.rewrites.einsum import EINSUMS
from interposer.optimizer.rewrites.identities import IDENTITIES
from interposer.optimizer.rewrites.pads import PADS
from interposer.optimizer.rewrites.regions import tidy_regions
from interposer.optimizer.rewrites.settling import settle_layers
from interposer.optimizer.rewrites.siblings import equal_layers
from interposer.optimizer.rewrites.unrolling import unroll
from interposer.profiling import Category
from interposer.profiling.recorder import interval
from interposer.rewriting.driver import Rewritten, Rules, apply_rewrites, replace
from interposer.rewriting.movement import RESHAPES, TRANSPOSES, transpose_as_reshape
from interposer.rewriting.pattern import Rewrite

__all__ = [
    "DEFAULT_PASSES",
    "INVERSE_CONVERSIONS",
    "SETTLE_LAYERS",
    "TAKE_APART",
    "TIDY_REGIONS",
    "UNROLL",
    "DropDeadLayers",
    "GraphPass",
    "Pass",
    "PassRecord",
    "RewritePass",
    "SquashEqualLayers",
    "insert_debug_layers",
    "run_passes",
]

_log = logging.getLogger("interposer.optimizer")


class Pass(Protocol):
    """The interface of a step of the optimizer that improves a graph without changing what the graph computes."""

    @property
    def name(self) -> str:
        """The name of the pass in records and messages."""

    def apply(self, graph: Graph) -> Rewritten:
        """Change the graph, and return how often each rewrite was applied."""


@dataclass(frozen=True)
class RewritePass:
    """A pass that applies rewrites until none of them matches any more."""

    name: str
    rewrites: tuple[Rewrite, ...]

    def apply(self, graph: Graph) -> Rewritten:
        """Apply the rewrites to a graph until none matches, and return how often each was applied."""
        return apply_rewrites(graph, self._rules)

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.rewrites)


@dataclass(frozen=True)
class SquashEqualLayers:
    """A pass that replaces equal layers with equal inputs, including constants, by one layer."""

    name: str = "squash equal layers"

    def apply(self, graph: Graph) -> Rewritten:
        """Replace every layer that computes the same as an earlier one by it; return how many were replaced."""
        layers_and_outputs = list(equal_layers(graph))
        for layer, outputs in layers_and_outputs:
            replace(graph, layer, outputs, by=equal_layers.__name__)
        return Rewritten(Counter({equal_layers.__name__: len(layers_and_outputs)}))


@dataclass(frozen=True)
class GraphPass:
    """A pass made from a function, which it calls on the whole graph once."""

    name: str
    function: Callable[[Graph], Rewritten]

    def apply(self, graph: Graph) -> Rewritten:
        """Call the function with the graph, and return its result: how often each rewrite was applied."""
        return self.function(graph)


SETTLE_LAYERS: Final = GraphPass("settle layers", settle_layers)
"""Replaces layers whose attributes are tensors by layers with attributes, if the tensors' values are known."""
UNROLL: Final = GraphPass("unroll", unroll)
"""Replaces control flow layers by the branch that is known to be taken, or by the iterations of a short loop."""
TAKE_APART: Final = GraphPass("take sequences apart", take_apart)
"""Replaces reads of sequences and optionals by the known elements."""
TIDY_REGIONS: Final = GraphPass("tidy regions", tidy_regions)
"""Removes unused inputs of regions, and moves constants into them."""


@dataclass(frozen=True)
class DropDeadLayers:
    """A pass that removes layers on which no output depends."""

    name: str = "drop dead layers"

    def apply(self, graph: Graph) -> Rewritten:
        """Remove the layers on which no output depends, and return how many were removed."""
        return Rewritten(Counter({"erase_dead": len(graph.erase_dead())}))


_MOVES: Final = (fold_constants, *IDENTITIES, *TRANSPOSES)

DEFAULT_PASSES: Final[Sequence[Pass]] = (
    DropDeadLayers(),
    SETTLE_LAYERS,
    RewritePass("move before dequantization", BLOCKS),
    RewritePass("fold constants", (fold_constants, *IDENTITIES)),
    UNROLL,
    TAKE_APART,
    TIDY_REGIONS,
    SquashEqualLayers(),
    RewritePass("join conversions", INVERSES),
    RewritePass("join clamps", CLAMPS),
    RewritePass("replace Einsum", EINSUMS),
    RewritePass("drop broadcasts", BROADCASTS),
    RewritePass("join transposes", _MOVES),
    RewritePass("fold pads", PADS),
    RewritePass("fold batch normalizations", BATCH_NORMALIZATIONS),
    RewritePass("join reshapes", (transpose_as_reshape, *RESHAPES, *_MOVES)),
    SquashEqualLayers("squash layers that became equal"),
)
"""The passes that `optimize` runs, in order."""

INVERSE_CONVERSIONS: Final[Sequence[Pass]] = (
    RewritePass("drop inverse conversions", (drop_inserted_conversions, *INVERSES)),
)
"""The passes that `optimize` runs after the assignment, which may have inserted pairs of conversions."""


@dataclass(frozen=True)
class PassRecord:
    """What one pass of the optimizer did to a graph, for the user and for debugging.

    `counts` says how often each rewrite was applied, by name. `layers_before` and `layers_after` are numbers of layers.
    `finished` is False if the pass was stopped because its rewrites did not come to an end.
    """

    name: str
    counts: Mapping[str, int] = field(default_factory=dict)
    layers_before: int = 0
    layers_after: int = 0
    finished: bool = True

    @property
    def changed(self) -> bool:
        """True if the pass changed the graph."""
        return any(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return {
            "pass": self.name,
            "counts": dict(self.counts),
            "layers_before": self.layers_before,
            "layers_after": self.layers_after,
            "finished": self.finished,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} x {name}" for name, count in self.counts.items() if count)
        return f"{self.name}: {self.layers_before} -> {self.layers_after} layers ({counts or 'nothing to do'})"


def run_passes(graph: Graph, passes: Iterable[Pass], rounds: int = 8) -> list[PassRecord]:
    """Run passes in order on a graph and its regions, and repeat this until none of them changes anything any more.

    The graph is verified after the last pass if one changed it. There are at most `rounds` rounds. In later rounds,
    only passes that changed something are recorded.

    Raises:
        VerificationError: a pass violated an invariant of the graph; names the passes that changed it and the
            violations.
    """
    records = _run_all(graph, tuple(passes), rounds)
    changing_passes = dict.fromkeys(repr(record.name) for record in records if record.changed)
    if changing_passes:
        verify(graph, after=f"the passes {', '.join(changing_passes)}")
    return records


def _run_all(graph: Graph, ordered_passes: Sequence[Pass], rounds: int) -> list[PassRecord]:
    records = list[PassRecord]()
    runs_since_change = 0
    for number in range(rounds):
        for pass_ in ordered_passes:
            record = _run(pass_, graph)
            records += [record] if number == 0 or record.changed else []
            runs_since_change = 0 if record.changed else runs_since_change + 1
            if runs_since_change == len(ordered_passes):
                return records
        if not all(record.finished for record in records):
            break
    return records


def _run(pass_: Pass, graph: Graph) -> PassRecord:
    layers_before = len(graph)
    with interval(Category.OPTIMIZE, f"pass {pass_.name}"):
        rewritten = _apply(pass_, graph)
    counts = {name: count for name, count in rewritten.counts.items() if count}
    record = PassRecord(pass_.name, counts, layers_before, len(graph), rewritten.finished)
    if counts:
        _log.info("%s", record)
    return record


def _apply(pass_: Pass, graph: Graph) -> Rewritten:
    rewritten = pass_.apply(graph)
    for region in [region for layer in graph.layers_with_regions for region in layer.regions]:
        rewritten_region = _apply(pass_, region)
        rewritten = Rewritten(
            rewritten.counts + rewritten_region.counts, rewritten.finished and rewritten_region.finished
        )
    return rewritten


def insert_debug_layers(graph: Graph) -> list[Layer]:
    """Insert a Debug layer after every output of every layer except Output, Debug and Constant; return the new layers.

    This includes layers in regions, whose names are preceded by the names of the layers and regions around them.
    """
    debug_layers = []
    for prefix, subgraph in list(named_graphs(graph)):
        watched_layers = [
            layer for layer in subgraph.topological() if not isinstance(layer.op, Output | Debug | Constant)
        ]
        debug_layers += [_watch(subgraph, value, prefix) for layer in watched_layers for value in layer.outputs]
    return debug_layers


def _watch(graph: Graph, value: Value, prefix: str) -> Layer:
    watched_layer = value.producer
    debug = graph.add(
        Debug(f"{prefix}{watched_layer.name}", value.index), [value], name=f"DebugLayerAfter{watched_layer.name}"
    )
    infer_layer(debug)
    graph.replace_uses(value, debug.output, lambda use: use.layer is not debug)
    return debug
