"""The C header ``interposer/backend.h`` in ctypes: its constants and, member by member, its structs.

Structs store functions as addresses, so that reading a struct creates no function objects; `FUNCTIONS` has their types.
A test compares the offsets of members with those of the C compiler.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntFlag
from typing import Any, Final

from interposer import _version
from interposer.core.types import DataType

API_VERSION: Final = _version.API_VERSION
MAGIC: Final = 0x31444E4B42525049
MAX_STRUCT_SIZE: Final = 1 << 16
"""The largest size in bytes of a versioned struct or an array's stride."""

OK: Final = 0
FAILED: Final = 1
INVALID_ARGUMENT: Final = 2
UNSUPPORTED: Final = 3
OUT_OF_MEMORY: Final = 4
UNAVAILABLE: Final = 5
REFUSED: Final = 6
CANCELLED: Final = 7
DEADLINE: Final = 8
CORRUPT: Final = 9
STALE: Final = 10
DEVICE_LOST: Final = 11
INVALID_VALUE: Final = 12
SKIPPED: Final = 13
STATUS: Final = {
    FAILED: "failed",
    INVALID_ARGUMENT: "invalid argument",
    UNSUPPORTED: "unsupported",
    OUT_OF_MEMORY: "out of memory",
    UNAVAILABLE: "unavailable",
    REFUSED: "refused",
    CANCELLED: "cancelled",
    DEADLINE: "deadline passed",
    CORRUPT: "corrupt blob",
    STALE: "stale blob",
    DEVICE_LOST: "device lost",
    INVALID_VALUE: "invalid value",
    SKIPPED: "skipped",
}

ITEM_NONE: Final = 0
ITEM_LAYER: Final = 1
ITEM_TENSOR: Final = 2
ITEM_INPUT: Final = 3
ITEM_OUTPUT: Final = 4
ITEM_OPTION: Final = 5

DTYPES: Final = {
    DataType.BOOL: 1,
    DataType.INT8: 2,
    DataType.INT16: 3,
    DataType.INT32: 4,
    DataType.INT64: 5,
    DataType.UINT8: 6,
    DataType.UINT16: 7,
    DataType.UINT32: 8,
    DataType.UINT64: 9,
    DataType.FLOAT16: 10,
    DataType.FLOAT32: 11,
    DataType.FLOAT64: 12,
    DataType.BFLOAT16: 13,
    DataType.INT4: 14,
    DataType.UINT4: 15,
    DataType.FLOAT8_E4M3FN: 16,
    DataType.FLOAT8_E4M3FNUZ: 17,
    DataType.FLOAT8_E5M2: 18,
    DataType.FLOAT8_E5M2FNUZ: 19,
    DataType.INT2: 20,
    DataType.UINT2: 21,
    DataType.FLOAT8_E8M0FNU: 22,
    DataType.FLOAT6_E2M3FN: 23,
    DataType.FLOAT6_E3M2FN: 24,
    DataType.FLOAT4_E2M1FN: 25,
}
DLPACK_CODES: Final = {
    DataType.BOOL: 6,
    DataType.BFLOAT16: 4,
    DataType.FLOAT8_E4M3FN: 10,
    DataType.FLOAT8_E4M3FNUZ: 11,
    DataType.FLOAT8_E5M2: 12,
    DataType.FLOAT8_E5M2FNUZ: 13,
    DataType.FLOAT8_E8M0FNU: 14,
    DataType.FLOAT6_E2M3FN: 15,
    DataType.FLOAT6_E3M2FN: 16,
    DataType.FLOAT4_E2M1FN: 17,
}
"""DLPack's type codes, where they are not 0 (signed), 1 (unsigned) or 2 (IEEE floats)."""

KIND_NONE: Final = 0
KIND_BOOL: Final = 1
KIND_INT: Final = 2
KIND_FLOAT: Final = 3
KIND_TEXT: Final = 4
KIND_ENUM: Final = 5
KIND_DTYPE: Final = 6
KIND_INTS: Final = 7
KIND_FLOATS: Final = 8
KIND_ENUMS: Final = 9

