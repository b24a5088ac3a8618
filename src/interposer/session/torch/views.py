"""Results of a graph that are views of each other, and must share memory as those of PyTorch do."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import number_of

__all__ = ["View", "with_bases"]


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
    """Return a graph in which no output is a view of another output or of an input, and the views of its outputs.

    The views are the outputs of the original graph, in order. If one is a view of an input, PyTorch reads its strides
    and its offset, and makes a view of its own with them.
    """
    nodes = _flat(next(node for node in graph.graph.nodes if node.op == "output").args[0])
    paths = [_path(node) for node in nodes]
    counts = Counter(path[0] for path in paths if isinstance(path[0], torch.fx.Node))
    shared = {base for base, count in counts.items() if count > 1 or base.op == "placeholder"}
    bases = [path[0] if path[0] in shared else node for path, node in zip(paths, nodes, strict=True)]
    order: list[Any] = []
    views = list[View]()
    for path, node, base in zip(paths, nodes, bases, strict=True):
        place = next((index for index, item in enumerate(order) if item is base), len(order))
        if place == len(order) or not isinstance(base, torch.fx.Node):
            place = len(order)
            order.append(base)
        views.append(View(place, path[1:] if base is not node else ()))
    return _with_outputs(graph, order), views


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
    """Return the node that an output is a view of, followed by the operators that make the view of it."""
    steps: list[Any] = []
    base = node
    while isinstance(base, torch.fx.Node) and _is_view(base):
        steps.insert(0, base)
        base = base.args[0]
    return [base, *steps]


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
