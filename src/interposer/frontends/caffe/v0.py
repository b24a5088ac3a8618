"""Conversion of the layers of version 0 of Caffe's format to those of version 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.frontends.caffe.proto import Message, message_like, text_of

__all__ = ["converted"]

_TYPES: Final = {
    "accuracy": "Accuracy",
    "bnll": "BNLL",
    "concat": "Concat",
    "conv": "Convolution",
    "data": "Data",
    "dropout": "Dropout",
    "eltwise_product": "Eltwise",
    "euclidean_loss": "EuclideanLoss",
    "flatten": "Flatten",
    "hdf5_data": "HDF5Data",
    "hdf5_output": "HDF5Output",
    "im2col": "Im2col",
    "images": "ImageData",
    "infogain_loss": "InfogainLoss",
    "innerproduct": "InnerProduct",
    "lrn": "LRN",
    "multinomial_logistic_loss": "MultinomialLogisticLoss",
    "pool": "Pooling",
    "relu": "ReLU",
    "reshape": "Reshape",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "softmax_loss": "SoftmaxWithLoss",
    "split": "Split",
    "tanh": "TanH",
    "window_data": "WindowData",
}
_PADDED: Final = {"conv": "convolution_param", "pool": "pooling_param"}
_FIELDS: Final = {
    "conv": ("convolution_param", {"num_output": "num_output", "biasterm": "bias_term", "group": "group"}),
    "innerproduct": ("inner_product_param", {"num_output": "num_output", "biasterm": "bias_term"}),
    "pool": ("pooling_param", {"pool": "pool"}),
    "dropout": ("dropout_param", {"dropout_ratio": "dropout_ratio"}),
    "lrn": ("lrn_param", {"local_size": "local_size", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "concat": ("concat_param", {"concat_dim": "axis"}),
}
"""For each type: the field with its parameters in version 2, and the fields of version 0 by those of version 2."""


def converted(layers: Sequence[Message]) -> Iterator[tuple[Message, Sequence[Message], str]]:
    """Yield for each layer of version 0 its ``LayerParameter``, its blobs, and its location in the file.

    A layer of type "padding" becomes the padding of the convolutions and poolings that read it.

    Raises:
        ParseError: an unknown type, or a padding layer that another layer reads.
    """
    paddings: dict[str, tuple[str, int]] = {}
    for index, outer_layer in enumerate(layers):
        layer, where = outer_layer.layer, f"layers[{index}] {text_of(outer_layer.layer.name)}".rstrip()
        if text_of(layer.type) == "padding":
            if len(outer_layer.bottom) != 1 or len(outer_layer.top) != 1:
                raise ParseError("a padding layer must have one bottom and one top", where=where)
            paddings[outer_layer.top[0]] = outer_layer.bottom[0], layer.pad
            continue
        if layer.type not in _TYPES:
            raise ParseError(f"the type {layer.type!r} is unknown", where=where)
        padded = [paddings[name] for name in outer_layer.bottom if name in paddings]
        if padded and layer.type not in _PADDED:
            raise ParseError(
                f"it reads a padding layer, and is no convolution or pooling but {layer.type!r}", where=where
            )
        yield _layer(outer_layer, padded), layer.blobs or outer_layer.blobs, where
        for name in outer_layer.top:
            paddings.pop(name, None)


def _layer(outer_layer: Message, padded: Sequence[tuple[str, int]]) -> Message:
    layer = outer_layer.layer
    bottoms = [name for name, _ in padded] or list(outer_layer.bottom)
    new_layer = message_like(
        "LayerParameter", {"name": layer.name, "type": _TYPES[layer.type], "bottom": bottoms, "top": outer_layer.top}
    )
    if layer.type in _FIELDS:
        name, fields = _FIELDS[layer.type]
        parameters = getattr(new_layer, name)
        for old_name, new_name in fields.items():
            setattr(parameters, new_name, getattr(layer, old_name))
    if layer.type in _PADDED:
        _set_window(getattr(new_layer, _PADDED[layer.type]), layer, sum(pad for _, pad in padded))
    if layer.type == "eltwise_product":
        new_layer.eltwise_param.operation = 0
    if layer.type == "reshape":
        new_layer.reshape_param.shape.dim.extend([layer.new_num, layer.new_channels, layer.new_height, layer.new_width])
    return new_layer


def _set_window(parameters: Any, layer: Message, pad: int) -> None:
    parameters.kernel_size.append(layer.kernelsize)
    parameters.stride.append(layer.stride)
    parameters.pad.append(layer.pad + pad)
