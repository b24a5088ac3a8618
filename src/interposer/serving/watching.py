"""What the files of a model look like, so that a server sees when they change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from interposer.serving.ensemble_files import files_of_modules
from interposer.serving.folder import ModelSource

__all__ = ["Fingerprint", "fingerprints"]

Fingerprint: TypeAlias = tuple[Any, ...]
"""Versions, settings and files of a model: equal if nothing has changed."""


def fingerprints(sources: Iterable[ModelSource]) -> dict[str, Fingerprint]:
    """Return the fingerprint of each model by its name: its versions and settings, and size and time of its files."""
    versions_of_name: dict[str, list[Any]] = {}
    for source in sources:
        files = [(path, *_state(path)) for path in sorted(set(_files(source)))]
        versions_of_name.setdefault(source.name, []).append(
            (source.version, source.problem, repr(source.settings), *files)
        )
    return {name: tuple(versions) for name, versions in versions_of_name.items()}


def _files(source: ModelSource) -> Iterator[str]:
    """Yield the paths of the files that a version may be read from."""
    path = Path(source.path)
    if source.settings.plan is not None:
        yield source.settings.plan
    if source.folder and os.path.isdir(source.folder):
        yield from map(str, files_of_modules(Path(source.folder)))
    if path.is_dir():
        yield from _below(path)
    elif path.parent.name == source.version:  # the folder of this version, with its external data
        yield from _below(path.parent)
    else:
        yield str(path)
        yield from (str(file) for file in path.parent.glob(f"{_escaped(path.stem)}.*") if file.is_file())


def _below(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names)


def _escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def _state(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_ino, state.st_size, state.st_mtime_ns
