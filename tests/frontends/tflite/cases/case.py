"""Files with one operator and values for its inputs, to be run here and by LiteRT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.frontends.tflite.build import encode
from tests.frontends.tflite.one_operator import Scaled, T, one_operator

Options = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Operand:
    """A value of an input: a constant of the file if `fixed`, else fed to the model."""

    array: np.ndarray
    fixed: bool = False
    scaled: Scaled | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def tensor(self) -> T:
        dtype = "string" if self.array.dtype.kind in "OSU" else self.array.dtype.name
        return T(self.array.shape, dtype, self.scaled, value=self.array if self.fixed else None, **self.more)


@dataclass(frozen=True)
class Case:
    """An operator on some values; `expected` are its results if they are known from a specification."""

    operator: str
    label: str
    inputs: list[Operand | None]
    outputs: list[T]
    options: Options | None = None
    version: int = 1
    tolerance: float = 1e-5
    expected: list[Any] | None = None
    model: dict[str, Any] | None = None
    """The whole file, for operators with further subgraphs; the inputs are then those of the first subgraph."""

    @property
    def id(self) -> str:
        return f"{self.operator} {self.label}"

    def file(self) -> bytes:
        if self.model is not None:
            return encode(self.model)
        inputs = [None if operand is None else operand.tensor() for operand in self.inputs]
        return one_operator(self.operator, inputs, self.outputs, self.options, self.version)

    def feeds(self) -> list[np.ndarray]:
        return [operand.array for operand in self.inputs if operand is not None and not operand.fixed]


def fed(value: Any, dtype: str | None = None, scaled: Scaled | None = None) -> Operand:
    """Return an operand that is an input of the model."""
    return Operand(np.array(value, dtype), scaled=scaled)


def fixed(value: Any, dtype: str | None = None, scaled: Scaled | None = None) -> Operand:
    """Return an operand that is a constant of the file; integers are int32 unless a type is given."""
    array = np.array(value, dtype)
    return Operand(array.astype(np.int32) if dtype is None and array.dtype == np.int64 else array, True, scaled)


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, low: int = -9, high: int = 9) -> np.ndarray:
    """Return seeded random numbers; floats are multiples of 1/8."""
    state = np.random.RandomState(seed)
    if np.dtype(dtype).kind == "f":
        return (state.randint(low * 8, high * 8, shape) / 8).astype(dtype)
    if dtype == "bool":
        return state.randint(0, 2, shape) > 0
    limits = np.iinfo(dtype)
    return state.randint(max(low, limits.min), min(high, limits.max) + 1, shape).astype(dtype)


def case(
    operator: str, label: str, inputs: list[Operand | None], outputs: list[T], options: Options | None = None,
    **more: Any,
) -> Case:  # fmt: skip
    return Case(operator, label, inputs, outputs, options, **more)
