"""LiteRt: LiteRT's interpreter (TensorFlow Lite), with XNNPACK or LiteRT's built-in kernels.

Subgraphs are written as TFLite models in memory. Inputs are copied into the interpreter's memory, and outputs out of
it, because the Python interface gives access to this memory only between runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from interposer import writers
from interposer.backend import BackendId, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Executable, RefusedError, shortened
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.core.errors import ExecutionError, UnwritableError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import Activation, ActivationFunction, DepthwiseConvolution2d, TransposeConvolution2d

__all__ = ["LiteRt"]

_OPTIONS: Final = (
    Option("threads", 0, "threads for one subgraph; 0 for the thread budget", most=MOST_THREADS),
    Option(
        "kernels",
        "xnnpack",
        "the kernels to use: xnnpack with fallback to builtin, only builtin, or reference, which is slow and exact",
        ("xnnpack", "builtin", "reference"),
    ),
)
_RESOLVERS: Final = {"xnnpack": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}
_TYPES: Final = frozenset(
    {
        DataType.BOOL, DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64, DataType.INT8, DataType.INT16,
        DataType.INT32, DataType.INT64, DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64,
    }
)  # fmt: skip
_ROUGH: Final = (ActivationFunction.SIGMOID, ActivationFunction.TANH)
_MOST_ELEMENTS: Final = 1 << 20
"""The maximum number of result elements for which a trial also runs the layer; larger ones are only compiled."""
_NODE: Final = re.compile(r"\s*Node number (\d+) \((\w+)\) failed to (\w+)\.?\s*")


class LiteRt(Engine):
    """A backend that runs subgraphs with LiteRT."""

    id: ClassVar = BackendId("LiteRt")
    packages: ClassVar = ("ai_edge_litert", "flatbuffers")
    extra: ClassVar = "litert"
    options: ClassVar = _OPTIONS
    unchecked: ClassVar = (Op,)
    types: ClassVar = _TYPES
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True)

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons against a layer: TFLite cannot express it, or LiteRT's kernels would crash or be wrong."""
        infos = [value.known for value in (*layer.values, *layer.outputs)]
        if any(info.is_tensor and info.is_ranked and 0 in info.shape for info in infos):
            return ["it has an empty tensor, which LiteRT's kernels do not support"]
        rough_function = None if options["kernels"] == "reference" else _rough_function(layer)
        if rough_function is not None:
            return [f"LiteRT's {rough_function} of int16 is several steps off, except with kernels='reference'"]
        return list(_weight_problems(layer, options)) or writers.tflite.reasons(layer)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return an interpreter for the subgraph with allocated tensors.

        Raises:
            RefusedError: TFLite cannot express a layer, or LiteRT rejects the model.
        """
        try:
            part = writers.tflite.traced(view)
        except UnwritableError as error:
            raise RefusedError(str(error)) from error
        return _Interpreter(part, options)

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Compile the layers and run them on zeros, since some kernels report an unsupported type only when they run.

        Large layers are compiled only.

        Raises:
            RefusedError: LiteRT cannot compile or run the layers.
        """
        interpreter = self.compile(view, {**options, "threads": 1})
        outputs = _part_outputs(view)
        infos = [[value.known for value in values] for values in (view.inputs, outputs)]
        if sum(int(value.known.num_elements) for layer in view for value in layer.outputs) > _MOST_ELEMENTS:
            return
        arrays = [[np.zeros(tuple(info.shape), info.dtype.numpy) for info in group] for group in infos]
        try:
            interpreter.run(*arrays)
        except ExecutionError as error:
            raise RefusedError(str(error)) from error


def _weight_problems(layer: Layer, options: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why LiteRT would crash or compute wrong results with the weights of a layer.

    Only depthwise and transposed convolutions have such reasons.
    """
    if not isinstance(layer.op, DepthwiseConvolution2d | TransposeConvolution2d):
        return
    weights = layer.operand("weights")
    if weights is None:
        return
    depthwise = isinstance(layer.op, DepthwiseConvolution2d)
    if depthwise and not weights.is_constant and options["kernels"] != "reference":
        yield "LiteRT crashes if weights of a depthwise convolution are no constant, except with kernels='reference'"
    info = weights.known
    if info.dtype is DataType.INT8 and info.quantization is not None and any(info.quantization.zero_points):
        yield "LiteRT ignores the zero point of int8 weights; expected 0"


def _rough_function(layer: Layer) -> str | None:
    """Return the name of a function whose int16 kernel differs from TFLite's reference kernel, or None."""
    info = layer.input_infos[0] if layer.inputs else None
    if (
        info is None
        or not info.is_quantized
        or info.dtype is not DataType.INT16
        or not isinstance(layer.op, Activation)
    ):
        return None
    return layer.op.function.name if layer.op.function in _ROUGH else None


def _part_outputs(view: SubgraphView) -> Sequence[Value]:
    """Return the outputs of a subgraph's TFLite model: the subgraph's, or if it has none, all unread results."""
    return view.outputs or [value for layer in view for value in layer.outputs if not value.uses]


class _Interpreter(Executable):
    """A LiteRT interpreter of one compiled subgraph; it can do only one run at a time."""

    concurrent: ClassVar = False
    weight_copies: ClassVar = 2  # one in the model, and one packed by XNNPACK

    def __init__(self, part: writers.tflite.Traced, options: dict[str, Any]) -> None:
        from ai_edge_litert import interpreter  # noqa: PLC0415 - optional, and slow to import

        self._layers = part.layers
        kernels = interpreter.OpResolverType[_RESOLVERS[options["kernels"]]]
        try:
            self._interpreter = interpreter.Interpreter(
                model_content=part.content,
                num_threads=options["threads"] or thread_budget(),
                experimental_op_resolver_type=kernels,
            )
            self._interpreter.allocate_tensors()
        except Exception as error:  # the message of a TypeError contains the bytes of the model
            raise RefusedError(f"LiteRT does not take it: {shortened(self._message_of(error))}") from error
        self._inputs = [detail["index"] for detail in self._interpreter.get_input_details()]
        outputs = self._interpreter.get_output_details()
        self._outputs = [self._interpreter.tensor(output["index"]) for output in outputs]

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Copy the inputs into the interpreter, run it, and copy the outputs out."""
        try:
            for index, array in zip(self._inputs, inputs, strict=True):
                self._interpreter.set_tensor(index, array)
            self._interpreter.invoke()
            for view, array in zip(self._outputs, outputs, strict=True):
                np.copyto(array, view())
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(f"LiteRT cannot run it: {self._message_of(error)}") from error

    def _message_of(self, error: Exception) -> str:
        """Return the message of an error, with the layer's name in place of the operator number."""
        message = " ".join(str(error).split())
        return _NODE.sub(self._with_layer_name, message).strip()

    def _with_layer_name(self, match: re.Match[str]) -> str:
        operator_index, kind, verb = int(match[1]), match[2], match[3]
        layer = f"layer {self._layers[operator_index]!r} ({kind})" if operator_index < len(self._layers) else kind
        return f" [{layer}: failed to {verb}]"
