"""Loading of dynamic backends; the loader is imported only if there are folders to search."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from interposer.backend.capabilities import Options
from interposer.core.config import settings
from interposer.plugins.capi.loading.paths import (
    OWN_BACKENDS,
    Folder,
    folders_to_search,
    own_file,
    own_files,
    reason_not_built,
)
from interposer.plugins.registry import BackendRegistry

if TYPE_CHECKING:
    from interposer.plugins.capi.loading.loader import DynamicBackends

__all__ = ["load_dynamic_backends"]


def load_dynamic_backends(
    registry: BackendRegistry,
    *,
    path: str | PathLike[str] | None = None,
    allow_list: str | PathLike[str] | Collection[str] | None = None,
    probe_seconds: float | None = None,
    unload: bool | None = None,
    disabled: Collection[str] = (),
    backend_options: Mapping[str, Options] | None = None,
) -> DynamicBackends | None:
    """Find and register dynamic backends; return None if there are no folders to search.

    Backends of this package that were not built are registered as unavailable, with the reason. An argument of None is
    taken from the environment, or from ``interposer.toml``.

    Args:
        registry: the registry that gets the backends.
        path: a single folder to search instead of the list in ``INTERPOSER_BACKEND_PATH``.
        allow_list: the SHA-256 digests of the files that may be loaded, or the path of a file with them.
        probe_seconds: the time limit for trying out a new shared object in a separate process; 0 skips the trial.
        unload: whether libraries are unloaded from the process when they are no longer used.
        disabled: ids of backends that are not loaded.
        backend_options: the options for ``init`` of the plug-ins, by backend id.

    Raises:
        ConfigError: a setting is invalid, or the list of allowed backends cannot be read.
    """
    folders = folders_to_search(None if path is None else os.fsdecode(path))
    dynamic = None
    if folders or not own_files().keys() <= set(disabled):
        dynamic = _load(registry, folders, allow_list, probe_seconds, unload, disabled, backend_options or {})
    for backend_id in OWN_BACKENDS:
        if backend_id not in registry:
            registry.register_absent(backend_id, reason_not_built(), source=f"shared object {own_file(backend_id)}")
    return dynamic


def _load(
    registry: BackendRegistry,
    folders: Sequence[Folder],
    allow_list: str | PathLike[str] | Collection[str] | None,
    probe_seconds: float | None,
    unload: bool | None,
    disabled: Collection[str],
    backend_options: Mapping[str, Options],
) -> DynamicBackends:
    from interposer.plugins.capi.loading.allow_list import allowed_digests  # noqa: PLC0415 - only where it is needed
    from interposer.plugins.capi.loading.loader import LoadingOptions, load_backends  # noqa: PLC0415

    known_settings = settings()
    allowed = known_settings["backend_allow_list"].read(allow_list)
    seconds = known_settings["probe_seconds"].read(probe_seconds)
    options = LoadingOptions(
        allowed=None if allowed is None else allowed_digests(allowed),
        probe_seconds=LoadingOptions.probe_seconds if seconds is None else seconds,
        unload=bool(known_settings["unload_libraries"].read(unload)),
        disabled=disabled,
        backend_options=backend_options,
    )
    return load_backends(registry, folders, options)
