//! interposer/backend.h in Rust, without any crate: copy this file into a project, or include it by its path:
//!
//!     #[path = "/folder/that/python -m interposer.include/prints/interposer/backend.rs"]
//!     mod interposer;
//!
//! A backend is a type that implements the trait `Backend`: `support`, and `kernel` or `compile`. The macro
//! `export_backend!("Id", Type)` in the root of a crate of type `cdylib` exports it. The names and their meaning are
//! those of the C++ binding, interposer/backend.hpp. The module `raw` has the structs of the header, member by member;
//! the header has the contract: ownership, lifetimes, threads.
//!
//! Safe functions of this file cannot cause undefined behaviour: elements are read as a type only if it is the tensor's
//! type, memory that is written to is lent out once, and indices are checked. What the host promises in the header is
//! trusted. A panic is caught at the border and becomes an error.
//!
//! The views (`Graph`, `Layer`, `TensorInfo` ...) borrow the host's tables for the length of a call. The file compiles
//! with Rust 1.63 and later, in crates of edition 2018 or later. In a crate of edition 2024, write
//! `export_backend!("Id", Type, edition = 2024)`.

#![allow(dead_code, unsafe_op_in_unsafe_fn)]

use std::any::Any;
use std::cell::{Cell, RefCell};
#[allow(unused_imports)] // the prelude of edition 2018 does not have it
use std::convert::TryFrom;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::addr_of_mut;
use std::slice;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// The structs and constants of the header.
#[allow(non_camel_case_types)]
pub mod raw {
    use std::os::raw::{c_char, c_void};

    pub const API_MAJOR: u32 = 1;
    pub const API_MINOR: u32 = 0;
    pub const VOCABULARY_REVISION: u32 = 0;
    pub const MAGIC: u64 = 0x31444E4B42525049;

    pub const OK: i32 = 0;
    pub const FAILED: i32 = 1;
    pub const INVALID_ARGUMENT: i32 = 2;
    pub const UNSUPPORTED: i32 = 3;
    pub const OUT_OF_MEMORY: i32 = 4;
    pub const UNAVAILABLE: i32 = 5;
    pub const REFUSED: i32 = 6;
    pub const CANCELLED: i32 = 7;
    pub const DEADLINE: i32 = 8;
    pub const CORRUPT: i32 = 9;
    pub const STALE: i32 = 10;
    pub const DEVICE_LOST: i32 = 11;
    pub const INVALID_VALUE: i32 = 12;
    pub const SKIPPED: i32 = 13;

    pub const VALUE_OPERAND: u32 = 1;
    pub const VALUE_ELEMENT: u32 = 2;
    pub const VALUE_VALUE: u32 = 4;
    pub const VALUE_LOWEST: u32 = 8;
    pub const VALUE_HIGHEST: u32 = 16;

    pub const ITEM_NONE: i32 = 0;
    pub const ITEM_LAYER: i32 = 1;
    pub const ITEM_TENSOR: i32 = 2;
    pub const ITEM_INPUT: i32 = 3;
    pub const ITEM_OUTPUT: i32 = 4;
    pub const ITEM_OPTION: i32 = 5;

    pub const DTYPE_NONE: i32 = 0;
    pub const DTYPE_BOOL: i32 = 1;
    pub const DTYPE_INT8: i32 = 2;
    pub const DTYPE_INT16: i32 = 3;
    pub const DTYPE_INT32: i32 = 4;
    pub const DTYPE_INT64: i32 = 5;
    pub const DTYPE_UINT8: i32 = 6;
    pub const DTYPE_UINT16: i32 = 7;
    pub const DTYPE_UINT32: i32 = 8;
    pub const DTYPE_UINT64: i32 = 9;
    pub const DTYPE_FLOAT16: i32 = 10;
    pub const DTYPE_FLOAT32: i32 = 11;
    pub const DTYPE_FLOAT64: i32 = 12;
    pub const DTYPE_BFLOAT16: i32 = 13;
    pub const DTYPE_INT4: i32 = 14;
    pub const DTYPE_UINT4: i32 = 15;
    pub const DTYPE_FLOAT8_E4M3FN: i32 = 16;
    pub const DTYPE_FLOAT8_E4M3FNUZ: i32 = 17;
    pub const DTYPE_FLOAT8_E5M2: i32 = 18;
    pub const DTYPE_FLOAT8_E5M2FNUZ: i32 = 19;
    pub const DTYPE_INT2: i32 = 20;
    pub const DTYPE_UINT2: i32 = 21;
    pub const DTYPE_FLOAT8_E8M0FNU: i32 = 22;
    pub const DTYPE_FLOAT6_E2M3FN: i32 = 23;
    pub const DTYPE_FLOAT6_E3M2FN: i32 = 24;
    pub const DTYPE_FLOAT4_E2M1FN: i32 = 25;

    pub const KIND_NONE: i32 = 0;
    pub const KIND_BOOL: i32 = 1;
    pub const KIND_INT: i32 = 2;
    pub const KIND_FLOAT: i32 = 3;
    pub const KIND_TEXT: i32 = 4;
    pub const KIND_ENUM: i32 = 5;
    pub const KIND_DTYPE: i32 = 6;
    pub const KIND_INTS: i32 = 7;
    pub const KIND_FLOATS: i32 = 8;
    pub const KIND_ENUMS: i32 = 9;
    pub const ATTRIBUTE_IS_DEFAULT: u32 = 1;

    pub const NO: i32 = 0;
    pub const YES: i32 = 1;
    pub const GROUP: i32 = 2;
    pub const PREFERRED: i32 = 3;

    pub const REASON_NONE: i32 = 0;
    pub const REASON_LAYER_TYPE: i32 = 1;
    pub const REASON_DATA_TYPE: i32 = 2;
    pub const REASON_SHAPE: i32 = 3;
    pub const REASON_ATTRIBUTE: i32 = 4;
    pub const REASON_QUANTIZATION: i32 = 5;
    pub const REASON_NOT_CONSTANT: i32 = 6;
    pub const REASON_OPTION: i32 = 7;
    pub const REASON_RESOURCE: i32 = 8;
    pub const REASON_NEIGHBOURS: i32 = 9;
    pub const REASON_UNPROFITABLE: i32 = 10;
    pub const REASON_OTHER: i32 = 100;

    pub const EXECUTABLE_CONCURRENT: u64 = 1;
    pub const EXECUTABLE_KEEPS_CONSTANTS: u64 = 2;
    pub const EXECUTABLE_READS_BLOB: u64 = 4;

    pub const MEMORY_HOST: u32 = 1;
    pub const MEMORY_DMA_BUF: u32 = 2;
    pub const MEMORY_DMA_BUF_PROTECTED: u32 = 4;
    pub const MEMORY_GRALLOC: u32 = 8;
    pub const MEMORY_PRIVATE: u32 = 0x80000000;
    pub const TENSOR_READ_ONLY: u64 = 1;

    pub const CAP_CONCURRENT_EXECUTE: u64 = 0x1;
    pub const CAP_CONCURRENT_COMPILE: u64 = 0x2;
    pub const CAP_KEEPS_CONSTANTS: u64 = 0x4;
    pub const CAP_WANTS_HASHES: u64 = 0x8;
    pub const CAP_DYNAMIC_SHAPES: u64 = 0x10;
    pub const CAP_IN_PLACE: u64 = 0x20;
    pub const CAP_STRIDED: u64 = 0x40;
    pub const CAP_FORK_SAFE: u64 = 0x80;
    pub const CAP_DETERMINISTIC: u64 = 0x100;
    pub const CAP_FENCES: u64 = 0x200;
    pub const CAP_UNALIGNED_CONSTANTS: u64 = 0x400;

    pub const SCOPE_INIT: u32 = 1;
    pub const SCOPE_MODEL: u32 = 2;
    pub const LOG_DEBUG: i32 = 10;
    pub const LOG_INFO: i32 = 20;
    pub const LOG_WARNING: i32 = 30;
    pub const LOG_ERROR: i32 = 40;
    pub const HOST_CHECKING: u32 = 1;
    pub const HOST_LASTING_BLOBS: u32 = 2;
    pub const BLOB_NEEDS_GRAPH: u64 = 1;
    pub const FACTORY_MAPS: u64 = 1;
    pub const FACTORY_SUB_TENSORS: u64 = 2;
    pub const FACTORY_DEVICE_COPIES: u64 = 4;
    pub const HANDLE_ALONE: u64 = 1;
    pub const INTERVAL_KERNEL: u32 = 1;
    pub const INTERVAL_COPY: u32 = 2;
    pub const INTERVAL_BUILD: u32 = 3;
    pub const INTERVAL_WAIT: u32 = 4;
    pub const INTERVAL_OTHER: u32 = 100;
    pub const COUNTER_VALUE: u32 = 1;
    pub const COUNTER_RATE: u32 = 2;
    pub const COUNTER_EVENT: u32 = 3;

    pub type Release = Option<unsafe extern "C" fn(owner: *mut c_void)>;

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct ipr_string {
        pub data: *const c_char,
        pub size: u64,
    }

    #[repr(C)]
    pub struct ipr_error {
        pub struct_size: u64,
        pub code: i32,
        pub item_kind: i32,
        pub item: i64,
        pub capacity: u64,
        pub length: u64,
        pub text: *mut c_char,
    }

    #[repr(C)]
    pub struct ipr_value_error {
        pub error: ipr_error,
        pub known: u32,
        pub operand: i32,
        pub element: i64,
        pub value: i64,
        pub lowest: i64,
        pub highest: i64,
    }

    #[repr(C)]
    pub struct ipr_attribute {
        pub name: ipr_string,
        pub kind: i32,
        pub flags: u32,
        pub i: i64,
        pub f: f64,
        pub text: ipr_string,
        pub ints: *const i64,
        pub floats: *const f64,
        pub texts: *const ipr_string,
        pub count: u64,
        pub columns: u64,
    }

    #[repr(C)]
    pub struct ipr_options {
        pub struct_size: u64,
        pub count: u64,
        pub stride: u64,
        pub items: *const ipr_attribute,
    }

    #[repr(C)]
    pub struct ipr_tensor_info {
        pub name: ipr_string,
        pub dtype: i32,
        pub rank: i32,
        pub shape: *const i64,
        pub scale_count: u64,
        pub scales: *const f64,
        pub zero_points: *const i64,
        pub axis: i32,
        pub reserved: u32,
        pub constant: i64,
        pub producer: i64,
    }

    #[repr(C)]
    pub struct ipr_constant {
        pub data: *const c_void,
        pub size: u64,
        pub sha256: *const u8,
        pub fd: i64,
        pub offset: u64,
    }

    #[repr(C)]
    pub struct ipr_layer {
        pub type_: ipr_string,
        pub name: ipr_string,
        pub inputs: *const i64,
        pub input_count: u64,
        pub outputs: *const i64,
        pub output_count: u64,
        pub attributes: *const ipr_attribute,
        pub attribute_count: u64,
    }

    #[repr(C)]
    pub struct ipr_graph {
        pub struct_size: u64,
        pub name: ipr_string,
        pub layer_count: u64,
        pub layer_stride: u64,
        pub layers: *const ipr_layer,
        pub attribute_stride: u64,
        pub tensor_count: u64,
        pub tensor_stride: u64,
        pub tensors: *const ipr_tensor_info,
        pub constant_count: u64,
        pub constant_stride: u64,
        pub constants: *const ipr_constant,
        pub input_count: u64,
        pub inputs: *const i64,
        pub output_count: u64,
        pub outputs: *const i64,
    }

    #[repr(C)]
    pub struct ipr_verdict {
        pub verdict: i32,
        pub reason_code: i32,
        pub group: i64,
        pub reason: ipr_string,
        pub seconds: f64,
        pub bytes: f64,
    }

    #[repr(C)]
    pub struct ipr_report {
        pub struct_size: u64,
        pub verdict_count: u64,
        pub verdict_stride: u64,
        pub verdicts: *const ipr_verdict,
        pub owner: *mut c_void,
        pub release: Release,
    }

    #[repr(C)]
    pub struct ipr_substitution {
        pub layers: *const i64,
        pub layer_count: u64,
        pub replacement: *const ipr_graph,
        pub inputs: *const i64,
        pub input_count: u64,
        pub outputs: *const i64,
        pub output_count: u64,
    }

    #[repr(C)]
    pub struct ipr_failure {
        pub layers: *const i64,
        pub layer_count: u64,
        pub reason_code: i32,
        pub reserved: u32,
        pub reason: ipr_string,
    }

    #[repr(C)]
    pub struct ipr_answer {
        pub struct_size: u64,
        pub substitution_count: u64,
        pub substitution_stride: u64,
        pub substitutions: *const ipr_substitution,
        pub failure_count: u64,
        pub failure_stride: u64,
        pub failures: *const ipr_failure,
        pub owner: *mut c_void,
        pub release: Release,
    }

    #[repr(C)]
    pub struct ipr_executable {
        pub struct_size: u64,
        pub handle: *mut c_void,
        pub flags: u64,
        pub workspace_size: u64,
        pub workspace_alignment: u64,
        pub seconds: f64,
        pub memory: u64,
        pub owner: *mut c_void,
        pub release: Release,
    }

