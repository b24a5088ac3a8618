"""Einstein summation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import MAX_RANK, TensorInfo, TensorShape
from interposer.ops.axes import broadcast_shapes

__all__ = ["Einsum"]

_ELLIPSIS: Final = "..."


@op
class Einsum(Op):
    """Einstein summation: multiply tensors whose axes are named by letters, and sum over the letters not in the result.

    ``equation`` has a term for every input, separated by commas, and the term of the result after ``->``:
    "bij,bjk->bik" is a batched matrix product. An ellipsis (...) stands for further axes, which are broadcast. A letter
    that occurs twice in a term takes the diagonal. Without ``->``, the result has the axes of the ellipsis and then, in
    alphabetical order, the letters that occur exactly once. Integers wrap around.

    Shapes:
        inputs: an axis for every letter; axes with the same letter have the same size, or size 1
        output: the dimensions of its letters

    Example:
        >>> compute(Einsum(equation="ij,jk->ik"), [[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
        [[2, 1], [4, 3]]
        >>> compute(Einsum(equation="ii->i"), [[1, 2], [3, 4]]).tolist()
        [1, 4]
        >>> compute(Einsum(equation="i,i"), [1, 2, 3], [10, 100, 1000]).tolist()
        3210
        >>> compute(Einsum(equation="...i,i->..."), [[1, 2], [3, 4]], [1, 10]).tolist()
        [21, 43]

    Source:
        ONNX Einsum-12; numpy.einsum.
    """

    inputs = operand(variadic=True, same_dtype_as="inputs")
    output = result(dtype_of="inputs")

    equation: str = attribute(doc='The equation, such as "ij,jk->ik".')

    def words(self) -> tuple[tuple[str, ...], str]:
        """Return the terms of the inputs, and the term of the result: "ij,jk->ik" gives ``(("ij", "jk"), "ik")``."""
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        return tuple(left.split(",")), right if arrow else _implied(left)

    def check(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        errors = list(self._word_problems(len(inputs)))
        errors += () if errors else self._rank_problems(inputs)
        errors += () if errors else self._dimension_problems(inputs)
        yield from errors

    def _word_problems(self, count: int) -> Iterator[str]:
        words, output = self.words()
        if len(words) != count:
            yield f"equation {self.equation!r} is for {len(words)} inputs, but there are {count}"
        for word in (*words, output):
            letters = word.replace(_ELLIPSIS, "", 1)
            if not (letters == "" or (letters.isascii() and letters.isalpha())):
                yield f"equation {self.equation!r}: {word!r} may only have letters and one ellipsis"
        letters = output.replace(_ELLIPSIS, "")
        unknown = sorted(set(letters) - set("".join(words)))
        if unknown:
            yield f"equation {self.equation!r}: no input has the letter {unknown[0]!r} of the result"
        if len(set(letters)) < len(letters):
            yield f"equation {self.equation!r}: the result has a letter twice"
        if (_ELLIPSIS in output) != any(_ELLIPSIS in word for word in words):
            yield f"equation {self.equation!r}: either inputs and result have an ellipsis, or neither"

    def _rank_problems(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        words, _ = self.words()
        for number, (word, info) in enumerate(zip(words, inputs, strict=True)):
            rank = len(word.replace(_ELLIPSIS, ""))
            if info.rank < rank or (info.rank > rank and _ELLIPSIS not in word):
                more = " or more" if _ELLIPSIS in word else ""
                yield f"inputs[{number}] has shape {info.shape}; expected rank {rank}{more} for {word!r}"

    def _dimension_problems(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        for letter, shapes in self._by_letter(inputs).items():
            if broadcast_shapes(*shapes) is None:
                name = "the ellipsis" if letter == _ELLIPSIS else repr(letter)
                yield f"equation {self.equation!r}: {name} stands for {' and '.join(map(str, shapes))}"
        if len(self._shape(inputs)) > MAX_RANK:
            yield f"the result has rank {len(self._shape(inputs))}; ranks 0 to {MAX_RANK} are supported"

    def _by_letter(self, inputs: tuple[TensorInfo, ...]) -> dict[str, list[TensorShape]]:
        """Return for every letter its sizes in the inputs, as shapes of one dimension.

        The key "..." has the shapes that the ellipsis stands for.
        """
        match: dict[str, list[TensorShape]] = {}
        for word, info in zip(self.words()[0], inputs, strict=True):
            before, dots, consumers = word.partition(_ELLIPSIS)
            end = info.rank - len(consumers)
            for letter, dim in zip(before + consumers, (*info.shape[: len(before)], *info.shape[end:]), strict=True):
                match.setdefault(letter, []).append(TensorShape((dim,)))
            if dots:
                match.setdefault(_ELLIPSIS, []).append(TensorShape(info.shape[len(before) : end]))
        return match

    def _shape(self, inputs: tuple[TensorInfo, ...]) -> list[int]:
        shapes = {name: broadcast_shapes(*shapes) or () for name, shapes in self._by_letter(inputs).items()}
        before, dots, consumers = self.words()[1].partition(_ELLIPSIS)
        return [dim for name in (*before, dots, *consumers) for dim in shapes.get(name, ())]

    def infer(self, inputs: tuple[TensorInfo, ...]) -> TensorInfo:
        return TensorInfo(self._shape(inputs), inputs[0].dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        value = tuple(info for info in inputs if info is not None)
        shapes = (broadcast_shapes(*shapes) or () for shapes in self._by_letter(value).values())
        return len(value) * math.prod(dim for shape in shapes for dim in shape)


def _implied(left: str) -> str:
    """Return the term of the result for an equation without ``->``; `left` has the terms of the inputs."""
    letters = left.replace(_ELLIPSIS, "")
    once = sorted(letter for letter in set(letters) - {","} if letters.count(letter) == 1)
    return (_ELLIPSIS if _ELLIPSIS in left else "") + "".join(once)
