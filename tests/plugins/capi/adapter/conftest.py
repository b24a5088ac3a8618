"""Plug-ins that are opened directly, without a loader, and closed after each test."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

import pytest

from interposer import CreationOptions, Runtime, include
from interposer.plugins.capi.library.library import open_library
from interposer.plugins.capi.running.backend import DynamicBackend
from tests.native import SOURCES, install_plugin


@pytest.fixture
def built(natives, tmp_path):
    """Builds a plug-in of ``tests/plugins/native``, or of a text, in C as a rule, and gives the path of a copy."""
    count = iter(range(100))

    def built(source, *flags, language=""):
        if str(source).endswith(".rs"):
            library = natives.compiled(_rust(source), *flags, language="rust")
        else:
            text = source if "\n" in str(source) else Path(source)
            library = natives.compiled(text, *flags, language=language)
        return install_plugin(library, tmp_path / "direct", f"Tests_Direct{next(count)}_backend.so")

    return built


def _rust(source):
    binding = include.path() / "interposer" / "backend.rs"
    text = (SOURCES / source).read_text(encoding="utf-8").replace("INCLUDE", str(include.path()))
    return f"{text}\n// {hashlib.sha256(binding.read_bytes()).hexdigest()}\n"


@pytest.fixture
def opened(built):
    """Opens a plug-in; keyword arguments are those of `open_library`. Closed at the end."""
    libraries = []

    def opened(source, *flags, language="", **how):
        path = str(built(source, *flags, language=language))
        libraries.append(open_library(ctypes.CDLL(path), path, **how))
        return libraries[-1]

    yield opened
    for library in reversed(libraries):
        library.close()


@pytest.fixture
def backend(opened):
    """Opens a plug-in, and gives it as a backend."""

    def backend(source, *flags, **how):
        return DynamicBackend(opened(source, *flags, **how))

    return backend


@pytest.fixture
def runtime_with():
    """A runtime in which backends are registered under their ids."""
    runtimes = []

    def runtime_with(*backends, **options):
        runtimes.append(Runtime(CreationOptions(**options)))
        for item in backends:
            runtimes[-1].registry.register(item.id, lambda element=item: element)
        return runtimes[-1]

    yield runtime_with
    for runtime in runtimes:
        runtime.close()
