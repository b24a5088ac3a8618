"""Options of the user for a plug-in: checked against its declared options, and converted to a C table."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from interposer.backend.capabilities import Options, OptionValue
from interposer.core.errors import OptionError, did_you_mean
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library.information import DeclaredOption

__all__ = ["OptionTable", "checked_options"]

_SCOPE_NAMES = {abi.SCOPE_INIT: "a runtime", abi.SCOPE_MODEL: "a network"}


def checked_options(backend: str, options: Options, declared: Iterable[DeclaredOption], scope: int) -> Options:
    """Return the options of a backend, with their values converted to the declared types.

    Args:
        backend: the id of the backend, for error messages.
        options: the user's options by name.
        declared: the options that the plug-in declares.
        scope: whether they are options of the runtime or of a network.

    Raises:
        OptionError: the name is unknown, the option has another scope, or the value has the wrong type.
    """
    known = {item.name: item for item in declared}
    for name in options:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            near = did_you_mean(str(name), known)
            raise OptionError(f"backend {backend!r} has no option {name!r}{near} (it has: {listed})")
        if not known[name].scope & scope:
            right, wrong = _SCOPE_NAMES[known[name].scope], _SCOPE_NAMES[scope]
            raise OptionError(f"option {name!r} of backend {backend!r} is given for {right}, not for {wrong}")
    return {name: _value(backend, known[name], value) for name, value in options.items()}


def _value(backend: str, declared: DeclaredOption, value: OptionValue) -> OptionValue:
    kind = declared.kind
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise OptionError(f"option {declared.name!r} of backend {backend!r} must be a {kind.__name__}, not {value!r}")
    if kind is int and not -(1 << 63) <= value < 1 << 63:  # type: ignore[operator] # an int, as was just found
        raise OptionError(f"option {declared.name!r} of backend {backend!r} is too large: {value!r}")
    return value


class OptionTable:
    """The options of a runtime or a network as an ``ipr_options``, with the memory that it points to.

    `options` are the same options as Python values.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._cached: list[Any] = []
        items = (abi.Attribute * len(options))(*(self._item(name, value) for name, value in options.items()))
        self._struct = abi.Options(
            struct_size=ctypes.sizeof(abi.Options), count=len(options), stride=ctypes.sizeof(abi.Attribute),
            items=ctypes.addressof(items) if options else None,
        )  # fmt: skip
        self._cached.append(items)
        self.address = ctypes.addressof(self._struct)

    def _item(self, name: str, value: OptionValue) -> abi.Attribute:
        item = abi.Attribute(name=self._text(name))
        if isinstance(value, bool):
            item.kind, item.i = abi.KIND_BOOL, value
        elif isinstance(value, int):
            item.kind, item.i = abi.KIND_INT, value
        elif isinstance(value, float):
            item.kind, item.f = abi.KIND_FLOAT, value
        else:
            item.kind, item.text = abi.KIND_TEXT, self._text(value)
        return item

    def _text(self, text: str) -> abi.String:
        cached = ctypes.create_string_buffer(text.encode("utf-8", "surrogatepass"))
        self._cached.append(cached)
        return abi.String(ctypes.addressof(cached), len(cached) - 1)
