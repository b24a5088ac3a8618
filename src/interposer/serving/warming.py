"""Requests that a model runs before it is ready: their inputs, from settings and files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.errors import ConfigError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.session.placement.cuts import example

__all__ = ["WarmUp", "warm_ups_of"]

_LARGEST: Final = 1 << 28
"""The most elements of an input that is made up."""
_WORDS: Final = ("random", "zeros")
_KEYS: Final = ("data", "shape")


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Runs of a model before it is ready.

    Args:
        inputs: for each input by name: ``random``, ``zeros`` or the path of a ``.npy`` file, and its shape; None takes
            the shape from the model or the file. Inputs that are absent are random.
        count: how often the model runs with these inputs.
    """

    inputs: Mapping[str, tuple[str, tuple[int, ...] | None]] = field(default_factory=dict)
    count: int = 1

    def arrays(self, model: str, infos: Mapping[str, TensorInfo]) -> dict[str, Array]:
        """Return the inputs for a model with these infos.

        Raises:
            ConfigError: the model has no such input, or an input cannot be made.
        """
        for name in self.inputs:
            if name not in infos:
                raise ConfigError(f"warmup of model {model!r}: it has no input {name!r}{did_you_mean(name, infos)}")
        return {
            name: _array(f"warmup of model {model!r}, input {name!r}", info, *self.inputs.get(name, ("random", None)))
            for name, info in infos.items()
        }


def warm_ups_of(folder: Path, tables: Any) -> tuple[WarmUp, ...] | None:
    """Return the warm-up requests of a list of tables; paths are relative to a folder. None if the form is wrong."""
    if not isinstance(tables, list):
        return None
    warm_ups = [_warm_up(folder, table) for table in tables]
    return None if any(warm_up is None for warm_up in warm_ups) else tuple(filter(None, warm_ups))


def _warm_up(folder: Path, table: Any) -> WarmUp | None:
    if not isinstance(table, dict) or table.keys() - {"inputs", "count"}:
        return None
    times, inputs = table.get("count", 1), table.get("inputs", {})
    if type(times) is not int or not 1 <= times <= 1000 or not isinstance(inputs, dict):
        return None
    inputs_by_name = {name: _input(folder, value) for name, value in inputs.items()}
    known_inputs = {name: pair for name, pair in inputs_by_name.items() if pair is not None}
    return WarmUp(known_inputs, times) if len(known_inputs) == len(inputs_by_name) else None


def _input(folder: Path, value: Any) -> tuple[str, tuple[int, ...] | None] | None:
    table = {"data": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or table.keys() - set(_KEYS):
        return None
    data, shape = table.get("data", "random"), table.get("shape")
    if not isinstance(data, str) or not (shape is None or _is_shape(shape)):
        return None
    return data if data in _WORDS else str(folder / data), None if shape is None else tuple(shape)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)


def _array(title: str, info: TensorInfo, data: str, shape: tuple[int, ...] | None) -> Array:
    if data not in _WORDS:
        return _from_file(title, data, shape)
    if shape is None:
        shape = tuple(_sizes(title, info))
    if math.prod(shape) > _LARGEST:
        raise ConfigError(f"{title}: the shape {list(shape)} has more than {_LARGEST} elements")
    if not info.shape.accepts(TensorShape(shape)):
        raise ConfigError(f"{title}: the model expects {info.shape}, not the shape {list(shape)}")
    if info.dtype.numpy.kind == "O":
        return np.full(shape, "", object)
    if data == "zeros":
        return np.zeros(shape, info.dtype.numpy)
    return example(info.with_shape(shape), 0)


def _sizes(title: str, info: TensorInfo) -> Iterator[int]:
    if not info.is_tensor or not info.is_concrete:
        raise ConfigError(f"{title}: the model leaves its shape open ({info.shape}), so it needs a shape")
    yield from map(int, info.shape)


def _from_file(title: str, path: str, shape: tuple[int, ...] | None) -> Array:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{title}: {path} is not a file of NumPy's format .npy: {error}") from None
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{title}: {path} has several arrays; it needs one in the format .npy")
    if shape is not None and math.prod(shape) != array.size:
        raise ConfigError(f"{title}: {path} has {array.size} elements, which the shape {list(shape)} has not")
    return array if shape is None else array.reshape(shape)
