"""A delegate that takes nothing and shows what a host passes to it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


class _Delegate(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("prepare", ctypes.c_void_p), ("copies", ctypes.c_void_p * 3),
                ("flags", ctypes.c_int64), ("later", ctypes.c_void_p * 16)]  # fmt: skip


class Probe:
    """Calls `look` with the address of the host's context of the first subgraph, which the host prepares first.

    The exception that `look` raises is stored in `error`.
    """

    def __init__(self, look: Callable[[int], Any]) -> None:
        self.look, self.result, self.error = look, None, None
        self._prepare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._seen)
        self._struct = _Delegate(prepare=ctypes.cast(self._prepare, ctypes.c_void_p), flags=1)

    def _seen(self, context: int, _: int) -> int:
        look, self.look = self.look, lambda _: self.result
        try:
            self.result = look(context)
        except Exception as error:
            self.error = error
        return 0

    def _get_native_delegate_pointer(self) -> int:  # what the interpreter of LiteRT asks a delegate for
        return ctypes.addressof(self._struct)


def looked(content: bytes, look: Callable[[int], Any]) -> Any:
    """Return what `look` returns for the graph of a model in LiteRT; it must not keep views of the host's memory."""
    from ai_edge_litert.interpreter import Interpreter

    probe = Probe(look)
    Interpreter(model_content=content, experimental_delegates=[probe])
    if probe.error is not None:
        raise probe.error
    return probe.result
