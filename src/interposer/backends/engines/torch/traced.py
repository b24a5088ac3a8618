"""A subgraph as one torch module: the functions of its layers are traced once, to a graph of torch functions.

Values that depend on constants only are computed during tracing. A quantized tensor between layers that compute with
floats is only rounded to representable values; its quantized values are computed where another layer reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from interposer.backend import SubgraphView
from interposer.backends.engines.engine import RefusedError, shortened
from interposer.backends.engines.torch.package import fx, nn, torch
from interposer.backends.engines.torch.reals import as_floats, as_quantized, rounded
from interposer.backends.engines.torch.table import Function, computes_in_floats, only_moves, torch_function
from interposer.ir.graph import Layer, Value

__all__ = ["LAYER", "traced"]

LAYER: Final = "layer"
"""The key in the `meta` of a node under which the name of its layer is stored."""


def traced(view: SubgraphView, constants: dict[Value, Any]) -> Any:
    """Return a `torch.fx.GraphModule` from the inputs of a subgraph to its outputs; constants are its buffers.

    Raises:
        RefusedError: a layer has no function, or torch rejects its arguments.
    """
    tracer = _tracer_type()()
    tensors = _Tensors(
        {**constants, **{value: tracer.input(value.name, index) for index, value in enumerate(view.inputs)}}
    )
    for layer in view:
        tracer.layer = layer.name
        try:
            _trace(layer, tensors)
        except RefusedError:
            raise
        except Exception as error:  # torch functions and tracing raise exceptions of any type
            raise RefusedError(f"layer {layer.name!r}: {shortened(str(error))}") from error
    try:
        return tracer.module([tensors.stored[value] for value in view.outputs])
    except Exception as error:
        raise RefusedError(f"torch cannot create a module of the subgraph: {shortened(str(error))}") from error


class _Tensors:
    """The torch tensors of a subgraph's values while it is traced.

    `stored` has them in their stored types, and `floats` the float values of quantized ones.
    """

    def __init__(self, stored: dict[Value, Any]) -> None:
        self.stored = stored
        self.floats: dict[Value, Any] = {}

    def as_float(self, value: Value) -> Any:
        """Return the float values of a tensor, as the argument of a function that computes with floats."""
        if not value.known.is_quantized:
            return self.stored[value]
        if value not in self.floats:
            self.floats[value] = as_floats(self.stored[value], value.known)
        return self.floats[value]


def _trace(layer: Layer, tensors: _Tensors) -> None:
    function = torch_function(layer)
    if computes_in_floats(layer):
        results = _results_of(function, layer, tensors.as_float)
        tensors.floats.update(
            {output: rounded(x, output.known) for output, x in zip(layer.outputs, results, strict=True)}
        )
        results = [as_quantized(x, value.known) for value, x in zip(layer.outputs, results, strict=True)]
    else:
        results = _results_of(function, layer, tensors.stored.__getitem__)
        if only_moves(layer) and any(value in tensors.floats for value in layer.values):
            tensors.floats.update(zip(layer.outputs, _results_of(function, layer, tensors.as_float), strict=True))
    tensors.stored.update(zip(layer.outputs, results, strict=True))


def _results_of(function: Function, layer: Layer, read: Callable[[Value], Any]) -> Sequence[Any]:
    """Return the results of a layer's torch function, one for each output.

    `read` returns the torch tensor of an operand; absent operands are passed as None.
    """
    operands = [None if value is None else read(value) for value in layer.inputs]
    results = function(*operands, *[None] * (len(layer.op.operands) - len(operands)))
    return results if isinstance(results, tuple | list) else (results,)


@cache
def _tracer_type() -> type[Any]:
    """Return a subclass of `torch.fx.Tracer` that builds the graph of a subgraph, layer by layer.

    It is created on first use, because torch is imported late.
    """

    class Tracer(fx.Tracer):  # type: ignore[misc] # of a package that is imported late
        layer = ""

        def __init__(self) -> None:
            super().__init__()
            self.root, self.graph = nn.Module(), fx.Graph(tracer_cls=fx.Tracer)
            self.buffers: dict[int, str] = {}  # by the id of the tensor, which the root keeps alive

        def input(self, name: str, place: int) -> Any:
            return self.create_proxy("placeholder", f"{_identifier(name)}_{place}", (), {})

        def create_arg(self, a: Any) -> Any:
            if isinstance(a, torch.Tensor):
                return self._buffer(a)
            return super().create_arg(a)

        def create_node(self, *args: Any, **kwargs: Any) -> Any:
            node = super().create_node(*args, **kwargs)
            node.meta[LAYER] = self.layer
            return node

        def _buffer(self, tensor: Any) -> Any:
            name = self.buffers.get(id(tensor), "")
            if not name:
                name = self.buffers[id(tensor)] = f"{_identifier(self.layer)}_{len(self.buffers)}"
                self.root.register_buffer(name, tensor)
            return self.create_node("get_attr", name, (), {})

        def module(self, outputs: list[Any]) -> Any:
            self.create_node("output", "output", (self.create_arg(tuple(outputs)),), {})
            self.graph.eliminate_dead_code()
            graph_module = fx.GraphModule(self.root, self.graph, "Part")
            graph_module.graph.lint()
            return graph_module

    return Tracer


def _identifier(name: str) -> str:
    """Return the name with "_" in place of the characters that a Python identifier must not have."""
    return "_" + re.sub(r"\W", "_", name, flags=re.ASCII)
