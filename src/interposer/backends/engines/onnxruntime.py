"""OnnxRuntime: ONNX Runtime with any of its execution providers.

Subgraphs are written as ONNX models. With the CPU provider, large weights stay in the network's memory, and inputs and
outputs in the caller's memory. Other providers copy the data to their device.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from interposer.backend import BackendId, Options, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Examples, Executable, RefusedError, processor, shortened
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.backends.engines.models import OnnxPart, onnx_part, onnx_reasons
from interposer.backends.engines.onnxruntime_profiles import MeasuredSession
from interposer.backends.engines.onnxruntime_providers import provider_remark, record_providers
from interposer.backends.engines.onnxruntime_rules import RULES
from interposer.backends.engines.profiles import EngineStep
from interposer.core.errors import UnwritableError, did_you_mean
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer
from interposer.ops.embedding import EmbeddingLookup

__all__ = ["OnnxRuntime"]

_ON_PROCESSOR: Final = "CPUExecutionProvider"
_DISABLED_OPTIMIZERS: Final = ["WeightBiasQuantization"]
"""Optimizers that change results: this one rounds float weights and biases of layers between quantized ones."""
_FLOAT32_PRODUCTS: Final = "1"
"""Products with dequantized weights are computed in float32; by default, their operands are rounded to 8 bits."""
_OPTIONS: Final = (
    Option("threads", 0, "threads for one subgraph; 0 for the thread budget", most=MOST_THREADS),
    Option(
        "provider", _ON_PROCESSOR, "the execution provider; the CPU provider runs the layers that it does not support"
    ),
    Option("device_number", 0, "the number of the provider's device, such as that of a CUDA device"),
    Option("graph_optimization", "all", "the level of graph optimization", ("all", "extended", "basic", "disabled")),
    Option("exact", False, "round quantized layers exactly as the reference does, which is slower than QDQ"),
    Option("spinning", True, "idle threads spin before they sleep, which reduces latency and takes power"),
    Option("layer_times", True, "create the session again for each recording, to measure its layers"),
)
_SHORT_NAMES: Final = {
    "cpu": _ON_PROCESSOR, "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider", "migraphx": "MIGraphXExecutionProvider", "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider", "webgpu": "WebGpuExecutionProvider",
}  # fmt: skip
"""The execution providers of the devices that users name in an address, such as ``"OnnxRuntime:cuda"``."""
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
    unchecked: ClassVar = (EmbeddingLookup,)
    types: ClassVar = _TYPES
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True, HasFp16=True)

    def device_options(self, name: str) -> Options:
        """Return the options for a device: the name of a provider, or a short one, and a number, as in cuda:1."""
        provider, _, number = name.partition(":")
        provider = _SHORT_NAMES.get(provider.lower(), provider)
        for reason in _unknown_provider(provider):
            raise RefusedError(reason)
        if number and not (number.isascii() and number.isdecimal()):
            raise RefusedError(f"the number of a device is {number!r}; expected one such as 1, as in cuda:1")
        return {"provider": provider, "device_number": int(number or 0)}

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons against a layer.

        They are a missing provider, what ONNX cannot express, or known defects of ONNX Runtime.
        """
        provider_refusals = _unknown_provider(options["provider"])
        return provider_refusals or onnx_reasons(layer, exact=options["exact"]) or RULES.reasons(layer)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return an ONNX Runtime session for the subgraph; raise `RefusedError` if it cannot be created."""
        try:
            part = onnx_part(view, exact=options["exact"])
        except UnwritableError as error:
            raise RefusedError(str(error)) from error
        session = _Session.of(part, options)
        if options["provider"] != _ON_PROCESSOR:
            remark = provider_remark(session.session, options["provider"], [layer.name for layer in view])
            session.remarks = [remark] if remark else []
        return session

    def exports_for(self, options: dict[str, Any]) -> str:
        """Return the processor, for which ONNX Runtime can write optimized models."""
        return processor() if options["provider"] == _ON_PROCESSOR else ""

    def imported(self, pieces: Sequence[bytes | memoryview], options: dict[str, Any]) -> Executable:
        """Return a session of an optimized model.

        Raises:
            RefusedError: ONNX Runtime cannot read it.
        """
        if len(pieces) != 2:
            raise RefusedError(f"a model of ONNX Runtime has {len(pieces)} pieces; expected its border and the model")
        try:
            inputs, outputs = ([_Port(*fields) for fields in rows] for rows in json.loads(bytes(pieces[0])))
        except (TypeError, ValueError) as error:
            raise RefusedError(f"the border of the model is damaged: {error}") from error
        return _Session(bytes(pieces[1]), inputs, outputs, options | {"graph_optimization": "disabled"})


@cache
def _package() -> Any:
    """Return the package onnxruntime; its telemetry is off, unless the user has set the environment variable for it."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415 - optional, and slow to import

    return onnxruntime


