"""Networks as TFLite files, for LiteRT: those of `designs` only, written with the schema that LiteRT brings."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from interposer import Network
from interposer.ir.graph import Layer, Value
from interposer.ops import Activation, Addition, Concat, Constant, Convolution2d, Input, Output, Pooling2d, Resize
from interposer.ops import DepthwiseConvolution2d as Depthwise

__all__ = ["has_litert", "tflite_bytes"]


def has_litert() -> bool:
    """Return True if LiteRT is installed."""
    return importlib.util.find_spec("ai_edge_litert") is not None


def tflite_bytes(network: Network) -> bytes:
    """Return a file of the same network, whose images must be NHWC and whose windows must be padded as SAME."""
    import flatbuffers  # noqa: PLC0415 - LiteRT needs it too

    model = _Writer().model(network)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _Writer:
    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema  # noqa: PLC0415 - only where it is installed

        self.schema: Any = schema
        self.tensors: list[Any] = []
        self.buffers = [schema.BufferT()]
        self.operators: list[Any] = []
        self.codes: list[int] = []
        self.numbers: dict[Value, int] = {}

    def model(self, network: Network) -> Any:
        graph = network.graph
        for layer in graph.topological():
            if isinstance(layer.op, Constant):
                self._tensor(layer.output, layer.output.known.constant)
            elif isinstance(layer.op, Input):
                self._tensor(layer.output)
            elif not isinstance(layer.op, Output):
                self._operator(layer)
        part, model = self.schema.SubGraphT(), self.schema.ModelT()
        part.tensors, part.operators = self.tensors, self.operators
        part.inputs = [self.numbers[layer.output] for layer in graph.inputs]
        part.outputs = [self.numbers[layer.values[0]] for layer in graph.outputs]
        model.version, model.subgraphs, model.buffers = 3, [part], self.buffers
        model.operatorCodes = [self._code(number) for number in self.codes]
        return model

    def _code(self, number: int) -> Any:
        code = self.schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        return code

    def _tensor(self, value: Value, data: Any = None) -> int:
        return self._named(value.name, value.known.shape, self.schema.TensorType.FLOAT32, data, value)

    def _named(self, name: str, shape: Any, dtype: int, data: Any, value: Value | None = None) -> int:
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, [int(dim) for dim in shape], dtype, 0
        if data is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        if value is not None:
            self.numbers[value] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def _operator(self, layer: Layer) -> None:
        title, options = self._described(layer.op)
        inputs = [self.numbers[value] for value in layer.values]
        if isinstance(layer.op, Resize):
            size = np.array([layer.op.target_height, layer.op.target_width], np.int32)
            inputs.append(self._named(f"{layer.name}/size", (2,), self.schema.TensorType.INT32, size))
        operator, number = self.schema.OperatorT(), getattr(self.schema.BuiltinOperator, title)
        if number not in self.codes:
            self.codes.append(number)
        operator.opcodeIndex, operator.inputs = self.codes.index(number), inputs
        operator.outputs = [self._tensor(value) for value in layer.outputs]
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.operators.append(operator)

    def _described(self, op: Any) -> tuple[str, Any]:
        """Return the operator's name, and its options."""
        schema = self.schema
        if isinstance(op, Activation):
            return "RELU", None
        if isinstance(op, Addition):
            return "ADD", schema.AddOptionsT()
        if isinstance(op, Resize):
            return "RESIZE_NEAREST_NEIGHBOR", schema.ResizeNearestNeighborOptionsT()
        if isinstance(op, Concat):
            options = schema.ConcatenationOptionsT()
            options.axis = op.axis
            return "CONCATENATION", options
        return self._window(op)

    def _window(self, op: Any) -> tuple[str, Any]:
        schema = self.schema
        if isinstance(op, Convolution2d):
            title, options = "CONV_2D", schema.Conv2DOptionsT()
        elif isinstance(op, Depthwise):
            title, options = "DEPTHWISE_CONV_2D", schema.DepthwiseConv2DOptionsT()
            options.depthMultiplier = 1
        else:
            assert isinstance(op, Pooling2d)
            title, options = "MAX_POOL_2D", schema.Pool2DOptionsT()
            options.filterWidth, options.filterHeight = op.pool_width, op.pool_height
        options.strideW, options.strideH, options.padding = op.stride_x, op.stride_y, schema.Padding.SAME
        return title, options
