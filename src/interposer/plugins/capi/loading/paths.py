"""The folders that are searched for dynamic backends: from the environment, or given by the caller."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from interposer.core.config import settings
from interposer.core.records import dataclass

__all__ = [
    "NOT_BUILT",
    "OWN_BACKENDS",
    "OWN_BY_NAME_ONLY",
    "PACKAGE_FOLDER",
    "Folder",
    "folders_to_search",
    "own_file",
    "own_files",
    "reason_not_built",
]

PACKAGE_FOLDER: Final = str(Path(__file__).parents[3] / "native")
"""The folder of the package's own shared objects, which is always searched first."""
NOT_BUILT: Final = "not_built.txt"
"""The file in that folder in which the build records why backends were not built."""
OWN_BACKENDS: Final = ("GpuAcc", "CpuAcc")
"""The ids of the backends that the build of this package creates, in the order in which they are registered."""
OWN_BY_NAME_ONLY: Final = frozenset({"GpuAcc"})
"""Those of them that are opened when they are named: they load drivers, which start threads and take memory."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder to search; `problem` is the reason why it cannot be searched, or empty."""

    path: str
    problem: str = ""


def own_file(backend_id: str, folder: str = PACKAGE_FOLDER) -> str:
    """Return the path of the shared object of one of `OWN_BACKENDS`."""
    return os.path.join(folder, f"Interposer_{backend_id}_backend.so")


def own_files(folder: str = PACKAGE_FOLDER) -> dict[str, str]:
    """Return the paths of the package's own shared objects, by the backend ids in their file names.

    Those of `OWN_BACKENDS` come first, in their order.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    path_of_backend = {name.split("_")[1]: os.path.join(folder, name) for name in names if name.endswith("_backend.so")}
    return {own: path_of_backend[own] for own in (*OWN_BACKENDS, *path_of_backend) if own in path_of_backend}


def reason_not_built(folder: str = PACKAGE_FOLDER) -> str:
    """Return why a shared object of this package is missing: the build has noted the reason in the folder."""
    try:
        noted_reason = Path(folder, NOT_BUILT).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        noted_reason = ""
    return f"it was not built: {noted_reason or 'this copy of the package was not made by its build'}"


def folders_to_search(override: str | None = None) -> tuple[Folder, ...]:
    """Return the folders to search, in the order of the user's list and without repetitions.

    `override` is a single path that replaces the list in ``INTERPOSER_BACKEND_PATH`` or in the user's
    ``interposer.toml``, even if it is invalid.
    """
    if override is not None:
        return (_folder(override),)
    return tuple(_without_repetitions(map(_folder, settings()["backend_path"].read() or ())))


def _without_repetitions(folders: Iterable[Folder]) -> Iterable[Folder]:
    seen_keys = set()
    for folder in folders:
        key = folder.path if folder.problem else os.path.realpath(folder.path)
        if key not in seen_keys:
            yield folder
        seen_keys.add(key)


def _folder(path: str) -> Folder:
    return Folder(path, _problem(path) or "")


def _problem(path: str) -> str | None:
    if not path:
        return "the path is empty"
    if not os.path.isabs(path):
        return "the path is not absolute"
    try:
        os.stat(path)
    except FileNotFoundError:
        return "the folder does not exist"
    except OSError as error:
        return f"the folder cannot be looked at: {error.strerror}"
    except ValueError as error:
        return f"the path cannot be one: {error}"
    return None if os.path.isdir(path) else "the path is not that of a folder"
