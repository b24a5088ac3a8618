/* interposer/backend.h: the interface between Interposer and a backend in a shared object. Version 1.0.
 *
 * A backend is a shared object <vendor>_<name>_backend.so that exports three functions:
 *
 *     const char* GetBackendId(void);
 *     void GetVersion(uint32_t* out_major, uint32_t* out_minor);
 *     void* BackendFactory(void);
 *
 * The factory gives a `const ipr_backend*`, a table of functions (at the end of this file). Nothing else is needed:
 * this file includes only <stdint.h> and <stddef.h>, is valid C11 and C++, and may be copied into any project.
 *
 * Rules that hold everywhere
 * --------------------------
 * Layout.   Members are fixed-width integers, doubles and pointers; a processor with 64-bit pointers is assumed, bytes
 *           are in its own order. A struct that begins with `struct_size` may grow at its end: who fills it in writes
 *           its size there, and nobody touches a member beyond it. Elements of arrays may grow too: an array comes with
 *           its count and with a stride (the bytes from one element to the next), by which it must be walked; the
 *           functions `ipr_..._at` below do. Structs with neither (`ipr_string`) never change. Reserved members are
 *           zero when written and ignored when read.
 * Results.  A function that can fail gives an int32_t: IPR_OK, or a status that says why not; the details are in the
 *           `ipr_error` that is its last argument. Where it fails, out arguments are ignored. No C++ exception, Rust
 *           panic or longjmp may leave a function of the backend.
 * Memory.   Nothing that one side allocated is freed by the other. What the host passes in is valid until the call
 *           returns, unless it is said otherwise (constants, `ipr_host`). What the backend gives back lives in an out
 *           struct: the host provides it with `struct_size` set and everything else zero, the backend fills it, and the
 *           host calls its `release(owner)` exactly once, if it is not NULL, when it needs the content no longer. What
 *           is left then is released before `shutdown`, the newest first.
 * Text.     UTF-8, as pointer and size in bytes. Text from the host has a NUL behind it, which the size does not count;
 *           text from the backend need not. An empty text may have a NULL pointer.
 * Numbers.  Sizes are in bytes, counts in elements, times in seconds (double) or nanoseconds (int64_t, names in _ns).
 *           An index of -1 means "none".
 * Threads.  `init`, `shutdown` and `get_info` are called while no other call is under way. `query_support`, `optimize`,
 *           `compile`, `release` and the functions of extensions are called by one thread at a time, not always the
 *           same, unless the backend declares IPR_CAP_CONCURRENT_COMPILE. `execute` may run beside all of these;
 *           different executables may run at the same time; one executable is run by one thread at a time unless
 *           IPR_CAP_CONCURRENT_EXECUTE or IPR_EXECUTABLE_CONCURRENT says otherwise. Nothing that is in use is released.
 *           The backend may have threads of its own; from these it may call `ipr_log` and the allocator of the host,
 *           and nothing else of the host.
 * Process.  Signal handlers, the floating-point environment (rounding, flushing of small numbers to zero), the locale,
 *           the working directory and the standard streams are the host's: who changes them puts them back before
 *           returning. gcc before 13 makes the thread flush that loads what was linked with -ffast-math.
 * Versions. The backend's `GetVersion` tells the version of this interface that it was written to. It is refused unless
 *           the major numbers are equal and its minor number is not greater than the host's. It is never shown a type
 *           of layer, a type of data, an attribute or a text of an attribute that is newer than its minor number:
 *           layers that need one are refused in its name. New versions of this file append; they never change or reuse
 *           what is here.
 */

#ifndef INTERPOSER_BACKEND_H
#define INTERPOSER_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != 0xffffffffffffffffu
#error "interposer/backend.h needs a processor with 64-bit pointers"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface that this file describes: what GetVersion writes. */
#define IPR_API_MAJOR 1u
#define IPR_API_MINOR 0u

/* First member of ipr_backend, by which the host knows it ("IPRBKND1" in the memory of little-endian machines). */
#define IPR_MAGIC UINT64_C(0x31444E4B42525049)

/* Put before the three exported functions, so that they are exported whatever the compiler's default is. */
#if defined(__GNUC__) || defined(__clang__)
#define IPR_EXPORT __attribute__((visibility("default")))
#else
#define IPR_EXPORT
#endif

/* ---- Status: what functions give --------------------------------------------------------------------------------- */

#define IPR_OK 0                 /* done */
#define IPR_FAILED 1             /* anything that no other status tells; so is every number that is not listed here */
#define IPR_INVALID_ARGUMENT 2   /* an argument cannot be meant (an option's value, a damaged table) */
#define IPR_UNSUPPORTED 3        /* this cannot be run after all; from `compile`, others will be asked for the layers */
#define IPR_OUT_OF_MEMORY 4      /* no memory, here or on the device */
#define IPR_UNAVAILABLE 5        /* from `init`: the device or driver is not here; the backend is listed as absent */
#define IPR_REFUSED 6            /* from a context: the network must not be loaded or unloaded */
#define IPR_CANCELLED 7          /* `ipr_run.cancel` was obeyed */
#define IPR_DEADLINE 8           /* `ipr_run.deadline_ns` has passed */
#define IPR_CORRUPT 9            /* a blob is damaged or none of this backend's */
#define IPR_STALE 10             /* a blob was made by another version, device or with other options */
#define IPR_DEVICE_LOST 11       /* the device failed; every executable of this backend is lost */

/* ---- Text and errors --------------------------------------------------------------------------------------------- */

typedef struct ipr_string {
  const char* data; /* UTF-8 */
  uint64_t size;    /* bytes, without a NUL behind them */
} ipr_string;

/* What ipr_error.item counts. */
#define IPR_ITEM_NONE 0
#define IPR_ITEM_LAYER 1  /* index into ipr_graph.layers */
#define IPR_ITEM_TENSOR 2 /* index into ipr_graph.tensors */
#define IPR_ITEM_INPUT 3  /* index into ipr_run.inputs */
#define IPR_ITEM_OUTPUT 4 /* index into ipr_run.outputs */
#define IPR_ITEM_OPTION 5 /* index into ipr_options.items */

