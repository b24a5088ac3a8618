"""All options of Interposer, read from the code: signatures, data classes, parsers, settings and schemas."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import interposer as ip
from interposer.analysis import bench, compare
from interposer.backends.engines.engine_options import Option
from interposer.batch import Predictor
from interposer.cli.main import COMMANDS
from interposer.core import config
from interposer.serving import folder, triton_config
from interposer.serving.options import ServeOptions

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "load": ip.load, "optimize": ip.optimize, "quantize": ip.quantize, "profile": ip.profile, "bench": bench.bench,
    "compare": compare.compare, "Predictor": Predictor,
}  # fmt: skip
"""The functions whose arguments are options."""
ENGINES: Final = ("onnxruntime", "litert", "openvino", "torch.backend")
"""The modules of the engine adapters that declare options."""
CLASSES: Final = (ip.Model, ip.Runtime)
"""The classes whose methods have options as arguments."""
DATA_CLASSES: Final = (
    ip.CreationOptions, ip.OptimizerOptions, ip.Isolation, ip.Limits, ip.Search, ip.MemoryDescriptor,
    ip.ExternalProfilingOptions, ServeOptions, folder.ModelSettings,
)  # fmt: skip
"""The classes whose fields are options."""


SUBJECTS: Final = {
    "network", "source", "path", "network_id", "binding_id", "ids", "kind", "call", "callback", "optimized", "fd",
    "working_mem_handle", "inputs", "outputs", "values", "imported_inputs", "imported_outputs", "needed",
}  # fmt: skip
"""Arguments that say what a call is about, and not how it is done. `load` cuts networks at its inputs and outputs."""


def options() -> Iterator[tuple[str, str]]:
    """Yield every option, as where it is given and its name."""
    yield from (("load", name) for name in ("inputs", "outputs", "values"))
    for name, function in FUNCTIONS.items():
        yield from ((name, parameter) for parameter in _parameters(function))
    for owner in CLASSES:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                yield from ((f"{owner.__name__}.{name}", parameter) for parameter in _parameters(method))
    for data_class in DATA_CLASSES:
        yield from ((data_class.__name__, field.name) for field in dataclasses.fields(data_class) if field.name != "fd")
    for command in COMMANDS:
        yield from ((f"interposer {command}", name) for name in _arguments(command))
    yield from (("interposer.toml", key) for key in config.settings())
    yield from (("environment", value) for value in _variables())
    yield from (("MODEL.toml", key) for key in folder._KEYS)
    yield from (("config.pbtxt", field) for field in sorted(_fields_of_triton()))
    yield from _options_of_backends()


def _parameters(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return [name for name in named if name not in {"self", "cls"} | SUBJECTS]


def _arguments(command: str) -> Iterator[str]:
    parser = argparse.ArgumentParser()
    import_module(f"interposer.cli.{command.replace('-', '_')}").configure(parser)
    for action in parser._actions:
        if action.dest != "help" and action.option_strings:
            yield action.option_strings[-1]


def _variables() -> list[str]:
    return [value for name, value in vars(config).items() if name[0] != "_" and str(value).startswith("INTERPOSER_")]


def _fields_of_triton() -> set[str]:
    batching = {triton_config._DELAY, triton_config._LEVELS} | triton_config._IGNORED_OF_BATCHING
    fields = triton_config._READ | triton_config._OF_THE_FILE | triton_config._IGNORED
    return fields | {f"dynamic_batching.{name}" for name in batching}


def _options_of_backends() -> Iterator[tuple[str, str]]:
    for engine in ENGINES:
        module = import_module(f"interposer.backends.engines.{engine}")
        for declared in vars(module).values():
            if isinstance(declared, tuple) and declared and all(isinstance(option, Option) for option in declared):
                yield from ((f"backend {engine.partition('.')[0]}", option.name) for option in declared)
    with ip.Runtime() as runtime:
        if runtime.registry.reason_absent("CpuAcc") is None:
            cpuacc: Any = runtime.registry.get("CpuAcc")
            yield from (("backend CpuAcc", option.name) for option in cpuacc.declared_options)
