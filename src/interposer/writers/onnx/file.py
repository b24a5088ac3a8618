"""`save`: from a network to a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

from interposer.errors import InvalidArgumentError, expect
from interposer.ir.graph import Graph
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.writers.onnx.model import write
from interposer.writers.onnx.protos import Message, onnx

__all__ = ["save"]

_LARGEST: Final = 2**31 - 2**20
"""A message of the protocol cannot have 2 GiB."""
_SMALL: Final = 1024
"""Constants of fewer bytes stay in the model's own file."""


def save(
    network: Network | Graph | SubgraphView,
    path: str | os.PathLike[str],
    *,
    external_data: bool | None = None,
    **options: Any,
) -> int:
    """Write a network to a file, and give the opset that was taken.

    There is either a whole file afterwards, or the one that was there before.

    Args:
        network: what is written.
        path: the file; with external data, the weights lie beside it in a file of the same name and ``.data``.
        external_data: whether weights get a file of their own; None where they must, at 2 GiB.
        options: those of `write`.

    Raises:
        InvalidArgumentError: the file cannot be written, or is too large for one.
        UnwritableError: with every layer that ONNX cannot express; and what else `write` raises.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    model = write(network, **options)
    needed = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _LARGEST
    if needed and external_data is False:
        raise InvalidArgumentError("the weights have 2 GiB or more, for which external_data must not be False")
    try:
        _put(model, Path(path), external=needed or bool(external_data))
    except OSError as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: the file cannot be written: {error.strerror or error}"
        ) from error
    return int(model.opset_import[0].version)


def _put(model: Message, path: Path, *, external: bool) -> None:
    """Everything goes to a folder beside the file first, and then to its place."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        target = Path(folder) / path.name
        if external:
            data = f"{path.name}.data"
            onnx().save_model(
                model, target, save_as_external_data=True, all_tensors_to_one_file=True, location=data,
                size_threshold=_SMALL,
            )  # fmt: skip
            if (Path(folder) / data).exists():
                (Path(folder) / data).replace(path.with_name(data))
        else:
            target.write_bytes(model.SerializeToString())
        target.replace(path)
