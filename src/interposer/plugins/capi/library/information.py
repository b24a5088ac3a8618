"""The information that a plug-in returns from ``get_info``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from interposer.backend.capabilities import Capabilities, Capability, OptionValue
from interposer.core.errors import BackendContractError
from interposer.core.records import dataclass
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.reading import read_array, read_text

__all__ = ["DeclaredOption", "LibraryInfo", "read_info", "read_property"]

MAX_PROPERTIES: Final = 4096
MAX_ALIGNMENT: Final = 4096
_SCOPES: Final = abi.SCOPE_INIT | abi.SCOPE_MODEL
_NAMED: Final = {abi.Cap.DYNAMIC_SHAPES: "DynamicShapes", abi.Cap.CONCURRENT_EXECUTE: "ConcurrentExecute"}


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option that a plug-in declares, with its type, default and description.

    It is for ``init`` (an option of the runtime), for a network (an option of the model), or for both.
    """

    name: str
    default: OptionValue
    doc: str
    scope: int

    @property
    def scopes(self) -> list[str]:
        """The scopes in which the option can be set: "runtime", "network" or both."""
        names = {"runtime": abi.SCOPE_INIT, "network": abi.SCOPE_MODEL}
        return [name for name, bit in names.items() if self.scope & bit]

    @property
    def kind(self) -> type:
        """The Python type of the option's values."""
        return type(self.default)


@dataclass(frozen=True, slots=True)
class LibraryInfo:
    """What a plug-in says about itself in ``ipr_info``: its version, capabilities, options and so on.

    `alignment` is the alignment in bytes that it requires of tensors, at least 1.
    """

    vendor: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    capabilities: abi.Cap = abi.Cap(0)
    alignment: int = 1
    options: tuple[DeclaredOption, ...] = ()
    properties: tuple[Capability, ...] = ()

    def named_capabilities(self, of_device: Iterable[Capability] = ()) -> Capabilities:
        """Return all capabilities under their names: those that the plug-in declares by name, and those from its flags.

        A capability that the plug-in declares by name takes precedence, above all those `of_device`.
        """
        by_name = {capability.name: capability for capability in (*self.properties, *of_device)}
        from_flags = {name: Capability(name, True) for bit, name in _NAMED.items() if bit in self.capabilities}
        if abi.Cap.DETERMINISTIC not in self.capabilities:
            from_flags["Deterministic"] = Capability("Deterministic", False)
        return Capabilities(*(from_flags | by_name).values())


def read_info(out: abi.Info) -> LibraryInfo:
    """Return the content of an ``ipr_info``; raise `BackendContractError` if it is invalid."""
    alignment = max(1, out.alignment)
    if alignment > MAX_ALIGNMENT or alignment & (alignment - 1):
        raise BackendContractError(f"the alignment is {alignment}; expected a power of two up to {MAX_ALIGNMENT}")
    if not (out.memory_kinds or abi.MEMORY_HOST) & abi.MEMORY_HOST:
        raise BackendContractError("memory_kinds lacks IPR_MEMORY_HOST, and it has no extension for other memory")
    options = _properties(out, "option")
    return LibraryInfo(
        read_text(out.vendor, "the vendor"),
        read_text(out.name, "the name"),
        read_text(out.version, "the version"),
        read_text(out.description, "the description"),
        abi.Cap(out.capabilities & sum(abi.Cap)),
        alignment,
        tuple(DeclaredOption(*read_property(option), scope=_scope(option)) for option in options),
        tuple(Capability(*read_property(property_)) for property_ in _properties(out, "property")),
    )


def _properties(out: abi.Info, member: str) -> list[abi.Property]:
    plural = "options" if member == "option" else "properties"
    count, stride = getattr(out, f"{member}_count"), getattr(out, f"{member}_stride")
    if count > MAX_PROPERTIES:
        raise BackendContractError(f"{count:,} {plural}; at most {MAX_PROPERTIES:,} can be meant")
    array = read_array(abi.Property, getattr(out, plural), count, stride, f"the list of {plural}")
    names = [read_text(property_.name, f"the name of one of the {plural}") for property_ in array]
    if len(set(names)) < len(names) or "" in names:
        raise BackendContractError(f"the {plural} must have different names, not {', '.join(map(repr, names))}")
    return array


def read_property(property_: abi.Property) -> tuple[str, OptionValue, str]:
    """Return the name, the value and the description of an ``ipr_property``.

    Raises:
        BackendContractError: it is invalid.
    """
    name = read_text(property_.name, "the name of a property")
    values: dict[int, Any] = {
        abi.KIND_BOOL: lambda: bool(property_.i),
        abi.KIND_INT: lambda: int(property_.i),
        abi.KIND_FLOAT: lambda: float(property_.f),
        abi.KIND_TEXT: lambda: read_text(property_.text, f"the text of {name!r}"),
    }
    if property_.kind not in values:
        raise BackendContractError(f"{name!r} is of kind {property_.kind}; expected BOOL, INT, FLOAT or TEXT")
    return name, values[property_.kind](), read_text(property_.doc, f"the line about {name!r}")


def _scope(option: abi.Property) -> int:
    if not option.scope & _SCOPES:
        name = read_text(option.name, "the name of an option")
        raise BackendContractError(f"the option {name!r} has scope {option.scope}; expected IPR_SCOPE_INIT or _MODEL")
    return int(option.scope & _SCOPES)
