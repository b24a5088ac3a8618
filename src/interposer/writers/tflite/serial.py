"""Serialization of a sheet and its subgraphs to the bytes of a file."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from interposer._version import __version__
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.formats.tflite.schema import OPTIONS
from interposer.writers.tflite.sheet import Operator, Sheet, Tensor
from interposer.writers.tflite.tables import FORMAT, HANDLE, LARGEST, Tables, operator_code, options_code, type_code
from interposer.writers.tflite.versions import version_of

__all__ = ["serialized"]

_VERSION: Final = 3
_SIGNATURE: Final = "serving_default"
_BEFORE_127: Final = 127
"""Operators with greater codes have this one in the deprecated field and their own in the new field."""


def serialized(sheet: Sheet) -> bytes:
    """Return the bytes of a file whose first subgraph is the sheet.

    Raises:
        InvalidArgumentError: the file would have 2 GiB or more.
    """
    return _Serializer(sheet).file()


class _Serializer:
    def __init__(self, sheet: Sheet) -> None:
        self._sheets = _with_subgraphs(sheet)
        arrays = [tensor.array for each in self._sheets for tensor in _tensors(each) if tensor.array is not None]
        size = sum(_stored_bytes(array) + 64 for array in arrays)
        if size > LARGEST:
            raise InvalidArgumentError(
                f"the constants have {size:,} bytes, and a TFLite file must have less than 2 GiB; "
                "ONNX files can have more (interposer.writers.onnx)"
            )
        self._tables = Tables(FORMAT, size)
        self._buffers = [self._tables.table("Buffer")]
        self._codes: dict[tuple[int, int], int] = {}
        self._places: dict[int, int] = {}

    def file(self) -> bytes:
        """Return the bytes of the file."""
        tables = self._tables
        subgraphs = [self._subgraph(sheet) for sheet in self._sheets]
        codes = [self._code(*key) for key in self._codes]
        signature = self._signature(self._sheets[0])
        root = tables.table(
            "Model",
            version=_VERSION,
            operator_codes=tables.tables(codes),
            subgraphs=tables.tables(subgraphs),
            description=tables.text(f"interposer {__version__}"),
            buffers=tables.tables(self._buffers),
            signature_defs=tables.tables([signature]),
        )
        return tables.finished(root)

    def _code(self, code: int, version: int) -> int:
        old_code = min(code, _BEFORE_127)
        return self._tables.table("OperatorCode", deprecated_builtin_code=old_code, version=version, builtin_code=code)

    def _subgraph(self, sheet: Sheet) -> int:
        tables, tensors = self._tables, _tensors(sheet)
        number_of_tensor: dict[Tensor | None, int] = {tensor: number for number, tensor in enumerate(tensors)} | {
            None: -1
        }
        return tables.table(
            "SubGraph",
            tensors=tables.tables([self._tensor(tensor) for tensor in tensors]),
            inputs=tables.numbers([number_of_tensor[input_tensor] for input_tensor in sheet.inputs]),
            outputs=tables.numbers([number_of_tensor[output] for output in sheet.outputs]),
            operators=tables.tables([self._operator(operator, number_of_tensor) for operator in sheet.operators]),
            name=tables.text(sheet.name),
        )

    def _tensor(self, tensor: Tensor) -> int:
        tables, info = self._tables, tensor.info
        opened = [-1 if isinstance(size, Dim) else size for size in info.shape]
        fields = {
            "name": tables.text(tensor.name),
            "shape": tables.numbers([1 if size < 0 else size for size in opened]),
            "shape_signature": None if info.is_concrete else tables.numbers(opened),
            "quantization": self._quantization(info),
            "buffer": self._buffer(tensor.array),
        }
        code = HANDLE if tensor.is_handle else type_code(info.dtype)
        return tables.table("Tensor", type=code, has_rank=True, is_variable=tensor.is_variable, **fields)

    def _quantization(self, info: TensorInfo) -> int | None:
        q = info.quantization
        if q is None:
            return None
        return self._tables.table(
            "QuantizationParameters",
            scale=self._tables.numbers(q.scales, "float32"),
            zero_point=self._tables.numbers(q.zero_points, "int64"),
            quantized_dimension=q.axis,
        )

    def _buffer(self, array: Array | None) -> int:
        """Return the index of the buffer with a constant's elements, which is added on first use; 0 for no constant.

        An array that several tensors share is written once.
        """
        if array is None:
            return 0
        if id(array) not in self._places:
            vector = self._tables.constant(_stored(array))
            self._buffers.append(self._tables.table("Buffer", data=vector))
            self._places[id(array)] = len(self._buffers) - 1
        return self._places[id(array)]

    def _operator(self, operator: Operator, number_of_tensor: dict[Tensor | None, int]) -> int:
        tables = self._tables
        key = operator_code(operator.kind), version_of(operator)
        index = self._codes.setdefault(key, len(self._codes))
        kind = OPTIONS.get(operator.kind)
        options = None if kind is None else tables.table(kind, **self._options(operator))
        return tables.table(
            "Operator",
            opcode_index=index,
            inputs=tables.numbers([number_of_tensor[tensor] for tensor in operator.inputs]),
            outputs=tables.numbers([number_of_tensor[output] for output in operator.outputs]),
            builtin_options_type=None if kind is None else options_code(kind),
            builtin_options=options,
            intermediates=self._numbers(operator.intermediates, number_of_tensor),
        )

    def _numbers(self, tensors: list[Tensor], number_of_tensor: dict[Tensor | None, int]) -> int | None:
        return self._tables.numbers([number_of_tensor[tensor] for tensor in tensors]) if tensors else None

    def _options(self, operator: Operator) -> dict[str, Any]:
        return {name: self._option(option) for name, option in operator.options.items()}

    def _option(self, option: Any) -> Any:
        if isinstance(option, DataType):
            return type_code(option)
        if isinstance(option, Sheet):
            return self._sheets.index(option)
        if isinstance(option, str):
            return self._tables.text(option)
        return self._tables.numbers(option) if isinstance(option, list | tuple) else option

    def _signature(self, sheet: Sheet) -> int:
        numbers = {tensor: number for number, tensor in enumerate(_tensors(sheet))}
        maps = []
        for tensors in (sheet.inputs, sheet.outputs):
            names = [(self._tables.text(tensor.name), numbers[tensor]) for tensor in tensors]
            entries = [self._tables.table("TensorMap", name=name, tensor_index=index) for name, index in names]
            maps.append(self._tables.tables(entries))
        key = self._tables.text(_SIGNATURE)
        return self._tables.table("SignatureDef", inputs=maps[0], outputs=maps[1], signature_key=key, subgraph_index=0)


def _with_subgraphs(sheet: Sheet) -> list[Sheet]:
    """Return a sheet followed by the sheets of the subgraphs that its operators run, at any depth."""
    sheets = [sheet]
    for each in sheets:
        sheets += (
            option for operator in each.operators for option in operator.options.values() if isinstance(option, Sheet)
        )
    return sheets


def _tensors(sheet: Sheet) -> list[Tensor]:
    """Return all tensors of a sheet in the order of their indices in the file: inputs first."""
    used_tensors = (
        tensor
        for operator in sheet.operators
        for tensor in (*operator.inputs, *operator.outputs, *operator.intermediates)
        if tensor is not None
    )
    return list(dict.fromkeys([*sheet.inputs, *used_tensors, *sheet.outputs]))


def _stored_bytes(array: Array) -> int:
    if DataType.of(array.dtype) is DataType.INT4:
        return (array.size + 1) // 2
    return int(array.nbytes)


def _stored(array: Array) -> Array:
    """Return the elements of a constant as bytes; 4-bit integers are packed in pairs, the first in the lower half."""
    if DataType.of(array.dtype) is not DataType.INT4:
        return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    elements = np.zeros(array.size + array.size % 2, np.uint8)
    elements[: array.size] = array.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
    return elements[::2] | elements[1::2] << 4
