"""``--input``: read the input arrays of a network from files."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.analysis.random_inputs import random_array
from interposer.cli.parsing import SEPARATOR
from interposer.cli.tables import counted
from interposer.core.conversion import converted
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.files import check_regular
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.ir.network import Network
from interposer.kernels.fixedpoint import dequantize, quantize
from interposer.session import Model
from interposer.session.arguments import input_arrays
from interposer.session.images import Preprocessing, read_image

__all__ = [
    "example_shapes",
    "input_files",
    "input_sets",
    "inputs_text",
    "named_inputs",
    "one_set",
    "read_inputs",
    "require_shapes",
    "require_values",
    "seed_of",
    "shape_hint",
    "sized_inputs",
    "words_of",
]

_log: Final = logging.getLogger("interposer.cli")
Infos = Mapping[str, TensorInfo]
_NPY: Final = b"\x93NUMPY"
_NPZ: Final = (b"PK\x03\x04", b"PK\x05\x06")
_MEMBER: Final = ".npy"
_MOST_SATURATED: Final = 0.5
"""The share of values outside of a quantized input's range that is not remarked."""
_RAW: Final = (".bin", ".raw")
_TEXT: Final = (".txt", ".csv")
_IMAGES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_ARRAYS: Final = (".npy", ".npz")
_INPUTS: Final = (*_ARRAYS, *_RAW, *_TEXT, *_IMAGES)
"""The suffixes of the files in a folder that are inputs."""


def seed_of(args: argparse.Namespace) -> int | None:
    """Return the seed of random inputs: that of --seed, 0 with --random alone, and None without both."""
    return args.seed if args.seed is not None else 0 if args.random else None


def inputs_text(args: argparse.Namespace) -> str:
    """Return a description of the inputs that a command ran on: texts of --input, and the seed of random numbers."""
    seed = seed_of(args)
    random_text = f"random numbers, seed {seed}" if seed is not None else ""
    return ", ".join(filter(None, [" and ".join(" ".join(words_of(text)) for text in args.input), random_text]))


def words_of(text: str) -> list[str]:
    """Return the files, perhaps with names of inputs, that one --input has."""
    return text.split(SEPARATOR)


def input_sets(texts: Sequence[str], infos: Infos) -> list[list[str]]:
    """Return the sets of inputs that the options --input give; a network runs once on each.

    The result has texts for `read_inputs`. Several files of an input, or a folder with files, are for one run each. A
    single file is for all runs. Files without a name are for the inputs that have no other files, in turns.

    Raises:
        InvalidArgumentError: inputs have different numbers of files, or a folder has none.
    """
    groups = [group for text in texts for group in _groups(words_of(text), infos)]
    if all(len(group.paths) == 1 and not group.is_folder for group in groups):
        return [[group.texts[0] for group in groups]]
    names_given = {group.name for group in groups}
    free_inputs = [
        name for name, info in infos.items() if name not in names_given and info.dtype is not DataType.OPTIONAL
    ]
    unnamed_groups = [group for group in groups if group.name is None]
    if len(unnamed_groups) == 1:
        groups = [*(group for group in groups if group.name is not None), *_in_turns(unnamed_groups[0], free_inputs)]
    return _zipped(groups)


class _Group(NamedTuple):
    """The files of one input, one for each run; the name is None for the next input without a file."""

    name: str | None
    paths: list[str]
    is_folder: bool = False

    @property
    def texts(self) -> list[str]:
        """The files as texts for `read_inputs`."""
        return [path if self.name is None else f"{self.name}={path}" for path in self.paths]


def _groups(words: Sequence[str], infos: Infos) -> list[_Group]:
    """Return the groups of one --input; each word with the name of an input begins a group."""
    groups: list[_Group] = []
    for word in words:
        name, path = _split(word, infos)
        is_folder = os.path.isdir(path)
        paths = _files_in(path) if is_folder else [path]
        if name is None and groups:
            groups[-1] = _Group(groups[-1].name, [*groups[-1].paths, *paths], groups[-1].is_folder or is_folder)
        else:
            groups.append(_Group(name, paths, is_folder))
    return groups


