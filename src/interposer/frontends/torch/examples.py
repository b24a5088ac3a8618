"""The examples that PyTorch records for the nodes of a graph, with known sizes in place of symbolic ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import is_symbolic, number_of
from interposer.frontends.unsupported import Needs, UnboundFormError

__all__ = ["with_sizes", "without_guesses"]

_guarding: Final = threading.RLock()


def with_sizes(graph: Any, sizes: Mapping[str, int]) -> Any:
    """Return a copy of a graph whose nodes have examples of these sizes instead of symbolic ones.

    An example with a symbolic size must not be asked for its size: it answers with the size of the example arguments of
    the export, and PyTorch then regards the symbol as that number.
    """
    copied_graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    copied_graph.output(copied_graph.graph_copy(graph.graph, copies))
    for old_node, new_node in copies.items():
        new_node.name, new_node.meta = (
            old_node.name,
            dict(old_node.meta),
        )  # a copied graph renames nodes such as "input"
        if "val" in old_node.meta:
            new_node.meta["val"] = _example(old_node.meta["val"], sizes)
    module = torch.fx.GraphModule(graph, copied_graph)
    for name in {
        str(node.target) for node in copied_graph.nodes if node.op == "get_attr" and "." not in str(node.target)
    }:
        inner_module = getattr(module, name)
        if isinstance(inner_module, torch.fx.GraphModule):
            setattr(module, name, with_sizes(inner_module, sizes))
    return module


def _example(example: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(example, list | tuple):
        return type(example)(_example(expression, sizes) for expression in example)
    if is_symbolic(example):
        number = number_of(example, sizes)
        return example if number is None else number
    if not isinstance(example, torch.Tensor) or not any(isinstance(size, torch.SymInt) for size in example.shape):
        return example
    shape, strides = (
        [number_of(expression, sizes) for expression in expressions]
        for expressions in (example.shape, example.stride())
    )
    if None in (*shape, *strides):  # a size that depends on data
        return example
    return torch.empty_strided(shape, strides, dtype=example.dtype, device="meta")


@contextmanager
def without_guesses(graph: Any) -> Iterator[None]:
    """Raise `UnboundFormError` in the block if a symbolic size of a graph's examples is used as a number.

    PyTorch would answer with the size of the example arguments of the export, which may differ in a call.
    """
    environments = {
        id(shape_env): shape_env for node in graph.nodes for shape_env in _environments(node.meta.get("val"))
    }
    if not environments:
        yield
        return
    with _guarding, ExitStack() as stack:
        for environment in environments.values():
            environment.evaluate_expr = partial(_evaluated, environment)
            stack.callback(environment.__dict__.pop, "evaluate_expr", None)
        yield


def _environments(example: Any) -> Iterator[Any]:
    """Yield the shape environments of the symbolic sizes of an example."""
    if isinstance(example, list | tuple):
        for element in example:
            yield from _environments(element)
    elif isinstance(example, torch.Tensor):
        yield from _environments(tuple(example.shape))
    elif is_symbolic(example) and getattr(example.node, "shape_env", None) is not None:
        yield example.node.shape_env


def _evaluated(environment: Any, expression: Any, *_: Any, **__: Any) -> Any:
    number = environment._maybe_evaluate_static(expression)
    if number is None:
        raise UnboundFormError(f"the size {expression} is not known", Needs(shapes=True))
    return number
