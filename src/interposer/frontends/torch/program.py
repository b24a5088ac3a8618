"""`load` and `template`: an exported program of PyTorch as a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, ParseError, UnboundInputError
from interposer.core.records import dataclass
from interposer.core.types import Dim, TensorInfo, TensorShape
from interposer.frontends.resizing import resized
from interposer.frontends.template import Shapes, Template, Values, check_names, value_of
from interposer.frontends.torch.examples import with_sizes
from interposer.frontends.torch.functional import functional
from interposer.frontends.torch.graph import import_graph
from interposer.frontends.torch.package import pytree, torch
from interposer.frontends.torch.sizes import bound_symbols, is_symbolic, number_of, shape_of, symbols_of
from interposer.frontends.torch.sources import Fixed, Imported, Source, StateBuffer, UserInput, Weight
from interposer.frontends.torch.tensors import data_type
from interposer.ir.network import Network

__all__ = [
    "Argument", "Program", "Returned", "load", "read", "template",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a program, in the order of the flat ``in_spec``: keyword arguments after the positional ones.

    `name` is that of the network's input, or empty if the argument is none: then `value` is what the export has baked
    in, such as a number or None. `is_number` is True for a symbolic number, which is given as a tensor of rank 0.
    `dtype` is the ``torch.dtype`` of a tensor, else None.
    """

    name: str
    value: Any = None
    is_number: bool = False
    dtype: Any = None


@dataclass(frozen=True, slots=True)
class Returned:
    """A result of a program, in the order of the flat ``out_spec``.

    `name` is that of the network's output. It is empty for a Python value, which is `value`. `is_number` is True if the
    program returns a Python number. `is_complex` is True if the output has real and imaginary part as its last axis.
    """

    name: str
    value: Any = None
    is_number: bool = False
    is_complex: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A functional exported program: its graph, what the placeholders are, and its calling convention.

    `mutated_inputs` has for each user input that the program changes in place the name of the network's output with the
    new contents. `states` are the names of the buffers and parameters that it changes. `strided_inputs` are the user
    inputs whose memory the program reads by `as_strided`, as if they were contiguous.
    """

    module: Any
    name: str
    sources: Mapping[str, Source]
    arguments: tuple[Argument, ...]
    results: tuple[Returned, ...]
    returned_names: tuple[str, ...]
    set_states: Mapping[int, str]
    mutated_inputs: Mapping[str, str]
    strided_inputs: frozenset[str]
    in_spec: Any
    out_spec: Any
    ranges: Mapping[str, tuple[int, int | None]]

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states of the network, which are the buffers that the program changes."""
        return tuple(self.set_states.values())

    def imported(self, sizes: Mapping[str, int] | None = None, values: Values | None = None) -> Imported:
        """Return the network for these values of symbolic sizes; inputs named in `values` become constants."""
        return import_graph(
            with_sizes(self.module, sizes) if sizes else self.module,
            {node: self._source(source, values or {}) for node, source in self.sources.items()},
            name=self.name,
            sizes=sizes,
            output_names=self.returned_names,
            states=self.set_states,
        )

    def _source(self, source: Source, values: Values) -> Source:
        if isinstance(source, UserInput) and source.name in values:
            return Weight(source.name, torch.as_tensor(values[source.name]))
        return source


