"""Calibration data in files: a folder, a .npz or .npy file, or a table (.csv)."""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular
from interposer.core.shape import Dim
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import binding_id
from interposer.ir.network import Network
from interposer.quantization.samples import Samples, samples_of
from interposer.session.images import Preprocessing, read_image

__all__ = ["read_samples"]

_ARRAYS: Final = (".npy", ".npz")
_NUMBERS: Final = (".raw", ".bin", ".txt")
_IMAGES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_COLUMNS: Final = 3
"""The columns of Arm NN's tables: number of the run, binding id of the input, and path of the file."""


def read_samples(
    network: Network,
    path: str | os.PathLike[str],
    preprocessing: Preprocessing | None = None,
    limit: int | None = None,
) -> Samples:
    """Return the calibration data that a path names, as `samples_of` does.

    Args:
        network: the network whose inputs the data is for.
        path: one of these:

            - a folder, whose files are samples in the order of their names, subfolders included: images, .npy and .npz
              files; other files are ignored.
            - a .npz file with an array for each input, by name, with the samples along axis 0. The name does not matter
              if there is one input.
            - a .npy file, for a network with one input, with the samples along axis 0.
            - a .csv file, either Arm NN's table or plain numbers. Arm NN's table has the columns number of the run,
              binding id (or name) of the input, and path of a file with its numbers: text with blanks, .npy, .npz or
              bare numbers (.raw, .bin). A plain table has a sample in each row, after an optional row of titles.
        preprocessing: the conversion of images to inputs; None means `Preprocessing()`, such as pixel / 255 for floats.
            Reading images needs the package Pillow.
        limit: the largest number of samples that are read.

    Raises:
        InvalidArgumentError: a file cannot be read or does not fit, or there are no samples.
        MissingDependencyError: a file is an image, and Pillow is not installed.
    """
    source_path = Path(path)
    if not source_path.exists():
        raise InvalidArgumentError(f"{source_path}: there is no such file or folder")
    reader = _Reader(network, preprocessing or Preprocessing(), limit)
    samples = reader.all(source_path)
    if reader.preprocessing != Preprocessing() and not reader.has_images:
        raise InvalidArgumentError(f"{source_path}: layout, mean and std are for images, but there is none")
    return samples


