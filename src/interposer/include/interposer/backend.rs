//! interposer/backend.h in Rust, without any crate: copy this file into a project, or include it by its path:
//!
//!     #[path = "/folder/that/python -m interposer.include/prints/interposer/backend.rs"]
//!     mod interposer;
//!
//! A backend implements the trait `Backend`, and is exported with `export_backend!("Id", Type)` in the root of
//! a crate of type `cdylib`. What lives in memory is in `raw`, member by member as in the header, which has the
//! contract: ownership, lifetimes, threads. Panics are caught at the border and become errors.
//!
//! The views (`Graph`, `Layer`, `TensorInfo` ...) borrow the host's tables for the length of a call.

#![allow(dead_code)]

use std::any::Any;
use std::ffi::CStr;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::addr_of_mut;
use std::slice;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The structs and constants of the header.
#[allow(non_camel_case_types)]
pub mod raw {
    use std::os::raw::{c_char, c_void};

    pub const API_MAJOR: u32 = 1;
    pub const API_MINOR: u32 = 0;
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

    pub const SCOPE_INIT: u32 = 1;
    pub const SCOPE_MODEL: u32 = 2;
    pub const LOG_DEBUG: i32 = 10;
    pub const LOG_INFO: i32 = 20;
    pub const LOG_WARNING: i32 = 30;
    pub const LOG_ERROR: i32 = 40;
    pub const HOST_CHECKING: u32 = 1;
    pub const BLOB_NEEDS_GRAPH: u64 = 1;
    pub const FACTORY_MAPS: u64 = 1;
    pub const FACTORY_SUB_TENSORS: u64 = 2;
    pub const FACTORY_DEVICE_COPIES: u64 = 4;
    pub const HANDLE_ALONE: u64 = 1;

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
}

use raw::*;

/// Why a function of a backend fails: a status, a message, and what is at fault.
#[derive(Debug, Clone)]
pub struct Error {
    pub status: i32,
    pub message: String,
    pub item_kind: i32,
    pub item: i64,
}

impl Error {
    pub fn new(status: i32, message: impl Into<String>) -> Error {
        Error { status, message: message.into(), item_kind: ITEM_NONE, item: -1 }
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::new(FAILED, message)
    }
}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error::new(FAILED, message)
    }
}

pub type Result<T> = std::result::Result<T, Error>;

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

/// A tensor of the graph: everything but its data, and the data too where it is constant.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    graph: &'a ipr_graph,
    pub raw: &'a ipr_tensor_info,
}

impl<'a> TensorInfo<'a> {
    pub fn name(&self) -> &'a str {
        unsafe { text(&self.raw.name) }
    }
    pub fn dtype(&self) -> i32 {
        self.raw.dtype
    }
    /// Extents; -1 where one is not known.
    pub fn shape(&self) -> &'a [i64] {
        unsafe { list(self.raw.shape, self.raw.rank as u64) }
    }
    /// How many elements there are; None where an extent is not known.
    pub fn elements(&self) -> Option<usize> {
        self.shape().iter().try_fold(1, |product, &extent| (extent >= 0).then_some(product * extent as usize))
    }
    pub fn scales(&self) -> &'a [f64] {
        unsafe { list(self.raw.scales, self.raw.scale_count) }
    }
    pub fn zero_points(&self) -> &'a [i64] {
        unsafe { list(self.raw.zero_points, self.raw.scale_count) }
    }
    pub fn is_constant(&self) -> bool {
        self.raw.constant >= 0
    }
    /// The bytes of a constant.
    pub fn constant(&self) -> Option<&'a [u8]> {
        if !self.is_constant() {
            return None;
        }
        let (table, stride) = (self.graph.constants, self.graph.constant_stride);
        let found = unsafe { element(table, stride, self.raw.constant as u64) };
        Some(unsafe { list(found.data.cast(), found.size) })
    }
}

/// Named values: the attributes of a layer, or the options of the user.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    items: *const ipr_attribute,
    count: u64,
    stride: u64,
    borrowed: std::marker::PhantomData<&'a ipr_attribute>,
}