ATTRIBUTE_IS_DEFAULT: Final = 1

NO: Final = 0
YES: Final = 1
GROUP: Final = 2
PREFERRED: Final = 3

MEMORY_HOST: Final = 1
MEMORY_PRIVATE: Final = 0x80000000
TENSOR_READ_ONLY: Final = 1
LOG_DEBUG: Final = 10
LOG_INFO: Final = 20
LOG_WARNING: Final = 30
LOG_ERROR: Final = 40
SCOPE_INIT: Final = 1
SCOPE_MODEL: Final = 2
HOST_CHECKING: Final = 1
HOST_LASTING_BLOBS: Final = 2
BLOB_NEEDS_GRAPH: Final = 1

EXT_CONTEXT: Final = b"ipr.context/1"
EXT_BLOBS: Final = b"ipr.blobs/1"
EXT_HANDLES: Final = b"ipr.handles/1"
EXT_ALLOCATOR: Final = b"ipr.allocator/1"
EXT_EXECUTABLE_MEMORY: Final = b"ipr.executable_memory/1"
EXT_IN_PLACE: Final = b"ipr.in_place/1"
EXT_PROFILING: Final = b"ipr.profiling/1"
EXT_ASYNC: Final = b"ipr.async/1"
EXT_DEVICES: Final = b"ipr.devices/1"

FACTORY_MAPS: Final = 1
FACTORY_SUB_TENSORS: Final = 2
FACTORY_DEVICE_COPIES: Final = 4
FACTORY_PEER_COPIES: Final = 8
POINT_QUEUE: Final = 1
POINT_GATE: Final = 2
POINT_TIMELINE: Final = 4
POINT_SYNC_FD: Final = 8
POINT_SEMAPHORE_FD: Final = 16
ASYNC_COPIES: Final = 1
ASYNC_COPY_ENGINE: Final = 2
DEVICE_CPU: Final = 1
DEVICE_GPU: Final = 2
DEVICE_NPU: Final = 3
DEVICE_DSP: Final = 4
DEVICE_FPGA: Final = 5
DEVICE_OTHER: Final = 100
DEVICE_UNIFIED: Final = 1
DEVICE_SIMULATED: Final = 2
DEVICE_DISPLAY: Final = 4
HANDLE_ALONE: Final = 1
INTERVAL_KERNEL: Final = 1
INTERVAL_COPY: Final = 2
INTERVAL_BUILD: Final = 3
INTERVAL_WAIT: Final = 4
INTERVAL_OTHER: Final = 100
COUNTER_VALUE: Final = 1
COUNTER_RATE: Final = 2
COUNTER_EVENT: Final = 3


class Cap(IntFlag):
    """Capabilities that a backend declares in ``ipr_info.capabilities``."""

    CONCURRENT_EXECUTE = 0x1
    CONCURRENT_COMPILE = 0x2
    KEEPS_CONSTANTS = 0x4
    WANTS_HASHES = 0x8
    DYNAMIC_SHAPES = 0x10
    IN_PLACE = 0x20
    STRIDED = 0x40
    FORK_SAFE = 0x80
    DETERMINISTIC = 0x100
    FENCES = 0x200
    UNALIGNED_CONSTANTS = 0x400


class ExecutableFlag(IntFlag):
    """Flags that an executable declares in ``ipr_executable.flags``."""

    CONCURRENT = 1
    KEEPS_CONSTANTS = 2
    READS_BLOB = 4


class String(ctypes.Structure):
    """The C struct ``ipr_string``: text as UTF-8 bytes with a length."""

    _fields_ = [("data", c_void_p), ("size", c_uint64)]


class Error(ctypes.Structure):
    """The C struct ``ipr_error``: why a function failed; the host provides the text buffer."""

    _fields_ = [
        ("struct_size", c_uint64), ("code", c_int32), ("item_kind", c_int32), ("item", c_int64),
        ("capacity", c_uint64), ("length", c_uint64), ("text", c_void_p),
    ]  # fmt: skip