/* Where a function that fails says why. The host owns it and the text buffer; the backend fills in all but struct_size,
 * capacity and the pointer. May be NULL. `ipr_fail` below does all of it. */
typedef struct ipr_error {
  uint64_t struct_size;
  int32_t code;      /* the backend's own number for the error (a driver's error code); 0 where it has none */
  int32_t item_kind; /* IPR_ITEM_...: what is the cause */
  int64_t item;      /* its index, or -1 */
  uint64_t capacity; /* bytes of `text` */
  uint64_t length;   /* bytes of the message; where it is more than the capacity, only its beginning is there */
  char* text;        /* the message; needs no NUL */
} ipr_error;

/* ---- Types of data ----------------------------------------------------------------------------------------------- */

#define IPR_DTYPE_NONE 0
#define IPR_DTYPE_BOOL 1 /* one byte, 0 or 1 */
#define IPR_DTYPE_INT8 2
#define IPR_DTYPE_INT16 3
#define IPR_DTYPE_INT32 4
#define IPR_DTYPE_INT64 5
#define IPR_DTYPE_UINT8 6
#define IPR_DTYPE_UINT16 7
#define IPR_DTYPE_UINT32 8
#define IPR_DTYPE_UINT64 9
#define IPR_DTYPE_FLOAT16 10
#define IPR_DTYPE_FLOAT32 11
#define IPR_DTYPE_FLOAT64 12
#define IPR_DTYPE_BFLOAT16 13
#define IPR_DTYPE_INT4 14  /* one byte for each element, the number in its low bits; who writes clears the others, and */
#define IPR_DTYPE_UINT4 15 /* who reads ignores them. The same for all types of fewer than 8 bits */
#define IPR_DTYPE_FLOAT8_E4M3FN 16
#define IPR_DTYPE_FLOAT8_E4M3FNUZ 17
#define IPR_DTYPE_FLOAT8_E5M2 18
#define IPR_DTYPE_FLOAT8_E5M2FNUZ 19
#define IPR_DTYPE_INT2 20
#define IPR_DTYPE_UINT2 21
#define IPR_DTYPE_FLOAT8_E8M0FNU 22
#define IPR_DTYPE_FLOAT6_E2M3FN 23
#define IPR_DTYPE_FLOAT6_E3M2FN 24
#define IPR_DTYPE_FLOAT4_E2M1FN 25
/* Higher numbers are for later versions. Layers with tensors of text are never shown in 1.0. */

/* ---- Attributes and options: values by name ---------------------------------------------------------------------- */

/* ipr_attribute.kind: which member holds the value. */
#define IPR_KIND_NONE 0   /* the attribute is absent ("let the operator choose") */
#define IPR_KIND_BOOL 1   /* i: 0 or 1 */
#define IPR_KIND_INT 2    /* i */
#define IPR_KIND_FLOAT 3  /* f */
#define IPR_KIND_TEXT 4   /* text */
#define IPR_KIND_ENUM 5   /* text: the name of a choice, such as "NHWC" */
#define IPR_KIND_DTYPE 6  /* i: IPR_DTYPE_... */
#define IPR_KIND_INTS 7   /* ints, count; in rows of `columns` where that is not 0 */
#define IPR_KIND_FLOATS 8 /* floats, count */
#define IPR_KIND_ENUMS 9  /* texts, count: the names of choices */

#define IPR_ATTRIBUTE_IS_DEFAULT 1u /* ipr_attribute.flags: the operator's default, which the host wrote out */

/* One named value. All are written out: where the network leaves an attribute at its default, the default is here. */
typedef struct ipr_attribute {
  ipr_string name;         /* as in the reference pages of the operators: "stride_x" */
  int32_t kind;            /* IPR_KIND_... */
  uint32_t flags;          /* IPR_ATTRIBUTE_... */
  int64_t i;               /* BOOL, INT, DTYPE */
  double f;                /* FLOAT */
  ipr_string text;         /* TEXT, ENUM */
  const int64_t* ints;     /* INTS */
  const double* floats;    /* FLOATS */
  const ipr_string* texts; /* ENUMS */
  uint64_t count;          /* how many ints, floats or texts */
  uint64_t columns;        /* INTS: numbers in a row, such as 2 for a list of (before, after); 0 for a plain list */
} ipr_attribute;

/* The options that the user gave for this backend, only those that it declares, each of the declared kind. */
typedef struct ipr_options {
  uint64_t struct_size;
  uint64_t count;
  uint64_t stride;
  const ipr_attribute* items;
} ipr_options;

/* ---- The graph --------------------------------------------------------------------------------------------------- */

/* A tensor of the graph: everything but its data. */
typedef struct ipr_tensor_info {
  ipr_string name;            /* for people; may be empty */
  int32_t dtype;              /* IPR_DTYPE_... */
  int32_t rank;               /* 0 (a scalar) to 8 */
  const int64_t* shape;       /* `rank` dimensions; -1 where one is not known yet */
  uint64_t scale_count;       /* 0: not quantized; else real = scale * (stored - zero point) ... */
  const double* scales;       /* ... with one scale for the tensor, or one for each index along `axis` */
  const int64_t* zero_points; /* as many as scales */
  int32_t axis;               /* the axis that the scales belong to; -1 where one scale is for the whole tensor */
  uint32_t reserved;
  int64_t constant;           /* index into ipr_graph.constants, or -1 where the tensor is computed or comes in */
  int64_t producer;           /* index of the layer that gives it, or -1 where it is constant or comes in */
} ipr_tensor_info;

/* The data of a constant tensor: compact, row-major, never written to by anybody, aligned at least to its elements.
 * In `query_support` and `optimize` it is valid during the call. From `compile` on it is valid until the executable
 * is released, unless IPR_CAP_KEEPS_CONSTANTS or IPR_EXECUTABLE_KEEPS_CONSTANTS says that the backend has a copy of
 * its own, whereupon the host may unmap it as soon as `compile` returns. */
typedef struct ipr_constant {
  const void* data;
  uint64_t size;         /* bytes */
  const uint8_t* sha256; /* 32 bytes: SHA-256 of the data, by which constants may be shared. NULL unless in `compile` */
                         /* and `restore` of a backend that declares IPR_CAP_WANTS_HASHES */
  int64_t fd;            /* the file that the data is mapped from, open while the data is valid; -1 for none */
  uint64_t offset;       /* where in that file it begins */
} ipr_constant;