def read(program: Any, name: str = "") -> Program:
    """Return a ``torch.export.ExportedProgram`` in functional form, with its calling convention.

    Raises:
        InvalidArgumentError: it is not an exported program.
        ParseError: it is in training mode, or takes objects that are not supported.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        raise InvalidArgumentError(f"a torch.export.ExportedProgram is expected, not {type(program).__name__}")
    functional_program = functional(program)
    signature = functional_program.graph_signature
    mutated_inputs = _mutated(signature)
    sources = {spec.arg.name: _source(functional_program, spec, mutated_inputs) for spec in signature.input_specs}
    nodes = {node.name: node for node in functional_program.graph.nodes if node.op == "placeholder"}
    arguments = [_argument(nodes, spec) for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    spec = functional_program.call_spec
    output_names = _output_names(signature, spec.out_spec)
    return Program(
        module=functional_program.graph_module,
        name=name or _title(functional_program),
        sources=sources,
        arguments=tuple(arguments),
        results=_results(functional_program, output_names),
        returned_names=output_names,
        set_states={
            i: mutated_inputs[s.target] for i, s in enumerate(signature.output_specs) if s.kind.name in _STATE_OUTPUTS
        },
        mutated_inputs=_mutated_inputs(signature),
        strided_inputs=frozenset(_strided_inputs(functional_program.graph_module)),
        in_spec=spec.in_spec,
        out_spec=spec.out_spec,
        ranges=_ranges(functional_program),
    )


_STATE_OUTPUTS: Final = frozenset({"BUFFER_MUTATION", "PARAMETER_MUTATION"})


def _title(program: Any) -> str:
    stacks = (node.meta.get("nn_module_stack") for node in program.graph.nodes)
    outermost_modules = [outermost for stack in stacks if stack for outermost in list(stack.values())[:1]]
    class_names = [str(class_name).rpartition(".")[2] for path, class_name in outermost_modules if not str(path)]
    return next((class_name for class_name in class_names if not class_name.startswith("_")), "network")


def _mutated(signature: Any) -> dict[str, str]:
    """Return the names of the states, by the targets of the buffers and parameters that the program changes."""
    targets = [spec.target for spec in signature.output_specs if spec.kind.name in _STATE_OUTPUTS]
    return {target: target for target in targets}


def _mutated_inputs(signature: Any) -> dict[str, str]:
    return {
        spec.target: _mutation_name(spec.target)
        for spec in signature.output_specs
        if spec.kind.name == "USER_INPUT_MUTATION"
    }


def _strided_inputs(module: Any) -> Iterator[str]:
    """Yield the placeholders that `as_strided` reads, directly or through operators that may keep their strides."""
    for node in module.graph.nodes:
        if getattr(getattr(node.target, "_schema", None), "name", "") in _STRIDED:
            base_node = node.args[0]
            while base_node.op == "call_function" and base_node.args and isinstance(base_node.args[0], torch.fx.Node):
                base_node = base_node.args[0]
            if base_node.op == "placeholder":
                yield base_node.name


_STRIDED: Final = frozenset({"aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"})


def _mutation_name(name: str) -> str:
    return f"{name}_after"


def _source(program: Any, spec: Any, mutated: Mapping[str, str]) -> Source:
    """Return what an input of the graph stands for."""
    if spec.kind.name == "USER_INPUT":
        is_baked = type(spec.arg).__name__ == "ConstantArgument"
        return Fixed(spec.arg.value) if is_baked else UserInput(spec.arg.name)
    if spec.kind.name in {"PARAMETER", "BUFFER", "CONSTANT_TENSOR"}:
        tensors = program.state_dict if spec.target in program.state_dict else program.constants
        if spec.target not in tensors:
            raise ParseError(f"the program has no tensor {spec.target!r}")
        tensor = tensors[spec.target]
        if spec.target in mutated:  # a copy, as the module may go on changing its buffer
            return StateBuffer(mutated[spec.target], tensor.detach().clone())
        return Weight(spec.target, tensor)
    if spec.kind.name == "TOKEN":
        return Fixed(None)
    raise ParseError(f"the input {spec.arg.name!r} is an object of type {spec.kind.name}; tensors are supported")


def _argument(nodes: Mapping[str, Any], spec: Any) -> Argument:
    if type(spec.arg).__name__ == "ConstantArgument":
        return Argument("", spec.arg.value)
    example = nodes[spec.arg.name].meta.get("val") if spec.arg.name in nodes else None
    is_number = type(spec.arg).__name__ != "TensorArgument"
    return Argument(spec.arg.name, None, is_number, getattr(example, "dtype", None))


def _output_names(signature: Any, out_spec: Any) -> tuple[str, ...]:
    """Return a name for each output of the graph: of mutations, and of the user's results by their place."""
    specs = signature.output_specs
    count = sum(spec.kind.name == "USER_OUTPUT" for spec in specs)
    input_names = {spec.arg.name for spec in signature.input_specs}
    results = iter(_result_names(out_spec, count))
    names = []
    for spec in specs:
        name = next(results) if spec.kind.name == "USER_OUTPUT" else _mutation_name(str(spec.target))
        while name in input_names:
            name += "_"
        input_names.add(name)
        names.append(name)
    return tuple(names)


