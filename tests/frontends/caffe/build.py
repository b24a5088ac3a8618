"""Caffe files that tests build: a network as text, and its weights from a seed as a binary caffemodel."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from interposer.frontends.caffe.proto import read_message
from interposer.types import Array

__all__ = ["caffemodel", "inputs_text", "outputs_of_opencv", "random_array", "weights_for"]


def random_array(name: str, shape: Sequence[int]) -> Array:
    """Return random numbers between -1 and 1, always the same for a name and a shape."""
    return np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, tuple(shape)).astype(np.float32)


def inputs_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return Input layers for blobs of these shapes."""
    return "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {size}' for size in shape)} }} }} }}\n"
        for name, shape in shapes.items()
    )


def caffemodel(prototxt: str, weights: Mapping[str, Sequence[Array]]) -> bytes:
    """Return a binary file with the layers of a prototxt and these weights, by the names of the layers."""
    net = read_message(prototxt.encode())
    for layer in net.layer:
        for array in weights.get(layer.name, ()):
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.data.extend(array.ravel().tolist())
    return bytes(net.SerializeToString())


def weights_for(name: str, shapes: Sequence[Sequence[int]]) -> list[Array]:
    """Return random weights of these shapes for the layer `name`; those of one number are 1."""
    arrays = [random_array(f"{name}{i}", shape) for i, shape in enumerate(shapes)]
    return [np.ones(1, np.float32) if array.shape == (1,) else np.abs(array) if i == 1 else array
            for i, array in enumerate(arrays)]  # fmt: skip


def outputs_of_opencv(prototxt: str, model: bytes, inputs: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
    """Return the first results of these layers in OpenCV's dnn module, for a Caffe network."""
    import cv2

    net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8), np.frombuffer(model, np.uint8))
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableFusion(False)
    for name, array in inputs.items():
        net.setInput(array, name)
    return [results[0] for results in net.forwardAndRetrieve(names)]