/* One operation. Its type and operands are those of the reference pages of the operators. */
typedef struct ipr_layer {
  ipr_string type;                 /* "Convolution2d" */
  ipr_string name;                 /* unique in the network, for people */
  const int64_t* inputs;           /* tensors by position of the operands; -1 where an optional one is absent */
  uint64_t input_count;            /* absent operands behind the last one that is there are not counted */
  const int64_t* outputs;          /* tensors by position of the results */
  uint64_t output_count;
  const ipr_attribute* attributes; /* walked with ipr_graph.attribute_stride */
  uint64_t attribute_count;
} ipr_layer;

/* Some layers of a network with their tensors and constants. Layers are in an order in which they can run. */
typedef struct ipr_graph {
  uint64_t struct_size;
  ipr_string name; /* of the network; may be empty */
  uint64_t layer_count;
  uint64_t layer_stride;
  const ipr_layer* layers;
  uint64_t attribute_stride;
  uint64_t tensor_count;
  uint64_t tensor_stride;
  const ipr_tensor_info* tensors;
  uint64_t constant_count;
  uint64_t constant_stride;
  const ipr_constant* constants;
  uint64_t input_count;
  const int64_t* inputs;  /* the border: tensors that come in and are not constant, in the order of first use ... */
  uint64_t output_count;
  const int64_t* outputs; /* ... and those that are used outside, in the order of the layers */
} ipr_graph;

/* ---- query_support: what can be run ------------------------------------------------------------------------------ */

#define IPR_NO 0        /* cannot be run; `reason` says why */
#define IPR_YES 1       /* can be run */
#define IPR_GROUP 2     /* can be run only together with all other layers of the same `group` */
#define IPR_PREFERRED 3 /* can be run, and the backend does it particularly well */

/* ipr_verdict.reason_code, for programs; the text is for people. */
#define IPR_REASON_NONE 0
#define IPR_REASON_LAYER_TYPE 1
#define IPR_REASON_DATA_TYPE 2
#define IPR_REASON_SHAPE 3
#define IPR_REASON_ATTRIBUTE 4
#define IPR_REASON_QUANTIZATION 5
#define IPR_REASON_NOT_CONSTANT 6 /* an operand would have to be constant */
#define IPR_REASON_OPTION 7       /* an option forbids it */
#define IPR_REASON_RESOURCE 8     /* too large */
#define IPR_REASON_NEIGHBOURS 9   /* not without other layers beside it */
#define IPR_REASON_UNPROFITABLE 10
#define IPR_REASON_OTHER 100

/* The answer for one layer. */
typedef struct ipr_verdict {
  int32_t verdict;     /* IPR_NO ... */
  int32_t reason_code; /* IPR_REASON_...; 0 unless the verdict is IPR_NO */
  int64_t group;       /* IPR_GROUP: any number that the layers of the group share; ignored otherwise */
  ipr_string reason;   /* IPR_NO: why not, naming what was found and what is expected */
  double seconds;      /* estimate for one run; 0 where there is none */
  double bytes;        /* estimate of the memory it needs beyond its tensors; 0 where there is none */
} ipr_verdict;

/* Out struct of `query_support`: one verdict for every layer, in their order. Texts live until `release`. */
typedef struct ipr_report {
  uint64_t struct_size;
  uint64_t verdict_count; /* = ipr_graph.layer_count */
  uint64_t verdict_stride;
  const ipr_verdict* verdicts;
  void* owner;
  void (*release)(void* owner);
} ipr_report;

/* ---- optimize: what to make of a part ---------------------------------------------------------------------------- */

/* Some layers, and what the backend wants in their place. The layers of all substitutions and failures are disjoint; a
 * substitution's layers are convex (no path leaves them and comes back), also taken together with the others'. */
typedef struct ipr_substitution {
  const int64_t* layers; /* indices into ipr_graph.layers */
  uint64_t layer_count;
  const ipr_graph* replacement; /* NULL: one unit, for which the host calls `compile` with these layers. Else other */
                                /* layers, of the types in the reference pages, which this backend then has to run */
  const int64_t* inputs;        /* replacement only: for each of its inputs, which tensor of the offered graph it is */
  uint64_t input_count;
  const int64_t* outputs;       /* replacement only: for each of its outputs, the tensor that it stands for: all that */
  uint64_t output_count;        /* these layers give and others use, each once, with unchanged types */
} ipr_substitution;

/* Layers that the backend cannot run after all. Others are asked for them. */
typedef struct ipr_failure {
  const int64_t* layers;
  uint64_t layer_count;
  int32_t reason_code; /* IPR_REASON_... */
  uint32_t reserved;
  ipr_string reason;
} ipr_failure;

/* Out struct of `optimize`. Layers in neither list stay as they are and are compiled one by one. */
typedef struct ipr_answer {
  uint64_t struct_size;
  uint64_t substitution_count;
  uint64_t substitution_stride;
  const ipr_substitution* substitutions;
  uint64_t failure_count;
  uint64_t failure_stride;
  const ipr_failure* failures;
  void* owner;
  void (*release)(void* owner);
} ipr_answer;

/* ---- compile and execute ----------------------------------------------------------------------------------------- */

#define IPR_EXECUTABLE_CONCURRENT UINT64_C(1)      /* may be run by several threads at the same time */
#define IPR_EXECUTABLE_KEEPS_CONSTANTS UINT64_C(2) /* has copies of all constants it needs */

/* Out struct of `compile`: a part made ready to run. It is run any number of times, then released. */
typedef struct ipr_executable {
  uint64_t struct_size;
  void* handle;                 /* what `execute` is given; not looked at */
  uint64_t flags;               /* IPR_EXECUTABLE_... */
  uint64_t workspace_size;      /* bytes of scratch memory that each run needs from the host, or 0. Its content is */
  uint64_t workspace_alignment; /* undefined before and after; runs at the same time get their own. A power of two */
  double seconds;               /* estimate for one run; 0 where there is none */
  uint64_t memory;              /* bytes that it holds until it is released, as far as is known */
  void* owner;
  void (*release)(void* owner);
} ipr_executable;