impl<'a> Attributes<'a> {
    unsafe fn of_options(options: *const ipr_options) -> Attributes<'a> {
        let borrowed = std::marker::PhantomData;
        match options.as_ref() {
            Some(given) => Attributes { items: given.items, count: given.count, stride: given.stride, borrowed },
            None => Attributes { items: std::ptr::null(), count: 0, stride: 0, borrowed },
        }
    }
    /// The attribute of a name, unless it is absent or has no value.
    pub fn find(&self, name: &str) -> Option<&'a ipr_attribute> {
        (0..self.count)
            .map(|index| unsafe { element(self.items, self.stride, index) })
            .find(|one| unsafe { text(&one.name) } == name && one.kind != KIND_NONE)
    }
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.find(name).map(|one| one.i)
    }
    pub fn flag(&self, name: &str) -> bool {
        self.integer(name) == Some(1)
    }
    pub fn number(&self, name: &str) -> Option<f64> {
        self.find(name).map(|one| if one.kind == KIND_FLOAT { one.f } else { one.i as f64 })
    }
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.find(name).map(|one| unsafe { text(&one.text) })
    }
    pub fn integers(&self, name: &str) -> &'a [i64] {
        self.find(name).map_or(&[], |one| unsafe { list(one.ints, one.count) })
    }
    pub fn numbers(&self, name: &str) -> &'a [f64] {
        self.find(name).map_or(&[], |one| unsafe { list(one.floats, one.count) })
    }
}

/// One operation.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    graph: &'a ipr_graph,
    pub raw: &'a ipr_layer,
    pub index: usize,
}

impl<'a> Layer<'a> {
    pub fn kind(&self) -> &'a str {
        unsafe { text(&self.raw.type_) }
    }
    pub fn name(&self) -> &'a str {
        unsafe { text(&self.raw.name) }
    }
    /// Tensors by position of the operands; -1 where an optional one is absent.
    pub fn inputs(&self) -> &'a [i64] {
        unsafe { list(self.raw.inputs, self.raw.input_count) }
    }
    pub fn outputs(&self) -> &'a [i64] {
        unsafe { list(self.raw.outputs, self.raw.output_count) }
    }
    pub fn input(&self, position: usize) -> Option<TensorInfo<'a>> {
        let index = *self.inputs().get(position)?;
        (index >= 0).then(|| Graph(self.graph).tensor(index as usize))
    }
    pub fn output(&self, position: usize) -> TensorInfo<'a> {
        Graph(self.graph).tensor(self.outputs()[position] as usize)
    }
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes {
            items: self.raw.attributes,
            count: self.raw.attribute_count,
            stride: self.graph.attribute_stride,
            borrowed: std::marker::PhantomData,
        }
    }
    /// The error that gives this layer back, so that others are asked for it.
    pub fn unsupported(&self, message: impl Into<String>) -> Error {
        Error { status: UNSUPPORTED, message: message.into(), item_kind: ITEM_LAYER, item: self.index as i64 }
    }
}

/// Some layers of a network, in an order in which they can run.
#[derive(Clone, Copy)]
pub struct Graph<'a>(pub &'a ipr_graph);

impl<'a> Graph<'a> {
    pub fn layers(self) -> impl Iterator<Item = Layer<'a>> {
        (0..self.0.layer_count as usize).map(move |index| self.layer(index))
    }
    pub fn layer(self, index: usize) -> Layer<'a> {
        let raw = unsafe { element(self.0.layers, self.0.layer_stride, index as u64) };
        Layer { graph: self.0, raw, index }
    }
    pub fn tensor_count(self) -> usize {
        self.0.tensor_count as usize
    }
    pub fn tensor(self, index: usize) -> TensorInfo<'a> {
        let raw = unsafe { element(self.0.tensors, self.0.tensor_stride, index as u64) };
        TensorInfo { graph: self.0, raw }
    }
    /// The tensors that come in, by position of the inputs of a run.
    pub fn inputs(self) -> &'a [i64] {
        unsafe { list(self.0.inputs, self.0.input_count) }
    }
    pub fn outputs(self) -> &'a [i64] {
        unsafe { list(self.0.outputs, self.0.output_count) }
    }
}

