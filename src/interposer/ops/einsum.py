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
        inputs_text, arrow, output_term = self.equation.replace(" ", "").partition("->")
        return tuple(inputs_text.split(",")), output_term if arrow else _implied_output_term(inputs_text)

    def check(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        errors = list(self._term_problems(len(inputs)))
        errors += () if errors else self._rank_problems(inputs)
        errors += () if errors else self._dimension_problems(inputs)
        yield from errors

    def _term_problems(self, count: int) -> Iterator[str]:
        input_terms, output_term = self.words()
        if len(input_terms) != count:
            yield f"equation {self.equation!r} is for {len(input_terms)} inputs, but there are {count}"
        for term in (*input_terms, output_term):
            letters = term.replace(_ELLIPSIS, "", 1)
            if not (letters == "" or (letters.isascii() and letters.isalpha())):
                yield f"equation {self.equation!r}: {term!r} may only have letters and one ellipsis"
        letters = output_term.replace(_ELLIPSIS, "")
        unknown_letters = sorted(set(letters) - set("".join(input_terms)))
        if unknown_letters:
            yield f"equation {self.equation!r}: no input has the letter {unknown_letters[0]!r} of the result"
        if len(set(letters)) < len(letters):
            yield f"equation {self.equation!r}: the result has a letter twice"
        if (_ELLIPSIS in output_term) != any(_ELLIPSIS in term for term in input_terms):
            yield f"equation {self.equation!r}: either inputs and result have an ellipsis, or neither"

    def _rank_problems(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        input_terms, _ = self.words()
        for index, (term, info) in enumerate(zip(input_terms, inputs, strict=True)):
            rank = len(term.replace(_ELLIPSIS, ""))
            if info.rank < rank or (info.rank > rank and _ELLIPSIS not in term):
                or_more = " or more" if _ELLIPSIS in term else ""
                yield f"inputs[{index}] has shape {info.shape}; expected rank {rank}{or_more} for {term!r}"

    def _dimension_problems(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        for letter, shapes in self._by_letter(inputs).items():
            if broadcast_shapes(*shapes) is None:
                description = "the ellipsis" if letter == _ELLIPSIS else repr(letter)
                yield f"equation {self.equation!r}: {description} stands for {' and '.join(map(str, shapes))}"
        if len(self._shape(inputs)) > MAX_RANK:
            yield f"the result has rank {len(self._shape(inputs))}; ranks 0 to {MAX_RANK} are supported"

    def _by_letter(self, inputs: tuple[TensorInfo, ...]) -> dict[str, list[TensorShape]]:
        """Return for every letter its sizes in the inputs, as shapes of one dimension.

        The key "..." has the shapes that the ellipsis stands for.
        """
        shapes_by_letter: dict[str, list[TensorShape]] = {}
        for term, info in zip(self.words()[0], inputs, strict=True):
            leading_letters, ellipsis, trailing_letters = term.partition(_ELLIPSIS)
            first_trailing_axis = info.rank - len(trailing_letters)
            for letter, dim in zip(
                leading_letters + trailing_letters,
                (*info.shape[: len(leading_letters)], *info.shape[first_trailing_axis:]),
                strict=True,
            ):
                shapes_by_letter.setdefault(letter, []).append(TensorShape((dim,)))
            if ellipsis:
                shapes_by_letter.setdefault(_ELLIPSIS, []).append(
                    TensorShape(info.shape[len(leading_letters) : first_trailing_axis])
                )
        return shapes_by_letter

    def _shape(self, inputs: tuple[TensorInfo, ...]) -> list[int]:
        shapes = {letter: broadcast_shapes(*shapes) or () for letter, shapes in self._by_letter(inputs).items()}
        leading_letters, ellipsis, trailing_letters = self.words()[1].partition(_ELLIPSIS)
        return [dim for letter in (*leading_letters, ellipsis, *trailing_letters) for dim in shapes.get(letter, ())]

    def infer(self, inputs: tuple[TensorInfo, ...]) -> TensorInfo:
        return TensorInfo(self._shape(inputs), inputs[0].dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        infos = tuple(info for info in inputs if info is not None)
        shapes = (broadcast_shapes(*shapes) or () for shapes in self._by_letter(infos).values())
        return len(infos) * math.prod(dim for shape in shapes for dim in shape)


def _implied_output_term(inputs_text: str) -> str:
    """Return the term of the result for an equation without ``->``; `inputs_text` has the terms of the inputs."""
    letters = inputs_text.replace(_ELLIPSIS, "")
    single_letters = sorted(letter for letter in set(letters) - {","} if letters.count(letter) == 1)
    return (_ELLIPSIS if _ELLIPSIS in inputs_text else "") + "".join(single_letters)