/* Kinds of memory, one bit each (ipr_tensor.memory_kind has exactly one, ipr_info.memory_kinds any). */
#define IPR_MEMORY_HOST 1u              /* `data` is an address of this process */
#define IPR_MEMORY_DMA_BUF 2u           /* `native_handle` is a file descriptor of a dma-buf or memfd */
#define IPR_MEMORY_DMA_BUF_PROTECTED 4u /* the same, not readable for the processor */
#define IPR_MEMORY_GRALLOC 8u           /* `native_handle` is an Android buffer_handle_t */
#define IPR_MEMORY_PRIVATE 0x80000000u  /* `native_handle` is a handle of the backend's own ("ipr.handles/1") */

#define IPR_TENSOR_READ_ONLY UINT64_C(1) /* ipr_tensor.flags: nobody may write here */

/* A tensor with its data, in a run. The first 48 bytes are a DLTensor of DLPack 0.x and 1.x. */
typedef struct ipr_tensor {
  void* data;              /* IPR_MEMORY_HOST: where the first element lies (byte_offset is 0 then) */
  int32_t device_type;     /* DLPack's number; 1 for the processor */
  int32_t device_id;
  int32_t ndim;            /* the rank */
  uint8_t dtype_code;      /* DLPack's DLDataType; types of fewer than 8 bits are padded to a byte, */
  uint8_t dtype_bits;      /* with their own number of bits here */
  uint16_t dtype_lanes;    /* 1 */
  const int64_t* shape;    /* ndim dimensions; in an output, -1 where one is only found by computing it (see `resize`) */
  const int64_t* strides;  /* in elements; NULL: compact and row-major, as it always is without IPR_CAP_STRIDED */
  uint64_t byte_offset;    /* where the first element lies behind `data`, or in the buffer that native_handle names */
  /* here a DLTensor ends */
  int32_t dtype;           /* IPR_DTYPE_... */
  uint32_t memory_kind;    /* IPR_MEMORY_...; IPR_MEMORY_HOST unless the backend says that it takes others */
  uint64_t size;           /* bytes from the first element to the end of the last one */
  uint64_t native_handle;  /* what it is depends on memory_kind; 0 for IPR_MEMORY_HOST */
  int64_t fence;           /* a sync file to wait for before the tensor is used, or -1; -1 without IPR_CAP_FENCES */
  uint64_t flags;          /* IPR_TENSOR_... */
} ipr_tensor;

/* One run of an executable: tensors by position of the compiled graph's `inputs` and `outputs`. An output overlaps
 * with no other tensor, but for what IPR_CAP_IN_PLACE allows; inputs may overlap. When `execute` returns, all outputs
 * are complete, and no thread of the backend touches any of this. */
typedef struct ipr_run {
  uint64_t struct_size;
  uint64_t tensor_stride;  /* of both arrays */
  uint64_t input_count;
  const ipr_tensor* inputs;
  uint64_t output_count;
  ipr_tensor* outputs;
  void* workspace;         /* as the executable asked for, or NULL */
  uint64_t workspace_size;
  uint64_t run_id;         /* unique for every run of the process; 0 where the host does not count */
  int64_t deadline_ns;     /* on CLOCK_MONOTONIC; the run may end with IPR_DEADLINE after it; 0 for none */
  const uint32_t* cancel;  /* when this becomes nonzero the run should end soon with IPR_CANCELLED; may be NULL */
  uint32_t thread_limit;   /* threads that this run should not exceed; 0 for no limit but ipr_host.thread_count */
  int32_t priority;        /* 0 as usual, greater is more urgent */
  void* host;              /* first argument of `resize` */
  /* For an output that has unknown dimensions, before it is written to: give it this shape, of the declared rank. Where
   * that is IPR_OK, the element of `outputs` has data, shape and size from then on. Only on the thread that called
   * `execute`, only once for each such output. NULL where all shapes are known. */
  int32_t (*resize)(void* host, uint64_t output, const int64_t* shape, uint64_t rank);
} ipr_run;

/* ---- What the backend says of itself ----------------------------------------------------------------------------- */

#define IPR_CAP_CONCURRENT_EXECUTE UINT64_C(0x1) /* every executable may be run by several threads at the same time */
#define IPR_CAP_CONCURRENT_COMPILE UINT64_C(0x2) /* query_support, optimize and compile may run at the same time */
#define IPR_CAP_KEEPS_CONSTANTS UINT64_C(0x4)    /* every executable has copies of all constants that it needs */
#define IPR_CAP_WANTS_HASHES UINT64_C(0x8)       /* uses ipr_constant.sha256 */
#define IPR_CAP_DYNAMIC_SHAPES UINT64_C(0x10)    /* may be offered unknown dimensions, and calls `resize` */
#define IPR_CAP_IN_PLACE UINT64_C(0x20)          /* an output may lie exactly where an input of the same size lies */
#define IPR_CAP_STRIDED UINT64_C(0x40)           /* takes tensors of any strides */
#define IPR_CAP_FORK_SAFE UINT64_C(0x80)         /* goes on working in a child process after fork() */
#define IPR_CAP_DETERMINISTIC UINT64_C(0x100)    /* equal inputs give equal outputs, bit for bit, in every run */
#define IPR_CAP_FENCES UINT64_C(0x200)           /* waits for ipr_tensor.fence */

#define IPR_SCOPE_INIT 1u  /* an option for `init`: the user gives it when a runtime is created */
#define IPR_SCOPE_MODEL 2u /* an option for query_support, optimize and compile: given for a network */

/* An option that the backend understands, or a capability that can be asked for by name. */
typedef struct ipr_property {
  ipr_string name;
  ipr_string doc;  /* one line for people */
  int32_t kind;    /* IPR_KIND_BOOL, INT, FLOAT or TEXT */
  uint32_t scope;  /* of an option: IPR_SCOPE_..., one or both; of a capability: 0 */
  int64_t i;       /* BOOL, INT: the default of the option, the value of the capability */
  double f;        /* FLOAT */
  ipr_string text; /* TEXT */
} ipr_property;