def _unknown_provider(name: str) -> list[str]:
    available_providers = _package().get_available_providers()
    hint = did_you_mean(name, available_providers)
    return (
        []
        if name in available_providers
        else [f"ONNX Runtime here has no {name!r}{hint} (it has {', '.join(available_providers)})"]
    )


class _Session(Executable):
    """An ONNX Runtime session of a compiled subgraph, with a `_Binding` of arrays for each concurrent run."""

    def __init__(
        self,
        model: bytes,
        inputs: Sequence[_Port],
        outputs: Sequence[_Port],
        options: dict[str, Any],
        constants: Mapping[str, Array] | None = None,
        values: Mapping[str, Any] | None = None,
        profile: str = "",
    ) -> None:
        """Create a session of a model; `constants` are its external data by name, and `values` the same for a session.

        `profile` is the beginning of the name of the file to which the session writes its measurements; empty for none.

        Raises:
            RefusedError: ONNX Runtime refuses the model.
        """
        self._model, self.inputs, self.outputs, self._options = model, inputs, outputs, options
        self._measuring_session: MeasuredSession[_Session] | None = None
        self._measure_lock = threading.Lock()
        self._constants, self._values = dict(constants or {}), dict(values or {})
        settings = _settings(options)
        if profile:
            settings.enable_profiling, settings.profile_file_prefix = True, profile
        try:
            self.session = self._new_session(settings)
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise RefusedError(f"ONNX Runtime refuses it: {shortened(_text(error))}") from error
        self.copies = (
            options["provider"] != _ON_PROCESSOR
        )  # a binding copies the inputs to the device when it is created
        self.constants = tuple(self._constants.values())
        self._free_bindings: deque[_Binding] = deque()

    @classmethod
    def of(cls, part: OnnxPart, options: dict[str, Any]) -> _Session:
        """Return a session of a subgraph's model, which shares the memory of its large constants."""
        model, constants = part.model, part.constants
        try:
            values = {name: _shared(model, name, array) for name, array in constants.items()}
        except Exception as error:  # ONNX Runtime's exceptions have no common base class
            raise RefusedError(f"ONNX Runtime refuses it: {shortened(_text(error))}") from error
        inputs, outputs = _signature(model.graph.input), _signature(model.graph.output)
        return cls(model.SerializeToString(), inputs, outputs, options, constants, values)

    def _new_session(self, settings: Any) -> Any:
        settings.add_external_initializers(list(self._values), list(self._values.values()))
        provider, number = self._options["provider"], self._options["device_number"]
        own_provider = (provider, {"device_id": str(number)}) if number else provider
        providers = [own_provider, _ON_PROCESSOR] if provider != _ON_PROCESSOR else [provider]
        return _package().InferenceSession(
            self._model, settings, providers=providers, disabled_optimizers=_DISABLED_OPTIMIZERS
        )

    def exported(self) -> Sequence[bytes] | None:
        """Return the inputs and outputs of the model, and the optimized model; None if it cannot be written."""
        with tempfile.TemporaryDirectory(prefix="interposer-onnxruntime-") as folder:
            settings = _settings(self._options)
            settings.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
            try:
                self._new_session(settings)
                content = Path(settings.optimized_model_filepath).read_bytes()
            except Exception:  # ONNX Runtime's exceptions have no common base class
                return None
        return json.dumps([self.inputs, self.outputs]).encode(), content

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model on the memory of `inputs` and `outputs`, without copies if the provider allows it."""
        try:
            binding = self._free_bindings.pop()
        except IndexError:
            binding = _Binding(self)
        binding.run(inputs, outputs)
        self._free_bindings.append(binding)

    def run_measured(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[EngineStep]:
        """Run the model as `run` does, in a session that measures its nodes until `end_measuring`."""
        if not self._options["layer_times"]:
            return super().run_measured(inputs, outputs)
        measuring = self._begun()
        (self if measuring.is_full else measuring).run(inputs, outputs)
        return ()

    def begin_measuring(self, examples: Examples) -> None:
        """Create the session that measures its nodes, if `layer_times` is True, and run it once."""
        if self._options["layer_times"] and self._measuring_session is None:
            self._begun().warm_up(*examples())

    def _begun(self) -> MeasuredSession[_Session]:
        with self._measure_lock:
            if self._measuring_session is None:
                self._measuring_session = self._new_measuring_session()
            return self._measuring_session

    def _new_measuring_session(self) -> MeasuredSession[_Session]:
        try:
            return MeasuredSession(self._measuring)
        except OSError as error:
            raise RefusedError(f"there is no folder for the profile of ONNX Runtime: {error}") from error

    def _measuring(self, prefix: str) -> _Session:
        """Return a session of the same model that measures its nodes."""
        return _Session(self._model, self.inputs, self.outputs, self._options, self._constants, self._values, prefix)

    @property
    def is_measuring(self) -> bool:
        """True while a session measures the nodes."""
        return self._measuring_session is not None

    def end_measuring(self) -> Sequence[EngineStep]:
        """Return the nodes that ran since recording began, and end the session that measured them."""
        with self._measure_lock:
            ended_session, self._measuring_session = self._measuring_session, None
        return () if ended_session is None else ended_session.end()


class _Binding:
    """The arrays that a session uses as inputs and outputs in one run at a time.

    An array at the same address as in the last run is not bound again.
    """

    def __init__(self, owner: _Session) -> None:
        self.session = owner.session
        self.binding = owner.session.io_binding()
        self.inputs, self.outputs = owner.inputs, owner.outputs
        self.addresses = [-1] * (len(self.inputs) + len(self.outputs))
        self.copies = owner.copies

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        addresses = [array.__array_interface__["data"][0] for array in (*inputs, *outputs)]
        if self.copies or addresses != self.addresses:
            self._bind(addresses)
        self.session.run_with_iobinding(self.binding)

    def _bind(self, addresses: list[int]) -> None:
        self.addresses = [-1] * len(addresses)  # invalid until all arrays are bound
        io_binding = self.binding
        for (name, code, shape), address in zip(self.inputs, addresses[: len(self.inputs)], strict=True):
            io_binding.bind_input(name, "cpu", 0, code, shape, address)
        for (name, code, shape), address in zip(self.outputs, addresses[len(self.inputs) :], strict=True):
            io_binding.bind_output(name, "cpu", 0, code, shape, address)
        self.addresses = addresses


class _Port(NamedTuple):
    """An input or output of a model: its name, its ONNX element type and its shape."""

    name: str
    code: int
    shape: Sequence[int]


def _signature(values: Any) -> list[_Port]:
    """Return the inputs or outputs of a model from their descriptions (`ValueInfoProto`)."""
    types = ((value.name, value.type.tensor_type) for value in values)
    return [
        _Port(name, tensor_type.elem_type, tuple(dim.dim_value for dim in tensor_type.shape.dim))
        for name, tensor_type in types
    ]


def _settings(options: dict[str, Any]) -> Any:
    session_options = _package().SessionOptions()
    session_options.log_severity_level = _SILENT
    session_options.intra_op_num_threads = options["threads"] or thread_budget()
    session_options.inter_op_num_threads = 1
    if options["provider"] != _ON_PROCESSOR:
        record_providers(session_options)
    levels = _package().GraphOptimizationLevel
    session_options.graph_optimization_level = getattr(levels, f"ORT_{_LEVELS[options['graph_optimization']]}")
    session_options.add_session_config_entry("session.intra_op.allow_spinning", str(int(options["spinning"])))
    session_options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", _FLOAT32_PRODUCTS)
    return session_options


_LEVELS: Final = {
    "all": "ENABLE_ALL",
    "extended": "ENABLE_EXTENDED",
    "basic": "ENABLE_BASIC",
    "disabled": "DISABLE_ALL",
}


def _shared(model: Any, name: str, array: Array) -> Any:
    """Return a constant as an `OrtValue` that shares the array's memory if the array is contiguous.

    `name` is the constant's name in `model`, where its ONNX type is declared.
    """
    contiguous_array = np.ascontiguousarray(array)
    code = next(tensor.data_type for tensor in model.graph.initializer if tensor.name == name)
    if contiguous_array.dtype.kind in "iufb":
        return _package().OrtValue.ortvalue_from_numpy(contiguous_array)
    return _package().OrtValue.ortvalue_from_numpy_with_onnx_type(contiguous_array, code)


def _text(error: Exception) -> str:
    return _PREFIX.sub("", str(error)).strip()
