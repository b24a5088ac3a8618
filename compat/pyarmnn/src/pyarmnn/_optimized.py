"""`IOptimizedNetwork`: a network that is divided among backends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import interposer as ip
from interposer.ir.dot import graph_dot
from pyarmnn._arguments import STRING
from pyarmnn._proxy import Abstract
from pyarmnn._shapes import TensorInfo

__all__ = ["IOptimizedNetwork", "Infos"]

_WRITABLE = 0o222


class Infos(NamedTuple):
    """The infos of a network's inputs and outputs by binding id."""

    inputs: Mapping[int, TensorInfo]
    outputs: Mapping[int, TensorInfo]


class IOptimizedNetwork(Abstract):
    """A network that is divided among backends; `Optimize` returns it, and `IRuntime.LoadNetwork` takes it."""

    _optimized: ip.OptimizedNetwork
    _infos: Infos

    @classmethod
    def _of(cls, optimized: ip.OptimizedNetwork, infos: Infos) -> IOptimizedNetwork:
        wrapper = cls._create()
        wrapper._optimized, wrapper._infos = optimized, infos
        return wrapper

    def SerializeToDot(self, fileName: str) -> None:
        """Write the layers with their backends as a graph in the language of Graphviz.

        Raises:
            TypeError: the name is no text.
            RuntimeError: the file cannot be written, or nobody may write to it.
        """
        path = Path(STRING(fileName, "IOptimizedNetwork_SerializeToDot", 2))
        if path.exists() and not path.stat().st_mode & _WRITABLE:  # the administrator could write to it
            raise RuntimeError("Failed to open dot file")
        try:
            path.write_text(graph_dot(self._optimized.graph), encoding="utf-8")
        except OSError as error:
            raise RuntimeError("Failed to open dot file") from error
