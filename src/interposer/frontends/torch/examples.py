"""The examples that PyTorch records for the nodes of a graph, with known sizes in place of symbolic ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from interposer.frontends.needs import Needs
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import is_symbolic, number_of
from interposer.frontends.unsupported import UnboundFormError

__all__ = ["with_sizes", "without_guesses"]

_guarding: Final = threading.RLock()


def with_sizes(graph: Any, sizes: Mapping[str, int]) -> Any:
    """Return a copy of a graph whose nodes have examples of these sizes instead of symbolic ones.

    An example with a symbolic size must not be asked for its size: it answers with the size of the example arguments of
    the export, and PyTorch then regards the symbol as that number.
    """
    copied = torch.fx.Graph()
    places: dict[Any, Any] = {}
    copied.output(copied.graph_copy(graph.graph, places))
    for old, new in places.items():
        new.name, new.meta = old.name, dict(old.meta)  # a copied graph renames nodes such as "input"
        if "val" in old.meta:
            new.meta["val"] = _example(old.meta["val"], sizes)
    result = torch.fx.GraphModule(graph, copied)
    for name in {str(node.target) for node in copied.nodes if node.op == "get_attr" and "." not in str(node.target)}:
        inner = getattr(result, name)
        if isinstance(inner, torch.fx.GraphModule):
            setattr(result, name, with_sizes(inner, sizes))
    return result


def _example(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_example(item, sizes) for item in value)
    if is_symbolic(value):
        number = number_of(value, sizes)
        return value if number is None else number
    if not isinstance(value, torch.Tensor) or not any(isinstance(size, torch.SymInt) for size in value.shape):
        return value
    shape, strides = ([number_of(item, sizes) for item in items] for items in (value.shape, value.stride()))
    if None in (*shape, *strides):  # a size that depends on data
        return value
    return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")


@contextmanager
def without_guesses(graph: Any) -> Iterator[None]:
    """Raise `UnboundFormError` in the block if a symbolic size of a graph's examples is used as a number.

    PyTorch would answer with the size of the example arguments of the export, which may differ in a call.
    """
    environments = {id(item): item for node in graph.nodes for item in _environments(node.meta.get("val"))}
    if not environments:
        yield
        return
    with _guarding, ExitStack() as stack:
        for environment in environments.values():
            environment.evaluate_expr = partial(_evaluated, environment)
            stack.callback(environment.__dict__.pop, "evaluate_expr", None)
        yield


def _environments(value: Any) -> Iterator[Any]:
    """Yield the shape environments of the symbolic sizes of an example."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _environments(item)
    elif isinstance(value, torch.Tensor):
        yield from _environments(tuple(value.shape))
    elif is_symbolic(value) and getattr(value.node, "shape_env", None) is not None:
        yield value.node.shape_env


def _evaluated(environment: Any, expression: Any, *_: Any, **__: Any) -> Any:
    result = environment._maybe_evaluate_static(expression)
    if result is None:
        raise UnboundFormError(f"the size {expression} is not known", Needs(shapes=True))
    return result
