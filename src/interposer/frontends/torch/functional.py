"""`functional`: an exported program without in-place operators, whose other operators have converters.

PyTorch's own way, `run_decompositions`, traces the whole program again, and takes longer than the export. Most programs
need little of it: an operator that writes to a tensor of which nothing else has a view, a region without gradients, or
an operator that stands for a few others. These nodes are rewritten one by one; all other programs are left to PyTorch.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from interposer.core.errors import InterposerError, ParseError
from interposer.core.records import dataclass
from interposer.frontends.torch.aliases import changed_alias, shared_memory, with_one_of_each
from interposer.frontends.torch.examples import without_guesses
from interposer.frontends.torch.graph import is_functional, is_missing, missing_operators, title_of
from interposer.frontends.torch.package import pytree, torch
from interposer.frontends.torch.registry import names

__all__ = ["FunctionalProgram", "composite_and_other", "decomposition_table", "functional"]


@dataclass(frozen=True, slots=True)
class FunctionalProgram:
    """The parts of a ``torch.export.ExportedProgram`` that are read, with another graph."""

    graph_module: Any
    graph_signature: Any
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]
    call_spec: Any
    range_constraints: Mapping[Any, Any]

    @property
    def graph(self) -> Any:
        """The graph of `graph_module`."""
        return self.graph_module.graph

    @classmethod
    def of(cls, program: Any, graph_module: Any | None = None) -> FunctionalProgram:
        """Return the parts of an exported program, with a graph module in place of its own if one is given."""
        chosen_module = program.graph_module if graph_module is None else graph_module
        return cls(
            chosen_module, program.graph_signature, program.state_dict, program.constants, program.call_spec,
            program.range_constraints,
        )  # fmt: skip


@cache
def _decompositions() -> dict[Any, Any]:
    converted_names = frozenset(names())
    table = torch.export.default_decompositions()
    for overload in list(table):
        if title_of(overload) in converted_names:
            table.pop(overload)
    return dict(table)


def decomposition_table() -> dict[Any, Any]:
    """Return PyTorch's decompositions to core ATen without those of operators that Interposer converts itself."""
    return dict(_decompositions())


@cache
def composite_and_other() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the entries of `decomposition_table` for operators that PyTorch calls composite, and all others."""
    from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp  # noqa: PLC0415

    composite, decompositions_of_others = _split_decomp_table_to_cia_and_python_decomp(decomposition_table())
    return composite, decompositions_of_others


def functional(program: Any) -> FunctionalProgram:
    """Return an exported program without in-place operators, in which unknown operators are decomposed.

    Equal views of the same memory become one tensor if the program changes it.

    Raises:
        ParseError: PyTorch fails, as for a damaged program; or the program changes a tensor that shares memory with
            another one, and they are not equal.
    """
    if _is_ready(program.graph_module) and changed_alias(program) is None:
        return FunctionalProgram.of(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rewritten = _rewritten(program.graph_module)
        if rewritten is not None:
            return FunctionalProgram.of(program, rewritten)
        return FunctionalProgram.of(_decomposed(_with_aliases(program)))


def _decomposed(program: Any) -> Any:
    """Return a program that PyTorch has decomposed, in which each state has memory of its own."""
    decomposed_program = _by_pytorch(program)
    if decomposed_program is not None and changed_alias(decomposed_program) is None:
        return decomposed_program
    unaliased = with_one_of_each(program, _copied(program.graph_module))
    decomposed_program = _by_pytorch(unaliased)
    alias = shared_memory(unaliased) if decomposed_program is None else changed_alias(decomposed_program)
    if decomposed_program is None or alias is not None:
        raise ParseError(_shared(alias))
    return decomposed_program


def _shared(names: tuple[str, str] | None) -> str:
    tensors = "two tensors" if names is None else "the tensors {!r} and {!r}".format(*names)
    return (
        f"{tensors} share memory, and the program changes one of them in place; give the module a copy of one of them, "
        "or keep one buffer and make the other one a view of it in forward"
    )


_ALIASES: Final = "expected compiled_fn to be GraphModule, got <class 'function'>"
"""How PyTorch's error ends if a tensor that a program changes shares memory with another one."""


def _by_pytorch(program: Any) -> Any:
    """Return a program that PyTorch has decomposed; None if it cannot do so because tensors share memory."""
    try:
        return program.run_decompositions(decomposition_table())
    except InterposerError:
        raise
    except Exception as error:
        if str(error).endswith(_ALIASES):
            return None
        raise ParseError(f"PyTorch cannot make the program functional: {error}") from error


def _is_ready(module: Any) -> bool:
    return is_functional(module) and not missing_operators(module)