    #[repr(C)]
    pub struct ipr_tensor {
        pub data: *mut c_void,
        pub device_type: i32,
        pub device_id: i32,
        pub ndim: i32,
        pub dtype_code: u8,
        pub dtype_bits: u8,
        pub dtype_lanes: u16,
        pub shape: *const i64,
        pub strides: *const i64,
        pub byte_offset: u64,
        pub dtype: i32,
        pub memory_kind: u32,
        pub size: u64,
        pub native_handle: u64,
        pub fence: i64,
        pub flags: u64,
    }

    #[repr(C)]
    pub struct ipr_run {
        pub struct_size: u64,
        pub tensor_stride: u64,
        pub input_count: u64,
        pub inputs: *const ipr_tensor,
        pub output_count: u64,
        pub outputs: *mut ipr_tensor,
        pub workspace: *mut c_void,
        pub workspace_size: u64,
        pub run_id: u64,
        pub deadline_ns: i64,
        pub cancel: *const u32,
        pub thread_limit: u32,
        pub priority: i32,
        pub host: *mut c_void,
        pub resize: Option<unsafe extern "C" fn(host: *mut c_void, output: u64, shape: *const i64, rank: u64) -> i32>,
    }

    #[repr(C)]
    pub struct ipr_property {
        pub name: ipr_string,
        pub doc: ipr_string,
        pub kind: i32,
        pub scope: u32,
        pub i: i64,
        pub f: f64,
        pub text: ipr_string,
    }

    #[repr(C)]
    pub struct ipr_info {
        pub struct_size: u64,
        pub vendor: ipr_string,
        pub name: ipr_string,
        pub version: ipr_string,
        pub description: ipr_string,
        pub capabilities: u64,
        pub alignment: u64,
        pub memory_kinds: u32,
        pub reserved: u32,
        pub option_count: u64,
        pub option_stride: u64,
        pub options: *const ipr_property,
        pub property_count: u64,
        pub property_stride: u64,
        pub properties: *const ipr_property,
    }

    #[repr(C)]
    pub struct ipr_log_slot {
        pub sequence: u64,
        pub level: i32,
        pub length: u32,
    }

    #[repr(C)]
    pub struct ipr_log_ring {
        pub struct_size: u64,
        pub slot_count: u64,
        pub slot_stride: u64,
        pub slots: *mut u8,
        pub head: u64,
        pub tail: u64,
        pub lost: u64,
        pub level: i32,
        pub reserved: u32,
    }

    #[repr(C)]
    pub struct ipr_host_extension {
        pub name: ipr_string,
        pub table: *const c_void,
    }

    #[repr(C)]
    pub struct ipr_host {
        pub struct_size: u64,
        pub api_major: u32,
        pub api_minor: u32,
        pub name: ipr_string,
        pub version: ipr_string,
        pub library_path: ipr_string,
        pub cache_dir: ipr_string,
        pub log: *mut ipr_log_ring,
        pub aligned_alloc: Option<unsafe extern "C" fn(alignment: u64, size: u64) -> *mut c_void>,
        pub free: Release,
        pub thread_count: u32,
        pub flags: u32,
        pub cpu_mask_words: u64,
        pub cpu_mask: *const u64,
        pub extension_count: u64,
        pub extension_stride: u64,
        pub extensions: *const ipr_host_extension,
    }

    type Raw = *mut c_void;
    type Failing<A, B, C> = unsafe extern "C" fn(Raw, A, B, C) -> i32;

    #[repr(C)]
    pub struct ipr_backend {
        pub magic: u64,
        pub struct_size: u64,
        pub self_: Raw,
        pub init: Option<Failing<*const ipr_host, *const ipr_options, *mut ipr_error>>,
        pub shutdown: Option<unsafe extern "C" fn(Raw)>,
        pub get_info: Option<unsafe extern "C" fn(Raw, *mut ipr_info, *mut ipr_error) -> i32>,
        pub query_support: Option<
            unsafe extern "C" fn(Raw, *const ipr_graph, *const ipr_options, *mut ipr_report, *mut ipr_error) -> i32,
        >,
        pub optimize: Option<
            unsafe extern "C" fn(Raw, *const ipr_graph, *const ipr_options, *mut ipr_answer, *mut ipr_error) -> i32,
        >,
        pub compile: Option<
            unsafe extern "C" fn(Raw, *const ipr_graph, *const ipr_options, *mut ipr_executable, *mut ipr_error) -> i32,
        >,
        pub execute: Option<Failing<Raw, *const ipr_run, *mut ipr_error>>,
        pub get_extension: Option<unsafe extern "C" fn(Raw, *const c_char) -> *const c_void>,
    }

    #[repr(C)]
    pub struct ipr_network {
        pub struct_size: u64,
        pub id: i64,
    }

    type Notice = Option<Failing<Raw, *const ipr_network, *mut ipr_error>>;

    #[repr(C)]
    pub struct ipr_context_api {
        pub struct_size: u64,
        pub create: Option<Failing<*const ipr_options, *mut Raw, *mut ipr_error>>,
        pub destroy: Option<unsafe extern "C" fn(Raw, Raw)>,
        pub before_load: Notice,
        pub after_load: Notice,
        pub before_unload: Notice,
        pub after_unload: Notice,
    }

    #[repr(C)]
    pub struct ipr_blob {
        pub struct_size: u64,
        pub data: *const c_void,
        pub size: u64,
        pub flags: u64,
        pub owner: Raw,
        pub release: Release,
    }

    #[repr(C)]
    pub struct ipr_text {
        pub struct_size: u64,
        pub text: ipr_string,
        pub owner: Raw,
        pub release: Release,
    }

    #[repr(C)]
    pub struct ipr_blobs_api {
        pub struct_size: u64,
        pub fingerprint: Option<Failing<*const ipr_options, *mut ipr_text, *mut ipr_error>>,
        pub save: Option<Failing<Raw, *mut ipr_blob, *mut ipr_error>>,
        pub check: Option<unsafe extern "C" fn(Raw, *const c_void, u64, *const ipr_options, *mut ipr_error) -> i32>,
        pub restore: Option<
            unsafe extern "C" fn(
                Raw,
                *const c_void,
                u64,
                *const ipr_graph,
                *const ipr_options,
                *mut ipr_executable,
                *mut ipr_error,
            ) -> i32,
        >,
    }

    #[repr(C)]
    pub struct ipr_factory {
        pub id: ipr_string,
        pub flags: u64,
        pub import_kinds: u32,
        pub export_kinds: u32,
    }

    #[repr(C)]
    pub struct ipr_factories {
        pub struct_size: u64,
        pub factory_count: u64,
        pub factory_stride: u64,
        pub factories: *const ipr_factory,
        pub preference_count: u64,
        pub preferences: *const ipr_string,
        pub owner: Raw,
        pub release: Release,
    }

    type OfPool = unsafe extern "C" fn(Raw, Raw, *mut ipr_error) -> i32;
    type OfTensor = unsafe extern "C" fn(Raw, Raw, u64, *mut ipr_error) -> i32;
    type Create =
        unsafe extern "C" fn(Raw, Raw, u64, *const ipr_tensor_info, u64, *mut u64, *mut ipr_error) -> i32;
    type Cut =
        unsafe extern "C" fn(Raw, Raw, u64, *const i64, *const ipr_tensor_info, *mut u64, *mut ipr_error) -> i32;

    #[repr(C)]
    pub struct ipr_handles_api {
        pub struct_size: u64,
        pub describe: Option<Failing<*const ipr_options, *mut ipr_factories, *mut ipr_error>>,
        pub create_pool: Option<Failing<*const ipr_options, *mut Raw, *mut ipr_error>>,
        pub destroy_pool: Option<unsafe extern "C" fn(Raw, Raw)>,
        pub acquire: Option<OfPool>,
        pub give_back: Option<OfPool>,
        pub create_tensor: Option<Create>,
        pub create_sub_tensor: Option<Cut>,
        pub destroy_tensor: Option<unsafe extern "C" fn(Raw, Raw, u64)>,
        pub manage: Option<OfTensor>,
        pub allocate: Option<OfTensor>,
        pub map: Option<unsafe extern "C" fn(Raw, Raw, u64, *mut Raw, *mut ipr_error) -> i32>,
        pub unmap: Option<OfTensor>,
        pub copy: Option<unsafe extern "C" fn(Raw, Raw, *const ipr_tensor, *const ipr_tensor, *mut ipr_error) -> i32>,
        pub import_memory: Option<unsafe extern "C" fn(Raw, Raw, u64, *const ipr_tensor, *mut ipr_error) -> i32>,
        pub forget_memory: Option<OfTensor>,
        pub export_memory: Option<unsafe extern "C" fn(Raw, Raw, u64, u32, *mut ipr_tensor, *mut ipr_error) -> i32>,
    }

    #[repr(C)]
    pub struct ipr_allocator {
        pub struct_size: u64,
        pub self_: Raw,
        pub memory_kind: u32,
        pub reserved: u32,
        pub allocate: Option<unsafe extern "C" fn(Raw, u64, u64, *mut Raw) -> i32>,
        pub free: Option<unsafe extern "C" fn(Raw, Raw)>,
    }

    #[repr(C)]
    pub struct ipr_allocator_api {
        pub struct_size: u64,
        pub accept: Option<unsafe extern "C" fn(Raw, u32, *mut ipr_error) -> i32>,
        pub use_: Option<Failing<Raw, *const ipr_allocator, *mut ipr_error>>,
    }

    #[repr(C)]
    pub struct ipr_executable_memory_api {
        pub struct_size: u64,
        pub compile: Option<
            unsafe extern "C" fn(
                Raw,
                *const ipr_graph,
                *const ipr_options,
                *const ipr_allocator,
                *mut ipr_executable,
                *mut ipr_error,
            ) -> i32,
        >,
        pub restore: Option<
            unsafe extern "C" fn(
                Raw,
                *const c_void,
                u64,
                *const ipr_graph,
                *const ipr_options,
                *const ipr_allocator,
                *mut ipr_executable,
                *mut ipr_error,
            ) -> i32,
        >,
    }

    #[repr(C)]
    pub struct ipr_in_place_api {
        pub struct_size: u64,
        pub inputs_of_outputs: Option<unsafe extern "C" fn(Raw, Raw, u64, *mut i64, *mut ipr_error) -> i32>,
    }

    #[repr(C)]
    pub struct ipr_interval {
        pub name: ipr_string,
        pub device: ipr_string,
        pub begin_ns: i64,
        pub end_ns: i64,
        pub thread: u64,
        pub bytes: u64,
        pub flops: u64,
        pub kind: u32,
        pub reserved: u32,
    }

    #[repr(C)]
    pub struct ipr_counter {
        pub name: ipr_string,
        pub category: ipr_string,
        pub units: ipr_string,
        pub description: ipr_string,
        pub device: ipr_string,
        pub multiplier: f64,
        pub kind: u32,
        pub reserved: u32,
    }

    #[repr(C)]
    pub struct ipr_counters {
        pub struct_size: u64,
        pub counter_count: u64,
        pub counter_stride: u64,
        pub counters: *const ipr_counter,
        pub owner: Raw,
        pub release: Option<unsafe extern "C" fn(Raw)>,
    }

    #[repr(C)]
    pub struct ipr_clock {
        pub struct_size: u64,
        pub device_ns: i64,
        pub host_ns: i64,
        pub error_ns: i64,
    }

    #[repr(C)]
    pub struct ipr_profiling_api {
        pub struct_size: u64,
        pub describe_counters: Option<unsafe extern "C" fn(Raw, *mut ipr_counters, *mut ipr_error) -> i32>,
        pub enable: Option<unsafe extern "C" fn(Raw, i32, *mut ipr_error) -> i32>,
        pub collect: Option<
            unsafe extern "C" fn(Raw, u64, u64, *mut ipr_interval, *mut u64, *mut u64, *mut ipr_error) -> i32,
        >,
        pub read_counters: Option<unsafe extern "C" fn(Raw, u64, *mut f64, *mut ipr_error) -> i32>,
        pub correlate: Option<unsafe extern "C" fn(Raw, ipr_string, *mut ipr_clock, *mut ipr_error) -> i32>,
        pub select_counters: Option<unsafe extern "C" fn(Raw, u64, u64, *const u64, *mut ipr_error) -> i32>,
    }

    // "ipr.async/1" and "ipr.devices/1", which are experimental; this file has no safe functions for them yet.

    pub const POINT_QUEUE: u32 = 1;
    pub const POINT_GATE: u32 = 2;
    pub const POINT_TIMELINE: u32 = 4;
    pub const POINT_SYNC_FD: u32 = 8;
    pub const POINT_SEMAPHORE_FD: u32 = 16;
    pub const ASYNC_COPIES: u64 = 1;
    pub const ASYNC_COPY_ENGINE: u64 = 2;