def _results(program: Any, names: Sequence[str]) -> tuple[Returned, ...]:
    """Return what the user's results are, from the specifications of the outputs and the outputs' names."""
    nodes = next(node for node in program.graph.nodes if node.op == "output").args[0]
    specs = zip(program.graph_signature.output_specs, nodes, names, strict=True)
    return tuple(_result(spec.arg, node, name) for spec, node, name in specs if spec.kind.name == "USER_OUTPUT")


def _result(argument: Any, node: Any, name: str) -> Returned:
    if type(argument).__name__ == "ConstantArgument":
        return Returned("", argument.value)
    example = node.meta.get("val")
    is_tensor = isinstance(example, torch.Tensor)
    return Returned(name, None, not is_tensor, is_tensor and example.is_complex())


def _result_names(out_spec: Any, count: int) -> list[str]:
    """Return a name for each result from its keys in the structure, as in ``last_hidden_state`` or ``output_0``."""
    default = ["output"] if count == 1 else [f"output_{index}" for index in range(count)]
    try:
        tree = pytree.tree_unflatten(list(range(count)), out_spec)
        paths, _ = pytree.tree_flatten_with_path(tree)
    except Exception:
        return default
    names = dict[int, str]()
    for path, index in paths:
        key_texts = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        name = "_".join(filter(None, key_texts))
        names[index] = f"output_{name}" if name[:1].isdigit() else name
    return [names.get(index) or default[index] for index in range(count)]


def _ranges(program: Any) -> dict[str, tuple[int, int | None]]:
    """Return the smallest and the largest value of each symbolic size; None is no limit."""
    ranges = dict[str, tuple[int, int | None]]()
    for symbol, bounds in program.range_constraints.items():
        try:
            low, high = int(bounds.lower), int(bounds.upper) if bounds.upper.is_finite else None
        except (AttributeError, OverflowError, TypeError, ValueError):
            continue
        ranges[str(symbol)] = low, high
    return ranges


def template(program: Any, shapes: Shapes | None = None, *, name: str = "") -> Template:
    """Return a template that builds the network of an exported program for given shapes of its inputs.

    Args:
        program: a ``torch.export.ExportedProgram``, or the result of `read`.
        shapes: shapes of inputs by name, or sizes of named dimensions.
        name: the network's name; by default that of the module's class.

    Raises:
        InvalidArgumentError: the shapes do not fit the program.
    """
    parsed_program = program if isinstance(program, Program) else read(program, name)
    given_shapes = dict(shapes or {})

    def build(more_shapes: Shapes, values: Values) -> Network:
        arrays = _arrays(parsed_program, values)
        sizes = bound_sizes(
            parsed_program, {**given_shapes, **more_shapes, **{key: array.shape for key, array in arrays.items()}}
        )
        unknown = {
            str(dim) for info in inputs_of(parsed_program, sizes).values() for dim in info.shape if isinstance(dim, Dim)
        }
        if unknown:  # the sizes of each call are checked against the program's constraints
            raise UnboundInputError(dict.fromkeys(sorted(unknown), 1), (), shapes=True)
        return parsed_program.imported(sizes, arrays).network

    def example() -> Network:
        ranges = parsed_program.ranges.items()
        small_sizes = {name: max(low, 2 if high is None else min(2, high)) for name, (low, high) in ranges}
        return parsed_program.imported({**small_sizes, **sizes}, {}).network

    sizes = bound_sizes(parsed_program, given_shapes)
    inputs, outputs = inputs_of(parsed_program, sizes), dict.fromkeys(_network_outputs(parsed_program))
    has_states = bool(parsed_program.states)
    return Template(parsed_program.name, inputs, outputs, build, has_states=has_states, example=example)


def _network_outputs(program: Program) -> list[str]:
    """Return the names of the network's outputs in order: inputs that are changed in place, then the results."""
    return [*program.mutated_inputs.values(), *(result.name for result in program.results if result.name)]


