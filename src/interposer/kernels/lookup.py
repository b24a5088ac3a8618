"""Lookup tables of functions of 8- and 16-bit integers."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array, DataType

__all__ = ["all_integers", "all_pairs", "look_up", "look_up_pairs"]


def all_integers(dtype: DataType) -> Array:
    """Return every integer of a type of up to 16 bits in the order of their bit patterns, which index lookup tables."""
    return np.arange(2**dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)


def all_pairs(a: DataType, b: DataType) -> tuple[Array, Array]:
    """Return two arrays that broadcast to all pairs of integers of two 8-bit types, ordered by their bit patterns."""
    return all_integers(a)[:, np.newaxis], all_integers(b)


def look_up(table: Array, x: Array, out: Array) -> None:
    """Write to `out`, for every integer of `x`, its entry in a table of a function's results for `all_integers`."""
    np.take(table, x.view(f"u{x.itemsize}"), out=out, mode="clip")


def look_up_pairs(table: Array, a: Array, b: Array, out: Array) -> None:
    """Write to `out`, for every pair of elements of `a` and `b`, its entry in a table of results for `all_pairs`."""
    index = np.left_shift(a.view(np.uint8), 8, dtype=np.uint16)
    np.take(table.ravel(), np.bitwise_or(index, b.view(np.uint8)), out=out, mode="clip")
