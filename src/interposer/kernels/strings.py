"""Kernels of the operators on strings, which are arrays of Python strings."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.regex import Pattern
from interposer.ops.strings import CaseChange, RegexFullMatch, SkipGrams, StringConcat, StringNormalizer, StringSplit

__all__: list[str] = []


_CHANGES: Final[dict[CaseChange, Callable[[str], str]]] = {
    CaseChange.NONE: str,
    CaseChange.LOWER: str.lower,
    CaseChange.UPPER: str.upper,
}


def _each(function: Callable[[str], Any], x: Array, dtype: Any) -> Array:
    mapped = np.empty(x.shape, dtype)
    mapped.reshape(-1)[:] = [function(text) for text in x.flat]
    return mapped


@kernel(StringConcat)
def string_concat(op: StringConcat, a: Array, b: Array) -> Array:
    return np.asarray(a + b, object)


@kernel(StringSplit)
def string_split(op: StringSplit, x: Array) -> tuple[Array, Array]:
    """Compute `StringSplit` by `str.split`; return the pieces and their numbers.

    Without a separator, the text after the last split keeps its white space.
    """
    max_splits = -1 if op.maxsplit is None else op.maxsplit
    pieces = [text.split(op.delimiter or None, max_splits) for text in x.flat]
    padded = np.full((len(pieces), max(map(len, pieces), default=0)), "", object)
    for row, row_pieces in zip(padded, pieces, strict=True):
        row[: len(row_pieces)] = row_pieces
    counts = np.array([len(row_pieces) for row_pieces in pieces], np.int64)
    return padded.reshape((*x.shape, padded.shape[1])), counts.reshape(x.shape)


@kernel(StringNormalizer)
def string_normalizer(op: StringNormalizer, x: Array) -> Array:
    comparison_form: Callable[[str], str] = str if op.is_case_sensitive else str.lower
    stopwords = {comparison_form(word) for word in op.stopwords}
    change_case = _CHANGES[op.case_change]
    words = [change_case(text) for text in x.flat if comparison_form(text) not in stopwords] or [""]
    return np.array(words, object).reshape((*x.shape[:-1], -1))


@kernel(RegexFullMatch)
def regex_full_match(op: RegexFullMatch, x: Array, *, prepared: Pattern) -> Array:
    return _each(prepared.matches, x, np.bool_)


@kernel.prepare(regex_full_match)
def pattern_of(op: RegexFullMatch, info: KernelInfo) -> Pattern:
    return Pattern(op.pattern)


@kernel(SkipGrams)
def skip_grams(op: SkipGrams, x: Array) -> Array:
    """Compute `SkipGrams` by recursion over the words of the text."""
    words = _words(x.reshape(-1)[0])
    if len(words) < op.ngram_size:
        return np.empty(0, object)
    grams = [
        " ".join(words[word] for word in gram)
        for start in range(len(words))
        for gram in _grams(op, [start], len(words))
    ]
    return np.array(grams, object)


def _grams(op: SkipGrams, gram: list[int], count: int) -> Iterator[list[int]]:
    """Yield the n-grams that begin with the words `gram`, as indices of words, of which there are `count`."""
    if len(gram) < op.ngram_size:
        for next_word in range(gram[-1] + 1, min(gram[-1] + op.max_skip_size + 2, count)):
            yield from _grams(op, [*gram, next_word], count)
    if op.include_all_ngrams or len(gram) == op.ngram_size:
        yield gram


def _words(text: str) -> list[str]:
    """Split a text at white space of ASCII; like TFLite, drop a first word after white space, unless it is the last."""
    pieces = re.split(f"[{string.whitespace}]", text)
    if len(pieces) > 1 and not pieces[0]:
        return [text] if len(pieces) == 2 else [piece for piece in pieces[2:] if piece]
    return [piece for piece in pieces if piece]
