"""The layers of a Caffe network, from any of the three versions of the format, and their weights.

Version 2 is ``layer`` with types as strings, version 1 is ``layers`` with types as an enumeration, and version 0 nests
the parameters of a layer in ``layers { layer { ... } }``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any, Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.frontends.caffe import v0
from interposer.frontends.caffe.proto import Message, default, text_of
from interposer.frontends.caffe.schema import ENUMS, V1_TYPES

__all__ = ["Layer", "Net", "read_net"]

_LARGEST: Final = 2**31 - 1
_TEST: Final = ENUMS["Phase"]["TEST"]
_RAW_DTYPES: Final = {0: "<f8", 1: "<f4", 2: "<f2"}
_V1_NAMES: Final = {number: name for name, number in ENUMS["V1LayerType"].items()}


@dataclass(frozen=True)
class Layer:
    """A layer of the network: its name and type as in version 2, the names of its input and output blobs, its weights.

    `where` is its location in the file. `shared` are the names of its weights, which other layers of the same names
    share. `missing` says why the layer has no weights, if a file of weights is given.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    where: str
    blobs: tuple[Array, ...] = ()
    shared: tuple[str, ...] = ()
    missing: str = ""
    message: Message = field(default=None, repr=False)

    def parameters(self, name: str) -> Message:
        """Return the layer's parameters in the field `name`, such as ``pooling_param``, or the default ones."""
        field = getattr(self.message, name, None)
        return default(name) if field is None else field


@dataclass(frozen=True)
class Net:
    """A network: its name, the inputs that it declares outside layers, with their shapes if known, and its layers.

    `excluded` are the layers that Caffe does not run in the phase TEST.
    """

    name: str
    inputs: Mapping[str, tuple[int, ...] | None]
    layers: tuple[Layer, ...]
    excluded: tuple[Layer, ...] = ()

    def with_weights(self, weights_net: Net) -> Net:
        """Return this network with the weights of the layers of the same name in `weights_net`.

        Layers for which `weights_net` has no weights keep theirs.

        Raises:
            ParseError: `weights_net` has no weights, but this network has.
        """
        weights = {layer.name: layer.blobs for layer in weights_net.layers if layer.blobs}
        if not weights and any(layer.blobs for layer in self.layers):
            raise ParseError("the file has no weights, but the one of the network has; the two may be swapped")
        reason = f"has none for a layer of this name, but for {', '.join([*weights][:5])}"
        reason = reason if weights else "has no weights at all; weights= is the caffemodel, and not the prototxt"
        layers = (replace(x, blobs=weights.get(x.name, x.blobs), missing=reason) for x in self.layers)
        return replace(self, layers=tuple(layers))

    def with_shared_weights(self) -> Net:
        """Return this network in which each layer without weights has the blobs of other layers that it shares by name.

        The first blob of a name is the shared one.
        """
        array_of_name = dict[str, Array]()
        for layer in self.layers:
            for name, blob in zip(layer.shared, layer.blobs, strict=False):
                array_of_name.setdefault(name, blob)
        return replace(self, layers=tuple(_with_shared(layer, array_of_name) for layer in self.layers))


def _with_shared(layer: Layer, array_of_name: Mapping[str, Array]) -> Layer:
    if layer.blobs or not layer.shared or not all(name and name in array_of_name for name in layer.shared):
        return layer
    return replace(layer, blobs=tuple(array_of_name[name] for name in layer.shared))


def read_net(message: Message, *, only_weights: bool = False) -> Net:
    """Return the network in a ``NetParameter``: the layers that Caffe runs in the phase TEST.

    With `only_weights`, layers of all phases and of unknown types are returned, and nothing but their weights matters.

    Raises:
        ParseError: the message has no layers, or contradicts itself.
    """
    if message.layers and message.layer:
        raise ParseError("the network has layers of two versions of the format: layer and layers")
    layers = [_layer_v2(layer, f"layer[{i}]") for i, layer in enumerate(message.layer)]
    if any(layer.HasField("layer") for layer in message.layers):
        layers = [_layer_v0(*converted) for converted in v0.converted(message.layers)]
    elif message.layers:
        layers = [_layer_v1(layer, f"layers[{i}]") for i, layer in enumerate(message.layers)]
    if not layers:
        raise ParseError("the file has no layers; give the prototxt of the network, and not that of a solver")
    excluded_layers = () if only_weights else tuple(layer for layer in layers if not _is_included(layer.message))
    included_layers = layers if only_weights else [layer for layer in layers if _is_included(layer.message)]
    return Net(text_of(message.name), _inputs(message), tuple(included_layers), excluded_layers)


