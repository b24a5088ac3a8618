"""OpenVino: OpenVINO on any of its devices.

A layer that stands for a network in OpenVINO's IR is compiled as it is in the file. Other subgraphs are written as ONNX
models, which OpenVINO reads. Large weights stay in the network's memory until a device repacks them. Inputs and outputs
stay in the caller's memory.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from time import perf_counter_ns
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend import BackendId, Options, SubgraphView, thread_budget
from interposer.backends.engines import openvino_ir
from interposer.backends.engines.engine import Engine, Examples, Executable, RefusedError, processor
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.backends.engines.memory import shareable
from interposer.backends.engines.models import OnnxPart, constants_as_inputs, onnx_part, onnx_reasons
from interposer.backends.engines.openvino_rules import RULES
from interposer.backends.engines.profiles import EngineStep, in_turn
from interposer.core.errors import UnwritableError, did_you_mean
from interposer.core.schema import Op
from interposer.core.telemetry import without_openvino_telemetry
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer

__all__ = ["OpenVino"]

_OPTIONS: Final = (
    Option("threads", 0, "threads for one subgraph on the CPU; 0 for the thread budget", most=MOST_THREADS),
    Option("device", "CPU", "the device: CPU, GPU, NPU, GPU.1, AUTO:GPU,CPU ..."),
    Option("precision", "f32", "the data type in which floats may be computed", ("f32", "f16", "bf16")),
    Option("hint", "LATENCY", "the goal of optimization", ("LATENCY", "THROUGHPUT")),
    Option("exact", False, "round quantized layers exactly as the reference does, which is slower than QDQ"),
    Option("layer_times", True, "compile the subgraph again in the first recorded run, to measure its layers"),
)
_TYPES: Final = frozenset(
    DataType.of(name) for name in ("float32", "float16", "int32", "int64", "int16", "uint16", "int8", "uint8", "bool")
)
_OPSET: Final = 20
"""The newest opset that OpenVINO's ONNX front end supports."""


