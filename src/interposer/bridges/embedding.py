"""What the library of the bridges calls: one function, which dispatches to the functions of each host.

The C code of the library (``native/bridge``) names a function as ``module:function`` below `interposer.bridges` and
passes addresses and numbers. The gate of the library closes when the interpreter begins to end, and waits for the calls
that are inside; later calls of a host return an error or do nothing.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import current_thread, main_thread
from typing import Any, Final

from interposer.bridges.files import library

__all__ = ["dispatch", "native", "text_at"]

PATIENCE: Final = 10_000
"""Milliseconds for which the end of the process waits for runs in progress."""
_log: Final = logging.getLogger("interposer.bridges")
_functions: Final[dict[str, Callable[..., int]]] = {}


def dispatch(name: str, *arguments: int) -> int:
    """Call the function ``module:function`` below this package, and return its result, an int for C.

    A function is imported at its first call. Later calls import nothing, so that they work while the interpreter ends.
    In the main thread, a signal handler may raise KeyboardInterrupt or SystemExit here. C code makes the call again,
    and lets the exception be raised when the host has returned to the program.
    """
    try:
        return _function(name)(*arguments)
    except Exception:
        raise
    except BaseException as exception:
        if current_thread() is main_thread():
            raise
        raise RuntimeError(f"{type(exception).__name__} ended a call of a host") from exception


def _function(name: str) -> Callable[..., int]:
    function = _functions.get(name)
    if function is None:
        module, _, member = name.partition(":")
        function = _functions[name] = getattr(import_module(f"interposer.bridges.{module}"), member)
    return function


@cache
def native() -> Any:
    """Return the library as a `ctypes.CDLL`, which is the one that a host has opened; its calls release the lock.

    Raises:
        BackendUnavailableError: the library was not built.
    """
    opened_library = ctypes.CDLL(library())
    opened_library.interposer_bridge_direct_new.restype = ctypes.c_void_p
    opened_library.interposer_bridge_direct_new.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    opened_library.interposer_bridge_direct_free.restype = None
    opened_library.interposer_bridge_direct_free.argtypes = [ctypes.c_void_p]
    opened_library.interposer_bridge_direct_pause.restype = None
    opened_library.interposer_bridge_direct_pause.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    return opened_library


def text_at(address: int) -> str:
    """Return the text of a NUL-terminated string in UTF-8 at an address; empty for a null pointer."""
    return "" if not address else ctypes.string_at(address).decode("utf-8", "replace")


@atexit.register
def _close() -> None:
    if not os.path.exists(library(check=False)):
        return
    runs_left = native().interposer_bridge_close(PATIENCE)
    if runs_left:
        _log.warning("%d runs did not end within %d seconds", runs_left, PATIENCE // 1000)
