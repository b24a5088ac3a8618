"""What the format's types say of a tensor, a sequence or an optional, and of the elements in the latter."""

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
    """What a type says of something of this shape, that of a sequence or optional being how many elements it holds.

    Raises:
        ParseError: it is neither a tensor nor a sequence nor an optional, or of elements that are not supported.
    """
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return TensorInfo(shape, data_type(kind.tensor_type.elem_type))
    if which not in _COLLECTIONS:
        raise ParseError(f"it is {_TITLES.get(which, which)}; only tensors, sequences and optionals are supported")
    return TensorInfo(shape, _COLLECTIONS[which], element=element_info(getattr(kind, which).elem_type))


def element_info(kind: Message) -> TensorInfo:
    """Return what a type says of every element; names of dimensions say nothing, as each element has others."""
    if kind.WhichOneof("value") != "tensor_type":
        return info_of_type(kind, (UNKNOWN,))
    if not kind.tensor_type.HasField("shape"):
        return info_of_type(kind, UNRANKED)
    dims = kind.tensor_type.shape.dim
    return info_of_type(kind, [dim.dim_value if _is_known(dim) else UNKNOWN for dim in dims])


def _is_known(dim: Message) -> bool:
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)