/// The answer for one layer.
pub struct Verdict {
    pub verdict: i32,
    pub reason_code: i32,
    pub reason: String,
    pub group: i64,
    pub seconds: f64,
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
    pub fn no(reason_code: i32, reason: impl Into<String>) -> Verdict {
        Verdict { reason_code, reason: reason.into(), ..Verdict::of(NO) }
    }
}

/// One run of an executable.
pub struct Run<'a>(pub &'a ipr_run);

impl<'a> Run<'a> {
    fn bytes_of(tensor: &ipr_tensor) -> *mut u8 {
        unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) }
    }
    pub fn input_info(&self, index: usize) -> &'a ipr_tensor {
        assert!((index as u64) < self.0.input_count, "there is no input {index}");
        unsafe { element(self.0.inputs, self.0.tensor_stride, index as u64) }
    }
    pub fn output_info(&self, index: usize) -> &'a ipr_tensor {
        assert!((index as u64) < self.0.output_count, "there is no output {index}");
        unsafe { element(self.0.outputs as *const ipr_tensor, self.0.tensor_stride, index as u64) }
    }
    /// The elements of an input. T must be the type of its elements.
    pub fn input<T: Copy>(&self, index: usize) -> &'a [T] {
        let tensor = self.input_info(index);
        let count = tensor.size as usize / size_of::<T>();
        if count == 0 {
            return &[];
        }
        unsafe { slice::from_raw_parts(Run::bytes_of(tensor).cast(), count) }
    }
    /// The elements of an output, which overlap with those of no other tensor. Ask for each output once.
    #[allow(clippy::mut_from_ref)]
    pub fn output<T: Copy>(&self, index: usize) -> &'a mut [T] {
        let tensor = self.output_info(index);
        let count = tensor.size as usize / size_of::<T>();
        if count == 0 {
            return &mut [];
        }
        unsafe { slice::from_raw_parts_mut(Run::bytes_of(tensor).cast(), count) }
    }
    /// Give an output of unknown extents its shape, before it is written to.
    pub fn resize(&self, index: usize, shape: &[i64]) -> Result<()> {
        let resize = self.0.resize.ok_or("all shapes are known")?;
        match unsafe { resize(self.0.host, index as u64, shape.as_ptr(), shape.len() as u64) } {
            OK => Ok(()),
            status => Err(Error::new(status, format!("the host gave no memory for output {index}"))),
        }
    }
    /// The scratch memory that the executable asked for; concurrent runs get different ones.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace(&self) -> &'a mut [u8] {
        if self.0.workspace_size == 0 {
            return &mut [];
        }
        unsafe { slice::from_raw_parts_mut(self.0.workspace.cast(), self.0.workspace_size as usize) }
    }
    pub fn cancelled(&self) -> bool {
        !self.0.cancel.is_null() && unsafe { self.0.cancel.read_volatile() } != 0
    }
}

/// A part made ready to run. Where it is run by several threads at the same time is in `flags`.
pub trait Executable: Send + Sync + 'static {
    fn execute(&self, run: &Run) -> Result<()>;
    /// `EXECUTABLE_...`
    fn flags(&self) -> u64 {
        0
    }
    fn workspace_size(&self) -> u64 {
        0
    }
}

/// An option or a named capability.
pub enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
}

pub struct Property {
    pub name: &'static str,
    pub doc: &'static str,
    pub value: Value,
    /// Of an option: `SCOPE_INIT`, `SCOPE_MODEL`, or both; of a capability: 0.
    pub scope: u32,
}

/// What a backend says of itself.
#[derive(Default)]
pub struct Info {
    pub vendor: &'static str,
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub capabilities: u64,
    pub alignment: u64,
    pub options: Vec<Property>,
    pub properties: Vec<Property>,
}

/// What the host offers. Valid from `init` until `shutdown` returns.
#[derive(Clone, Copy)]
pub struct Host(*const ipr_host);

unsafe impl Send for Host {}
unsafe impl Sync for Host {}

