"""The C structs of TensorFlow Lite's delegate interface as plain data, and how the options of operators are read.

A host passes these structs to a delegate: LiteRT, TensorFlow Lite, or a program that links one of them. They have grown
only at their ends, so that the members below have the same place in all hosts since TensorFlow Lite 2.14. What a
host passes is compared with what the structs must hold before it is used; see `host.check`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.formats.tflite.schema import TENSOR_TYPES

__all__ = [
    "AFFINE",
    "BLOCKWISE",
    "CONSTANT",
    "DYNAMIC",
    "ERROR",
    "OK",
    "OPTION_LINES",
    "TYPES",
    "Affine",
    "Blockwise",
    "Context",
    "DelegateParams",
    "Node",
    "Registration",
    "Tensor",
    "floats",
    "has_options",
    "integers",
    "read_options",
]

OK: Final = 0
ERROR: Final = 1

CONSTANT: Final = 1
"""The allocation type of a tensor whose data is in the model file."""

DYNAMIC: Final = 4
"""The allocation type of a tensor that gets its memory during a run."""

AFFINE: Final = 1
BLOCKWISE: Final = 2

_TYPES: Final = """
none float32 int32 uint8 int64 string bool int16 complex64 int8 float16 float64 complex128 uint64 resource variant
uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2
"""
TYPES: Final[tuple[str, ...]] = tuple(_TYPES.split())
"""The names of the tensor types by their number in the structs, which is not their number in files."""

_MEMBERS: Final = {
    "size": ctypes.c_size_t, "int": ctypes.c_int, "i32": ctypes.c_int32, "u64": ctypes.c_uint64,
    "float": ctypes.c_float, "bool": ctypes.c_bool, "pointer": ctypes.c_void_p, "text": ctypes.c_char_p,
}  # fmt: skip


def _members(text: str) -> list[tuple[str, Any]]:
    names_and_kinds = (member.split(":") for member in text.split())
    return [(name, _MEMBERS[kind]) for name, kind in names_and_kinds]


class Context(ctypes.Structure):
    """A graph in an interpreter: its tensors, and the functions that a delegate may call."""

    _fields_ = _members("""
        tensors_size:size get_execution_plan:pointer tensors:pointer impl:pointer resize_tensor:pointer
        report_error:pointer add_tensors:pointer get_node_and_registration:pointer replace_nodes:pointer threads:int
        get_external_context:pointer set_external_context:pointer allows_float16:bool profiler:pointer
        allocate_persistent_buffer:pointer allocate_buffer_for_eval:pointer request_scratch_buffer:pointer
        get_scratch_buffer:pointer resize_tensor_explicit:pointer preview_partitioning:pointer
    """)


class Tensor(ctypes.Structure):
    """A tensor of a graph: its type, shape, quantization and memory."""

    _fields_ = _members("""
        type:int data:pointer dims:pointer scale:float zero_point:i32 allocation_type:int bytes:size allocation:pointer
        name:text delegate:pointer buffer_handle:int is_stale:bool is_variable:bool quantization_type:int
        quantization:pointer sparsity:pointer dims_signature:pointer
    """)


class Affine(ctypes.Structure):
    """Scales and zero points of a tensor, or of each index along the dimension `axis`."""

    _fields_ = _members("scales:pointer zero_points:pointer axis:i32")


class Blockwise(ctypes.Structure):
    """The indices of the tensors that have the scales and zero points of blocks of elements."""

    _fields_ = _members("scales:i32 zero_points:i32 block_size:i32 axis:i32")


class Node(ctypes.Structure):
    """An operator of a graph: the indices of its tensors, and its options."""

    _fields_ = _members("""
        inputs:pointer outputs:pointer intermediates:pointer temporaries:pointer user_data:pointer builtin_data:pointer
        custom_data:pointer custom_size:int delegate:pointer has_side_effect:bool
    """)


class Registration(ctypes.Structure):
    """The kernel of an operator, of which a delegate reads the code, the version and the name of a custom operator."""

    _fields_ = _members("""
        init:pointer free:pointer prepare:pointer invoke:pointer profiling_string:pointer builtin_code:i32
        custom_name:text version:int
    """)


class DelegateParams(ctypes.Structure):
    """A part of a graph that a delegate takes: its nodes, and the tensors that it reads and writes."""

    _fields_ = _members("delegate:pointer nodes:pointer inputs:pointer outputs:pointer")


def integers(address: int | None) -> tuple[int, ...]:
    """Return the elements of an array of C ints that is preceded by its length; empty for a null pointer."""
    return _elements(ctypes.c_int, address)


def floats(address: int | None) -> tuple[float, ...]:
    """Return the elements of an array of C floats that is preceded by its length; empty for a null pointer."""
    return _elements(ctypes.c_float, address)


def _elements(kind: Any, address: int | None) -> tuple[Any, ...]:
    count = ctypes.c_int.from_address(address).value if address else 0
    return tuple((kind * count).from_address(address + 4)) if address and count > 0 else ()


# --- options of operators ---------------------------------------------------------------------------------------------

OPTION_LINES: Final = """
AddOptions: fused_activation_function:int pot_scale_int16:bool
ArgMaxOptions: output_type:type
ArgMinOptions: output_type:type
BatchMatMulOptions: adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
BidirectionalSequenceLSTMOptions: fused_activation_function:int cell_clip:float proj_clip:float merge_outputs:bool time_major:bool asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions: time_major:bool fused_activation_function:int merge_outputs:bool asymmetric_quantize_inputs:bool
BucketizeOptions: boundaries:floats
CastOptions: in_data_type:type out_data_type:type
ConcatenationOptions: axis:int fused_activation_function:int
Conv2DOptions: padding:from_one stride_w:int stride_h:int fused_activation_function:int dilation_w_factor:int dilation_h_factor:int
Conv3DOptions: padding:from_one stride_w:int stride_h:int stride_d:int dilation_w_factor:int dilation_h_factor:int dilation_d_factor:int fused_activation_function:int
CumsumOptions: exclusive:bool reverse:bool
DepthToSpaceOptions: block_size:int
DepthwiseConv2DOptions: padding:from_one stride_w:int stride_h:int depth_multiplier:int fused_activation_function:int dilation_w_factor:int dilation_h_factor:int
DivOptions: fused_activation_function:int
EmbeddingLookupSparseOptions: combiner:int
FakeQuantOptions: min:float max:float num_bits:int narrow_range:bool
FullyConnectedOptions: fused_activation_function:int weights_format:int keep_num_dims:bool asymmetric_quantize_inputs:bool
GatherOptions: axis:int batch_dims:int
GeluOptions: approximate:bool
L2NormOptions: fused_activation_function:int
LSHProjectionOptions: type:int
LSTMOptions: fused_activation_function:int cell_clip:float proj_clip:float kernel_type:int asymmetric_quantize_inputs:bool
LeakyReluOptions: alpha:float
LocalResponseNormalizationOptions: radius:int bias:float alpha:float beta:float
MirrorPadOptions: mode:from_one
MulOptions: fused_activation_function:int
OneHotOptions: axis:int
PackOptions: values_count:int axis:int
Pool2DOptions: padding:from_one stride_w:int stride_h:int filter_width:int filter_height:int fused_activation_function:int
RNNOptions: fused_activation_function:int asymmetric_quantize_inputs:bool
ReduceWindowOptions: reduce_function:int
ReducerOptions: keep_dims:bool
ReshapeOptions: new_shape:dims
ResizeBilinearOptions: align_corners:bool half_pixel_centers:bool
ResizeNearestNeighborOptions: align_corners:bool half_pixel_centers:bool
ReverseSequenceOptions: seq_dim:int batch_dim:int
SVDFOptions: rank:int fused_activation_function:int asymmetric_quantize_inputs:bool
SequenceRNNOptions: time_major:bool fused_activation_function:int asymmetric_quantize_inputs:bool
ShapeOptions: out_type:type
SkipGramOptions: ngram_size:int max_skip_size:int include_all_ngrams:bool
SoftmaxOptions: beta:float
SpaceToDepthOptions: block_size:int
SplitOptions: num_splits:int
SplitVOptions: num_splits:int
SqueezeOptions: squeeze_dims:dims
StablehloGatherOptions: offset_dims:dims64 collapsed_slice_dims:dims64 start_index_map:dims64 index_vector_dim:i64 slice_sizes:dims64 indices_are_sorted:bool
StablehloPadOptions: edge_padding_low:ranked edge_padding_high:ranked interior_padding:ranked
StablehloRngBitGeneratorOptions: algorithm:from_one
StridedSliceOptions: begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int shrink_axis_mask:int offset:bool@8
SubOptions: fused_activation_function:int pot_scale_int16:bool
TransposeConvOptions: padding:from_one stride_w:int stride_h:int fused_activation_function:int@4
UnidirectionalSequenceLSTMOptions: fused_activation_function:int cell_clip:float proj_clip:float time_major:bool asymmetric_quantize_inputs:bool@3 diagonal_recurrent_tensors:bool@4
UniqueOptions: idx_out_type:type
UnpackOptions: num:int axis:int
"""  # noqa: E501 - a struct is a line
"""The structs with the options of builtin operators, by the schema's names of their tables and fields.

