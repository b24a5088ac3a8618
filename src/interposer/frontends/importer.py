"""The importer of all formats: it adds layers to a network, folds what is known, and reports what is not supported.

A format derives its importer from `Importer`, and adds how values are found by the names or numbers of the file. It
converts each node inside `Importer.conversion`, which gives errors their place in the file and collects refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import (
    DamagedFileError,
    InterposerError,
    InvalidOperandError,
    InvalidValueError,
    ParseError,
    UnknownRankError,
    UnsupportedOperatorError,
)
from interposer.core.schema import Op
from interposer.core.types import UNRANKED, Array, Quantization, TensorInfo
from interposer.frontends.folding import Folder, fold_dimensions
from interposer.frontends.refusals import Refusals
from interposer.frontends.unsupported import Needs, UnboundFormError, UnsupportedFormError, needs_of
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import declare_quantization, infer_layer, set_infos
from interposer.ir.network import Network
from interposer.kernels.operand_values import value_error
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow
from interposer.ops.reshape import Shape

__all__ = ["Importer", "input_of_region", "keep_names"]


class Read(NamedTuple):
    """An operand whose elements, which depend on the caller's values, the conversion of a node has read."""

    title: str
    tensor: str
    elements: Array


class Conversion:
    """The context of `Importer.conversion`; a class, since every node of a network enters it."""

    def __init__(
        self,
        where: str,
        layer: str,
        refuse: Callable[[UnsupportedFormError], None] | None,
        slips: tuple[type[Exception], ...],
        reads: list[Read],
    ) -> None:
        self._where, self._layer, self._refuse, self._slips = where, layer, refuse, slips
        self._reads, self._num_before = reads, len(reads)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        reads = self._reads[self._num_before :]
        del self._reads[self._num_before :]
        if error is None:
            return False
        if isinstance(error, UnsupportedFormError | UnknownRankError):
            self._refuse_form(error)
            return True
        if isinstance(error, InterposerError):
            self._locate(error, reads)
        elif isinstance(error, self._slips):
            message = f"it cannot be converted ({type(error).__name__}: {error})"
            raise self._error(message, error, reads) from error
        return False

    def _refuse_form(self, error: UnsupportedFormError | UnknownRankError) -> None:
        if self._refuse is None:
            raise ParseError(str(error), where=self._where) from error
        reason = "the rank of a tensor is not known before running"
        self._refuse(error if isinstance(error, UnsupportedFormError) else UnsupportedFormError(reason))

    def _locate(self, error: InterposerError, reads: Sequence[Read]) -> None:
        """Raise the error with the place of the node, unless it has one or is not about a node."""
        has_place = isinstance(error, ParseError) and bool(error.where)
        if not has_place and not isinstance(error, DamagedFileError | UnsupportedOperatorError):
            message, path = (error.message, error.path) if isinstance(error, ParseError) else (str(error), None)
            if isinstance(error, InvalidOperandError):
                raise InvalidOperandError(message, refusal=error.refusal, where=self._where, path=path) from error
            raise self._error(message, error, reads, path) from error

    def _error(self, text: str, cause: BaseException, reads: Sequence[Read], path: str | None = None) -> ParseError:
        """Return the error of the node, which is about the caller's values if its conversion has read some of them."""
        if not reads:
            return ParseError(text, where=self._where, path=path)
        refusal = value_error(text, cause, [(read.title, read.elements) for read in reads])
        tensor = next((read.tensor for read in reads if read.title == refusal.operand), "")
        refusal = refusal.of_layer(self._where, layer=self._layer, backend="", tensor=tensor)
        return InvalidOperandError(text, refusal=refusal, where=self._where, path=path)


