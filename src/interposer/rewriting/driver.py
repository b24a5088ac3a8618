"""The driver of rewrites: applies them to a graph until none of them matches any more.

All rewrites are applied in the same way. The new layers are created and their infos inferred. Each replacement value
must have the info of the value that it replaces. Then all uses are replaced, and unused layers are removed. The names
of removed layers are stored in `Layer.replaced` of the layers that replace them.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from interposer.core.errors import UnknownRankError, VerificationError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Dim, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.merged_names import NO_NAMES, MergedNames
from interposer.ops import Constant, Input
from interposer.ops.axes import transposed
from interposer.rewriting.pattern import INSERTED, Moved, New, Replacement, Rewrite, inverse, transpose

__all__ = ["Journal", "Rewritten", "Rules", "apply_rewrites", "replace"]

_log = logging.getLogger("interposer.optimizer")
_PER_LAYER: Final = 16
"""The maximum number of rewrites per layer; a pass that applies more is assumed to run in a cycle."""


@dataclass
class Rewritten:
    """What a pass did to a graph: how often each rewrite was applied, by name.

    `finished` is False if the rewrites were stopped because they did not come to an end.
    """

    counts: Counter[str] = field(default_factory=Counter)
    finished: bool = True


class Journal:
    """What is needed to examine and to undo rewrites: the graph before the first one, and the layers that they made.

    `before` is None if no rewrite was applied. `made` has the layers that were added or got another operator, also
    those that later rewrites removed.
    """

    def __init__(self) -> None:
        self.before: Graph | None = None
        self.made: dict[Layer, None] = {}


class Rules(dict[type[Op], tuple[tuple[Rewrite, bool], ...]]):
    """The rewrites that may apply to each type of operator, which are found when the type is first asked for.

    Each is in a pair with True if operators of the type have to be asked for their traits, as these may differ.
    """

    def __init__(self, rewrites: Iterable[Rewrite]) -> None:
        super().__init__()
        self._rewrites = tuple(rewrites)

    def __missing__(self, op: type[Op]) -> tuple[tuple[Rewrite, bool], ...]:
        matching_rewrites = [rewrite for rewrite in self._rewrites if rewrite.may_apply_to(op)]
        rules = self[op] = tuple(
            [(rule, rule.traits is not None and op.traits is not Op.traits) for rule in matching_rewrites]
        )
        return rules


def apply_rewrites(graph: Graph, rewrites: Sequence[Rewrite] | Rules, journal: Journal | None = None) -> Rewritten:
    """Try every rewrite on every layer in running order, and repeat this until nothing changes.

    Returns how often each rewrite was applied. They are stopped, with a warning, after a number of applications that
    only an endless sequence can reach. `journal` records what is needed to undo them.

    Raises:
        VerificationError: a rewrite returned an invalid replacement; the graph may be partly changed then.
    """
    rewritten = Rewritten()
    rules = rewrites if isinstance(rewrites, Rules) else Rules(rewrites)
    if not any([rules[type(layer.op)] for layer in graph]):
        return rewritten
    bound = _PER_LAYER * (len(graph) + 1)
    while _sweep(graph, rules, rewritten, bound, journal):
        pass
    if not rewritten.finished:
        _log.warning("rewrites stopped after %d applications: %s", rewritten.counts.total(), dict(rewritten.counts))
    return rewritten


def _sweep(graph: Graph, rules: Rules, rewritten: Rewritten, bound: int, journal: Journal | None) -> bool:
    """Try the rewrites once on all layers, and on the layers that this creates; return True if another round is needed.

    `rewritten` counts the applications; `bound` is the number of them after which to stop.
    """
    applied_before = rewritten.counts.total()
    pending_layers = deque([layer for layer in graph.topological() if rules[type(layer.op)]])
    while pending_layers:
        layer = pending_layers.popleft()
        if not layer.op.pure or layer not in graph:
            continue
        named_replacement = _first_match(layer, rules[type(layer.op)])
        if named_replacement is None:
            continue
        name, replacement = named_replacement
        if journal is not None and journal.before is None:
            journal.before = graph.clone()
        affected_layers = replace(graph, layer, replacement, by=name, journal=journal)
        rewritten.counts[name] += 1
        pending_layers.extendleft(affected_layers)
        if rewritten.counts.total() >= bound:
            rewritten.finished = False
            return False
    return rewritten.counts.total() > applied_before


def _first_match(layer: Layer, rules: Iterable[tuple[Rewrite, bool]]) -> tuple[str, Replacement] | None:
    op = layer.op
    for rule, depends_on_traits in rules:
        if depends_on_traits and not rule.applies_to(op):
            continue
        try:
            replacement = rule.function(op, layer)
        except UnknownRankError:
            continue
        if replacement is not None:
            return rule.name, replacement
    return None


def replace(
    graph: Graph, layer: Layer, replacement: Replacement, *, by: str, journal: Journal | None = None
) -> list[Layer]:
    """Replace the outputs of `layer` by `replacement` and erase the layer.

    Layers that are not used any more are erased too. Returns the layers to examine again: the new ones, and the users
    of the outputs. `by` is the name of the rewrite. New and changed layers are added to the `journal`.

    Raises:
        VerificationError: the replacement is invalid; names the rewrite and the errors.
    """
    if isinstance(replacement, Moved):
        return _move(graph, layer, replacement, by, journal)
    replacements = replacement if isinstance(replacement, tuple) else (replacement,)
    maker = _Maker(graph, layer, by)
    stand_ins = [
        maker.stand_in(new_value, old_value) for new_value, old_value in zip(replacements, layer.outputs, strict=True)
    ]
    users = [use.layer for old_value in layer.outputs for use in old_value.uses]
    for old_value, new_value in zip(layer.outputs, stand_ins, strict=True):
        graph.replace_uses(old_value, new_value)
    erased_layers = graph.erase_dead([*maker.former_sources, layer])
    if layer in graph:
        graph.erase(layer)
        erased_layers.append(layer)
    maker.name_layers()
    _remember(maker.new_of_layer, stand_ins, erased_layers)
    if journal is not None:
        journal.made.update(dict.fromkeys(maker.new_of_layer))
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s: %s -> %s", by, layer, ", ".join(value.name for value in stand_ins))
    return [*maker.new_of_layer, *dict.fromkeys(users)]


def _move(graph: Graph, layer: Layer, moved: Moved, rewrite_name: str, journal: Journal | None) -> list[Layer]:
    """Change a layer in place, add the transposes of its results, and return the layers to examine again.

    The infos of the results are those before with permuted axes, so that nothing is inferred.
    """
    maker = _Maker(graph, layer, rewrite_name)
    sources = [value.producer for value in layer.values]
    users = [use.layer for value in layer.outputs for use in value.uses]
    layer.op, layer.inferred = moved.op, None
    for index, source in enumerate(moved.inputs):
        if source is not layer.inputs[index]:
            graph.set_input(layer, index, maker.input(source))
    results = zip(layer.outputs, moved.permutations, strict=True)
    transposes = [transpose for value, axes in results for transpose in _permute(graph, value, axes)]
    erased_layers = graph.erase_dead(sources)
    maker.name_layers()
    _note_made(maker.new_of_layer)
    original_names = [_stood_for(erased) for erased in erased_layers if not erased.merged]
    if original_names:
        _note(layer, MergedNames((_stood_for(layer), *original_names)))
    _log.debug("%s: moved the axes of %s", rewrite_name, layer)
    new_layers = [*maker.new_of_layer, layer, *transposes]
    if journal is not None:
        journal.made.update(dict.fromkeys(new_layers))
    return [*new_layers, *dict.fromkeys(users)]


def _permute(graph: Graph, value: Value, axes: Sequence[int]) -> list[Layer]:
    """Permute the axes of a value, and let its users, if any, read it through a new Transpose with the info before.

    Returns the new layer.
    """
    layer, info = value.producer, value.known
    value.info = value.declared = transposed(info, axes)
    if not value.uses:
        return []
    users = list(value.uses)
    added = graph.add(
        transpose(inverse(axes)),
        [value],
        name=f"{value.name}/transposed",
        outputs=[info.with_constant(None)],
        source=layer.source,
    )
    added.output.info = info
    added.output.aliases, value.aliases = value.aliases, ()
    added.hint, added.backend, added.merged = layer.hint, layer.backend, _stood_for(layer)
    for user, position in users:
        graph.set_input(user, position, added.output)
    return [added]


def _remember(descriptions: Mapping[Layer, New], stand_ins: Iterable[Value], erased_layers: Sequence[Layer]) -> None:
    """Record the names of erased layers in the layers that replace them, for explanations.

    These are the new layers with `like` set to the erased layer, else the other new layers, else the producers of the
    values that replace the outputs.

    Args:
        descriptions: the new layers, each with its description.
        stand_ins: the values that replace the outputs of the rewritten layer.
        erased_layers: the erased layers.
    """
    _note_made(descriptions)
    claimed_layers = {new.like for new in descriptions.values()}
    names = [_stood_for(layer) for layer in reversed(erased_layers) if layer not in claimed_layers]
    new_layers = [layer for layer, new in descriptions.items() if not new.like and not isinstance(layer.op, Constant)]
    for heir in new_layers or dict.fromkeys(value.producer for value in stand_ins):
        adds_name = heir in descriptions and not descriptions[heir].like
        _note(heir, MergedNames((*(() if adds_name else (_stood_for(heir),)), *names)))


def _note_made(descriptions: Mapping[Layer, New]) -> None:
    for layer, new in descriptions.items():
        _note(layer, _stood_for(new.like) if new.like else NO_NAMES)


def _note(layer: Layer, merged_names: MergedNames) -> None:
    """Set the names of the layers that a layer has replaced; none if it only stands for itself."""
    layer.merged = NO_NAMES if merged_names.is_only(layer.name) and not isinstance(layer.op, Constant) else merged_names


def _stood_for(layer: Layer) -> MergedNames:
    """Return the names of the layers of the original network that a layer stands for.

    This is its own name if it has replaced no other layer. Inserted layers and constants stand for none.
    """
    if layer.merged is not NO_NAMES and layer.merged:
        return layer.merged
    is_original = not isinstance(layer.op, Constant) and layer.source != INSERTED
    return MergedNames.of(layer.name) if is_original else NO_NAMES


class _Maker:
    """Creates the new layers that the replacement of one layer describes, for the rewrite named `by`.

    They get their names last, when the names of the replaced layers are free.
    """

    def __init__(self, graph: Graph, replaced: Layer, by: str) -> None:
        self.graph, self.replaced, self.by = graph, replaced, by
        self.new_of_layer: dict[Layer, New] = {}
        self.former_sources: list[Layer] = []
        """The producers of the former inputs of a layer that was changed instead of replaced."""
        self._known_layers: dict[int, Layer] = {}
        self._names: dict[Layer, str] = {}

    def stand_in(self, new: Value | New | None, old: Value) -> Value:
        """Return the value that replaces the output `old` of the rewritten layer: `new`, or the output of a new layer.

        Raises:
            VerificationError: the replacement is missing or has another info than `old`.
        """
        if new is None:
            raise VerificationError(
                [f"it removed the layer of value {old.name!r} ({old.info}), which is used, and gave no other value"],
                after=self._title(),
            )
        value = new if isinstance(new, Value) else self._root(new, old)
        if not _same(value.info, old.known):
            raise VerificationError([f"{old.name}, {old.info}, would become {value.info}"], after=self._title())
        return value

    def _root(self, new: New, old: Value) -> Value:
        info = new.info or old.known.with_constant(None)
        return self._make(new, info, self.replaced.name, is_root=True).output

    def _make(self, new: New, info: TensorInfo | None, name: str, *, is_root: bool = False) -> Layer:
        """Return the layer that `new` describes. The root replaces an output, and its inputs are made before it."""
        if id(new) in self._known_layers:
            return self._known_layers[id(new)]
        inputs = [self.input(source) for source in new.inputs]
        origin = new.like or self.replaced
        if is_root and not new.name and self._ends_with_replaced(origin, inputs):
            layer = origin
            self.former_sources += [value.producer for value in layer.values]
            self.graph.change(layer, new.op, inputs, info)
        else:
            layer = self.graph.add(new.op, inputs, outputs=[info], source=origin.source)
            layer.hint, layer.backend = origin.hint, origin.backend
        errors = infer_layer(layer)
        if errors:
            raise VerificationError([f"{new.op!r} does not fit: {error}" for error in errors], after=self._title())
        self._known_layers[id(new)], self.new_of_layer[layer] = layer, new
        self._names[layer] = new.name or (new.like.name if new.like else name)
        return layer

    def _ends_with_replaced(self, layer: Layer, inputs: Sequence[Value | None]) -> bool:
        """Return True if a layer is of no use without the replaced one, its only consumer.

        The layer can then become the new layer that stands for it, which is faster than making one and erasing it. If
        nothing uses the replaced layer, both are erased.
        """
        if layer is self.replaced or len(layer.outputs) != 1 or len(self.replaced.outputs) != 1:
            return False
        if not self.replaced.output.uses:
            return False
        output = layer.outputs[0]
        if output.consumers != [self.replaced] or output in inputs or layer not in self.graph:
            return False
        return layer.op.pure and not layer.regions and not isinstance(layer.op, Input)

    def input(self, source: Value | New | None) -> Value | None:
        """Return a value, or the output of the new layer that `source` describes."""
        if not isinstance(source, New):
            return source
        return self._make(source, source.info, f"{source.op.op_name().lower()}-{self.replaced.name}").output

    def name_layers(self) -> None:
        """Give the new layers their names."""
        for layer, name in self._names.items():
            self.graph.rename(layer, name)

    def _title(self) -> str:
        return f"{self.by} on layer {self.replaced}"


def _same(new: TensorInfo | None, old: TensorInfo) -> bool:
    """Return True if both infos are the same, except that the new one may have more known dimensions."""
    if new is None or (new.dtype, new.quantization) != (old.dtype, old.quantization):
        return False
    if new.element is None and old.element is None and new.shape == old.shape and old.is_ranked:
        return True
    if not (new.is_ranked and old.is_ranked) or not new.is_tensor:
        return old.joined(new) == old
    return new.rank == old.rank and all(a == b or isinstance(b, Dim) for a, b in zip(new.shape, old.shape, strict=True))
