"""A TFLite file as checked plain data; operators are not interpreted here.

`read_model` takes the bytes of any file. What it returns is consistent: every index is in range, constants have the
size of their tensors, operators are in topological order. Anything else is a `ParseError` with the location.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from interposer.core.errors import DamagedFileError, ParseError
from interposer.core.files import unreadable
from interposer.formats.tflite.external import may_have_external_buffers
from interposer.formats.tflite.schema import OPERATORS, SCHEMA, TENSOR_TYPES
from interposer.frontends.beside import FilesBeside
from interposer.frontends.flatbuffer import Reader, Record
from interposer.frontends.sources import errors_at
from interposer.frontends.tflite.consistency import check_model
from interposer.frontends.tflite.contents import (
    Blocks,
    Dimension,
    Metadata,
    Model,
    Operator,
    QuantizationParameters,
    Signature,
    Sparsity,
    Subgraph,
    Tensor,
)

__all__ = [
    "Metadata",
    "Model",
    "Operator",
    "QuantizationParameters",
    "Signature",
    "Subgraph",
    "Tensor",
    "files_of_weights",
    "read_model",
]

IDENTIFIER: Final = b"TFL3"
_DENSE: Final = 0
"""The format of a dense dimension of a sparse tensor."""
VERSION: Final = 3


def read_model(data: bytes | bytearray | memoryview | mmap.mmap, *, path: str | None = None) -> Model:
    """Read a TFLite file; `path` is for error messages, and for the files of external buffers, which are beside it.

    The model's constants are views of `data`, which must stay unchanged, and open where mapped, while they are in use.
    Those of external buffers are views of the mapped files.

    Raises:
        ParseError: the file is damaged, truncated, not a TFLite file, or of a newer version of the format. Or it has
            external buffers, and their files are missing or damaged, or there is no path.
    """
    with errors_at(path):
        view = memoryview(data)
        flat_view = (view if view.c_contiguous else memoryview(bytes(view))).cast("B").toreadonly()
        return _read(flat_view, FilesBeside(None if path is None else Path(path)))


def _read(content: memoryview, files: FilesBeside) -> Model:
    _check_identifier(content)
    reader = Reader(content, SCHEMA)
    root = reader.root("Model")
    if root["version"] != VERSION:
        raise ParseError(f"version {root['version']} of the format; only {VERSION} is known", where="version")
    model = _ModelBuilder(reader, root, files).build()
    reader.refuse_overlaps()
    check_model(model)
    return model


def files_of_weights(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the paths of the files with external buffers of the model at `path`, whether they exist or not.

    Raises:
        ParseError: the file cannot be read, or is damaged.
    """
    try:
        content = memoryview(Path(path).read_bytes())
    except OSError as error:
        raise unreadable(error, path) from error
    if not may_have_external_buffers(bytes(content)):
        return ()
    _check_identifier(content)
    groups = Reader(content, SCHEMA).root("Model")["external_buffer_groups"] or ()
    return tuple(Path(path).parent / record["name"] for record in groups if record["name"])


def _check_identifier(content: memoryview) -> None:
    identifier = bytes(content[4:8])
    if len(content) < 8:
        raise DamagedFileError(f"it has {len(content)} bytes, and the head of a TFLite file has 8")
    if identifier != IDENTIFIER:
        raise ParseError(
            f"not a TFLite file: {IDENTIFIER!r} is missing, there is {identifier!r}; "
            "if the file has another format, give it the suffix of that format, or name the format",
            where="byte 0x4",
        )


