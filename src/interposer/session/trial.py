"""The main function of the trial process of a plug-in: load it, query it, run small networks and shut it down.

The process reports each step before it begins, because the plug-in may crash the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from interposer.backend import Options
from interposer.core.child_process import Report
from interposer.core.config import BACKEND_PATH, ISOLATE
from interposer.core.errors import InterposerError, OptionError, UnsupportedLayerError
from interposer.core.types import DataLayout, TensorInfo
from interposer.ir.network import Network
from interposer.ops import ActivationFunction
from interposer.optimizer import optimize
from interposer.plugins import BackendRegistry, DeviceSpec, process_registry
from interposer.plugins.capi.abi.calls import watch_calls
from interposer.plugins.capi.library.library import Library, identify, open_library
from interposer.plugins.capi.loading.open_libraries import host_settings, step_error
from interposer.plugins.capi.loading.paths import own_files
from interposer.plugins.capi.loading.records import Step, StepError
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.runtime import CreationOptions, Runtime

__all__ = ["main"]


def main(
    report: Report, library: str, opened_as: str, options: Mapping[str, Options], *, only_id: bool = False
) -> None:
    """Try out a shared object with a backend in this child process, and send the results to the parent.

    Args:
        report: sends the messages: each step before it begins, the backend's id, and why a step failed.
        library: the path of the shared object, for messages.
        opened_as: the path to open, which refers to the file that was checked.
        options: the options by backend id.
        only_id: whether to stop once the backend's id is known.
    """
    os.environ.update({BACKEND_PATH: "", ISOLATE: ""})  # no other file is loaded or tried out from this process
    watch_calls(lambda name: report.send(doing=f"in {name}"))
    process_registry()
    report.send(ready=True, doing="while it is loaded")
    try:
        _try(report, library, opened_as, options, only_id=only_id)
    except StepError as error:
        report.send(failed=error.step.value, reason=error.reason, state=error.state.value)
    except OptionError as error:
        report.send(option_problem=str(error))
    report.send(doing="while its process ends")


def _try(report: Report, path: str, opened_as: str, options: Mapping[str, Options], *, only_id: bool) -> None:
    try:
        opened = ctypes.CDLL(opened_as, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise StepError(Step.OPEN, f"the dynamic linker refuses it: {str(error).replace(opened_as, path)}") from error
    try:
        identity = identify(opened, path)
        report.send(id=identity.id, version=identity.version)
        if only_id:
            report.send(done=True)
            return
        library = open_library(
            opened, path, settings=host_settings(path), options=options.get(identity.id, {}), checking=True
        )
    except OptionError:
        raise
    except InterposerError as error:
        raise step_error(error) from error
    try:
        run_small_networks(library)
    except InterposerError as error:
        raise StepError(Step.PROBE, f"a small network does not run: {error}") from error
    library.close()
    report.send(done=True, files=sorted(_libraries() - {os.path.realpath(path), os.path.realpath(opened_as)}))


def _libraries() -> set[str]:
    """Return the paths of the executable files that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    return {
        path_fields[0]
        for _, rights, _, _, _, *path_fields in fields
        if "x" in rights and path_fields and path_fields[0].startswith("/")
    }


def run_small_networks(library: Library) -> None:
    """Run the supported layers of a small network on the backend of a library, together and one by one.

    Raises:
        InterposerError: the backend violated the interface, or failed to run a layer that it declared as supported.
    """
    backend = DynamicBackend(library)
    process_backends = process_registry()
    registry = BackendRegistry(process_backends, disabled=[backend.id] if backend.id in process_backends else [])
    registry.register(backend.id, lambda: backend)
    with _runtime_without_files() as runtime:
        for network in _networks():
            try:
                optimized = optimize(network, [backend.id], DeviceSpec(registry))
            except UnsupportedLayerError:
                continue  # a backend need not support these layers
            _run(runtime, runtime.load_network(optimized))


def _runtime_without_files() -> Runtime:
    """Create a runtime that opens no shared object.

    The file under trial may be one that a runtime finds by itself, such as the package's own. This process has already
    initialized the file, and a plug-in must not be initialized twice in one process.
    """
    return Runtime(CreationOptions(disabled_backends=tuple(own_files()), isolate=()))


def _run(runtime: Runtime, network_id: int) -> None:
    inputs = runtime.bindings(network_id).inputs
    runtime.enqueue_workload(network_id, {key: np.ones((1, 4, 4, 2), np.float32) for key in inputs})
    runtime.unload_network(network_id)


def _networks() -> Iterator[Network]:
    for layers in ("convolution sum relu", "convolution", "sum", "relu"):
        yield _network(layers.split())


def _network(layers: list[str]) -> Network:
    network = Network("trial")
    x = network.add_input_layer(0, TensorInfo((1, 4, 4, 2)), name="x")
    for layer in layers:
        if layer == "convolution":
            weights = network.add_constant_layer(np.ones((2, 3, 3, 2), np.float32), name="weights")
            x = network.add_convolution2d_layer(x, weights, data_layout=DataLayout.NHWC, name=layer)
        elif layer == "sum":
            x = network.add_addition_layer(x, x, name=layer)
        else:
            x = network.add_activation_layer(x, function=ActivationFunction.RELU, name=layer)
    network.add_output_layer(0, x, name="y")
    return network
