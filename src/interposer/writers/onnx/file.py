"""The function `save`, which writes a network to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from interposer.core.errors import InvalidArgumentError, expect
from interposer.core.files import replacing, synchronize, write_file
from interposer.ir.graph import Graph
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.writers.onnx.model import write
from interposer.writers.onnx.protos import Message, onnx

__all__ = ["save"]

_LARGEST: Final = 2**31 - 2**20
"""A protobuf message must be smaller than 2 GiB."""
_ALIGNMENT: Final = 64
_SMALL: Final = 1024
"""Constants of fewer bytes stay in the model's own file."""


def save(
    network: Network | Graph | SubgraphView,
    path: str | os.PathLike[str],
    *,
    external_data: bool | None = None,
    **options: Any,
) -> int:
    """Write a network to a file, and return its opset.

    The file is replaced atomically: after an error, the old file is unchanged.

    Args:
        network: the network, graph or part of a graph to write.
        path: the file; with external data, the weights are beside it in a file with the suffix ``.data``.
        external_data: whether weights are in a separate file; None if they must be, at 2 GiB.
        options: keyword arguments of `write`.

    Raises:
        FileWriteError: the file cannot be written.
        InvalidArgumentError: the network is too large for one file.
        UnwritableError: there are layers that ONNX cannot express; other errors are those of `write`.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    model = write(network, **options)
    needs_external_data = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _LARGEST
    if needs_external_data and external_data is False:
        raise InvalidArgumentError("the weights have 2 GiB or more, for which external_data must not be False")
    if (needs_external_data or external_data) and any(map(_is_large, model.graph.initializer)):
        _put_apart(model, Path(path))
    else:
        write_file(path, model.SerializeToString())
    return int(model.opset_import[0].version)


def _put_apart(model: Message, path: Path) -> None:
    """Write the model to `path`, and its large initializers to a file beside it with the suffix ``.data``.

    Both files are complete before either replaces an old file.
    """
    data_path = path.with_name(f"{path.name}.data")
    with replacing(path) as file, replacing(data_path) as weights:
        for tensor in filter(_is_large, model.graph.initializer):
            _move_apart(tensor, weights, data_path.name)
        file.write(model.SerializeToString())
        synchronize(file)
        synchronize(weights)


def _is_large(tensor: Message) -> bool:
    return len(tensor.raw_data) >= _SMALL


def _move_apart(tensor: Message, weights: BinaryIO, location: str) -> None:
    """Move the raw data of a `TensorProto` to the end of the file `weights`, at a multiple of 64 bytes.

    The tensor then refers to the data by `location`, the name of the file.
    """
    weights.write(bytes(-weights.tell() % _ALIGNMENT))
    entries = {"location": location, "offset": weights.tell(), "length": len(tensor.raw_data)}
    weights.write(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx().TensorProto.EXTERNAL
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=str(entry))
