"""The environment that a plan depends on: the backends with their versions, and the machine."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from interposer._version import __version__
from interposer.backend import Backend
from interposer.core.config import thread_budget
from interposer.runtime import Runtime

__all__ = ["identity_of", "made_with"]

_log: Final = logging.getLogger("interposer.session")


def made_with(runtime: Runtime, ids: Iterable[str]) -> dict[str, Any]:
    """Return what a plan for backends with these ids depends on, as JSON values.

    These are versions, the machine, and numbers of threads.
    """
    versions = {record.id: record.version for record in runtime.registry.records()}
    return {
        "interposer": __version__,
        "machine": f"{platform.machine()} {_processor()}".strip(),
        "threads": thread_budget(runtime.options.num_threads),
        "versions": {backend: versions.get(backend, "") for backend in ids},
        "builds": {backend: build for backend in ids if (build := _build(runtime, backend))},
    }


def _build(runtime: Runtime, backend: str) -> str:
    """Return a text that distinguishes builds of a backend with equal versions; empty if it is not available."""
    registry = runtime.registry
    if not registry.is_registered(backend) or registry.reason_absent(backend) is not None:
        return ""
    return identity_of(registry.get(backend))


def identity_of(backend: Backend) -> str:
    """Return the identity of a backend; an empty text if it fails to return a text."""
    identity: object = ""
    try:
        identity = backend.identity
    except Exception as error:
        _log.info("what backend %r compiles is not cached: %s", backend.id, error)
    if isinstance(identity, str):
        return identity
    _log.info("what backend %r compiles is not cached: its identity is %r; expected a text", backend.id, identity)
    return ""


@cache
def _processor() -> str:
    """Return the model name of the processor from /proc/cpuinfo, or whatever `platform.processor` returns."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model", "cpu model")))
    return next(names, "") or platform.processor()
