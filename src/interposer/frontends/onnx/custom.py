"""User-defined operators: converters registered for all loads, or given to one load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from interposer.core.errors import InterposerError, InvalidArgumentError, ParseError, as_int, expect
from interposer.core.families import import_families
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, add_custom
from interposer.ir.graph import Value

__all__ = ["guarded", "operator", "overrides"]


def operator(name: str, *, domain: str = "", since: int = 1) -> Callable[[Converter], Converter]:
    """Register the decorated function for an operator that Interposer does not know, for all models that are loaded.

    The function gets a `Node`, adds layers for it, and returns the value of the node's output, or a sequence of values,
    with None for an output that it does not support. It may be called from several threads. A function that is defined
    again, for example when a notebook cell is run again, replaces the old one.

    Args:
        name: the operator's name, the `op_type` of its nodes.
        domain: the operator set that it is from; empty for the standard one.
        since: the first version of that operator set for which the function holds.

    Raises:
        InvalidArgumentError: the operator is known, or has another function since the same version.

    >>> from interposer import ops
    >>> @operator("SiLU", domain="com.example")
    ... def silu(node):
    ...     scaled = node.step(ops.Activation(ops.ActivationFunction.SIGMOID), node.value(0))
    ...     return node.result(ops.ElementwiseBinary(ops.BinaryOperation.MUL), node.value(0), scaled)
    """
    import_families(__package__)  # what is known must be known
    expect(name, str, "an operator's name must be a text")
    expect(domain, str, "an operator's domain must be a text")
    since = as_int(since, "since must be the number of an opset")

    def register(convert: Converter) -> Converter:
        add_custom("" if domain == "ai.onnx" else domain, name, since, guarded(convert))
        return convert

    return register


def overrides(operators: Mapping[str, Converter] | None) -> dict[str, Converter]:
    """Return the caller's converters by operator name as a dict, each wrapped as by `guarded`; empty for None.

    `InvalidArgumentError` is raised if the argument is not a mapping to functions.
    """
    expect(operators, Mapping | None, "operators must be a mapping from an operator's name to its function")
    return {name: guarded(convert) for name, convert in (operators or {}).items()}


def guarded(convert: Converter) -> Converter:
    """Return a converter wrapped so that its exceptions and its results of wrong types become `ParseError`.

    `InvalidArgumentError` is raised if `convert` is not callable.
    """
    if not callable(convert):
        raise InvalidArgumentError(f"an operator's function must be callable, not {convert!r}")

    @functools.wraps(convert)
    def checked(node: Node) -> Value | Sequence[Value | None]:
        try:
            converted_node = convert(node)
        except InterposerError:
            raise
        except Exception as error:
            raise ParseError(f"its function failed ({type(error).__name__}: {error})") from error
        outputs = list(converted_node) if isinstance(converted_node, list | tuple) else [converted_node]
        for output in outputs:
            if not isinstance(output, Value | None):
                raise ParseError(f"its function returned {output!r}; expected a Value, or a sequence of such")
        return outputs  # type: ignore[return-value]

    return checked