    pub const DEVICE_CPU: u32 = 1;
    pub const DEVICE_GPU: u32 = 2;
    pub const DEVICE_NPU: u32 = 3;
    pub const DEVICE_DSP: u32 = 4;
    pub const DEVICE_FPGA: u32 = 5;
    pub const DEVICE_OTHER: u32 = 100;
    pub const DEVICE_UNIFIED: u64 = 1;
    pub const DEVICE_SIMULATED: u64 = 2;
    pub const DEVICE_DISPLAY: u64 = 4;
    pub const FACTORY_PEER_COPIES: u64 = 8;

    #[repr(C)]
    pub struct ipr_timeline {
        pub struct_size: u64,
        pub completed: u64,
        pub failed: u64,
        pub wake_fd: i32,
        pub reserved: u32,
        pub wake: Option<unsafe extern "C" fn(i32, u64) -> i32>,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct ipr_point {
        pub kind: u32,
        pub reserved: u32,
        pub handle: u64,
        pub value: u64,
    }

    #[repr(C)]
    pub struct ipr_submission {
        pub struct_size: u64,
        pub executable: *mut c_void,
        pub run: *const ipr_run,
        pub pool: *mut c_void,
        pub source: *const ipr_tensor,
        pub target: *const ipr_tensor,
        pub wait_count: u64,
        pub wait_stride: u64,
        pub waits: *const ipr_point,
    }

    type OfSubmission = Option<unsafe extern "C" fn(Raw, *mut c_void, u64, *mut ipr_error) -> i32>;
    type OfQueue = Option<unsafe extern "C" fn(Raw, *mut c_void, *mut ipr_error) -> i32>;

    #[repr(C)]
    pub struct ipr_async_api {
        pub struct_size: u64,
        pub wait_kinds: u32,
        pub export_kinds: u32,
        pub flags: u64,
        pub create_queue: Option<
            unsafe extern "C" fn(Raw, *const ipr_options, *mut ipr_timeline, *mut *mut c_void, *mut ipr_error) -> i32,
        >,
        pub destroy_queue: Option<unsafe extern "C" fn(Raw, *mut c_void)>,
        pub submit: Option<
            unsafe extern "C" fn(Raw, *mut c_void, *const ipr_submission, *mut u64, *mut ipr_error) -> i32,
        >,
        pub wait: Option<unsafe extern "C" fn(Raw, *mut c_void, u64, i64, *mut ipr_error) -> i32>,
        pub result: OfSubmission,
        pub notify: OfSubmission,
        pub cancel: OfQueue,
        pub reset: OfQueue,
        pub flush: OfQueue,
        pub create_gate: Option<unsafe extern "C" fn(Raw, *const ipr_options, *mut u64, *mut ipr_error) -> i32>,
        pub open_gate: Option<unsafe extern "C" fn(Raw, u64, i32)>,
        pub destroy_gate: Option<unsafe extern "C" fn(Raw, u64)>,
        pub export_point:
            Option<unsafe extern "C" fn(Raw, *mut c_void, u64, u32, *mut ipr_point, *mut ipr_error) -> i32>,
    }

    #[repr(C)]
    pub struct ipr_device {
        pub id: ipr_string,
        pub name: ipr_string,
        pub vendor: ipr_string,
        pub driver: ipr_string,
        pub type_: u32,
        pub memory_kinds: u32,
        pub flags: u64,
        pub memory: u64,
        pub memory_free: u64,
        pub largest: u64,
        pub queue_limit: u32,
        pub dlpack_type: i32,
        pub dlpack_id: i32,
        pub reserved: u32,
        pub uuid: *const u8,
        pub property_count: u64,
        pub property_stride: u64,
        pub properties: *const ipr_property,
    }

    #[repr(C)]
    pub struct ipr_devices {
        pub struct_size: u64,
        pub device_count: u64,
        pub device_stride: u64,
        pub devices: *const ipr_device,
        pub owner: *mut c_void,
        pub release: Option<unsafe extern "C" fn(*mut c_void)>,
    }

    #[repr(C)]
    pub struct ipr_devices_api {
        pub struct_size: u64,
        pub describe: Option<unsafe extern "C" fn(Raw, *mut ipr_devices, *mut ipr_error) -> i32>,
    }
}

use raw::*;

// ---- Errors -----------------------------------------------------------------------------------------------------------

/// Why a function of a backend fails: a message, a status (`raw::FAILED` ...), and the item that the error is about.
#[derive(Debug, Clone)]
pub struct Error {
    pub message: String,
    pub status: i32,
    /// `raw::ITEM_...`: what `item` counts.
    pub item_kind: i32,
    /// The index of the layer, tensor, input, output or option, or -1.
    pub item: i64,
    /// The element of an operand that cannot be used, with the status `raw::INVALID_VALUE`.
    pub value: Option<WrongValue>,
}

/// An element of an operand that is not from `lowest` to `highest`, such as an index out of range.
#[derive(Debug, Clone, Copy)]
pub struct WrongValue {
    /// The operand of the layer.
    pub operand: usize,
    /// The index of the element in row-major order.
    pub element: usize,
    pub value: i64,
    pub lowest: i64,
    pub highest: i64,
}

impl Error {
    pub fn new(message: impl Into<String>, status: i32) -> Error {
        Error { message: message.into(), status, item_kind: ITEM_NONE, item: -1, value: None }
    }
    /// An error of `execute` for an element that cannot be used, of an operand of the layer with this index in the
    /// compiled graph. Nothing has failed: the host reports it to the caller, and goes on using the executable.
    pub fn invalid_value(message: impl Into<String>, layer: usize, value: WrongValue) -> Error {
        Error { value: Some(value), ..Error::new(message, INVALID_VALUE).about(ITEM_LAYER, layer) }
    }
    /// The same error, naming an item.
    pub fn about(self, item_kind: i32, item: usize) -> Error {
        Error { item_kind, item: item as i64, ..self }
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::new(message, FAILED)
    }
}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error::new(message, FAILED)
    }
}

pub type Result<T> = std::result::Result<T, Error>;

fn unsupported<T>(message: &str) -> Result<T> {
    Err(Error::new(message, UNSUPPORTED))
}

unsafe fn text<'a>(given: &ipr_string) -> &'a str {
    if given.size == 0 {
        return "";
    }
    std::str::from_utf8(slice::from_raw_parts(given.data.cast(), given.size as usize)).unwrap_or("")
}

fn string(given: &str) -> ipr_string {
    ipr_string { data: given.as_ptr().cast(), size: given.len() as u64 }
}

unsafe fn list<'a, T>(items: *const T, count: u64) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    slice::from_raw_parts(items, count as usize)
}

unsafe fn element<'a, T>(items: *const T, stride: u64, index: u64) -> &'a T {
    &*items.cast::<u8>().add((stride * index) as usize).cast::<T>()
}

// ---- Types of elements ------------------------------------------------------------------------------------------------

/// A Rust type whose values are the elements of tensors of certain types.
///
/// # Safety
/// Every bit pattern is a value of the type, and its size is that of one element of each of `DTYPES`.
pub unsafe trait Element: Copy + 'static {
    /// `raw::DTYPE_...`.
    const DTYPES: &'static [i32];
}

macro_rules! elements {
    ($($kind:ty: $($dtype:ident)+;)+) => {
        $(unsafe impl Element for $kind {
            const DTYPES: &'static [i32] = &[$($dtype),+];
        })+
    };
}

// float16 and bfloat16 are read as their bits; types of fewer than 8 bits take a byte, with the number in its low bits.
elements! {
    f32: DTYPE_FLOAT32;
    f64: DTYPE_FLOAT64;
    i8: DTYPE_INT8 DTYPE_INT4 DTYPE_INT2;
    i16: DTYPE_INT16;
    i32: DTYPE_INT32;
    i64: DTYPE_INT64;
    u8: DTYPE_UINT8 DTYPE_BOOL DTYPE_UINT4 DTYPE_UINT2 DTYPE_FLOAT8_E4M3FN DTYPE_FLOAT8_E4M3FNUZ DTYPE_FLOAT8_E5M2
        DTYPE_FLOAT8_E5M2FNUZ DTYPE_FLOAT8_E8M0FNU DTYPE_FLOAT6_E2M3FN DTYPE_FLOAT6_E3M2FN DTYPE_FLOAT4_E2M1FN;
    u16: DTYPE_UINT16 DTYPE_FLOAT16 DTYPE_BFLOAT16;
    u32: DTYPE_UINT32;
    u64: DTYPE_UINT64;
}

/// Bytes of one element in memory; 0 for a type that this file does not know.
pub fn item_size(dtype: i32) -> usize {
    match dtype {
        DTYPE_INT16 | DTYPE_UINT16 | DTYPE_FLOAT16 | DTYPE_BFLOAT16 => 2,
        DTYPE_INT32 | DTYPE_UINT32 | DTYPE_FLOAT32 => 4,
        DTYPE_INT64 | DTYPE_UINT64 | DTYPE_FLOAT64 => 8,
        DTYPE_BOOL..=DTYPE_FLOAT4_E2M1FN => 1,
        _ => 0,
    }
}

/// The name of a type of data, for messages: "float32".
pub fn dtype_name(dtype: i32) -> &'static str {
    const NAMES: [&str; 26] = [
        "no type", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64", "bfloat16", "int4", "uint4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
        "float8_e5m2fnuz", "int2", "uint2", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
    ];
    usize::try_from(dtype).ok().and_then(|index| NAMES.get(index).copied()).unwrap_or("a type unknown here")
}

/// How many elements a shape has; None if a dimension is unknown (negative), or if the number does not fit.
fn elements_of(shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(usize::try_from(size).ok()?))
}

/// `size` bytes at `data` as elements of the type T.
fn cast<T: Element>(data: *const u8, size: usize, dtype: i32) -> Result<(*const T, usize)> {
    if !T::DTYPES.contains(&dtype) {
        let message = format!("the elements are {}, not {}", dtype_name(dtype), std::any::type_name::<T>());
        return Err(Error::new(message, INVALID_ARGUMENT));
    }
    let count = size / size_of::<T>();
    if count == 0 {
        return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
    }
    if data as usize % align_of::<T>() != 0 {
        return Err(Error::new("the elements are not aligned to their size", INVALID_ARGUMENT));
    }
    Ok((data.cast(), count))
}

// ---- The graph --------------------------------------------------------------------------------------------------------

/// A tensor of the graph: everything but its data, and also the data if it is constant.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    graph: Option<&'a ipr_graph>,
    raw: &'a ipr_tensor_info,
}

impl<'a> TensorInfo<'a> {
    pub fn raw(&self) -> &'a ipr_tensor_info {
        self.raw
    }
    pub fn name(&self) -> &'a str {
        unsafe { text(&self.raw.name) }
    }
    /// `raw::DTYPE_...`.
    pub fn dtype(&self) -> i32 {
        self.raw.dtype
    }
    pub fn rank(&self) -> usize {
        self.shape().len()
    }
    /// The dimensions; -1 for one that is unknown.
    pub fn shape(&self) -> &'a [i64] {
        unsafe { list(self.raw.shape, self.raw.rank.max(0) as u64) }
    }
    /// How many elements there are; None if a dimension is unknown.
    pub fn elements(&self) -> Option<usize> {
        elements_of(self.shape())
    }
    /// How many bytes the elements take; None if a dimension is unknown.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(item_size(self.dtype()))
    }
    pub fn is_quantized(&self) -> bool {
        self.raw.scale_count > 0
    }
    pub fn scales(&self) -> &'a [f64] {
        unsafe { list(self.raw.scales, self.raw.scale_count) }
    }
    pub fn zero_points(&self) -> &'a [i64] {
        unsafe { list(self.raw.zero_points, self.raw.scale_count) }
    }
    /// The scale of a tensor that is quantized as a whole; 1 if it is not quantized.
    pub fn scale(&self) -> f64 {
        self.scales().first().copied().unwrap_or(1.0)
    }
    /// The zero point of a tensor that is quantized as a whole; 0 if it is not quantized.
    pub fn zero_point(&self) -> i64 {
        self.zero_points().first().copied().unwrap_or(0)
    }
    /// The axis that the scales belong to, or -1.
    pub fn axis(&self) -> i32 {
        self.raw.axis
    }
    pub fn is_constant(&self) -> bool {
        self.raw.constant >= 0
    }
    /// The bytes of a constant, valid during the call. To keep them longer, copy them.
    pub fn constant(&self) -> Option<&'a [u8]> {
        let (graph, index) = (self.graph?, u64::try_from(self.raw.constant).ok()?);
        assert!(index < graph.constant_count, "there is no constant {}", index);
        let found = unsafe { element(graph.constants, graph.constant_stride, index) };
        Some(unsafe { list(found.data.cast(), found.size) })
    }
    /// The elements of a constant; None if the tensor is not constant.
    ///
    /// # Errors
    /// T is not the type of the elements.
    pub fn values<T: Element>(&self) -> Result<Option<&'a [T]>> {
        let bytes = match self.constant() {
            Some(bytes) => bytes,
            None => return Ok(None),
        };
        let (data, count) = cast::<T>(bytes.as_ptr(), bytes.len(), self.dtype())?;
        Ok(Some(unsafe { slice::from_raw_parts(data, count) }))
    }
}

