"""Operators on string tensors."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, differ
from interposer.ops.axes import broadcast_shapes

__all__ = ["CaseChange", "RegexFullMatch", "SkipGrams", "StringConcat", "StringNormalizer", "StringSplit"]

_STRING: Final = (DataType.STRING,)


@op(traits=Trait.POINTWISE)
class StringConcat(Op):
    """Concatenate strings, element by element.

    Shapes:
        a, b: shapes that broadcast by NumPy's rule
        output: the common shape

    Example:
        >>> compute(StringConcat(), ["a", "b"], [".py"]).tolist()
        ['a.py', 'b.py']

    Source:
        ONNX StringConcat-20.
    """

    a = operand(dtypes=_STRING)
    b = operand(dtypes=_STRING)
    output = result(dtypes=_STRING)

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        if broadcast_shapes(a.shape, b.shape) is None:
            yield f"a has shape {a.shape} and b {b.shape}, which do not broadcast"

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return a.with_shape(broadcast_shapes(a.shape, b.shape) or ())


@op
class StringSplit(Op):
    """Split strings at a separator; shorter lists of pieces are filled up with empty strings.

    Without a separator, strings are split at runs of white space, and white space at both ends is removed.

    Shapes:
        input: any of rank 0 to 7
        output: the input's shape, followed by the largest number of pieces
        counts: the input's shape, the number of pieces of each string

    Example:
        >>> output, counts = compute(StringSplit(delimiter="."), ["a.b.c", "d"])
        >>> output.tolist(), counts.tolist()
        ([['a', 'b', 'c'], ['d', '', '']], [3, 1])
        >>> compute(StringSplit(maxsplit=1), [" a  b c "])[0].tolist()
        [['a', 'b c ']]

    Source:
        ONNX StringSplit-20.
    """

    input = operand(rank=(0, MAX_RANK - 1), dtypes=_STRING)
    output = result(dtypes=_STRING, dynamic=True)
    counts = result(dtypes=(DataType.INT64,))

    delimiter: str = attribute(default="", doc="The separator; an empty string means white space.")
    maxsplit: int | None = attribute(default=None, ge=0, doc="Maximum number of splits of a string.")

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, ...]:
        return input.with_shape((*input.shape, UNKNOWN)), TensorInfo(input.shape, DataType.INT64)


class CaseChange(Enum):
    """The case conversion of `StringNormalizer`: none, to lower case or to upper case."""

    NONE = "NONE"
    LOWER = "LOWER"
    UPPER = "UPPER"


@op
class StringNormalizer(Op):
    """Remove stop words from a list of strings, and change the case of the others.

    Case conversion follows Unicode's locale-independent rules: in any locale, İ becomes i with a dot above. If all
    strings are removed, the result is one empty string.

    Shapes:
        input: (C,) or (1, C)
        output: (D,) or (1, D), where D is the number of remaining strings, at least 1

    Example:
        >>> op = StringNormalizer(case_change=CaseChange.UPPER, stopwords=("monday",))
        >>> compute(op, ["Monday", "tuesday"]).tolist()
        ['TUESDAY']

    Source:
        ONNX StringNormalizer-10, without its locale.
    """

    input = operand(rank=(1, 2), dtypes=_STRING)
    output = result(dtypes=_STRING, dynamic=True)

    case_change: CaseChange = attribute(default=CaseChange.NONE, doc="Case conversion of the remaining strings.")
    is_case_sensitive: bool = attribute(default=False, doc="Compare with the stop words case-sensitively.")
    stopwords: tuple[str, ...] = attribute(default=(), doc="The stop words, which are removed.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if input.rank == 2 and input.shape[0] != 1 and not isinstance(input.shape[0], Dim):
            yield f"input has shape {input.shape}; expected [C] or [1, C]"

    def infer(self, input: TensorInfo) -> TensorInfo:
        count = input.shape[-1]
        if self.stopwords:
            return input.with_shape((*input.shape[:-1], UNKNOWN))
        return input.with_shape((*input.shape[:-1], count if isinstance(count, Dim) else max(count, 1)))


@op(traits=Trait.POINTWISE)
class RegexFullMatch(Op):
    """True for strings that a regular expression matches completely.

    The expression has the syntax of RE2; the time of matching is linear in the lengths of expression and text.
    Of the Unicode classes, the general categories are supported, such as ``\\\\p{Lu}``.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(RegexFullMatch(pattern="[a-z]+@(here|there)"), ["me@here", "me@nowhere"]).tolist()
        [True, False]

    Source:
        ONNX RegexFullMatch-20.
    """

    input = operand(dtypes=_STRING)
    output = result(dtypes=(DataType.BOOL,))

    pattern: str = attribute(default="", doc="The regular expression.")

    def _attribute_problems(self) -> Iterator[str]:
        from interposer.ops.regex import Pattern  # noqa: PLC0415 - few networks have patterns

        try:
            Pattern(self.pattern)
        except InvalidArgumentError as error:
            yield str(error)

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, DataType.BOOL)


@op
class SkipGrams(Op):
    """List the n-grams of a text: sequences of its words in order, between which other words may be skipped.

    Words are separated by white space. An n-gram comes after the longer n-grams that begin with it. A text with fewer
    words than ``ngram_size`` has no n-grams.

    Shapes:
        input: (1,)
        output: (N,)

    Example:
        >>> compute(SkipGrams(ngram_size=2, max_skip_size=1), ["a b c"]).tolist()
        ['a b', 'a c', 'b c']
        >>> compute(SkipGrams(ngram_size=2, include_all_ngrams=True), ["a b c"]).tolist()
        ['a b', 'a', 'b c', 'b', 'c']

    Source:
        TFLite SKIP_GRAM.
    """

    input = operand(rank=(0, 1), dtypes=_STRING)
    output = result(rank=1, dtypes=_STRING, dynamic=True)

    ngram_size: int = attribute(ge=1, doc="The number of words in an n-gram.")
    max_skip_size: int = attribute(default=0, ge=0, doc="Maximum number of words between two words of an n-gram.")
    include_all_ngrams: bool = attribute(default=False, doc="List shorter n-grams as well.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if differ(input.num_elements, 1):
            yield f"input has shape {input.shape}; expected one text"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_shape((UNKNOWN,))