def _files_in(folder: str) -> list[str]:
    """Return the files of inputs in a folder by name, numbers in names by value; other files are reported."""
    names = sorted((name for name in os.listdir(folder) if not name.startswith(".")), key=_natural)
    files_found = sorted(input_files(folder), key=_natural)
    if not files_found:
        raise InvalidArgumentError(f"{folder}: the folder has no files of inputs, such as .npy, .npz or images")
    unknown_names = [name for name in names if name not in files_found]
    if unknown_names:
        _log.warning("%s: left out, as they are no inputs: %s", folder, ", ".join(unknown_names))
    return [os.path.join(folder, name) for name in files_found]


def input_files(folder: str) -> list[str]:
    """Return the names of the files in a folder that are inputs, in no order; raise `OSError` if it is no folder."""
    return [name for name in os.listdir(folder) if name[0] != "." and Path(name).suffix.lower() in _INPUTS]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts x2.npy before x10.npy."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _in_turns(group: _Group, names: Sequence[str]) -> list[_Group]:
    """Return the files without a name, divided among these inputs; files of several arrays are not divided."""
    if len(names) < 2 or all(_first_bytes(path).startswith(_NPZ) for path in group.paths):
        return [group]
    if len(group.paths) % len(names):
        raise InvalidArgumentError(
            f"{counted(len(group.paths), 'file')} for {len(names)} inputs ({', '.join(names)}); expected a multiple of "
            f"{len(names)}, or the names of the inputs"
        )
    return [_Group(name, group.paths[number :: len(names)]) for number, name in enumerate(names)]


def _zipped(groups: Sequence[_Group]) -> list[list[str]]:
    counts = {len(group.paths) for group in groups} - {1}
    if len(counts) > 1:
        counts_text = ", ".join(f"{group.name or 'the unnamed input'} has {len(group.paths)}" for group in groups)
        raise InvalidArgumentError(f"the inputs have different numbers of files: {counts_text}")
    count = max(counts, default=1)
    columns = [group.texts * count if len(group.paths) == 1 else group.texts for group in groups]
    return [list(row) for row in zip(*columns, strict=True)]


def one_set(texts: Sequence[str], infos: Infos, command: str) -> list[str]:
    """Return the only set of inputs; raise `InvalidArgumentError` if there are several."""
    sets = input_sets(texts, infos)
    if len(sets) > 1:
        raise InvalidArgumentError(
            f"{command} takes one set of inputs, but {len(sets)} are given; interposer run and trace take several"
        )
    return sets[0]


def shape_hint(infos: Infos) -> str:
    """Return command-line options that set all open shapes of the inputs, as an example for a message."""
    return " ".join(f"--shape {shlex.quote(example)}" for example in example_shapes(infos))


def example_shapes(infos: Infos) -> list[str]:
    """Return texts that set all open shapes of the inputs, such as ``batch=1`` or ``x=1x3``, for a message.

    A named dimension gets a text of its own; other inputs get one with a whole shape.
    """
    texts: dict[str, None] = {}
    for name, info in infos.items():
        if info.is_concrete or not info.is_tensor:
            continue
        sizes = tuple(info.shape) if info.shape.is_ranked else ()
        dim_names = [size.name for size in sizes if isinstance(size, Dim) and size.name]
        texts |= dict.fromkeys(_examples_of(name, sizes, dim_names))
    return list(texts)


def _examples_of(name: str, sizes: tuple[Any, ...], dim_names: list[str]) -> list[str]:
    if dim_names and len(dim_names) == sum(isinstance(size, Dim) for size in sizes):
        return [f"{dim_name}=1" for dim_name in dim_names]
    shape = "x".join("1" if isinstance(size, Dim) else str(size) for size in sizes)
    return [f"{name}={shape or 1}"]


def sized_inputs(model: Model) -> dict[str, TensorInfo]:
    """Return the infos of a model's inputs by name; open dimensions have the sizes that the file records, if any."""
    prepared_infos = {layer.name: layer.output.known for layer in model.optimized.inputs} if model.is_prepared else {}
    return {name: prepared_infos.get(name, info) for name, info in model.inputs.items()}


