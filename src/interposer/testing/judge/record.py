"""The files of a finding: a script that reproduces it, the network as text, and an ONNX model with inputs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.backend import Options
from interposer.core.codec import array_to_plain
from interposer.core.errors import FileWriteError, InterposerError
from interposer.core.files import write_file
from interposer.core.records import dataclass
from interposer.ir.text import print_graph
from interposer.testing.judge.subject import Conditions, Subject
from interposer.testing.replay import Factory, is_library
from interposer.writers import onnx as onnx_writer

__all__ = ["Named", "name_of", "write"]

_SCRIPT: Final = '''"""{title}

{text}

Run this file with Python from any folder to see it again; it needs the package interposer and the backend.
"""

{preparation}from interposer.testing import replay

NETWORK = r"""
{network}
"""

INPUTS = {inputs}

replay({backend}, NETWORK, INPUTS{arguments})
'''


@dataclass(frozen=True)
class Named:
    """How another process can import a backend: a `name` such as ``module:Class``, and the folder of the module."""

    name: str
    folder: str = ""


def name_of(backend: str | Factory) -> Named | None:
    """Return the name by which another process can create a backend, and the folder of its module.

    None for an object without an importable name.
    """
    if isinstance(backend, str):
        return Named(str(Path(backend).absolute()) if is_library(backend) else backend, _folder_of(backend))
    module, name = getattr(backend, "__module__", ""), getattr(backend, "__qualname__", "")
    if "<" in name or module in ("", "__main__"):
        return None
    try:
        named_object: object = reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError):
        return None
    path_text = f"{module}:{name}"
    return Named(path_text, _folder_of(path_text)) if named_object is backend else None


def _folder_of(text: str) -> str:
    """Return the folder that another process must add to its import path to import ``module:Class``.

    Empty if `text` is the name of a registered backend or a path, or if the module has no file.
    """
    module, _, attribute = text.partition(":")
    if not attribute:
        return ""
    file = getattr(import_module(module.partition(".")[0]), "__file__", None)
    paths = getattr(import_module(module.partition(".")[0]), "__path__", None)
    if paths:
        return str(Path(next(iter(paths))).absolute().parent)
    return "" if file is None else str(Path(file).absolute().parent)


def write(
    folder: Path,
    subject: Subject,
    text: str,
    backends: Sequence[str | Factory],
    *,
    options: Mapping[str, Options],
    steps: int,
    environment: Mapping[str, str],
) -> Path:
    """Write the files by which a finding can be reproduced: a script, the network and its inputs.

    Return the script's path.

    Args:
        folder: the folder, which is created if it is missing.
        subject: the network, its inputs and conditions.
        text: a description of the failure.
        backends: the backends under test in order of preference.
        options: the model options by backend id.
        steps: the number of steps by which quantized results may differ.
        environment: variables that the script sets.

    Raises:
        FileWriteError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileWriteError(str(folder), error.strerror or str(error)) from error
    names = [name_of(backend) for backend in backends]
    backend_names = "+".join(re.sub(r"[^\w.-]+", "_", Path(name.name).stem if name else "backend") for name in names)
    stem = f"{backend_names}-{subject.id}" + (
        f"-{subject.conditions.route}" if subject.conditions.route != "network" else ""
    )
    path = folder / f"{stem}.py"
    write_file(path, _script(subject, text, names, options, steps, environment))
    write_file(path.with_suffix(".txt"), f"{text}\n\n{print_graph(subject.network.graph)}\n")
    _write_model(path.with_suffix(".onnx"), subject)
    return path


def _script(
    subject: Subject,
    text: str,
    named: Sequence[Named | None],
    options: Mapping[str, Options],
    steps: int,
    environment: Mapping[str, str],
) -> str:
    importable_backends = [name for name in named if name is not None]
    importable_names = [name.name for name in importable_backends]
    plain_feeds = {key: array_to_plain(array) for key, array in subject.feeds.items()}
    return _SCRIPT.format(
        title=f"{subject.id}: {text.partition(chr(10))[0]}".replace("\\", "/").replace('"""', "'''"),
        text=text.replace("\\", "/").replace('"""', "'''"),
        preparation=_preparation(importable_backends, environment),
        network=print_graph(subject.network.graph),
        inputs=json.dumps(plain_feeds, indent=4),
        backend=_backend_argument(importable_names, is_complete=len(importable_names) == len(named)),
        arguments=_arguments(subject.conditions, options, steps),
    )


def _backend_argument(names: Sequence[str], *, is_complete: bool) -> str:
    if not is_complete:
        return "None"  # which `replay` answers with what to do
    return json.dumps(names[0] if len(names) == 1 else list(names))


def _preparation(names: Sequence[Named], environment: Mapping[str, str]) -> str:
    lines = []
    if environment:
        lines += ["import os", "", f"os.environ.update({json.dumps(dict(environment), indent=4)})"]
    folders = [name.folder for name in names if name.folder]
    if folders:
        lines += ["import sys", "", *(f"sys.path.insert(0, {folder!r})" for folder in dict.fromkeys(folders))]
    return "".join(f"{line}\n" for line in lines)


def _arguments(conditions: Conditions, options: Mapping[str, Options], steps: int) -> str:
    arguments: dict[str, Any] = {
        name: value for name, value in asdict(conditions).items() if value != getattr(Conditions(), name)
    }
    if options:
        arguments["options"] = {name: dict(value) for name, value in options.items()}
    if steps:
        arguments["steps"] = steps
    return "".join(f", {name}={value!r}" for name, value in arguments.items())


def _write_model(path: Path, subject: Subject) -> None:
    """Write the network as ONNX to `path` and its inputs beside it as an ``.npz`` file, if they can be expressed.

    NumPy loads floats that it does not know, such as bfloat16, as raw bytes; `view` gives them their type again.
    """
    try:
        model = onnx_writer.write(subject.network)
    except InterposerError:
        return
    write_file(path, model.SerializeToString())
    arrays = {layer.name: subject.feeds[number] for number, layer in subject.network.inputs.items()}
    if all(array.dtype != object for array in arrays.values()):
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        write_file(path.with_suffix(".npz"), content.getvalue())
