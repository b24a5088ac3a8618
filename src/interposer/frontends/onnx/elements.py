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


def info_of_type(type_proto: Message, shape: ShapeLike) -> TensorInfo:
    """Return the info of a value of the type `type_proto` (a `TypeProto`) and of this shape.

    The shape of a sequence or optional is its number of elements.

    Raises:
        ParseError: the type is not a tensor, sequence or optional, or has elements of an unsupported type.
    """
    type_field = type_proto.WhichOneof("value")
    if type_field == "tensor_type":
        return TensorInfo(shape, data_type(type_proto.tensor_type.elem_type))
    if type_field not in _COLLECTIONS:
        raise ParseError(
            f"it is {_TITLES.get(type_field, type_field)}; only tensors, sequences and optionals are supported"
        )
    return TensorInfo(shape, _COLLECTIONS[type_field], element=element_info(getattr(type_proto, type_field).elem_type))


def element_info(type_proto: Message) -> TensorInfo:
    """Return the info of the elements of a sequence or optional, whose element type is `type_proto` (a `TypeProto`).

    Dimensions that are open in the model have no name here: elements may differ in size, so a name would not identify
    one.
    """
    if type_proto.WhichOneof("value") != "tensor_type":
        return info_of_type(type_proto, (UNKNOWN,))
    if not type_proto.tensor_type.HasField("shape"):
        return info_of_type(type_proto, UNRANKED)
    dimensions = type_proto.tensor_type.shape.dim
    return info_of_type(type_proto, [dim.dim_value if _is_known(dim) else UNKNOWN for dim in dimensions])


def _is_known(dim: Message) -> bool:
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)
