"""The graph of an interpreter as the contents of a TFLite file, read from the host's structs and checked.

Tensors keep the host's numbers. Constants are views of the host's memory, which is that of the model file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from interposer.bridges.litert import abi
from interposer.bridges.litert.host import Host, check
from interposer.core.records import dataclass
from interposer.formats.tflite.schema import OPERATORS, OPTIONS, defaults
from interposer.frontends.tflite.contents import (
    Blocks,
    Model,
    Operator,
    QuantizationParameters,
    Subgraph,
    Tensor,
    byte_size,
)

__all__ = ["HostGraph", "read_graph"]

_CUSTOM: Final = OPERATORS.index("CUSTOM")
_LARGEST_RANK: Final = 32
_LARGEST_NUMBER: Final = 1 << 12
"""Codes, versions, types and allocation types above this are a sign of another layout of the structs."""

_CALLS: Final = frozenset(
    {
        "CALL", "CALL_ONCE", "IF", "WHILE", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_REDUCE",
        "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER", "STABLEHLO_SORT", "STABLEHLO_WHILE",
    }
)  # fmt: skip
"""Operators that run other graphs of the model."""
_RANDOM: Final = frozenset({"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"})
_HANDLES: Final = frozenset({"resource", "variant"})


@dataclass(frozen=True, slots=True)
class HostGraph:
    """A graph of a host.

    `model` has one subgraph, whose operators are the nodes of the execution plan in order; `plan` has the host's number
    of each. `left` has the positions of the operators that stay with the host, each with the reason.
    """

    model: Model
    plan: tuple[int, ...]
    left: Mapping[int, str]

    @property
    def subgraph(self) -> Subgraph:
        """The tensors and operators of the graph."""
        return self.model.subgraphs[0]


def read_graph(host: Host) -> HostGraph:
    """Return the graph of a host.

    Raises:
        ParseError: what the host passes does not fit the structs that are known, or is inconsistent. Nothing of the
            graph can then be used.
    """
    return _Reader(host).graph()


class _Reader:
    """Reads one graph; `left`, `tensors` and `buffers` grow while it does."""

    def __init__(self, host: Host) -> None:
        self.host, self.structs = host, host.tensors
        self.buffers: list[memoryview | None] = [None]
        self.left: dict[int, str] = {}
        self.tensors: dict[int, Tensor] = {}

    def graph(self) -> HostGraph:
        nodes = self.host.nodes()
        operators = tuple(
            self.operator(position, number, *parts) for position, (number, parts) in enumerate(nodes.items())
        )
        unused_tensor = Tensor("", "variant", ())
        tensors = tuple(self.tensors.get(index, unused_tensor) for index in range(len(self.structs)))
        subgraph = Subgraph("main", tensors, *_ends(operators, self.buffers, tensors), operators)
        return HostGraph(Model(3, "", (subgraph,), tuple(self.buffers)), tuple(nodes), self.left)

    # --- operators ----------------------------------------------------------------------------------------------------

    def operator(self, position: int, number: int, node: abi.Node, registration: abi.Registration) -> Operator:
        """Return a node as an operator; add it to `left` if it has to stay with the host."""
        where, code, version = f"node {number}", registration.builtin_code, registration.version
        check(0 <= code <= _LARGEST_NUMBER, f"the operator code {code}", where)
        check(0 <= version <= _LARGEST_NUMBER, f"the operator version {version}", where)
        inputs, outputs, intermediates = (
            self.indices(address, where) for address in (node.inputs, node.outputs, node.intermediates)
        )
        check(all(index >= 0 for index in outputs), "an absent output", where)
        name = _name(code, registration)
        table = OPTIONS.get(name)
        known_options = self.options(position, name, node, version, inputs) if table else None
        operator = Operator(
            name=name,
            inputs=inputs,
            outputs=outputs,
            version=version,
            is_custom=code == _CUSTOM,
            options_type=table,
            attributes=known_options or {},
            custom_options=_view(node.custom_data, node.custom_size) if code == _CUSTOM else None,
            intermediates=intermediates,
            where=where,
        )
        self.leave(position, self.reason(operator))
        return operator

    def indices(self, address: int | None, where: str) -> tuple[int, ...]:
        """Return the indices of tensors in an array of the host, and read these tensors."""
        indices = abi.integers(address)
        for index in indices:
            check(-1 <= index < len(self.structs), f"tensor {index} of {len(self.structs)}", where)
            if index >= 0 and index not in self.tensors:
                self.tensors[index] = self.tensor(self.structs[index], f"tensor {index}")
        return indices

    def options(
        self, position: int, name: str, node: abi.Node, version: int, inputs: Sequence[int]
    ) -> dict[str, Any] | None:
        """Return the options of an operator, whose schema has some; None, after `leave`, if they cannot be read."""
        table = OPTIONS[name]
        schema = dict(defaults(table))
        if not schema or name in _CALLS | _RANDOM:
            return schema
        if not abi.has_options(table) or not node.builtin_data:
            self.leave(position, f"the host's struct for its options ({table}) is not known")
            return None
        rank = len(self.tensors[inputs[0]].shape) if inputs and inputs[0] >= 0 else 0
        return schema | abi.read_options(table, node.builtin_data, version, rank)

    def leave(self, position: int, reason: str) -> None:
        if reason:
            self.left.setdefault(position, reason)

    def reason(self, operator: Operator) -> str:
        """Return why an operator stays with the host whatever backends can do; empty if there is no reason."""
        if operator.name == "DELEGATE":
            return "another delegate has taken it"
        if operator.name in _CALLS:
            return "it runs other graphs of the model, which stay with the host"
        if operator.name in _RANDOM:
            return "its random numbers are those of the host"
        tensors = [self.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
        if any(tensor.is_variable for tensor in tensors):
            return "it uses a variable, whose value the host has between calls"
        if any(tensor.dtype in _HANDLES for tensor in tensors):
            return "it uses a resource of the host"
        if any(tensor.dtype == "string" for tensor in tensors):
            return "it uses texts, which stay with the host"
        if any(self.structs[index].sparsity for index in operator.inputs if index >= 0):
            return "it uses a sparse tensor, which stays with the host"
        return ""

    # --- tensors ------------------------------------------------------------------------------------------------------

    def tensor(self, struct: abi.Tensor, where: str) -> Tensor:
        check(0 <= struct.type <= _LARGEST_NUMBER, f"the type {struct.type}", where)
        check(0 <= struct.allocation_type <= _LARGEST_NUMBER, f"the allocation type {struct.allocation_type}", where)
        shape, signature = _shape(struct.dims, where), _shape(struct.dims_signature, where, min_size=-1)
        dtype = abi.TYPES[struct.type] if 0 < struct.type < len(abi.TYPES) else "variant"
        return Tensor(
            name=(struct.name or b"").decode(errors="replace"),
            dtype=dtype,
            shape=shape,
            shape_signature=signature if signature and len(signature) == len(shape) else None,
            buffer=self.buffer(struct, dtype, shape, where) if struct.allocation_type == abi.CONSTANT else 0,
            quantization=_quantization(struct),
            is_variable=struct.is_variable,
            has_rank=True,
        )

    def buffer(self, struct: abi.Tensor, dtype: str, shape: Sequence[int], where: str) -> int:
        """Return the number of a new buffer with the data of a constant; 0 for one without elements."""
        elements = 1
        for size in shape:
            elements *= size
        expected = None if struct.sparsity else byte_size(dtype, elements)
        check(
            expected is None or expected == struct.bytes,
            f"{struct.bytes} bytes of data; {dtype} {list(shape)} takes {expected}",
            where,
        )
        if not struct.bytes or not struct.data:
            return 0
        self.buffers.append(_view(struct.data, struct.bytes))
        return len(self.buffers) - 1


def _name(code: int, registration: abi.Registration) -> str:
    """Return the schema's name of an operator, or that of a custom operator."""
    if code == _CUSTOM:
        return (registration.custom_name or b"").decode(errors="replace")
    return OPERATORS[code] if code < len(OPERATORS) else f"OPERATOR_{code}"


