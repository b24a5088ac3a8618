"""Networks on which a backend failed, as Python scripts that show it again."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from interposer.backend import Backend
from interposer.backend.dynamic.libraries import backend_of_file
from interposer.codec import array_from_plain, array_to_plain
from interposer.errors import InvalidArgumentError
from interposer.files import write_file
from interposer.ir.network import Network
from interposer.ir.text import parse_graph, print_graph
from interposer.runtime import Runtime
from interposer.session import default_runtime
from interposer.testing.bench import Bench
from interposer.testing.compare import disagreements
from interposer.types import Array

__all__ = ["Factory", "backend_of", "is_library", "replay", "write_script"]

Factory = Callable[[], Backend]

_SCRIPT = '''"""{backend} and the reference disagree about this network.

{fault}

Run this with Python to see it again; the backend must be installed.
"""

from interposer.testing import replay

NETWORK = r"""
{network}
"""

INPUTS = {inputs}

replay("{backend}", NETWORK, INPUTS{how})
'''


def backend_of(given: str | Factory, runtime: Runtime | None = None) -> Backend:
    """The backend of an id that the runtime knows, of a class written as ``module:Class``, of a factory, or of a path.

    Raises:
        UnknownBackendError: nobody knows the id.
        BackendUnavailableError: it is known, but cannot be used here.
        InvalidArgumentError: it cannot be imported, or gives no backend.
        PluginError: the shared object cannot be loaded.
    """
    if isinstance(given, str) and is_library(given):
        return backend_of_file(given)
    if isinstance(given, str) and ":" not in given:
        return (runtime or default_runtime()).registry.get(given)
    factory = _imported(given) if isinstance(given, str) else given
    try:
        made: object = factory() if callable(factory) else factory
    except Exception as error:
        raise InvalidArgumentError(f"{given!r} gives no backend: {type(error).__name__}: {error}") from error
    if not isinstance(made, Backend):
        raise InvalidArgumentError(f"{given!r} gives {made!r}, which is no Backend")
    return made


def is_library(given: str) -> bool:
    """Whether a backend is given by the path of a shared object."""
    return ":" not in given and (os.sep in given or re.search(r"\.so(\.[0-9.]+)?\Z", given) is not None)


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"{name!r} cannot be imported: {error}") from error


def write_script(
    folder: Path, backend: str, network: Network, feeds: Mapping[int, Array], how: Mapping[str, Any], fault: str
) -> Path:
    """Write the script for one network; `how` is what `Bench.optimize` was told beside it."""
    text = print_graph(network.graph)
    inputs = json.dumps({key: array_to_plain(array) for key, array in feeds.items()}, indent=4)
    told = "".join(f", {name}={value!r}" for name, value in how.items())
    content = _SCRIPT.format(backend=backend, fault=fault, network=text, inputs=inputs, how=told)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{backend}-{zlib.crc32(content.encode()):08x}.py"
    write_file(path, content)
    return path


def replay(backend: str | Factory, network: str, inputs: Mapping[str, Mapping[str, Any]], **how: Any) -> None:
    """Run a network in text form on a backend, and compare it with the reference; prints what differs.

    Raises:
        SystemExit: they disagree.
    """
    feeds = {int(key): array_from_plain(plain) for key, plain in inputs.items()}
    bench = Bench(backend_of(backend), ())
    faults = list(disagreements(bench, Network(graph=parse_graph(network)), feeds, **how))
    for fault in faults:
        print(fault)
    if faults:
        raise SystemExit(1)
    print("they agree")