/// Named values: the attributes of a layer, or the options of the user. A value that is absent, or of another kind than
/// asked for, is None or an empty list.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    items: *const ipr_attribute,
    count: u64,
    stride: u64,
    borrowed: PhantomData<&'a ipr_attribute>,
}

impl<'a> Attributes<'a> {
    unsafe fn of_options(options: *const ipr_options) -> Attributes<'a> {
        let borrowed = PhantomData;
        match options.as_ref() {
            Some(given) => Attributes { items: given.items, count: given.count, stride: given.stride, borrowed },
            None => Attributes { items: std::ptr::null(), count: 0, stride: 0, borrowed },
        }
    }
    fn of_kind(&self, name: &str, kinds: &[i32]) -> Option<&'a ipr_attribute> {
        self.find(name).filter(|one| kinds.contains(&one.kind))
    }
    /// The attribute of a name, unless it is absent or has no value.
    pub fn find(&self, name: &str) -> Option<&'a ipr_attribute> {
        (0..self.count)
            .map(|index| unsafe { element(self.items, self.stride, index) })
            .find(|one| unsafe { text(&one.name) } == name && one.kind != KIND_NONE)
    }
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.of_kind(name, &[KIND_BOOL, KIND_INT, KIND_DTYPE]).map(|one| one.i)
    }
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.integer(name).map(|number| number != 0)
    }
    pub fn number(&self, name: &str) -> Option<f64> {
        let real = self.of_kind(name, &[KIND_FLOAT]).map(|one| one.f);
        real.or_else(|| self.integer(name).map(|number| number as f64))
    }
    /// A text, or the name of a choice ("NHWC").
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.of_kind(name, &[KIND_TEXT, KIND_ENUM]).map(|one| unsafe { text(&one.text) })
    }
    pub fn integers(&self, name: &str) -> &'a [i64] {
        self.of_kind(name, &[KIND_INTS]).map_or(&[], |one| unsafe { list(one.ints, one.count) })
    }
    pub fn numbers(&self, name: &str) -> &'a [f64] {
        self.of_kind(name, &[KIND_FLOATS]).map_or(&[], |one| unsafe { list(one.floats, one.count) })
    }
}

/// One operation. Its attributes are asked for by name: `layer.text("data_layout")`.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    graph: &'a ipr_graph,
    raw: &'a ipr_layer,
    index: usize,
    attributes: Attributes<'a>,
}

impl<'a> Deref for Layer<'a> {
    type Target = Attributes<'a>;
    fn deref(&self) -> &Attributes<'a> {
        &self.attributes
    }
}

impl<'a> Layer<'a> {
    pub fn raw(&self) -> &'a ipr_layer {
        self.raw
    }
    /// The position in the graph.
    pub fn index(&self) -> usize {
        self.index
    }
    /// The name of the operator: "Convolution2d".
    pub fn type_name(&self) -> &'a str {
        unsafe { text(&self.raw.type_) }
    }
    pub fn name(&self) -> &'a str {
        unsafe { text(&self.raw.name) }
    }
    /// Tensors by position of the operands; -1 for an optional one that is absent.
    pub fn inputs(&self) -> &'a [i64] {
        unsafe { list(self.raw.inputs, self.raw.input_count) }
    }
    pub fn outputs(&self) -> &'a [i64] {
        unsafe { list(self.raw.outputs, self.raw.output_count) }
    }
    /// An operand by position; None if it is absent.
    pub fn input(&self, position: usize) -> Option<TensorInfo<'a>> {
        let index = *self.inputs().get(position)?;
        usize::try_from(index).ok().map(|index| Graph { raw: self.graph }.tensor(index))
    }
    /// A result by position. Panics if the layer has not so many.
    pub fn output(&self, position: usize) -> TensorInfo<'a> {
        Graph { raw: self.graph }.tensor(self.outputs()[position] as usize)
    }
    pub fn attributes(&self) -> Attributes<'a> {
        self.attributes
    }
    /// The error that gives this layer back, so that other backends are asked for it.
    pub fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::new(message, UNSUPPORTED).about(ITEM_LAYER, self.index)
    }
}

/// Some layers of a network, in an order in which they can run.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    raw: &'a ipr_graph,
}

impl<'a> Graph<'a> {
    /// # Safety
    /// The graph, and all that it points to, is valid for the lifetime `'a` and as the header describes it.
    pub unsafe fn from_raw(raw: &'a ipr_graph) -> Graph<'a> {
        Graph { raw }
    }
    pub fn raw(self) -> &'a ipr_graph {
        self.raw
    }
    pub fn name(self) -> &'a str {
        unsafe { text(&self.raw.name) }
    }
    pub fn layers(self) -> impl Iterator<Item = Layer<'a>> {
        (0..self.raw.layer_count as usize).map(move |index| self.layer(index))
    }
    /// How many layers there are.
    pub fn size(self) -> usize {
        self.raw.layer_count as usize
    }
    /// Panics if there is no such layer.
    pub fn layer(self, index: usize) -> Layer<'a> {
        assert!(index < self.size(), "there is no layer {} among {}", index, self.size());
        let raw: &ipr_layer = unsafe { element(self.raw.layers, self.raw.layer_stride, index as u64) };
        let attributes = Attributes {
            items: raw.attributes,
            count: raw.attribute_count,
            stride: self.raw.attribute_stride,
            borrowed: PhantomData,
        };
        Layer { graph: self.raw, raw, index, attributes }
    }
    pub fn tensor_count(self) -> usize {
        self.raw.tensor_count as usize
    }
    /// Panics if there is no such tensor.
    pub fn tensor(self, index: usize) -> TensorInfo<'a> {
        assert!(index < self.tensor_count(), "there is no tensor {} among {}", index, self.tensor_count());
        let raw = unsafe { element(self.raw.tensors, self.raw.tensor_stride, index as u64) };
        TensorInfo { graph: Some(self.raw), raw }
    }
    /// The tensors that come in, by position of the inputs of a run.
    pub fn inputs(self) -> &'a [i64] {
        unsafe { list(self.raw.inputs, self.raw.input_count) }
    }
    pub fn outputs(self) -> &'a [i64] {
        unsafe { list(self.raw.outputs, self.raw.output_count) }
    }
}

/// The answer for one layer: `Verdict::yes()`, `Verdict::no("only float32", raw::REASON_DATA_TYPE)` ...
pub struct Verdict {
    pub verdict: i32,
    pub reason_code: i32,
    pub reason: String,
    pub group: i64,
    /// An estimate for one run; 0 if there is none.
    pub seconds: f64,
    /// An estimate of the memory; 0 if there is none.
    pub bytes: f64,
}

impl Verdict {
    fn of(verdict: i32) -> Verdict {
        Verdict { verdict, reason_code: REASON_NONE, reason: String::new(), group: 0, seconds: 0.0, bytes: 0.0 }
    }
    pub fn yes() -> Verdict {
        Verdict::of(YES)
    }
    pub fn preferred() -> Verdict {
        Verdict::of(PREFERRED)
    }
    /// Only together with all other layers of the same group.
    pub fn together(group: i64) -> Verdict {
        Verdict { group, ..Verdict::of(GROUP) }
    }
    /// Refused, with a reason and its code (`raw::REASON_...`).
    pub fn no(reason: impl Into<String>, reason_code: i32) -> Verdict {
        Verdict { reason_code, reason: reason.into(), ..Verdict::of(NO) }
    }
}

// ---- A run ------------------------------------------------------------------------------------------------------------

/// A tensor with its data, which is only read.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    data: *const u8,
    size: usize,
    dtype: i32,
    shape: &'a [i64],
}

impl<'a> Tensor<'a> {
    pub fn dtype(&self) -> i32 {
        self.dtype
    }
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }
    pub fn elements(&self) -> usize {
        self.size / item_size(self.dtype).max(1)
    }
    /// The elements in row-major order.
    ///
    /// # Errors
    /// T is not the type of the elements.
    pub fn data<T: Element>(&self) -> Result<&'a [T]> {
        let (data, count) = cast::<T>(self.data, self.size, self.dtype)?;
        Ok(unsafe { slice::from_raw_parts(data, count) })
    }
    /// The elements as bytes, whatever their type.
    pub fn bytes(&self) -> &'a [u8] {
        unsafe { list(self.data, self.size as u64) }
    }
}

/// A tensor with its data, which nothing else uses as long as this value exists.
pub struct TensorMut<'a> {
    data: *mut u8,
    size: usize,
    dtype: i32,
    shape: &'a [i64],
}

impl<'a> TensorMut<'a> {
    pub fn dtype(&self) -> i32 {
        self.dtype
    }
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }
    pub fn elements(&self) -> usize {
        self.size / item_size(self.dtype).max(1)
    }
    /// The elements in row-major order.
    ///
    /// # Errors
    /// T is not the type of the elements.
    pub fn data<T: Element>(&mut self) -> Result<&mut [T]> {
        let (data, count) = cast::<T>(self.data, self.size, self.dtype)?;
        Ok(unsafe { slice::from_raw_parts_mut(data as *mut T, count) })
    }
    /// The elements as bytes, whatever their type.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.size == 0 {
            return &mut [];
        }
        unsafe { slice::from_raw_parts_mut(self.data, self.size) }
    }
}

/// The address of the first element of a tensor in memory of the host, row-major without gaps, or why it is not.
fn address(tensor: &ipr_tensor) -> Result<*mut u8> {
    let shape = unsafe { list(tensor.shape, tensor.ndim.max(0) as u64) };
    let fail = |message| Err(Error::new(message, INVALID_ARGUMENT));
    if tensor.memory_kind != MEMORY_HOST {
        return fail("the tensor is not in memory of the host; see Run::input_handle and Run::output_handle");
    }
    if elements_of(shape).is_none() {
        return fail("the shape of the tensor is not known yet; call Run::resize before");
    }
    if !tensor.strides.is_null() && !is_compact(shape, unsafe { list(tensor.strides, shape.len() as u64) }) {
        return fail("the tensor has gaps between its elements; use its raw description");
    }
    Ok(tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize))
}

fn is_compact(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1;
    let mut dimensions = shape.iter().zip(strides).rev();
    shape.contains(&0)
        || dimensions.all(|(&size, &stride)| {
            let fits = size == 1 || stride == step;
            step *= size;
            fits
        })
}

fn overlap(a: &ipr_tensor, b: &ipr_tensor) -> bool {
    let ends = |one: &ipr_tensor| {
        let begin = one.data as usize + one.byte_offset as usize;
        (begin, begin + one.size as usize)
    };
    let ((a_begin, a_end), (b_begin, b_end)) = (ends(a), ends(b));
    a.memory_kind == MEMORY_HOST && b.memory_kind == MEMORY_HOST && a_begin.max(b_begin) < a_end.min(b_end)
}

/// One run of an executable: its inputs, outputs and workspace. Used by the thread that runs `execute`; the slices that
/// it lends may go to others for the length of the run.
pub struct Run<'a> {
    raw: &'a ipr_run,
    taken: RefCell<Vec<bool>>,
    workspace_taken: Cell<bool>,
}

