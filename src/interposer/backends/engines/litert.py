"""LiteRt: LiteRT's interpreter (TensorFlow Lite), with XNNPACK or its own kernels.

Parts become TFLite files in memory. An input is copied into the interpreter's memory, and an output from there: the
interpreter's Python interface lends its memory only between runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend import BackendId, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Executable, RefusedError, shortened
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.core.errors import ExecutionError, UnwritableError
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import Activation, ActivationFunction
from interposer.writers import tflite as writer

__all__ = ["LiteRt"]

_OPTIONS: Final = (
    Option("threads", 0, "threads that compute one part; 0 for the thread budget", most=MOST_THREADS),
    Option(
        "kernels",
        "xnnpack",
        "which kernels compute: xnnpack where it has them, the builtin ones, or the reference, which is slow and exact",
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
"""Layers that give more elements are tried by compiling them alone."""
_NODE: Final = re.compile(r"\s*Node number (\d+) \((\w+)\) failed to (\w+)\.?\s*")


class LiteRt(Engine):
    """Runs parts with LiteRT."""

    id: ClassVar = BackendId("LiteRt")
    packages: ClassVar = ("ai_edge_litert", "tflite", "flatbuffers")
    extra: ClassVar = "litert"
    options: ClassVar = _OPTIONS
    types: ClassVar = _TYPES
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True)

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return what TFLite cannot express, and what makes LiteRT's kernels read where nothing is."""
        infos = [value.known for value in (*layer.values, *layer.outputs)]
        if any(info.is_tensor and info.is_ranked and 0 in info.shape for info in infos):
            return ["it has a tensor without elements, which LiteRT's kernels do not expect"]
        rough = None if options["kernels"] == "reference" else _rough_function(layer)
        if rough is not None:
            return [f"LiteRT's {rough} of int16 is several steps off, but for kernels='reference'"]
        return writer.reasons(layer)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return an interpreter for the part, which has its memory."""
        try:
            part = writer.traced(view)
        except UnwritableError as error:
            raise RefusedError(str(error)) from error
        return _Interpreter(part, options)

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Compile them and, where that is quick, run them: some kernels only say then that they do not take a type."""
        created = self.compile(view, {**options, "threads": 1})
        outputs = _part_outputs(view)
        infos = [[value.known for value in values] for values in (view.inputs, outputs)]
        if sum(int(value.known.num_elements) for layer in view for value in layer.outputs) > _MOST_ELEMENTS:
            return
        arrays = [[np.zeros(tuple(info.shape), info.dtype.numpy) for info in item] for item in infos]
        try:
            created.run(*arrays)
        except ExecutionError as error:
            raise RefusedError(str(error)) from error


def _rough_function(layer: Layer) -> str | None:
    """Return the name of a function whose kernel for int16 is not that of TFLite's reference."""
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
    """Return what the file of a part gives: everything that nobody uses, where nothing goes out."""
    return view.outputs or [value for layer in view for value in layer.outputs if not value.uses]


class _Interpreter(Executable):
    """An interpreter, which runs once at a time."""

    concurrent: ClassVar = False
    weight_copies: ClassVar = 2  # in the model's file, and as XNNPACK arranges them

    def __init__(self, part: writer.Traced, options: dict[str, Any]) -> None:
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
        except Exception as error:  # a TypeError has the bytes of the model in it
            raise RefusedError(f"LiteRT does not take it: {shortened(self._reported(error))}") from error
        self._inputs = [get_input_detail["index"] for get_input_detail in self._interpreter.get_input_details()]
        outputs = self._interpreter.get_output_details()
        self._outputs = [self._interpreter.tensor(output["index"]) for output in outputs]

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Copy the inputs in, and the outputs out."""
        try:
            for index, array in zip(self._inputs, inputs, strict=True):
                self._interpreter.set_tensor(index, array)
            self._interpreter.invoke()
            for view, array in zip(self._outputs, outputs, strict=True):
                np.copyto(array, view())
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(f"LiteRT cannot run it: {self._reported(error)}") from error

    def _reported(self, error: Exception) -> str:
        """Return what it says, with the name of the layer in the place of the number of an operator."""
        text = " ".join(str(error).split())
        return _NODE.sub(self._named, text).strip()

    def _named(self, result: re.Match[str]) -> str:
        number, kind, verb = int(result[1]), result[2], result[3]
        layer = f"layer {self._layers[number]!r} ({kind})" if number < len(self._layers) else kind
        return f" [{layer}: failed to {verb}]"