class Known(IntFlag):
    """Which members of an ``ipr_value_error`` are set (``IPR_VALUE_...``)."""

    OPERAND = 1
    ELEMENT = 2
    VALUE = 4
    LOWEST = 8
    HIGHEST = 16


class InvalidValue(ctypes.Structure):
    """The C struct ``ipr_value_error``: an error with what is wrong with a value of the inputs."""

    _fields_ = [
        ("error", Error), ("known", c_uint32), ("operand", c_int32), ("element", c_int64), ("value", c_int64),
        ("lowest", c_int64), ("highest", c_int64),
    ]  # fmt: skip


class Attribute(ctypes.Structure):
    """The C struct ``ipr_attribute``: one named value of a layer or an option."""

    _fields_ = [
        ("name", String), ("kind", c_int32), ("flags", c_uint32), ("i", c_int64), ("f", c_double), ("text", String),
        ("ints", c_void_p), ("floats", c_void_p), ("texts", c_void_p), ("count", c_uint64), ("columns", c_uint64),
    ]  # fmt: skip


class Options(ctypes.Structure):
    """The C struct ``ipr_options``: the options that the user set for the backend."""

    _fields_ = [("struct_size", c_uint64), ("count", c_uint64), ("stride", c_uint64), ("items", c_void_p)]


class TensorInfo(ctypes.Structure):
    """The C struct ``ipr_tensor_info``: a tensor of the graph without its data."""

    _fields_ = [
        ("name", String), ("dtype", c_int32), ("rank", c_int32), ("shape", c_void_p), ("scale_count", c_uint64),
        ("scales", c_void_p), ("zero_points", c_void_p), ("axis", c_int32), ("reserved", c_uint32),
        ("constant", c_int64), ("producer", c_int64),
    ]  # fmt: skip


class Constant(ctypes.Structure):
    """The C struct ``ipr_constant``: the data of a constant tensor."""

    _fields_ = [
        ("data", c_void_p), ("size", c_uint64), ("sha256", c_void_p), ("fd", c_int64), ("offset", c_uint64),
    ]  # fmt: skip


class Layer(ctypes.Structure):
    """The C struct ``ipr_layer``: one operation of the graph."""

    _fields_ = [
        ("type", String), ("name", String), ("inputs", c_void_p), ("input_count", c_uint64),
        ("outputs", c_void_p), ("output_count", c_uint64), ("attributes", c_void_p), ("attribute_count", c_uint64),
    ]  # fmt: skip


class Graph(ctypes.Structure):
    """The C struct ``ipr_graph``: layers in topological order, with their tensors and constants."""

    _fields_ = [
        ("struct_size", c_uint64), ("name", String),
        ("layer_count", c_uint64), ("layer_stride", c_uint64), ("layers", c_void_p), ("attribute_stride", c_uint64),
        ("tensor_count", c_uint64), ("tensor_stride", c_uint64), ("tensors", c_void_p),
        ("constant_count", c_uint64), ("constant_stride", c_uint64), ("constants", c_void_p),
        ("input_count", c_uint64), ("inputs", c_void_p), ("output_count", c_uint64), ("outputs", c_void_p),
    ]  # fmt: skip


class Verdict(ctypes.Structure):
    """The C struct ``ipr_verdict``: the support answer for one layer."""

    _fields_ = [
        ("verdict", c_int32), ("reason_code", c_int32), ("group", c_int64), ("reason", String),
        ("seconds", c_double), ("bytes", c_double),
    ]  # fmt: skip