impl<'a> Run<'a> {
    /// # Safety
    /// The run, and all that it points to, is valid for the lifetime `'a` and as the header describes it; nothing else
    /// uses the memory of its outputs or its workspace during this time.
    pub unsafe fn from_raw(raw: &'a ipr_run) -> Run<'a> {
        Run { raw, taken: RefCell::new(vec![false; raw.output_count as usize]), workspace_taken: Cell::new(false) }
    }
    pub fn raw(&self) -> &'a ipr_run {
        self.raw
    }
    pub fn input_count(&self) -> usize {
        self.raw.input_count as usize
    }
    pub fn output_count(&self) -> usize {
        self.raw.output_count as usize
    }
    /// The description of an input. Panics if there is none.
    pub fn raw_input(&self, index: usize) -> &'a ipr_tensor {
        assert!(index < self.input_count(), "there is no input {} among {}", index, self.input_count());
        unsafe { element(self.raw.inputs, self.raw.tensor_stride, index as u64) }
    }
    /// The description of an output, whose pointer may be used where `output` does not serve: for memory that is
    /// shared with an input (`raw::CAP_IN_PLACE`), and for strides. It changes with `resize`; ask for it again then.
    /// Panics if there is none.
    pub fn raw_output(&self, index: usize) -> ipr_tensor {
        assert!(index < self.output_count(), "there is no output {} among {}", index, self.output_count());
        let place = unsafe { element(self.raw.outputs as *const ipr_tensor, self.raw.tensor_stride, index as u64) };
        unsafe { std::ptr::read(place) }
    }
    /// The input of a number.
    ///
    /// # Errors
    /// Its memory is not the host's, or has gaps.
    pub fn input(&self, index: usize) -> Result<Tensor<'a>> {
        let raw = self.raw_input(index);
        let data = address(raw).map_err(|error| error.about(ITEM_INPUT, index))?;
        let shape = unsafe { list(raw.shape, raw.ndim.max(0) as u64) };
        Ok(Tensor { data, size: raw.size as usize, dtype: raw.dtype, shape })
    }
    /// The output of a number, to be written to. It is lent out once in a run.
    ///
    /// # Errors
    /// It was lent out before; its shape is not known yet; it shares memory with an input or another output, as it may
    /// with `raw::CAP_IN_PLACE`; its memory is not the host's, or has gaps. `raw_output` is for these.
    pub fn output(&self, index: usize) -> Result<TensorMut<'a>> {
        let raw = self.raw_output(index);
        let fail = |message| Err(Error::new(message, INVALID_ARGUMENT).about(ITEM_OUTPUT, index));
        let data = address(&raw).map_err(|error| error.about(ITEM_OUTPUT, index))?;
        if (0..self.input_count()).any(|other| overlap(self.raw_input(other), &raw)) {
            return fail("the output shares memory with an input");
        }
        if (0..self.output_count()).any(|other| other != index && overlap(&self.raw_output(other), &raw)) {
            return fail("the output shares memory with another output");
        }
        if std::mem::replace(&mut self.taken.borrow_mut()[index], true) {
            return fail("the output is asked for a second time in one run");
        }
        let shape = unsafe { list(raw.shape, raw.ndim.max(0) as u64) };
        Ok(TensorMut { data, size: raw.size as usize, dtype: raw.dtype, shape })
    }
    /// The number of an input in a pool of the backend's own (`Pool::create_tensor`); None if it is in other memory.
    pub fn input_handle(&self, index: usize) -> Option<u64> {
        let raw = self.raw_input(index);
        (raw.memory_kind == MEMORY_PRIVATE).then(|| raw.native_handle)
    }
    /// The same for an output.
    pub fn output_handle(&self, index: usize) -> Option<u64> {
        let raw = self.raw_output(index);
        (raw.memory_kind == MEMORY_PRIVATE).then(|| raw.native_handle)
    }
    /// Give an output with unknown dimensions its shape. Call it once, before `output`, which then gives its memory.
    ///
    /// # Errors
    /// The shape of the output is known or was given before; the host has no memory.
    pub fn resize(&self, index: usize, shape: &[i64]) -> Result<()> {
        let raw = self.raw_output(index);
        let known = elements_of(unsafe { list(raw.shape, raw.ndim.max(0) as u64) }).is_some();
        let resize = match self.raw.resize {
            Some(resize) if !known && !self.taken.borrow()[index] => resize,
            _ => return Err(Error::new("the shape is known already", INVALID_ARGUMENT).about(ITEM_OUTPUT, index)),
        };
        match unsafe { resize(self.raw.host, index as u64, shape.as_ptr(), shape.len() as u64) } {
            OK => Ok(()),
            status => Err(Error::new("the host gave no memory for an output", status).about(ITEM_OUTPUT, index)),
        }
    }
    /// The scratch memory that the executable asked for. It is lent out once in a run.
    ///
    /// # Errors
    /// It was lent out before.
    pub fn workspace(&self) -> Result<&'a mut [u8]> {
        if self.workspace_taken.replace(true) {
            return Err(Error::new("the workspace is asked for a second time in one run", INVALID_ARGUMENT));
        }
        if self.raw.workspace_size == 0 {
            return Ok(&mut []);
        }
        Ok(unsafe { slice::from_raw_parts_mut(self.raw.workspace.cast(), self.raw.workspace_size as usize) })
    }
    /// Whether the run should end soon with `raw::CANCELLED`.
    pub fn cancelled(&self) -> bool {
        // The host may write to it from another thread.
        let cancel = unsafe { self.raw.cancel.cast::<AtomicU32>().as_ref() };
        cancel.map_or(false, |cancel| cancel.load(Ordering::Relaxed) != 0)
    }
}

/// A part made ready to run.
pub trait Executable: Send + Sync + 'static {
    fn execute(&self, run: &Run) -> Result<()>;
    /// `raw::EXECUTABLE_...`.
    fn flags(&self) -> u64 {
        0
    }
    /// Bytes of scratch memory that each run needs.
    fn workspace_size(&self) -> u64 {
        0
    }
    /// The alignment of the scratch memory in bytes, a power of two.
    fn workspace_alignment(&self) -> u64 {
        64
    }
    /// An estimate for one run; 0 if there is none.
    fn seconds(&self) -> f64 {
        0.0
    }
    /// Bytes that the executable holds, as far as is known.
    fn memory(&self) -> u64 {
        0
    }
    /// The part as bytes, for backends with `has_blobs`.
    fn save(&self) -> Result<Blob> {
        unsupported("this part cannot be saved")
    }
}

/// The operands of a layer by position.
#[derive(Clone, Copy)]
pub struct Inputs<'a>(&'a [Option<Tensor<'a>>]);

impl<'a> Inputs<'a> {
    /// An operand; None if it is absent.
    pub fn get(&self, position: usize) -> Option<Tensor<'a>> {
        self.0.get(position).copied().flatten()
    }
    /// The elements of an operand.
    ///
    /// # Errors
    /// It is absent, or T is not the type of its elements.
    pub fn data<T: Element>(&self, position: usize) -> Result<&'a [T]> {
        self.get(position).ok_or_else(|| format!("operand {} is absent", position))?.data()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Computes a layer: its operands (constant ones included) and its results, by position.
pub type Kernel = Box<dyn Fn(Inputs, &mut [TensorMut]) -> Result<()> + Send + Sync>;

/// A list of kernels. Tensors between them lie in the workspace, and share it if they do not live at the same time. It
/// copies the constants, and keeps no state between runs, so that several threads may run it.
pub struct KernelList {
    steps: Vec<Step>,
    places: Vec<Slot>,
    workspace: usize,
}

struct Step {
    kernel: Kernel,
    inputs: Vec<i64>,
    outputs: Vec<i64>,
}

struct Slot {
    place: Place,
    dtype: i32,
    shape: Vec<i64>,
    size: usize,
}

impl Slot {
    /// Fail unless a tensor of a run is the one that the list was made for.
    fn check(&self, dtype: i32, size: usize) -> Result<()> {
        if (dtype, size) == (self.dtype, self.size) {
            return Ok(());
        }
        let message = format!(
            "the tensor has {} bytes of {}; the graph of this list of kernels has {} bytes of {} there",
            size, dtype_name(dtype), self.size, dtype_name(self.dtype)
        );
        Err(Error::new(message, INVALID_ARGUMENT))
    }
}

enum Place {
    Input(usize),
    Output(usize),
    /// In words of 8 bytes, so that every type of element is aligned.
    Constant(Vec<u64>),
    /// Offset in the workspace in bytes.
    Workspace(usize),
}

const BLOCK: usize = 64;

/// The lowest gaps of the workspace, for tensors that live at the same time.
#[derive(Default)]
struct Layout {
    /// Begin, end, and the last layer that uses the block.
    live: Vec<(usize, usize, usize)>,
    size: usize,
}

impl Layout {
    fn place(&mut self, size: usize, now: usize, last: usize) -> usize {
        let size = (size.max(1) + BLOCK - 1) / BLOCK * BLOCK;
        self.live.retain(|block| block.2 >= now);
        self.live.sort_unstable();
        let mut begin = 0;
        for block in &self.live {
            if block.0 >= begin + size {
                break;
            }
            begin = begin.max(block.1);
        }
        self.live.push((begin, begin + size, last));
        self.size = self.size.max(begin + size);
        begin
    }
}

impl KernelList {
    /// `kernel` makes the kernel of one layer.
    ///
    /// # Errors
    /// Those of `kernel`; `raw::UNSUPPORTED` if the shape of a tensor is unknown.
    pub fn new(graph: Graph, mut kernel: impl FnMut(&Layer) -> Result<Kernel>) -> Result<KernelList> {
        let mut places = KernelList::border(graph)?;
        let (last, mut layout, mut steps) = (last_uses(graph), Layout::default(), Vec::new());
        for layer in graph.layers() {
            for &tensor in layer.outputs() {
                let slot = &mut places[tensor as usize];
                if let Place::Workspace(offset) = &mut slot.place {
                    *offset = layout.place(slot.size, layer.index(), last[tensor as usize]);
                }
            }
            let (inputs, outputs) = (layer.inputs().to_vec(), layer.outputs().to_vec());
            steps.push(Step { kernel: kernel(&layer)?, inputs, outputs });
        }
        Ok(KernelList { steps, places, workspace: layout.size })
    }

    fn border(graph: Graph) -> Result<Vec<Slot>> {
        let mut places = Vec::new();
        for index in 0..graph.tensor_count() {
            let info = graph.tensor(index);
            let unknown = || Error::new(format!("the shape of {:?} is unknown", info.name()), UNSUPPORTED);
            let size = info.bytes().ok_or_else(unknown)?;
            let place = info.constant().map_or(Place::Workspace(0), |bytes| Place::Constant(words(bytes)));
            places.push(Slot { place, dtype: info.dtype(), shape: info.shape().to_vec(), size });
        }
        for (position, &tensor) in graph.inputs().iter().enumerate() {
            places[tensor as usize].place = Place::Input(position);
        }
        for (position, &tensor) in graph.outputs().iter().enumerate() {
            places[tensor as usize].place = Place::Output(position);
        }
        Ok(places)
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0; (bytes.len() + 7) / 8];
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
    words
}

fn last_uses(graph: Graph) -> Vec<usize> {
    let mut last = vec![0; graph.tensor_count()];
    for layer in graph.layers() {
        for &tensor in layer.outputs().iter().chain(layer.inputs()).filter(|&&tensor| tensor >= 0) {
            last[tensor as usize] = layer.index();
        }
    }
    last
}

/// A run must be of the graph that the list was made of: tensors of other types or sizes are an error.
impl Executable for KernelList {
    fn execute(&self, run: &Run) -> Result<()> {
        let workspace = run.workspace()?;
        if workspace.len() < self.workspace || workspace.as_ptr() as usize % BLOCK != 0 && self.workspace > 0 {
            return Err("the host gave too little scratch memory".into());
        }
        let base = workspace.as_mut_ptr();
        let mut data = Vec::with_capacity(self.places.len());
        for slot in &self.places {
            data.push(match &slot.place {
                Place::Input(index) => {
                    let tensor = run.input(*index)?;
                    slot.check(tensor.dtype, tensor.size).map_err(|error| error.about(ITEM_INPUT, *index))?;
                    tensor.data as *mut u8
                }
                Place::Output(index) => {
                    let tensor = run.output(*index)?;
                    slot.check(tensor.dtype, tensor.size).map_err(|error| error.about(ITEM_OUTPUT, *index))?;
                    tensor.data
                }
                Place::Constant(words) => words.as_ptr() as *mut u8,
                Place::Workspace(offset) => base.wrapping_add(*offset),
            });
        }
        for step in &self.steps {
            // Results lie in blocks of the workspace, or in outputs, that overlap with no tensor that lives now.
            let view = |&tensor: &i64| {
                let slot = self.places.get(usize::try_from(tensor).ok()?)?;
                Some(Tensor { data: data[tensor as usize], size: slot.size, dtype: slot.dtype, shape: &slot.shape })
            };
            let result = |&tensor: &i64| {
                let slot = &self.places[tensor as usize];
                TensorMut { data: data[tensor as usize], size: slot.size, dtype: slot.dtype, shape: &slot.shape }
            };
            let inputs: Vec<Option<Tensor>> = step.inputs.iter().map(view).collect();
            let mut outputs: Vec<TensorMut> = step.outputs.iter().map(result).collect();
            (step.kernel)(Inputs(&inputs), &mut outputs)?;
        }
        Ok(())
    }
    fn flags(&self) -> u64 {
        EXECUTABLE_CONCURRENT | EXECUTABLE_KEEPS_CONSTANTS
    }
    fn workspace_size(&self) -> u64 {
        self.workspace as u64
    }
    fn memory(&self) -> u64 {
        let words = |slot: &Slot| if let Place::Constant(words) = &slot.place { words.len() as u64 * 8 } else { 0 };
        self.places.iter().map(words).sum()
    }
}

// ---- What a backend says of itself ------------------------------------------------------------------------------------

/// The value of an option or of a named capability.
pub enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
}

/// An option that the backend understands, or a capability that can be asked for by name.
pub struct Property {
    pub name: &'static str,
    pub doc: &'static str,
    pub value: Value,
    /// Of an option: `raw::SCOPE_INIT`, `raw::SCOPE_MODEL`, or both; of a capability: 0.
    pub scope: u32,
}

/// What a backend says of itself.
#[derive(Default)]
pub struct Info {
    pub vendor: &'static str,
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    /// `raw::CAP_...`.
    pub capabilities: u64,
    /// Bytes that the first element of every tensor is aligned to, a power of two; 0 for that of its elements.
    pub alignment: u64,
    pub options: Vec<Property>,
    pub properties: Vec<Property>,
}

/// Layers that become one unit, which is then compiled.
pub struct Substitution {
    pub layers: Vec<i64>,
}

/// Layers that cannot be run after all, with the reason and its code (`raw::REASON_...`).
pub struct Failure {
    pub layers: Vec<i64>,
    pub reason: String,
    pub reason_code: i32,
}

/// What `Backend::optimize` makes of a part; layers that are in none of it are compiled one by one. Replacing layers by
/// a graph needs the raw table.
#[derive(Default)]
pub struct Answer {
    pub substitutions: Vec<Substitution>,
    pub failures: Vec<Failure>,
}

