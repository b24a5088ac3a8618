"""Small NNAPI documents made by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.frontends import nnapi
from tests.evaluation import run_network

Record = dict[str, Any]


def tensor(dims: Sequence[int], type: str = "TENSOR_FLOAT32", value: Any = None, **more: Any) -> Record:
    """Return a tensor: a constant if it has a value, else an input of the model."""
    lifetime = "SUBGRAPH_INPUT" if value is None else "CONSTANT_COPY"
    data = {} if value is None else {"data": np.ravel(value).tolist()}
    return {"type": type, "dims": list(dims), "lifetime": lifetime, **data, **more}


def scalar(value: float) -> Record:
    """A constant of the type that the value has in Python."""
    type = "BOOL" if isinstance(value, bool) else "INT32" if isinstance(value, int) else "FLOAT32"
    return {"type": type, "dims": [], "lifetime": "CONSTANT_COPY", "data": [value]}


def ints(*values: int) -> Record:
    return tensor([len(values)], "TENSOR_INT32", value=values)


def omitted(type: str = "TENSOR_FLOAT32", dims: Sequence[int] = (0,)) -> Record:
    return {"type": type, "dims": list(dims), "lifetime": "NO_VALUE"}


def quant8(dims: Sequence[int], scale: float, zero_point: int, value: Any = None) -> Record:
    return tensor(dims, "TENSOR_QUANT8_ASYMM", value, scale=scale, zero_point=zero_point)


def one_operation(name: str, inputs: Sequence[Record], outputs: Sequence[Record]) -> Record:
    """Return a document of one operation; its operands are called i0, i1 ... and o0, o1 ..."""
    value = [{"name": f"i{number}", **record} for number, record in enumerate(inputs)]
    created = [{**record, "name": f"o{number}", "lifetime": "SUBGRAPH_OUTPUT"} for number, record in enumerate(outputs)]
    indices = range(len(value) + len(created))
    return {
        "operands": [*value, *created],
        "operations": [{"op": name, "in": list(indices[: len(value)]), "out": list(indices[len(value) :])}],
        "inputs": [number for number, record in enumerate(value) if record["lifetime"] == "SUBGRAPH_INPUT"],
        "outputs": list(indices[len(value) :]),
    }


def compute(document: Mapping[str, Any], *arrays: Any) -> list[np.ndarray]:
    """The outputs of a document on arrays for those inputs that are not left out, in order."""
    network = nnapi.build(document)
    infos = {layer.name: layer.output.known for layer in network.inputs.values()}
    feeds = {
        name: np.asarray(array, info.dtype.numpy).reshape(info.shape)
        for (name, info), array in zip(infos.items(), arrays, strict=True)
    }
    result = run_network(network, feeds)
    return [result[layer.name] for layer in network.outputs.values()]


def counting(*dims: int) -> np.ndarray:
    """Return the numbers 0, 1, 2 ... in this shape."""
    return np.arange(math.prod(dims), dtype=np.float32).reshape(dims)
