"""Layers as the records of Arm NN's files, which is the form in which Interposer converts them.

The fields of descriptors have other names in files (``padLeft`` for `m_PadLeft`), and some enumerations are numbered
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from interposer.formats.armnn.schema import SCHEMA
from pyarmnn import _types as types
from pyarmnn._descriptor import Descriptor
from pyarmnn._later.constants import (
    DataLayout_NCDHW,
    DataLayout_NDHWC,
    UnaryOperation_Ceil,
    UnaryOperation_Log,
    UnaryOperation_LogicalNot,
    UnaryOperation_Sin,
)
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._shapes import PermutationVector, TensorShape
from pyarmnn._views import ConcatDescriptor, SplitterDescriptor

__all__ = ["Fields", "record_of"]

_NAMES: Final = {
    ("Activation", "m_Function"): "activationFunction",
    ("ArgMinMax", "m_Function"): "argMinMaxFunction",
    ("FullyConnected", "m_TransposeWeightMatrix"): "transposeWeightsMatrix",
    ("Reduce", "m_vAxis"): "axis",
    **{("ScatterNd", name): name for name in ("m_Function", "m_InputEnabled", "m_Axis", "m_AxisEnabled")},
    ("Tile", "m_Multiples"): "m_Multiples",
}
"""Fields whose names in files differ in more than the prefix and the first letter."""

_LAYOUTS: Final = {types.DataLayout_NHWC: 0, types.DataLayout_NCHW: 1, DataLayout_NDHWC: 2, DataLayout_NCDHW: 3}

_NUMBERS: Final[dict[tuple[str, str], dict[int, int]]] = {
    ("", "m_DataLayout"): _LAYOUTS,
    ("BatchMatMul", "m_DataLayoutX"): _LAYOUTS,
    ("BatchMatMul", "m_DataLayoutY"): _LAYOUTS,
    ("Resize", "m_Method"): {types.ResizeMethod_NearestNeighbor: 0, types.ResizeMethod_Bilinear: 1},
    ("ElementwiseUnary", "m_Operation"): {
        types.UnaryOperation_Abs: 0,
        types.UnaryOperation_Rsqrt: 1,
        types.UnaryOperation_Sqrt: 2,
        types.UnaryOperation_Exp: 3,
        types.UnaryOperation_Neg: 4,
        **{number: number for number in (UnaryOperation_LogicalNot, UnaryOperation_Log, UnaryOperation_Sin)},
        UnaryOperation_Ceil: 8,
    },
}
"""The numbers in files of enumerations that are numbered otherwise there, by kind of layer (or any) and field."""

_RECURRENT: Final = ("Lstm", "QLstm", "QuantizedLstm", "UnidirectionalSequenceLstm")
"""The kinds of layers whose constants are in a record of their own."""

_UNKNOWN: Final = 127
"""A number that no enumeration of the file format has."""


class Fields(dict[str, Any]):
    """A record with fields by name; as those of files, it has them as `fields` too."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the record."""
        return self


def record_of(layer: IConnectableLayer) -> Fields:
    """Return the record of a layer: its constants and its descriptor."""
    constants = Fields(layer._constants)
    if layer._type in _RECURRENT:
        constants = Fields(inputParams=Fields((_lowered(name), value) for name, value in constants.items()))
    descriptor = layer._descriptor
    return constants if descriptor is None else Fields(constants, descriptor=_described(layer._type, descriptor))


def _described(kind: str, descriptor: Any) -> Fields:
    if isinstance(descriptor, ConcatDescriptor):
        return _origins(descriptor)
    if isinstance(descriptor, SplitterDescriptor):
        return Fields(origins=_origins(descriptor.GetOrigins()), viewSizes=_rows(descriptor._sizes))
    return Fields(SCHEMA.defaults(f"{kind}Descriptor"), **dict(_fields(kind, descriptor)))


def _origins(descriptor: ConcatDescriptor) -> Fields:
    return Fields(
        concatAxis=descriptor.GetConcatAxis(),
        numViews=descriptor.GetNumViews(),
        numDimensions=descriptor.GetNumDimensions(),
        viewOrigins=_rows(descriptor._origins),
    )


def _rows(rows: list[list[int]]) -> list[Fields]:
    return [Fields(data=np.array(row, np.uint32)) for row in rows]


def _fields(kind: str, descriptor: Descriptor) -> Iterator[tuple[str, Any]]:
    for field in descriptor._fields:
        value = getattr(descriptor, field)
        numbers = _NUMBERS.get((kind, field)) or _NUMBERS.get(("", field))
        name = _NAMES.get((kind, field)) or _lowered(field)
        yield name, _plain(value) if numbers is None else numbers.get(value, _UNKNOWN)


def _lowered(field: str) -> str:
    name = field.removeprefix("m_")
    return name[0].lower() + name[1:]


def _plain(value: Any) -> Any:
    """Return a value as files have it: lists of numbers and of pairs as vectors."""
    if isinstance(value, PermutationVector):
        return np.array(value._mapping, np.uint32)
    if isinstance(value, TensorShape | list):
        return np.array(list(value), np.int64).reshape(-1)
    return value