class _Reader:
    def __init__(self, network: Network, preprocessing: Preprocessing, limit: int | None) -> None:
        self.network, self.preprocessing, self.limit = network, preprocessing, limit
        self.infos = {layer.name: layer.output.known for layer in network.graph.inputs}
        self.has_images = False
        self.names = {binding_id(layer): layer.name for layer in network.graph.inputs}

    def all(self, source: Path) -> Samples:
        """Return the samples in a folder or a file."""
        if source.is_dir():
            return self.folder(source)
        return self.table(source) if source.suffix.lower() == ".csv" else self.limited(self.archive(source))

    def limited(self, samples: Samples) -> Samples:
        """Return the samples, up to the limit."""
        return samples[: self.limit]

    # --- folders ------------------------------------------------------------------------------------------------------

    def folder(self, folder: Path) -> Samples:
        """Return the samples in a folder, in the order of the paths."""
        files = [
            file_path for file_path in sorted(folder.rglob("*")) if file_path.suffix.lower() in (*_IMAGES, *_ARRAYS)
        ]
        if not files:
            raise InvalidArgumentError(f"{folder}: the folder has no images and no .npy or .npz files")
        samples: Samples = []
        for file in files:
            if self.limit is not None and len(samples) >= self.limit:
                break
            samples += self.archive(file)
        return self.limited(samples)

    def archive(self, file: Path) -> Samples:
        """Return the samples in one file: an image, or .npy or .npz with arrays."""
        check_regular(str(file))
        suffix = file.suffix.lower()
        if suffix == ".npz":
            return self._samples(file, self._matched(file, _arrays(file)))
        if suffix == ".npy":
            return self._samples(file, {self._only(file): _array(file)})
        if suffix in _IMAGES:
            return self._samples(file, [{self._only(file): self._image(file)}])
        raise InvalidArgumentError(f"{file}: expected a folder, or a file with the suffix .npz, .npy or .csv")

    def _matched(self, file: Path, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the arrays of an archive by the names of the inputs; a single one is for the only input."""
        if len(arrays) == len(self.infos) == 1:
            return {self._only(file): next(iter(arrays.values()))}
        return {name: array for name, array in arrays.items() if name in self.infos} or arrays

    def _samples(self, file: Path, data: Any) -> Samples:
        try:
            return samples_of(self.network, data)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{file}: {error}") from error

    def _only(self, file: Path) -> str:
        if len(self.infos) != 1:
            raise InvalidArgumentError(
                f"{file}: the network has {len(self.infos)} inputs; give .npz files with an array for each of them "
                f"({', '.join(self.infos)})"
            )
        return next(iter(self.infos))

    def _image(self, file: Path) -> Array:
        name, self.has_images = self._only(file), True
        try:
            return read_image(str(file), name, self.infos[name], self.preprocessing)
        except OSError as error:
            raise InvalidArgumentError(f"{file}: the image cannot be read: {error.strerror}") from error

    # --- tables -------------------------------------------------------------------------------------------------------

    def table(self, file: Path) -> Samples:
        """Return the samples of a table of paths or of numbers."""
        check_regular(str(file))
        rows = list(_rows(file))
        if not rows:
            raise InvalidArgumentError(f"{file}: the table is empty")
        if all(_names_a_file(row) for _, row in rows):
            return self._of_paths(file, rows)
        return self.limited(self._of_numbers(file, rows))

    def _of_paths(self, file: Path, rows: Sequence[tuple[int, list[str]]]) -> Samples:
        """Return the samples of Arm NN's table; the rows of a run may be in any order."""
        inputs_of_run: dict[str, dict[str, Array]] = {}
        for line, (run_number, binding, path) in rows:
            if run_number not in inputs_of_run and self.limit is not None and len(inputs_of_run) == self.limit:
                continue
            run, name = inputs_of_run.setdefault(run_number, {}), self._input(f"{file}, line {line}", binding)
            if name in run:
                raise InvalidArgumentError(f"{file}, line {line}: run {run_number} has input {binding} already")
            run[name] = self._numbers(file, line, path, name)
        return self._samples(file, list(inputs_of_run.values()))

    def _input(self, where: str, binding: str) -> str:
        if binding in self.infos:
            return binding
        if binding.isdigit() and int(binding) in self.names:
            return self.names[int(binding)]
        known_text = ", ".join(f"{number} ({name})" for number, name in self.names.items())
        raise InvalidArgumentError(
            f"{where}: the network has no input with the binding id {binding} (it has: {known_text})"
        )

    def _numbers(self, table: Path, line: int, path: str, name: str) -> Array:
        """Return the numbers in a file that a table names; its path is relative to the table, or to this folder."""
        beside_table = table.parent / path
        file = beside_table if beside_table.exists() else Path(path)
        if not file.is_file():
            raise InvalidArgumentError(f"{table}, line {line}: there is no file {path}")
        suffix, info = file.suffix.lower(), self.infos[name]
        if suffix == ".npy":
            return _array(file)
        if suffix in _IMAGES:
            return self._image(file)
        return _shaped(file, _bare(file, info) if suffix in (".raw", ".bin") and _is_bare(file) else _text(file), info)

    def _of_numbers(self, file: Path, rows: Sequence[tuple[int, list[str]]]) -> Samples:
        name = self._only(file)
        if not all(map(_is_number, rows[0][1])):
            rows = rows[1:]
        samples = []
        for line, row in rows:
            try:
                numbers = np.array([float(cell) for cell in row])
            except ValueError:
                bad_cell = next(cell for cell in row if not _is_number(cell))
                raise InvalidArgumentError(f"{file}, line {line}: {bad_cell!r} is no number") from None
            samples.append({name: _shaped(f"{file}, line {line}", numbers, self.infos[name])})
        return self._samples(file, samples)


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line of a table that is not empty, and its cells without blanks around them."""
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            for line, row in enumerate(csv.reader(stream), 1):
                cells = [cell.strip() for cell in row]
                if any(cells):
                    yield line, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError(f"{file}: the file is no table of text: {error}") from error


def _names_a_file(row: Sequence[str]) -> bool:
    return len(row) == _COLUMNS and _is_number(row[0]) and not _is_number(row[2])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shaped(file: Path | str, numbers: Array, info: TensorInfo) -> Array:
    """Return numbers in the shape of an input; an open dimension follows from their count."""
    shape = [-1 if isinstance(size, Dim) else int(size) for size in info.shape]
    try:
        array = numbers.reshape(shape)
    except ValueError:
        raise InvalidArgumentError(f"{file}: there are {numbers.size} numbers; expected {info}") from None
    return array.astype(info.dtype.numpy) if info.dtype.is_integer else array


def _text(file: Path) -> Array:
    """Return the numbers of a text file, between which there are blanks or commas."""
    try:
        words = file.read_text(encoding="utf-8").replace(",", " ").split()
        return np.array([float(word) for word in words])
    except ValueError as error:
        raise InvalidArgumentError(f"{file}: the file is no text of numbers: {error}") from error


def _is_bare(file: Path) -> bool:
    """Return True if a file has bare numbers and no text."""
    head = file.read_bytes()[:512]
    return any(byte < 9 or byte > 126 for byte in head)


def _bare(file: Path, info: TensorInfo) -> Array:
    """Return the bare numbers of a binary file, in the type of the input and native byte order."""
    content = file.read_bytes()
    if info.dtype is DataType.STRING or len(content) % info.dtype.itemsize:
        raise InvalidArgumentError(f"{file}: the file has {len(content)} bytes, which are no numbers for {info}")
    return np.frombuffer(content, info.dtype.numpy)


def _array(file: Path) -> Array:
    try:
        with open(file, "rb") as stream:
            array: Array = np.load(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InvalidArgumentError(f"{file}: the array cannot be read: {error}") from error
    return array


def _arrays(file: Path) -> dict[str, Array]:
    try:
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, AttributeError, MemoryError, zipfile.BadZipFile) as error:
        raise InvalidArgumentError(f"{file}: the arrays cannot be read: {error}") from error
