"""Calibration data as a list of samples, each of which has the arrays of all inputs for one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.errors import BindingError, InvalidArgumentError, did_you_mean
from interposer.core.masks import plain_array
from interposer.core.shape import Dim, TensorShape
from interposer.core.types import Array, TensorInfo
from interposer.ir.network import Network

__all__ = ["Samples", "samples_of"]

Samples: TypeAlias = "list[dict[str, Array]]"
_OPEN_BATCH: Final = 1
"""How many rows of an array one sample takes if the first dimension of the input is open."""


def samples_of(network: Network, data: Any) -> Samples:
    """Return calibration data as one mapping from input's name to array for each run of the network.

    Args:
        network: the network whose inputs the data is for.
        data: an array or a mapping from input's name to array, with the samples along axis 0; or an iterable of
            samples. A sample is an array, a sequence of arrays in the order of the inputs, or a mapping by name.

    Raises:
        InvalidArgumentError: there are no samples, or an array has the wrong name, shape or type, or has NaNs or
            infinities.
    """
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    if isinstance(data, Mapping):
        samples = _divided(infos, _named(infos, data, "the data"))
    elif isinstance(data, np.ndarray):
        samples = _divided(infos, {_only(infos): data})
    else:
        samples = [_sample(infos, sample, number) for number, sample in enumerate(_iterable(data))]
    if not samples:
        raise InvalidArgumentError("there is no calibration data; give at least one sample")
    return [_checked(infos, arrays, number) for number, arrays in enumerate(samples)]


def _iterable(data: Any) -> Iterable[Any]:
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidArgumentError(f"calibration data is arrays or an iterable of samples, not {data!r}")
    return data


def _only(infos: Mapping[str, TensorInfo]) -> str:
    if len(infos) != 1:
        names = ", ".join(map(repr, infos))
        raise InvalidArgumentError(f"the network has {len(infos)} inputs; name the arrays of the data ({names})")
    return next(iter(infos))


def _sample(infos: Mapping[str, TensorInfo], sample: Any, number: int) -> dict[str, Any]:
    if isinstance(sample, Mapping):
        return _named(infos, sample, f"sample {number}")
    if isinstance(sample, np.ndarray):
        return {_only(infos): sample}
    if not isinstance(sample, Sequence) or isinstance(sample, str | bytes) or len(sample) != len(infos):
        raise InvalidArgumentError(
            f"sample {number} must be an array, a mapping, or a sequence of {len(infos)} arrays, one for each input"
        )
    return dict(zip(infos, sample, strict=True))


def _named(infos: Mapping[str, TensorInfo], arrays: Mapping[str, Any], title: str) -> dict[str, Any]:
    for name in arrays:
        if name not in infos:
            known_names = ", ".join(infos)
            raise InvalidArgumentError(
                f"{title} has an array {name!r}, but the network has no such input{did_you_mean(str(name), infos)} "
                f"(it has: {known_names})"
            )
    missing_names = [name for name in infos if name not in arrays]
    if missing_names:
        raise InvalidArgumentError(f"{title} has no array for the input {missing_names[0]!r} {infos[missing_names[0]]}")
    return {name: arrays[name] for name in infos}


def _divided(infos: Mapping[str, TensorInfo], arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Divide arrays, which have the samples along axis 0, into samples."""
    pieces_of_input = {name: _parts(name, infos[name], np.asarray(array)) for name, array in arrays.items()}
    counts = {name: len(samples) for name, samples in pieces_of_input.items()}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise InvalidArgumentError(f"the inputs have different numbers of samples: {counts_text}")
    return [
        dict(zip(pieces_of_input, arrays_of_sample, strict=True))
        for arrays_of_sample in zip(*pieces_of_input.values(), strict=True)
    ]


def _parts(name: str, info: TensorInfo, array: Array) -> list[Array]:
    """Return the samples in an array.

    An array with one more axis than the input has one sample for each index along axis 0. Otherwise axis 0 is the
    input's first axis, and the array is divided into parts of its size.
    """
    if not info.shape.is_ranked or array.ndim == info.rank + 1:
        return list(array) if array.ndim else []
    if array.ndim != info.rank or not info.rank:
        raise InvalidArgumentError(
            f"the data for input {name!r} has shape {TensorShape(array.shape)}; expected the samples along axis 0 of "
            f"arrays for {info}"
        )
    first_size = info.shape[0]
    size = _OPEN_BATCH if isinstance(first_size, Dim) else max(1, int(first_size))
    if len(array) % size:
        raise InvalidArgumentError(
            f"the data for input {name!r} has {len(array)} rows, which cannot be divided into batches of {size}"
        )
    return [array[start : start + size] for start in range(0, len(array), size)]


def _checked(infos: Mapping[str, TensorInfo], sample: Mapping[str, Any], number: int) -> dict[str, Array]:
    return {name: _fitting(infos[name], array, f"sample {number} of input {name!r}") for name, array in sample.items()}


def _fitting(info: TensorInfo, data: Any, title: str) -> Array:
    """Return a value as an array of the input's type.

    Raises:
        InvalidArgumentError: it does not fit the input, or has NaNs or infinities.
    """
    if not info.is_tensor:
        raise InvalidArgumentError(f"{title} is {info}, which cannot be calibrated")
    try:
        array = plain_array(data, title)
    except BindingError as error:
        raise InvalidArgumentError(str(error)) from None
    except ValueError as error:
        raise InvalidArgumentError(f"{title} cannot be converted to an array: {error}") from error
    if not info.shape.accepts(TensorShape(array.shape)):
        raise InvalidArgumentError(f"{title} has shape {TensorShape(array.shape)}; expected {info}")
    if array.dtype.kind not in "fiub" and array.dtype != info.dtype.numpy:
        raise InvalidArgumentError(f"{title} is {array.dtype}; expected {info}")
    if array.dtype.kind == "f" and not info.dtype.is_float:
        raise InvalidArgumentError(f"{title} is {array.dtype}; expected {info}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        defect = "NaN" if np.isnan(array).any() else "an infinite value"
        raise InvalidArgumentError(f"{title} has {defect}; calibration data must be finite")
    try:
        return np.asarray(array, info.dtype.numpy, order="C")
    except (TypeError, ValueError) as error:
        raise BindingError(f"{title} cannot be converted to {info.dtype}: {error}") from error
