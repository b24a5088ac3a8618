"""Import of the modules of a package that register functions for the operators of their families."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

__all__ = ["import_families"]


@cache
def import_families(package: str, *, but: str = "") -> None:
    """Import all modules of a package, among them the families of functions, which register themselves.

    The module `but` is left out.
    """
    for module in iter_modules(import_module(package).__path__):
        if module.name != but:
            import_module(f"{package}.{module.name}")
