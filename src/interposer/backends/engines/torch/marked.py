"""A torch module that notes the time at which each layer begins, for profiles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Final

from interposer.backends.engines.profiles import EngineStep
from interposer.backends.engines.torch.package import fx
from interposer.backends.engines.torch.traced import LAYER

__all__ = ["Marked"]

_OPERATORS: Final = ("call_function", "call_method", "call_module")
_local: Final = threading.local()


def _mark() -> None:
    """Append the current time to the list of the calling thread, which `Marked.measured` has created."""
    _local.times.append(perf_counter_ns())


class Marked:
    """A traced module with a mark before each layer; `forward` runs it, within a block of `measured`. Thread-safe."""

    def __init__(self, module: Any) -> None:
        graph, copies = fx.Graph(), dict[Any, Any]()
        self._layers: list[str] = []
        self._kinds: list[str] = []
        for node in module.graph.nodes:
            layer = node.meta.get(LAYER, "")
            if node.op in _OPERATORS and (not self._layers or self._layers[-1] != layer):
                self._layers.append(layer)
                self._kinds.append(_kind(node))
                graph.call_function(_mark)
            if node.op == "output":
                graph.call_function(_mark)
            copies[node] = graph.node_copy(node, copies.__getitem__)
        self.forward = fx.GraphModule(module, graph, "Marked").forward

    @contextmanager
    def measured(self) -> Iterator[list[EngineStep]]:
        """Measure the run in a ``with`` block, at whose end the result has the layers of the run."""
        times: list[int] = []
        steps: list[EngineStep] = []
        _local.times = times
        yield steps
        for layer, kind, begin, end in zip(self._layers, self._kinds, times, times[1:], strict=False):
            steps.append(EngineStep(layer, kind, begin, end))


def _kind(node: Any) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))
