"""TFLite converters for operators that run other subgraphs of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.frontends.elementwise import EQUAL
from interposer.frontends.importer import Importer, input_of_region
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.resources import SELECTING, Accesses, Bound, handles_in
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network
from interposer.ops.control import Output
from interposer.ops.control_flow import If, While, merged_carried

__all__: list[str] = []

_MOST_BRANCHES: Final = 64


@operator("CALL", "STABLEHLO_COMPOSITE", options=True)
def call(node: Node) -> list[Value]:
    """Convert CALL and STABLEHLO_COMPOSITE: the subgraph is inlined in place of the operator."""
    subgraph_number = _named(node, "subgraph" if node.kind == "CALL" else "decomposition_subgraph_index")
    call = Call.of(node, [subgraph_number])
    call.give_handles()
    return node.importer.inlined(subgraph_number, call.values, call.bound)


@operator("CALL_ONCE", options=True)
def call_once(node: Node) -> list[Value]:
    """Convert CALL_ONCE to nothing: what its subgraph assigns are the initial values of variables and tables."""
    return []


@operator("IF", options=True)
def if_(node: Node) -> list[Value]:
    """Convert IF; a known condition selects a branch, which is inlined."""
    condition = node.value(0)
    branches = _named(node, "then_subgraph_index"), _named(node, "else_subgraph_index")
    call = Call.of(node, branches)
    call.give_handles()
    constant = condition.known.constant
    if constant is not None and constant.size == 1:
        branch = branches[0 if constant.reshape(-1)[0] else 1]
        return node.importer.inlined(branch, call.values, call.bound)
    values = [*call.values, *call.states()]
    infos = [value.known for value in values]
    regions = [node.importer.region(number, infos, call.bound, call.names) for number in branches]
    return call.results(node.control(If(max(1, len(regions[0].outputs))), [condition, *values], regions))


@operator("STABLEHLO_CASE", options=True)
def case(node: Node) -> list[Value]:
    """Convert STABLEHLO_CASE; a known index selects a branch, which is inlined.

    An index that is out of range selects the last branch.
    """
    branches, index = node.options["branch_subgraph_indices"] or (), node.scalar(0)
    if not 0 < len(branches) <= _MOST_BRANCHES or not index.known.dtype.is_integer:
        expected = f"expected 1 to {_MOST_BRANCHES} branches, and an integer"
        node.fail(f"it has {len(branches)} branches and an index of {index.known.dtype}; {expected}")
    call = Call.of(node, branches)
    call.give_handles()
    constant = np.array(-1) if len(branches) == 1 else index.known.constant
    if constant is not None:
        branch = branches[int(constant) if 0 <= constant < len(branches) else -1]
        return node.importer.inlined(branch, call.values, call.bound)
    values = [*call.values, *call.states()]
    infos = [value.known for value in values]
    regions = [node.importer.region(number, infos, call.bound, call.names) for number in branches]
    for region in regions:
        input_of_region(region, len(values), index.known, "index", node.source)
    return call.results(_selected(node, node.importer, [*values, index], regions, 0))


def _selected(
    node: Node, importer: Importer, operands: Sequence[Value], branches: Sequence[Graph], number: int
) -> list[Value]:
    """Add a choice between branch `number` and those after it to the importer's network, and return its results.

    The last of `operands`, which are also the inputs of all branches, is the index of the branch to run.
    """
    index, name, source = operands[-1], node.name, node.source
    number_of_branch = importer.constant(np.array(number, index.known.dtype.numpy), "constant")
    is_taken = importer.add_layer(EQUAL, [index, number_of_branch], name, source).output
    other_branches = branches[-1] if number + 2 >= len(branches) else _rest(node, operands, branches, number + 1)
    op = If(max(1, len(branches[0].outputs)))
    return importer.add_control(op, [is_taken, *operands], [branches[number], other_branches], name, source)


def _rest(node: Node, operands: Sequence[Value], branches: Sequence[Graph], number: int) -> Graph:
    """Return a region that runs branch `number`, or one of those after it."""
    importer = Importer(Network(""), node.importer)
    graph, inputs = importer.network.graph, list[Value]()
    for binding_id, value in enumerate(operands):
        info = value.known.with_constant(None)
        inputs.append(input_of_region(graph, binding_id, info, f"input_{binding_id}", node.source))
    for binding_id, value in enumerate(_selected(node, importer, inputs, branches, number)):
        graph.add(Output(binding_id), [value], name=f"output_{binding_id}")
    return graph


@operator("WHILE", "STABLEHLO_WHILE", options=True)
def while_(node: Node) -> list[Value]:
    """Convert WHILE and STABLEHLO_WHILE.

    All values are carried. The regions are converted repeatedly until the infos of the carried values no longer change.
    """
    body_number, condition_number = _named(node, "body_subgraph_index"), _named(node, "cond_subgraph_index")
    call = Call.of(node, [body_number, condition_number])
    call.give_handles(range(len(node.operator.inputs)))
    if any(node.importer.accesses([condition_number], call.bound)[0].written.values()):
        node.fail("its condition writes a variable, which is not supported")
    values = [*call.values, *call.states()]
    carried_infos = [value.known.with_constant(None) for value in values]
    while True:
        region = node.importer.region(body_number, carried_infos, call.bound, call.names)
        wider_infos = _merged(node, carried_infos, [layer.values[0].known for layer in region.outputs])
        if wider_infos == carried_infos:
            break
        carried_infos = wider_infos
    test_region = node.importer.region(condition_number, carried_infos, call.bound, call.names)
    for layer in test_region.outputs[1:]:
        test_region.erase(layer)
    test_region.erase_dead()
    return call.results(node.control(While(len(values)), values, [test_region, region]))


@dataclass(frozen=True)
class Call:
    """How an operator calls subgraphs: its arguments without handles of resources, and the variables that they use.

    `bound` has the handles among the arguments, and `accesses` what each subgraph does with variables. `names` are the
    variables that any of the subgraphs uses: further inputs and results of regions.
    """

    node: Node
    values: Sequence[Value]
    bound: Bound
    accesses: Sequence[Accesses]

    @classmethod
    def of(cls, node: Node, numbers: Sequence[int]) -> Call:
        """Return how an operator calls the subgraphs with these numbers."""
        names = {index: node.importer.handle(index) for index in node.operator.inputs}
        bound = handles_in(node.operator, {index: name for index, name in names.items() if name is not None})
        first_operand = 1 if node.kind in SELECTING else 0
        values = [
            node.value(i) for i in range(first_operand, node.num_inputs) if names[node.operator.inputs[i]] is None
        ]
        return cls(node, values, bound, node.importer.accesses(numbers, bound))

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for accesses in self.accesses for name in accesses.written))

    def states(self) -> list[Value]:
        """Return the values of all variables that the subgraphs use."""
        return [self.node.importer.read_variable(name) for name in self.names]

    def give_handles(self, positions: Iterable[int] | None = None) -> None:
        """Let results of the operator be handles: those of the subgraph, or those of the arguments at `positions`."""
        outputs = self.node.operator.outputs
        bound = self.accesses[0].outputs if positions is None else self.bound
        for position, name in bound:
            if position < len(outputs):
                self.node.importer.give_handle(outputs[position], name)

    def results(self, values: Sequence[Value]) -> list[Value]:
        """Set the variables to the last results of a control flow layer, and return the other results."""
        count, node = len(values) - len(self.names), self.node
        for name, value in zip(self.names, values[count:], strict=True):
            if any(accesses.written.get(name) for accesses in self.accesses):
                node.importer.write_variable(name, value)
        return list(values[:count])


def _named(node: Node, option: str) -> int:
    """Return the index of the subgraph that an option of the operator names; raise `ParseError` without options."""
    if node.operator.options_type is None:
        node.fail("it has no options, and so names no subgraph")
    return int(node.options[option])


def _merged(node: Node, carried_infos: Sequence[TensorInfo], results: Sequence[TensorInfo]) -> list[TensorInfo]:
    if len(carried_infos) != len(results):
        node.fail(f"its body gives {len(results)} tensors; expected {len(carried_infos)}")
    return [*merged_carried(carried_infos, results)]
