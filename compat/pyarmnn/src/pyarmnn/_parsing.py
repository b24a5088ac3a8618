"""What the four parsers share: checks of arguments, the translation of errors, and the bindings of a parsed network."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from interposer import InterposerError, Network
from interposer import TensorInfo as CoreInfo
from interposer.ir.graph import Layer
from pyarmnn._arguments import Kind
from pyarmnn._infos import info_from_core
from pyarmnn._shapes import TensorInfo, TensorShape

__all__ = ["FILE", "SHAPES", "SIZE", "TEXTS", "Binding", "Bindings", "check_file", "parse_errors", "rebind"]

Binding: TypeAlias = "tuple[int, TensorInfo]"


class Bindings:
    """The inputs or the outputs of a parsed network by name: binding id and info of each."""

    def __init__(self, kind: str, infos: Mapping[str, tuple[int, CoreInfo]]) -> None:
        self._kind = kind
        self._infos = dict(infos)

    @classmethod
    def of(cls, kind: str, names: Sequence[str], layers: Mapping[int, Layer]) -> Bindings:
        """Return the bindings of a network's Input or Output layers, which have these names in the model's order."""
        return cls(kind, {name: (number, _info(layers[number])) for number, name in enumerate(names)})

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the model's order."""
        return tuple(self._infos)

    @property
    def ids(self) -> list[int]:
        """The binding ids in the model's order."""
        return [number for number, _ in self._infos.values()]

    def get(self, name: str, where: str = "") -> Binding:
        """Return the binding of this name; `where` says in the message which part of the model was searched.

        Raises:
            RuntimeError: there is none; the message lists the names that exist.
        """
        if name not in self._infos:
            known = "".join(f"'{other}' " for other in self._infos)
            raise RuntimeError(
                f"No {self._kind} binding found for {where}name:{name}. Possible {self._kind}s are: [{known}]"
            )
        number, info = self._infos[name]
        return number, info_from_core(info)


def _info(layer: Layer) -> CoreInfo:
    return layer.outputs[0].known if layer.outputs else layer.values[0].known


def rebind(network: Network, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Give the inputs and the outputs of a network, which are numbered from 0, these binding ids.

    States of the network get ids after those, as no program binds tensors to them.
    """
    graph = network.graph
    for ids, layers in ((inputs, graph.sources), (outputs, graph.sinks)):
        free = itertools.count(max(ids, default=-1) + 1)
        for layer in layers:
            values = layer.op.attribute_values()
            layer.op = layer.op.replace(binding_id=next(free) if values["state"] else ids[values["binding_id"]])


@contextmanager
def parse_errors(prefix: str = "") -> Iterator[None]:
    """Turn the errors of a front end into a RuntimeError, whose message starts with `prefix`."""
    try:
        yield
    except InterposerError as error:
        raise RuntimeError(f"{prefix}{error}") from error


def check_file(path: str, missing: str) -> None:
    """Raise RuntimeError with the text `missing`, with the path in place of ``{}``, if there is no such file."""
    if not Path(path).is_file():
        raise RuntimeError(missing.format(path))


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError
    return os.fsdecode(value)


def _size(value: Any) -> int:
    number = operator.index(value)
    if not 0 <= number < 1 << 64:
        raise OverflowError
    return number


def _texts(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise TypeError
    return list(value)


def _shapes(value: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError
    if not all(isinstance(shape, TensorShape) for shape in value.values()):
        raise TypeError
    return {name: tuple(shape[axis] for axis in range(shape.GetNumDimensions())) for name, shape in value.items()}


FILE = Kind("char const *", _path, "char const *")
"""The path of a file."""
SIZE = Kind("size_t", _size, "size_t")
"""The index of a subgraph."""
TEXTS = Kind("std::vector< std::string > const &", _texts, "std::vector< std::string > const &")
"""A sequence of names."""
SHAPES = Kind(
    "std::map< std::string,armnn::TensorShape > const &", _shapes, "std::map< std::string,armnn::TensorShape > const &"
)
"""A mapping of names to TensorShapes, which is converted to tuples of integers."""
