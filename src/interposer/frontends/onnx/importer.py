"""The conversion of the nodes of a graph to layers of a network, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import InterposerError, InvalidArgumentError, ParseError, UnknownRankError
from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.frontends.naming import keep_names
from interposer.frontends.needs import Needs, needs_of
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.folding import Folder, fold_dimensions
from interposer.frontends.onnx.functions import Functions, domain_of
from interposer.frontends.onnx.needs import UnboundFormError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, UnsupportedFormError, title
from interposer.frontends.onnx.order import graphs_of, names_in
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.refusals import Refusals
from interposer.frontends.onnx.schemas import has_function, standard_function
from interposer.frontends.onnx.tensors import array_of
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow
from interposer.ops.quantization import Cast
from interposer.ops.reshape import Shape

__all__ = ["Importer"]

# The Python exceptions that a converter raises for a malformed node.
_SLIPS: Final = (ArithmeticError, LookupError, TypeError, ValueError)


class Importer:
    """The state of one import: the network, the value of every name of the model, and the unsupported operators."""

    def __init__(self, network: Network, opsets: Mapping[str, int], files: ExternalFiles, functions: Functions) -> None:
        self.network = network
        self._opsets = opsets
        self._files = files
        self._functions = functions
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
        """Reserve names for layers that are added later, so that no other layer gets them."""
        self._reserved = names

    def define_constants(self, arrays: Mapping[str, Array]) -> None:
        """Define constants by name: the initializers."""
        self._arrays.update(arrays)
        self._folder = Folder(sum(array.nbytes for array in self._arrays.values()))

    def annotate(self, notes: Mapping[str, Quantization]) -> None:
        """Record the model's quantization annotations, which apply to constants and outputs."""
        self._notes_of_scales = dict(notes)

    def define(self, name: str, value: Value) -> None:
        """Define the value of a name."""
        self._values[name] = value

    def define_input(self, name: str, value: Value) -> None:
        """Define the value of a name that is an input of the model."""
        self._inputs.add(value.producer)
        self.define(name, value)

    def array(self, tensor: Message) -> Array:
        """Return the data of a `TensorProto` in the file as an array."""
        return array_of(tensor, self._files)

    def value(self, name: str) -> Value:
        """Return the value of a name; an array becomes a constant of the network on first use."""
        if name not in self._values and name in self._arrays:
            self._values[name] = self._initializer(name)
        if name not in self._values:
            raise ParseError(f"the value {name!r} is not defined")
        return self._values[name]

    def _initializer(self, name: str) -> Value:
        array, note = self._arrays[name], self._notes_of_scales.get(name)
        return self.constant(array, name, f"initializer {name!r}", note if _fits(TensorInfo.of(array), note) else None)

    def annotated(self, name: str) -> Value:
        """Return the value of a name, quantized as the model's annotations say."""
        value, note = self.value(name), self._notes_of_scales.get(name)
        if note is None or value.known.quantization == note or not _fits(value.known, note):
            return value
        return self.add(Cast(value.known.dtype), [value], f"{name}/annotated", f"output {name!r}", note)[0]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The initializers by name."""
        return self._arrays

    def extents(self, value: Value) -> Array | None:
        """Return the elements of a tensor of dimensions, each an integer or a `Dim`; None if they are unknown."""
        if value.constant is not None:
            return value.constant.astype(object) if value.constant.dtype.kind in "iu" else None
        return self._dimensions.get(value)

    def ask_for(self, value: Value, title: str) -> NoReturn:
        """Refuse a node whose operand `title` must be known, and report which inputs would determine it."""
        needs = needs_of(value, self._inputs, self._folder.takes, self._around)
        if needs is None:
            raise UnsupportedFormError(f"its operand {title!r} is computed from data")
        raise UnboundFormError(f"its operand {title!r} is no constant", needs)

    def needs(self, value: Value) -> Needs | None:
        """Return the inputs that must be known to determine a value; None if it is computed at run time."""
        return needs_of(value, self._inputs, self._folder.takes)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def convert(self, nodes: Sequence[Message]) -> None:
        """Convert nodes, which must be in topological order.

        Raises:
            ParseError: a node violates the format.
            UnsupportedOperatorError: operators are not supported; the error lists all of them.
            UnboundInputError: all operators are supported, but shapes or values of inputs are missing.
        """
        with np.errstate(all="ignore"):
            for message in nodes:
                self._convert_node(message, self._node_name(message))
        self._refusals.check()

    def _node_name(self, message: Message) -> str:
        if message.name:
            return str(message.name)
        number = self._numbers[message.op_type]
        self._numbers[message.op_type] += 1
        return f"{message.op_type}_{number}"

    def _convert_node(self, message: Message, name: str) -> None:
        domain = domain_of(message)
        version = self._opsets.get(domain)
        function = self._functions.find(message)
        converter = None if function is not None else self._functions.converter(message, version)
        try:
            if any(name in self._missing for name in names_in(message)):
                self._survey(message, name)
                self._missing.update(output for output in message.output if output)
            elif converter is not None and version is not None:
                self._run(converter, Node(self, message, name, version), message.output)
            else:
                self._inline(function or self._standard_function(message, version), message, name, self._convert_node)
        except UnsupportedFormError as error:
            self._refuse(message, name, domain, error)
        except UnknownRankError:
            reason = "the rank of a tensor is not known before running"
            self._refuse(message, name, domain, UnsupportedFormError(reason))
        except InterposerError as error:
            if isinstance(error, ParseError) and error.where:
                raise
            text = error.message if isinstance(error, ParseError) else str(error)
            raise ParseError(text, where=f"node {name!r} ({message.op_type})") from error
        except _SLIPS as error:
            text = f"it cannot be converted ({type(error).__name__}: {error})"
            raise ParseError(text, where=f"node {name!r} ({message.op_type})") from error

    def _standard_function(self, message: Message, version: int | None) -> Message:
        """Return the standard's function body for an unknown operator; `UnsupportedFormError` if there is none."""
        result = version and standard_function(message, version, lambda name: self.value(name).known)
        if not result:
            raise UnsupportedFormError("")
        return result

    def _inline(self, function: Message, message: Message, name: str, visit: Callable[[Message, str], None]) -> None:
        """Visit the nodes of a function in place of the node that calls the function."""
        body = self._functions.body(function, message, name)
        opsets, self._opsets = self._opsets, {**self._opsets, **body.opsets}
        for inner in body.nodes:
            visit(inner, inner.name)
        self._opsets = opsets
        for output, value in body.aliases:
            if value in self._missing:
                self._missing.add(output)
            elif visit == self._convert_node:
                self._values[output] = self.value(value)

    def _survey(self, message: Message, name: str) -> None:
        """Refuse unknown operators in a node that cannot be converted for another reason, its subgraphs included."""
        domain = domain_of(message)
        version, function = self._opsets.get(domain), self._functions.find(message)
        if function is not None:
            self._inline(function, message, name, self._survey)
        elif version is None or not (self._functions.converter(message, version) or has_function(message, version)):
            self._refuse(message, name, domain, UnsupportedFormError(""))
        for graph in graphs_of(message):
            for inner in graph.node:
                self._survey(inner, self._node_name(inner))

    def _run(self, converter: Converter, node: Node, outputs: Sequence[str]) -> None:
        result = converter(node)
        results = [result] if isinstance(result, Value) else list(result)
        results += [None] * (len(outputs) - len(results))
        for number, (name, value) in enumerate(zip(outputs, results, strict=False)):
            if name and value is None:
                raise UnsupportedFormError(f"it gives output number {number}, {name!r}")
            if name and value is not None:
                self._values[name] = value

    def _refuse(self, message: Message, name: str, domain: str, error: UnsupportedFormError) -> None:
        """Record why a node is refused; a node that needs more of the inputs is only refused if no input can help."""
        version = self._opsets.get(domain)
        opset = f"opset {version}" if version is not None else "whose opset the model does not import"
        place = f"{opset}; first as node {name!r}"
        self._missing.update(output for output in message.output if output)
        if isinstance(error, UnboundFormError) and (error.needs.values or self._has_open_inputs):
            self._refusals.defer(title(domain, message.op_type), f"{place}: {error}", error.needs)
            return
        reason = error.reason if isinstance(error, UnboundFormError) else str(error)
        if version is not None and not reason and not domain.startswith("ai.onnx") and domain:
            reason = "map it with interposer.frontends.onnx.operator"
        self._refusals.refuse(title(domain, message.op_type), f"{place}: {reason}" if reason else place)

    @property
    def _has_open_inputs(self) -> bool:
        return any(not layer.output.known.is_concrete for layer in self._inputs)

    def give_up(self, outputs: Sequence[str]) -> None:
        """Mark these values as missing, as they depend on an unsupported operator."""
        self._missing.update(name for name in outputs if name)

    def mark(self) -> int:
        """Return a position in the network to which `forget` can roll back."""
        return len(self.network.graph)

    def forget(self, mark: int) -> None:
        """Remove the unused layers that were added since `mark` was called.

        Constants and captured values of a region are not removed, as names refer to them.
        """
        for layer in reversed(list(self.network.graph)[mark:]):
            if not isinstance(layer.op, Constant | Input) and not any(value.uses for value in layer.outputs):
                self.network.graph.erase(layer)

    def keep_names(self) -> None:
        """Record the model's names on the values of the network."""
        keep_names(self.network.graph, self._values.items())

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, name: str, source: str = "", quantization: Quantization | None = None) -> Value:
        """Return a new constant of the network."""
        return self.network.add_layer(Constant(share(array), quantization), name=self._name(name), source=source).output

    def add(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str,
        source: str,
        quantization: Quantization | None = None,
    ) -> list[Value]:
        """Return the outputs of a new layer, or constants if all results are already known."""
        op = op.canonical()
        folded = None if quantization else self._folder.fold(op, operands)
        if folded is not None and all(info.is_tensor for info, _ in folded):
            return [self.constant(array, name, source, info.quantization) for info, array in folded]
        declared = self._declared(op, operands, quantization)
        layer = self.network.add_layer(op, *operands, name=self._name(name), outputs=declared, source=source)
        for error in infer_layer(layer):
            raise ParseError(error)
        self._note_dimensions(layer)
        for value, (info, array) in zip(layer.outputs, folded or (), strict=False):
            self._note_collection(value, info, array)
        return [self._settled(value) for value in layer.outputs]

    def add_control(
        self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph], name: str, source: str
    ) -> list[Value]:
        """Return the outputs of a new control-flow layer with `graphs` as its regions."""
        layer = self.network.graph.add(op, operands, name=self._name(name), source=source, regions=graphs)
        for error in infer_layer(layer):
            raise ParseError(error)
        return list(layer.outputs)

    def _note_collection(self, value: Value, info: TensorInfo, array: Array) -> None:
        """Add a layer for a sequence whose contents are known; it is unused if all its consumers are folded."""
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
        """Return the requested name, with a number appended from the second use on."""
        name = f"{requested}/layer" if requested in self._reserved else requested
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}_{self._used[name] - 1}"

    def _settled(self, value: Value) -> Value:
        """Return a value as a constant if inference already determines it, such as a shape."""
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
        elif any(value in self._dimensions for value in layer.values):
            result = fold_dimensions(layer.op, [self.extents(value) for value in layer.values])
            self._dimensions.update(zip(layer.outputs, result or (), strict=False))


def _fits(info: TensorInfo, note: Quantization | None) -> bool:
    """Return True if a tensor can have the quantization."""
    try:
        info.with_quantization(note)
    except InvalidArgumentError:
        return False
    return True
