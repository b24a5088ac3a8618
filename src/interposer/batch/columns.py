"""Batches of other packages as columns, and columns as arrays: NumPy, lists, pandas, Arrow and what is alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import numpy as np

from interposer.core.errors import BindingError, InvalidArgumentError, expect
from interposer.core.types import Array, DataType, TensorInfo

__all__ = ["check_rows", "columns_of", "rows_of", "stacked"]


def columns_of(batch: Any) -> Mapping[Any, Any]:
    """Return the columns of a batch by name: of a mapping, a table of Arrow, or a data frame.

    Raises:
        InvalidArgumentError: the batch has no columns with names.
    """
    if isinstance(batch, Mapping):
        return batch
    names = getattr(batch, "column_names", None)  # Arrow
    names = getattr(batch, "columns", None) if names is None else names  # pandas and Polars
    if names is None:
        expect(batch, Mapping, "a batch must be a mapping from column names to arrays, a data frame or an Arrow table")
        names = ()
    try:
        return {name: batch[name] for name in names}
    except Exception as error:
        raise InvalidArgumentError(f"the columns of the {type(batch).__name__} cannot be read: {error}") from error


def check_rows(name: str, column: Any) -> None:
    """Raise `BindingError` unless a column is a container of rows; strings, bytes, mappings and sets are none."""
    with suppress(TypeError):  # an array or a tensor of rank 0 too
        if not isinstance(column, str | bytes | Mapping | Set) and len(column) >= 0:
            return
    raise BindingError(f"the column {name!r} is a single value; expected one element for each row")


def rows_of(name: str, column: Any) -> Array | list[Any]:
    """Return a column of a batch as an array or a list with one element for each row.

    Raises:
        BindingError: the column is a single value, or cannot be converted.
    """
    check_rows(name, column)
    if isinstance(column, np.ndarray | list):
        return column
    try:
        return _of_arrow(column) if hasattr(column, "to_pylist") else _of_container(column)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BindingError(f"the column {name!r} cannot be read as rows: {error}") from error


def _of_container(column: Any) -> Array | list[Any]:
    if hasattr(column, "__array__") or isinstance(column, memoryview):
        with suppress(ValueError):  # rows of different shapes
            return np.asarray(column)
    return list(column)


def _of_arrow(column: Any) -> Array | list[Any]:
    """Return the rows of an array of Arrow, or of one in chunks; rows without a value are None."""
    if column.null_count:
        rows: list[Any] = column.to_pylist()
        return rows
    chunks = [_of_chunk(chunk) for chunk in getattr(column, "chunks", [column])]
    return np.concatenate(chunks) if chunks else []


def _of_chunk(chunk: Any) -> Array:
    """Return the rows of an array of Arrow without chunks; tensors have their shape."""
    return np.asarray(chunk.to_numpy_ndarray() if hasattr(chunk, "to_numpy_ndarray") else chunk)


def stacked(name: str, rows: Array | list[Any], info: TensorInfo) -> Array:
    """Return rows for an input as one array, whose first dimension is the rows; `name` is that of the column.

    A row may be an array itself, as in the tensor columns of Ray Data and pandas.

    Raises:
        BindingError: the rows have different shapes, or a row has no value or is no array.
    """
    if isinstance(rows, np.ndarray) and (rows.dtype != object or info.dtype is DataType.STRING):
        _check_unmasked(name, rows)
        return rows
    arrays = [_row(name, row, info) for row in rows]
    return _stacked(name, arrays) if arrays else np.empty(0, np.float32)


def _stacked(name: str, rows: Sequence[Array]) -> Array:
    for row in rows:
        if row.shape != rows[0].shape:
            raise BindingError(
                f"the rows for the input {name!r} have different shapes, such as {rows[0].shape} and {row.shape}; "
                "give them one shape first"
            )
    return np.stack(rows)


def _row(name: str, row: Any, info: TensorInfo) -> Array:
    """Return one row as an array; Python's numbers, also in nested arrays of objects, become an array of numbers."""
    try:
        array = row if isinstance(row, np.ndarray) else np.asarray(row)
        if array.dtype == object and info.dtype is not DataType.STRING:
            array = np.asarray(array.tolist())
    except (TypeError, ValueError, RuntimeError) as error:
        raise BindingError(f"the column for the input {name!r} has a row that is no array: {error}") from error
    if array.dtype == object:
        _check_values(name, array)
    _check_unmasked(name, array)
    return array


def _check_values(name: str, row: Array) -> None:
    if any(value is None for value in row.flat):
        raise BindingError(f"the column for the input {name!r} has no value (None) in a row")


def _check_unmasked(name: str, rows: Array) -> None:
    if np.ma.is_masked(rows):
        raise BindingError(
            f"the column for the input {name!r} has masked elements; give them values first, such as with filled()"
        )
