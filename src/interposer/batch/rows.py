"""Rows of a batch as inputs of a model: chunks, padding, and the outputs of a run without the padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from interposer.core.errors import BindingError, InvalidArgumentError
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo
from interposer.session import Model

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows become inputs of a model.

    `size` is the number of rows in one run. It is None if the batch dimension of the model is open, so that a run takes
    any number of rows, and 0 if the model has no batch dimension, so that each row is a run of its own.
    """

    size: int | None

    @classmethod
    def of(cls, model: Model) -> Layout:
        """Return the layout of a model: the first dimension of all inputs and outputs is the batch, if it is the same.

        If it is not the same, the model has no batch dimension, and the size is 0.

        Raises:
            InvalidArgumentError: the model has states, so that the result of a row depends on the rows before it; or
                an input or output is not a tensor.
        """
        outputs = [info for info in model.outputs.values() if info is not None]
        infos = [*model.inputs.values(), *outputs]
        if states := _states(model):
            names = ", ".join(map(repr, states))
            raise InvalidArgumentError(
                f"the model {model.name!r} has states ({names}), so its rows are not independent of each other; "
                "call Model.run in a loop instead"
            )
        for name, info in [*model.inputs.items(), *model.outputs.items()]:
            if info is not None and not info.is_tensor:
                raise InvalidArgumentError(f"{name!r} of the model {model.name!r} is {info}; only tensors have rows")
        return cls(_common_size(infos, len(model.inputs)))

    def chunks(self, count: int) -> Iterator[slice]:
        """Yield the rows of each run, for a batch of `count` rows."""
        step = count if self.size is None else max(1, self.size)
        for start in range(0, count, max(1, step)):
            yield slice(start, min(start + step, count))

    def fitted(self, columns: Mapping[str, Array], infos: Mapping[str, TensorInfo]) -> Layout:
        """Return this layout if the rows of the columns fit it, or else the layout that runs each row alone.

        Raises:
            BindingError: the rows of a column have neither shape.
        """
        row_shapes = {name: column.shape[1:] for name, column in columns.items()}
        if self.size != 0 and all(_fits_batch(row_shapes[name], info) for name, info in infos.items()):
            return self
        for name, info in infos.items():
            if not _fits_whole(row_shapes[name], info):
                expected = tuple(info.shape) if self.size == 0 else tuple(info.shape)[1:]
                raise BindingError(
                    f"the rows for the input {name!r} have the shape {_shown(row_shapes[name])}; "
                    f"expected {_shown(expected)}"
                )
        return Layout(0)

    def inputs(self, columns: Mapping[str, Array], infos: Mapping[str, TensorInfo], rows: slice) -> dict[str, Array]:
        """Return the inputs of one run by name: the given rows of each column, filled up with copies of the last row.

        The columns fit this layout: see `fitted`.
        """
        return {name: self._input(columns[name][rows], info) for name, info in infos.items()}

    def _input(self, chunk: Array, info: TensorInfo) -> Array:
        if self.size == 0:
            is_whole = not info.shape.is_ranked or chunk.ndim - 1 == len(info.shape)
            return chunk[0] if is_whole else chunk
        chunk = chunk if chunk.ndim == len(info.shape) else chunk.reshape(len(chunk), *chunk.shape[2:])
        missing_rows = (self.size or len(chunk)) - len(chunk)
        return np.concatenate([chunk, np.repeat(chunk[-1:], missing_rows, axis=0)]) if missing_rows else chunk

    def results(self, name: str, output: Any, count: int) -> Array:
        """Return an output of a run with one element for each of the `count` rows, without those of the padding.

        Raises:
            BindingError: the output does not have one element for each row.
        """
        array = np.asarray(output)
        if self.size == 0:
            return array[np.newaxis]
        if array.ndim == 0 or len(array) != (self.size or count):
            raise BindingError(
                f"the output {name!r} has the shape {array.shape} for {self.size or count} rows, not one element "
                "for each row; name other outputs"
            )
        return array[:count]


def _states(model: Model) -> list[str]:
    """Return the names of the states; a model whose layers depend on values of inputs has none that are known."""
    with suppress(InvalidArgumentError):
        return list(model.state)
    return []


def _common_size(infos: Sequence[TensorInfo], inputs: int) -> int | None:
    """Return the batch size that all tensors share: see `Layout.size`. The first `inputs` tensors are inputs."""
    ranked_infos = [info for info in infos if info.shape.is_ranked]
    if any(len(info.shape) == 0 for info in ranked_infos) or any(not info.shape.is_ranked for info in infos[:inputs]):
        return 0
    sizes = {int(info.shape[0]) for info in ranked_infos if _is_size(info.shape[0])}
    is_open = any(not _is_size(info.shape[0]) for info in infos[:inputs])
    if len(sizes) > 1 or (is_open and sizes):
        return 0
    return None if is_open or not sizes else sizes.pop()


def _is_size(dimension: int) -> bool:
    return int(dimension) >= 0


def _fits_batch(row: Sequence[int], info: TensorInfo) -> bool:
    """Return True if rows of this shape can be elements of the input's batch dimension."""
    row_shape = tuple(info.shape)[1:]
    return _accepts(row_shape, row) or (tuple(row[:1]) == (1,) and _accepts(row_shape, row[1:]))


def _fits_whole(row: Sequence[int], info: TensorInfo) -> bool:
    """Return True if one row of this shape can be the whole input, perhaps with a new leading dimension of 1."""
    return not info.shape.is_ranked or _accepts(tuple(info.shape), row) or _accepts(tuple(info.shape), (1, *row))


def _accepts(expected: Sequence[int], row: Sequence[int]) -> bool:
    return len(expected) == len(row) and all(
        not _is_size(size) or int(size) == actual for size, actual in zip(expected, row, strict=True)
    )


def _shown(shape: Sequence[int]) -> str:
    sizes = ["?" if not _is_size(size) else str(int(size)) for size in shape]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
