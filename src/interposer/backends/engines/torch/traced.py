"""A part as one module of torch: the functions of its layers are traced once, to a graph of torch's functions.

What depends on constants alone is computed while it is traced. Quantized tensors between layers that compute with real
numbers are only rounded to the numbers that their codes stand for; codes are made where something else reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from interposer.backend import SubgraphView
from interposer.backends.engines.engine import RefusedError, shortened
from interposer.backends.engines.torch.package import fx, nn, torch
from interposer.backends.engines.torch.reals import as_codes, as_reals, rounded
from interposer.backends.engines.torch.table import Function, needs_reals, only_moves, torch_function
from interposer.ir.graph import Layer, Value

__all__ = ["LAYER", "traced"]

LAYER: Final = "layer"
"""Under this name, the `meta` of a node has the name of the layer that it is of."""


def traced(view: SubgraphView, constants: dict[Value, Any]) -> Any:
    """Return a `torch.fx.GraphModule` from the inputs of a part to its outputs; constants are buffers of it.

    Raises:
        RefusedError: a layer has no function, or torch does not take what it is given.
    """
    tracer = _tracer_type()()
    tensors = _Tensors(
        {**constants, **{value: tracer.input(value.name, place) for place, value in enumerate(view.inputs)}}
    )
    for layer in view:
        tracer.layer = layer.name
        try:
            _trace(layer, tensors)
        except RefusedError:
            raise
        except Exception as error:  # whatever torch's functions, and tracing, raise
            raise RefusedError(f"layer {layer.name!r}: {shortened(str(error))}") from error
    try:
        return tracer.module([tensors.stored[value] for value in view.outputs])
    except Exception as error:
        raise RefusedError(f"torch makes no module of the part: {shortened(str(error))}") from error


class _Tensors:
    """The tensors of a part: as they are stored, and of quantized ones the float values."""

    def __init__(self, stored: dict[Value, Any]) -> None:
        self.stored = stored
        self.reals: dict[Value, Any] = {}

    def real(self, value: Value) -> Any:
        """Return what a function that computes with float values gets."""
        if not value.known.is_quantized:
            return self.stored[value]
        if value not in self.reals:
            self.reals[value] = as_reals(self.stored[value], value.known)
        return self.reals[value]


def _trace(layer: Layer, tensors: _Tensors) -> None:
    function = torch_function(layer)
    if needs_reals(layer):
        created = _called(function, layer, tensors.real)
        tensors.reals.update(
            {output: rounded(x, output.known) for output, x in zip(layer.outputs, created, strict=True)}
        )
        created = [as_codes(x, value.known) for value, x in zip(layer.outputs, created, strict=True)]
    else:
        created = _called(function, layer, tensors.stored.__getitem__)
        if only_moves(layer) and any(value in tensors.reals for value in layer.values):
            tensors.reals.update(zip(layer.outputs, _called(function, layer, tensors.real), strict=True))
    tensors.stored.update(zip(layer.outputs, created, strict=True))


def _called(function: Function, layer: Layer, read: Callable[[Value], Any]) -> Sequence[Any]:
    """Return what a function gives for the tensors of a layer, one for each output."""
    result = [None if value is None else read(value) for value in layer.inputs]
    created = function(*result, *[None] * (len(layer.op.operands) - len(result)))
    return created if isinstance(created, tuple | list) else (created,)


@cache
def _tracer_type() -> type[Any]:
    """Return a tracer of functions; a class that is made late, as its base is torch's."""

    class Tracer(fx.Tracer):  # type: ignore[misc] # of a package that is imported late
        layer = ""

        def __init__(self) -> None:
            super().__init__()
            self.root, self.graph = nn.Module(), fx.Graph(tracer_cls=fx.Tracer)
            self.buffers: dict[int, str] = {}  # by the id of the tensor, which the root keeps

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
    """Return a name that Python takes."""
    return "_" + re.sub(r"\W", "_", name, flags=re.ASCII)
