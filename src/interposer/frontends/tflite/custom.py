"""Custom operators: converters of users, and the layers that stand in for unknown operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from interposer.core.errors import InterposerError, InvalidArgumentError, ParseError, expect
from interposer.core.families import import_families
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import Converter, Entry, add_custom
from interposer.ir.graph import Value
from interposer.ops.control import StandIn

__all__ = ["STAND_IN", "operator"]


def operator(name: str) -> Callable[[Converter], Converter]:
    """Register the decorated function for a custom operator, for all TFLite files that are loaded.

    The function gets a `Node`, adds layers for it, and returns the value of the operator's output, or a sequence of
    values. ``node.options`` has the operator's options by name if they are a FlexBuffer, as those of most converters;
    ``node.raw_options`` has their bytes. The function may be called from several threads. A function that is defined
    again, for example when a notebook cell is run again, replaces the old one.

    Args:
        name: the operator's name, the `custom_code` in the file.

    Raises:
        InvalidArgumentError: the operator is known, or has another function.

    >>> import numpy as np
    >>> from interposer import ops
    >>> @operator("ScaledRelu")
    ... def scaled_relu(node):
    ...     positive = node.step(ops.Activation(ops.ActivationFunction.RELU), node.value(0))
    ...     scale = node.constant(np.float32(node.option("scale", float, 1.0)))
    ...     return node.result(ops.Multiplication(), positive, scale)
    """
    import_families(__package__)  # what is known must be known

    expect(name, str, "an operator's name must be a text")

    def register(convert: Converter) -> Converter:
        add_custom(name, _guarded(convert))
        return convert

    return register


def _guarded(convert: Converter) -> Converter:
    """Return a converter wrapped so that its exceptions and its results of wrong types become `ParseError`."""
    if not callable(convert):
        raise InvalidArgumentError(f"an operator's function must be callable, not {convert!r}")

    @functools.wraps(convert)
    def checked(node: Node) -> Sequence[Value]:
        try:
            converted_operator = convert(node)
        except InterposerError:
            raise
        except Exception as error:
            node.fail(f"its function failed ({type(error).__name__}: {error})")
        values: list[Any] = (
            list(converted_operator) if isinstance(converted_operator, list | tuple) else [converted_operator]
        )
        for value in values:
            if not isinstance(value, Value):
                node.fail(f"its function returned {value!r}; expected a Value, or a sequence of such")
        if not isinstance(converted_operator, Value) or len(node.operator.outputs) == 1:
            return values
        return converted_operator.producer.outputs  # `Node.result` gives the first one

    return checked


# --- unknown operators ------------------------------------------------------------------------------------------------


def _stand_in(node: Node) -> list[Value]:
    """Convert an unknown custom operator to a StandIn layer, whose description has its name and its options."""
    inputs = [node.optional(index) for index in range(node.num_inputs)]
    values = [value for value in inputs if value is not None]
    return node.results(StandIn(len(node.operator.outputs), f"{node.kind}({_options(node)})"), *values)


def _options(node: Node) -> str:
    try:
        return ", ".join(f"{name}={setting!r}" for name, setting in node.options.items())
    except ParseError:  # the options are no FlexBuffer
        return node.raw_options.hex()


STAND_IN: Final = Entry(_stand_in, "")
"""The entry that replaces that of an unknown custom operator."""
