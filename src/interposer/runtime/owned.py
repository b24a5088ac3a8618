"""`OwnedHandles`: tensor handles that the runtime got from backends and must destroy."""

from __future__ import annotations

import logging
import sys

from interposer.backend import ArrayHandle, TensorHandle
from interposer.core.errors import InterposerError

__all__ = ["OwnedHandles"]

_log = logging.getLogger("interposer.runtime")


class OwnedHandles:
    """A group of tensor handles, such as those of one working memory. Each is destroyed exactly once.

    Thread-safe: two threads that destroy concurrently never destroy the same handle.
    """

    def __init__(self) -> None:
        self._handles: dict[int, TensorHandle] = {}

    def add(self, handle: object) -> None:
        """Add a handle. Plain arrays, which need no destruction, and objects that are not handles are ignored."""
        if isinstance(handle, TensorHandle) and type(handle) is not ArrayHandle:
            self._handles.setdefault(id(handle), handle)

    @property
    def need_interpreter(self) -> bool:
        """True if Python code destroys one of the handles, so that this must happen before the interpreter exits.

        A plug-in destroys its tensors itself when it is shut down.
        """
        return any(map(_destroyed_by_python, tuple(self._handles.values())))

    def destroy(self) -> None:
        """Destroy all handles, newest first, so that sub-tensors go before their parents. Errors are only logged."""
        while self._handles:
            try:
                _, handle = self._handles.popitem()
            except KeyError:  # another thread took the last handle
                return
            try:
                handle.destroy()
            except Exception as error:
                text = str(error) if isinstance(error, InterposerError) else f"{type(error).__name__}: {error}"
                _log.warning("the tensor handle of %s could not be destroyed: %s", handle.info, text)


def _destroyed_by_python(handle: TensorHandle) -> bool:
    plugin_handles = sys.modules.get(
        "interposer.plugins.capi.running.handles"
    )  # only imported where there are plug-ins
    is_native = plugin_handles is not None and isinstance(handle, plugin_handles.NativeHandle)
    return type(handle).destroy is not TensorHandle.destroy and not is_native
