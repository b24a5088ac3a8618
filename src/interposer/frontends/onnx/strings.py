"""ONNX converters for strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.ops.strings import CaseChange, RegexFullMatch, StringConcat, StringNormalizer, StringSplit

__all__: list[str] = []

_LANGUAGES_WITH_CASE_RULES: Final = frozenset({"az", "lt", "tr"})
"""Languages with special rules for changing the case of letters."""


@operator("StringConcat", since=20)
def string_concat(node: Node) -> Value:
    return node.result(StringConcat(), node.value(0), node.value(1))


@operator("StringSplit", since=20)
def string_split(node: Node) -> Sequence[Value]:
    """Convert StringSplit; without maxsplit, a string is split at every separator."""
    max_splits = node.integer("maxsplit") if node.has_attribute("maxsplit") else None
    return node.results(StringSplit(node.text("delimiter", ""), max_splits), node.value(0))


@operator("StringNormalizer", since=10)
def string_normalizer(node: Node) -> Value:
    """Convert StringNormalizer; the locale is ignored, except that locales with own case rules are refused."""
    action, language = node.text("case_change_action", "NONE"), node.text("locale", "")[:2].lower()
    if action not in CaseChange.__members__:
        raise ParseError(f"its case_change_action is {action!r}; expected {', '.join(CaseChange.__members__)}")
    if language in _LANGUAGES_WITH_CASE_RULES and action != "NONE":
        node.unsupported(f"the locale {node.text('locale')!r} has rules of its own for the case of letters")
    stop_words = node.texts("stopwords") if node.has_attribute("stopwords") else ()
    op = StringNormalizer(CaseChange[action], node.flag("is_case_sensitive"), stop_words)
    return node.result(op, node.value(0))


@operator("RegexFullMatch", since=20)
def regex_full_match(node: Node) -> Value:
    return node.result(RegexFullMatch(node.text("pattern", "")), node.value(0))
