"""Models with one of ONNX Runtime's own operators and values for its inputs, to be run here and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
DOMAINS = {"com.microsoft": 1, "com.microsoft.nchwc": 1, "ai.onnx.ml": 3}
FOREIGN = (TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN)
"""Element types that NumPy lacks; the model casts such inputs from, and such outputs to, types that NumPy has."""


@dataclass(frozen=True)
class Operand:
    """A value of an input: a constant of the file if `fixed`, else fed to the model.

    If `cast` is the number of an element type, the model casts the value to this type before the operator takes it.
    """

    array: np.ndarray
    fixed: bool = False
    cast: int = 0


@dataclass(frozen=True)
class Case:
    """An operator on some values; None among the inputs is an absent operand, and "" among the outputs too.

    `outputs` are the element types of the results, or "" for results that are not computed. Without it, there is one
    output of the first input's type.
    """

    operator: str
    label: str
    inputs: list[Operand | None]
    outputs: Sequence[Any] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = MICROSOFT
    opset: int = 21
    tolerance: float = 1e-5
    steps: int = 0
    """The largest difference of integers, in steps of the type."""
    dynamic: bool = False
    """Declare all dimensions of the fed inputs as unknown."""
    refused: bool = False
    """Interposer refuses the case on purpose; its reason is part of the operator's documentation."""
    known: str = ""
    """The reason why the result of ONNX Runtime differs, if it does not follow the documentation of the operator."""
    overrides: bool = False
    """Interposer computes the case although ONNX Runtime refuses it."""
    defined: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] | None = None
    """Returns the elements of the results that the operator defines; None if it defines all."""

    @property
    def id(self) -> str:
        return f"{self.operator} {self.label}"

    def model(self) -> onnx.ModelProto:
        names = ["" if operand is None else f"x{i}" for i, operand in enumerate(self.inputs)]
        before, after, taken = [], [], list(names)
        for i, operand in enumerate(self.inputs):
            if operand is not None and operand.cast:
                taken[i] = f"x{i}_cast"
                before.append(helper.make_node("Cast", [names[i]], [taken[i]], to=operand.cast))
        types = list(self.outputs) or [self.inputs[0].array.dtype]
        given = ["" if isinstance(dtype, str) and not dtype else f"y{i}" for i, dtype in enumerate(types)]
        listed = []
        for name, dtype in zip(given, types, strict=True):
            if not name:
                continue
            number = (
                dtype
                if isinstance(dtype, int)
                else 8
                if dtype is object
                else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            )
            if number in FOREIGN:
                to = TensorProto.INT8 if number == TensorProto.INT4 else TensorProto.FLOAT
                to = TensorProto.UINT8 if number == TensorProto.UINT4 else to
                after.append(helper.make_node("Cast", [name], [f"{name}_cast"], to=to))
                listed.append(helper.make_tensor_value_info(f"{name}_cast", to, None))
            else:
                listed.append(helper.make_tensor_value_info(name, number, None))
        domain = "" if self.domain == "ai.onnx" else self.domain
        node = helper.make_node(self.operator, taken, given, name="node", domain=domain, **self.attributes)
        graph = helper.make_graph(
            [*before, node, *after],
            "case",
            [self._declared(name, operand) for name, operand in self._operands() if not operand.fixed],
            listed,
            [numpy_helper.from_array(operand.array, name) for name, operand in self._operands() if operand.fixed],
        )
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(*item) for item in DOMAINS.items())]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _operands(self) -> Iterator[tuple[str, Operand]]:
        yield from ((f"x{i}", operand) for i, operand in enumerate(self.inputs) if operand is not None)

    def _declared(self, name: str, operand: Operand) -> onnx.ValueInfoProto:
        shape = [f"{name}_{i}" for i in range(operand.array.ndim)] if self.dynamic else operand.array.shape
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(operand.array.dtype), shape)

    def file(self) -> bytes:
        return self.model().SerializeToString()

    def feeds(self) -> dict[str, np.ndarray]:
        return {name: operand.array for name, operand in self._operands() if not operand.fixed}


def fed(value: Any, dtype: Any = None, cast: int = 0) -> Operand:
    """Return an operand that is an input of the model."""
    return Operand(np.array(value, dtype), cast=cast)


def fixed(value: Any, dtype: Any = None, cast: int = 0) -> Operand:
    """Return an operand that is a constant of the file."""
    return Operand(np.array(value, dtype), True, cast)


@cache
def normal(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return seeded random floats with a normal distribution, which nobody may change."""
    array = np.asarray((np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype))
    array.flags.writeable = False
    return array


def integers(shape: Sequence[int], dtype: Any = np.int64, seed: int = 0, low: int = 0, high: int = 9) -> np.ndarray:
    """Return seeded random integers from `low` to `high`, both included."""
    return np.random.default_rng(seed).integers(low, high + 1, tuple(shape)).astype(dtype)


def whole(shape: Sequence[int], dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    """Return seeded random integers in the whole range of the type."""
    return integers(shape, dtype, seed, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def forms(case: Case) -> Iterator[Case]:
    """Yield the case, the same with unknown dimensions, and the same with all operands fed, if some are constants."""
    yield case
    yield replace(case, label=f"{case.label} dynamic", dynamic=True)
    if any(operand is not None and operand.fixed for operand in case.inputs):
        operands = [operand and replace(operand, fixed=False) for operand in case.inputs]
        yield replace(case, label=f"{case.label} fed", inputs=operands)
