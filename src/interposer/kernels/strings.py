"""Kernels of the operators on strings, which are arrays of Python strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.regex import Pattern
from interposer.ops.strings import CaseChange, RegexFullMatch, StringConcat, StringNormalizer, StringSplit

__all__: list[str] = []


_CHANGES: Final[dict[CaseChange, Callable[[str], str]]] = {
    CaseChange.NONE: str,
    CaseChange.LOWER: str.lower,
    CaseChange.UPPER: str.upper,
}


def _each(function: Callable[[str], Any], x: Array, dtype: Any) -> Array:
    array = np.empty(x.shape, dtype)
    array.reshape(-1)[:] = [function(text) for text in x.flat]
    return array


@kernel(StringConcat)
def string_concat(op: StringConcat, a: Array, b: Array) -> Array:
    return np.asarray(a + b, object)


@kernel(StringSplit)
def string_split(op: StringSplit, x: Array) -> tuple[Array, Array]:
    """Compute `StringSplit` by `str.split`; return the pieces and their numbers.

    Without a separator, the text after the last split keeps its white space.
    """
    most = -1 if op.maxsplit is None else op.maxsplit
    pieces = [text.split(op.delimiter or None, most) for text in x.flat]
    result = np.full((len(pieces), max(map(len, pieces), default=0)), "", object)
    for row, parts in zip(result, pieces, strict=True):
        row[: len(parts)] = parts
    counts = np.array([len(parts) for parts in pieces], np.int64)
    return result.reshape((*x.shape, result.shape[1])), counts.reshape(x.shape)


@kernel(StringNormalizer)
def string_normalizer(op: StringNormalizer, x: Array) -> Array:
    same: Callable[[str], str] = str if op.is_case_sensitive else str.lower
    dropped = {same(word) for word in op.stopwords}
    changed = _CHANGES[op.case_change]
    left = [changed(text) for text in x.flat if same(text) not in dropped] or [""]
    return np.array(left, object).reshape((*x.shape[:-1], -1))


@kernel(RegexFullMatch)
def regex_full_match(op: RegexFullMatch, x: Array, *, prepared: Pattern) -> Array:
    return _each(prepared.matches, x, np.bool_)


@kernel.prepare(regex_full_match)
def pattern_of(op: RegexFullMatch, info: KernelInfo) -> Pattern:
    return Pattern(op.pattern)