def random_input(name: str, info: TensorInfo, seed: int) -> Array | None:
    """Return random numbers for the input `name` with the type and shape of `info`, the same for each seed.

    The result is None for an optional.

    Raises:
        InvalidArgumentError: the shape of the input is open, or its type has no numbers.
    """
    if info.dtype is DataType.OPTIONAL:
        return None
    if info.is_tensor and not info.is_concrete:
        raise InvalidArgumentError(
            f"input {name!r} is {info}, whose shape is open; give it, as in {shape_hint({name: info})}"
        )
    if not info.is_tensor or info.dtype.numpy.kind == "O":
        raise InvalidArgumentError(f"random numbers cannot stand for input {name!r} {info}; give a file with --input")
    return random_array(np.random.default_rng([seed, zlib.crc32(name.encode())]), name, info)


def read_inputs(
    names: Sequence[str],
    infos: Infos,
    preprocessing: Preprocessing,
    seed: int | None = None,
    sized_infos: Infos | None = None,
) -> dict[str, Any]:
    """Return the input arrays of a network by name, read from files.

    `names` has one text for each file: ``name=path``, or a path alone, which is for the first input without a file.
    `infos` has the inputs that the network declares. A sequence is read from all arrays of a .npz file, in the file's
    order; an optional without a file is None. With a seed, inputs without a file are random numbers; their infos are in
    `sized_infos`, which has sizes for open dimensions, and by default in `infos`.

    Raises:
        InvalidArgumentError: an input is missing, given twice or unknown, or a file does not fit its input.
        OSError: a file cannot be opened.
    """
    named_paths = [_split(text, infos) for text in names]
    if preprocessing.quantize and not any(info.is_quantized for info in infos.values() if info.is_tensor):
        raise InvalidArgumentError("--quantize-inputs is for quantized inputs, but the network has none")
    named_inputs = {name for name, _ in named_paths}
    unnamed_inputs = [name for name in infos if name not in named_inputs]
    arrays: dict[str, Any] = {}
    for name, path in named_paths:
        for input_name, array in _read(name, path, infos, unnamed_inputs, preprocessing).items():
            if input_name in arrays:
                raise InvalidArgumentError(f"{path}: input {input_name!r} is given already")
            arrays[input_name] = array
            _remark(path, input_name, array, _held(infos[input_name]) if input_name in infos else None)
    _check_preprocessing(preprocessing, [path for _, path in named_paths])
    absent_inputs = [name for name in infos if name not in arrays]
    if seed is not None:
        arrays |= {name: random_input(name, (sized_infos or infos)[name], seed) for name in absent_inputs}
    arrays |= {name: None for name in absent_inputs if infos[name].dtype is DataType.OPTIONAL}
    missing_inputs = [f"{name!r} {infos[name]}" for name in absent_inputs if name not in arrays]
    if missing_inputs:
        message = "\n  - ".join(["no --input gives these inputs of the network:", *missing_inputs])
        raise InvalidArgumentError(f"{message}\ngive a file for each with --input NAME=FILE, or use --random")
    return arrays


def _remark(path: str, name: str, array: Any, info: TensorInfo | None) -> None:
    """Log a warning about values that are valid for an input, but that are probably not meant."""
    if info is None or not info.is_tensor or not isinstance(array, np.ndarray) or not array.size:
        return
    takes_floats = info.dtype.numpy.kind == "f"
    if array.dtype == np.uint8 and takes_floats:
        _log.warning(
            "%s has uint8 values for input %r %s; they become 0.0 to 255.0, and are not divided by 255",
            path, name, info,
        )  # fmt: skip
    if array.dtype.kind != "f":
        return
    for test, title in ((np.isnan, "NaN"), (np.isinf, "infinite")):
        count = int(np.count_nonzero(test(array)))
        if count:
            _log.warning("%s: %s of input %r are %s", path, f"{count:,} of {array.size:,} elements", name, title)


def _check_preprocessing(preprocessing: Preprocessing, paths: Sequence[str]) -> None:
    """Raise `InvalidArgumentError` if images are to be converted, and none of the files is one."""
    setting_of_option = {"--layout": preprocessing.layout, "--mean": preprocessing.mean, "--std": preprocessing.std}
    option = next((name for name, setting in setting_of_option.items() if setting), None)
    if option is not None and not any(_is_image(path, _first_bytes(path)) for path in paths):
        raise InvalidArgumentError(f"{option} is for images, but no --input is one")


