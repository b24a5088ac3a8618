"""The conversion of an fx graph of ATen operators to a network, node by node."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, UnboundInputError
from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo
from interposer.frontends.importer import keep_names
from interposer.frontends.torch.call import Call, SubgraphImport
from interposer.frontends.torch.computed import computed, constant_nodes, is_computable
from interposer.frontends.torch.examples import without_guesses
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.places import layer_name, place_of
from interposer.frontends.torch.registry import Entry, find, refusal
from interposer.frontends.torch.sizes import is_symbolic, number_of, shape_of, size_of, symbols_of
from interposer.frontends.torch.sources import Fixed, Imported, Produced, Result, Source, StateBuffer, UserInput, Weight
from interposer.frontends.torch.spectral import BY_PARTS, complex_of, part_of
from interposer.frontends.torch.tensors import array_of, data_type, key_of
from interposer.frontends.unsupported import UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network
from interposer.ops.control import Constant
from interposer.ops.quantization import Cast

__all__ = ["GraphImport", "import_graph", "is_functional", "is_missing", "missing_operators", "title_of"]

_IGNORED: Final = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"})
_WITHOUT_RESULT: Final = frozenset(
    {
        "aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten._assert_async.msg",
        "aten._assert_async.default", "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
        "aten._functional_assert_async.msg", "aten._functional_assert_scalar.default",
        "aten._functional_sym_constrain_range.default", "aten._functional_sym_constrain_range_for_size.default",
        "aten._print.default",
    }
)  # fmt: skip


_KEEPS_SCALES: Final = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "permute.default", "transpose.int", "expand.default", "slice.Tensor", "select.int",
        "clone.default",
        "squeeze.dim", "squeeze.dims", "unsqueeze.default", "max_pool2d.default", "alias.default", "detach.default",
        "split_with_sizes.default", "split.Tensor", "unbind.int", "flip.default", "contiguous.default", "t.default",
    )
)  # fmt: skip
"""Operators that only move or compare elements, so that quantized values stay quantized."""


class _Missing:
    """The value of a node that cannot be converted."""


_MISSING: Final = _Missing()


def import_graph(
    graph: Any,
    sources: Mapping[str, Source],
    *,
    name: str = "network",
    sizes: Mapping[str, int] | None = None,
    output_names: Sequence[str] = (),
    states: Mapping[int, str] | None = None,
) -> Imported:
    """Return the network of a functional ATen graph, and what each output of the graph became.

    Args:
        graph: a ``torch.fx.GraphModule`` whose nodes have ``meta["val"]``, as of an exported program after
            ``run_decompositions``, or of ``aot_autograd``.
        sources: for each placeholder, by its node's name, what it stands for.
        name: the network's name.
        sizes: values of symbolic sizes by the symbol's name, such as ``{"s0": 4}``. Other symbols become unknown
            dimensions with their name.
        output_names: a name for each output of the graph; by default ``output_0`` and so on.
        states: which outputs of the graph set a state instead of being returned: the name of the state by the index of
            the output. They are `Fixed` in the result.

    Raises:
        UnsupportedOperatorError: operators are not supported; the error lists all of them.
        UnboundInputError: operators require sizes that `sizes` does not have.
        ParseError: the graph violates the format, or a constant cannot be read.
    """
    importer = GraphImport(Network(name), graph, sizes or {})
    importer.bind(sources)
    results = importer.convert()
    outputs = importer.finish(results, output_names, states or {})
    return Imported(importer.network, outputs)


class GraphImport(SubgraphImport):
    """Converts the nodes of one fx graph; `sizes` are the known symbols by name."""

    slips = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)

    def __init__(
        self, network: Network, module: Any, sizes: Mapping[str, int], outer: GraphImport | None = None
    ) -> None:
        super().__init__(network, outer)
        self.module, self.graph, self.known = module, module.graph, dict(sizes)
        self.values: dict[Any, Any] = {}
        self._weights: dict[tuple[Any, ...], Value] = {}

    def constant(self, array: Array, name: str, source: str = "", quantization: Quantization | None = None) -> Value:
        """Add a constant, and return its value.

        Unlike other imports, this one never shares its memory with an equal constant: it may be a view of a weight,
        which a program may change in place.
        """
        op = Constant(array, quantization)
        return self.network.add_layer(op, name=self._name(name), source=source).output

    # --- placeholders -------------------------------------------------------------------------------------------------

    def bind(self, sources: Mapping[str, Source]) -> None:
        """Define the placeholders of the graph from what they stand for."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        weight_bytes = sum(_bytes(source) for source in sources.values())
        self.fold_within(weight_bytes)
        self.reserve({source.name for source in sources.values() if isinstance(source, UserInput)})
        for node in placeholders:
            source = sources.get(node.name)
            if source is None:
                raise InvalidArgumentError(f"the placeholder {node.name!r} of the graph has no source")
            self.values[node] = self._bound(node, source)

    def _bound(self, node: Any, source: Source) -> Any:
        if isinstance(source, Fixed):
            return source.value
        if isinstance(source, Weight):
            return self.weight(source.tensor, source.name)
        if isinstance(source, StateBuffer):
            array = array_of(source.tensor, f"the buffer {source.name!r}")
            return self.network.add_state(source.name, TensorInfo.of(array), np.array(array)).output
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor):
            info = TensorInfo(shape_of(example, self.known), data_type(example.dtype))
        else:
            number = number_of(example, self.known)
            if number is not None:
                return number
            kinds = {torch.SymFloat: DataType.FLOAT64, torch.SymBool: DataType.BOOL}
            info = TensorInfo((), kinds.get(type(example), DataType.INT64))
        layer = self.network.add_input_layer(len(self.network.graph.inputs), info, source.name)
        self.add_input(layer.output)
        return layer.output

    def weight(self, tensor: Any, name: str) -> Value:
        """Return the constant for a tensor, whose memory is shared; tied weights are one constant."""
        key = key_of(tensor)
        if key is not None and key in self._weights:
            return self._weights[key]
        array = array_of(tensor, f"the tensor {name!r}")  # not shared with equal constants, as it may change in place
        value = self.network.add_layer(Constant(array), name=self._name(name), source=f"tensor {name!r}").output
        if key is not None:
            self._weights[key] = value
        return value

    # --- nodes --------------------------------------------------------------------------------------------------------

    def convert(self) -> list[Any]:
        """Convert all nodes, and return the outputs of the graph: values, numbers or None."""
        results = self.run()
        self.refusals.check()
        return results

    def run(self) -> list[Any]:
        """Convert all nodes without raising for unsupported ones, and return the outputs of the graph."""
        results: list[Any] = []
        with np.errstate(all="ignore"), without_guesses(self.graph):
            for node in self.graph.nodes:
                if node.op == "output":
                    results = _flat(self.resolved(node.args[0]))
                elif node.op == "get_attr":
                    self.values[node] = self._attribute(node)
                elif node.op == "call_function":
                    self._convert_node(node)
                elif node.op != "placeholder":
                    self._refuse(node, node.op, UnsupportedFormError("the graph must have ATen operators only"))
        return results

    def _attribute(self, node: Any) -> Any:
        attribute: Any = self.module
        for name in node.target.split("."):
            attribute = getattr(attribute, name)
        if isinstance(attribute, torch.Tensor):
            return self.weight(attribute, node.target)
        return attribute

    def resolved(self, argument: Any) -> Any:
        """Return an argument of a node with values of the network instead of nodes."""
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return [self.resolved(element) for element in argument]
        if isinstance(argument, dict):
            return {key: self.resolved(element) for key, element in argument.items()}
        if is_symbolic(argument):
            number = number_of(argument, self.known)
            return size_of(argument, self.known) if number is None else number
        return argument

    def _convert_node(self, node: Any) -> None:
        title = title_of(node.target)
        if title in _WITHOUT_RESULT:
            self.values[node] = None
            return
        if any(self.values.get(operand) is _MISSING for operand in node.all_input_nodes):
            self._survey(node, title)
            return
        number = self._number(node)
        if number is not None:
            self.values[node] = number
            return
        with self.conversion(place_of(node), partial(self._compute_or_refuse, node, title)):
            self.values[node] = self._converted(node, title)

    def _compute_or_refuse(self, node: Any, title: str, error: UnsupportedFormError) -> None:
        """Let PyTorch compute a node whose form is not supported, if its operands are constants; else refuse it."""
        computation = computed(node, self.values, place_of(node))
        if computation is None:
            self._refuse(node, title, error)
        else:
            self.values[node] = self._constants(computation, node)

    def _constants(self, output: Any, node: Any) -> Any:
        """Return arrays, numbers or lists of these, with a constant of the network for each array."""
        if isinstance(output, list):
            return [self._constants(element, node) for element in output]
        return self.constant(output, layer_name(node), place_of(node)) if isinstance(output, np.ndarray) else output

    def _number(self, node: Any) -> Any:
        """Return the result of a node that is a symbolic number of known value, else None."""
        example = node.meta.get("val")
        return number_of(example, self.known) if is_symbolic(example) or isinstance(example, int | float) else None

    def _converted(self, node: Any, title: str) -> Any:
        if node.target is operator.getitem:
            return self.resolved(node.args[0])[node.args[1]]
        call = Call(self, node, layer_name(node), place_of(node))
        is_complex = _is_complex(node)
        entry = find(title, is_complex)
        if entry is not None:
            return self._named(self._result(node, call, entry, self.resolved), call.name)
        entry = find(title)
        if entry is None or title not in BY_PARTS:
            raise UnsupportedFormError("it has complex operands" if entry else refusal(title))
        parts = [self._result(node, call, entry, partial(self._parts, call, index)) for index in (0, 1)]
        if isinstance(parts[0], list):
            return [complex_of(call, *pair) for pair in zip(*parts, strict=True)]
        return complex_of(call, *parts)

    def _result(self, node: Any, call: Call, entry: Entry, resolve: Callable[[Any], Any]) -> Any:
        args, kwargs = self._arguments(node, call, entry, resolve)
        return entry.convert(call, *args, **kwargs)

    def _parts(self, call: Call, index: int, arguments: Any) -> Any:
        """Return the positional or the keyword arguments of a node with the real or the imaginary parts of operands."""
        if isinstance(arguments, dict):
            return {key: self._part(call, index, argument) for key, argument in arguments.items()}
        complex_operands = BY_PARTS[title_of(call.node.target)] if index else ()
        parts = [self._part(call, index, argument) for argument in arguments]
        return [
            self._imaginary(call, argument, part) if position in complex_operands else part
            for position, (argument, part) in enumerate(zip(arguments, parts, strict=True))
        ]

    def _imaginary(self, call: Call, argument: Any, part: Any) -> Any:
        """Return the imaginary part of an operand of complex numbers: 0 for floats, also in tensors."""
        if isinstance(argument, list | tuple):
            return [self._imaginary(call, *pair) for pair in zip(argument, part, strict=True)]
        if isinstance(argument, torch.fx.Node):
            example = argument.meta.get("val")
            if isinstance(example, torch.Tensor) and example.is_complex():
                return part
            dtype = part.known.dtype
            return call.broadcast(call.scalar(0, dtype), list(call.shape(part)))
        return part if isinstance(argument, complex) else 0

    def _part(self, call: Call, index: int, argument: Any) -> Any:
        """Return an argument as `resolved` does, with the real (0) or imaginary (1) part of each complex tensor."""
        if isinstance(argument, torch.fx.Node):
            value, example = self.values[argument], argument.meta.get("val")
            is_complex = isinstance(example, torch.Tensor) and example.is_complex()
            return part_of(call, value, index) if is_complex else value
        if isinstance(argument, list | tuple):
            return [self._part(call, index, element) for element in argument]
        if isinstance(argument, dict):
            return {key: self._part(call, index, element) for key, element in argument.items()}
        return (argument.real, argument.imag)[index] if isinstance(argument, complex) else self.resolved(argument)

    def _arguments(
        self, node: Any, call: Call, entry: Entry, resolve: Callable[[Any], Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword-only arguments of a node, defaults of its schema included."""
        args, kwargs = resolve(node.args), resolve(node.kwargs)
        if not title_of(node.target).startswith("quantized_decomposed.") and title_of(node.target) not in _KEEPS_SCALES:
            args, kwargs = self._plain(args, call), self._plain(kwargs, call)
        if not entry.open_sizes and any(isinstance(size, Dim) for size in _flat([args, *kwargs.values()])):
            call.open_shape("one of its sizes is not known")
        schema = getattr(node.target, "_schema", None)
        if schema is None or not isinstance(node.target, torch._ops.OpOverload):
            return args, kwargs
        positional, keyword_only = list(args), dict[str, Any]()
        for index, argument in enumerate(schema.arguments):
            if index < len(args) and not argument.kwarg_only:
                continue
            argument_value = kwargs.get(argument.name, argument.default_value)
            if not argument.kwarg_only:
                positional.append(argument_value)
            elif argument.name not in _IGNORED:
                keyword_only[argument.name] = argument_value
        return positional, keyword_only

    def _plain(self, argument: Any, call: Call) -> Any:
        """Return arguments with quantized values as plain integers, for operators that compute with integers."""
        if isinstance(argument, Value):
            return argument if argument.known.quantization is None else call.step(Cast(argument.known.dtype), argument)
        if isinstance(argument, list):
            return [self._plain(element, call) for element in argument]
        if isinstance(argument, dict):
            return {key: self._plain(element, call) for key, element in argument.items()}
        return argument

    def _named(self, output: Any, name: str) -> Any:
        """Give the layer that produces the only result of a node the node's name, if the node has added it."""
        if isinstance(output, Value):
            layer = output.producer
            if layer.name.startswith(f"{name}/") and layer in self.network.graph:
                self.network.graph.rename(layer, name)
        return output

    def _survey(self, node: Any, title: str) -> None:
        """Record a node that cannot be converted as unsupported if its operator is unknown."""
        if node.target is not operator.getitem and find(title) is None and find(title, True) is None:
            self._refuse(node, title, UnsupportedFormError(refusal(title)))
        self.values[node] = _MISSING

    def _refuse(self, node: Any, title: str, error: UnsupportedFormError) -> None:
        self.values[node] = _MISSING
        if isinstance(error, UnboundFormError) and not _from_data(node):
            self.refusals.defer(title, place_of(node), str(error), error.needs)
            return
        reason = error.reason if isinstance(error, UnboundFormError) else str(error)
        self.refusals.refuse(title, place_of(node), reason)

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    def _inner(self, network: Network, module: Any) -> GraphImport:
        """Return an import of a graph module of control flow into a network: this one, or that of a region."""
        inner_import = GraphImport(network, module, self.known, self)
        if network is self.network:
            inner_import._weights = self._weights
        return inner_import

    def inlined(self, module: Any, operands: Sequence[Any]) -> list[Any]:
        inner_import = self._inner(self.network, module)
        inner_import.define(operands)
        return _checked(inner_import.run())

    def applied(self, call: Call, operator: Any, operands: Sequence[Any], dtype: Any) -> Any:
        title = title_of(operator)
        entry = find(title)
        if entry is None:
            raise UnsupportedFormError(f"{title} is not supported")
        example = call.val
        with example.fake_mode:
            meta = {"val": torch.empty_like(example, dtype=dtype)}
        node = SimpleNamespace(target=operator, args=operands, kwargs={}, meta=meta, name=call.node.name)
        return self._result(node, Call(self, node, call.name, call.source), entry, lambda argument: argument)

    def region(self, module: Any, operands: Sequence[Any], infos: Sequence[TensorInfo]) -> Graph:
        network = Network(str(getattr(module, "_get_name", lambda: "region")()))
        inner_import, remaining_infos = self._inner(network, module), iter(infos)
        region_operands = [
            _region_input(network, next(remaining_infos)) if isinstance(operand, Value) else operand
            for operand in operands
        ]
        inner_import.define(region_operands)
        for number, value in enumerate(_checked(inner_import.run())):
            output = value if isinstance(value, Value) else inner_import.constant(np.asarray(value), f"result_{number}")
            network.add_output_layer(number, output, name=f"result_{number}")
        network.graph.erase_dead()
        return network.graph

    def define(self, operands: Sequence[Any]) -> None:
        """Let the placeholders of the graph stand for operands, in order."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.values.update(zip(placeholders, operands, strict=True))

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _output(self, output: Any, node: Any, name: str) -> Produced:
        """Add the output layer for the result of a node: a value, or a number, which becomes a constant."""
        if isinstance(output, Dim):
            raise UnboundInputError({node.name: 1}, (), shapes=True)
        value = output if isinstance(output, Value) else self.constant(np.asarray(output), f"{name}/constant")
        binding_id = len(self.network.graph.outputs)
        self.network.add_output_layer(binding_id, value, name=name)
        example = node.meta.get("val")
        is_tensor = isinstance(example, torch.Tensor)
        return Produced(binding_id, not is_tensor, is_tensor and example.is_complex())

    def finish(self, results: Sequence[Any], names: Sequence[str], states: Mapping[int, str]) -> tuple[Result, ...]:
        """Add the output layers and set the states; return what each output of the graph became."""
        nodes = _flat(next(node for node in self.graph.nodes if node.op == "output").args[0])
        outputs: list[Result] = []
        for index, (output, node) in enumerate(zip(results, nodes, strict=True)):
            if index in states:
                assert isinstance(output, Value)
                self.network.set_state(states[index], output)
                outputs.append(Fixed(None))
            elif not isinstance(node, torch.fx.Node) or output is None:
                outputs.append(Fixed(output))
            else:
                name = names[index] if index < len(names) else f"output_{index}"
                outputs.append(self._output(output, node, name))
        self.network.graph.erase_dead()
        named_values = [(node.name, value) for node, value in self.values.items() if isinstance(value, Value)]
        keep_names(self.network.graph, named_values)
        return tuple(outputs)


def _region_input(network: Network, info: TensorInfo) -> Value:
    number = len(network.graph.inputs)
    return network.add_input_layer(number, info, name=f"operand_{number}").output


def _checked(outputs: list[Any]) -> list[Any]:
    """Return the results of a subgraph; refuse the node around it, without a reason of its own, if one is missing."""
    if any(output is _MISSING for output in outputs):
        raise UnsupportedFormError("an operator in its graph is not supported")
    return outputs


def missing_operators(module: Any, constants: Collection[Any] = ()) -> dict[str, int]:
    """Return how often each operator without a converter occurs in an fx graph, by its full name.

    Operators that depend on nothing but `constants`, a collection of placeholders, are computed by PyTorch.
    """
    computed_nodes = {node for node in constant_nodes(module.graph, constants) if is_computable(node.target)}
    nodes = (node for node in module.graph.nodes if node not in computed_nodes and is_missing(node))
    return dict(Counter(title_of(node.target) for node in nodes))


def is_missing(node: Any) -> bool:
    """Return True if a node calls an operator without a converter for its operands."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    title = title_of(node.target)
    if title in _WITHOUT_RESULT or title.startswith(("operator.", "math.", "torch.sym_")):
        return False
    return not _is_known(title, node)


def _is_known(title: str, node: Any) -> bool:
    """Return True if the operator of a node has a converter for its operands, which may be complex."""
    if not _is_complex(node):
        return find(title) is not None
    return find(title, True) is not None or (title in BY_PARTS and find(title) is not None)


def is_functional(module: Any) -> bool:
    """Return True if no operator of an fx graph writes to its operands, and none has graphs of its own."""
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    return not any(isinstance(target, torch._ops.HigherOrderOperator) or _writes(target) for target in targets)


def _writes(function: Any) -> bool:
    return isinstance(function, torch._ops.OpOverload) and bool(function._schema.is_mutable)


def title_of(target: Any) -> str:
    """Return the full name of an operator, such as ``aten.add.Tensor`` or ``operator.mul``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__name__", str(target))
    return f"{module.removeprefix('_')}.{name}"


def _bytes(source: Source) -> int:
    return int(source.tensor.nbytes) if isinstance(source, Weight) and source.tensor.layout is torch.strided else 0


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, list | tuple):
        return [leaf for branch in tree for leaf in _flat(branch)]
    return [tree]


def _is_complex(node: Any) -> bool:
    """Return True if an operand or a result of a node is a complex tensor."""
    examples = [node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)]
    return any(isinstance(example, torch.Tensor) and example.is_complex() for example in _flat(examples))


def _from_data(node: Any) -> bool:
    """Return True if a size of a node's operands or results is only known at run time, whatever the inputs' shapes."""
    examples = _flat([node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)])
    sizes = [size for example in examples if isinstance(example, torch.Tensor) for size in example.shape]
    numbers = [*sizes, *(example for example in examples if is_symbolic(example))]
    return any(symbol.startswith("u") for number in numbers for symbol in symbols_of(number))
