"""The extension ``ipr.context/1``, which notifies a plug-in of networks."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Final

from interposer.backend.base import BackendContext
from interposer.backend.capabilities import Options
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable, checked_options

__all__ = ["DynamicContext"]

_NOTICES: Final = ("before_load", "after_load", "before_unload", "after_unload")
_FUNCTIONS: Final = {"create": "create", "destroy": "destroy"} | dict.fromkeys(_NOTICES, "notice")


class DynamicContext(BackendContext):
    """A context of a plug-in. If it refuses a notice, a `CallError` with the reason is raised."""

    @classmethod
    def of(cls, library: Library, options: Options, owner: object = None) -> DynamicContext | None:
        """Return a new context, or None if the plug-in does not want notices.

        Raises:
            CallError: the plug-in could not create a context.
            BackendContractError: the table of the extension is damaged.
        """
        functions = library.extension(abi.EXT_CONTEXT, abi.ContextApi, _FUNCTIONS)
        return None if functions is None else cls(library, functions, options, owner)

    def __init__(self, library: Library, functions: dict[str, Any], options: Options, owner: object) -> None:
        self._library, self._functions, self._owner = library, functions, owner
        option_table = OptionTable(checked_options(library.id, options, library.info.options, abi.SCOPE_INIT))
        out = ctypes.c_void_p()
        with library.serialized():
            library.call("create", functions["create"], library.self, option_table.address, ctypes.addressof(out))
        self._context = out.value
        destroy, context = functions["destroy"], out.value
        number = library.hold_call(lambda: destroy(library.self, context))
        weakref.finalize(self, library.let_go, number).atexit = False

    def before_load_network(self, network_id: int) -> bool:
        return self._notice("before_load", network_id)

    def after_load_network(self, network_id: int) -> bool:
        return self._notice("after_load", network_id)

    def before_unload_network(self, network_id: int) -> bool:
        return self._notice("before_unload", network_id)

    def after_unload_network(self, network_id: int) -> bool:
        return self._notice("after_unload", network_id)

    def _notice(self, notice: str, network_id: int) -> bool:
        network = abi.Network(struct_size=ctypes.sizeof(abi.Network), id=network_id)
        function, arguments = self._functions[notice], (self._library.self, self._context)
        with self._library.serialized():
            self._library.call(notice, function, *arguments, ctypes.addressof(network))
        return True
