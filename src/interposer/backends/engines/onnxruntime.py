"""OnnxRuntime: ONNX Runtime with any of its execution providers.

Subgraphs are written as ONNX models. With the CPU provider, large weights stay in the network's memory, and inputs and
outputs in the caller's memory. Other providers copy the data to their device.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend import BackendId, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Executable, RefusedError, shortened
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.backends.engines.models import OnnxPart, onnx_part, onnx_reasons
from interposer.backends.engines.onnxruntime_profiles import MeasuredSession
from interposer.backends.engines.onnxruntime_rules import RULES
from interposer.backends.engines.profiles import EngineStep
from interposer.core.errors import UnwritableError, did_you_mean
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer

__all__ = ["OnnxRuntime"]

_ON_PROCESSOR: Final = "CPUExecutionProvider"
_OPTIONS: Final = (
    Option("threads", 0, "threads for one subgraph; 0 for the thread budget", most=MOST_THREADS),
    Option(
        "provider", _ON_PROCESSOR, "the execution provider; the CPU provider runs the layers that it does not support"
    ),
    Option("graph_optimization", "all", "the level of graph optimization", ("all", "extended", "basic", "disabled")),
    Option("exact", False, "round quantized layers exactly as the reference does, which is slower than QDQ"),
    Option("spinning", True, "idle threads spin before they sleep, which reduces latency and takes power"),
    Option("layer_times", True, "create the session again for each recording, to measure its layers"),
)
_TYPES: Final = frozenset(dtype for dtype in DataType if dtype is DataType.BOOL or dtype.bits >= 8)
_PREFIX: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : ")
_SILENT: Final = 4
"""The log severity of fatal messages; other errors are raised as exceptions."""


class OnnxRuntime(Engine):
    """A backend that runs subgraphs with ONNX Runtime."""

    id: ClassVar = BackendId("OnnxRuntime")
    packages: ClassVar = ("onnxruntime", "onnx")
    extra: ClassVar = "onnxruntime"
    options: ClassVar = _OPTIONS
    types: ClassVar = _TYPES
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True, HasFp16=True)

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons against a layer.

        They are a missing provider, what ONNX cannot express, or known defects of ONNX Runtime.
        """
        absent = _unknown_provider(options["provider"])
        return absent or onnx_reasons(layer, exact=options["exact"]) or RULES.reasons(layer)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return an ONNX Runtime session for the subgraph; raise `RefusedError` if it cannot be created."""
        try:
            part = onnx_part(view, exact=options["exact"])
        except UnwritableError as error:
            raise RefusedError(str(error)) from error
        return _Session(part, options)


def _unknown_provider(name: str) -> list[str]:
    import onnxruntime  # noqa: PLC0415 - optional, and slow to import

    known = onnxruntime.get_available_providers()
    near = did_you_mean(name, known)
    return [] if name in known else [f"ONNX Runtime here has no {name!r}{near} (it has {', '.join(known)})"]


class _Session(Executable):
    """An ONNX Runtime session of a compiled subgraph, with a `_Binding` of arrays for each concurrent run."""

    def __init__(self, part: OnnxPart, options: dict[str, Any], profile: str = "") -> None:
        import onnxruntime  # noqa: PLC0415

        self._part, self._options = part, options
        self._measured: MeasuredSession[_Session] | None = None
        self._turn = threading.Lock()
        self.inputs = _signature(part.model.graph.input)
        self.outputs = _signature(part.model.graph.output)
        settings = _settings(onnxruntime, options)
        if profile:
            settings.enable_profiling, settings.profile_file_prefix = True, profile
        providers = list(dict.fromkeys([options["provider"], _ON_PROCESSOR]))
        try:
            constants = {name: _shared(onnxruntime, part.model, name, array) for name, array in part.constants.items()}
            settings.add_external_initializers(list(constants), list(constants.values()))
            self.session = onnxruntime.InferenceSession(part.model.SerializeToString(), settings, providers=providers)
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise RefusedError(f"ONNX Runtime refuses it: {shortened(_text(error))}") from error
        self._values = constants
        self.copies = (
            options["provider"] != _ON_PROCESSOR
        )  # a binding copies the inputs to the device when it is created
        self.constants = tuple(part.constants.values())
        self._free: deque[_Binding] = deque()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model on the memory of `inputs` and `outputs`, without copies if the provider allows it."""
        try:
            binding = self._free.pop()
        except IndexError:
            binding = _Binding(self)
        binding.run(inputs, outputs)
        self._free.append(binding)

    def run_measured(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[EngineStep]:
        """Run the model as `run` does, in a session that measures its nodes until `end_measuring`."""
        if not self._options["layer_times"]:
            return super().run_measured(inputs, outputs)
        with self._turn:
            if self._measured is None:
                self._measured = MeasuredSession(lambda prefix: _Session(self._part, self._options, prefix))
            measured = self._measured
        measured.run(inputs, outputs)
        return ()

    def end_measuring(self) -> Sequence[EngineStep]:
        """Return the nodes that ran since recording began, and end the session that measured them."""
        with self._turn:
            measured, self._measured = self._measured, None
        return () if measured is None else measured.end()


class _Binding:
    """The arrays that a session uses as inputs and outputs in one run at a time.

    An array at the same address as in the last run is not bound again.
    """

    def __init__(self, owner: _Session) -> None:
        self.session = owner.session
        self.binding = owner.session.io_binding()
        self.inputs, self.outputs = owner.inputs, owner.outputs
        self.places = [-1] * (len(self.inputs) + len(self.outputs))
        self.copies = owner.copies

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        places = [array.__array_interface__["data"][0] for array in (*inputs, *outputs)]
        if self.copies or places != self.places:
            self._bind(places)
        self.session.run_with_iobinding(self.binding)

    def _bind(self, places: list[int]) -> None:
        self.places = [-1] * len(places)  # invalid until all arrays are bound
        bind = self.binding
        for (name, code, shape), place in zip(self.inputs, places[: len(self.inputs)], strict=True):
            bind.bind_input(name, "cpu", 0, code, shape, place)
        for (name, code, shape), place in zip(self.outputs, places[len(self.inputs) :], strict=True):
            bind.bind_output(name, "cpu", 0, code, shape, place)
        self.places = places


def _signature(values: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the name, the ONNX element type and the shape of each input or output (`ValueInfoProto`) of a model."""
    types = ((value.name, value.type.tensor_type) for value in values)
    return [(name, kind.elem_type, tuple(dim.dim_value for dim in kind.shape.dim)) for name, kind in types]


def _settings(package: Any, options: dict[str, Any]) -> Any:
    session_options = package.SessionOptions()
    session_options.log_severity_level = _SILENT
    session_options.intra_op_num_threads = options["threads"] or thread_budget()
    session_options.inter_op_num_threads = 1
    levels = package.GraphOptimizationLevel
    session_options.graph_optimization_level = getattr(levels, f"ORT_{_LEVELS[options['graph_optimization']]}")
    session_options.add_session_config_entry("session.intra_op.allow_spinning", str(int(options["spinning"])))
    return session_options


_LEVELS: Final = {
    "all": "ENABLE_ALL",
    "extended": "ENABLE_EXTENDED",
    "basic": "ENABLE_BASIC",
    "disabled": "DISABLE_ALL",
}


def _shared(package: Any, model: Any, name: str, array: Array) -> Any:
    """Return a constant as an `OrtValue` that shares the array's memory if the array is contiguous.

    `package` is the module ``onnxruntime``; `name` is the constant's name in `model`, where its ONNX type is declared.
    """
    whole = np.ascontiguousarray(array)
    code = next(item.data_type for item in model.graph.initializer if item.name == name)
    if whole.dtype.kind in "iufb":
        return package.OrtValue.ortvalue_from_numpy(whole)
    return package.OrtValue.ortvalue_from_numpy_with_onnx_type(whole, code)


def _text(error: Exception) -> str:
    return _PREFIX.sub("", str(error)).strip()