A member is ``name:kind``, or ``name:kind@version`` if only hosts that know this version of the operator have it. Kinds:
``int``, ``i64``, ``float`` and ``bool`` are C types. ``from_one`` is an enumeration that is one greater than in files,
``type`` the number of a tensor type. ``dims`` and ``dims64`` are eight integers and how many of them count; ``ranked``
has eight, of which as many count as the first input has dimensions; ``floats`` is a count and a pointer.
"""

_EIGHT: Final = 8
_KINDS: Final[dict[str, tuple[Any, ...]]] = {
    "int": (ctypes.c_int,),
    "i64": (ctypes.c_int64,),
    "float": (ctypes.c_float,),
    "bool": (ctypes.c_bool,),
    "from_one": (ctypes.c_int,),
    "type": (ctypes.c_int,),
    "dims": (ctypes.c_int32 * _EIGHT, ctypes.c_int),
    "dims64": (ctypes.c_int64 * _EIGHT, ctypes.c_int),
    "ranked": (ctypes.c_int64 * _EIGHT,),
    "floats": (ctypes.c_int, ctypes.c_void_p),
}


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a struct of options: `offsets` are those of its C members, `since` the operator's first version."""

    name: str
    kind: str
    since: int
    offsets: tuple[int, ...]


def has_options(table: str) -> bool:
    """Return True if the struct with the options that the schema calls `table` is known."""
    return table in _structs()


