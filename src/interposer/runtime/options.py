"""How a runtime is created."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from interposer.backend import Options
from interposer.errors import expect

__all__ = ["CreationOptions"]


@dataclass(frozen=True)
class CreationOptions:
    """Options of `Runtime`.

    Args:
        backend_options: for backends by id, options that their contexts are created with.
        disabled_backends: ids of backends to leave out (or one id), beside those that the environment variable
            ``INTERPOSER_DISABLED_BACKENDS`` names.
    """

    backend_options: Mapping[str, Options] = field(default_factory=dict)
    disabled_backends: Collection[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.disabled_backends, str):
            object.__setattr__(self, "disabled_backends", (self.disabled_backends,))
        expect(self.disabled_backends, Collection, "disabled_backends must be a list of ids")
        expect(self.backend_options, Mapping, "backend_options must be a mapping from backend's id to its options")
        for backend, given in self.backend_options.items():
            expect(given, Mapping, f"the options of backend {backend!r} must be a mapping")
