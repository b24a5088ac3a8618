"""Samples of operators on strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.ops import CaseChange, RegexFullMatch, SkipGrams, StringConcat, StringNormalizer, StringSplit
from interposer.testing.sample import Given, Sample, of, samples

__all__: list[str] = []

DAYS: Final = ("Monday", "tuesday", "monday", "ÄRGER", "")


def _texts(values: object) -> Given:
    return of(values, DataType.STRING)


def _expected(values: object) -> Array:
    return np.array(values, object)


@samples(StringConcat)
def string_concat() -> Iterator[Sample]:
    """Yield StringConcat samples: shapes that broadcast, strings in several scripts, and empty strings."""
    operands_by_label = {
        "scalar": ("a", "b"),
        "row": (["a", "", "ß"], ["x", "y", "日本"]),
        "broadcast": ([["a"], ["b"]], ["x", "y", ""]),
        "scalar-row": ("a", ["x", "y"]),
        "none": ([], ["x"]),
    }
    for label, (a, b) in operands_by_label.items():
        yield Sample(StringConcat(), [_texts(a), _texts(b)], name=label)
    worked = _expected([["ax", "ay"], ["bx", "by"]])
    yield Sample(StringConcat(), [_texts([["a"], ["b"]]), _texts(["x", "y"])], name="worked", expected=[worked])


@samples(StringSplit)
def string_split() -> Iterator[Sample]:
    """Yield StringSplit samples.

    They cover white space, separators of one or more characters, limits, and empty strings or only separators.
    """
    texts = {"scalar": "a b", "row": ["a  b c", " a ", "", "a-b--c"], "table": [["a"], ["b-c d"]], "none": []}
    for label, value in texts.items():
        for separator in ("", "-", "--", " "):
            for max_splits in (None, 0, 1, 5):
                name = f"{label}-{separator or 'space'}-{max_splits}"
                yield Sample(StringSplit(separator, max_splits), [_texts(value)], name=name)
    pieces, counts = _expected([["a", "b"], ["", "c"], ["", ""]]), np.array([2, 2, 1])
    yield Sample(StringSplit(","), [_texts(["a,b", ",c", ""])], name="worked", expected=[pieces, counts])


@samples(StringNormalizer)
def string_normalizer() -> Iterator[Sample]:
    """Yield StringNormalizer samples.

    They cover every change of case, stop words with and without case, vectors and one-row matrices, and empty results.
    """
    for change in CaseChange:
        for is_case_sensitive in (False, True):
            for words in ((), ("monday", "ärger"), DAYS):
                op = StringNormalizer(change, is_case_sensitive, words)
                name = f"{change.value}-{'exact' if is_case_sensitive else 'any'}-{len(words)}"
                yield Sample(op, [_texts(DAYS)], name=name)
                yield Sample(op, [_texts([DAYS])], name=f"{name}-table")
    for shape in ((0,), (1, 0)):
        empty_texts = Given(_texts(np.empty(shape, object)).info, np.empty(shape, object))
        yield Sample(StringNormalizer(), [empty_texts], name=f"rank{len(shape)}-none")
    op = StringNormalizer(CaseChange.UPPER, stopwords=("MONDAY",))
    yield Sample(op, [_texts(DAYS[:3])], name="worked", expected=[_expected(["TUESDAY"])])


@samples(RegexFullMatch)
def regex_full_match() -> Iterator[Sample]:
    """Yield RegexFullMatch samples.

    They cover all of the pattern syntax on many strings, and a pattern that makes backtracking matchers slow.
    """
    text_rows = [["", "a", "aa", "ab1"], ["A", "ä", "a\nb", "a.b"]]
    patterns = (
        "", "a*", "(a|b)+1?", "[^a]", "[[:upper:]]", "a.b", "(?s)a.b", "(?i)A{1,2}", "\\w+", "^a$", "\\ba.*", "\\pL",
        "a\\.b", "\\x61", "(?P<x>a)(?:a)", "\\Qa.\\E.",
    )  # fmt: skip
    for number, pattern in enumerate(patterns):
        yield Sample(RegexFullMatch(pattern), [_texts(text_rows)], name=f"pattern-{number}")
    yield Sample(RegexFullMatch("(a*)*b"), [_texts("a" * 200)], name="patient", expected=[np.array(False)])
    mail = RegexFullMatch("[a-z]+@[a-z]+\\.(com|org)")
    yield Sample(mail, [_texts(["me@here.org", "@here.org"])], name="worked", expected=[np.array([True, False])])


@samples(SkipGrams)
def skip_grams() -> Iterator[Sample]:
    """Yield SkipGrams samples: n-grams of several sizes, with and without skipped words and shorter n-grams."""
    for size, max_skipped, includes_shorter in (
        (1, 0, False),
        (2, 0, False),
        (2, 2, True),
        (3, 1, False),
        (9, 1, True),
    ):
        op = SkipGrams(size, max_skipped, includes_shorter)
        yield Sample(op, [_texts(["the quick  brown fox jumps "])], name=f"{size}-{max_skipped}-{includes_shorter}")
    yield Sample(SkipGrams(2, 1), [_texts(["a b c"])], name="worked", expected=[_expected(["a b", "a c", "b c"])])
