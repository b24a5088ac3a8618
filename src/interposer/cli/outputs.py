"""What a run gave: the top classes of a classifier, figures of anything else, and arrays for a file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interposer.cli.labels import Labels
from interposer.errors import InvalidArgumentError
from interposer.types import Array, TensorInfo

__all__ = ["Ranked", "check_writable", "figures", "flat", "has_classes", "save", "top"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One class: its score as it is stored and, where that is quantized, the real number that it stands for."""

    index: int
    label: str | None
    score: float | int
    value: float | None

    def to_dict(self) -> dict[str, Any]:
        """The class as JSON-compatible data; ``value`` only where the score is quantized."""
        plain = {"index": self.index, "label": self.label, "score": self.score}
        return plain if self.value is None else plain | {"value": self.value}


def has_classes(array: Array) -> bool:
    """True for a vector of numbers, which may have axes of extent 1 before."""
    numbers = array.dtype.kind != "O" and array.ndim > 0
    return numbers and array.shape[-1] > 1 and array.size == array.shape[-1]


def top(array: Array, info: TensorInfo, count: int, labels: Labels | None) -> list[Ranked]:
    """The classes of the highest scores; of equal ones the first."""
    scores = _numbers(array).reshape(-1)
    best = np.argsort(scores[::-1], kind="stable")[::-1][:count]
    return [_ranked(scores.size - 1 - int(at), scores, info, labels) for at in best]


def _ranked(index: int, scores: Array, info: TensorInfo, labels: Labels | None) -> Ranked:
    score, q = scores[index].item(), info.quantization
    value = None if q is None or q.per_axis else q.scale * (score - q.zero_point)
    return Ranked(index, None if labels is None else labels.get(index), score, value)


def figures(name: str, array: Array, info: TensorInfo) -> dict[str, Any]:
    """Name, type, shape and, where there are numbers, the least, the greatest and the mean, as they are stored."""
    found: dict[str, Any] = {"name": name, "info": str(info.with_shape(array.shape)), "shape": list(array.shape)}
    if array.size == 0 or array.dtype.kind == "O":
        return found
    numbers = _numbers(array)
    with np.errstate(all="ignore"):
        mean = float(numbers.mean(dtype=np.float64))
    return found | {"min": numbers.min().item(), "max": numbers.max().item(), "mean": mean}


def flat(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays in outputs; those of a sequence have a number behind its name, and an empty optional gives none."""
    found: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            found |= {f"{name}.{number}": element for number, element in enumerate(value)}
        elif value is not None:
            found[name] = value
    return found


def save(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz file; types that NumPy lacks become float32 or int8, texts NumPy's own."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                plain = array.astype(str) if array.dtype.kind == "O" else _numbers(array)
                np.lib.format.write_array(file, plain, allow_pickle=False)


def check_writable(option: str, path: Path) -> None:
    """Raise `InvalidArgumentError` where no file can be written: before time is spent on its content."""
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
    """The array in a type of NumPy itself."""
    if array.dtype.kind in "biuf":
        return array
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