def _first_bytes(path: str) -> bytes:
    check_regular(path)  # a pipe would block
    with open(path, "rb") as file:
        return file.read(8)


def named_inputs(args: argparse.Namespace, network: Network) -> dict[str, Any]:
    """Return the input arrays of a network by name, as --input, --random and --seed require.

    Images are converted without mean and standard deviation, see `Preprocessing`.

    Raises:
        BindingError: an array does not fit its input.
        InvalidArgumentError, OSError: see `read_inputs`.
    """
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    preprocessing = Preprocessing(quantize=getattr(args, "quantize_inputs", False))
    texts = one_set(args.input, infos, args.command)
    inputs = read_inputs(texts, infos, preprocessing, seed_of(args))
    input_arrays(infos, inputs)  # otherwise each backend would be reported to refuse the arrays
    return inputs


def require_shapes(infos: Infos, hint: str = "") -> None:
    """Raise `InvalidArgumentError` if the shape of an input is open.

    The message has a `hint` with options that set the shapes, by default --shape.
    """
    unknown_infos = {name: info for name, info in infos.items() if not info.is_concrete}
    if unknown_infos:
        inputs = ", ".join(f"{name!r} {info}" for name, info in unknown_infos.items())
        raise InvalidArgumentError(
            f"the shapes of these inputs are not all known: {inputs}; give them, as in "
            f"{hint or shape_hint(unknown_infos)}"
        )


def require_values(model: Model) -> None:
    """Raise `InvalidArgumentError` if layers depend on values of inputs; the message has an option that sets one."""
    if model.needed_values:
        inputs = ", ".join(f"{name!r} {model.inputs[name]}" for name in model.needed_values)
        raise InvalidArgumentError(
            f"the layers depend on the values of these inputs: {inputs}; "
            f"give them, as in --value {shlex.quote(f'{model.needed_values[0]}=0,1')}"
        )


def _split(text: str, infos: Infos) -> tuple[str | None, str]:
    for name in sorted(infos, key=len, reverse=True):
        if text == f"{name}=":
            raise InvalidArgumentError(f"--input {text}: the path of a file is missing after '='")
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, separator, _ = text.partition("=")
    if separator and not Path(text).exists():
        raise InvalidArgumentError(_no_such_input(name, infos))
    return None, text


def _no_such_input(name: str, infos: Infos) -> str:
    return f"the network has no input {name!r}{did_you_mean(name, infos)} (it has: {', '.join(infos)})"


def _read(
    name: str | None, path: str, infos: Infos, unnamed_inputs: list[str], preprocessing: Preprocessing
) -> dict[str, Any]:
    check_regular(path)
    first_bytes = _first_bytes(path)
    if not first_bytes and Path(path).suffix.lower() not in _RAW:  # a file of bare numbers may be empty
        raise InvalidArgumentError(f"{path}: the file is empty")
    infos = {input_name: _held(info) for input_name, info in infos.items()}
    if preprocessing.quantize and not _is_image(path, first_bytes):
        return _quantized(
            _read(name, path, _as_floats(infos), unnamed_inputs, replace(preprocessing, quantize=False)), infos
        )
    if first_bytes.startswith(_NPZ) and not _is_sequence(name or next(iter(unnamed_inputs), None), infos):
        return _from_archive(name, path, infos, unnamed_inputs)
    name = name or _next(unnamed_inputs, path, infos)
    if _is_sequence(name, infos):
        return {name: _sequence(path, name, infos[name], first_bytes)}
    if first_bytes.startswith(_NPY):
        return {name: _array(path)}
    if Path(path).suffix.lower() in _RAW:
        return {name: _from_numbers(path, name, infos[name])}
    if Path(path).suffix.lower() in _TEXT:
        return {name: _from_text(path, name, infos[name])}
    if Path(path).suffix.lower() in _ARRAYS:
        raise InvalidArgumentError(
            f"{path}: the file is no {Path(path).suffix.lower()} file: it starts with {first_bytes!r}"
        )
    if infos[name].rank not in (3, 4):
        raise InvalidArgumentError(
            f"{path}: input {name!r} {infos[name]} takes no image; give its values in a .npy, .npz, .csv or .raw file"
        )
    return {name: read_image(path, name, infos[name], preprocessing)}


