"""Options of backends that a program passes to `Optimize`. PyArmNN of release 23.08 has these names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyarmnn._arguments import STRING, Kind, instance, overload_error
from pyarmnn._backend_id import BackendId
from pyarmnn._proxy import Proxy

__all__ = ["MODEL_OPTIONS", "BackendOption", "BackendOptions"]


class BackendOption(Proxy):
    """One option of a backend.

    Args:
        name: the name, such as ``NumberOfThreads``.
        value: the value: a bool, an integer, a float or a text.

    Raises:
        TypeError: the arguments have other types.
    """

    def __init__(self, name: str, value: bool | float | str) -> None:
        if not STRING.accepts(name) or not isinstance(value, bool | int | float | str):
            types = ("bool", "int", "unsigned int", "float", "std::string")
            prototypes = [("std::string", type_name) for type_name in types]
            raise overload_error("new_BackendOption", "BackendOption::BackendOption", prototypes)
        self._name, self._value = name, value

    def GetName(self) -> str:
        """Return the name."""
        return self._name


class BackendOptions(Proxy):
    """The options of one backend, in the order in which they were added.

    Args:
        source: the id of the backend, or other options, which are copied.

    Raises:
        TypeError: the argument is neither.
    """

    def __init__(self, source: BackendId | BackendOptions) -> None:
        if not isinstance(source, BackendId | BackendOptions):
            prototypes = [("armnn::BackendId",), ("armnn::BackendOptions const &",)]
            raise overload_error("new_BackendOptions", "armnn::BackendOptions::BackendOptions", prototypes)
        self._backend: BackendId = source.GetBackendId() if isinstance(source, BackendOptions) else source
        self._options: list[BackendOption] = list(source) if isinstance(source, BackendOptions) else []

    def AddOption(self, option: BackendOption) -> None:
        """Add an option."""
        self._options.append(OPTION(option, "BackendOptions_AddOption", 2))

    def GetBackendId(self) -> BackendId:
        """Return the id of the backend."""
        return self._backend

    def GetOptionCount(self) -> int:
        """Return the number of options."""
        return len(self._options)

    def GetOption(self, idx: int) -> BackendOption:
        """Return the option with this index."""
        return self._options[idx]

    def __iter__(self) -> Iterator[BackendOption]:
        return iter(self._options)

    def __getitem__(self, i: int) -> BackendOption:
        return self._options[i]

    def __len__(self) -> int:
        return len(self._options)


def _all_options(value: Any) -> list[BackendOptions]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, BackendOptions) for each in value):
        raise TypeError
    return list(value)


OPTION = instance(BackendOption, "BackendOption")
_VECTOR = "std::vector< armnn::BackendOptions,std::allocator< armnn::BackendOptions > > *"
MODEL_OPTIONS = Kind(_VECTOR, _all_options, _VECTOR)
