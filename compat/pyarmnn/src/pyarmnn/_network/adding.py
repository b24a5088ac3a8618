"""What all methods of `INetwork` that add a layer share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pyarmnn._arguments import INT, Kind, overload_error
from pyarmnn._descriptor import Descriptor
from pyarmnn._network.kinds import BIASES, KINDS, WITH_WEIGHTS_AS_INPUTS, LayerKind
from pyarmnn._network.recurrent import check_lstm, check_quantized_lstm
from pyarmnn._network.slots import Constant, IConnectableLayer
from pyarmnn._proxy import Proxy
from pyarmnn._tensors import ConstTensor

__all__ = ["Adding"]


def _name(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value or ""


NAME = Kind("char const *", _name, "char const *")


class Adding(Proxy, module=None, destructor=False):
    """A list of layers, and the checks of the arguments of methods that add to it."""

    _layers: list[IConnectableLayer]

    def __init_subclass__(cls, **options: Any) -> None:
        """Let errors about arguments name the methods as those of `INetwork`."""
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            if name.startswith("Add"):
                method.__qualname__ = f"INetwork.{name}"

    def _append(self, layer: IConnectableLayer) -> IConnectableLayer:
        self._layers.append(layer)
        return layer

    def _add_binding(self, kind: str, id: Any, name: Any) -> IConnectableLayer:
        """Add an Input or Output layer."""
        _check(f"Add{kind}Layer", (INT,), (id,), name)
        if any(layer._type == kind and layer._descriptor == int(id) for layer in self._layers):
            raise RuntimeError("A layer already exists with the specified id")
        slots = (0, 1) if kind == "Input" else (1, 0)
        return self._append(IConnectableLayer._of(kind, _name(name), slots, int(id)))

    def _add(self, kind: str, *arguments: Any, name: Any, kinds: Mapping[str, LayerKind] = KINDS) -> IConnectableLayer:
        """Add a layer of another kind, which is one of `kinds`; descriptors and constants are copied."""
        layer = kinds[kind]
        _check(f"Add{kind}Layer", layer.arguments, arguments, name)
        rest = arguments[len(arguments) - len(layer.constants) :]
        descriptor = arguments[0]._copy() if len(arguments) > len(rest) else None
        constants = dict(_constants(layer.constants, rest))
        needs_biases = "biases" in layer.constants and getattr(descriptor, "m_BiasEnabled", False)
        if needs_biases and "biases" not in constants:
            raise RuntimeError(f"Add{kind}Layer: biases cannot be empty")
        _check_weights(kind, descriptor, constants)
        return self._append(IConnectableLayer._of(kind, _name(name), layer.slots(descriptor), descriptor, constants))

    def _add_weighted(self, kind: str, descriptor: Any, weights: Any, biases: Any, name: Any) -> IConnectableLayer:
        """Add a layer with constant weights, or with weights and biases as inputs if `weights` is a name or None."""
        is_name = isinstance(weights, str) and name is None
        if biases is not None or not (weights is None or is_name):
            return self._add(kind, descriptor, weights, biases, name=name)
        return self._add(kind, descriptor, name=weights if is_name else name, kinds=WITH_WEIGHTS_AS_INPUTS)


def _check(method: str, kinds: tuple[Kind, ...], arguments: tuple[Any, ...], name: Any) -> None:
    """Raise TypeError with all prototypes if an argument has the wrong type."""
    if all(map(Kind.accepts, (*kinds, NAME), (*arguments, name))):
        return
    types = [kind.parameter for kind in kinds]
    prototypes = [(*types, NAME.parameter), types]
    if BIASES in kinds:
        prototypes.append(types[:-1])
    raise overload_error(f"INetwork_{method}", f"armnn::INetwork::{method}", prototypes)


def _constants(names: tuple[str, ...], values: tuple[Any, ...]) -> Iterator[tuple[str, Constant]]:
    """Yield the constants by name: arguments that are tensors, and the tensors of objects that hold several."""
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Descriptor):
            fields = {field: getattr(value, field) for field in value._fields}
            yield from _constants(tuple(fields), tuple(fields.values()))
        elif value is not None:
            yield name, _constant(value)


def _constant(tensor: ConstTensor) -> Constant:
    memory = getattr(tensor, "get_memory_area", lambda: None)()
    return Constant(tensor.GetInfo(), np.empty(0, np.uint8) if memory is None else memory)


def _check_weights(kind: str, descriptor: Any, constants: dict[str, Constant]) -> None:
    """Raise RuntimeError if a weight of a recurrent layer is absent that the descriptor asks for."""
    if kind == "Lstm":
        check_lstm(descriptor, constants)
    if kind == "QuantizedLstm":
        check_quantized_lstm(constants)
