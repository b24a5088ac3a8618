"""`OwnedHandles`: tensor handles that the runtime got from backends and must destroy."""

from __future__ import annotations

import logging
import sys

from interposer.backend import ArrayHandle, MemoryManager, Queue, TensorHandle
from interposer.core.errors import error_text

__all__ = ["OwnedHandles"]

_log = logging.getLogger("interposer.runtime")


class OwnedHandles:
    """A group of tensor handles, such as those of one working memory. Each is destroyed exactly once.

    Memory managers and queues that outlive the handles are destroyed after them. Thread-safe: two threads that destroy
    concurrently never destroy the same handle.
    """

    def __init__(self) -> None:
        self._handles: dict[int, TensorHandle] = {}
        self._later: dict[int, MemoryManager | Queue] = {}

    def add(self, handle: object) -> None:
        """Add a handle. Plain arrays, which need no destruction, and objects that are not handles are ignored."""
        if isinstance(handle, TensorHandle) and type(handle) is not ArrayHandle:
            self._handles.setdefault(id(handle), handle)

    def destroy_after(self, resource: MemoryManager | Queue) -> None:
        """Destroy a memory manager or a queue when all handles are destroyed: managers first, then queues."""
        self._later[id(resource)] = resource

    def destroy_now(self, resource: MemoryManager | Queue) -> None:
        """Destroy something that was passed to `destroy_after`. Errors are only logged."""
        if self._later.pop(id(resource), None) is None:
            return  # another thread has destroyed it
        try:
            resource.destroy()
        except Exception as error:
            _log.warning("%s could not be destroyed: %s", type(resource).__name__, error_text(error))

    @property
    def need_interpreter(self) -> bool:
        """True if Python code destroys one of the handles, so that this must happen before the interpreter exits.

        A plug-in destroys its tensors itself when it is shut down.
        """
        return any(map(_destroyed_by_python, tuple(self._handles.values())))

    def destroy(self) -> None:
        """Destroy all handles, newest first, so that sub-tensors go before their parents. Errors are only logged."""
        self._destroy_handles()
        for resource in sorted(self._later.values(), key=lambda each: isinstance(each, Queue)):
            self.destroy_now(resource)

    def _destroy_handles(self) -> None:
        while self._handles:
            try:
                _, handle = self._handles.popitem()
            except KeyError:  # another thread took the last handle
                return
            try:
                handle.destroy()
            except Exception as error:
                _log.warning("the tensor handle of %s could not be destroyed: %s", handle.info, error_text(error))


def _destroyed_by_python(handle: TensorHandle) -> bool:
    plugin_handles = sys.modules.get(
        "interposer.plugins.capi.running.handles"
    )  # only imported where there are plug-ins
    is_native = plugin_handles is not None and isinstance(handle, plugin_handles.NativeHandle)
    return type(handle).destroy is not TensorHandle.destroy and not is_native
