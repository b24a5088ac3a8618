"""Options of the user for a plug-in: checked against its declared options, and converted to a C table."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

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
    declared_by_name = {option.name: option for option in declared}
    for name in options:
        if name not in declared_by_name:
            names_text = ", ".join(sorted(declared_by_name)) or "none"
            hint = did_you_mean(str(name), declared_by_name)
            raise OptionError(f"backend {backend!r} has no option {name!r}{hint} (it has: {names_text})")
        if not declared_by_name[name].scope & scope:
            correct_scope, given_scope = _SCOPE_NAMES[declared_by_name[name].scope], _SCOPE_NAMES[scope]
            raise OptionError(
                f"option {name!r} of backend {backend!r} is given for {correct_scope}, not for {given_scope}"
            )
    return {name: _value(backend, declared_by_name[name], value) for name, value in options.items()}


def _value(backend: str, declared_option: DeclaredOption, value: OptionValue) -> OptionValue:
    kind = declared_option.kind
    if isinstance(value, np.generic):
        value = value.item()
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise OptionError(
            f"option {declared_option.name!r} of backend {backend!r} must be a {kind.__name__}, not {value!r}"
        )
    if kind is int and not -(1 << 63) <= value < 1 << 63:  # type: ignore[operator] # an int, as was just found
        raise OptionError(f"option {declared_option.name!r} of backend {backend!r} is too large: {value!r}")
    return value


class OptionTable:
    """The options of a runtime or a network as an ``ipr_options``, with the memory that it points to.

    `options` are the same options as Python values.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._retained: list[Any] = []
        attributes = (abi.Attribute * len(options))(*(self._item(name, value) for name, value in options.items()))
        self._struct = abi.Options(
            struct_size=ctypes.sizeof(abi.Options), count=len(options), stride=ctypes.sizeof(abi.Attribute),
            items=ctypes.addressof(attributes) if options else None,
        )  # fmt: skip
        self._retained.append(attributes)
        self.address = ctypes.addressof(self._struct)

    def _item(self, name: str, value: OptionValue) -> abi.Attribute:
        attribute = abi.Attribute(name=self._text(name))
        if isinstance(value, bool):
            attribute.kind, attribute.i = abi.KIND_BOOL, value
        elif isinstance(value, int):
            attribute.kind, attribute.i = abi.KIND_INT, value
        elif isinstance(value, float):
            attribute.kind, attribute.f = abi.KIND_FLOAT, value
        else:
            attribute.kind, attribute.text = abi.KIND_TEXT, self._text(value)
        return attribute

    def _text(self, text: str) -> abi.String:
        buffer = ctypes.create_string_buffer(text.encode("utf-8", "surrogatepass"))
        self._retained.append(buffer)
        return abi.String(ctypes.addressof(buffer), len(buffer) - 1)