def load(program: Any, shapes: Shapes | None = None, values: Values | None = None, *, name: str = "") -> Network:
    """Return the network of an exported program.

    The network's constants share the memory of the program's weights. Buffers that the program changes are states of
    the network. Complex inputs and outputs have real and imaginary part as their last axis.

    Args:
        program: a ``torch.export.ExportedProgram``.
        shapes: shapes of inputs by name, or sizes of symbolic dimensions by name; others stay unknown dimensions.
        values: values of inputs by name; these inputs become constants.
        name: the network's name; by default that of the module's class.

    Raises:
        UnsupportedOperatorError: operators are not supported; the error lists all of them.
        UnboundInputError: operators require shapes of inputs that are not given.
        ParseError: a weight cannot be read.
        InvalidArgumentError: the argument is not an exported program, or shapes or values do not fit it.
    """
    parsed_program = program if isinstance(program, Program) else read(program, name)
    arrays = _arrays(parsed_program, values or {})
    sizes = bound_sizes(parsed_program, {**(shapes or {}), **{key: array.shape for key, array in arrays.items()}})
    return parsed_program.imported(sizes, arrays).network


def _arrays(program: Program, values: Values) -> dict[str, Any]:
    """Return the caller's values of inputs as arrays of the types of the inputs."""
    infos = inputs_of(program)
    check_names(values, infos)
    return {name: value_of(name, infos[name], value) for name, value in values.items()}


def inputs_of(program: Program, sizes: Mapping[str, int] | None = None) -> dict[str, TensorInfo]:
    """Return the infos of the network's inputs by name; `sizes` are the known symbols."""
    infos = dict[str, TensorInfo]()
    for node in program.module.graph.nodes:
        source = program.sources.get(node.name) if node.op == "placeholder" else None
        if isinstance(source, UserInput):
            example = node.meta.get("val")
            if isinstance(example, torch.Tensor):
                infos[source.name] = TensorInfo(shape_of(example, sizes or {}), data_type(example.dtype))
            elif number_of(example, sizes or {}) is None:
                infos[source.name] = TensorInfo((), "int64")
    return infos


def bound_sizes(program: Program, shapes: Shapes) -> dict[str, int]:
    """Return the values of symbolic sizes for shapes of inputs by name, or for sizes by the names of symbols.

    Raises:
        InvalidArgumentError: a shape does not fit what the program declares, or a size is out of its range.
    """
    declared_sizes = {
        node.name: node.meta.get("val") for node in program.module.graph.nodes if node.op == "placeholder"
    }
    examples = {s.name: declared_sizes[n] for n, s in program.sources.items() if isinstance(s, UserInput)}
    open_shapes = {name: info.shape for name, info in inputs_of(program).items()}
    given_shapes = resized(open_shapes, shapes)
    sizes = dict[str, int]()
    for name, shape in given_shapes.items():
        example = examples.get(name)
        if isinstance(example, torch.Tensor):
            for symbol, size in bound_symbols(example.shape, shape).items():
                _check_size(program, symbol, size, sizes, name)
                sizes[symbol] = size
    for name, shape in given_shapes.items():
        example = examples.get(name)
        if isinstance(example, torch.Tensor) and not _accepts(example, sizes, TensorShape(shape)):
            raise InvalidArgumentError(
                f"shapes: {name!r} has shape {TensorShape(shape)}; expected {_declared(example)}"
            )
    return sizes


def _accepts(example: Any, sizes: Mapping[str, int], shape: TensorShape) -> bool:
    """Return True if a tensor may have a shape; a size such as ``2*s0`` that is known determines the symbol."""
    is_unsolved = (number_of(declared, sizes) is None and len(symbols_of(declared)) == 1 for declared in example.shape)
    if any(unsolved and not isinstance(size, Dim) for unsolved, size in zip(is_unsolved, shape, strict=False)):
        return False
    return TensorShape(shape_of(example, sizes)).accepts(shape)


def _declared(example: Any) -> str:
    return f"[{', '.join(str(size.node.expr) if is_symbolic(size) else str(size) for size in example.shape)}]"


def _check_size(program: Program, symbol: str, size: int, sizes: Mapping[str, int], name: str) -> None:
    if sizes.get(symbol, size) != size:
        raise InvalidArgumentError(
            f"shapes: the dimension {symbol} of {name!r} is {size}, but it is {sizes[symbol]} in another input"
        )
    low, high = program.ranges.get(symbol, (0, None))
    if size < low or (high is not None and size > high):
        limit = f"{low} to {high}" if high is not None else f"at least {low}"
        raise InvalidArgumentError(f"shapes: the dimension {symbol} of {name!r} is {size}; the program allows {limit}")
