"""The entry points of installed packages, with which they add backends and file formats.

The files of installed packages are read here, because importing `importlib.metadata` takes longer than reading them.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Final, NamedTuple

from interposer._distribution import DISTRIBUTION, OTHER, other_package

__all__ = ["EntryPoint", "entry_points"]

_GROUPS: Final = "interposer."
_FOLDERS: Final = (".dist-info", ".egg-info")
"""The ends of the names of folders that describe installed packages."""
_log: Final = logging.getLogger("interposer.backend")


class EntryPoint(NamedTuple):
    """An object that a package offers in a group; `value` is its place, such as ``"package.module:BackendClass"``."""

    name: str
    value: str
    group: str

    @property
    def module(self) -> str:
        """The name of the module that has the object."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    def load(self) -> Any:
        """Import the module, and return the object; raises what the import raises, and AttributeError."""
        loaded_object: Any = import_module(self.module)
        for attribute in filter(None, self.value.partition("[")[0].partition(":")[2].strip().split(".")):
            loaded_object = getattr(loaded_object, attribute)
        return loaded_object


def entry_points(group: str) -> list[tuple[str, EntryPoint]]:
    """Return the entry points of a group, each with the name of its package.

    This package comes first, the others in alphabetical order. A package whose entry points cannot be read is logged.
    """
    path: list[Any] = sys.path
    packages = _packages(tuple(place for place in path if isinstance(place, str)))  # importers ignore others
    names = sorted(packages, key=lambda name: (name != DISTRIBUTION, name))
    packages_and_points = [(name, point) for name in names for point in packages[name] if point.group == group]
    return sorted(packages_and_points, key=lambda pair: (names.index(pair[0]), pair[1].name))


@cache
def _packages(path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of this project's groups by package; `path` is what is searched, `sys.path`.

    A package of another project with the same import package is logged.
    """
    folders = _described_in(path)
    if folders is None:
        _warn_of_other_package()
        return _by_package(_from_metadata(path))
    if any(os.path.basename(folder).startswith(f"{OTHER}-") for folder in folders):
        _warn_of_other_package()
    return _by_package(_from_files(folders))


def _described_in(path: Iterable[str]) -> list[str] | None:
    """Return the folders that describe installed packages; None if only `importlib.metadata` finds all packages.

    It is needed for packages in archives and eggs, and for importers that have packages of their own.
    """
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    folders: list[str] = []
    for place in path:
        if os.path.isfile(place) or place.lower().endswith(".egg"):
            return None
        names: list[str] = []
        with suppress(OSError, ValueError):
            names = os.listdir(place or ".")
        folders += (os.path.join(place, name) for name in sorted(names) if name.endswith(_FOLDERS))
    return folders


def _by_package(named_texts: Iterable[tuple[str, str]]) -> dict[str, list[EntryPoint]]:
    """Return the entry points by package; those of the first in `sys.path` if a package is installed several times."""
    packages: dict[str, list[EntryPoint]] = {}
    first_names: dict[str, str] = {}
    for name, text in named_texts:
        try:
            points = [point for point in _parsed(text) if point.group.startswith(_GROUPS)]
        except ValueError as error:
            _log.warning("the entry points of %s cannot be read: %s", name, error)
        else:
            if points:
                normal_name = re.sub("[-_.]+", "-", name).lower()
                packages.setdefault(first_names.setdefault(normal_name, name), points)
    return packages


def _parsed(text: str) -> Iterator[EntryPoint]:
    group = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif not line.startswith(("#", ";")):
            name, sign, value = line.partition("=")
            if not sign:
                raise ValueError(f"the line {line!r} has no '='")
            yield EntryPoint(name.strip(), value.strip(), group)


def _from_files(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each package that has entry points of this project, and the content of the file with them."""
    for folder in folders:
        name = os.path.basename(folder).partition("-")[0]
        try:
            entry_points_text = _read(folder, "entry_points.txt")
            if f"[{_GROUPS}" in entry_points_text:
                yield _name_in(folder) or name, entry_points_text
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            _log.warning("the entry points of %s cannot be read: %s", name, error)


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def _name_in(folder: str) -> str:
    """Return the name of the package that a folder describes; empty if its metadata cannot be read."""
    for file in ("METADATA", "PKG-INFO"):
        with suppress(OSError, ValueError):
            header = _read(folder, file).partition("\n\n")[0].splitlines()
            return next((line[5:].strip() for line in header if line[:5].lower() == "name:"), "")
    return ""


def _from_metadata(path: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what `_from_files` does, for the packages that all importers find."""
    from importlib.metadata import distributions  # noqa: PLC0415 - slow, and seldom needed

    for package in distributions(path=list(path)):
        name = "a package without a name"
        try:
            entry_points_text = package.read_text("entry_points.txt") or ""
            if f"[{_GROUPS}" in entry_points_text:
                yield package.name or name, entry_points_text
        except Exception as error:
            _log.warning("the entry points of %s cannot be read: %s", name, error)


def _warn_of_other_package() -> None:
    try:
        warning = other_package()
    except Exception as error:
        warning = f"the metadata of installed packages cannot be read: {error}"
    if warning:
        _log.warning("%s", warning)
