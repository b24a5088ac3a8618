"""The state of an import: what a converter reads about the model, and the network to which it adds layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.frontends.folding import Folder, fold_dimensions
from interposer.frontends.naming import keep_names
from interposer.frontends.needs import Needs, needs_of
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.functions import Functions
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.tensors import array_of
from interposer.frontends.refusals import Refusals
from interposer.frontends.unsupported import UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow
from interposer.ops.quantization import Cast
from interposer.ops.reshape import Shape

__all__ = ["ImportState"]


class ImportState:
    """What is known during the import of a graph: the network, the value of every name, and unsupported operators.

    `operators` has the caller's converters by the name of the operator; they precede those of Interposer.
    """

    def __init__(
        self,
        network: Network,
        opsets: Mapping[str, int],
        files: ExternalFiles,
        functions: Functions,
        operators: Mapping[str, Callable[..., Value | Sequence[Value | None]]],
    ) -> None:
        self.network = network
        self._opsets = opsets
        self._files = files
        self._functions = functions
        self._operators = operators
        self._folder = Folder(0)
        self._values: dict[str, Value] = {}
        self._arrays: dict[str, Array] = {}
        self._dimensions: dict[Value, Array] = {}
        self._notes_of_scales: dict[str, Quantization] = {}
        self._missing: set[str] = set()
        self._inputs: set[Layer] = set()
        self._around: dict[Layer, Value] = {}
        self._refusals = Refusals()
        self._reserved: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self.converted_inside = 0

    def reserve(self, names: set[str]) -> None:
        """Reserve names for layers that are added later; another layer that asks for one of them gets a suffix."""
        self._reserved = names

    def define_constants(self, arrays: Mapping[str, Array]) -> None:
        """Define the initializers by name; an initializer becomes a constant of the network when it is first used."""
        self._arrays.update(arrays)
        self._folder = Folder(sum(array.nbytes for array in self._arrays.values()))

    def annotate(self, notes: Mapping[str, Quantization]) -> None:
        """Record quantization annotations by the name of the tensor; they apply to constants and outputs."""
        self._notes_of_scales = dict(notes)

    def define(self, name: str, value: Value) -> None:
        """Record which value of the network a name of the model stands for."""
        self._values[name] = value

    def define_input(self, name: str, value: Value) -> None:
        """Record which value of the network the name of a model's input stands for."""
        self._inputs.add(value.producer)
        self.define(name, value)

    def array(self, tensor: Message) -> Array:
        """Return the data of a `TensorProto` as an array, read from its external file if necessary."""
        return array_of(tensor, self._files)

    def value(self, name: str) -> Value:
        """Return the network value of a name of the model; an initializer becomes a constant on first use.

        `ParseError` is raised if the name is not defined.
        """
        if name not in self._values and name in self._arrays:
            self._values[name] = self._initializer(name)
        if name not in self._values:
            raise ParseError(f"the value {name!r} is not defined")
        return self._values[name]

    def _initializer(self, name: str) -> Value:
        array, note = self._arrays[name], self._notes_of_scales.get(name)
        return self.constant(array, name, f"initializer {name!r}", note if _fits(TensorInfo.of(array), note) else None)

    def annotated(self, name: str) -> Value:
        """Return the value of a name, with the quantization that the model's annotation gives it, if any fits.

        A cast adds the quantization.
        """
        value, note = self.value(name), self._notes_of_scales.get(name)
        if note is None or value.known.quantization == note or not _fits(value.known, note):
            return value
        return self.add(Cast(value.known.dtype), [value], f"{name}/annotated", f"output {name!r}", note)[0]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The initializers by name."""
        return self._arrays

    def extents(self, value: Value) -> Array | None:
        """Return the elements of a tensor that holds dimensions, such as a Reshape's shape; None if they are not known.

        Each element is an integer, or a `Dim` for an unknown dimension.
        """
        if value.constant is not None:
            return value.constant.astype(object) if value.constant.dtype.kind in "iu" else None
        return self._dimensions.get(value)

    def ask_for(self, value: Value, title: str) -> NoReturn:
        """Refuse a node, as its operand `title` is not known; the error names the inputs that determine it.

        Raises:
            UnboundFormError: the value is known once some inputs have values or shapes.
            UnsupportedFormError: it is computed from data at run time.
        """
        needs = needs_of(value, self._inputs, self._folder.takes, self._around)
        if needs is None:
            raise UnsupportedFormError(f"its operand {title!r} is computed from data")
        raise UnboundFormError(f"its operand {title!r} is no constant", needs)

    def needs(self, value: Value) -> Needs | None:
        """Return which inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """
        return needs_of(value, self._inputs, self._folder.takes)

    def give_up(self, outputs: Sequence[str]) -> None:
        """Mark the values with these names as missing, as they depend on an unsupported operator."""
        self._missing.update(name for name in outputs if name)

    def mark(self) -> int:
        """Return the number of layers so far, which `forget` takes to remove the layers that were added later."""
        return len(self.network.graph)

    def forget(self, mark: int) -> None:
        """Remove the unused layers that were added since `mark` was called.

        Constants and captured values of a region are not removed, as names refer to them.
        """
        for layer in reversed(list(self.network.graph)[mark:]):
            if not isinstance(layer.op, Constant | Input) and not any(value.uses for value in layer.outputs):
                self.network.graph.erase(layer)

    def keep_names(self) -> None:
        """Record on the values of the network the names that they have in the model."""
        keep_names(self.network.graph, self._values.items())

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, name: str, source: str = "", quantization: Quantization | None = None) -> Value:
        """Add a constant with this array and quantization to the network, and return its value.

        `name` may get a number appended; `source` says in messages where the constant comes from.
        """
        return self.network.add_layer(Constant(share(array), quantization), name=self._name(name), source=source).output

    def add(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str,
        source: str,
        quantization: Quantization | None = None,
    ) -> list[Value]:
        """Add a layer to the network, and return its outputs; results that are known already become constants instead.

        `source` says in messages where the layer comes from, and `quantization` is that of the outputs. `ParseError` is
        raised if the operator does not accept the operands.
        """
        op = op.canonical()
        folded = None if quantization else self._folder.fold(op, operands)
        if folded is not None and all(info.is_tensor for info, _ in folded):
            return [self.constant(array, name, source, info.quantization) for info, array in folded]
        declared = self._declared(op, operands, quantization)
        layer = self.network.add_layer(op, *operands, name=self._name(name), outputs=declared, source=source)
        for error in () if layer.inferred is not None else infer_layer(layer):
            raise ParseError(error)
        self._note_dimensions(layer)
        for value, (info, array) in zip(layer.outputs, folded or (), strict=False):
            self._note_collection(value, info, array)
        return [self._settled(value) for value in layer.outputs]

    def add_control(
        self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph], name: str, source: str
    ) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` to the network, and return its outputs.

        `source` says in messages where the layer comes from.
        """
        layer = self.network.graph.add(op, operands, name=self._name(name), source=source, regions=graphs)
        for error in infer_layer(layer):
            raise ParseError(error)
        return list(layer.outputs)

    def _note_collection(self, value: Value, info: TensorInfo, array: Array) -> None:
        """Record the known contents of a sequence or an optional, whose layer was added since it cannot be a constant.

        Later operators can then be folded; the layer stays unused if all its consumers are.
        """
        value.info = info
        self._folder.note(value, array)

    def _declared(
        self, op: Op, operands: Sequence[Value | None], quantization: Quantization | None
    ) -> TensorInfo | None:
        if quantization is None:
            return None
        infos = [value.info if value is not None else None for value in operands]
        for error in op.violations(*infos):
            raise ParseError(error)
        inferred = op.infer_infos(*infos)[0]
        return None if inferred is None else TensorInfo(inferred.shape, inferred.dtype, quantization)

    def _name(self, requested: str) -> str:
        """Return the requested name of a layer, with a number appended from its second use on.

        A reserved name gets the suffix ``/layer``.
        """
        name = f"{requested}/layer" if requested in self._reserved else requested
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}_{self._used[name] - 1}"

    def _settled(self, value: Value) -> Value:
        """Return a new constant for a value that inference determines (such as a shape), else the value itself."""
        if value.constant is None or value.is_constant:
            return value
        return self._constant(value.known, value.producer.name, value.producer.source)

    def _constant(self, info: TensorInfo, name: str, source: str) -> Value:
        assert info.constant is not None
        return self.constant(info.constant, name, source, info.quantization)

    def _note_dimensions(self, layer: Layer) -> None:
        if isinstance(layer.op, Shape) and layer.values[0].known.is_ranked:
            dims = np.empty(layer.values[0].known.rank, object)
            dims[:] = layer.values[0].known.shape
            self._dimensions[layer.output] = dims
        elif self._dimensions and any(value in self._dimensions for value in layer.values):
            result = fold_dimensions(layer.op, [self.extents(value) for value in layer.values])
            self._dimensions.update(zip(layer.outputs, result or (), strict=False))


def _fits(info: TensorInfo, note: Quantization | None) -> bool:
    """Return True if a tensor with this info can have the quantization `note`: its type and per-channel axis match."""
    try:
        info.with_quantization(note)
    except InvalidArgumentError:
        return False
    return True
