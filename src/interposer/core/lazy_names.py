"""Names whose modules are imported when a name is first used, or when its type hint is evaluated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, ForwardRef

from interposer.core.pauses import collector_paused

__all__ = ["lazy_names", "lazy_type"]


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: the name of the package.
        homes: the public names by their modules, which are relative to the package.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with collector_paused():
            member = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, member)
        return member

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return get, names


def lazy_type(module: str, name: str) -> Any:
    """Return a stand-in for a class in annotations, so that its module is not imported with the annotated one.

    `typing.get_type_hints` imports the module and gives the class. Type checkers need an import of the class under
    ``if TYPE_CHECKING``, with the stand-in under ``else``.
    """
    return ForwardRef(f"__import__('importlib').import_module({module!r}).{name}")
