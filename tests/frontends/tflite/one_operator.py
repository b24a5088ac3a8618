"""Files with a single operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from interposer.formats.tflite.schema import UNIONS
from tests.frontends.tflite.build import code, encode, operator, tensor

Scaled = tuple[float | list[float], int | list[int]]


@dataclass(frozen=True)
class T:
    """A tensor: a constant where it has a value; `scaled` are scales and zero points."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    scaled: Scaled | None = None
    axis: int = 0
    value: Any = None
    signature: tuple[int, ...] | None = None
    more: dict[str, Any] = field(default_factory=dict)


def ints(value: Any, dtype: str = "int32") -> T:
    """Return a constant of integers."""
    array = np.array(value, dtype)
    return T(array.shape, dtype, value=array)


def one_operator(
    name: str,
    inputs: list[T | None],
    outputs: list[T],
    options: tuple[str, dict[str, Any]] | None = None,
    version: int = 1,
    intermediates: list[T] | None = None,
    shown: int | None = None,
) -> bytes:
    """Return a file of one operator; inputs that are not constants are those of the graph, in order.

    The outputs of the graph are the first `shown` outputs of the operator, by default all.
    """
    return encode(one_model(name, inputs, outputs, options, version, intermediates, shown))


def one_model(
    name: str,
    inputs: list[T | None],
    outputs: list[T],
    options: tuple[str, dict[str, Any]] | None = None,
    version: int = 1,
    intermediates: list[T] | None = None,
    shown: int | None = None,
) -> dict[str, Any]:
    """Return the file of `one_operator` before it is encoded."""
    value = [item for item in inputs if item is not None]
    buffers: list[dict[str, Any]] = [{}]
    tensors = [_tensor(f"i{k}", item, buffers) for k, item in enumerate(value)]
    tensors += [_tensor(f"o{k}", output, buffers) for k, output in enumerate(outputs)]
    numbers = iter(range(len(value)))
    places = [-1 if item is None else next(numbers) for item in inputs]
    results = list(range(len(value), len(tensors)))
    more: dict[str, Any] = {_union(options[0]): options} if options else {}
    more["intermediates"] = list(range(len(tensors), len(tensors) + len(intermediates or ())))
    tensors += [_tensor(f"m{k}", item, buffers) for k, item in enumerate(intermediates or ())]
    return {
        "version": 3,
        "operator_codes": [code(name, version=version)],
        "buffers": buffers,
        "subgraphs": [
            {
                "tensors": tensors,
                "inputs": [k for k, item in enumerate(value) if item.value is None and "is_variable" not in item.more],
                "outputs": results[:shown],
                "operators": [operator(places, results, opcode_index=0, **more)],
            }
        ],
    }


def _union(options: str) -> str:
    """Return the field of an operator that has an options table with this name."""
    return "builtin_options_2" if options in UNIONS["BuiltinOptions2"] else "builtin_options"


def _tensor(name: str, given: T, buffers: list[dict[str, Any]]) -> dict[str, Any]:
    more = dict(given.more)
    if given.scaled is not None:
        scales, points = (list(np.atleast_1d(part).tolist()) for part in given.scaled)
        more["quantization"] = {"scale": scales, "zero_point": points, "quantized_dimension": given.axis}
    if given.value is not None:
        buffers.append({"data": np.ascontiguousarray(given.value).tobytes()})
        more["buffer"] = len(buffers) - 1
    if given.signature is not None:
        more["shape_signature"] = list(given.signature)
    return tensor(name, list(given.shape), given.dtype, **more)
