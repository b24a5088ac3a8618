"""The entry points of installed packages, with which they add backends and file formats."""

from __future__ import annotations

import logging
import sys
from functools import cache
from importlib import metadata
from typing import Final

from interposer._distribution import DISTRIBUTION, other_package

__all__ = ["entry_points"]

_GROUPS: Final = "interposer."
_log: Final = logging.getLogger("interposer.backend")


def entry_points(group: str) -> list[tuple[str, metadata.EntryPoint]]:
    """Return the entry points of a group, each with the name of its package.

    This package comes first, the others in alphabetical order. A package whose entry points cannot be read is logged.
    """
    packages = _packages(tuple(sys.path))
    names = sorted(packages, key=lambda name: (name != DISTRIBUTION, name))
    pairs = [(name, point) for name in names for point in packages[name] if point.group == group]
    return sorted(pairs, key=lambda pair: (names.index(pair[0]), pair[1].name))


@cache
def _packages(path: tuple[str, ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Return the entry points of this project's groups by package; `path` is what is searched, `sys.path`.

    A package of another project with the same import package is logged.
    """
    _warn_of_other_package()
    packages: dict[str, list[metadata.EntryPoint]] = {}
    for package in metadata.distributions(path=list(path)):
        name = "a package without a name"
        try:
            points = [point for point in package.entry_points if point.group.startswith(_GROUPS)]
            if points:
                name = package.name or name
                packages.setdefault(name, points)
        except Exception as error:
            _log.warning("the entry points of %s cannot be read: %s", _named(package, name), error)
    return packages


def _warn_of_other_package() -> None:
    try:
        warning = other_package()
    except Exception as error:
        warning = f"the metadata of installed packages cannot be read: {error}"
    if warning:
        _log.warning("%s", warning)


def _named(package: metadata.Distribution, default: str) -> str:
    try:
        return package.name or default
    except Exception:
        return default
