"""Layers of Caffe that feed a network: their tops become inputs or constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import UNRANKED, TensorShape
from interposer.frontends.caffe.caffe_converters import is_loss
from interposer.frontends.caffe.net import Layer, Net

__all__ = ["declared_inputs", "is_source", "with_sources"]

_SOURCES: Final = {
    "AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "VideoData", "WindowData",
}  # fmt: skip
_LARGEST: Final = 2**31 - 1


def with_sources(net: Net) -> Net:
    """Return the network with the layers that feed it in Caffe.

    Data layers for training are included if no other layer writes what they write. DummyData becomes constants if the
    network has other inputs.
    """
    written_tensors = {*net.inputs, *(name for layer in net.layers for name in layer.tops)}
    sources = []
    for layer in sorted(filter(is_source, net.excluded), key=lambda layer: layer.type != "Input"):
        if written_tensors.isdisjoint(layer.tops):
            sources.append(layer)
            written_tensors.update(layer.tops)
    with_inputs = replace(net, layers=(*sources, *net.layers))
    if all(layer.type == "DummyData" for layer in filter(is_source, with_inputs.layers)) and not net.inputs:
        return with_inputs
    layers = (source for layer in with_inputs.layers for source in (_constants(layer) or [layer]))
    return replace(with_inputs, layers=tuple(layers))


def _constants(layer: Layer) -> list[Layer]:
    """Return layers that write the constants of a DummyData layer; none for other layers, and for random numbers."""
    parameters = layer.parameters("dummy_data_param")
    fillers = list(parameters.data_filler)
    if layer.type != "DummyData" or any(filler.type != "constant" for filler in fillers):
        return []
    shapes, count = _shapes(layer), len(layer.tops)
    values = [filler.value for filler in fillers] or [0.0]
    if len(shapes) != count or len(values) not in (1, count):
        raise ParseError(f"it has {count} tops, {len(shapes)} shapes and {len(values)} fillers", where=layer.where)
    values *= count if len(values) == 1 else 1
    blobs = [np.full(tuple(shapes[i]), value, np.float32) for i, value in enumerate(values)]
    tops_and_blobs = zip(layer.tops, blobs, strict=True)
    return [replace(layer, type="Parameter", tops=(top,), blobs=(blob,)) for top, blob in tops_and_blobs]


def is_source(layer: Layer) -> bool:
    """Return True if the tops of a layer are inputs of the network."""
    return layer.type in _SOURCES and not layer.bottoms


def declared_inputs(net: Net) -> dict[str, TensorShape]:
    """Return the inputs of a network in order, with the shapes that the file declares; unranked if it declares none.

    Tops of data layers that no layer reads are left out, such as labels in a network without its losses.
    """
    names_read = {name for layer in net.layers if not is_loss(layer.type) for name in layer.bottoms}
    declared_shapes = {
        name: TensorShape(shape) if shape is not None else UNRANKED for name, shape in net.inputs.items()
    }
    for layer in filter(is_source, net.layers):
        shapes = _shapes(layer)
        for index, name in enumerate(layer.tops):
            if name in declared_shapes:
                raise ParseError(f"the input {name!r} is declared twice", where=layer.where)
            if name in names_read or layer.type == "Input":
                declared_shapes[name] = shapes.get(index, UNRANKED)
    return declared_shapes


def _shapes(layer: Layer) -> Mapping[int, TensorShape]:
    """Return the shapes that a layer declares, by the index of the top."""
    shapes = [list(shape.dim) for shape in layer.parameters("input_param").shape] if layer.type == "Input" else []
    if layer.type == "DummyData":
        shapes = _dummy(layer)
    if layer.type == "MemoryData":
        parameters = layer.parameters("memory_data_param")
        shapes = [[parameters.batch_size, parameters.channels, parameters.height, parameters.width]]
    if any(not 0 < size <= _LARGEST for shape in shapes for size in shape) or any(map(_is_too_large, shapes)):
        raise ParseError(f"it declares the shapes {shapes}; expected positive sizes", where=layer.where)
    everywhere = len(shapes) == 1 and layer.type != "MemoryData"
    return {i: TensorShape(shape) for i, shape in enumerate(shapes * (len(layer.tops) if everywhere else 1))}


def _is_too_large(shape: list[int]) -> bool:
    return prod(shape) > _LARGEST


def _dummy(layer: Layer) -> list[list[int]]:
    parameters = layer.parameters("dummy_data_param")
    if parameters.shape:
        return [list(shape.dim) for shape in parameters.shape]
    columns = (parameters.num, parameters.channels, parameters.height, parameters.width)
    return [list(column) for column in zip(*columns, strict=False)]
