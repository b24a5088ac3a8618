"""Where dynamic backends are looked for: a list of folders from the environment, or one that the caller names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interposer.core.config import BACKEND_PATH

__all__ = [
    "NOT_BUILT",
    "OWN_BACKENDS",
    "PACKAGE_FOLDER",
    "Folder",
    "folders_to_search",
    "own_file",
    "own_files",
    "reason_not_built",
]

PACKAGE_FOLDER: Final = str(Path(__file__).parents[3] / "native")
"""Where the package's own shared objects are; searched first, whatever the user says."""
NOT_BUILT: Final = "not_built.txt"
"""The file in that folder in which the package's build says why there are none."""
OWN_BACKENDS: Final = ("CpuAcc",)
"""The ids of the backends that the package's build makes."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that was asked for: `error` says why it cannot be searched, or is empty."""

    path: str
    fault: str = ""


def own_file(backend_id: str, folder: str = PACKAGE_FOLDER) -> str:
    """Return the path at which the build of the package puts one of `OWN_BACKENDS`."""
    return os.path.join(folder, f"Interposer_{backend_id}_backend.so")


def own_files(folder: str = PACKAGE_FOLDER) -> dict[str, str]:
    """Return the paths of the package's own shared objects, by the ids that their names tell."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    return {name.split("_")[1]: os.path.join(folder, name) for name in names if name.endswith("_backend.so")}


def reason_not_built(folder: str = PACKAGE_FOLDER) -> str:
    """Return why there is no file of one of `OWN_BACKENDS`."""
    try:
        noted = Path(folder, NOT_BUILT).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        noted = ""
    return f"it was not built: {noted or 'this copy of the package was not made by its build'}"


def folders_to_search(override: str | None = None) -> tuple[Folder, ...]:
    """Return the folders of the user's list, in its order and without repetitions.

    `override` is one path that takes the place of the whole list of ``INTERPOSER_BACKEND_PATH``, even if it is no good.
    """
    if override is not None:
        return (_folder(override),)
    listed = os.environ.get(BACKEND_PATH, "")
    return tuple(_without_repetitions(map(_folder, listed.split(":")))) if listed else ()


def _without_repetitions(folders: Iterable[Folder]) -> Iterable[Folder]:
    seen = set()
    for folder in folders:
        key = folder.path if folder.fault else os.path.realpath(folder.path)
        if key not in seen:
            yield folder
        seen.add(key)


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