class Importer:
    """Adds layers to the network of an import; results that follow from constants or shapes become constants.

    The importer of a subgraph has an `outer` importer, whose inputs and refusals it shares. It adds layers to the outer
    network, or to a network of its own, which becomes a region of a layer. In the latter case, values of the outer
    network that the subgraph uses are inputs of the region; `captured` lists them.
    """

    slips: ClassVar[tuple[type[Exception], ...]] = (ArithmeticError, LookupError, TypeError, ValueError)
    """The Python exceptions that a converter raises for a malformed node."""

    def __init__(self, network: Network, outer: Importer | None = None) -> None:
        self.network = network
        self.outer = outer
        self.captured: dict[Value, Value] = {}
        self.captures_shapes = True
        """False if a captured value has no known shape in the region, so that any shape must do."""
        self.refusals: Refusals = Refusals() if outer is None else outer.refusals
        self._folder: Folder = Folder(0) if outer is None else outer._folder
        self._inputs: set[Layer] = set() if outer is None else outer._inputs
        self._caller_values: set[Value] = set() if outer is None else outer._caller_values
        self._caller_reads: list[Read] = [] if outer is None else outer._caller_reads
        self._captured_by_input: dict[Layer, Value] = {} if outer is None else outer._captured_by_input
        same_network_importer = outer if outer is not None and outer.network is network else None
        self._dimensions: dict[Value, Array] = (
            {} if same_network_importer is None else same_network_importer._dimensions
        )
        self._reserved: set[str] = set() if same_network_importer is None else same_network_importer._reserved
        self._used: dict[str, int] = {} if same_network_importer is None else same_network_importer._used

    def reserve(self, names: set[str]) -> None:
        """Reserve names for layers that are added later; another layer that asks for one of them gets a suffix."""
        self._reserved = names

    # --- what is known ------------------------------------------------------------------------------------------------

    def fold_within(self, file_bytes: int) -> None:
        """Limit the memory of folded constants in proportion to the size of the file's own tensors."""
        self._folder = Folder(file_bytes)

    def add_input(self, value: Value) -> None:
        """Record that a value is an input of the model, whose shape or value the caller may give."""
        self._inputs.add(value.producer)

    def give(self, value: Value) -> None:
        """Record that the elements of a constant are those that the caller gave for an input.

        If a node cannot use them, or what follows from them, the error is an `InvalidOperandError`.
        """
        self._caller_values.add(value)

    def note_read(self, value: Value, title: str, elements: Array) -> None:
        """Record that the conversion of a node reads the elements of its operand `title`."""
        if value in self._caller_values and all(read.title != title for read in self._caller_reads):
            self._caller_reads.append(Read(title, value.name, elements))

    def _pass_on(self, operands: Sequence[Value | None], results: Iterable[Value]) -> None:
        """Record that results depend on the caller's values, if an operand does."""
        if self._caller_values and not self._caller_values.isdisjoint(operands):
            self._caller_values.update(results)

    @property
    def has_open_inputs(self) -> bool:
        """True if the shape of an input of the model is not known."""
        return any(not layer.output.known.is_concrete for layer in self._inputs)

    def dimensions_of(self, value: Value) -> Array | None:
        """Return the elements of a tensor that holds dimensions, such as a Reshape's shape; None if they are not known.

        Each element is an integer, or a `Dim` for an unknown dimension.
        """
        if value.constant is not None:
            return value.constant.astype(object) if value.constant.dtype.kind in "iu" else None
        return self._dimensions.get(value)

    def elements_of(self, value: Value, title: str) -> Array:
        """Return the elements of the operand `title` of a node, which must be known; refuse the node if they are not.

        The layers that compute the operand are evaluated now if all that they depend on is known, however expensive
        they are. The error names the inputs that determine the operand.

        Raises:
            InvalidOperandError: a layer that computes it cannot use the values that the caller gave.
            UnboundFormError: the value is known once some inputs have values or shapes.
            UnsupportedFormError: it is computed at run time, as in the body of a loop.
        """
        elements = value.constant
        if elements is None:
            elements = self._computed_elements(value, title)
        if elements is not None:
            self.note_read(value, title, elements)
            return elements
        for folds in (self._folder.takes, _is_pure):
            needs = needs_of(value, self._inputs, folds, self._captured_by_input)
            if needs is not None and (needs.values or self.has_open_inputs):
                raise UnboundFormError(f"its operand {title!r} is no constant", needs)
        raise UnsupportedFormError(f"its operand {title!r} is computed from data")

    def _computed_elements(self, value: Value, title: str) -> Array | None:
        try:
            return self._folder.elements(value, self._captured_by_input)
        except InvalidValueError as error:
            if value in self._caller_values:
                raise InvalidOperandError(str(error), refusal=error) from error
            raise UnsupportedFormError(f"its operand {title!r} cannot be computed: {error}") from error

    def needs(self, value: Value) -> Needs | None:
        """Return which inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """
        return needs_of(value, self._inputs, self._folder.takes)

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

    # --- nodes --------------------------------------------------------------------------------------------------------

    def conversion(
        self, where: str, refuse: Callable[[UnsupportedFormError], None] | None = None, layer: str = ""
    ) -> Conversion:
        """Convert a node in the body of this context: `refuse` is called if its form is not supported.

        `layer` is the name of the layer that the node becomes.

        Raises:
            ParseError: the node violates the format, or its form is not supported and `refuse` is None; `where` says
                in the error which node it is.
            InvalidOperandError: the node cannot use the caller's values.
        """
        return Conversion(where, layer, refuse, self.slips, self._caller_reads)

    def refuse(self, title: str, place: str, error: UnsupportedFormError, *, detail: str = "", hint: str = "") -> None:
        """Record that an operator cannot be converted, so that the final error lists it.

        It is listed as missing shapes or values of inputs if `error` says that these would make it supported.

        Args:
            title: the name of the operator.
            place: which node it is.
            error: why it is not supported; without a text, the operator is unknown.
            detail: more about the operator, such as its version.
            hint: what the user can do about an unknown operator.
        """
        if isinstance(error, UnboundFormError) and (error.needs.values or self.has_open_inputs):
            self.refusals.defer(title, place, str(error), error.needs, detail=detail)
            return
        reason = error.reason if isinstance(error, UnboundFormError) else str(error)
        self.refusals.refuse(title, place, reason or hint, detail=detail)

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    def capture(self, value: Value) -> Value:
        """Return what a value of the outer network is in this network, which is that of a region.

        A constant is added again, without a copy of its array. Any other value becomes an input of the region.
        """
        assert self.outer is not None
        if isinstance(value.producer.op, Constant):
            op, source = value.producer.op, value.producer.source
            inner = self.constant(op.value, value.name, source, value.known.quantization)
            self._pass_on([value], [inner])
            return inner
        if value not in self.captured:
            graph, info = self.network.graph, value.known
            if not self.captures_shapes and info.is_tensor:
                info = TensorInfo(UNRANKED, info.dtype)
            self.captured[value] = region_input = input_of_region(graph, len(graph.inputs), info, value.name)
            self._captured_by_input[region_input.producer] = value
            self._pass_on([value], [region_input])
            sizes = self.outer.dimensions_of(value) if self.captures_shapes else None
            if sizes is not None:
                self._dimensions[region_input] = sizes
        return self.captured[value]

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, name: str, source: str = "", quantization: Quantization | None = None) -> Value:
        """Add a constant with this array and quantization to the network, and return its value.

        `name` may get a number appended; `source` says in messages where the constant comes from. `ParseError` is
        raised if the quantization does not fit the array.
        """
        return self._added(Constant.of(share(array), quantization), (), name, source, ()).outputs[0]

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
        folded_results = None if quantization else self._folder.fold(op, operands)
        if folded_results is not None and all(info.is_tensor for info, _ in folded_results):
            constants = [self.constant(array, name, source, info.quantization) for info, array in folded_results]
            self._pass_on(operands, constants)
            return constants
        layer = self._added(op, operands, name, source, ())
        if quantization is not None:
            declare_quantization(layer.outputs[0], quantization)
        if self._dimensions or isinstance(op, Shape):
            self._note_dimensions(layer)
        for value, (info, array) in zip(layer.outputs, folded_results or (), strict=False):
            self._note_collection(value, info, array)
        return [value if value.constant is None else self._settled(value) for value in layer.outputs]

    def add_known(
        self, op: Op, operands: Sequence[Value], name: str, source: str, info: TensorInfo, *, declared: bool = False
    ) -> Value:
        """Add a layer without folding and inference, and return its only output, which has this info.

        The operator must accept the operands for certain, and inference must give this info. With `declared`, the
        quantization of the info cannot be inferred, and is declared.
        """
        outputs = (info,) if declared else ()
        layer = self.network.graph.add(op, operands, name=self._name(name), outputs=outputs, source=source)
        set_infos(layer, info)
        self._pass_on(operands, layer.outputs)
        return layer.outputs[0]

    def add_layer(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str,
        source: str,
        declared: Sequence[TensorInfo | None] = (),
    ) -> Layer:
        """Add a layer to the network without folding, and return it.

        `declared` are the infos of outputs that the file declares, None for those that are inferred. `ParseError` is
        raised if the operator does not accept the operands, or infers other infos.
        """
        return self._added(op.canonical(), operands, name, source, declared)

    def _added(
        self,
        op: Op,
        operands: Sequence[Value | None],
        name: str,
        source: str,
        declared_infos: Sequence[TensorInfo | None],
    ) -> Layer:
        layer = self.network.graph.add(op, operands, name=self._name(name), outputs=declared_infos, source=source)
        for error in infer_layer(layer):
            raise ParseError(error)
        if self._caller_values:
            self._pass_on(operands, layer.outputs)
        return layer

    def add_control(
        self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph], name: str, source: str
    ) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` to the network, and return its outputs.

        `source` says in messages where the layer comes from.
        """
        layer = self.network.graph.add(op, operands, name=self._name(name), source=source, regions=graphs)
        for error in infer_layer(layer):
            raise ParseError(error)
        self._pass_on(operands, layer.outputs)
        return list(layer.outputs)

    def _note_collection(self, value: Value, info: TensorInfo, array: Array) -> None:
        """Record the known contents of a sequence or an optional, whose layer was added since it cannot be a constant.

        Later operators can then be folded; the layer stays unused if all its consumers are.
        """
        value.info = info
        self._folder.note(value, array)

    def _name(self, requested_name: str) -> str:
        """Return the requested name of a layer, with a number appended from its second use on.

        A reserved name gets the suffix ``/layer``.
        """
        name = f"{requested_name}/layer" if requested_name in self._reserved else requested_name
        number = self._used.get(name, 0)
        self._used[name] = number + 1
        return f"{name}_{number}" if number else name

    def _settled(self, value: Value) -> Value:
        """Return a new constant for a value that inference determines (such as a shape), else the value itself."""
        if value.constant is None or value.is_constant:
            return value
        constant = self._constant(value.known, value.producer.name, value.producer.source)
        self._pass_on([value], [constant])
        return constant

    def _constant(self, info: TensorInfo, name: str, source: str) -> Value:
        assert info.constant is not None
        return self.constant(info.constant, name, source, info.quantization)

    def _note_dimensions(self, layer: Layer) -> None:
        if isinstance(layer.op, Shape) and layer.values[0].known.is_ranked:
            dims = np.empty(layer.values[0].known.rank, object)
            dims[:] = layer.values[0].known.shape
            self._dimensions[layer.output] = dims
        elif self._dimensions and any(value in self._dimensions for value in layer.values):
            dimensions = fold_dimensions(layer.op, [self.dimensions_of(value) for value in layer.values])
            self._dimensions.update(zip(layer.outputs, dimensions or (), strict=False))


def _is_pure(op: Op) -> bool:
    return op.pure


def input_of_region(graph: Graph, number: int, info: TensorInfo, name: str, source: str = "") -> Value:
    """Return a new input of a region, with the binding id `number` and the info of the value that it receives.

    This info may be more precise than what the model declares. `source` says in messages where the input comes from.
    """
    layer = graph.add(Input(number), name=name, source=source)
    layer.output.info = info
    return layer.output


# --- names in the file ------------------------------------------------------------------------------------------------


RETAINED_ELEMENTS: Final = 4096
"""The largest size of a folded tensor that remains accessible by its name when no layer uses it."""


def keep_names(graph: Graph, named: Iterable[tuple[str, Value]]) -> None:
    """Record on the values of a graph the names of the file's tensors that they represent.

    A value that is no longer in the graph, because all its consumers were constant-folded, is added to
    `Graph.folded` if it is a small constant. Values of other graphs are ignored.
    """
    folded_infos = dict(graph.folded)
    for name, value in named:
        if value.producer in graph:
            value.aliases = tuple(dict.fromkeys([*value.aliases, name]))
        elif value.constant is not None and value.constant.size <= RETAINED_ELEMENTS:
            folded_infos[name] = value.known
    graph.folded = folded_infos