def _inputs(message: Message) -> dict[str, tuple[int, ...] | None]:
    names, dims = list(map(text_of, message.input)), list(message.input_dim)
    shapes = [tuple(shape.dim) for shape in message.input_shape]
    shapes = shapes or [tuple(dims[i : i + 4]) for i in range(0, len(dims), 4)]
    known_shapes: list[tuple[int, ...] | None] = [*shapes] or [None] * len(names)
    if shapes and (len(shapes) != len(names) or any(not 0 < size <= _LARGEST for s in shapes for size in s)):
        raise ParseError(f"its inputs {names} have the shapes {[list(shape) for shape in shapes]}")
    if len(set(names)) != len(names):
        raise ParseError(f"its inputs {names} have a name twice")
    return dict(zip(names, known_shapes, strict=True))


def _is_included(layer: Message) -> bool:
    """Return True if Caffe uses the layer in the phase TEST, at level 0 and without stages."""
    if layer.include:
        return any(map(_is_met, layer.include))
    return not any(map(_is_met, layer.exclude))


def _is_met(rule: Message) -> bool:
    phase = not rule.HasField("phase") or rule.phase == _TEST
    return bool(phase and rule.min_level <= 0 and (not rule.HasField("max_level") or rule.max_level >= 0)
                and not rule.stage)  # fmt: skip


def _layer_v2(layer: Message, where: str) -> Layer:
    where = f"{where} {layer.name}".rstrip()
    return _layer(layer, layer.type, where, layer.blobs, [param.name for param in layer.param])


def _layer_v1(layer: Message, where: str) -> Layer:
    where = f"{where} {layer.name}".rstrip()
    name = _V1_NAMES.get(layer.type, "NONE")
    if name not in V1_TYPES:
        raise ParseError("it has no type", where=where)
    return _layer(layer, V1_TYPES[name], where, layer.blobs, layer.param)


def _layer_v0(layer: Message, blobs: Sequence[Message], where: str) -> Layer:
    return _layer(layer, layer.type, where, blobs)


def _layer(
    message: Message, type: str, where: str, blobs: Sequence[Message], shared_names: Sequence[str | bytes] = ()
) -> Layer:
    arrays = tuple(_array(blob, f"{where}, blobs[{i}]") for i, blob in enumerate(blobs))
    bottoms, tops = tuple(map(text_of, message.bottom)), tuple(map(text_of, message.top))
    return Layer(
        text_of(message.name),
        text_of(type),
        bottoms,
        tops,
        where,
        arrays,
        tuple(map(text_of, shared_names)),
        message=message,
    )


def _array(blob: Message, where: str) -> Array:
    """Return the numbers of a blob as float32, in the blob's shape; the shape of old files has four dimensions."""
    numbers = _numbers(blob, where)
    legacy = [getattr(blob, name) for name in ("num", "channels", "height", "width")]
    shape = list(blob.shape.dim) if blob.HasField("shape") else legacy if any(legacy) else [len(numbers)]
    if any(size < 0 for size in shape) or prod(shape) != len(numbers):
        raise ParseError(f"it has the shape {shape}, but {len(numbers)} numbers", where=where)
    return numbers.reshape(shape)


def _numbers(blob: Message, where: str) -> Array:
    for values, dtype in ((blob.data, "<f4"), (blob.double_data, "<f8")):
        if isinstance(values, bytes) and len(values) % np.dtype(dtype).itemsize:
            raise ParseError(f"it has {len(values)} bytes, which is no whole number of elements", where=where)
        if len(values):
            array: Any = np.frombuffer(values, dtype) if isinstance(values, bytes) else np.fromiter(values, dtype)
            return np.asarray(array, np.float32)
    if blob.raw_data:
        return _raw_numbers(blob, where)
    return np.zeros(0, np.float32)


def _raw_numbers(blob: Message, where: str) -> Array:
    """Return the numbers of a blob that NVIDIA's Caffe has written."""
    dtype = _RAW_DTYPES.get(blob.raw_data_type)
    if dtype is None or len(blob.raw_data) % np.dtype(dtype).itemsize:
        size = len(blob.raw_data)
        raise ParseError(f"it has {size} bytes of raw_data_type {blob.raw_data_type}", where=where)
    return np.frombuffer(blob.raw_data, dtype).astype(np.float32)
