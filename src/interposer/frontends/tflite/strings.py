"""TFLite converters for operators on strings."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.strings import SkipGrams

__all__: list[str] = []


@operator("SKIP_GRAM", options=True)
def skip_gram(node: Node) -> Value:
    """Convert SKIP_GRAM, which lists sequences of words of a text."""
    options = node.options
    return node.result(
        SkipGrams(options["ngram_size"], options["max_skip_size"], options["include_all_ngrams"]), node.value(0)
    )
