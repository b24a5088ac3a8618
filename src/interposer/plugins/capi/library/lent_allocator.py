"""`LentAllocator`: a custom allocator of the user as a table of C functions."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Final

from interposer.backend.allocator import CustomAllocator
from interposer.core.addresses import address_of
from interposer.core.types import Array
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library.library import Library

__all__ = ["LentAllocator", "lent_memory"]

_COMPILE: Final = {"compile": "compile_in"}
_RESTORE: Final = {"restore": "restore_in"}
_log = logging.getLogger("interposer.backend")


class LentAllocator:
    """The user's custom allocator as an ``ipr_allocator`` that a plug-in can call.

    Allocated blocks are referenced here until the plug-in frees them.
    """

    def __init__(self, allocator: CustomAllocator) -> None:
        self._allocator, self._allocated_arrays = allocator, dict[int, Array]()
        self._functions = abi.FUNCTIONS["host_allocate"](self._allocate), abi.FUNCTIONS["host_free"](self._free)
        self._struct = abi.Allocator(
            struct_size=ctypes.sizeof(abi.Allocator), memory_kind=int(allocator.memory_source),
            allocate=ctypes.cast(self._functions[0], ctypes.c_void_p),
            free=ctypes.cast(self._functions[1], ctypes.c_void_p),
        )  # fmt: skip
        self.address = ctypes.addressof(self._struct)

    def _allocate(self, _: Any, size: int, alignment: int, out: int) -> int:
        try:
            memory = self._allocator.allocate(size, alignment)
            address = address_of(memory)
            if memory.nbytes < size or address % max(1, alignment):
                self._allocator.free(memory)
                return abi.INVALID_ARGUMENT
        except Exception as error:  # nothing may be raised through the plug-in
            _log.warning("the custom allocator %s gave no memory: %r", type(self._allocator).__name__, error)
            return abi.OUT_OF_MEMORY
        self._allocated_arrays[address] = memory
        ctypes.c_void_p.from_address(out).value = address
        return abi.OK

    def _free(self, _: Any, address: int) -> None:
        memory = self._allocated_arrays.pop(address, None)
        if memory is None:
            return
        try:
            self._allocator.free(memory)
        except Exception as error:  # nothing may be raised through the plug-in
            _log.warning("the custom allocator %s could not free memory: %r", type(self._allocator).__name__, error)


def lent_memory(library: Library, allocator: CustomAllocator | None) -> tuple[dict[str, Any], LentAllocator | None]:
    """Return the functions that compile and restore with an allocator, and the allocator as these functions take it.

    The result is empty and None if there is no allocator, or if the plug-in does not have the extension
    ``ipr.executable_memory/1``.
    """
    if allocator is None:
        return {}, None
    functions = library.extension(abi.EXT_EXECUTABLE_MEMORY, abi.ExecutableMemoryApi, _COMPILE, _RESTORE)
    return ({}, None) if functions is None else (functions, LentAllocator(allocator))