def _ends(
    operators: Sequence[Operator], buffers: Sequence[memoryview | None], tensors: Sequence[Tensor]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tensors that operators read and none computes, without constants; and those that none reads."""
    computed_tensors = dict.fromkeys(index for operator in operators for index in operator.outputs)
    tensors_read = dict.fromkeys(index for operator in operators for index in operator.inputs if index >= 0)
    inputs = (
        index for index in tensors_read if index not in computed_tensors and buffers[tensors[index].buffer] is None
    )
    return tuple(index for index in inputs if tensors[index].elements), tuple(
        i for i in computed_tensors if i not in tensors_read
    )


def _shape(address: int | None, where: str, min_size: int = 0) -> tuple[int, ...]:
    rank = ctypes.c_int.from_address(address).value if address else 0
    check(0 <= rank <= _LARGEST_RANK, f"{rank} dimensions", where)
    shape = abi.integers(address)
    check(all(size >= min_size for size in shape), f"the shape {list(shape)}", where)
    return shape


def _quantization(struct: abi.Tensor) -> QuantizationParameters | None:
    """Return the scales and zero points of a tensor; None if it has none."""
    if not struct.quantization:
        return None
    if struct.quantization_type == abi.BLOCKWISE:
        blocks = abi.Blockwise.from_address(struct.quantization)
        places = Blocks(blocks.scales, blocks.zero_points, blocks.block_size)
        return QuantizationParameters((), (), details="BlockwiseQuantization", blocks=places)
    if struct.quantization_type != abi.AFFINE:
        return None
    affine = abi.Affine.from_address(struct.quantization)
    scales, zero_points = abi.floats(affine.scales), abi.integers(affine.zero_points) or (0,)
    if not scales:
        return None
    zero_points = zero_points * len(scales) if len(zero_points) == 1 else zero_points
    return QuantizationParameters(scales, zero_points, affine.axis if len(scales) > 1 else None)


def _view(address: int | None, size: int) -> memoryview | None:
    """Return `size` bytes of the host's memory, read-only and without a copy; None for a null pointer."""
    if not address or size <= 0:
        return None
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B").toreadonly()