def _is_image(path: str, first_bytes: bytes) -> bool:
    suffix = Path(path).suffix.lower()
    return not first_bytes.startswith((_NPY, *_NPZ)) and suffix not in (*_RAW, *_TEXT)


def _as_floats(infos: Infos) -> dict[str, TensorInfo]:
    """Return the infos with float32 in place of the types that have a quantization."""
    return {
        name: info if info.quantization is None else TensorInfo(info.shape, DataType.FLOAT32)
        for name, info in infos.items()
    }


def _quantized(arrays: Mapping[str, Any], infos: Infos) -> dict[str, Any]:
    """Return the arrays with the values of quantized inputs quantized; arrays of integers stay as they are."""
    quantized_arrays = dict(arrays)
    for name, array in arrays.items():
        quantization = infos[name].quantization
        if quantization is not None and array.dtype.kind == "f":
            quantized_arrays[name] = quantize(array, quantization, infos[name].dtype)
            _remark_saturated(name, array, quantized_arrays[name], infos[name])
    return quantized_arrays


def _remark_saturated(name: str, array: Array, quantized_array: Array, info: TensorInfo) -> None:
    """Log a warning if many values of a file are outside of the range of a quantized input."""
    if info.quantization is None or not array.size:
        return
    error = np.abs(dequantize(quantized_array, info.quantization) - array)
    count = int(np.count_nonzero(error > np.max(info.quantization.scale)))
    if count > array.size * _MOST_SATURATED:
        low, high = float(np.min(array)), float(np.max(array))
        _log.warning(
            "%s of input %r, which are %.4g to %.4g, are outside of the range of its quantization, and are saturated",
            f"{count:,} of {array.size:,} values", name, low, high,
        )  # fmt: skip


def _held(info: TensorInfo) -> TensorInfo:
    """Return the info of the array that a file has for an input: that of the element for an optional, else `info`."""
    return info.element if info.dtype is DataType.OPTIONAL and info.element is not None else info


def _is_sequence(name: str | None, infos: Infos) -> bool:
    return name is not None and name in infos and infos[name].dtype is DataType.SEQUENCE


def _sequence(path: str, name: str, info: TensorInfo, first_bytes: bytes) -> list[Array]:
    if not first_bytes.startswith(_NPZ):
        raise InvalidArgumentError(f"{path}: input {name!r} is {info}; give a .npz file with an array for each element")
    return list(_arrays(path).values())


def _next(unnamed_inputs: list[str], path: str, infos: Infos) -> str:
    if not unnamed_inputs:
        raise InvalidArgumentError(f"{path}: the network has no input left for this (it has: {', '.join(infos)})")
    return unnamed_inputs.pop(0)


def _from_archive(name: str | None, path: str, infos: Infos, unnamed_inputs: list[str]) -> dict[str, Array]:
    """Return the arrays of a .npz file by the names of the inputs that they are for.

    If `name` is an input, the result is the array of this name, or the only array of the file, whatever its name is. If
    `name` is None, all arrays are returned; a single array whose name is no input is for the first input in
    `unnamed_inputs`, the inputs that no other file was given for.
    """
    arrays = _arrays(path)
    if not arrays:
        raise InvalidArgumentError(f"{path}: the file has no arrays")
    if name in arrays:
        return {name: arrays[name]}
    if len(arrays) == 1:
        [(member_name, array)] = arrays.items()
        if member_name not in infos:
            target = name or next(iter(unnamed_inputs), None)
            _log.warning("%s has no array %r; its only array, %r, is used for this input", path, target, member_name)
        return {name or (member_name if member_name in infos else _next(unnamed_inputs, path, infos)): array}
    if name is not None:
        raise InvalidArgumentError(f"{path}: there is no array {name!r} (there are: {', '.join(arrays)})")
    for member_name in arrays:
        if member_name not in infos:
            raise InvalidArgumentError(f"{path}: {_no_such_input(member_name, infos)}")
    return arrays


