"""Calls of plug-in functions, with their error buffers and status codes."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from interposer.core.errors import BackendContractError, BackendError
from interposer.plugins.capi.abi import structs as abi

__all__ = ["CallError", "ErrorBuffer", "ErrorBuffers", "WrongValue", "announce", "watch_calls", "watchers"]

CAPACITY: Final = 4096
_GUARD: Final = 12288
_CANARY: Final = b"\xa5" * _GUARD
_KIND: Final = abi.Error.code.offset // 8  # the code, and the kind of the item
_LENGTH: Final = abi.Error.length.offset // 8


watchers: Final[list[Callable[[str], None]]] = []
"""The functions that `watch_calls` registered."""


def watch_calls(watcher: Callable[[str], None]) -> None:
    """Register a function that is called with the name of every plug-in function before its call.

    The process that loads a plug-in on trial uses this to report the call that crashed it.
    """
    watchers.append(watcher)


def announce(name: str) -> None:
    """Notify the watchers that a function of a plug-in is called now."""
    for watcher in watchers:
        watcher(name)


class WrongValue(NamedTuple):
    """What a plug-in says of a value that it cannot use; see ``ipr_value_error``. Unknown numbers are None."""

    operand: int | None
    element: int | None
    value: int | None
    lowest: int | None
    highest: int | None

    @classmethod
    def of(cls, details: abi.InvalidValue) -> WrongValue:
        """Return the numbers that the plug-in knows; its struct marks each by a bit of `known`."""
        members = zip(abi.Known, cls._fields, strict=True)
        return cls(*(int(getattr(details, name)) if details.known & flag else None for flag, name in members))


class CallError(BackendError):
    """Raised if a function of a plug-in returned a status other than ``IPR_OK``.

    `message` is the message of the plug-in. `item_kind` (``abi.ITEM_...``) and `item_index` identify the defective
    layer or tensor; `item_index` is -1 if the plug-in names none. `wrong_value` belongs to the status
    ``IPR_INVALID_VALUE``.
    """

    def __init__(
        self,
        backend: str,
        function: str,
        status: int,
        error: abi.Error,
        message: str,
        wrong_value: WrongValue | None = None,
    ) -> None:
        self.wrong_value = wrong_value
        self.status, self.code = status, int(error.code)
        self.item_kind, self.item_index = int(error.item_kind), int(error.item)
        self.message, self._function, self._location = message, function, ""
        super().__init__(f"{function}: {self.reason}", backend=backend)

    def locate(self, where: str) -> None:
        """Add `where`, the name of the defective layer or tensor, to the message, unless the message has it already."""
        if where and where not in self.message:
            self._location = f" (at {where})"
            self.args = (f"{self._function}: {self.reason}",)

    @property
    def reason(self) -> str:
        """The plug-in's message, or the name of the status if there is no message.

        For a status more specific than FAILED and UNSUPPORTED, its name precedes the message.
        """
        status = abi.STATUS.get(self.status, f"status {self.status}")
        tail = f"{self._location} (error {self.code})" if self.code else self._location
        if not self.message:
            return f"{status}, without a message{tail}"
        plain = self.status in (abi.FAILED, abi.UNSUPPORTED)
        return f"{self.message}{tail}" if plain else f"{status}: {self.message}{tail}"


class ErrorBuffer:
    """An ``ipr_error`` and its text, followed by guard bytes that must not change."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(b"\0" * CAPACITY + _CANARY, CAPACITY + _GUARD)
        self.details = abi.InvalidValue()
        self.error = self.details.error
        self.error.struct_size, self.error.item = ctypes.sizeof(abi.InvalidValue), -1
        self.error.capacity, self.error.text = CAPACITY, ctypes.addressof(self.memory)
        self.address = ctypes.addressof(self.error)
        self.words = memoryview(self.error).cast("B").cast("Q")  # quicker to read than fields of the structure

    def is_blank(self) -> bool:
        """Return True if the struct is unchanged; a function that succeeded must not have filled in an error."""
        return not (self.words[_KIND] or self.words[_LENGTH])

    def overrun(self) -> bool:
        return self.memory.raw[CAPACITY:] != _CANARY

    def text(self) -> str:
        """Return the message, truncated to the size of the buffer."""
        length = int(self.error.length)
        text_bytes = self.memory.raw[: min(length, CAPACITY)]
        ellipsis = f"... ({length:,} bytes)" if length > CAPACITY else ""
        return text_bytes.decode("utf-8", "replace").strip("\0 \n") + ellipsis


class ErrorBuffers:
    """Calls functions of one plug-in. Thread-safe: concurrent calls have separate buffers."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._free_buffers: deque[ErrorBuffer] = deque()

    def call(self, name: str, function: Callable[..., int], *arguments: Any) -> None:
        """Call a function of the plug-in as ``function(*arguments, error)``.

        `error` is the address of an ``ipr_error``. `name` is the function's name, for messages.

        Raises:
            CallError: the function returned a status other than ``IPR_OK``.
            BackendContractError: the function wrote past the end of the error's text.
        """
        try:
            buffer = self._free_buffers.pop()
        except IndexError:
            buffer = ErrorBuffer()
        if watchers:
            announce(name)
        status = function(*arguments, buffer.address)
        if status == 0:
            if buffer.is_blank():
                self._free_buffers.append(buffer)
            return
        self.fail(name, status, buffer)

    def prepared(self, name: str, function: Callable[..., int], *arguments: Any) -> Callable[[], None]:
        """Return a function that does what `call` does with these arguments, as often as it is called, but faster.

        It is not thread-safe.
        """
        buffer = ErrorBuffer()
        all_arguments, words = (*arguments, buffer.address), buffer.words

        def call() -> None:
            nonlocal buffer, all_arguments, words
            if watchers:
                announce(name)
            status = function(*all_arguments)
            if status or words[_KIND] or words[_LENGTH]:
                used_buffer, buffer = buffer, ErrorBuffer()
                all_arguments, words = (*arguments, buffer.address), buffer.words
                if status:
                    self.fail(name, status, used_buffer)

        return call

    def fail(self, name: str, status: int, buffer: ErrorBuffer) -> NoReturn:
        """Raise the error of a call of the function `name` that returned `status` and filled in `buffer`.

        Raises:
            CallError: always, except if the function wrote past the end of the error's text.
            BackendContractError: it did.
        """
        if buffer.overrun():
            raise BackendContractError(f"{name} wrote past the end of the error's text", backend=self.backend)
        wrong_value = WrongValue.of(buffer.details) if status == abi.INVALID_VALUE else None
        raise CallError(self.backend, name, status, buffer.error, buffer.text(), wrong_value)
