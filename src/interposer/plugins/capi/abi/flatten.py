"""Conversion of a graph's layers to the tables of an ``ipr_graph``.

Columns are collected and then written to arrays.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import numpy as np

from interposer.core.addresses import address_of
from interposer.core.constants import aligned, check_unchanged, place_of, share
from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import Constant
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attributes import shown

__all__ = ["MOST_AXES", "FlatGraph", "Withholding"]

_LAYER: Final = np.dtype(abi.Layer)
_TENSOR: Final = np.dtype(abi.TensorInfo)
_CONSTANT: Final = np.dtype(abi.Constant)
_NUMBERS: Final = {id(dtype): number for dtype, number in abi.DTYPES.items()}
MOST_AXES: Final = 8
"""The largest rank of a tensor in version 1.0 of the interface."""
_info, _dtype, _shape = attrgetter("info"), attrgetter("dtype"), attrgetter("shape")
_quantization, _name, _op = attrgetter("quantization"), attrgetter("name"), attrgetter("op")
_arrays, _producer = attrgetter("arrays"), attrgetter("producer")


class Withholding:
    """Decides which layers are not passed to plug-ins of one revision of the vocabulary (see `Shown`), and why."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._dtypes = frozenset(map(id, abi.DTYPES))  # all are of version 0
        self._always_withheld: set[type[Op]] = set()

    def problems(self, layers: Iterable[Layer]) -> dict[Layer, str]:
        """Return those of the layers that must not be passed to the plug-ins, each with the reason."""
        problems: dict[Layer, str] = {}
        always_withheld, dtypes = self._always_withheld, self._dtypes
        for layer in layers:
            error = None
            op_type = type(layer.op)
            if op_type not in always_withheld:
                error = self._op_problem(layer)
            if error is None:
                for value in chain(layer.inputs, layer.outputs):
                    if value is not None and not (
                        value.info is not None
                        and id(value.info.dtype) in dtypes
                        and value.info.shape.is_ranked
                        and len(value.info.shape) <= MOST_AXES
                    ):
                        error = self._value_problem(value)
                        break
            if error is not None:
                problems[layer] = error
        return problems

    def _op_problem(self, layer: Layer) -> str | None:
        description = shown(type(layer.op), self.revision)
        if layer.regions:
            return "layers with regions are not shown to plug-ins"
        if description.always:
            self._always_withheld.add(type(layer.op))
            return None
        return description.fault(layer.op, len(layer.inputs))

    def _value_problem(self, value: Value) -> str:
        info = value.info
        if info is None:
            return f"nothing is known of the tensor {value.name!r}"
        if id(info.dtype) not in self._dtypes:
            return f"tensors of type {info.dtype}, as {value.name!r}, are not shown to plug-ins"
        if info.is_ranked:
            return f"tensors of more than {MOST_AXES} axes, as {value.name!r}, are not shown to plug-ins"
        return f"the rank of {value.name!r} is not known; such tensors are not shown to plug-ins"


