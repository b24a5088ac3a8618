"""The converter of custom operators that are not known, for callers that accept stand-ins."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import Entry
from interposer.ir.graph import Value
from interposer.ops.control import StandIn

__all__ = ["STAND_IN"]


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
