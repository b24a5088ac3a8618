"""Tensors and networks of each data type of the protocol."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from interposer import Network, TensorInfo
from interposer.core.types import Array, DataType

TYPES: dict[str, Any] = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8,
    "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32,
    "FP64": np.float64, "BF16": ml_dtypes.bfloat16, "BYTES": object,
}  # fmt: skip
DTYPES = {
    "BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16", "BYTES": "string",
}  # fmt: skip
NO_JSON = {"FP16", "BF16"}
ROWS = 5


def transposing(datatype: str) -> Network:
    """A network that transposes a matrix with three columns."""
    network = Network("transposing")
    info = TensorInfo((None, 3), DataType(DTYPES.get(datatype, datatype.lower())))
    x = network.add_input_layer(0, info, name="x")
    network.add_output_layer(0, network.add_transpose_layer(x, permutation=(1, 0), name="t"), name="y")
    return network


def values(datatype: str, rows: int = ROWS) -> Array:
    """Return a matrix with extreme values of a type, or with texts."""
    if datatype == "BYTES":
        texts = ["", "a", "two words", "übel", "a\x00b", "long" * 100, '"', "\\"]
        return np.array([texts[i % len(texts)].encode() for i in range(rows * 3)], object).reshape(rows, 3)
    dtype = np.dtype(TYPES[datatype])
    if datatype == "BOOL":
        return (np.arange(rows * 3) % 3 == 0).reshape(rows, 3)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        some = np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype)
    else:
        some = np.array([0.1, -0.0, 1e-3, 3e4, -1 / 3], np.float32).astype(dtype)
    return np.resize(some, (rows, 3))
