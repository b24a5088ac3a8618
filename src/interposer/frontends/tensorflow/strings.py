"""TensorFlow converters for strings."""

from __future__ import annotations

import numpy as np

from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.strings import CaseChange, RegexFullMatch, StringConcat, StringNormalizer

__all__: list[str] = []


@operator("StringLower", "StringUpper")
def change_case(node: Node) -> Value:
    """Convert StringLower and StringUpper; without an encoding, only letters of ASCII may occur."""
    x, case = node.value(0), CaseChange.LOWER if node.kind == "StringLower" else CaseChange.UPPER
    if x.known.rank == 1:
        return node.result(StringNormalizer(case), x)
    flat_texts = node.step(StringNormalizer(case), reshaped(node, x, [-1]))
    return final_reshape_like(node, flat_texts, x)


@operator("StringJoin")
def join(node: Node) -> Value:
    """Convert StringJoin: concatenate strings element by element, with a separator between them."""
    separator = node.text("separator", "")
    joined_text, *others = node.values()
    separator_value = node.constant(np.array(separator, object)) if separator else None
    for value in others:
        joined_text = (
            joined_text if separator_value is None else node.step(StringConcat(), joined_text, separator_value)
        )
        joined_text = node.result(StringConcat(), joined_text, value)
    return joined_text


@operator("StaticRegexFullMatch")
def full_match(node: Node) -> Value:
    """Convert StaticRegexFullMatch: whether the whole string matches a regular expression."""
    return node.result(RegexFullMatch(node.text("pattern")), node.value(0))