class OpenVino(Engine):
    """A backend that runs subgraphs with OpenVINO."""

    id: ClassVar = BackendId("OpenVino")
    packages: ClassVar = ("openvino", "onnx")
    extra: ClassVar = "openvino"
    options: ClassVar = _OPTIONS
    unchecked: ClassVar = (Op,)
    types: ClassVar = _TYPES
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True, HasFp16=True)

    def device_options(self, name: str) -> Options:
        """Return the options for one of OpenVINO's devices, in letters of either case: CPU, GPU.1, NPU ..."""
        for reason in _unknown_device(name.upper()):
            raise RefusedError(reason)
        return {"device": name.upper()}

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons against a layer.

        They are a missing device, known defects of OpenVINO, or what ONNX cannot express.
        """
        if openvino_ir.is_network(layer):
            return _unknown_device(options["device"])
        known_refusals = _unknown_device(options["device"]) or RULES.reasons(layer)
        return known_refusals or onnx_reasons(layer, exact=options["exact"], opset=_OPSET)

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Ask the device whether it supports every operator of the converted layers.

        Raise `RefusedError` if it does not. Virtual devices, which do not answer this, compile the layers instead.
        """
        if _is_virtual(options["device"]):
            self.compile(view, options)
            return
        model = _network_of(view) or _read(_onnx_part(view, options))
        with _refusing("does not take it"):
            supported_names = _core().query_model(model, options["device"])
        type_of_operator = {operator.get_friendly_name(): operator.get_type_name() for operator in model.get_ops()}
        unsupported_types = sorted(
            {kind for name, kind in type_of_operator.items() if name not in supported_names and kind not in _BORDER}
        )
        if unsupported_types:
            raise RefusedError(f"OpenVINO's device {options['device']} does not take {', '.join(unsupported_types)}")

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return the subgraph's model, compiled for the device.

        Raise `RefusedError` if OpenVINO or ONNX cannot express it.
        """
        network = _network_of(view)
        if network is not None:
            positions = openvino_ir.positions(view)
            return _Compiled(
                lambda properties: _compiled_model(network, options, properties), lambda model: positions, options
            )
        part = _onnx_part(view, options)
        constants = tuple(part.constants.values())
        return _Compiled(
            lambda properties: _compiled(part, options, properties),
            partial(_input_positions, part.inputs),
            options,
            constants,
        )

    def exports_for(self, options: dict[str, Any]) -> str:
        """Return the processor and the device, whose compiled models OpenVINO can export."""
        return "" if _is_virtual(options["device"]) else f"{options['device']} of {processor()}"

    def imported(self, pieces: Sequence[bytes | memoryview], options: dict[str, Any]) -> Executable:
        """Return the model that `export_model` has written.

        Raises:
            RefusedError: OpenVINO cannot read it.
        """
        if len(pieces) != 2:
            raise RefusedError(f"a model of OpenVINO has {len(pieces)} pieces; expected its inputs and the model")
        with _refusing("cannot read the compiled model"):
            positions = json.loads(bytes(pieces[0]))
            return _Compiled(
                lambda properties: _imported(pieces[1], options, properties), lambda model: positions, options
            )


def _is_virtual(device: str) -> bool:
    """Return True for a virtual device such as AUTO, which combines other devices and answers no operator queries."""
    return device.partition(":")[0] in ("AUTO", "MULTI", "HETERO", "BATCH")


_BORDER: Final = frozenset({"Parameter", "Constant", "Result"})


@cache
def _core() -> Any:
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - optional, and slow to import

    return openvino.Core()


def _unknown_device(name: str) -> list[str]:
    available_devices = _core().available_devices
    device_family = name.partition(":")[0].partition(".")[0]
    if _is_virtual(name) or any(device.partition(".")[0] == device_family for device in available_devices):
        return []
    return [
        f"OpenVINO finds no device {name!r}{did_you_mean(name, available_devices)} "
        f"(it finds {', '.join(available_devices)})"
    ]


def _onnx_part(view: SubgraphView, options: dict[str, Any]) -> OnnxPart:
    try:
        return onnx_part(view, exact=options["exact"], opset=_OPSET)
    except UnwritableError as error:
        raise RefusedError(str(error)) from error


class _refusing:  # noqa: N801 - reads as a statement
    """A context manager that turns an exception of OpenVINO into a `RefusedError`.

    The message is ``OpenVINO``, `failure` (such as "cannot read it"), and the message of the exception.
    """

    def __init__(self, failure: str) -> None:
        self.failure = failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, RefusedError):
            raise RefusedError(f"OpenVINO {self.failure}: {_text(error)}") from error


def _read(part: OnnxPart) -> Any:
    """Return OpenVINO's model of a subgraph, whose large constants share the network's memory."""
    import openvino  # noqa: PLC0415

    with _refusing("cannot read it"):
        model = _core().read_model(constants_as_inputs(part).SerializeToString())
        ports = {name: port for port in model.inputs for name in port.get_names()}
        for name, array in part.constants.items():
            if name not in ports:  # nobody takes it
                continue
            parameter = ports[name].get_node()
            constant = openvino.op.Constant(shareable(np.ascontiguousarray(array)), shared_memory=True)
            parameter.output(0).replace(constant.output(0))
            model.remove_parameter(parameter)
        model.validate_nodes_and_infer_types()
    _check(part, model)
    return model


def _check(part: OnnxPart, model: Any) -> None:
    """Raise `RefusedError` if OpenVINO infers another shape for an output of the model than the network has.

    OpenVINO could not write such an output to the runtime's array.
    """
    for value, port in zip(part.model.graph.output, model.outputs, strict=True):
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        partial_shape = port.get_partial_shape()
        if not partial_shape.is_static or list(partial_shape.to_shape()) != shape:
            raise RefusedError(f"OpenVINO takes {value.name!r}, of shape {shape}, to have shape {partial_shape}")


class _Compiled(Executable):
    """A compiled model with infer requests: one for each concurrent run."""

    def __init__(
        self,
        create_model: Callable[[dict[str, Any]], Any],
        positions: Callable[[Any], list[int | None]],
        options: dict[str, Any],
        constants: Sequence[Array] = (),
        measures: bool = False,
    ) -> None:
        """Create the model with `create_model`, a function of OpenVINO's properties.

        `positions` returns, for each input of the subgraph, its position among the inputs of the model.
        """
        self._create_model, self._positions, self._options, self._measures = create_model, positions, options, measures
        self._measured_model: _Compiled | None = None
        self._measure_lock = threading.Lock()
        self.constants = tuple(constants)
        self.model = create_model(dict(_properties(options)) | ({"PERF_COUNT": True} if measures else {}))
        self.inputs = _checked_positions(positions(self.model), self.model)
        self._free_requests: deque[_Request] = deque()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model on the memory of `inputs` and `outputs` without copies."""
        request = self._request()
        request.run(inputs, outputs)
        self._free_requests.append(request)

    def run_measured(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[EngineStep]:
        """Run the model as `run` does, compiled with performance counters, and return the operators that ran.

        OpenVINO reports their durations. They are placed one after the other.
        """
        if not self._options["layer_times"]:
            return super().run_measured(inputs, outputs)
        measured_model = self._begun()
        request = measured_model._request()
        begin = perf_counter_ns()
        request.run(inputs, outputs)
        steps = in_turn(request.durations(), begin, perf_counter_ns())
        measured_model._free_requests.append(request)
        return steps

    def begin_measuring(self, examples: Examples) -> None:
        """Compile the model with performance counters, if `layer_times` is True, and run it once."""
        if self._options["layer_times"] and self._measured_model is None:
            measured_model = self._begun()
            with suppress(Exception):  # of OpenVINO; its exceptions have no common base class, and this run may fail
                measured_model.run(*examples())

    def _begun(self) -> _Compiled:
        with self._measure_lock:
            if self._measured_model is None:
                self._measured_model = _Compiled(
                    self._create_model, self._positions, self._options, self.constants, measures=True
                )
            return self._measured_model

    def _request(self) -> _Request:
        try:
            return self._free_requests.pop()
        except IndexError:
            return _Request(self.model, self.inputs)

    def exported(self) -> Sequence[bytes] | None:
        """Return the positions of the inputs, and the compiled model; None if the device cannot export it.

        They are no names, because OpenVINO exports the names of inputs up to their first zero byte.
        """
        try:
            content = self.model.export_model()
        except Exception:  # OpenVINO's exceptions have no common base class
            return None
        model = content.getvalue() if hasattr(content, "getvalue") else bytes(content)
        return json.dumps(self.inputs).encode(), model


def _compiled(part: OnnxPart, options: dict[str, Any], properties: dict[str, Any]) -> Any:
    """Return OpenVINO's compiled model of a subgraph; raise `RefusedError` if OpenVINO cannot compile it."""
    return _compiled_model(_read(part), options, properties)


def _compiled_model(model: Any, options: dict[str, Any], properties: dict[str, Any]) -> Any:
    with _refusing("cannot compile it"):
        return _core().compile_model(model, options["device"], properties)


def _network_of(view: SubgraphView) -> Any | None:
    """Return the model of the layer in a view that stands for a network in OpenVINO's IR; None if there is none.

    Raises:
        RefusedError: OpenVINO cannot read the network, or the view has other layers too.
    """
    if not any(openvino_ir.is_network(layer) for layer in view):
        return None
    if len(view) > 1:
        raise RefusedError("OpenVINO compiles a network of its IR only without other layers")
    with _refusing("cannot read the network"):
        return openvino_ir.model_of(view, _core())


def _imported(content: bytes | memoryview, options: dict[str, Any], properties: dict[str, Any]) -> Any:
    """Return a compiled model that was exported; raise `RefusedError` if OpenVINO cannot read it."""
    with _refusing("cannot read the compiled model"):
        return _core().import_model(bytes(content), options["device"], properties)


def _input_positions(names: Sequence[str], model: Any) -> list[int | None]:
    """Return the positions of the inputs with these names; None for one that no layer reads."""
    position_of = {name: index for index, port in enumerate(model.inputs) for name in port.get_names()}
    return [position_of.get(name) for name in names]


def _checked_positions(positions: list[int | None], model: Any) -> list[int | None]:
    """Return the positions of the inputs of a subgraph; raise `RefusedError` unless each input of the model has one."""
    used_positions = [position for position in positions if position is not None]
    if not all(type(position) is int for position in used_positions) or sorted(used_positions) != list(
        range(len(model.inputs))
    ):
        raise RefusedError(f"OpenVINO's model has {len(model.inputs)} inputs, and the subgraph those at {positions}")
    return positions


def _properties(options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "PERFORMANCE_HINT", options["hint"]
    if options["device"] == "CPU":
        yield "INFERENCE_NUM_THREADS", options["threads"] or thread_budget()
        yield "ENABLE_CPU_PINNING", False
    if options["device"].partition(".")[0] in ("CPU", "GPU"):
        yield "INFERENCE_PRECISION_HINT", options["precision"]


class _Request:
    """An OpenVINO infer request, which serves one run at a time.

    An array at the same address as in the last run is not set again.
    """

    def __init__(self, model: Any, inputs: Sequence[int | None]) -> None:
        self.request = model.create_infer_request()
        self.inputs = inputs  # the position of each among the model's inputs; None if no layer reads it
        self.addresses: list[int] = []

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        addresses = [array.__array_interface__["data"][0] for array in (*inputs, *outputs)]
        if addresses != self.addresses:
            self._set(inputs, outputs)
            self.addresses = addresses
        self.request.infer(share_outputs=True)

    def durations(self) -> Iterator[tuple[str, str, int]]:
        """Yield the name, the operator and the nanoseconds of each operator of the last run."""
        for info in self.request.profiling_info:
            duration = round(info.real_time / timedelta(microseconds=1)) * 1000
            if duration or info.status == type(info).Status.EXECUTED:
                yield info.node_name, info.node_type, duration

    def _set(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        import openvino  # noqa: PLC0415

        self.addresses = []  # invalid until all arrays are set
        for index, array in zip(self.inputs, inputs, strict=True):
            if index is not None:
                self.request.set_input_tensor(index, openvino.Tensor(shareable(array), shared_memory=True))
        for index, array in enumerate(outputs):
            self.request.set_output_tensor(index, openvino.Tensor(array, shared_memory=True))


def _text(error: Exception) -> str:
    """Return the message of an OpenVINO error without locations in OpenVINO's source."""
    lines = [line.strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith(("Exception from src", "Check '", "While "))]
    return " ".join(messages or lines)
