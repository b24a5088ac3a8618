"""The runs of a model for the rows of one batch, and their results as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from interposer.batch.columns import stacked
from interposer.batch.rows import Layout
from interposer.core.errors import BindingError, InterposerError, InvalidArgumentError
from interposer.core.types import Array, DataType, TensorInfo
from interposer.session import Model

__all__ = ["Runs"]

_Outputs: TypeAlias = "dict[str, Array]"


class _Outcome(NamedTuple):
    """The outputs of some rows, by column of the result; None and a message for one row that failed."""

    rows: int
    outputs: _Outputs | None
    error: str = ""


class Runs:
    """The runs for one batch.

    `columns` has the rows for each input, by the name of the input. `values` names the value of the network for each
    column of the result.
    """

    def __init__(
        self, model: Model, layout: Layout, columns: Mapping[str, Array | list[Any]], values: Mapping[str, str]
    ) -> None:
        self._model, self._layout, self._columns, self._values = model, layout, columns, values

    def results(self, count: int, by_row: bool) -> tuple[_Outputs, list[str]]:
        """Run all rows; return the columns of outputs, and for each row an error message, empty if it did not fail.

        If not `by_row`, the first error is raised.

        Raises:
            InterposerError: rows do not fit the inputs of the model, or a run failed.
        """
        outcomes = [outcome for rows in self._layout.chunks(count) for outcome in self._outcomes(rows, by_row)]
        if by_row:
            outcomes = _alike(outcomes)
        errors = [outcome.error for outcome in outcomes for _ in range(outcome.rows)]
        return {name: self._joined(name, outcomes) for name in self._values}, errors

    def _outcomes(self, rows: slice, by_row: bool) -> Iterator[_Outcome]:
        """Yield the results of some rows; if they fail and `by_row`, those of each row alone."""
        count = rows.stop - rows.start
        try:
            yield _Outcome(count, self._outputs(rows))
        except InterposerError as error:
            if not by_row:
                raise
            if count == 1:
                yield _Outcome(1, None, str(error))
                return
            for row in range(rows.start, rows.stop):
                yield from self._outcomes(slice(row, row + 1), by_row)

    def _outputs(self, rows: slice) -> _Outputs:
        """Return the outputs for some rows, from one run, or from one for each row if the rows have no batch."""
        infos = self._model.inputs
        arrays = {name: stacked(name, self._columns[name][rows], info) for name, info in infos.items()}
        layout = self._layout.fitted(arrays, infos)
        outputs_of_parts = [
            self._run(layout, arrays, part_outputs) for part_outputs in layout.chunks(rows.stop - rows.start)
        ]
        return {
            name: _concatenated(name, [part_outputs[name] for part_outputs in outputs_of_parts])
            for name in outputs_of_parts[0]
        }

    def _run(self, layout: Layout, arrays: Mapping[str, Array], rows: slice) -> _Outputs:
        names = list(dict.fromkeys(self._values.values()))
        requested_names = None if names == list(self._model.outputs) else names
        outputs = self._model.run(layout.inputs(arrays, self._model.inputs, rows), requested_names)
        outputs_by_name = dict(zip(names, outputs, strict=True))
        count = rows.stop - rows.start
        return {column: layout.results(name, outputs_by_name[name], count) for column, name in self._values.items()}

    def _joined(self, name: str, outcomes: Sequence[_Outcome]) -> Array:
        """Return a column of the result for all rows; see `_placeholder` for the rows that failed."""
        arrays = [outcome.outputs[name] for outcome in outcomes if outcome.outputs is not None]
        empty_array = arrays[0][:0] if arrays else _empty(self._info(self._values[name]), self._layout)
        parts = [
            _placeholder(empty_array, outcome.rows) if outcome.outputs is None else outcome.outputs[name]
            for outcome in outcomes
        ]
        return _concatenated(name, parts) if parts else empty_array

    def _info(self, value_name: str) -> TensorInfo | None:
        """Return the type and shape of a value of the network, or None if they are not known yet."""
        with suppress(InvalidArgumentError):
            return self._model.outputs.get(value_name) or self._model.values.get(value_name)
        return None


def _alike(outcomes: Sequence[_Outcome]) -> list[_Outcome]:
    """Replace the outcomes whose outputs have other shapes than those of the first success by errors."""
    first_outputs = next((outcome.outputs for outcome in outcomes if outcome.outputs is not None), {})
    return [
        outcome._replace(outputs=None, error=text) if (text := _unlike(outcome, first_outputs)) else outcome
        for outcome in outcomes
    ]


def _unlike(outcome: _Outcome, first_outputs: _Outputs) -> str:
    """Return a message if the rows of an output have another shape than those of `first_outputs`, else ""."""
    for name, array in (outcome.outputs or {}).items():
        if array.shape[1:] != first_outputs[name].shape[1:]:
            return (
                f"the output {name!r} of this row has the shape {array.shape[1:]}; "
                f"that of the first row has {first_outputs[name].shape[1:]}"
            )
    return ""


def _concatenated(name: str, arrays: Sequence[Array]) -> Array:
    for array in arrays:
        if array.shape[1:] != arrays[0].shape[1:]:
            raise BindingError(
                f"the output {name!r} has rows of different shapes, such as {arrays[0].shape[1:]} and "
                f"{array.shape[1:]}; one column needs rows of one shape"
            )
    return np.concatenate(arrays) if arrays[1:] else arrays[0]


def _empty(info: TensorInfo | None, layout: Layout) -> Array:
    """Return an array with no rows for an output; dimensions that are unknown have the size 0."""
    if info is None or not info.shape.is_ranked:
        return np.zeros((0, 0), np.float32)
    row = tuple(info.shape) if layout.size == 0 else tuple(info.shape)[1:]
    shape = (0, *(max(0, int(size)) for size in row))
    return np.zeros(shape, object if info.dtype is DataType.STRING else info.dtype.numpy)


def _placeholder(empty_array: Array, count: int) -> Array:
    """Return rows that stand for absent results: NaN in floats, "" in strings, else 0."""
    filler = np.nan if empty_array.dtype.kind in "fV" else "" if empty_array.dtype.kind == "O" else 0
    return np.full((count, *empty_array.shape[1:]), filler, empty_array.dtype)
