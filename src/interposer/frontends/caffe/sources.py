"""Layers of Caffe that feed a network: their tops become inputs or constants."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import UNRANKED, TensorShape
from interposer.frontends.caffe.caffe_converters import is_loss
from interposer.frontends.caffe.net import Layer, Net

__all__ = ["declared_inputs", "is_source"]

_SOURCES: Final = {
    "AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "VideoData", "WindowData",
}  # fmt: skip
_LARGEST: Final = 2**31 - 1


def is_source(layer: Layer) -> bool:
    """Return True if the tops of a layer are inputs of the network."""
    return layer.type in _SOURCES and not layer.bottoms


def declared_inputs(net: Net) -> dict[str, TensorShape]:
    """Return the inputs of a network in order, with the shapes that the file declares; unranked if it declares none.

    Tops of data layers that no layer reads are left out, such as labels in a network without its losses.
    """
    read = {name for layer in net.layers if not is_loss(layer.type) for name in layer.bottoms}
    result = {name: TensorShape(shape) if shape is not None else UNRANKED for name, shape in net.inputs.items()}
    for layer in filter(is_source, net.layers):
        shapes = _shapes(layer)
        for index, name in enumerate(layer.tops):
            if name in result:
                raise ParseError(f"the input {name!r} is declared twice", where=layer.where)
            if name in read or layer.type == "Input":
                result[name] = shapes.get(index, UNRANKED)
    return result


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