class FlatGraph:
    """An ``ipr_graph`` of some layers, with all the memory that it points to; `address` is its address.

    `layers` and `values` are the layers and tensors to which the indices in the tables refer. The data of `constants`
    is not moved and may outlive the tables. `blocks` is the other memory to which the tables point, except for texts
    and attributes that several layers share.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        inputs: Iterable[Value],
        outputs: Iterable[Value],
        *,
        name: str = "",
        revision: int = 0,
        alignment: int = 1,
        unaligned: bool = False,
        infos: Mapping[Value, TensorInfo] | None = None,
    ) -> None:
        """Create the tables.

        Args:
            layers: the layers in running order, none of them withheld.
            inputs: the values from outside that are not constant.
            outputs: the values that are used outside.
            name: the name of the network.
            revision: the revision of the vocabulary that the plug-in was written to.
            alignment: the alignment in bytes of constants, which are copied if necessary.
            unaligned: whether constants in mapped files may have any alignment, so that they need not be copied.
            infos: infos of values that replace those of the graph.
        """
        self.layers = tuple(layers)
        self.blocks: list[Array] = []
        self._retained: list[Any] = []
        self.constants: list[Array] = []
        self._number(layers)
        self._infos = list(map(_info, self.values)) if infos is None else [infos.get(v, v.info) for v in self.values]
        self._write_texts(name)
        self._write_constants(alignment, unaligned)
        self._write_tensors()
        self._write_layers(revision)
        self._write_graph(inputs, outputs)

    @classmethod
    def of(cls, view: SubgraphView, **options: Any) -> FlatGraph:
        """Return the tables of a view; `options` has the revision, alignment and infos that the constructor takes."""
        return cls(view.layers, view.inputs, view.outputs, name=view.graph.name, **options)

    def index(self, value: Value) -> int:
        """Return the index of a tensor in the tables."""
        return self._index[value]

    def _number(self, layers: Sequence[Layer]) -> None:
        self._index: dict[Value, int] = {}
        self.values: list[Value] = []
        self._producers: list[int] = []
        self._operands: list[int] = []
        self._operand_counts: list[int] = []
        self._first_results: list[int] = []
        self._entering: list[int] = []
        index, values, producers, operands = self._index, self.values, self._producers, self._operands
        entering = self._entering
        for layer_index, layer in enumerate(layers):
            operand_values = layer.inputs
            for value in operand_values:
                if value is None:
                    operands.append(-1)
                    continue
                position = index.get(value)
                if position is None:
                    position = index[value] = len(values)
                    values.append(value)
                    producers.append(-1)
                    entering.append(position)
                operands.append(position)
            self._operand_counts.append(len(operand_values))
            self._first_results.append(len(values))
            for value in layer.outputs:
                index[value] = len(values)
                values.append(value)
                producers.append(layer_index)

    def _write_texts(self, name: str) -> None:
        """Write the names of the graph, of the layers, and of the producers of all tensors to one block of memory."""
        texts = [name, *map(_name, self.layers), *map(_name, map(_producer, self.values))]
        blob = "\0".join(texts).encode("utf-8", "replace") + b"\0"
        sizes = list(map(len, texts))
        if len(blob) != sum(sizes) + len(sizes):
            sizes = [len(text.encode("utf-8", "replace")) for text in texts]
        start = self._address(np.frombuffer(blob, np.uint8))
        self._text_sizes = np.array(sizes, np.uint64)
        self._text_addresses = np.cumsum(self._text_sizes + 1) - (self._text_sizes + 1) + start

    def _write_constants(self, alignment: int, unaligned: bool) -> None:
        producers = [self.values[position].producer.op for position in self._entering]
        check_unchanged(op.value for op in producers if isinstance(op, Constant))
        constant_numbers = [-1] * len(self.values)
        table_rows: list[tuple[int, int, int, int]] = []
        for position, op in zip(self._entering, producers, strict=True):
            if isinstance(op, Constant):
                constant_numbers[position] = len(table_rows)
                table_rows.append(self._constant(op.value, alignment, unaligned))
        self._constant_numbers = constant_numbers
        table = np.zeros(len(table_rows), _CONSTANT)
        for name, column in zip(("data", "size", "fd", "offset"), zip(*table_rows, strict=True), strict=False):
            table[name] = column
        self.constant_table = table

    def _constant(self, array: Array, alignment: int, unaligned: bool) -> tuple[int, int, int, int]:
        """Return where the data of a constant is: address, size in bytes, and descriptor and offset of the mapped file.

        Without a file, these are -1 and 0. Data that has to be aligned is copied, but only once.
        """
        is_misplaced = address_of(array) % max(alignment, 16) and not (unaligned and place_of(array) is not None)
        if is_misplaced or not array.flags.c_contiguous:
            aligned_array = aligned(array, alignment)
            array = (
                aligned_array if aligned_array is array else share(aligned_array, max(alignment, array.dtype.alignment))
            )
        self.constants.append(array)
        return address_of(array), array.nbytes, *(place_of(array) or (-1, 0))

    def hash_constants(self) -> None:
        """Compute the SHA-256 of constants, which ``compile`` and ``restore`` may need."""
        self.constant_table["sha256"] = [self._retain(_digest(array)) for array in self.constants]

    def _write_tensors(self) -> None:
        infos, count = self._infos, len(self.values)
        shapes = list(map(_shape, infos))
        ranks = np.fromiter(map(len, shapes), np.int64, count)
        sizes = np.fromiter(chain.from_iterable(shapes), np.int64)
        table = np.zeros(count, _TENSOR)
        first = len(self.layers) + 1
        table["name"]["data"], table["name"]["size"] = self._text_addresses[first:], self._text_sizes[first:]
        table["dtype"] = list(map(_NUMBERS.__getitem__, map(id, map(_dtype, infos))))
        table["rank"] = ranks
        table["shape"] = self._address(sizes) + 8 * (np.cumsum(ranks) - ranks)
        table["axis"] = -1
        table["constant"] = self._constant_numbers
        table["producer"] = self._producers
        self._write_quantization(table, list(map(_quantization, infos)))
        self.tensor_table = table

    def _write_quantization(self, table: Any, quantizations: list[Any]) -> None:
        quantized_indices = [index for index, quantization in enumerate(quantizations) if quantization is not None]
        if not quantized_indices:
            return
        present_quantizations = [quantizations[index] for index in quantized_indices]
        scales, points = zip(*map(_arrays, present_quantizations), strict=True)
        counts = np.fromiter(map(len, scales), np.int64, len(quantized_indices))
        begins = 8 * (np.cumsum(counts) - counts)
        table["scale_count"][quantized_indices] = counts
        table["scales"][quantized_indices] = self._address(np.concatenate(scales)) + begins
        table["zero_points"][quantized_indices] = self._address(np.concatenate(points)) + begins
        table["axis"][quantized_indices] = [
            -1 if quantization.axis is None else quantization.axis for quantization in present_quantizations
        ]

    def _write_layers(self, revision: int) -> None:
        count = len(self.layers)
        table = np.zeros(count, _LAYER)
        ops = list(map(_op, self.layers))
        kinds = {kind: shown(kind, revision) for kind in set(map(type, ops))}
        attributes = [kinds[type(op)].table(op) for op in ops]
        types = [kinds[type(op)].type for op in ops]
        table["type"]["data"] = [text.data for text in types]
        table["type"]["size"] = [text.size for text in types]
        table["name"]["data"], table["name"]["size"] = (
            self._text_addresses[1 : count + 1],
            self._text_sizes[1 : count + 1],
        )
        operands = np.array(self._operands, np.int64)
        starts = np.array([0, *accumulate(self._operand_counts)][:count], np.uint64)
        table["inputs"] = self._address(operands) + 8 * starts
        table["input_count"] = self._operand_counts
        value_indices = np.arange(len(self.values), dtype=np.int64)
        table["outputs"] = self._address(value_indices) + 8 * np.array(self._first_results, np.uint64)
        table["output_count"] = [len(layer.outputs) for layer in self.layers]
        table["attributes"] = [attribute.address for attribute in attributes]
        table["attribute_count"] = [attribute.length for attribute in attributes]
        self._retained.append(attributes)
        self.layer_table = table

    def _write_graph(self, inputs: Iterable[Value], outputs: Iterable[Value]) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        indices = [
            np.array([self._index[value] for value in values], np.int64) for values in (self.inputs, self.outputs)
        ]
        self.struct = abi.Graph(
            struct_size=ctypes.sizeof(abi.Graph),
            name=abi.String(int(self._text_addresses[0]), int(self._text_sizes[0])),
            layer_count=len(self.layer_table), layer_stride=_LAYER.itemsize,
            layers=address_of(self.layer_table), attribute_stride=ctypes.sizeof(abi.Attribute),
            tensor_count=len(self.tensor_table), tensor_stride=_TENSOR.itemsize,
            tensors=address_of(self.tensor_table),
            constant_count=len(self.constant_table), constant_stride=_CONSTANT.itemsize,
            constants=address_of(self.constant_table),
            input_count=len(indices[0]), inputs=self._address(indices[0]),
            output_count=len(indices[1]), outputs=self._address(indices[1]),
        )  # fmt: skip
        self.address = ctypes.addressof(self.struct)

    def _address(self, array: Array) -> int:
        self.blocks.append(array)
        return address_of(array)

    def _retain(self, buffer: Any) -> int:
        self._retained.append(buffer)
        return ctypes.addressof(buffer)


def _digest(array: Array) -> Any:
    digest = hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()
    return ctypes.create_string_buffer(digest, len(digest))