impl Host {
    pub fn threads(&self) -> u32 {
        unsafe { (*self.0).thread_count }
    }
    pub fn cache_dir(&self) -> String {
        unsafe { text(&(*self.0).cache_dir).to_owned() }
    }
    /// From any thread; never waits. A line that is too long is cut.
    pub fn log(&self, level: i32, line: &str) {
        unsafe {
            let ring = (*self.0).log;
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
    }
}

/// Is told of networks ("ipr.context/1"). An error with the status `REFUSED` refuses one, before it is loaded or unloaded.
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

/// A backend. All methods are called by one thread at a time, unless its `Info` declares
/// `CAP_CONCURRENT_COMPILE`.
pub trait Backend: Sync + 'static {
    fn new() -> Self
    where
        Self: Sized;
    fn info(&self) -> Info {
        Info::default()
    }
    /// Fail with `UNAVAILABLE` to be absent with a reason.
    fn init(&self, _host: Host, _options: Attributes) -> Result<()> {
        Ok(())
    }
    fn shutdown(&self) {}
    fn support(&self, layer: &Layer, options: Attributes) -> Verdict;
    fn query(&self, graph: Graph, options: Attributes) -> Result<Vec<Verdict>> {
        Ok(graph.layers().map(|layer| self.support(&layer, options)).collect())
    }
    fn compile(&self, graph: Graph, options: Attributes) -> Result<Box<dyn Executable>>;
    /// Whether `create_context` shall be called, once for each runtime.
    fn has_contexts(&self) -> bool {
        false
    }
    fn create_context(&self, _options: Attributes) -> Result<Box<dyn Context>> {
        Err("there are no contexts".into())
    }
    /// The table of another extension by its name, or null.
    fn extension(&self, _name: &str) -> *const c_void {
        std::ptr::null()
    }
}

fn message_of(panic: Box<dyn Any + Send>) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", said.unwrap_or("without a message"))
}

/// Run a function of a backend; what it returns or panics with goes into the error.
unsafe fn guarded(error: *mut ipr_error, function: impl FnOnce() -> Result<()>) -> i32 {
    let failed = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failed)) => failed,
        Err(panic) => Error::new(FAILED, message_of(panic)),
    };
    if let Some(out) = error.as_mut() {
        let length = failed.message.len().min(out.capacity as usize);
        std::ptr::copy_nonoverlapping(failed.message.as_ptr(), out.text.cast(), length);
        out.length = failed.message.len() as u64;
        out.item_kind = failed.item_kind;
        out.item = failed.item;
    }
    failed.status
}

unsafe extern "C" fn drop_box<T>(owner: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(owner.cast::<T>()))));
}

/// The functions of the table for one type of backend, and the table itself.
pub struct Bridge<B>(std::marker::PhantomData<B>);

struct Report {
    _verdicts: Vec<Verdict>,
    raw: Vec<ipr_verdict>,
}

impl<B: Backend> Bridge<B> {
    /// What BackendFactory gives; never freed, as the library may be asked again.
    pub fn table() -> *mut c_void {
        let made = catch_unwind(|| {
            let backend = Box::into_raw(Box::new(B::new()));
            Box::into_raw(Box::new(ipr_backend {
                magic: MAGIC,
                struct_size: size_of::<ipr_backend>() as u64,
                self_: backend.cast(),
                init: Some(Self::init),
                shutdown: Some(Self::shutdown),
                get_info: Some(Self::get_info),
                query_support: Some(Self::query_support),
                optimize: None,
                compile: Some(Self::compile),
                execute: Some(Self::execute),
                get_extension: Some(Self::get_extension),
            }))
        });
        made.map_or(std::ptr::null_mut(), |table| table.cast())
    }

    unsafe fn at<'a>(this: *mut c_void) -> &'a B {
        &*this.cast::<B>()
    }

