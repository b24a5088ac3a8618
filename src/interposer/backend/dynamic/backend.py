"""`DynamicBackend`: an opened plug-in as a `Backend` like any other."""

from __future__ import annotations

from interposer.backend.base import Backend
from interposer.backend.dynamic.library import Library

__all__ = ["DynamicBackend"]


class DynamicBackend(Backend):
    """The backend behind a plug-in's table. Thread safe; works until the library is closed."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.id = library.id  # type: ignore[misc] # of one instance, as every library brings its own
        self.version = library.info.version  # type: ignore[misc]
        self.api_version = (library.identity.major, library.identity.minor)  # type: ignore[misc]
        self.capabilities = library.info.named_capabilities()  # type: ignore[misc]
