"""Files with one operator and values for its inputs, to be run here and by LiteRT."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tests.frontends.tflite.build import code, encode, operator, tensor
from tests.frontends.tflite.one_operator import Scaled, T, one_model

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
class Region:
    """A subgraph of scalars, whose tensors have the data types `types`.

    The first `inputs` tensors are its inputs. `steps` are operators as triples of name, inputs and outputs, followed by
    options if there are any.
    """

    types: list[str]
    inputs: int
    outputs: list[int]
    steps: list[tuple[Any, ...]]
    shape: tuple[int, ...] = ()

    def add_to(self, model: dict[str, Any]) -> None:
        first, operators = len(model["operator_codes"]), []
        for number, (_, taken, given, *options) in enumerate(self.steps):
            union = "builtin_options_2" if options and options[0][0].startswith("Stable") else "builtin_options"
            more = {union: options[0]} if options else {}
            operators.append(operator(taken, given, opcode_index=first + number, **more))
        model["operator_codes"] += [code(step[0]) for step in self.steps]
        tensors = [tensor(f"t{i}", list(self.shape), dtype) for i, dtype in enumerate(self.types)]
        body = {"tensors": tensors, "inputs": list(range(self.inputs)), "outputs": self.outputs, "operators": operators}
        model["subgraphs"].append(body)


def binary_region(name: str, dtype: str, result: str | None = None, options: Options | None = None) -> Region:
    """Return a region with one operator on its two inputs."""
    step = (name, [0, 1], [2], options) if options else (name, [0, 1], [2])
    return Region([dtype, dtype, result or dtype], 2, [2], [step])


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
    crashes_litert: bool = False
    optimized: bool = False
    """Compare with LiteRT's optimized kernels, where its reference kernels compute something else."""
    regions: list[Region] = field(default_factory=list)
    """The subgraphs that the operator runs, which have the indices 1, 2 ... in the file."""

    @property
    def id(self) -> str:
        return f"{self.operator} {self.label}"

    def file(self) -> bytes:
        inputs = [None if operand is None else operand.tensor() for operand in self.inputs]
        model = one_model(self.operator, inputs, self.outputs, self.options, self.version)
        for region in self.regions:
            region.add_to(model)
        return encode(model)

    def feeds(self) -> list[np.ndarray]:
        return [operand.array for operand in self.inputs if operand is not None and not operand.fixed]


def fed(value: Any, dtype: str | None = None, scaled: Scaled | None = None) -> Operand:
    """Return an operand that is an input of the model."""
    return Operand(np.array(value, dtype), scaled=scaled)


def fixed(value: Any, dtype: str | None = None, scaled: Scaled | None = None) -> Operand:
    """Return an operand that is a constant of the file; integers are int32 unless a type is given."""
    array = np.array(value, dtype)
    return Operand(array.astype(np.int32) if dtype is None and array.dtype == np.int64 else array, True, scaled)


@cache
def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, low: int = -9, high: int = 9) -> np.ndarray:
    """Return seeded random numbers, which nobody may change; floats are multiples of 1/8."""
    array = np.asarray(_drawn(shape, dtype, seed, low, high))
    array.flags.writeable = False
    return array


def _drawn(shape: tuple[int, ...], dtype: str, seed: int, low: int, high: int) -> np.ndarray:
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