/* Out struct of `get_info`. All but capabilities is the same at every call; texts and arrays live until `shutdown`. */
typedef struct ipr_info {
  uint64_t struct_size;
  ipr_string vendor;
  ipr_string name;        /* for people; the id is what GetBackendId says */
  ipr_string version;     /* of the backend itself */
  ipr_string description; /* one line */
  uint64_t capabilities;  /* IPR_CAP_... */
  uint64_t alignment;     /* what the address of every tensor and constant must be a multiple of: a power of two, */
                          /* up to 4096; 0 or 1 for what its elements need. The host copies what lies otherwise */
  uint32_t memory_kinds;  /* IPR_MEMORY_... that `execute` takes; 0 stands for IPR_MEMORY_HOST */
  uint32_t reserved;
  uint64_t option_count;
  uint64_t option_stride;
  const ipr_property* options;
  uint64_t property_count;
  uint64_t property_stride;
  const ipr_property* properties; /* named capabilities: "HasFp16" ... */
} ipr_info;

/* ---- What the host offers ---------------------------------------------------------------------------------------- */

#define IPR_LOG_DEBUG 10
#define IPR_LOG_INFO 20
#define IPR_LOG_WARNING 30
#define IPR_LOG_ERROR 40

/* One line in the ring; written by `ipr_log`. */
typedef struct ipr_log_slot {
  uint64_t sequence; /* 1 + the line's number, when the line is complete */
  int32_t level;
  uint32_t length;   /* bytes of the text that follows, up to ipr_log_ring.slot_stride - 16 */
} ipr_log_slot;

/* A ring of lines in memory of the host, which any thread of the backend may write to without waiting and without
 * entering the host, from `init` until `shutdown` returns. Lines that find the ring full are counted and lost. */
typedef struct ipr_log_ring {
  uint64_t struct_size;
  uint64_t slot_count;  /* a power of two */
  uint64_t slot_stride; /* bytes from one slot to the next, the text behind its head included */
  unsigned char* slots;
  uint64_t head;        /* number of the next line; advanced by writers */
  uint64_t tail;        /* number of the oldest line that is still there; advanced by the host */
  uint64_t lost;        /* lines that found no place; advanced by writers */
  int32_t level;        /* lines below this level are not wanted; the host may change it */
  uint32_t reserved;
} ipr_log_ring;

/* An extension that the host offers: a struct with struct_size first, described where the name is. */
typedef struct ipr_host_extension {
  ipr_string name;
  const void* table;
} ipr_host_extension;

#define IPR_HOST_CHECKING 1u /* ipr_host.flags: the host looks for mistakes and does not mind the time that it takes */

/* What `init` is given. All is valid until `shutdown` returns, and native: no function here leads into Python. */
typedef struct ipr_host {
  uint64_t struct_size;
  uint32_t api_major;      /* the version of this interface that the host has */
  uint32_t api_minor;
  ipr_string name;         /* "interposer", */
  ipr_string version;      /* and its version */
  ipr_string library_path; /* the canonical path of the backend's shared object */
  ipr_string cache_dir;    /* a folder that exists and that this backend alone writes to; empty where there is none */
  ipr_log_ring* log;       /* for ipr_log; may be NULL */
  void* (*aligned_alloc)(uint64_t alignment, uint64_t size); /* a power of two, a multiple of it; NULL if it fails */
  void (*free)(void* memory);                                /* what aligned_alloc gave, or NULL; from any thread */
  uint32_t thread_count;        /* threads that the backend should not exceed, its own and the calling one together */
  uint32_t flags;               /* IPR_HOST_... */
  uint64_t cpu_mask_words;      /* processors that it may run on: bit c % 64 of word c / 64; 0 words: any */
  const uint64_t* cpu_mask;
  uint64_t extension_count;
  uint64_t extension_stride;
  const ipr_host_extension* extensions;
} ipr_host;

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* What BackendFactory gives: the backend's table, constant until the library is closed. One that is NULL where it is
 * not optional, or smaller than it was in the version that GetVersion tells, is refused; larger is fine. */
typedef struct ipr_backend {
  uint64_t magic;       /* IPR_MAGIC */
  uint64_t struct_size; /* sizeof(ipr_backend) */
  void* self;           /* first argument of every function here and in extensions; not looked at */

  /* Make ready. `host` is valid until `shutdown` returns. The options are those of scope IPR_SCOPE_INIT that were
   * given. Called once, before everything but get_info; where it fails, nothing but get_info is called afterwards,
   * `shutdown` included. After `shutdown`, it may be called again. */
  int32_t (*init)(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error);

  /* Stop threads, free everything. Called once after a successful `init`, when everything is released. */
  void (*shutdown)(void* self);

  /* Describe the backend. Called before `init`, to know the options, and again after it, to know the capabilities. */
  int32_t (*get_info)(void* self, ipr_info* out, ipr_error* error);

  /* Say for every layer of a graph whether it can be run. Quick; keeps nothing. The graph is some of a network's
   * layers, and may be asked about several times in different company. */
  int32_t (*query_support)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                           ipr_error* error);

  /* Say what to make of a connected part of which every layer got a yes. Optional: where it is NULL, the whole part
   * becomes one unit by `compile`. */
  int32_t (*optimize)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_answer* out,
                      ipr_error* error);

  /* Make a part ready to run. Slow work belongs here. IPR_UNSUPPORTED with a layer in the error gives that layer
   * back, and the rest is compiled without it; every other failure gives all of them back. */
  int32_t (*compile)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                     ipr_error* error);

  /* Run: read the inputs, write the outputs. `executable` is ipr_executable.handle. */
  int32_t (*execute)(void* self, void* executable, const ipr_run* run, ipr_error* error);

  /* The table of an extension, such as IPR_EXT_CONTEXT, valid until `shutdown`; NULL where there is none of this name.
   * Called after `init`. Optional. */
  const void* (*get_extension)(void* self, const char* name);
} ipr_backend;

/* ---- Extension "ipr.context/1": to be told of networks ----------------------------------------------------------- */

#define IPR_EXT_CONTEXT "ipr.context/1"

