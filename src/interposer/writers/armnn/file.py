"""The function `save`, which writes a network to a file."""

from __future__ import annotations

import os
from typing import Any

from interposer.core.errors import expect
from interposer.core.files import write_file
from interposer.ir.graph import Graph
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.writers.armnn.model import write

__all__ = ["save"]


def save(network: Network | Graph | SubgraphView, path: str | os.PathLike[str], **options: Any) -> int:
    """Write a network to a file, and return the number of bytes.

    The file is replaced atomically: after an error, the old file is unchanged.

    Args:
        network: the network, graph or part of a graph to write.
        path: the path of the file.
        options: keyword arguments of `write`.

    Raises:
        FileWriteError: the file cannot be written.
        UnwritableError: there are layers that Arm NN cannot express; other errors are those of `write`.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    content = write(network, **options)
    write_file(path, content)
    return len(content)
