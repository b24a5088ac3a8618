"""Shape checks with named dimensions: every dimension is a letter, and a shape is a word of letters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from interposer.core.schema import Op
from interposer.core.types import UNKNOWN, Dim, TensorInfo, TensorShape, differ

__all__ = ["Infos", "by_name", "dimension_problems", "matrix_operations", "shape_of", "sizes_by_letter"]

Infos = Mapping[str, TensorInfo | None]


def by_name(op: Op, operands: Sequence[TensorInfo | None]) -> dict[str, TensorInfo | None]:
    """Return the infos of an operator's operands by their names; omitted trailing operands are None."""
    padded_infos = [*operands, *[None] * (len(op.operands) - len(operands))]
    return {declared_operand.name: info for declared_operand, info in zip(op.operands, padded_infos, strict=True)}


def sizes_by_letter(infos: Infos, words: Mapping[str, str]) -> dict[str, int]:
    """Return the size of every letter in `words`, which have a letter for each dimension of the tensors in `infos`.

    A known size is preferred over an unknown one.

    >>> sizes_by_letter({"x": TensorInfo((None, 3)), "w": TensorInfo((4, 3))}, {"x": "BI", "w": "UI"})
    {'B': ?, 'I': 3, 'U': 4}
    """
    sizes: dict[str, int] = dict.fromkeys("".join(words.values()), UNKNOWN)
    for letter, size, _ in _lettered(infos, words):
        if sizes[letter] is UNKNOWN or (isinstance(sizes[letter], Dim) and not isinstance(size, Dim)):
            sizes[letter] = size
    return sizes


def dimension_problems(infos: Infos, words: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for every dimension whose size differs from an earlier one with the same letter in `words`.

    `words` maps the name of a tensor to a letter for each of its dimensions. Unknown sizes are never wrong.
    """
    first_uses: dict[str, tuple[int, str]] = {}
    for letter, size, name in _lettered(infos, words):
        if isinstance(size, Dim):
            continue
        first_size, first_name = first_uses.setdefault(letter, (size, name))
        if differ(size, first_size):
            info, first_info = infos[name], infos[first_name]
            assert info is not None
            assert first_info is not None
            tensor = f"{name} ({', '.join(words[name])}) has shape {info.shape}"
            first_tensor = f"{first_name} ({', '.join(words[first_name])}) {first_info.shape}"
            yield f"{tensor} and {first_tensor}; {letter} must be the same"


def _lettered(infos: Infos, words: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    for name, info in infos.items():
        if info is not None and name in words:
            yield from ((letter, size, name) for letter, size in zip(words[name], info.shape, strict=True))


def shape_of(word: str, sizes: Mapping[str, int]) -> TensorShape:
    """Return the shape with a dimension for every letter of a word; `sizes` has the size of each letter."""
    return TensorShape(sizes[letter] for letter in word)


def matrix_operations(op: Op, inputs: Sequence[TensorInfo | None]) -> int:
    """Return the number of operations if every row of the first operand is multiplied by all weights.

    Weights are the operands whose names end in "weights". Each multiplication and each addition counts as one
    operation.
    """
    [input, *_] = inputs
    assert input is not None
    infos = by_name(op, inputs).items()
    weights = sum(int(info.num_elements) for name, info in infos if info is not None and name.endswith("weights"))
    return 2 * math.prod(input.shape[:-1]) * weights