/// What the host offers. It may be stored: after `shutdown` it offers nothing (no threads, no folder, no log).
#[derive(Clone)]
pub struct Host(Arc<RwLock<HostPointer>>);

struct HostPointer(*const ipr_host);

unsafe impl Send for HostPointer {}
unsafe impl Sync for HostPointer {}

impl Host {
    fn new(raw: *const ipr_host) -> Host {
        Host(Arc::new(RwLock::new(HostPointer(raw))))
    }
    fn close(&self) {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()).0 = std::ptr::null();
    }
    fn read<T>(&self, absent: T, function: impl FnOnce(&ipr_host) -> T) -> T {
        let held = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        unsafe { held.0.as_ref() }.map_or(absent, function)
    }
    /// How many threads the backend may use.
    pub fn threads(&self) -> u32 {
        self.read(1, |host| host.thread_count)
    }
    pub fn cache_dir(&self) -> String {
        self.read(String::new(), |host| unsafe { text(&host.cache_dir).to_owned() })
    }
    pub fn library_path(&self) -> String {
        self.read(String::new(), |host| unsafe { text(&host.library_path).to_owned() })
    }
    /// Whether the host looks for writes where nothing may be written.
    pub fn checking(&self) -> bool {
        self.read(false, |host| host.flags & HOST_CHECKING != 0)
    }
    /// Log a line at a level (`raw::LOG_...`). From any thread; waits only for `shutdown`. A line that is too long is
    /// cut.
    pub fn log(&self, level: i32, line: &str) {
        self.read((), |host| unsafe { write_line(host.log, level, line) });
    }
}

unsafe fn write_line(ring: *mut ipr_log_ring, level: i32, line: &str) {
    if ring.is_null() || level < (*addr_of_mut!((*ring).level).cast::<AtomicI32>()).load(Ordering::Relaxed) {
        return;
    }
    let head = &*addr_of_mut!((*ring).head).cast::<AtomicU64>();
    let tail = &*addr_of_mut!((*ring).tail).cast::<AtomicU64>();
    let mut number = head.load(Ordering::Relaxed);
    loop {
        // Signed: where other threads have passed this one, the tail may be beyond its number.
        if number.wrapping_sub(tail.load(Ordering::Acquire)) as i64 >= (*ring).slot_count as i64 {
            (*addr_of_mut!((*ring).lost).cast::<AtomicU64>()).fetch_add(1, Ordering::Relaxed);
            return;
        }
        match head.compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => number = now,
        }
    }
    let place = (number & ((*ring).slot_count - 1)) * (*ring).slot_stride;
    let slot = (*ring).slots.add(place as usize).cast::<ipr_log_slot>();
    let room = (*ring).slot_stride as usize - size_of::<ipr_log_slot>();
    let length = line.len().min(room);
    std::ptr::copy_nonoverlapping(line.as_ptr(), slot.add(1).cast(), length);
    (*slot).level = level;
    (*slot).length = length as u32;
    (*addr_of_mut!((*slot).sequence).cast::<AtomicU64>()).store(number + 1, Ordering::Release);
}

/// Is notified of networks ("ipr.context/1"). An error with the status `raw::REFUSED` refuses one, before it is loaded or
/// unloaded.
pub trait Context: Send + Sync + 'static {
    fn before_load(&self, _network: i64) -> Result<()> {
        Ok(())
    }
    fn after_load(&self, _network: i64) -> Result<()> {
        Ok(())
    }
    fn before_unload(&self, _network: i64) -> Result<()> {
        Ok(())
    }
    fn after_unload(&self, _network: i64) -> Result<()> {
        Ok(())
    }
}

/// A number that a backend counts or measures ("ipr.profiling/1").
pub struct Counter {
    /// Unique in its category.
    pub name: &'static str,
    pub category: &'static str,
    /// Such as "bytes".
    pub units: &'static str,
    pub description: &'static str,
    /// The device that it belongs to, or "".
    pub device: &'static str,
    /// What a value is multiplied by to get an amount in `units`.
    pub multiplier: f64,
    /// `raw::COUNTER_...`.
    pub kind: u32,
}

impl Default for Counter {
    fn default() -> Counter {
        let (name, category, units, description, device) = ("", "", "", "", "");
        Counter { name, category, units, description, device, multiplier: 1.0, kind: COUNTER_EVENT }
    }
}

/// Something that took time. Its texts are static because the host may read them as long as the library is open; use
/// `Box::leak`, once for each name, for names that are known at run time only.
#[derive(Clone, Copy)]
pub struct Interval {
    /// The name of the kernel or step.
    pub name: &'static str,
    /// The device that it ran on; "" for the processor.
    pub device: &'static str,
    /// Nanoseconds of CLOCK_MONOTONIC; of the device's clock if `device` is not empty.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// The thread that called `execute`, as `pthread_self` returns it; 0 for none.
    pub thread: u64,
    /// Bytes that were read and written; 0 if unknown.
    pub bytes: u64,
    /// Operations that were computed; 0 if unknown.
    pub flops: u64,
    /// `raw::INTERVAL_...`.
    pub kind: u32,
}

/// The time of a device and that of the host at one moment, in nanoseconds, and how far they may be apart.
#[derive(Clone, Copy)]
pub struct Clock {
    pub device_ns: i64,
    pub host_ns: i64,
    pub error_ns: i64,
}

/// What a backend measures while a host records ("ipr.profiling/1"). Any thread calls these functions, also while others
/// execute.
pub trait Profiler: Send + Sync {
    /// The counters. The result is the same as long as the library is open.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }
    /// Begin or end to measure.
    fn enable(&self, _on: bool) -> Result<()> {
        Ok(())
    }
    /// Remove and return at most `capacity` intervals, the oldest first, and the number of those that were dropped since
    /// the last call because there was no room for them.
    fn collect(&self, _capacity: usize) -> Result<(Vec<Interval>, u64)> {
        Ok((Vec::new(), 0))
    }
    /// The present values of the counters, in their order.
    fn read(&self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
    /// Capture these counters, as indices of `counters`, about every `period_us` microseconds, and no others. A period of
    /// 0 and no indices end it. Fail if they cannot be captured together.
    fn select(&self, _period_us: u64, _indices: &[u64]) -> Result<()> {
        Ok(())
    }
    /// Read the clocks of a device and of the host.
    fn correlate(&self, device: &str) -> Result<Clock> {
        Err(Error::new(format!("there is no device '{}'", device), INVALID_ARGUMENT))
    }
}

/// A compiled part as bytes ("ipr.blobs/1").
#[derive(Default)]
pub struct Blob {
    pub data: Vec<u8>,
    /// `raw::BLOB_...`.
    pub flags: u64,
}

/// A kind of memory of the backend's own ("ipr.handles/1").
pub struct Factory {
    /// "Vendor/Backend/Name".
    pub id: String,
    /// `raw::FACTORY_...`: what can be done with its tensors.
    pub flags: u64,
    /// `raw::MEMORY_...`: kinds of memory of others that its tensors can lie in.
    pub import_kinds: u32,
    /// `raw::MEMORY_...`: kinds of memory as which others can use its tensors.
    pub export_kinds: u32,
}

/// The kinds of memory that a backend has, and the ids of those that its executables take, best first.
#[derive(Default)]
pub struct Factories {
    pub factories: Vec<Factory>,
    pub preferences: Vec<String>,
}

/// Memory of a tensor that others may use: `data` for `raw::MEMORY_HOST`, the handle and the offset for other kinds.
pub struct Exported {
    pub data: *mut u8,
    pub native_handle: u64,
    pub byte_offset: u64,
}

/// The memory of one run of a network at a time ("ipr.handles/1"), used by one thread at a time. Its tensors are numbers
/// of the backend's own, other than 0; in a run, `Run::input_handle` and `Run::output_handle` give them.
///
/// # Safety
/// Pointers that `map` and `export_memory` give are valid for the whole tensor, row-major without gaps, until `unmap` or
/// until the tensor's memory is given back.
pub unsafe trait Pool: Send + 'static {
    /// Get the memory that was planned, before the first run.
    fn acquire(&mut self) -> Result<()>;
    /// Give it back, after the last run.
    fn give_back(&mut self) -> Result<()>;
    /// A tensor of the kind with that index in `Factories`. One that is `alone` is no part of the plan; `allocate` gives
    /// it memory of its own, as for constants.
    fn create_tensor(&mut self, factory: usize, info: TensorInfo, alone: bool) -> Result<u64>;
    /// A piece of another tensor, from `origin` on, one number for each axis.
    fn create_sub_tensor(&mut self, _whole: u64, _origin: &[i64], _info: TensorInfo) -> Result<u64> {
        unsupported("pieces of tensors cannot be tensors")
    }
    fn destroy_tensor(&mut self, tensor: u64);
    /// In running order, once each: the tensor begins to live ...
    fn manage(&mut self, tensor: u64) -> Result<()>;
    /// ... and was read for the last time; or, without `manage`, it gets memory of its own.
    fn allocate(&mut self, tensor: u64) -> Result<()>;
    /// Show the tensor to the host until `unmap`; the host may write to it.
    fn map(&mut self, _tensor: u64) -> Result<*mut u8> {
        unsupported("the memory cannot be mapped")
    }
    fn unmap(&mut self, _tensor: u64) -> Result<()> {
        Ok(())
    }
    /// Fill a tensor with the elements of a tensor of the host.
    fn upload(&mut self, _source: Tensor, _tensor: u64) -> Result<()> {
        unsupported("the device does not copy")
    }
    /// Copy a tensor to memory of the host.
    fn download(&mut self, _tensor: u64, _target: TensorMut) -> Result<()> {
        unsupported("the device does not copy")
    }
    /// Let the tensor lie in memory of others until `forget_memory`; an error with `raw::UNSUPPORTED` has it copied.
    fn import_memory(&mut self, _tensor: u64, _memory: &ipr_tensor) -> Result<()> {
        unsupported("nothing is imported")
    }
    fn forget_memory(&mut self, _tensor: u64) -> Result<()> {
        Ok(())
    }
    /// Show the tensor's own memory as one of the kinds that its factory names.
    fn export_memory(&mut self, _tensor: u64, _kind: u32) -> Result<Exported> {
        unsupported("nothing is exported")
    }
}

/// The table of an extension that this file has no trait for.
pub struct ExtensionTable(*const c_void);

impl ExtensionTable {
    /// # Safety
    /// The table is that of the extension as the header has it, and is valid as long as the library is open.
    pub unsafe fn new(table: *const c_void) -> ExtensionTable {
        ExtensionTable(table)
    }
}

/// A backend: `support`, and `kernel` or `compile`; the rest as it is needed. Methods other than those of executables
/// are called by one thread at a time, unless `Info` declares `raw::CAP_CONCURRENT_COMPILE`.
pub trait Backend: Send + Sync + 'static {
    fn new() -> Self
    where
        Self: Sized;
    fn info(&self) -> Info {
        Info::default()
    }
    /// Fail with `raw::UNAVAILABLE` to be absent with a reason.
    fn init(&self, _host: Host, _options: Attributes) -> Result<()> {
        Ok(())
    }
    fn shutdown(&self) {}
    /// Whether a layer can be run, and why not.
    fn support(&self, layer: &Layer, options: Attributes) -> Verdict;
    /// Verdicts for all layers, if they depend on the neighbours.
    fn query(&self, graph: Graph, options: Attributes) -> Result<Vec<Verdict>> {
        Ok(graph.layers().map(|layer| self.support(&layer, options)).collect())
    }
    /// The kernel of a layer that `support` accepted.
    fn kernel(&self, layer: &Layer, _options: Attributes) -> Result<Kernel> {
        Err(layer.unsupported("there is no kernel for it"))
    }
    /// Make a part ready to run. By default it becomes a list of kernels.
    fn compile(&self, graph: Graph, options: Attributes) -> Result<Box<dyn Executable>> {
        Ok(Box::new(KernelList::new(graph, |layer| self.kernel(layer, options))?))
    }
    /// Whether `optimize` shall be asked; if not, each part becomes one unit.
    fn optimizes(&self) -> bool {
        false
    }
    fn optimize(&self, _graph: Graph, _options: Attributes) -> Result<Answer> {
        Ok(Answer::default())
    }
    /// Whether `create_context` shall be called, once for each runtime.
    fn has_contexts(&self) -> bool {
        false
    }
    fn create_context(&self, _options: Attributes) -> Result<Box<dyn Context>> {
        Err("there are no contexts".into())
    }
    /// Whether compiled parts can be saved: `Executable::save`, `fingerprint`, `check` and `restore`.
    fn has_blobs(&self) -> bool {
        false
    }
    /// A text that differs whenever blobs of one setting are of no use in another.
    fn fingerprint(&self, _options: Attributes) -> Result<String> {
        Ok(String::new())
    }
    /// Fail with `raw::STALE` or `raw::CORRUPT` if a blob cannot be restored. The bytes may be anything.
    fn check(&self, _data: &[u8], _options: Attributes) -> Result<()> {
        Ok(())
    }
    /// Make a part of a blob; the bytes may be anything. `graph` is None if the host does not have it any more.
    fn restore(&self, _data: &[u8], _graph: Option<Graph>, _options: Attributes) -> Result<Box<dyn Executable>> {
        unsupported("blobs cannot be restored")
    }
    /// Whether there is memory of the backend's own: `describe` and `create_pool`.
    fn has_handles(&self) -> bool {
        false
    }
    /// The kinds of memory, the same as long as the library is open.
    fn describe(&self, _options: Attributes) -> Result<Factories> {
        Ok(Factories::default())
    }
    fn create_pool(&self, _options: Attributes) -> Result<Box<dyn Pool>> {
        unsupported("there is no memory of its own")
    }
    /// What is measured for profiles. The answer is always the same.
    fn profiler(&self) -> Option<&dyn Profiler> {
        None
    }
    /// The table of another extension by its name.
    fn extension(&self, _name: &str) -> Option<ExtensionTable> {
        None
    }
}

