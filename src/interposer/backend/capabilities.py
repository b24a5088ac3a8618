"""Capabilities: named values by which a backend describes itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.records import dataclass

__all__ = ["ALL_OR_NOTHING", "Capabilities", "Capability", "OptionValue", "Options"]

ALL_OR_NOTHING: Final = "AllOrNothing"
"""The capability of backends that run a network only as a whole."""

OptionValue: TypeAlias = bool | int | float | str
Options: TypeAlias = Mapping[str, OptionValue]


@dataclass(frozen=True, slots=True)
class Capability:
    """One property that a backend declares, such as "HasFp16": its name, its value, and a line of documentation."""

    name: str
    value: OptionValue
    doc: str = ""


class Capabilities:
    """The capabilities of a backend, by name. Names that Arm NN uses keep their spelling ("HasFp16", ...).

    The backend guide has a table of the names that Interposer knows and what they mean. "NonConstWeights", for example,
    says that at least one operator accepts weights that are not constant.

    >>> capabilities = Capabilities(NonConstWeights=True, NumberOfThreads=4)
    >>> capabilities.has("NonConstWeights"), capabilities.has("NumberOfThreads", 8), capabilities.get("HasFp16")
    (True, False, None)
    """

    def __init__(self, *described: Capability, **values: OptionValue) -> None:
        undocumented = [Capability(name, value) for name, value in values.items()]
        self._by_name = {capability.name: capability for capability in (*described, *undocumented)}
        if len(self._by_name) < len(described) + len(undocumented):
            raise InvalidArgumentError("a capability is given twice")

    def __iter__(self) -> Iterator[Capability]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> OptionValue | None:
        """Return the value of the capability `name`, or None if the backend does not declare it."""
        capability = self._by_name.get(name)
        return None if capability is None else capability.value

    def has(self, name: str, value: OptionValue = True) -> bool:
        """Return True if the backend declares the capability `name` with this value (of the same type)."""
        declared_value = self.get(name)
        return declared_value is not None and type(declared_value) is type(value) and declared_value == value

    def describe(self, name: str) -> Capability:
        """Return one capability with its documentation; raise `InvalidArgumentError` if it is not declared."""
        if name not in self._by_name:
            raise InvalidArgumentError(f"unknown capability {name!r}{did_you_mean(name, self._by_name)}")
        return self._by_name[name]

    def to_dict(self) -> dict[str, OptionValue]:
        """Return names and values as plain data."""
        return {capability.name: capability.value for capability in self}