def _with_aliases(program: Any) -> Any:
    """Return a program in which dropout outside of training is an alias of its operand, as in eager execution.

    PyTorch decomposes it to a copy, so that later changes in place of the operand or of the result would be lost.
    """
    if is_functional(program.graph_module) or not any(map(_is_dropout, program.graph.nodes)):
        return program
    module = _copied(program.graph_module)
    for node in filter(_is_dropout, module.graph.nodes):
        node.target, node.args, node.kwargs = torch.ops.aten.alias.default, node.args[:1], {}
    module.recompile()
    return program._update(module, program.graph_signature)


def _is_dropout(node: Any) -> bool:
    return node.op == "call_function" and str(node.target) in _DROPOUTS and _returns_operand(node)


# --- rewriting nodes --------------------------------------------------------------------------------------------------


def _rewritten(module: Any) -> Any | None:
    """Return a copy of a graph module in which single nodes are rewritten; None if that is not enough."""
    copied_module = _copied(module)
    try:
        with without_guesses(copied_module.graph):
            _inline_regions(copied_module)
            if not _without_writes(copied_module.graph):
                return None
            _expand_missing(copied_module.graph)
    except Exception:  # PyTorch may fail in many ways to trace an operator alone
        return None
    return copied_module if _is_ready(copied_module) else None


def _copied(module: Any) -> Any:
    """Return a copy of a graph module in which nodes keep their names and metadata."""
    graph, copies = torch.fx.Graph(), dict[Any, Any]()
    outputs = graph.graph_copy(module.graph, copies)
    for old, new in copies.items():
        new.name, new.meta = old.name, dict(old.meta)  # a copied graph renames nodes such as "input"
    graph.output(outputs)
    return torch.fx.GraphModule(module, graph)


def _inline_regions(module: Any) -> None:
    """Replace calls of regions in which only the recording of gradients is switched by the nodes of the regions."""
    graph = module.graph
    while region := next((node for node in graph.nodes if _is_region(node)), None):
        inner_module = getattr(module, region.args[1].target)
        operands = region.args[2:]
        _replace_results(region, _insert(graph, region, inner_module, operands))


def _is_region(node: Any) -> bool:
    is_named = getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled"
    return node.op == "call_function" and is_named and node.args[1].op == "get_attr"


def _insert(graph: Any, place: Any, inner: Any, operands: Any) -> Any:
    """Copy the nodes of a graph module before the node `place`, and return the copy's results."""
    placeholders = [node for node in inner.graph.nodes if node.op == "placeholder"]
    copies: dict[Any, Any] = dict(zip(placeholders, operands, strict=True))
    with graph.inserting_before(place):
        for node in inner.graph.nodes:
            if node.op == "output":
                return torch.fx.node.map_arg(node.args[0], copies.__getitem__)
            if node.op not in ("placeholder", "call_function"):
                raise ParseError(f"a region with a node of the kind {node.op}")
            if node.op == "call_function":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = _origin(place) | node.meta
    raise ParseError("a graph without results")


def _origin(node: Any) -> dict[str, Any]:
    """Return the metadata of a node about where in the module it comes from."""
    return {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}


def _replace_results(node: Any, results: Any) -> None:
    """Let the users of a node's results use these instead, and erase the node."""
    if isinstance(results, list | tuple):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise ParseError("results are used as a whole")
            _replace(user, results[user.args[1]])
        node.graph.erase_node(node)
    else:
        _replace(node, results)


def _replace(node: Any, replacement: Any) -> None:
    """Let the users of a node use another one, which gets its name unless it had users before."""
    replaced_name, is_new = node.name, replacement.op == "call_function" and not replacement.users
    node.replace_all_uses_with(replacement)
    node.graph.erase_node(node)
    if is_new:
        replacement.name = replaced_name


# --- operators that write to an operand -------------------------------------------------------------------------------

_ALWAYS_NEW: Final = frozenset(
    f"aten.{name}"
    for name in (
        "linear.default", "matmul.default", "conv1d.default", "conv2d.default", "conv3d.default", "batch_norm.default",
        "layer_norm.default", "group_norm.default", "instance_norm.default", "rms_norm.default", "softmax.int",
        "log_softmax.int", "max_pool2d.default", "adaptive_avg_pool2d.default", "scaled_dot_product_attention.default",
    )
)  # fmt: skip
"""Composite operators whose results never share memory with operands. Their schemas do not promise that."""