// ---- From here on: how the trait becomes a table ----------------------------------------------------------------------

fn message_of(panic: Box<dyn Any + Send>) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let message = format!("panicked: {}", said.unwrap_or("without a message"));
    discard(panic);
    message
}

/// Drop what a panic carries, whose own `drop` may panic again.
fn discard(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}

/// The result of a function of a backend; `absent` if it panics.
fn quietly<T>(absent: T, function: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        discard(panic);
        absent
    })
}

/// Run a function of a backend; what it returns or panics with goes into the error. For tables of extensions.
///
/// # Safety
/// `error` is one that the host gave for this call, or null.
pub unsafe fn guarded(error: *mut ipr_error, function: impl FnOnce() -> Result<()>) -> i32 {
    let failed = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failed)) => failed,
        Err(panic) => Error::new(message_of(panic), FAILED),
    };
    if let Some(out) = error.as_mut() {
        let length = failed.message.len().min(out.capacity as usize);
        if length > 0 {
            std::ptr::copy_nonoverlapping(failed.message.as_ptr(), out.text.cast(), length);
        }
        out.length = failed.message.len() as u64;
        out.item_kind = failed.item_kind;
        out.item = failed.item;
        if let (Some(wrong), true) = (failed.value, out.struct_size as usize >= std::mem::size_of::<ipr_value_error>()) {
            let details = &mut *error.cast::<ipr_value_error>();
            details.known = VALUE_OPERAND | VALUE_ELEMENT | VALUE_VALUE | VALUE_LOWEST | VALUE_HIGHEST;
            details.operand = wrong.operand as i32;
            details.element = wrong.element as i64;
            details.value = wrong.value;
            details.lowest = wrong.lowest;
            details.highest = wrong.highest;
        }
    }
    // An error is an error, whatever its status says.
    if failed.status == OK { FAILED } else { failed.status }
}

/// Run an executable on a thread of the backend, as the queues of "ipr.async/1" do; a panic is an error.
///
/// # Safety
/// `executable` is that of a submission, and `run` is as for `Run::from_raw`.
pub unsafe fn run_executable(executable: *mut c_void, run: &ipr_run) -> Result<()> {
    let run = || (*executable.cast::<Box<dyn Executable>>()).execute(&Run::from_raw(run));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(Error::new(message_of(panic), FAILED)))
}

unsafe extern "C" fn drop_box<T>(owner: *mut c_void) {
    quietly((), || drop(Box::from_raw(owner.cast::<T>())));
}

/// Let an out struct own a value; gives the value's place.
unsafe fn give<T>(owner: &mut *mut c_void, release: &mut Release, value: T) -> &'static T {
    let place = Box::into_raw(Box::new(value));
    *owner = place.cast();
    *release = Some(drop_box::<T>);
    &*place
}

/// A backend and the host that it was given.
struct Held<B> {
    backend: B,
    host: RwLock<Option<Host>>,
}

/// The functions of the table for one type of backend, and the table itself.
pub struct Bridge<B>(PhantomData<B>);

struct Report {
    _verdicts: Vec<Verdict>,
    raw: Vec<ipr_verdict>,
}

struct RawAnswer {
    _answer: Answer,
    substitutions: Vec<ipr_substitution>,
    failures: Vec<ipr_failure>,
}

struct RawFactories {
    _factories: Factories,
    raw: Vec<ipr_factory>,
    preferences: Vec<ipr_string>,
}

type Raw = *mut c_void;

impl<B: Backend> Bridge<B> {
    /// What BackendFactory gives; never freed, as the library may be asked again.
    pub fn table() -> *mut c_void {
        quietly(std::ptr::null_mut(), || {
            let backend = B::new();
            let optimize: Option<unsafe extern "C" fn(_, _, _, _, _) -> i32> =
                if backend.optimizes() { Some(Self::optimize) } else { None };
            let held = Box::into_raw(Box::new(Held { backend, host: RwLock::new(None) }));
            let table = Box::new(ipr_backend {
                magic: MAGIC,
                struct_size: size_of::<ipr_backend>() as u64,
                self_: held.cast(),
                init: Some(Self::init),
                shutdown: Some(Self::shutdown),
                get_info: Some(Self::get_info),
                query_support: Some(Self::query_support),
                optimize,
                compile: Some(Self::compile),
                execute: Some(Self::execute),
                get_extension: Some(Self::get_extension),
            });
            Box::into_raw(table).cast()
        })
    }

    unsafe fn held<'a>(this: Raw) -> &'a Held<B> {
        &*this.cast::<Held<B>>()
    }

    unsafe fn at<'a>(this: Raw) -> &'a B {
        &Self::held(this).backend
    }

    unsafe fn set_host(this: Raw, host: Option<Host>) {
        let mut place = Self::held(this).host.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(before) = std::mem::replace(&mut *place, host) {
            before.close();
        }
    }

    unsafe extern "C" fn init(
        this: Raw,
        host: *const ipr_host,
        options: *const ipr_options,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let host = Host::new(host);
            Self::set_host(this, Some(host.clone()));
            let init = || Self::at(this).init(host, Attributes::of_options(options));
            let done = catch_unwind(AssertUnwindSafe(init))
                .unwrap_or_else(|panic| Err(Error::new(message_of(panic), FAILED)));
            if done.is_err() {
                Self::set_host(this, None);
            }
            done
        })
    }

    unsafe extern "C" fn shutdown(this: Raw) {
        quietly((), || Self::at(this).shutdown());
        quietly((), || Self::set_host(this, None));
    }

    unsafe extern "C" fn get_info(this: Raw, out: *mut ipr_info, error: *mut ipr_error) -> i32 {
        guarded(error, || {
            let info = Self::at(this).info();
            let out = &mut *out;
            (out.vendor, out.name) = (string(info.vendor), string(info.name));
            (out.version, out.description) = (string(info.version), string(info.description));
            (out.capabilities, out.alignment) = (info.capabilities, info.alignment);
            (out.options, out.option_count) = leaked(&info.options);
            (out.properties, out.property_count) = leaked(&info.properties);
            out.option_stride = size_of::<ipr_property>() as u64;
            out.property_stride = out.option_stride;
            Ok(())
        })
    }

    unsafe extern "C" fn query_support(
        this: Raw,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_report,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let verdicts = Self::at(this).query(Graph { raw: &*graph }, Attributes::of_options(options))?;
            let raw = verdicts.iter().map(raw_verdict).collect();
            let out = &mut *out;
            let report = give(&mut out.owner, &mut out.release, Report { _verdicts: verdicts, raw });
            out.verdict_count = report.raw.len() as u64;
            out.verdict_stride = size_of::<ipr_verdict>() as u64;
            out.verdicts = report.raw.as_ptr();
            Ok(())
        })
    }

    unsafe extern "C" fn optimize(
        this: Raw,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_answer,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let answer = Self::at(this).optimize(Graph { raw: &*graph }, Attributes::of_options(options))?;
            let substitutions = answer.substitutions.iter().map(raw_substitution).collect();
            let failures = answer.failures.iter().map(raw_failure).collect();
            let out = &mut *out;
            let given = RawAnswer { _answer: answer, substitutions, failures };
            let given = give(&mut out.owner, &mut out.release, given);
            out.substitution_count = given.substitutions.len() as u64;
            out.substitution_stride = size_of::<ipr_substitution>() as u64;
            out.substitutions = given.substitutions.as_ptr();
            out.failure_count = given.failures.len() as u64;
            out.failure_stride = size_of::<ipr_failure>() as u64;
            out.failures = given.failures.as_ptr();
            Ok(())
        })
    }

    unsafe extern "C" fn compile(
        this: Raw,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_executable,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).compile(Graph { raw: &*graph }, Attributes::of_options(options))?;
            give_executable(&mut *out, made);
            Ok(())
        })
    }

    unsafe extern "C" fn execute(_this: Raw, executable: Raw, run: *const ipr_run, error: *mut ipr_error) -> i32 {
        guarded(error, || (*executable.cast::<Box<dyn Executable>>()).execute(&Run::from_raw(&*run)))
    }

    unsafe extern "C" fn get_extension(this: Raw, name: *const c_char) -> *const c_void {
        quietly(std::ptr::null(), || match CStr::from_ptr(name).to_str() {
            Ok("ipr.context/1") if Self::at(this).has_contexts() => (&Self::CONTEXTS as *const ipr_context_api).cast(),
            Ok("ipr.blobs/1") if Self::at(this).has_blobs() => (&Self::BLOBS as *const ipr_blobs_api).cast(),
            Ok("ipr.handles/1") if Self::at(this).has_handles() => (&Self::HANDLES as *const ipr_handles_api).cast(),
            Ok("ipr.profiling/1") if Self::at(this).profiler().is_some() => {
                (&Self::PROFILING as *const ipr_profiling_api).cast()
            }
            Ok(name) => Self::at(this).extension(name).map_or(std::ptr::null(), |table| table.0),
            Err(_) => std::ptr::null(),
        })
    }

    // --- ipr.context/1 ---

    const CONTEXTS: ipr_context_api = ipr_context_api {
        struct_size: size_of::<ipr_context_api>() as u64,
        create: Some(Self::create_context),
        destroy: Some(destroy_context),
        before_load: Some(before_load),
        after_load: Some(after_load),
        before_unload: Some(before_unload),
        after_unload: Some(after_unload),
    };

    unsafe extern "C" fn create_context(
        this: Raw,
        options: *const ipr_options,
        out: *mut Raw,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).create_context(Attributes::of_options(options))?;
            *out = Box::into_raw(Box::new(made)).cast();
            Ok(())
        })
    }

    // --- ipr.blobs/1 ---

    const BLOBS: ipr_blobs_api = ipr_blobs_api {
        struct_size: size_of::<ipr_blobs_api>() as u64,
        fingerprint: Some(Self::fingerprint),
        save: Some(save),
        check: Some(Self::check),
        restore: Some(Self::restore),
    };

    unsafe extern "C" fn fingerprint(
        this: Raw,
        options: *const ipr_options,
        out: *mut ipr_text,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).fingerprint(Attributes::of_options(options))?;
            let out = &mut *out;
            out.text = string(give(&mut out.owner, &mut out.release, made));
            Ok(())
        })
    }

    unsafe extern "C" fn check(
        this: Raw,
        data: *const c_void,
        size: u64,
        options: *const ipr_options,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || Self::at(this).check(list(data.cast(), size), Attributes::of_options(options)))
    }

    unsafe extern "C" fn restore(
        this: Raw,
        data: *const c_void,
        size: u64,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_executable,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let graph = graph.as_ref().map(|raw| Graph { raw });
            let made = Self::at(this).restore(list(data.cast(), size), graph, Attributes::of_options(options))?;
            give_executable(&mut *out, made);
            Ok(())
        })
    }

    // --- ipr.handles/1 ---

    const HANDLES: ipr_handles_api = ipr_handles_api {
        struct_size: size_of::<ipr_handles_api>() as u64,
        describe: Some(Self::describe),
        create_pool: Some(Self::create_pool),
        destroy_pool: Some(destroy_pool),
        acquire: Some(acquire),
        give_back: Some(give_back),
        create_tensor: Some(create_tensor),
        create_sub_tensor: Some(create_sub_tensor),
        destroy_tensor: Some(destroy_tensor),
        manage: Some(manage),
        allocate: Some(allocate),
        map: Some(map),
        unmap: Some(unmap),
        copy: Some(copy),
        import_memory: Some(import_memory),
        forget_memory: Some(forget_memory),
        export_memory: Some(export_memory),
    };

    unsafe extern "C" fn describe(
        this: Raw,
        options: *const ipr_options,
        out: *mut ipr_factories,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).describe(Attributes::of_options(options))?;
            let raw = made.factories.iter().map(raw_factory).collect();
            let preferences = made.preferences.iter().map(|id| string(id)).collect();
            let out = &mut *out;
            let given = RawFactories { _factories: made, raw, preferences };
            let given = give(&mut out.owner, &mut out.release, given);
            out.factory_count = given.raw.len() as u64;
            out.factory_stride = size_of::<ipr_factory>() as u64;
            out.factories = given.raw.as_ptr();
            out.preference_count = given.preferences.len() as u64;
            out.preferences = given.preferences.as_ptr();
            Ok(())
        })
    }

    unsafe extern "C" fn create_pool(
        this: Raw,
        options: *const ipr_options,
        out: *mut Raw,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).create_pool(Attributes::of_options(options))?;
            *out = Box::into_raw(Box::new(made)).cast();
            Ok(())
        })
    }

    // --- ipr.profiling/1 ---

    const PROFILING: ipr_profiling_api = ipr_profiling_api {
        struct_size: size_of::<ipr_profiling_api>() as u64,
        describe_counters: Some(Self::describe_counters),
        enable: Some(Self::enable),
        collect: Some(Self::collect),
        read_counters: Some(Self::read_counters),
        correlate: Some(Self::correlate),
        select_counters: Some(Self::select_counters),
    };

    unsafe fn profiler<'a>(this: Raw) -> Result<&'a dyn Profiler> {
        Self::at(this).profiler().ok_or_else(|| Error::new("nothing is measured", UNSUPPORTED))
    }

    unsafe extern "C" fn describe_counters(this: Raw, out: *mut ipr_counters, error: *mut ipr_error) -> i32 {
        guarded(error, || {
            let raw: Vec<ipr_counter> = Self::profiler(this)?.counters().iter().map(raw_counter).collect();
            let out = &mut *out;
            let counters = give(&mut out.owner, &mut out.release, raw);
            out.counter_count = counters.len() as u64;
            out.counter_stride = size_of::<ipr_counter>() as u64;
            out.counters = counters.as_ptr();
            Ok(())
        })
    }

    unsafe extern "C" fn enable(this: Raw, on: i32, error: *mut ipr_error) -> i32 {
        guarded(error, || Self::profiler(this)?.enable(on != 0))
    }

    unsafe extern "C" fn collect(
        this: Raw,
        capacity: u64,
        stride: u64,
        out: *mut ipr_interval,
        out_count: *mut u64,
        out_lost: *mut u64,
        error: *mut ipr_error,
    ) -> i32 {
        (*out_count, *out_lost) = (0, 0);
        guarded(error, || {
            let (intervals, lost) = Self::profiler(this)?.collect(capacity as usize)?;
            *out_lost = lost;
            for (index, interval) in intervals.iter().take(capacity as usize).enumerate() {
                out.cast::<u8>().add(index * stride as usize).cast::<ipr_interval>().write(raw_interval(interval));
                *out_count += 1;
            }
            Ok(())
        })
    }

    unsafe extern "C" fn read_counters(this: Raw, count: u64, out: *mut f64, error: *mut ipr_error) -> i32 {
        guarded(error, || {
            let values = Self::profiler(this)?.read()?;
            for index in 0..count as usize {
                *out.add(index) = values.get(index).copied().unwrap_or(0.0);
            }
            Ok(())
        })
    }

    unsafe extern "C" fn correlate(this: Raw, device: ipr_string, out: *mut ipr_clock, error: *mut ipr_error) -> i32 {
        guarded(error, || {
            let clock = Self::profiler(this)?.correlate(text(&device))?;
            let out = &mut *out;
            (out.device_ns, out.host_ns, out.error_ns) = (clock.device_ns, clock.host_ns, clock.error_ns);
            Ok(())
        })
    }

    unsafe extern "C" fn select_counters(
        this: Raw,
        period_us: u64,
        count: u64,
        indices: *const u64,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || Self::profiler(this)?.select(period_us, list(indices, count)))
    }
}

