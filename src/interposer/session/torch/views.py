"""Results of a graph that are views of each other, and must share memory as those of PyTorch do."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import number_of

__all__ = ["View", "flat", "with_bases"]


class View(NamedTuple):
    """A result of a graph: the graph's output number `output`, or a view of it by the operators `steps`, in order."""

    output: int
    steps: Sequence[Any] = ()

    def of(self, base: Any, sizes: Mapping[str, int]) -> Any:
        """Return the view of a tensor, with these values of symbolic sizes."""
        for node in self.steps:
            arguments = _known(node.args[1:], sizes)
            base = node.target(base, *arguments, **_known(dict(node.kwargs), sizes))
        return base


def with_bases(graph: Any) -> tuple[Any, list[View]]:
    """Return a graph in which no output is a view of another output or of an input, and the views of its outputs.

    The views are the outputs of the original graph, in order. If one is a view of an input, PyTorch reads its strides
    and its offset, and makes a view of its own with them.
    """
    nodes = flat(next(node for node in graph.graph.nodes if node.op == "output").args[0])
    paths = [_path(node) for node in nodes]
    counts = Counter(path[0] for path in paths if isinstance(path[0], torch.fx.Node))
    shared_bases = {base for base, count in counts.items() if count > 1 or base.op == "placeholder"}
    bases = [path[0] if path[0] in shared_bases else node for path, node in zip(paths, nodes, strict=True)]
    outputs: list[Any] = []
    views = list[View]()
    for path, node, base in zip(paths, nodes, bases, strict=True):
        output_index = next((index for index, output in enumerate(outputs) if output is base), len(outputs))
        if output_index == len(outputs) or not isinstance(base, torch.fx.Node):
            output_index = len(outputs)
            outputs.append(base)
        views.append(View(output_index, path[1:] if base is not node else ()))
    return _with_outputs(graph, outputs), views


def _with_outputs(graph: Any, outputs: Sequence[Any]) -> Any:
    """Return a copy of a graph with other outputs, in which the nodes keep their names."""
    copied_graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    copied_graph.graph_copy(graph.graph, copies)
    for node, copied_node in copies.items():
        copied_node.meta = dict(node.meta)
    copied_graph.output(tuple(copies[output] if isinstance(output, torch.fx.Node) else output for output in outputs))
    return torch.fx.GraphModule(graph, copied_graph)


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
    return bool(returns) and all(
        returned.alias_info is not None and not returned.alias_info.is_write for returned in returns
    )


def _known(argument: Any, sizes: Mapping[str, int]) -> Any:
    """Return an argument of a node, with numbers in place of symbolic sizes."""
    if isinstance(argument, torch.fx.Node):
        return number_of(argument.meta["val"], sizes)
    if isinstance(argument, torch.SymInt):
        return number_of(argument, sizes)
    if isinstance(argument, list | tuple):
        return type(argument)(_known(element, sizes) for element in argument)
    if isinstance(argument, dict):
        return {key: _known(element, sizes) for key, element in argument.items()}
    return argument


def flat(nested: Any) -> list[Any]:
    """Return the leaves of nested lists and tuples."""
    return [leaf for element in nested for leaf in flat(element)] if isinstance(nested, list | tuple) else [nested]
