"""The functions of the extension ``ipr.async/1`` of a plug-in."""

from __future__ import annotations

from typing import Any, Final

from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library.library import Library

__all__ = ["Queues"]

_REQUIRED: Final = {
    "create_queue": "create_queue", "destroy_queue": "destroy_queue", "submit": "submit", "wait": "wait",
    "result": "of_submission", "notify": "of_submission", "cancel": "of_queue", "reset": "of_queue",
}  # fmt: skip
_OPTIONAL: Final = {
    "flush": "of_queue", "create_gate": "create_gate", "open_gate": "open_gate", "destroy_gate": "destroy_gate",
    "export_point": "export_point",
}  # fmt: skip
_GATES: Final = ("create_gate", "open_gate", "destroy_gate")


class Queues:
    """The extension ``ipr.async/1`` of a plug-in. `flags` and `wait_kinds` are those of its table."""

    @classmethod
    def of(cls, library: Library) -> Queues | None:
        """Return the extension, or None if the plug-in does not have it.

        Raises:
            BackendContractError: its table is damaged.
        """
        functions = library.extension(abi.EXT_ASYNC, abi.AsyncApi, _REQUIRED, _OPTIONAL)
        return None if functions is None else cls(library, functions)

    def __init__(self, library: Library, functions: dict[str, Any]) -> None:
        self.library, self.functions = library, functions
        table = library.extension_table(abi.EXT_ASYNC)
        self.flags, self.wait_kinds = int(table.flags), int(table.wait_kinds) | abi.POINT_QUEUE
        if not all(name in functions for name in _GATES):
            self.wait_kinds &= ~abi.POINT_GATE

    @property
    def copies(self) -> bool:
        """True if copies of tensors can be submitted."""
        return bool(self.flags & abi.ASYNC_COPIES)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the extension by its name in the table; raise `CallError` if it fails."""
        self.library.call(name, self.functions[name], self.library.self, *arguments)