fn raw_counter(counter: &Counter) -> ipr_counter {
    ipr_counter {
        name: string(counter.name),
        category: string(counter.category),
        units: string(counter.units),
        description: string(counter.description),
        device: string(counter.device),
        multiplier: counter.multiplier,
        kind: counter.kind,
        reserved: 0,
    }
}

fn raw_interval(interval: &Interval) -> ipr_interval {
    ipr_interval {
        name: string(interval.name),
        device: string(interval.device),
        begin_ns: interval.begin_ns,
        end_ns: interval.end_ns,
        thread: interval.thread,
        bytes: interval.bytes,
        flops: interval.flops,
        kind: interval.kind,
        reserved: 0,
    }
}

unsafe fn give_executable(out: &mut ipr_executable, made: Box<dyn Executable>) {
    (out.flags, out.workspace_size) = (made.flags(), made.workspace_size());
    (out.workspace_alignment, out.seconds, out.memory) = (made.workspace_alignment(), made.seconds(), made.memory());
    give(&mut out.owner, &mut out.release, made);
    out.handle = out.owner;
}

unsafe extern "C" fn destroy_context(_this: Raw, context: Raw) {
    drop_box::<Box<dyn Context>>(context)
}

/// The functions by which a context is notified of networks.
macro_rules! notice {
    ($($name:ident)+) => {
        $(unsafe extern "C" fn $name(_this: Raw, context: Raw, network: *const ipr_network, error: *mut ipr_error) -> i32 {
            guarded(error, || (*context.cast::<Box<dyn Context>>()).$name((*network).id))
        })+
    };
}

notice!(before_load after_load before_unload after_unload);

unsafe extern "C" fn save(_this: Raw, executable: Raw, out: *mut ipr_blob, error: *mut ipr_error) -> i32 {
    guarded(error, || {
        let made = (*executable.cast::<Box<dyn Executable>>()).save()?;
        let out = &mut *out;
        let blob = give(&mut out.owner, &mut out.release, made);
        (out.data, out.size, out.flags) = (blob.data.as_ptr().cast(), blob.data.len() as u64, blob.flags);
        Ok(())
    })
}

unsafe fn pool_of<'a>(pool: Raw) -> &'a mut Box<dyn Pool> {
    &mut *pool.cast::<Box<dyn Pool>>()
}

unsafe extern "C" fn destroy_pool(_this: Raw, pool: Raw) {
    drop_box::<Box<dyn Pool>>(pool)
}

macro_rules! of_pool {
    ($($name:ident)+) => {
        $(unsafe extern "C" fn $name(_this: Raw, pool: Raw, error: *mut ipr_error) -> i32 {
            guarded(error, || pool_of(pool).$name())
        })+
    };
}

of_pool!(acquire give_back);

macro_rules! of_tensor {
    ($($name:ident)+) => {
        $(unsafe extern "C" fn $name(_this: Raw, pool: Raw, tensor: u64, error: *mut ipr_error) -> i32 {
            guarded(error, || pool_of(pool).$name(tensor))
        })+
    };
}

of_tensor!(manage allocate unmap forget_memory);

unsafe extern "C" fn create_tensor(
    _this: Raw,
    pool: Raw,
    factory: u64,
    info: *const ipr_tensor_info,
    flags: u64,
    out: *mut u64,
    error: *mut ipr_error,
) -> i32 {
    guarded(error, || {
        let info = TensorInfo { graph: None, raw: &*info };
        *out = pool_of(pool).create_tensor(factory as usize, info, flags & HANDLE_ALONE != 0)?;
        Ok(())
    })
}

unsafe extern "C" fn create_sub_tensor(
    _this: Raw,
    pool: Raw,
    whole: u64,
    origin: *const i64,
    info: *const ipr_tensor_info,
    out: *mut u64,
    error: *mut ipr_error,
) -> i32 {
    guarded(error, || {
        let info = TensorInfo { graph: None, raw: &*info };
        *out = pool_of(pool).create_sub_tensor(whole, list(origin, info.rank() as u64), info)?;
        Ok(())
    })
}

unsafe extern "C" fn destroy_tensor(_this: Raw, pool: Raw, tensor: u64) {
    quietly((), || pool_of(pool).destroy_tensor(tensor));
}

unsafe extern "C" fn map(_this: Raw, pool: Raw, tensor: u64, out: *mut Raw, error: *mut ipr_error) -> i32 {
    guarded(error, || {
        *out = pool_of(pool).map(tensor)?.cast();
        Ok(())
    })
}

unsafe extern "C" fn copy(
    _this: Raw,
    pool: Raw,
    source: *const ipr_tensor,
    target: *const ipr_tensor,
    error: *mut ipr_error,
) -> i32 {
    guarded(error, || {
        let (source, target) = (&*source, &*target);
        let host = if target.memory_kind == MEMORY_PRIVATE { source } else { target };
        let (data, size, dtype) = (address(host)?, host.size as usize, host.dtype);
        let shape = list(host.shape, host.ndim.max(0) as u64);
        if target.memory_kind == MEMORY_PRIVATE {
            return pool_of(pool).upload(Tensor { data, size, dtype, shape }, target.native_handle);
        }
        pool_of(pool).download(source.native_handle, TensorMut { data, size, dtype, shape })
    })
}

unsafe extern "C" fn import_memory(
    _this: Raw,
    pool: Raw,
    tensor: u64,
    memory: *const ipr_tensor,
    error: *mut ipr_error,
) -> i32 {
    guarded(error, || pool_of(pool).import_memory(tensor, &*memory))
}

unsafe extern "C" fn export_memory(
    _this: Raw,
    pool: Raw,
    tensor: u64,
    kind: u32,
    out: *mut ipr_tensor,
    error: *mut ipr_error,
) -> i32 {
    guarded(error, || {
        let given = pool_of(pool).export_memory(tensor, kind)?;
        let out = &mut *out;
        (out.data, out.native_handle, out.byte_offset) = (given.data.cast(), given.native_handle, given.byte_offset);
        Ok(())
    })
}

fn raw_verdict(one: &Verdict) -> ipr_verdict {
    ipr_verdict {
        verdict: one.verdict,
        reason_code: one.reason_code,
        group: one.group,
        reason: string(&one.reason),
        seconds: one.seconds,
        bytes: one.bytes,
    }
}

fn raw_substitution(one: &Substitution) -> ipr_substitution {
    let none = std::ptr::null();
    let (layers, layer_count) = (one.layers.as_ptr(), one.layers.len() as u64);
    let replacement = std::ptr::null();
    ipr_substitution { layers, layer_count, replacement, inputs: none, input_count: 0, outputs: none, output_count: 0 }
}

fn raw_failure(one: &Failure) -> ipr_failure {
    let (layers, layer_count) = (one.layers.as_ptr(), one.layers.len() as u64);
    ipr_failure { layers, layer_count, reason_code: one.reason_code, reserved: 0, reason: string(&one.reason) }
}

fn raw_factory(one: &Factory) -> ipr_factory {
    let (import_kinds, export_kinds) = (one.import_kinds, one.export_kinds);
    ipr_factory { id: string(&one.id), flags: one.flags, import_kinds, export_kinds }
}

/// The properties as the header has them, in memory that is never freed: it is asked for twice in a library's life.
fn leaked(properties: &[Property]) -> (*const ipr_property, u64) {
    let raw: Vec<ipr_property> = properties.iter().map(raw_property).collect();
    let kept = Box::leak(raw.into_boxed_slice());
    (kept.as_ptr(), kept.len() as u64)
}

fn raw_property(one: &Property) -> ipr_property {
    let (name, doc, scope) = (string(one.name), string(one.doc), one.scope);
    let plain = ipr_property { name, doc, kind: KIND_NONE, scope, i: 0, f: 0.0, text: string("") };
    match one.value {
        Value::Bool(value) => ipr_property { kind: KIND_BOOL, i: value.into(), ..plain },
        Value::Int(value) => ipr_property { kind: KIND_INT, i: value, ..plain },
        Value::Float(value) => ipr_property { kind: KIND_FLOAT, f: value, ..plain },
        Value::Text(value) => ipr_property { kind: KIND_TEXT, text: string(value), ..plain },
    }
}

/// The functions that a backend exports: `export_backend!("Id", Type)`, once in a crate.
///
/// Edition 2024 has another form of `no_mangle`: `export_backend!("Id", Type, edition = 2024)`.
#[macro_export]
macro_rules! export_backend {
    ($id:literal, $backend:ty $(,)?) => {
        $crate::export_backend!(@with [no_mangle] $id, $backend);
    };
    ($id:literal, $backend:ty, edition = 2024 $(,)?) => {
        $crate::export_backend!(@with [unsafe(no_mangle)] $id, $backend);
    };
    (@with [$($attribute:tt)*] $id:literal, $backend:ty) => {
        #[$($attribute)*]
        pub extern "C" fn GetBackendId() -> *const std::os::raw::c_char {
            concat!($id, "\0").as_ptr().cast()
        }
        /// # Safety
        /// The host gives two places to write to.
        #[$($attribute)*]
        #[allow(unused_unsafe)]
        pub unsafe extern "C" fn GetVersion(out_major: *mut u32, out_minor: *mut u32) {
            unsafe {
                *out_major = $crate::interposer::raw::API_MAJOR;
                *out_minor = $crate::interposer::raw::API_MINOR;
            }
        }
        #[$($attribute)*]
        pub extern "C" fn GetVocabularyRevision() -> u32 {
            $crate::interposer::raw::VOCABULARY_REVISION
        }
        #[$($attribute)*]
        pub extern "C" fn BackendFactory() -> *mut std::os::raw::c_void {
            $crate::interposer::Bridge::<$backend>::table()
        }
    };
}
