"""Small Arm NN files made by hand: plain dicts, in the format's own words.

A table is a dict by field name, and a union is a pair of its member's name and a dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array
from interposer.formats.armnn.schema import DATA_TYPES, LAYER_TYPES, SCHEMA
from interposer.formats.flatbuffers import SCALARS, Field
from interposer.writers.tables import Format, Tables

Table = dict[str, Any]


def encode(graph: Mapping[str, Any], *, mark: bytes | None = None) -> bytes:
    """Return the file with this root table, and with the file identifier `mark`."""
    tables = Tables(Format(SCHEMA, "Arm NN", "armnn", mark), 0)
    return tables.finished(_table(tables, "SerializedGraph", graph))


def _table(tables: Tables, name: str, values: Mapping[str, Any]) -> int:
    fields = {field.name: field for field in SCHEMA.slots(name) if field}
    result = {}
    for key, value in values.items():
        if fields[key].kind == "union":
            result[f"{key}_type"] = SCHEMA.unions[fields[key].type].index(value[0]) + 1
        result[key] = _object(tables, fields[key], value)
    return tables.table(name, **result)


def _object(tables: Tables, field: Field, value: Any) -> Any:
    if field.kind in {"scalar", "struct"}:
        return value
    if field.kind == "union":
        return _table(tables, *value)
    if field.kind == "table":
        return _table(tables, field.type, value)
    if field.kind == "string":
        return tables.text(value)
    if field.kind == "vector":
        return tables.numbers(value, np.dtype(SCALARS[field.type]).name)
    return tables.tables([_table(tables, field.type, item) for item in value])


# --- parts of a file --------------------------------------------------------------------------------------------------


def info(shape: Sequence[int], dtype: str = "Float32", scale: float = 0.0, offset: int = 0, **more: Any) -> Table:
    """Return a tensor info; `dtype` is one of Arm NN's names."""
    scales = {"quantizationScale": scale, "quantizationOffset": offset}
    return {"dimensions": shape, "dataType": DATA_TYPES.index(dtype), **scales, **more}


def const(array: Array, dtype: str = "Float32", **more: Any) -> Table:
    """Return a constant; `more` are fields of its tensor info."""
    kind = {1: "Byte", 2: "Short", 4: "Int", 8: "Long"}[array.dtype.itemsize]
    data = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").ravel()
    return {"info": info(array.shape, dtype) | more, "data": (f"{kind}Data", {"data": data})}


def layer(
    kind: str, index: int, inputs: Sequence[tuple[int, int]] = (), outputs: Sequence[Table] = (), name: str = "",
    **fields: Any,
) -> Table:  # fmt: skip
    """Return a layer whose inputs are pairs: a layer's index and the number of its output.

    `fields` are those of its table."""
    base = {
        "index": index,
        "layerName": name or f"{kind.lower()}_{index}",
        "layerType": LAYER_TYPES.index(kind),
        "inputSlots": [{"index": number, "connection": pair} for number, pair in enumerate(inputs)],
        "outputSlots": [{"index": number, "tensorInfo": item} for number, item in enumerate(outputs)],
    }
    if kind in {"Input", "Output"}:
        base = {"base": base, "layerBindingId": fields.pop("binding_id", 0)}
    return {"layer": (f"{kind}Layer", {"base": base, **fields})}


def graph(layers: Sequence[Table], inputs: Sequence[int], outputs: Sequence[int], **versions: int) -> Table:
    """Return a root table; the ids of inputs and outputs are binding ids unless `versions` say otherwise."""
    return {
        "layers": layers,
        "inputIds": inputs,
        "outputIds": outputs,
        "featureVersions": {"bindingIdsScheme": 1, **versions},
    }


def one_layer(kind: str, inputs: Sequence[Table], outputs: Sequence[Table], **fields: Any) -> Table:
    """Return the root table of a network of one layer ``y``, whose inputs are ``x0``, ``x1``, and outputs ``out0``."""
    count = len(inputs)
    versions = fields.pop("versions", {})
    before = [layer("Input", i, outputs=[item], name=f"x{i}", binding_id=i) for i, item in enumerate(inputs)]
    own = layer(kind, count, [(i, 0) for i in range(count)], outputs, "y", **fields)
    after = [layer("Output", count + 1 + i, [(count, i)], name=f"out{i}", binding_id=i) for i in range(len(outputs))]
    return graph([*before, own, *after], range(count), range(len(outputs)), **versions)
