"""Models that consist of a single node, built for the values that the node is to run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.frontends.onnx.proto import Message, onnx_package

__all__ = ["model_of"]


def model_of(node: Message, values: Sequence[Any], version: int | None = None) -> Message:
    """Return a model of one node; its inputs have the types and shapes of `values` (arrays, or lists for sequences).

    Args:
        node: an `onnx.NodeProto`.
        values: the values of its inputs in order, without absent ones.
        version: the node's opset version; by default the newest that the package onnx knows, or 1 in other domains.

    Raises:
        InvalidArgumentError: the number of values differs from that of the inputs, or a type is unknown.
        MissingDependencyError: the package onnx is not installed.
    """
    onnx = onnx_package()
    names = [name for name in node.input if name]
    if len(names) != len(values):
        raise InvalidArgumentError(f"{len(values)} inputs were given; the node has {len(names)}")
    types = {name: _type_of_value(onnx, name, value) for name, value in zip(names, values, strict=True)}
    inputs = [onnx.helper.make_value_info(name, type_proto) for name, type_proto in types.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], node.op_type, inputs, outputs)
    default_version = onnx.defs.onnx_opset_version() if node.domain in {"", "ai.onnx"} else 1
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version or default_version)]
    )


def _type_of_value(onnx: Any, name: str, value: Any) -> Message:
    if isinstance(value, list):
        if not value:
            raise InvalidArgumentError(f"input {name!r} is an empty list, which says no type; run a model instead")
        return onnx.helper.make_sequence_type_proto(_type_of_value(onnx, name, value[0]))
    array = np.asarray(value)
    try:
        element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError(f"input {name!r} is {array.dtype}, which ONNX has no type for") from error
    return onnx.helper.make_tensor_type_proto(element_type, array.shape)