/* What a context is told about. */
typedef struct ipr_network {
  uint64_t struct_size;
  int64_t id; /* unique in a runtime while the network is loaded */
} ipr_network;

/* One context is made for each runtime, when it first loads a network that may use the backend. It is then told
 * before and after each network is loaded and unloaded. A status other than IPR_OK before prevents that; after, it
 * is only logged. Where loading fails after `before_load` agreed, `after_unload` follows. */
typedef struct ipr_context_api {
  uint64_t struct_size;
  int32_t (*create)(void* self, const ipr_options* options, void** out_context, ipr_error* error); /* IPR_SCOPE_INIT */
  void (*destroy)(void* self, void* context);
  int32_t (*before_load)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*after_load)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*before_unload)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*after_unload)(void* self, void* context, const ipr_network* network, ipr_error* error);
} ipr_context_api;

/* ---- Extension "ipr.blobs/1": to keep what was compiled ------------------------------------------------------------
 *
 * The host keeps blobs in files of its own. Where the plug-in declares an option "CacheDirectory" of the kind TEXT, users
 * name with it the folder in which the host keeps them; empty is the host's own folder. The plug-in itself has nothing to
 * do with it, and the fingerprint must not depend on it.
 */

#define IPR_EXT_BLOBS "ipr.blobs/1"

#define IPR_BLOB_NEEDS_GRAPH UINT64_C(1) /* ipr_blob.flags: constants are not in it; `restore` needs the graph */

/* Out struct of `save`: bytes that a file can keep. */
typedef struct ipr_blob {
  uint64_t struct_size;
  const void* data;
  uint64_t size;
  uint64_t flags; /* IPR_BLOB_... */
  void* owner;
  void (*release)(void* owner);
} ipr_blob;

/* Out struct of `fingerprint`. */
typedef struct ipr_text {
  uint64_t struct_size;
  ipr_string text;
  void* owner;
  void (*release)(void* owner);
} ipr_text;

typedef struct ipr_blobs_api {
  uint64_t struct_size;

  /* A text that is different whenever blobs of one setting are of no use in another: version, device, driver, those
   * of the options that matter. */
  int32_t (*fingerprint)(void* self, const ipr_options* options, ipr_text* out, ipr_error* error);

  /* The bytes of an executable (ipr_executable.handle). IPR_UNSUPPORTED where this one cannot be saved. */
  int32_t (*save)(void* self, void* executable, ipr_blob* out, ipr_error* error);

  /* Whether a blob can be restored here: IPR_OK, IPR_STALE or IPR_CORRUPT. Quick. The bytes may be anything. */
  int32_t (*check)(void* self, const void* data, uint64_t size, const ipr_options* options, ipr_error* error);

  /* Make an executable from a blob that was saved here or elsewhere; the bytes may be anything, and are valid during
   * the call. `graph` is the part that was compiled, with its constants; NULL where the host does not have it any
   * more, which IPR_BLOB_NEEDS_GRAPH forbids. Constants of the graph are kept valid as in `compile`. */
  int32_t (*restore)(void* self, const void* data, uint64_t size, const ipr_graph* graph, const ipr_options* options,
                     ipr_executable* out, ipr_error* error);
} ipr_blobs_api;

/* ---- Extension "ipr.handles/1": tensors in memory of the backend's own -------------------------------------------- */

#define IPR_EXT_HANDLES "ipr.handles/1"

/* ipr_factory.flags: what can be done with the tensors of this kind of memory. */
#define IPR_FACTORY_MAPS UINT64_C(1)          /* `map` shows them to the host */
#define IPR_FACTORY_SUB_TENSORS UINT64_C(2)   /* pieces of them can be tensors: `create_sub_tensor` */
#define IPR_FACTORY_DEVICE_COPIES UINT64_C(4) /* `copy` fills them from memory of the host, and the other way round */

/* One kind of memory. Element of an array. */
typedef struct ipr_factory {
  ipr_string id;         /* "Vendor/Backend/Name" */
  uint64_t flags;        /* IPR_FACTORY_... */
  uint32_t import_kinds; /* IPR_MEMORY_...: kinds of memory of others in which its tensors can lie; HOST or DMA_BUF */
  uint32_t export_kinds; /* IPR_MEMORY_...: kinds of memory as which its tensors can be used by others */
} ipr_factory;

/* Out struct of `describe`. */
typedef struct ipr_factories {
  uint64_t struct_size;
  uint64_t factory_count;
  uint64_t factory_stride;
  const ipr_factory* factories;
  uint64_t preference_count;     /* ids of the kinds of memory that executables take, best first; they may be others' */
  const ipr_string* preferences; /* own, such as "Interposer/Cpu/Array", the arrays of the host */
  void* owner;
  void (*release)(void* owner);
} ipr_factories;

#define IPR_HANDLE_ALONE UINT64_C(1) /* flags of `create_tensor`: no part of the plan; `allocate` gives it memory, as for */
                                     /* constants */

/* A pool is the memory of one run of a network at a time; it is used by one thread at a time. Its tensors are numbers of
 * the backend's own, other than 0. In `execute` they are ipr_tensor.native_handle, where memory_kind is
 * IPR_MEMORY_PRIVATE and `data` is NULL; tensors of the host's arrays are IPR_MEMORY_HOST there as ever. */