def _array(path: str) -> Array:
    with _damage(path):
        return np.array(
            np.load(path, mmap_mode="r", allow_pickle=False)
        )  # fails if the header claims more data than the file has


def _arrays(path: str) -> dict[str, Array]:
    with _damage(path), zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(_MEMBER)]
        return {name.removesuffix(_MEMBER): _member(archive, name) for name in members}


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Convert any exception from reading the file `path` to `InvalidArgumentError` about a damaged file."""
    try:
        yield
    except Exception as error:
        reason = str(error) or type(error).__name__
        is_pickled = re.search("python objects|object arrays", reason, re.IGNORECASE)
        if is_pickled:
            raise InvalidArgumentError(
                f"{path}: the file has Python objects, which are not read; save an array of numbers or texts"
            ) from error
        raise InvalidArgumentError(f"{path}: the file is truncated or damaged: {reason}") from error


def _from_numbers(path: str, name: str, info: TensorInfo) -> Array:
    """Return the contents of a binary file that has nothing but the elements of input `name`, in native byte order.

    `info` gives the type and the shape, of which one dimension may be open; it follows from the size of the file. A
    file of another size raises `InvalidArgumentError`.
    """
    input_title = f"input {name!r} {info}"
    if info.dtype.numpy.kind == "O":
        raise InvalidArgumentError(f"{path}: {input_title} takes texts; give them in a .npy file")
    size = Path(path).stat().st_size
    sized_info = _sized(info, size)
    if sized_info is None:
        raise InvalidArgumentError(f"{path}: {input_title} has a shape that is not known; give it with --shape")
    if size != sized_info.num_bytes:
        multiple_text = "" if info.is_concrete else "a multiple of "
        raise InvalidArgumentError(
            f"{path}: the file has {size:,} bytes, but {input_title} takes {multiple_text}{sized_info.num_bytes:,}"
        )
    return np.fromfile(path, info.dtype.numpy).reshape(tuple(sized_info.shape))


def _from_text(path: str, name: str, info: TensorInfo) -> Array:
    """Return the numbers of a text file as an array for input `name`, with blanks, commas or line ends between them.

    Whole numbers become integers if the input takes integers. `info` is the input's; one dimension may be open.
    """
    input_title = f"input {name!r} {info}"
    if info.dtype.numpy.kind == "O":
        raise InvalidArgumentError(f"{path}: {input_title} takes texts; give them in a .npy file")
    try:
        words = Path(path).read_text("utf-8-sig").replace(",", " ").split()
        numbers = [_number(word) for word in words]
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidArgumentError(
            f"{path}: the file is no text of numbers with blanks, commas or lines between them: {error}"
        ) from error
    size = info.dtype.numpy.itemsize
    sized_info = _sized(info, len(numbers) * size)
    if sized_info is None:
        raise InvalidArgumentError(f"{path}: {input_title} has a shape that is not known; give it with --shape")
    if len(numbers) != sized_info.num_elements:
        expected = f"{'' if info.is_concrete else 'a multiple of '}{sized_info.num_elements:,}"
        raise InvalidArgumentError(
            f"{path}: the file has {counted(len(numbers), 'number')}, but {input_title} takes {expected}"
        )
    try:
        return converted(np.array(numbers), info.dtype, numbers=numbers).reshape(tuple(sized_info.shape))
    except ValueError as error:
        raise InvalidArgumentError(f"{path}: input {name!r} {error}") from None


def _number(word: str) -> int | float:
    try:
        return int(word)
    except ValueError:
        return float(word)


def _sized(info: TensorInfo, size: int) -> TensorInfo | None:
    """Return the info with its open dimension set to the size that makes the tensor as large as a file of `size` bytes.

    The dimension is set to 1 if no whole number of elements gives this size; the caller reports the mismatch. The
    result is None if several dimensions are open or the rank is unknown.
    """
    if not info.is_ranked or sum(isinstance(size, Dim) for size in info.shape) > 1:
        return None
    single_info = info.with_shape(1 if isinstance(size, Dim) else size for size in info.shape)
    count, remainder = divmod(size, single_info.num_bytes or size + 1)
    if info.is_concrete or remainder or not count:
        return single_info
    return info.with_shape(count if isinstance(size, Dim) else size for size in info.shape)
