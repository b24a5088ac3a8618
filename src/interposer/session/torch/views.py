"""Results of a graph that are views of each other, and must share memory as those of PyTorch do."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import number_of

__all__ = ["View", "with_bases", "with_sizes"]


class View(NamedTuple):
    """A result of a graph: the graph's output number `output`, or a view of it by the operators `steps`, in order."""

    output: int
    steps: Sequence[Any] = ()

    def of(self, base: Any, sizes: Mapping[str, int]) -> Any:
        """Return the view of a tensor, with these values of symbolic sizes."""
        for node in self.steps:
            args = _known(node.args[1:], sizes)
            base = node.target(base, *args, **_known(dict(node.kwargs), sizes))
        return base


def with_bases(graph: Any) -> tuple[Any, list[View]]:
    """Return a graph in which each output is a different node that is no view of another output, and its views.

    The views are the outputs of the original graph, in order.
    """
    nodes = _flat(next(node for node in graph.graph.nodes if node.op == "output").args[0])
    paths = [_path(node) for node in nodes]
    counts = Counter(path[0] for path in paths if isinstance(path[0], torch.fx.Node))
    bases = [path[0] if counts.get(path[0], 0) > 1 else node for path, node in zip(paths, nodes, strict=True)]
    order: list[Any] = []
    views = list[View]()
    for path, node, base in zip(paths, nodes, bases, strict=True):
        place = next((index for index, item in enumerate(order) if item is base), len(order))
        if place == len(order) or not isinstance(base, torch.fx.Node):
            place = len(order)
            order.append(base)
        views.append(View(place, path[1:] if base is not node else ()))
    return _with_outputs(graph, order), views


def with_sizes(graph: Any, sizes: Mapping[str, int]) -> Any:
    """Return a copy of a graph whose nodes have examples of these sizes instead of symbolic ones.

    After PyTorch has recorded its guards, an example with a symbolic size must not be asked for its size: it answers
    with that of the first call.
    """
    copied = torch.fx.Graph()
    places: dict[Any, Any] = {}
    copied.output(copied.graph_copy(graph.graph, places))
    for old, new in places.items():
        new.meta = dict(old.meta)
        if "val" in old.meta:
            new.meta["val"] = _example(old.meta["val"], sizes)
    return torch.fx.GraphModule(graph, copied)


def _example(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_example(item, sizes) for item in value)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        number = number_of(value, sizes)
        return value if number is None else number
    if not isinstance(value, torch.Tensor) or not any(isinstance(size, torch.SymInt) for size in value.shape):
        return value
    shape, strides = ([number_of(item, sizes) for item in items] for items in (value.shape, value.stride()))
    if None in (*shape, *strides):  # a size that depends on data
        return value
    return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")


def _with_outputs(graph: Any, outputs: Sequence[Any]) -> Any:
    """Return a copy of a graph with other outputs, in which the nodes keep their names."""
    copied = torch.fx.Graph()
    places: dict[Any, Any] = {}
    copied.graph_copy(graph.graph, places)
    for old, new in places.items():
        new.meta = dict(old.meta)
    copied.output(tuple(places[item] if isinstance(item, torch.fx.Node) else item for item in outputs))
    return torch.fx.GraphModule(graph, copied)


def _path(node: Any) -> list[Any]:
    """Return the node that an output is a view of, and the operators that make the view of it; the node itself first.

    Views of inputs of the graph are not followed, as PyTorch makes them itself.
    """
    steps: list[Any] = []
    base = node
    while isinstance(base, torch.fx.Node) and _is_view(base):
        steps.insert(0, base)
        base = base.args[0]
    is_input = not isinstance(base, torch.fx.Node) or base.op != "call_function"
    return [node] if is_input else [base, *steps]


def _is_view(node: Any) -> bool:
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return False
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return bool(returns) and all(item.alias_info is not None and not item.alias_info.is_write for item in returns)


def _known(item: Any, sizes: Mapping[str, int]) -> Any:
    """Return an argument of a node, with numbers in place of symbolic sizes."""
    if isinstance(item, torch.fx.Node):
        return number_of(item.meta["val"], sizes)
    if isinstance(item, torch.SymInt):
        return number_of(item, sizes)
    if isinstance(item, list | tuple):
        return type(item)(_known(each, sizes) for each in item)
    if isinstance(item, dict):
        return {key: _known(each, sizes) for key, each in item.items()}
    return item


def _flat(item: Any) -> list[Any]:
    return [inner for each in item for inner in _flat(each)] if isinstance(item, list | tuple) else [item]
