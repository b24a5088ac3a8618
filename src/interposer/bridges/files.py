"""The path of the library of the bridges, which the build of the package installs beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from interposer.core.errors import BackendUnavailableError

__all__ = ["library"]

_LIBRARY: Final = str(Path(__file__).with_name("libinterposer_bridge.so"))


def library(*, check: bool = True) -> str:
    """Return the path of the shared object that a host loads; with `check`, raise an error if it was not built.

    Raises:
        BackendUnavailableError: the library is missing, because the build of the package found no compiler for C.
    """
    if check and not Path(_LIBRARY).is_file():
        raise BackendUnavailableError(
            "bridges", f"{_LIBRARY} was not built; install Interposer with a C compiler, or from a wheel for Linux"
        )
    return _LIBRARY
