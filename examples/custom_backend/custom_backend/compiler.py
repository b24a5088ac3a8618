"""From a part of a network to an object that the backend can run."""

from __future__ import annotations

from dataclasses import dataclass

from interposer.backend import SubgraphView
from interposer.types import Array


@dataclass
class CustomPreCompiledObject:
    """An addition made ready: its operands, each the number of an input or, where it is constant, its value.

    The optimizer never looks into it. It travels in a PreCompiled layer to the workload factory.
    """

    operands: tuple[int | Array, ...]
    runs: int = 0


def compiled(part: SubgraphView) -> CustomPreCompiledObject:
    """Return the object for a part that is one addition.

    A PreCompiled layer takes the part's inputs, each once and without the constants.
    """
    [addition] = part.layers
    operands = [part.inputs.index(value) if value.constant is None else value.constant for value in addition.values]
    return CustomPreCompiledObject(tuple(operands))