class _ModelBuilder:
    """Converts the FlatBuffers records of a file to a `Model` and the other classes of `contents`."""

    def __init__(self, reader: Reader, root: Record, files: FilesBeside) -> None:
        self._reader = reader
        self._root = root
        self._files = files
        external_buffers = enumerate(root["external_buffers"] or (), len(root["buffers"] or ()))
        self._external = {record["id"]: number for number, record in external_buffers}
        codes = root["operator_codes"] or ()
        self._codes = [self._code(code, f"operator_codes[{i}]") for i, code in enumerate(codes)]

    def build(self) -> Model:
        root = self._root
        return Model(
            version=root["version"],
            description=root["description"] or "",
            subgraphs=tuple(self._subgraph(record, f"subgraphs[{i}]") for i, record in _enumerated(root["subgraphs"])),
            buffers=(
                *(self._buffer(record, f"buffers[{i}]") for i, record in _enumerated(root["buffers"])),
                *(
                    self._beside(record, f"external_buffers[{i}]")
                    for i, record in _enumerated(root["external_buffers"])
                ),
            ),
            metadata=tuple(Metadata(record["name"] or "", record["buffer"]) for record in root["metadata"] or ()),
            signatures=tuple(self._signature(record) for record in root["signature_defs"] or ()),
        )

    def _code(self, record: Record, where: str) -> tuple[str, bool, int]:
        """Return an operator code's name, whether the operator is custom, and its version.

        `ParseError` with the location `where` is raised for an unknown builtin code or a custom operator without a
        name.
        """
        code = max(record["deprecated_builtin_code"], record["builtin_code"])
        if not 0 <= code < len(OPERATORS) or OPERATORS[code].startswith("PLACEHOLDER"):
            raise ParseError(f"builtin operator {code} is not known", where=where)
        if OPERATORS[code] != "CUSTOM":
            return OPERATORS[code], False, record["version"]
        if not record["custom_code"]:
            raise ParseError("a custom operator without a name", where=where)
        return record["custom_code"], True, record["version"]

    def _buffer(self, record: Record, where: str) -> memoryview | None:
        return self._bytes(record["data"], record["offset"], record["size"], where)

    def _beside(self, record: Record, where: str) -> memoryview | None:
        """Return the bytes of an external buffer, which are in a file beside the model."""
        groups = self._root["external_buffer_groups"] or ()
        if record["group"] >= len(groups):
            raise ParseError(f"group {record['group']} does not exist; there are {len(groups)}", where=where)
        if record["packing"]:
            raise ParseError(f"the packing {record['packing']!r} is not supported", where=where)
        location = groups[record["group"]]["name"] or ""
        try:
            return self._files.part(location, record["offset"], record["length"]).data or None
        except ParseError as error:
            raise ParseError(str(error), where=where) from error

    def _buffer_of(self, record: Record, where: str) -> int:
        """Return the index of the buffer of a tensor; external buffers follow the others."""
        external_id = record["external_buffer"]
        if external_id and external_id not in self._external:
            raise ParseError(f"the external buffer {external_id} does not exist", where=where)
        return self._external[external_id] if external_id else record["buffer"]

    def _bytes(self, inline: memoryview | None, offset: int, size: int, where: str) -> memoryview | None:
        """Return the bytes of a buffer, or None if it is empty.

        They are `inline` in the FlatBuffers part, or in large files `size` bytes at position `offset` after this part.
        """
        if inline is None and offset > 1:
            inline = self._reader.region(offset, size, where)
        return inline or None

    def _subgraph(self, record: Record, where: str) -> Subgraph:
        operators = _enumerated(record["operators"])
        return Subgraph(
            name=record["name"] or "",
            tensors=tuple(self._tensor(t, f"{where}.tensors[{i}]") for i, t in _enumerated(record["tensors"])),
            inputs=self._tuple(record["inputs"], where),
            outputs=self._tuple(record["outputs"], where),
            operators=tuple(self._operator(o, f"{where}.operators[{i}]") for i, o in operators),
        )

    def _tensor(self, record: Record, where: str) -> Tensor:
        type_number = record["type"]
        if not 0 <= type_number < len(TENSOR_TYPES):
            raise ParseError(f"tensor type {type_number} is not known", where=f"{where}.type")
        shape, signature = self._tuple(record["shape"], where), self._tuple(record["shape_signature"], where)
        return Tensor(
            name=record["name"] or "",
            dtype=TENSOR_TYPES[type_number],
            shape=shape,
            shape_signature=signature if signature and len(signature) == len(shape) else None,
            buffer=self._buffer_of(record, where),
            quantization=self._quantization(record["quantization"], where),
            is_variable=record["is_variable"],
            has_rank=record["has_rank"],
            sparsity=self._sparsity(record["sparsity"], f"{where}.sparsity"),
        )

    def _sparsity(self, record: Record | None, where: str) -> Sparsity | None:
        if record is None:
            return None
        dimensions = (self._dimension(dimension) for dimension in record["dim_metadata"] or ())
        order, blocks = (self._tuple(record[name], where) for name in ("traversal_order", "block_map"))
        return Sparsity(order, blocks, tuple(dimensions))

    def _dimension(self, record: Record) -> Dimension:
        segments, indices = record["array_segments"], record["array_indices"]
        if record["format"] == _DENSE:
            return Dimension(record["dense_size"])
        vectors = ((vector or {"values": None})["values"] for vector in (segments, indices))
        first, second = (np.zeros(0, np.int32) if vector is None else np.asarray(vector) for vector in vectors)
        return Dimension(record["dense_size"], first, second)

    def _quantization(self, record: Record | None, where: str) -> QuantizationParameters | None:
        if record is None:
            return None
        if record["details"] is not None:
            details = record["details"]
            return QuantizationParameters((), (), details=details.type, blocks=self._blocks(details, where))
        scales: tuple[float, ...] = self._tuple(record["scale"], where)
        zero_points: tuple[int, ...] = self._tuple(record["zero_point"], where) or (0,)
        if not scales:
            return None
        if len(zero_points) == 1:
            zero_points *= len(scales)
        axis = record["quantized_dimension"] if len(scales) > 1 else None
        return QuantizationParameters(scales, zero_points, axis)

    def _blocks(self, details: Record, where: str) -> Blocks | None:
        if details.type == "CustomQuantization":
            return None
        shape, axes = (self._tuple(details.fields.get(name), where) for name in ("block_shape", "quantized_dimensions"))
        return Blocks(details["scales"], details["zero_points"], details["block_size"], shape, axes)

    def _operator(self, record: Record, where: str) -> Operator:
        index = record["opcode_index"]
        if index >= len(self._codes):
            raise ParseError(f"operator code {index} of {len(self._codes)}", where=f"{where}.opcode_index")
        name, is_custom, version = self._codes[index]
        options = record["builtin_options"] or record["builtin_options_2"]
        large_options = record["large_custom_options_offset"], record["large_custom_options_size"]
        return Operator(
            name=name,
            inputs=self._tuple(record["inputs"], where),
            outputs=self._tuple(record["outputs"], where),
            version=version,
            is_custom=is_custom,
            options_type=options.type if options else None,
            attributes=self._attributes(options, where),
            custom_options=self._bytes(record["custom_options"], *large_options, f"{where}.custom_options"),
            intermediates=self._tuple(record["intermediates"], where),
            mutating_variable_inputs=self._tuple(record["mutating_variable_inputs"], where),
            where=where,
        )

    def _attributes(self, options: Record | None, where: str) -> Mapping[str, Any]:
        fields = options.fields.items() if options else ()
        plain_fields = {name: self._tuple(v, where) if isinstance(v, np.ndarray) else v for name, v in fields}
        return MappingProxyType(plain_fields)

    def _signature(self, record: Record) -> Signature:
        inputs, outputs = _tensor_map(record["inputs"]), _tensor_map(record["outputs"])
        return Signature(record["signature_key"] or "", record["subgraph_index"], inputs, outputs)

    def _tuple(self, values: Any, where: str) -> tuple[Any, ...]:
        """Return the elements of the FlatBuffers vector `values` as a tuple; empty if the vector is absent (None)."""
        if values is None:
            return ()
        self._reader.spend(len(values), where)
        return tuple(values.tolist())


def _tensor_map(records: Sequence[Record] | None) -> Mapping[str, int]:
    return MappingProxyType({record["name"] or "": record["tensor_index"] for record in records or ()})


def _enumerated(records: Sequence[Record] | None) -> enumerate[Record]:
    return enumerate(records or ())