typedef struct ipr_handles_api {
  uint64_t struct_size;

  /* The kinds of memory that there are, and those that are preferred; the same as long as the library is open. */
  int32_t (*describe)(void* self, const ipr_options* options, ipr_factories* out, ipr_error* error);

  int32_t (*create_pool)(void* self, const ipr_options* options, void** out_pool, ipr_error* error);
  void (*destroy_pool)(void* self, void* pool);

  /* Get the memory that was planned, before the first run; give it back, after the last one. */
  int32_t (*acquire)(void* self, void* pool, ipr_error* error);
  int32_t (*give_back)(void* self, void* pool, ipr_error* error);

  /* A tensor of the kind with that index in `describe`. */
  int32_t (*create_tensor)(void* self, void* pool, uint64_t factory, const ipr_tensor_info* info, uint64_t flags,
                           uint64_t* out_tensor, ipr_error* error);
  /* A piece of another tensor, from `origin` on (one number for each axis). IPR_UNSUPPORTED where there can be none. */
  int32_t (*create_sub_tensor)(void* self, void* pool, uint64_t whole, const int64_t* origin,
                               const ipr_tensor_info* info, uint64_t* out_tensor, ipr_error* error);
  void (*destroy_tensor)(void* self, void* pool, uint64_t tensor);

  /* In running order and once each: the tensor begins to live; it was read for the last time. One of IPR_HANDLE_ALONE,
   * or one whose import was refused, is only allocated, and has memory of its own from then on. */
  int32_t (*manage)(void* self, void* pool, uint64_t tensor, ipr_error* error);
  int32_t (*allocate)(void* self, void* pool, uint64_t tensor, ipr_error* error);

  /* Show the tensor to the host, compact and row-major, until `unmap`; the host may have written to it. */
  int32_t (*map)(void* self, void* pool, uint64_t tensor, void** out_data, ipr_error* error);
  int32_t (*unmap)(void* self, void* pool, uint64_t tensor, ipr_error* error);

  /* Copy a whole tensor. One of the two is of the pool (IPR_MEMORY_PRIVATE), the other lies in memory of the host. */
  int32_t (*copy)(void* self, void* pool, const ipr_tensor* source, const ipr_tensor* target, ipr_error* error);

  /* Let the tensor lie in memory of others until `forget_memory`. IPR_UNSUPPORTED: not in this one; it is copied. */
  int32_t (*import_memory)(void* self, void* pool, uint64_t tensor, const ipr_tensor* memory, ipr_error* error);
  int32_t (*forget_memory)(void* self, void* pool, uint64_t tensor, ipr_error* error);
  /* Show the tensor's own memory: for IPR_MEMORY_HOST fill in `data`, for others `native_handle` and `byte_offset`. */
  int32_t (*export_memory)(void* self, void* pool, uint64_t tensor, uint32_t kind, ipr_tensor* out, ipr_error* error);
} ipr_handles_api;

/* ---- Extension "ipr.allocator/1": memory from an allocator of the user -------------------------------------------- */

#define IPR_EXT_ALLOCATOR "ipr.allocator/1"

/* The user's allocator. Lives as long as the pool that it was given to. May be called by any thread. */
typedef struct ipr_allocator {
  uint64_t struct_size;
  void* self;
  uint32_t memory_kind; /* IPR_MEMORY_...: what it gives */
  uint32_t reserved;
  int32_t (*allocate)(void* self, uint64_t size, uint64_t alignment, void** out_data); /* IPR_OUT_OF_MEMORY: no more */
  void (*free)(void* self, void* data);
} ipr_allocator;

typedef struct ipr_allocator_api {
  uint64_t struct_size;

  /* Whether memory of this kind can be used for all tensors of the backend; why not, where it fails. */
  int32_t (*accept)(void* self, uint32_t memory_kind, ipr_error* error);

  /* Take the memory of this pool's tensors from here; called before anything else is done with the pool. */
  int32_t (*use)(void* self, void* pool, const ipr_allocator* allocator, ipr_error* error);
} ipr_allocator_api;

/* Names that later extensions will have; nothing is known under them yet. */
#define IPR_EXT_ASYNC "ipr.async/1"         /* runs that are submitted and complete later */
#define IPR_EXT_PROFILING "ipr.profiling/1" /* events and counters */
#define IPR_EXT_DEVICES "ipr.devices/1"     /* several devices behind one backend */
#define IPR_EXT_REGIONS "ipr.regions/1"     /* layers with control flow */
#define IPR_EXT_SEQUENCES "ipr.sequences/1" /* sequences, optional values and tensors of text */

/* ---- The three functions that a backend exports ------------------------------------------------------------------ */

/* The backend's id: not empty, not "Unknown", without blanks and commas; valid as long as the library is open. */
IPR_EXPORT const char* GetBackendId(void);

/* Write IPR_API_MAJOR and IPR_API_MINOR. */
IPR_EXPORT void GetVersion(uint32_t* out_major, uint32_t* out_minor);

/* A `const ipr_backend*`, valid as long as the library is open; NULL where there can be none. Called once, or again
 * after `shutdown` or an `init` that failed; the table of the call before is not used any more then. */
IPR_EXPORT void* BackendFactory(void);

/* ---- The layout, as every compiler has to lay it out: where the last member of 1.0 is in each struct ------------- */

#ifdef __cplusplus
#define IPR_LAST(type, member, offset) static_assert(offsetof(type, member) == (offset), #type " is laid out wrongly")
#else
#define IPR_LAST(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type " is laid out wrongly")
#endif

IPR_LAST(ipr_string, size, 8);
IPR_LAST(ipr_error, text, 40);
IPR_LAST(ipr_attribute, columns, 88);
IPR_LAST(ipr_options, items, 24);
IPR_LAST(ipr_tensor_info, producer, 72);
IPR_LAST(ipr_constant, offset, 32);
IPR_LAST(ipr_layer, attribute_count, 72);
IPR_LAST(ipr_graph, outputs, 128);
IPR_LAST(ipr_verdict, bytes, 40);
IPR_LAST(ipr_report, release, 40);
IPR_LAST(ipr_substitution, output_count, 48);
IPR_LAST(ipr_failure, reason, 24);
IPR_LAST(ipr_answer, release, 64);
IPR_LAST(ipr_executable, release, 64);
IPR_LAST(ipr_tensor, flags, 80);
IPR_LAST(ipr_run, resize, 104);
IPR_LAST(ipr_property, text, 56);
IPR_LAST(ipr_info, properties, 136);
IPR_LAST(ipr_log_slot, length, 12);
IPR_LAST(ipr_log_ring, reserved, 60);
IPR_LAST(ipr_host_extension, table, 16);
IPR_LAST(ipr_host, extensions, 144);
IPR_LAST(ipr_backend, get_extension, 80);
IPR_LAST(ipr_network, id, 8);
IPR_LAST(ipr_context_api, after_unload, 48);
IPR_LAST(ipr_blob, release, 40);
IPR_LAST(ipr_text, release, 32);
IPR_LAST(ipr_blobs_api, restore, 32);
IPR_LAST(ipr_factory, export_kinds, 28);
IPR_LAST(ipr_factories, release, 56);
IPR_LAST(ipr_handles_api, export_memory, 128);
IPR_LAST(ipr_allocator, free, 32);
IPR_LAST(ipr_allocator_api, use, 16);
IPR_LAST(ipr_tensor, dtype, 48); /* behind a DLTensor */
#undef IPR_LAST

