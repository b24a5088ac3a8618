"""A cache of results, for requests with the same inputs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, TypeAlias

from interposer.core.types import Array
from interposer.ir.graph import Graph

__all__ = ["Cache", "ModelCache", "alone", "is_pure"]

_Key: TypeAlias = tuple[int, bytes]
_ENTRY: Final = 512
"""Bytes of an entry beside its arrays."""


class Cache:
    """The results of the latest requests of all models. Used from the thread of the event loop only.

    Args:
        size: the most bytes of all results together; those that were not used for longest are dropped first.
    """

    def __init__(self, size: int) -> None:
        self._size, self._bytes = size, 0
        self._results: OrderedDict[_Key, list[Array]] = OrderedDict()
        self._owners = count()

    @property
    def bytes(self) -> int:
        """The bytes of all results that are cached."""
        return self._bytes

    def of_model(self) -> ModelCache:
        """Return the cache of one model version; no other one has its results."""
        return ModelCache(self, next(self._owners))

    def get(self, key: _Key) -> list[Array] | None:
        """Return a result, or None if it is not cached."""
        result = self._results.get(key)
        if result is not None:
            self._results.move_to_end(key)
        return result

    def put(self, key: _Key, result: list[Array]) -> None:
        """Cache a result, unless it is larger than an eighth of the cache."""
        size = _bytes_of(result)
        if key in self._results or size > self._size // 8:
            return
        self._results[key] = [alone(array) for array in result]
        self._bytes += size
        while self._bytes > self._size:
            self._bytes -= _bytes_of(self._results.popitem(last=False)[1])

    def drop(self, owner: int) -> None:
        """Drop the results of one model version."""
        for key in [key for key in self._results if key[0] == owner]:
            self._bytes -= _bytes_of(self._results.pop(key))


class ModelCache:
    """The part of a `Cache` that one model version uses."""

    def __init__(self, cache: Cache, owner: int) -> None:
        self._cache, self._owner = cache, owner

    def key(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> _Key:
        """Return the key of the outputs `outputs` for these inputs."""
        digest = hashlib.blake2b(digest_size=32)
        for name in sorted(inputs):
            array = inputs[name]
            digest.update(repr((name, str(array.dtype), array.shape)).encode())
            digest.update(_data(array))
        digest.update(repr(tuple(outputs)).encode())
        return self._owner, digest.digest()

    def get(self, key: _Key) -> list[Array] | None:
        """Return a result, or None if it is not cached."""
        return self._cache.get(key)

    def put(self, key: _Key, result: list[Array]) -> None:
        """Cache a result, whose arrays are not changed any more."""
        self._cache.put(key, result)

    def close(self) -> None:
        """Drop all results of the model version."""
        self._cache.drop(self._owner)


def is_pure(graph: Graph) -> bool:
    """Return True if a graph computes the same results for the same inputs: no layer is random or has an effect."""
    return all(layer.op.pure and all(map(is_pure, layer.regions)) for layer in graph)


def alone(array: Array) -> Array:
    """Return an array that shares its memory with no larger one, such as the batch in which it was computed."""
    return array if array.base is None else array.copy()


def _data(array: Array) -> bytes:
    if array.dtype.kind == "O":
        return repr([str(text) for text in array.reshape(-1)]).encode("utf-8", "surrogatepass")
    return array.tobytes()


def _bytes_of(result: list[Array]) -> int:
    return _ENTRY + sum(_size(array) for array in result)


def _size(array: Array) -> int:
    return sum(len(str(text)) + 64 for text in array.reshape(-1)) if array.dtype.kind == "O" else array.nbytes
