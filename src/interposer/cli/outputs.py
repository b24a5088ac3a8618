"""Outputs of a run: the top classes of a classifier, statistics of other arrays, and writing arrays to a file."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from interposer.cli.labels import Labels
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import is_same_file, replacing
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo

__all__ = [
    "Ranked",
    "check_suffix",
    "check_writable",
    "figures",
    "flat",
    "has_classes",
    "save",
    "save_npz",
    "top",
]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One class of a classification: number, label (None without labels), and score as stored in the output.

    `value` is the float value of a quantized score, and None if the score is not quantized.
    """

    index: int
    label: str | None
    score: float | int
    value: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the class as JSON-compatible data; ``value`` only if the score is quantized."""
        plain = {"index": self.index, "label": self.label, "score": self.score}
        return plain if self.value is None else plain | {"value": self.value}


def has_classes(array: Array) -> bool:
    """Return True if the array can be scores of classes: a vector of numbers, possibly with leading axes of size 1."""
    is_vector = array.dtype.kind != "O" and array.ndim > 0
    return is_vector and array.shape[-1] > 1 and array.size == array.shape[-1]


def top(array: Array, info: TensorInfo, count: int, labels: Labels | None) -> list[Ranked]:
    """Return the `count` classes with the highest scores, best first; for equal scores, the lower class number first.

    `array` has one score per class, `info` gives their quantization, and `labels` the label of each class number.
    """
    scores = _numbers(array).reshape(-1)
    best_first = np.argsort(scores[::-1], kind="stable")[::-1][:count]
    return [_ranked(scores.size - 1 - int(reversed_index), scores, info, labels) for reversed_index in best_first]


def _ranked(index: int, scores: Array, info: TensorInfo, labels: Labels | None) -> Ranked:
    score, quantization = scores[index].item(), info.quantization
    real = (
        None
        if quantization is None or quantization.per_axis
        else quantization.scale * (score - quantization.zero_point)
    )
    return Ranked(index, None if labels is None else labels.get(index), score, real)


def figures(name: str, array: Array, info: TensorInfo) -> dict[str, Any]:
    """Return a summary of an output as JSON-compatible data with the keys name, info, shape, min, max and mean.

    Minimum, maximum and mean are those of the stored values; they are omitted for texts and empty arrays.
    """
    summary: dict[str, Any] = {"name": name, "info": str(info.with_shape(array.shape)), "shape": list(array.shape)}
    if array.size == 0 or array.dtype.kind == "O":
        return summary
    numbers = _numbers(array)
    with np.errstate(all="ignore"):
        mean = float(numbers.mean(dtype=np.float64))
    return summary | {"min": numbers.min().item(), "max": numbers.max().item(), "mean": mean}


def flat(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the output arrays by name; element 0 of a sequence ``x`` is named ``x.0``, empty optionals are omitted."""
    arrays: dict[str, Array] = {}
    for name, output in outputs.items():
        if isinstance(output, list):
            arrays |= {f"{name}.{number}": element for number, element in enumerate(output)}
        elif output is not None:
            arrays[name] = output
    return arrays


def save(path: str, arrays: Mapping[str, Array], option: str = "--save") -> None:
    """Write arrays by name to the file `path`, in the format of its suffix: .npz, .npy, .json, .txt, .bin or .raw.

    A text file has the elements of one array, with a row of its last axis on each line; a .bin or .raw file has them in
    native byte order. Types that NumPy lacks become float32 or int8. `option` names the command-line option in error
    messages.

    Raises:
        InvalidArgumentError: the suffix is unknown, or several arrays are given for a file that holds one.
        FileWriteError: the file cannot be written.
    """
    check_suffix(option, path, len(arrays))
    with replacing(path) as file:
        _SAVERS[Path(path).suffix.lower()](file, arrays)


def check_suffix(option: str, path: str, count: int = 1) -> None:
    """Raise `InvalidArgumentError` if `save` cannot write `count` arrays to the file `path`, because of its suffix.

    `option` names the command-line option in the message.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SAVERS:
        raise InvalidArgumentError(f"{option} takes a file with the suffix {', '.join(_SAVERS)}, not {path!r}")
    if suffix in _OF_ONE and count != 1:
        raise InvalidArgumentError(f"{option} {path}: a {suffix} file holds one array, but there are {count}; use .npz")


def save_npz(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to an open .npz file."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(array), allow_pickle=False)


def _save_npy(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    [array] = arrays.values()
    np.lib.format.write_array(file, _plain(array), allow_pickle=False)


def _save_text(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write the elements of one array as text, one row of the last axis on each line."""
    [array] = arrays.values()
    plain = _plain(array)
    for row in plain.reshape(-1, plain.shape[-1] if plain.ndim and plain.shape[-1] else 1):
        file.write(f"{' '.join(str(element) for element in row.tolist())}\n".encode())


def _save_raw(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write the elements of one array in native byte order, without its type and shape."""
    [array] = arrays.values()
    if array.dtype.kind == "O":
        raise InvalidArgumentError("a file of bare numbers cannot have texts; use .npy or .json")
    file.write(np.ascontiguousarray(_plain(array)).tobytes())


def _save_json(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    plain_arrays = {
        name: {"type": array.dtype.name, "shape": list(array.shape), "values": _values(_plain(array))}
        for name, array in arrays.items()
    }
    file.write(f"{json.dumps(plain_arrays, allow_nan=False)}\n".encode())


def _values(array: Array) -> list[Any]:
    """Return the elements of an array as a flat list of Python objects for JSON.

    Infinities and NaN, which JSON lacks, become the texts nan, inf and -inf.
    """
    finite = array.dtype.kind != "f" or np.isfinite(array).all()
    elements: list[Any] = array.reshape(-1).tolist()
    return elements if finite else [element if math.isfinite(element) else str(element) for element in elements]


def _plain(array: Array) -> Array:
    return array.astype(str) if array.dtype.kind == "O" else _numbers(array)


_SAVERS: Final = {
    ".npz": save_npz, ".npy": _save_npy, ".json": _save_json, ".txt": _save_text, ".bin": _save_raw, ".raw": _save_raw,
}  # fmt: skip
_OF_ONE: Final = (".npy", ".txt", ".bin", ".raw")


def check_writable(option: str, path: Path, sources: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Raise `InvalidArgumentError` if a file cannot be written, or is one that the command reads.

    The check runs before the content of the file is computed.

    Args:
        option: the command-line option that names the file.
        path: the file.
        sources: the files that the command reads.
    """
    if path.exists() and any(is_same_file(path, source) for source in sources):
        raise InvalidArgumentError(
            f"{option} would overwrite {str(path)!r}, which the command reads; name another file"
        )
    folder = path.parent
    if path.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"there is no folder {str(folder)!r}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "it may not be written to"
    else:
        return
    raise InvalidArgumentError(f"{option} cannot be written to {str(path)!r}: {reason}")


def _numbers(array: Array) -> Array:
    """Return the array in a type that NumPy itself has: types such as bfloat16 become float32, 4-bit integers int8."""
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