/* ---- Conveniences: what every backend would write again, as inline functions ------------------------------------- */

/* A text of constant characters: IPR_STRING("abc"). */
#ifdef __cplusplus
#define IPR_STRING(literal) ipr_string{literal, sizeof(literal) - 1}
#else
#define IPR_STRING(literal) ((ipr_string){literal, sizeof(literal) - 1})
#endif

/* Whether a text is equal to one that ends with NUL. */
static inline int ipr_equal(ipr_string text, const char* other) {
  uint64_t n = 0;
  for (; n < text.size; ++n)
    if (other[n] == 0 || text.data[n] != other[n]) return 0;
  return other[n] == 0;
}

/* Elements of arrays, by their strides. */
static inline const ipr_layer* ipr_layer_at(const ipr_graph* graph, uint64_t index) {
  return (const ipr_layer*)((const char*)graph->layers + index * graph->layer_stride);
}
static inline const ipr_tensor_info* ipr_tensor_info_at(const ipr_graph* graph, uint64_t index) {
  return (const ipr_tensor_info*)((const char*)graph->tensors + index * graph->tensor_stride);
}
static inline const ipr_constant* ipr_constant_at(const ipr_graph* graph, uint64_t index) {
  return (const ipr_constant*)((const char*)graph->constants + index * graph->constant_stride);
}
static inline const ipr_attribute* ipr_attribute_at(const ipr_graph* graph, const ipr_layer* layer, uint64_t index) {
  return (const ipr_attribute*)((const char*)layer->attributes + index * graph->attribute_stride);
}
static inline const ipr_attribute* ipr_option_at(const ipr_options* options, uint64_t index) {
  return (const ipr_attribute*)((const char*)options->items + index * options->stride);
}
static inline const ipr_tensor* ipr_input_at(const ipr_run* run, uint64_t index) {
  return (const ipr_tensor*)((const char*)run->inputs + index * run->tensor_stride);
}
static inline ipr_tensor* ipr_output_at(const ipr_run* run, uint64_t index) {
  return (ipr_tensor*)((char*)run->outputs + index * run->tensor_stride);
}

/* The info of an operand or result of a layer; NULL where it is absent or the layer has no so many. */
static inline const ipr_tensor_info* ipr_layer_input(const ipr_graph* graph, const ipr_layer* layer,
                                                     uint64_t position) {
  if (position >= layer->input_count || layer->inputs[position] < 0) return NULL;
  return ipr_tensor_info_at(graph, (uint64_t)layer->inputs[position]);
}
static inline const ipr_tensor_info* ipr_layer_output(const ipr_graph* graph, const ipr_layer* layer,
                                                      uint64_t position) {
  if (position >= layer->output_count) return NULL;
  return ipr_tensor_info_at(graph, (uint64_t)layer->outputs[position]);
}

/* The attribute of a name, NULL where the layer has none of it. */
static inline const ipr_attribute* ipr_find(const ipr_graph* graph, const ipr_layer* layer, const char* name) {
  uint64_t n;
  for (n = 0; n < layer->attribute_count; ++n)
    if (ipr_equal(ipr_attribute_at(graph, layer, n)->name, name)) return ipr_attribute_at(graph, layer, n);
  return NULL;
}

/* The option of a name, NULL where it was not given. */
static inline const ipr_attribute* ipr_find_option(const ipr_options* options, const char* name) {
  uint64_t n;
  for (n = 0; options != NULL && n < options->count; ++n)
    if (ipr_equal(ipr_option_at(options, n)->name, name)) return ipr_option_at(options, n);
  return NULL;
}

/* How many elements a tensor has; -1 where a dimension is unknown. */
static inline int64_t ipr_elements(const int64_t* shape, int32_t rank) {
  int64_t product = 1;
  int32_t n;
  for (n = 0; n < rank; ++n) {
    if (shape[n] < 0) return -1;
    product *= shape[n];
  }
  return product;
}

/* Fill in an error and give its status: `return ipr_fail(error, IPR_UNSUPPORTED, IPR_ITEM_LAYER, 3, "no int8");` */
static inline int32_t ipr_fail(ipr_error* error, int32_t status, int32_t item_kind, int64_t item, const char* message) {
  uint64_t n = 0;
  if (error == NULL) return status;
  error->item_kind = item_kind;
  error->item = item;
  for (; message[n] != 0; ++n)
    if (n < error->capacity) error->text[n] = message[n];
  error->length = n;
  return status;
}

/* Log a text that ends with NUL. From any thread; never waits; a line that is too long is cut. */
#if defined(__GNUC__) || defined(__clang__)
static inline void ipr_log(const ipr_host* host, int32_t level, const char* message) {
  ipr_log_ring* ring = host == NULL ? NULL : host->log;
  ipr_log_slot* slot;
  char* text;
  uint64_t number, n = 0;
  if (ring == NULL || level < __atomic_load_n(&ring->level, __ATOMIC_RELAXED)) return;
  number = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  do {
    /* Signed: where other threads have passed this one, the tail may be beyond its number. */
    if ((int64_t)(number - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) >= (int64_t)ring->slot_count) {
      __atomic_fetch_add(&ring->lost, 1, __ATOMIC_RELAXED);
      return;
    }
  } while (!__atomic_compare_exchange_n(&ring->head, &number, number + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  slot = (ipr_log_slot*)(ring->slots + (number & (ring->slot_count - 1)) * ring->slot_stride);
  text = (char*)(slot + 1);
  for (; message[n] != 0 && n < ring->slot_stride - sizeof(ipr_log_slot); ++n) text[n] = message[n];
  slot->level = level;
  slot->length = (uint32_t)n;
  __atomic_store_n(&slot->sequence, number + 1, __ATOMIC_RELEASE);
}
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* INTERPOSER_BACKEND_H */
