"""The engines that are tried where they are installed, and runtimes that have them whatever was installed when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import interposer as ip
from interposer.plugins import BackendRegistry
from interposer.plugins.registry import process_registry

PLACES = {
    "LiteRt": "litert:LiteRt",
    "OnnxRuntime": "onnxruntime:OnnxRuntime",
    "OpenVino": "openvino:OpenVino",
    "Torch": "torch:Torch",
}
"""Modules in `interposer.backends.engines`, and classes."""


def engine_class(name: str) -> type:
    module, _, kind = PLACES[name].partition(":")
    result: type = getattr(import_module(f"interposer.backends.engines.{module}"), kind)
    return result


def installed() -> list[str]:
    """The engines whose packages are there."""
    return [name for name in PLACES if engine_class(name).unavailable() is None]


@contextmanager
def runtime_with_engines() -> Iterator[ip.Runtime]:
    """A runtime that knows all engines, also where this package was installed before it had them."""
    with ip.Runtime() as runtime:
        add_engines(runtime.registry)
        yield runtime


def add_engines(registry: BackendRegistry) -> None:
    """Register the engines that no entry point names."""
    for name in PLACES:
        if name not in process_registry():
            registry.register(name, engine_class(name))