    unsafe extern "C" fn init(
        this: *mut c_void,
        host: *const ipr_host,
        options: *const ipr_options,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || Self::at(this).init(Host(host), Attributes::of_options(options)))
    }

    unsafe extern "C" fn shutdown(this: *mut c_void) {
        let _ = catch_unwind(AssertUnwindSafe(|| Self::at(this).shutdown()));
    }

    unsafe extern "C" fn get_info(this: *mut c_void, out: *mut ipr_info, error: *mut ipr_error) -> i32 {
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
        this: *mut c_void,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_report,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let verdicts = Self::at(this).query(Graph(&*graph), Attributes::of_options(options))?;
            let raw = verdicts.iter().map(raw_verdict).collect();
            let report = Box::into_raw(Box::new(Report { _verdicts: verdicts, raw }));
            let out = &mut *out;
            out.verdict_count = (*report).raw.len() as u64;
            out.verdict_stride = size_of::<ipr_verdict>() as u64;
            out.verdicts = (*report).raw.as_ptr();
            out.owner = report.cast();
            out.release = Some(drop_box::<Report>);
            Ok(())
        })
    }

    unsafe extern "C" fn compile(
        this: *mut c_void,
        graph: *const ipr_graph,
        options: *const ipr_options,
        out: *mut ipr_executable,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).compile(Graph(&*graph), Attributes::of_options(options))?;
            let out = &mut *out;
            (out.flags, out.workspace_size) = (made.flags(), made.workspace_size());
            out.handle = Box::into_raw(Box::new(made)).cast();
            out.owner = out.handle;
            out.release = Some(drop_box::<Box<dyn Executable>>);
            Ok(())
        })
    }

    unsafe extern "C" fn execute(
        _this: *mut c_void,
        executable: *mut c_void,
        run: *const ipr_run,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || (*executable.cast::<Box<dyn Executable>>()).execute(&Run(&*run)))
    }

    unsafe extern "C" fn get_extension(this: *mut c_void, name: *const c_char) -> *const c_void {
        let found = catch_unwind(AssertUnwindSafe(|| match CStr::from_ptr(name).to_str() {
            Ok("ipr.context/1") if Self::at(this).has_contexts() => (&Self::CONTEXTS as *const ipr_context_api).cast(),
            Ok(name) => Self::at(this).extension(name),
            Err(_) => std::ptr::null(),
        }));
        found.unwrap_or(std::ptr::null())
    }

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
        this: *mut c_void,
        options: *const ipr_options,
        out: *mut *mut c_void,
        error: *mut ipr_error,
    ) -> i32 {
        guarded(error, || {
            let made = Self::at(this).create_context(Attributes::of_options(options))?;
            *out = Box::into_raw(Box::new(made)).cast();
            Ok(())
        })
    }
}

unsafe extern "C" fn destroy_context(_this: *mut c_void, context: *mut c_void) {
    drop_box::<Box<dyn Context>>(context)
}

/// The functions by which a context is told of networks.
macro_rules! notice {
    ($name:ident) => {
        unsafe extern "C" fn $name(
            _this: *mut c_void,
            context: *mut c_void,
            network: *const ipr_network,
            error: *mut ipr_error,
        ) -> i32 {
            guarded(error, || (*context.cast::<Box<dyn Context>>()).$name((*network).id))
        }
    };
}

notice!(before_load);
notice!(after_load);
notice!(before_unload);
notice!(after_unload);

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

/// The three functions that a backend exports: `export_backend!("Id", Type)`, once in a crate.
#[macro_export]
macro_rules! export_backend {
    ($id:literal, $backend:ty) => {
        #[no_mangle]
        pub extern "C" fn GetBackendId() -> *const std::os::raw::c_char {
            concat!($id, "\0").as_ptr().cast()
        }
        /// # Safety
        /// The host gives two places to write to.
        #[no_mangle]
        pub unsafe extern "C" fn GetVersion(out_major: *mut u32, out_minor: *mut u32) {
            *out_major = $crate::interposer::raw::API_MAJOR;
            *out_minor = $crate::interposer::raw::API_MINOR;
        }
        #[no_mangle]
        pub extern "C" fn BackendFactory() -> *mut std::os::raw::c_void {
            $crate::interposer::Bridge::<$backend>::table()
        }
    };
}