def _without_writes(graph: Any) -> bool:
    """Replace operators that write to a tensor without views by those that return a new one.

    Returns False if one of them may write to memory that another value shares.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and _returns_operand(node):
            _replace(node, node.args[0])
            continue
        if node.op != "call_function" or not _mutates(node.target):
            continue
        counterpart = _counterpart(node)
        if counterpart is None or not _owns_its_memory(node.args[0], writer=node):
            return False
        base, node.target = node.args[0], counterpart
        base.replace_all_uses_with(node, lambda user, node=node: user is not node and _is_before(node, user))
    return True


def _returns_operand(node: Any) -> bool:
    """Return True if a node returns its operand itself: dropout outside of training, or detach_."""
    name = str(node.target)
    if name in _DROPOUTS:
        probability, is_training = node.args[1:3]
        return not (is_training and probability)
    return name == "aten.detach_.default"


_DROPOUTS: Final = tuple(
    f"aten.{name}.default" for name in ("dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout",
                                        "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")
)  # fmt: skip


def _mutates(function: Any) -> bool:
    return isinstance(function, torch._ops.OpOverload) and bool(function._schema.is_mutable)


def _is_before(node: Any, other: Any) -> bool:
    return bool(node < other)


def _counterpart(node: Any) -> Any | None:
    """Return the operator that returns what `node` writes to its first operand, if it has the same type; else None."""
    schema = node.target._schema
    written_names = [
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    namespace, _, name = schema.name.partition("::")
    if written_names != [schema.arguments[0].name] or not name.endswith("_") or len(schema.returns) != 1:
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    counterpart = getattr(packet, schema.overload_name or "default", None)
    if counterpart is None or [a.name for a in counterpart._schema.arguments] != [a.name for a in schema.arguments]:
        return None
    return counterpart if _type_of(counterpart, node) == node.meta["val"].dtype else None


def _type_of(target: Any, node: Any) -> Any:
    """Return the type of the result of an operator for the operands of a node."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    return target(*args, **kwargs).dtype


def _owns_its_memory(node: Any, writer: Any) -> bool:
    """Return True if a value is a new tensor, and no user before the node `writer` may have made a view of it."""
    users = [user for user in node.users if user is not writer and _is_before(user, writer)]
    return _is_new(node) and all(_is_new(user) for user in users)


def _is_new(node: Any) -> bool:
    """Return True if the results of a node share no memory with its operands."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or any(returned.alias_info for returned in target._schema.returns):
        return False
    return str(target) in _ALWAYS_NEW or not _is_composite(target)


def _is_composite(function: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(function.has_kernel_for_dispatch_key(key))


# --- operators without a converter ------------------------------------------------------------------------------------


def _expand_missing(graph: Any) -> None:
    """Replace operators that have no converter by those that PyTorch makes of them.

    PyTorch traces an operator once for all nodes that call it with equal types and attributes, as in a loop.

    Raises:
        ParseError: PyTorch would assume values of symbolic sizes.
    """
    nodes = [node for node in graph.nodes if _is_expandable(node)]
    if not nodes:
        return
    from torch.export.exported_program import _override_composite_implicit_decomp  # noqa: PLC0415

    composite, decompositions_of_others = composite_and_other()
    traced_modules = dict[Any, Any]()
    with _override_composite_implicit_decomp(composite):
        for node in nodes:
            call = _form_of_call(node)
            if call not in traced_modules:
                traced_modules[call] = _traced(node, decompositions_of_others)
            _replace_results(node, _insert(graph, node, traced_modules[call], node.all_input_nodes))


def _is_expandable(node: Any) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and is_missing(node)


def _form_of_call(node: Any) -> Any:
    """Return what determines how PyTorch decomposes a node: its operator, its attributes and its operands' types."""
    numbers = {operand: f"operand {i}" for i, operand in enumerate(node.all_input_nodes)}
    attributes = torch.fx.node.map_arg((node.args, node.kwargs), numbers.__getitem__)
    return node.target, repr(attributes), tuple(_type_of_example(operand.meta["val"]) for operand in numbers)


def _type_of_example(example: Any) -> Any:
    if not isinstance(example, torch.Tensor):
        return repr(example)
    return example.dtype, str(example.device), tuple(map(str, example.shape)), tuple(map(str, example.stride()))


def _traced(node: Any, decompositions: Mapping[Any, Any]) -> Any:
    """Return the graph module of what PyTorch makes of an operator; its inputs are those of the node.

    Raises:
        ParseError: PyTorch would assume values of symbolic sizes.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    inputs = node.all_input_nodes
    examples = [node_input.meta["val"] for node_input in inputs]
    if any(map(_is_open, examples + pytree.tree_leaves(node.meta["val"]))):
        raise ParseError("sizes are symbolic")  # of sizes from data, PyTorch would keep symbols that nothing uses

    def call(*values: Any) -> Any:
        values_by_node = dict(zip(inputs, values, strict=True))
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values_by_node.__getitem__)
        return node.target(*args, **kwargs)

    return make_fx(call, decomposition_table=dict(decompositions), tracing_mode="fake")(*examples)


def _is_open(value: Any) -> bool:
    """Return True if a tensor has symbolic sizes, or a number is symbolic."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes)
