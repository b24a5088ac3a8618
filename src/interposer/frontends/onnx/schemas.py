"""Operators that the standard defines by other operators, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Dim, TensorInfo
from interposer.frontends.onnx.operator_names import domain_of
from interposer.frontends.onnx.proto import Message, onnx_package
from interposer.frontends.onnx.tensors import type_number

__all__ = ["has_function", "newest_opset", "standard_function"]


@cache
def newest_opset(domain: str) -> int | None:
    """Return the latest opset version of a domain that the package onnx knows; None if it does not know the domain."""
    schemas = onnx_package().defs.get_all_schemas()
    return max((schema.since_version for schema in schemas if schema.domain == domain), default=None)


def standard_function(node: Message, version: int, info_of: Callable[[str], TensorInfo]) -> Message | None:
    """Return the `FunctionProto` that defines a node's operator in the standard, or None if there is none.

    `version` is that of the node's opset. Some functions depend on the node and the types of its inputs; `info_of`
    returns the info of an input by its name.
    """
    onnx, schema = onnx_package(), _schema(node, version)
    function = onnx.FunctionProto()
    if schema is not None and schema.has_function:
        function_version = _newest_version(schema.function_opset_versions, version)
        function.ParseFromString(schema.get_function_with_opset_version(function_version))
    elif schema is not None and schema.has_context_dependent_function:
        function_version = _newest_version(schema.context_dependent_function_opset_versions, version)
        _check_node(schema, node)
        input_types = [_type_proto(onnx, info_of(name) if name else None).SerializeToString() for name in node.input]
        serialized_function = schema.get_context_dependent_function_with_opset_version(
            function_version, node.SerializeToString(), input_types
        )
        function.ParseFromString(serialized_function)
    return function if function.node else None


def has_function(node: Message, version: int) -> bool:
    """Return True if `standard_function` may return a function for the node."""
    schema = _schema(node, version)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _schema(node: Message, version: int) -> Any:
    defs = onnx_package().defs
    try:
        return defs.get_schema(node.op_type, version, domain_of(node))
    except (defs.SchemaError, TypeError):  # TypeError: for names that are not text, or versions out of range
        return None


def _check_node(schema: Any, node: Message) -> None:
    """Raise `ParseError` for a node that violates the ONNX schema of its operator, in its inputs or attributes.

    The functions that the standard defines rely on valid nodes.
    """
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise ParseError(f"it has {len(node.input)} inputs; expected {schema.min_input} to {schema.max_input}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise ParseError(f"it has {len(node.output)} outputs; expected {schema.min_output} to {schema.max_output}")
    attribute_types = {attribute.name: attribute.type for attribute in node.attribute}
    for name, schema_attribute in schema.attributes.items():
        if name in attribute_types and attribute_types[name] != schema_attribute.type.value:
            raise ParseError(f"the attribute {name!r} is not of the type {schema_attribute.type.name}")
        if name not in attribute_types and schema_attribute.required:
            raise ParseError(f"it needs the attribute {name!r}")


def _newest_version(versions: Sequence[int], version: int) -> int:
    return max((candidate for candidate in versions if candidate <= version), default=min(versions))


def _type_proto(onnx: Any, info: TensorInfo | None) -> Message:
    if info is None:
        return onnx.TypeProto()
    if info.element is not None:
        helper = onnx.helper
        is_sequence = info.dtype is DataType.SEQUENCE
        make_type = helper.make_sequence_type_proto if is_sequence else helper.make_optional_type_proto
        return make_type(_type_proto(onnx, info.element))
    if not info.is_ranked:
        return onnx.helper.make_tensor_type_proto(type_number(info.dtype), None)
    shape = [dim.name if isinstance(dim, Dim) else dim for dim in info.shape]
    return onnx.helper.make_tensor_type_proto(type_number(info.dtype), shape)