class Report(ctypes.Structure):
    """The C struct ``ipr_report``: the verdicts that ``query_support`` returns, one for each layer."""

    _fields_ = [
        ("struct_size", c_uint64), ("verdict_count", c_uint64), ("verdict_stride", c_uint64), ("verdicts", c_void_p),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class Substitution(ctypes.Structure):
    """The C struct ``ipr_substitution``: layers that are compiled as one unit or replaced by a graph."""

    _fields_ = [
        ("layers", c_void_p), ("layer_count", c_uint64), ("replacement", c_void_p),
        ("inputs", c_void_p), ("input_count", c_uint64), ("outputs", c_void_p), ("output_count", c_uint64),
    ]  # fmt: skip


class Failure(ctypes.Structure):
    """The C struct ``ipr_failure``: layers that the backend cannot run after all, with the reason."""

    _fields_ = [
        ("layers", c_void_p), ("layer_count", c_uint64), ("reason_code", c_int32), ("reserved", c_uint32),
        ("reason", String),
    ]  # fmt: skip


class Answer(ctypes.Structure):
    """The C struct ``ipr_answer``: the substitutions and failures that ``optimize`` returns."""

    _fields_ = [
        ("struct_size", c_uint64), ("substitution_count", c_uint64), ("substitution_stride", c_uint64),
        ("substitutions", c_void_p), ("failure_count", c_uint64), ("failure_stride", c_uint64), ("failures", c_void_p),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class Executable(ctypes.Structure):
    """The C struct ``ipr_executable``: the compiled subgraph that ``compile`` returns."""

    _fields_ = [
        ("struct_size", c_uint64), ("handle", c_void_p), ("flags", c_uint64), ("workspace_size", c_uint64),
        ("workspace_alignment", c_uint64), ("seconds", c_double), ("memory", c_uint64),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class Tensor(ctypes.Structure):
    """The C struct ``ipr_tensor``: a tensor with its data during a run; it begins with a DLPack DLTensor."""

    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("dtype_code", c_uint8), ("dtype_bits", c_uint8), ("dtype_lanes", c_uint16),
        ("shape", c_void_p), ("strides", c_void_p), ("byte_offset", c_uint64),
        ("dtype", c_int32), ("memory_kind", c_uint32), ("size", c_uint64), ("native_handle", c_uint64),
        ("fence", c_int64), ("flags", c_uint64),
    ]  # fmt: skip


class Run(ctypes.Structure):
    """The C struct ``ipr_run``: the tensors, workspace, deadline and cancellation flag of one ``execute`` call."""

    _fields_ = [
        ("struct_size", c_uint64), ("tensor_stride", c_uint64), ("input_count", c_uint64), ("inputs", c_void_p),
        ("output_count", c_uint64), ("outputs", c_void_p), ("workspace", c_void_p), ("workspace_size", c_uint64),
        ("run_id", c_uint64), ("deadline_ns", c_int64), ("cancel", c_void_p), ("thread_limit", c_uint32),
        ("priority", c_int32), ("host", c_void_p), ("resize", c_void_p),
    ]  # fmt: skip


class Property(ctypes.Structure):
    """The C struct ``ipr_property``: an option that the backend supports, or a named capability."""

    _fields_ = [
        ("name", String), ("doc", String), ("kind", c_int32), ("scope", c_uint32), ("i", c_int64), ("f", c_double),
        ("text", String),
    ]  # fmt: skip


class Info(ctypes.Structure):
    """The C struct ``ipr_info``: the name, version, capabilities and options of a backend."""

    _fields_ = [
        ("struct_size", c_uint64), ("vendor", String), ("name", String), ("version", String), ("description", String),
        ("capabilities", c_uint64), ("alignment", c_uint64), ("memory_kinds", c_uint32), ("reserved", c_uint32),
        ("option_count", c_uint64), ("option_stride", c_uint64), ("options", c_void_p),
        ("property_count", c_uint64), ("property_stride", c_uint64), ("properties", c_void_p),
    ]  # fmt: skip


class LogSlot(ctypes.Structure):
    """The C struct ``ipr_log_slot``: the head of one log line in an ``ipr_log_ring``; the text follows it."""

    _fields_ = [("sequence", c_uint64), ("level", c_int32), ("length", c_uint32)]


class LogRing(ctypes.Structure):
    """The C struct ``ipr_log_ring``: a ring buffer of log lines, which the backend writes and the host reads."""

    _fields_ = [
        ("struct_size", c_uint64), ("slot_count", c_uint64), ("slot_stride", c_uint64), ("slots", c_void_p),
        ("head", c_uint64), ("tail", c_uint64), ("lost", c_uint64), ("level", c_int32), ("reserved", c_uint32),
    ]  # fmt: skip


class HostExtension(ctypes.Structure):
    """The C struct ``ipr_host_extension``: a named table of functions that the host offers."""

    _fields_ = [("name", String), ("table", c_void_p)]


class Host(ctypes.Structure):
    """The C struct ``ipr_host``: what the host offers to ``init``: logging, allocation, threads and paths."""

    _fields_ = [
        ("struct_size", c_uint64), ("api_major", c_uint32), ("api_minor", c_uint32), ("name", String),
        ("version", String), ("library_path", String), ("cache_dir", String), ("log", c_void_p),
        ("aligned_alloc", c_void_p), ("free", c_void_p), ("thread_count", c_uint32), ("flags", c_uint32),
        ("cpu_mask_words", c_uint64), ("cpu_mask", c_void_p),
        ("extension_count", c_uint64), ("extension_stride", c_uint64), ("extensions", c_void_p),
    ]  # fmt: skip


class Backend(ctypes.Structure):
    """The C struct ``ipr_backend``: the table of functions of a backend, with the members of version 1.0.

    `TABLE_SIZES` has the sizes of later minor versions.
    """

    _fields_ = [
        ("magic", c_uint64), ("struct_size", c_uint64), ("self", c_void_p), ("init", c_void_p), ("shutdown", c_void_p),
        ("get_info", c_void_p), ("query_support", c_void_p), ("optimize", c_void_p), ("compile", c_void_p),
        ("execute", c_void_p), ("get_extension", c_void_p),
    ]  # fmt: skip


class Network(ctypes.Structure):
    """The C struct ``ipr_network``: the network about which a context is notified."""

    _fields_ = [("struct_size", c_uint64), ("id", c_int64)]


class ContextApi(ctypes.Structure):
    """The C struct ``ipr_context_api``: extension ``ipr.context/1``, notifications about networks."""

    _fields_ = [
        ("struct_size", c_uint64), ("create", c_void_p), ("destroy", c_void_p), ("before_load", c_void_p),
        ("after_load", c_void_p), ("before_unload", c_void_p), ("after_unload", c_void_p),
    ]  # fmt: skip


class Blob(ctypes.Structure):
    """The C struct ``ipr_blob``: a compiled subgraph as bytes that can be stored in a file."""

    _fields_ = [
        ("struct_size", c_uint64), ("data", c_void_p), ("size", c_uint64), ("flags", c_uint64),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class Text(ctypes.Structure):
    """The C struct ``ipr_text``: a string that the backend owns until `release`."""

    _fields_ = [("struct_size", c_uint64), ("text", String), ("owner", c_void_p), ("release", c_void_p)]


class BlobsApi(ctypes.Structure):
    """The C struct ``ipr_blobs_api``: extension ``ipr.blobs/1``, compiled subgraphs that can be cached."""

    _fields_ = [
        ("struct_size", c_uint64), ("fingerprint", c_void_p), ("save", c_void_p), ("check", c_void_p),
        ("restore", c_void_p),
    ]  # fmt: skip


class Factory(ctypes.Structure):
    """The C struct ``ipr_factory``: one kind of backend memory and the operations on its tensors."""

    _fields_ = [("id", String), ("flags", c_uint64), ("import_kinds", c_uint32), ("export_kinds", c_uint32)]


class Factories(ctypes.Structure):
    """The C struct ``ipr_factories``: the kinds of memory of a backend, and those that its executables accept."""

    _fields_ = [
        ("struct_size", c_uint64), ("factory_count", c_uint64), ("factory_stride", c_uint64), ("factories", c_void_p),
        ("preference_count", c_uint64), ("preferences", c_void_p), ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class HandlesApi(ctypes.Structure):
    """The C struct ``ipr_handles_api``: extension ``ipr.handles/1``, tensors in memory of the backend."""

    _fields_ = [
        ("struct_size", c_uint64), ("describe", c_void_p), ("create_pool", c_void_p), ("destroy_pool", c_void_p),
        ("acquire", c_void_p), ("give_back", c_void_p), ("create_tensor", c_void_p), ("create_sub_tensor", c_void_p),
        ("destroy_tensor", c_void_p), ("manage", c_void_p), ("allocate", c_void_p), ("map", c_void_p),
        ("unmap", c_void_p), ("copy", c_void_p), ("import_memory", c_void_p), ("forget_memory", c_void_p),
        ("export_memory", c_void_p),
    ]  # fmt: skip


class Allocator(ctypes.Structure):
    """The C struct ``ipr_allocator``: the user's allocator of one kind of memory."""

    _fields_ = [
        ("struct_size", c_uint64), ("self", c_void_p), ("memory_kind", c_uint32), ("reserved", c_uint32),
        ("allocate", c_void_p), ("free", c_void_p),
    ]  # fmt: skip


class AllocatorApi(ctypes.Structure):
    """The C struct ``ipr_allocator_api``: extension ``ipr.allocator/1``, memory from the user's allocator."""

    _fields_ = [("struct_size", c_uint64), ("accept", c_void_p), ("use", c_void_p)]


class ExecutableMemoryApi(ctypes.Structure):
    """The C struct ``ipr_executable_memory_api``: extension ``ipr.executable_memory/1``, executables in such memory."""

    _fields_ = [("struct_size", c_uint64), ("compile", c_void_p), ("restore", c_void_p)]


class InPlaceApi(ctypes.Structure):
    """The C struct ``ipr_in_place_api``: extension ``ipr.in_place/1``, outputs in the memory of inputs."""

    _fields_ = [("struct_size", c_uint64), ("inputs_of_outputs", c_void_p)]


class Interval(ctypes.Structure):
    """The C struct ``ipr_interval``: something that took time, as the backend measured it."""

    _fields_ = [
        ("name", String), ("device", String), ("begin_ns", c_int64), ("end_ns", c_int64), ("thread", c_uint64),
        ("bytes", c_uint64), ("flops", c_uint64), ("kind", c_uint32), ("reserved", c_uint32),
    ]  # fmt: skip


class Counter(ctypes.Structure):
    """The C struct ``ipr_counter``: a number that can be read at any time."""

    _fields_ = [
        ("name", String), ("category", String), ("units", String), ("description", String), ("device", String),
        ("multiplier", c_double), ("kind", c_uint32), ("reserved", c_uint32),
    ]  # fmt: skip


class Counters(ctypes.Structure):
    """The C struct ``ipr_counters``: the counters of a backend."""

    _fields_ = [
        ("struct_size", c_uint64), ("counter_count", c_uint64), ("counter_stride", c_uint64), ("counters", c_void_p),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class Clock(ctypes.Structure):
    """The C struct ``ipr_clock``: one moment on the clocks of a device and of the host."""

    _fields_ = [("struct_size", c_uint64), ("device_ns", c_int64), ("host_ns", c_int64), ("error_ns", c_int64)]


class ProfilingApi(ctypes.Structure):
    """The C struct ``ipr_profiling_api``: extension ``ipr.profiling/1``, intervals and counters."""

    _fields_ = [
        ("struct_size", c_uint64), ("describe_counters", c_void_p), ("enable", c_void_p), ("collect", c_void_p),
        ("read_counters", c_void_p), ("correlate", c_void_p), ("select_counters", c_void_p),
    ]  # fmt: skip


class Timeline(ctypes.Structure):
    """The C struct ``ipr_timeline``: the progress of a queue, which the backend writes."""

    _fields_ = [
        ("struct_size", c_uint64), ("completed", c_uint64), ("failed", c_uint64), ("wake_fd", c_int32),
        ("reserved", c_uint32), ("wake", c_void_p),
    ]  # fmt: skip


class Point(ctypes.Structure):
    """The C struct ``ipr_point``: something that a submission waits for."""

    _fields_ = [("kind", c_uint32), ("reserved", c_uint32), ("handle", c_uint64), ("value", c_uint64)]


class Submission(ctypes.Structure):
    """The C struct ``ipr_submission``: a run of an executable or a copy of a tensor, and what it waits for."""

    _fields_ = [
        ("struct_size", c_uint64), ("executable", c_void_p), ("run", c_void_p), ("pool", c_void_p),
        ("source", c_void_p), ("target", c_void_p), ("wait_count", c_uint64), ("wait_stride", c_uint64),
        ("waits", c_void_p),
    ]  # fmt: skip


class AsyncApi(ctypes.Structure):
    """The C struct ``ipr_async_api``: extension ``ipr.async/1``, queues of submissions."""

    _fields_ = [
        ("struct_size", c_uint64), ("wait_kinds", c_uint32), ("export_kinds", c_uint32), ("flags", c_uint64),
        ("create_queue", c_void_p), ("destroy_queue", c_void_p), ("submit", c_void_p), ("wait", c_void_p),
        ("result", c_void_p), ("notify", c_void_p), ("cancel", c_void_p), ("reset", c_void_p), ("flush", c_void_p),
        ("create_gate", c_void_p), ("open_gate", c_void_p), ("destroy_gate", c_void_p), ("export_point", c_void_p),
    ]  # fmt: skip


class Device(ctypes.Structure):
    """The C struct ``ipr_device``: one device of a backend."""

    _fields_ = [
        ("id", String), ("name", String), ("vendor", String), ("driver", String), ("type", c_uint32),
        ("memory_kinds", c_uint32), ("flags", c_uint64), ("memory", c_uint64), ("memory_free", c_uint64),
        ("largest", c_uint64), ("queue_limit", c_uint32), ("dlpack_type", c_int32), ("dlpack_id", c_int32),
        ("reserved", c_uint32), ("uuid", c_void_p), ("property_count", c_uint64), ("property_stride", c_uint64),
        ("properties", c_void_p),
    ]  # fmt: skip


class Devices(ctypes.Structure):
    """The C struct ``ipr_devices``: all devices of a backend."""

    _fields_ = [
        ("struct_size", c_uint64), ("device_count", c_uint64), ("device_stride", c_uint64), ("devices", c_void_p),
        ("owner", c_void_p), ("release", c_void_p),
    ]  # fmt: skip


class DevicesApi(ctypes.Structure):
    """The C struct ``ipr_devices_api``: extension ``ipr.devices/1``, several devices of one backend."""

    _fields_ = [("struct_size", c_uint64), ("describe", c_void_p)]


STRUCTS: Final[dict[str, type[ctypes.Structure]]] = {
    "ipr_string": String, "ipr_error": Error, "ipr_value_error": InvalidValue, "ipr_attribute": Attribute,
    "ipr_options": Options,
    "ipr_tensor_info": TensorInfo, "ipr_constant": Constant, "ipr_layer": Layer, "ipr_graph": Graph,
    "ipr_verdict": Verdict, "ipr_report": Report, "ipr_substitution": Substitution, "ipr_failure": Failure,
    "ipr_answer": Answer, "ipr_executable": Executable, "ipr_tensor": Tensor, "ipr_run": Run,
    "ipr_property": Property, "ipr_info": Info, "ipr_log_slot": LogSlot, "ipr_log_ring": LogRing,
    "ipr_host_extension": HostExtension, "ipr_host": Host, "ipr_backend": Backend, "ipr_network": Network,
    "ipr_context_api": ContextApi, "ipr_blob": Blob, "ipr_text": Text, "ipr_blobs_api": BlobsApi,
    "ipr_factory": Factory, "ipr_factories": Factories, "ipr_handles_api": HandlesApi, "ipr_allocator": Allocator,
    "ipr_allocator_api": AllocatorApi, "ipr_executable_memory_api": ExecutableMemoryApi,
    "ipr_in_place_api": InPlaceApi, "ipr_interval": Interval,
    "ipr_counter": Counter, "ipr_counters": Counters, "ipr_clock": Clock, "ipr_profiling_api": ProfilingApi,
    "ipr_timeline": Timeline, "ipr_point": Point, "ipr_submission": Submission, "ipr_async_api": AsyncApi,
    "ipr_device": Device, "ipr_devices": Devices, "ipr_devices_api": DevicesApi,
}  # fmt: skip
"""The structs of the header, by their names in C."""

TABLE_SIZES: Final = {0: ctypes.sizeof(Backend)}
"""The size in bytes of ``ipr_backend`` in each minor version."""
ELEMENT_SIZES: Final = {
    "Layer": 80, "TensorInfo": 80, "Constant": 40, "Attribute": 96, "Verdict": 48, "Substitution": 56, "Failure": 40,
    "Property": 72,
}  # fmt: skip
"""The size in bytes of array elements in version 1.0, which is the minimum for elements of a plug-in."""
REQUIRED: Final = ("init", "shutdown", "get_info", "query_support", "compile", "execute")
"""The members of the table that must not be NULL."""
OPTIONAL: Final = ("optimize", "get_extension")

_P: Any = c_void_p
FUNCTIONS: Final[dict[str, Any]] = {
    "init": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "shutdown": CFUNCTYPE(None, _P),
    "get_info": CFUNCTYPE(c_int32, _P, _P, _P),
    "query_support": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "optimize": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "compile": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "execute": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "get_extension": CFUNCTYPE(_P, _P, c_char_p),
    "release": CFUNCTYPE(None, _P),
    "resize": CFUNCTYPE(c_int32, _P, c_uint64, _P, c_uint64),
    "create": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "destroy": CFUNCTYPE(None, _P, _P),
    "notice": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "fingerprint": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "save": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "check": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P),
    "restore": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P, _P, _P),
    "describe": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "create_pool": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "of_pool": CFUNCTYPE(c_int32, _P, _P, _P),
    "create_tensor": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, c_uint64, _P, _P),
    "create_sub_tensor": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P, _P, _P),
    "destroy_tensor": CFUNCTYPE(None, _P, _P, c_uint64),
    "of_tensor": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P),
    "map": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P),
    "copy": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "import_memory": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P),
    "export_memory": CFUNCTYPE(c_int32, _P, _P, c_uint64, c_uint32, _P, _P),
    "accept": CFUNCTYPE(c_int32, _P, c_uint32, _P),
    "use": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "compile_in": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P, _P),
    "restore_in": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P, _P, _P, _P),
    "inputs_of_outputs": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P, _P),
    "describe_counters": CFUNCTYPE(c_int32, _P, _P, _P),
    "enable": CFUNCTYPE(c_int32, _P, c_int32, _P),
    "collect": CFUNCTYPE(c_int32, _P, c_uint64, c_uint64, _P, _P, _P, _P),
    "read_counters": CFUNCTYPE(c_int32, _P, c_uint64, _P, _P),
    "correlate": CFUNCTYPE(c_int32, _P, String, _P, _P),
    "select_counters": CFUNCTYPE(c_int32, _P, c_uint64, c_uint64, _P, _P),
    "create_queue": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "destroy_queue": CFUNCTYPE(None, _P, _P),
    "submit": CFUNCTYPE(c_int32, _P, _P, _P, _P, _P),
    "wait": CFUNCTYPE(c_int32, _P, _P, c_uint64, c_int64, _P),
    "of_submission": CFUNCTYPE(c_int32, _P, _P, c_uint64, _P),
    "of_queue": CFUNCTYPE(c_int32, _P, _P, _P),
    "create_gate": CFUNCTYPE(c_int32, _P, _P, _P, _P),
    "open_gate": CFUNCTYPE(None, _P, c_uint64, c_int32),
    "destroy_gate": CFUNCTYPE(None, _P, c_uint64),
    "export_point": CFUNCTYPE(c_int32, _P, _P, c_uint64, c_uint32, _P, _P),
    "describe_devices": CFUNCTYPE(c_int32, _P, _P, _P),
    "host_allocate": CFUNCTYPE(c_int32, _P, c_uint64, c_uint64, _P),
    "host_free": CFUNCTYPE(None, _P, _P),
}
"""The types of the functions in the tables; calls release the global interpreter lock."""
