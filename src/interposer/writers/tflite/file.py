"""`save`: from a network to a file."""

from __future__ import annotations

import os
from typing import Any

from interposer.core.errors import expect
from interposer.core.files import write_file
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
        FileWriteError: the file cannot be written.
        UnwritableError: with every layer that TFLite cannot express; and what else `write` raises.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    content = write(network, **options)
    write_file(path, content)
    return len(content)
