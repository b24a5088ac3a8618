"""The infos of tensors, sequences and optionals that the types of the ONNX format declare."""

from __future__ import annotations

from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import UNKNOWN, UNRANKED, DataType, ShapeLike, TensorInfo
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.tensors import data_type

__all__ = ["element_info", "info_of_type"]

_COLLECTIONS: Final = {"sequence_type": DataType.SEQUENCE, "optional_type": DataType.OPTIONAL}
_TITLES: Final = {"map_type": "a map", "sparse_tensor_type": "a sparse tensor", None: "of no type"}


def info_of_type(kind: Message, shape: ShapeLike) -> TensorInfo:
    """Return the info of a value whose type is the `TypeProto` `kind` and whose shape is `shape`.

    The shape of a sequence or optional is its number of elements.

    Raises:
        ParseError: the type is not a tensor, sequence or optional, or has elements of an unsupported type.
    """
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return TensorInfo(shape, data_type(kind.tensor_type.elem_type))
    if which not in _COLLECTIONS:
        raise ParseError(f"it is {_TITLES.get(which, which)}; only tensors, sequences and optionals are supported")
    return TensorInfo(shape, _COLLECTIONS[which], element=element_info(getattr(kind, which).elem_type))


def element_info(kind: Message) -> TensorInfo:
    """Return the info of the elements of a sequence or optional, whose element type is the `TypeProto` `kind`.

    Dimensions that are open in the model have no name here: elements may differ in size, so a name would not identify
    one.
    """
    if kind.WhichOneof("value") != "tensor_type":
        return info_of_type(kind, (UNKNOWN,))
    if not kind.tensor_type.HasField("shape"):
        return info_of_type(kind, UNRANKED)
    dims = kind.tensor_type.shape.dim
    return info_of_type(kind, [dim.dim_value if _is_known(dim) else UNKNOWN for dim in dims])


def _is_known(dim: Message) -> bool:
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)