def read_options(table: str, address: int, version: int, rank: int) -> dict[str, Any]:
    """Return the options in the struct at `address` by the schema's names of their fields, as a file has them.

    Args:
        table: the schema's name of the options, such as ``Conv2DOptions``; see `has_options`.
        address: where the struct begins.
        version: the version of the operator; members that later versions have added are left out.
        rank: the number of dimensions of the operator's first input.
    """
    members = (member for member in _structs()[table] if member.since <= version)
    return {member.name: _read(member, address, rank) for member in members}


@cache
def _structs() -> Mapping[str, tuple[_Member, ...]]:
    lines = (line.split(":", 1) for line in OPTION_LINES.strip().splitlines())
    return {table: tuple(_placed(text)) for table, text in lines}


def _placed(text: str) -> Iterator[_Member]:
    """Yield the members in a line with their offsets in C, where each type is aligned to its own alignment."""
    end = 0
    for word in text.split():
        name, kind = word.split(":")
        kind, _, since = kind.partition("@")
        offsets = []
        for c_type in _KINDS[kind]:
            alignment = ctypes.alignment(c_type)
            offsets.append((end + alignment - 1) // alignment * alignment)
            end = offsets[-1] + ctypes.sizeof(c_type)
        yield _Member(name, kind, int(since or 1), tuple(offsets))


def _read(member: _Member, address: int, rank: int) -> Any:
    values = [
        c_type.from_address(address + offset)
        for c_type, offset in zip(_KINDS[member.kind], member.offsets, strict=True)
    ]
    first: Any = values[0]
    match member.kind:
        case "from_one":
            return first.value - 1
        case "type":
            return _number_in_files(first.value)
        case "dims" | "dims64":
            return tuple(first[: min(max(values[1].value, 0), _EIGHT)])
        case "ranked":
            return tuple(first[: min(rank, _EIGHT)])
        case "floats":
            return (
                tuple((ctypes.c_float * max(first.value, 0)).from_address(values[1].value or 0)) if first.value else ()
            )
    return first.value


def _number_in_files(number: int) -> int:
    """Return the number that files have for a tensor type, or -1 for a type that they do not have."""
    name = TYPES[number] if 0 <= number < len(TYPES) else "none"
    return TENSOR_TYPES.index(name) if name in TENSOR_TYPES else -1
