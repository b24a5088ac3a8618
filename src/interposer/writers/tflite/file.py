"""`save`: from a network to a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from interposer.errors import InvalidArgumentError, expect
from interposer.ir.graph import Graph
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.writers.tflite.model import write

__all__ = ["save"]


def save(network: Network | Graph | SubgraphView, path: str | os.PathLike[str], **options: Any) -> int:
    """Write a network to a file, and give the number of its bytes.

    There is either a whole file afterwards, or the one that was there before.

    Args:
        network: what is written.
        path: the file.
        options: those of `write`.

    Raises:
        InvalidArgumentError: the file cannot be written.
        UnwritableError: with every layer that TFLite cannot express; and what else `write` raises.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    content, target = write(network, **options), Path(path)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as folder:
            whole = Path(folder) / target.name
            whole.write_bytes(content)
            whole.replace(target)
    except OSError as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: the file cannot be written: {error.strerror or error}"
        ) from error
    return len(content)
