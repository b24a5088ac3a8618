/* interposer/backend.h: the interface between Interposer and a backend in a shared object. Version 1.0.
 *
 * A backend is a shared object <vendor>_<name>_backend.so that exports three functions:
 *
 *     const char* GetBackendId(void);
 *     void GetVersion(uint32_t* out_major, uint32_t* out_minor);
 *     void* BackendFactory(void);
 *
 * and optionally `void SetHostVersion(uint32_t major, uint32_t minor)`, which first receives the version of the host.
 *
 * The factory returns a `const ipr_backend*`, a table of functions (at the end of this file). Nothing else is needed:
 * this file includes only <stdint.h> and <stddef.h>, is valid C11 and C++, and may be copied into any project.
 *
 * Rules for all functions and structs
 * -----------------------------------
 * Layout.   Members are fixed-width integers, doubles and pointers, in the byte order of the processor; pointers have
 *           64 bits. A struct that begins with `struct_size` may grow at its end: its creator writes its size there,
 *           and nobody accesses members beyond it. Elements of arrays may grow, too: an array comes with its count and
 *           a stride (the bytes from one element to the next), which has to be used for iteration, as the functions
 *           `ipr_..._at` below do. Structs with neither (`ipr_string`) never change. Reserved members are zero when
 *           written and ignored when read.
 * Results.  A function that can fail returns an int32_t: IPR_OK, or a status that describes the failure. The
 *           `ipr_error` in its last argument has the details. If it fails, out arguments are ignored. No C++
 *           exception, Rust panic or longjmp may leave a function of the backend.
 * Memory.   Neither side frees memory that the other side allocated. Arguments from the host are valid until the call
 *           returns, unless stated otherwise (constants, `ipr_host`). Results of the backend are in an out struct: the
 *           host provides it with `struct_size` set and all other members zero, and the backend fills it in. When the
 *           host no longer needs the content, it calls the `release(owner)` of the struct exactly once, if it is not
 *           NULL. Structs that are left are released before `shutdown`, the newest first.
 * Text.     UTF-8, as pointer and size in bytes. Text from the host is terminated by a NUL that the size does not
 *           count; text from the backend need not be. An empty text may have a NULL pointer.
 * Numbers.  Sizes are in bytes, counts in elements, times in seconds (double) or nanoseconds (int64_t, names in _ns).
 *           An index of -1 means "none".
 * Threads.  `init`, `shutdown` and `get_info` are called while no other call is in progress. `query_support`,
 *           `optimize`, `compile`, `release` and the functions of extensions are called by one thread at a time, not
 *           always the same, unless the backend declares IPR_CAP_CONCURRENT_COMPILE. `execute` may run concurrently
 *           with all of these. Different executables may run concurrently; one executable is run by one thread at a
 *           time unless IPR_CAP_CONCURRENT_EXECUTE or IPR_EXECUTABLE_CONCURRENT is declared. Nothing is released while
 *           it is in use. The backend may have threads of its own; from these, it may call `ipr_log` and the allocator
 *           of the host, and no other function of the host.
 * Process.  Signal handlers, the floating-point environment (rounding mode, flush to zero), the locale, the working
 *           directory and the standard streams belong to the host: a backend that changes them restores them before it
 *           returns. GCC before 13 sets flush to zero in the thread that loads a library linked with -ffast-math.
 * Versions. `GetVersion` returns the version of this interface for which the backend was written. The host refuses the
 *           backend unless the major numbers are equal and the minor number of the backend is not greater than that of
 *           the host. The host never passes a layer type, data type, attribute or attribute text that is newer than
 *           this minor number; it refuses layers that need one on behalf of the backend. New versions of this file
 *           append to it, and never change or reuse names and numbers.
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

/* The revision of the vocabulary that this file was released with: the names of operators, operands, attributes, choices
 * and types. It is raised by releases that add names; the version of the interface is not. */
#define IPR_VOCABULARY_REVISION 0u

/* First member of ipr_backend, by which the host knows it ("IPRBKND1" in the memory of little-endian machines). */
#define IPR_MAGIC UINT64_C(0x31444E4B42525049)

/* Put before the three exported functions, so that they are exported whatever the compiler's default is. */
#if defined(__GNUC__) || defined(__clang__)
#define IPR_EXPORT __attribute__((visibility("default")))
#else
#define IPR_EXPORT
#endif

/* ---- Status: results of functions -------------------------------------------------------------------------------- */

#define IPR_OK 0                 /* done */
#define IPR_FAILED 1             /* any error without a status of its own; unlisted numbers mean the same */
#define IPR_INVALID_ARGUMENT 2   /* an argument is invalid (the value of an option, a damaged table) */
#define IPR_UNSUPPORTED 3        /* cannot be run after all; the layers of a `compile` are offered to other backends */
#define IPR_OUT_OF_MEMORY 4      /* out of memory, on the host or on the device */
#define IPR_UNAVAILABLE 5        /* from `init`: the device or driver is missing; the backend is listed as absent */
#define IPR_REFUSED 6            /* from a context: the network must not be loaded or unloaded */
#define IPR_CANCELLED 7          /* `ipr_run.cancel` became nonzero */
#define IPR_DEADLINE 8           /* `ipr_run.deadline_ns` has passed */
#define IPR_CORRUPT 9            /* a blob is damaged, or belongs to another backend */
#define IPR_STALE 10             /* a blob was saved by another version, for another device or with other options */
#define IPR_DEVICE_LOST 11       /* the device failed; every executable of this backend is lost */
#define IPR_INVALID_VALUE 12     /* from `execute`: a value of the inputs cannot be used, such as an index out of */
                                 /* range. Nothing has failed: the executable can be run again, and will be. An older */
                                 /* host treats it like IPR_FAILED. See ipr_value_error */

/* ---- Text and errors --------------------------------------------------------------------------------------------- */

typedef struct ipr_string {
  const char* data; /* UTF-8 */
  uint64_t size;    /* bytes, without a terminating NUL */
} ipr_string;

/* What ipr_error.item is an index of. */
#define IPR_ITEM_NONE 0
#define IPR_ITEM_LAYER 1  /* index into ipr_graph.layers */
#define IPR_ITEM_TENSOR 2 /* index into ipr_graph.tensors */
#define IPR_ITEM_INPUT 3  /* index into ipr_run.inputs */
#define IPR_ITEM_OUTPUT 4 /* index into ipr_run.outputs */
#define IPR_ITEM_OPTION 5 /* index into ipr_options.items */

/* Describes why a function failed. The host owns this struct and the text buffer; the backend fills in all members
 * except struct_size, capacity and the pointer. May be NULL. `ipr_fail` below fills it in. */
typedef struct ipr_error {
  uint64_t struct_size;
  int32_t code;      /* the error code of the backend or its driver; 0 if there is none */
  int32_t item_kind; /* IPR_ITEM_...: the kind of item that caused the error */
  int64_t item;      /* its index, or -1 */
  uint64_t capacity; /* bytes of `text` */
  uint64_t length;   /* bytes of the message; if they exceed the capacity, `text` has only its beginning */
  char* text;        /* the message; NUL is not required */
} ipr_error;

/* Which members of an ipr_value_error are set. */
#define IPR_VALUE_OPERAND 1u
#define IPR_VALUE_ELEMENT 2u
#define IPR_VALUE_VALUE 4u
#define IPR_VALUE_LOWEST 8u
#define IPR_VALUE_HIGHEST 16u

/* What is wrong with a value (IPR_INVALID_VALUE), beside the message. A host that wants to know passes the `error` of
 * such a struct to `execute`: then `error.struct_size` is at least the size of the whole. `error.item_kind` is
 * IPR_ITEM_LAYER, and `error.item` the index of the layer in the graph that was compiled, or they name a tensor or an
 * input. `ipr_fail_value` below fills it in. */
typedef struct ipr_value_error {
  ipr_error error;
  uint32_t known;  /* IPR_VALUE_...: the members that are set */
  int32_t operand; /* the operand of the layer that has the value: index into ipr_layer.inputs */
  int64_t element; /* the index of the first such element of the operand, in row-major order */
  int64_t value;   /* the element */
  int64_t lowest;  /* the smallest value that can be used */
  int64_t highest; /* the largest one; less than the smallest if there is none */
} ipr_value_error;

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
#define IPR_DTYPE_INT4 14  /* one byte for each element, the number in its low bits; writers clear the others, and */
#define IPR_DTYPE_UINT4 15 /* readers ignore them. The same holds for all types of fewer than 8 bits */
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
/* Higher numbers are reserved for later versions. Version 1.0 never offers layers with tensors of text. */

/* ---- Attributes and options: values by name ---------------------------------------------------------------------- */

/* ipr_attribute.kind: which member holds the value. */
#define IPR_KIND_NONE 0   /* the attribute is absent: the operator chooses the value */
#define IPR_KIND_BOOL 1   /* i: 0 or 1 */
#define IPR_KIND_INT 2    /* i */
#define IPR_KIND_FLOAT 3  /* f */
#define IPR_KIND_TEXT 4   /* text */
#define IPR_KIND_ENUM 5   /* text: the name of a choice, such as "NHWC" */
#define IPR_KIND_DTYPE 6  /* i: IPR_DTYPE_... */
#define IPR_KIND_INTS 7   /* ints, count; in rows of `columns` if `columns` is not 0 */
#define IPR_KIND_FLOATS 8 /* floats, count */
#define IPR_KIND_ENUMS 9  /* texts, count: the names of choices */

#define IPR_ATTRIBUTE_IS_DEFAULT 1u /* ipr_attribute.flags: the default of the operator, which the host filled in */

/* One named value. The host writes all attributes; those that the network leaves at their default have the default
 * here. */
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
  uint64_t count;          /* number of ints, floats or texts */
  uint64_t columns;        /* INTS: numbers in a row, for example 2 for a list of (before, after); 0 for a plain list */
} ipr_attribute;

/* The options that the user set for this backend. They contain only options that the backend declares, with the
 * declared kind. */
typedef struct ipr_options {
  uint64_t struct_size;
  uint64_t count;
  uint64_t stride;
  const ipr_attribute* items;
} ipr_options;

/* ---- The graph --------------------------------------------------------------------------------------------------- */

/* A tensor of the graph, without its data. */
typedef struct ipr_tensor_info {
  ipr_string name;            /* for messages; may be empty */
  int32_t dtype;              /* IPR_DTYPE_... */
  int32_t rank;               /* 0 (a scalar) to 8 */
  const int64_t* shape;       /* `rank` dimensions; -1 for those that are unknown */
  uint64_t scale_count;       /* 0: not quantized; otherwise real = scale * (quantized value - zero point) ... */
  const double* scales;       /* ... with one scale for the tensor, or one for each index along `axis` */
  const int64_t* zero_points; /* as many as scales */
  int32_t axis;               /* the axis of the scales; -1 if one scale applies to the whole tensor */
  uint32_t reserved;
  int64_t constant;           /* index into ipr_graph.constants; -1 if the tensor is computed or an input */
  int64_t producer;           /* index of the layer that computes it; -1 if it is constant or an input */
} ipr_tensor_info;

/* The data of a constant tensor: contiguous, row-major, read-only for both sides, aligned at least to its elements
 * unless IPR_CAP_UNALIGNED_CONSTANTS is declared.
 * In `query_support` and `optimize`, it is valid during the call. From `compile` on, it is valid until the executable
 * is released. If IPR_CAP_KEEPS_CONSTANTS or IPR_EXECUTABLE_KEEPS_CONSTANTS declares that the backend has a copy of
 * its own, the host may unmap the data as soon as `compile` returns. */
typedef struct ipr_constant {
  const void* data;
  uint64_t size;         /* bytes */
  const uint8_t* sha256; /* 32 bytes: SHA-256 of the data, by which constants may be shared. NULL unless in `compile` */
                         /* and `restore` of a backend that declares IPR_CAP_WANTS_HASHES */
  int64_t fd;            /* the file that the data is mapped from, open while the data is valid; -1 if there is none */
  uint64_t offset;       /* offset of the data in that file */
} ipr_constant;

/* One operation. The reference pages of the operators describe its type and operands. */
typedef struct ipr_layer {
  ipr_string type;                 /* "Convolution2d" */
  ipr_string name;                 /* unique in the network; for messages */
  const int64_t* inputs;           /* tensors by position of the operands; -1 for absent optional operands */
  uint64_t input_count;            /* absent operands after the last present one are not counted */
  const int64_t* outputs;          /* tensors by position of the results */
  uint64_t output_count;
  const ipr_attribute* attributes; /* use ipr_graph.attribute_stride to iterate */
  uint64_t attribute_count;
} ipr_layer;

/* Some layers of a network with their tensors and constants. Layers are in topological order. */
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
  const int64_t* inputs;  /* inputs: computed elsewhere, not constant, in the order of first use ... */
  uint64_t output_count;
  const int64_t* outputs; /* ... and outputs: tensors that are used elsewhere, in the order of the layers */
} ipr_graph;

/* ---- query_support: what can be run ------------------------------------------------------------------------------ */

#define IPR_NO 0        /* cannot be run; `reason` describes why */
#define IPR_YES 1       /* can be run */
#define IPR_GROUP 2     /* can be run only together with all other layers of the same `group` */
#define IPR_PREFERRED 3 /* can be run, and the backend is particularly good at it */

/* ipr_verdict.reason_code, for programs; the text is for users. */
#define IPR_REASON_NONE 0
#define IPR_REASON_LAYER_TYPE 1
#define IPR_REASON_DATA_TYPE 2
#define IPR_REASON_SHAPE 3
#define IPR_REASON_ATTRIBUTE 4
#define IPR_REASON_QUANTIZATION 5
#define IPR_REASON_NOT_CONSTANT 6 /* an operand has to be constant */
#define IPR_REASON_OPTION 7       /* an option forbids it */
#define IPR_REASON_RESOURCE 8     /* too large */
#define IPR_REASON_NEIGHBOURS 9   /* only together with other layers */
#define IPR_REASON_UNPROFITABLE 10
#define IPR_REASON_OTHER 100

/* The answer for one layer. */
typedef struct ipr_verdict {
  int32_t verdict;     /* IPR_NO ... */
  int32_t reason_code; /* IPR_REASON_...; 0 unless the verdict is IPR_NO */
  int64_t group;       /* IPR_GROUP: the same number for all layers of the group; ignored otherwise */
  ipr_string reason;   /* IPR_NO: the reason, with the actual and the supported values */
  double seconds;      /* estimated time of one run; 0 if unknown */
  double bytes;        /* estimated memory in addition to its tensors; 0 if unknown */
} ipr_verdict;

/* Out struct of `query_support`: one verdict for each layer, in order. Texts are valid until `release`. */
typedef struct ipr_report {
  uint64_t struct_size;
  uint64_t verdict_count; /* = ipr_graph.layer_count */
  uint64_t verdict_stride;
  const ipr_verdict* verdicts;
  void* owner;
  void (*release)(void* owner);
} ipr_report;

/* ---- optimize: replacements for subgraphs ------------------------------------------------------------------------ */

/* Some layers, and their replacement. The layers of all substitutions and failures are disjoint. The layers of a
 * substitution are convex: no path leaves them and returns, also if the other substitutions are contracted. */
typedef struct ipr_substitution {
  const int64_t* layers; /* indices into ipr_graph.layers */
  uint64_t layer_count;
  const ipr_graph* replacement; /* NULL: one unit, for which the host calls `compile` with these layers. Else other */
                                /* layers, with types of the reference pages, which this backend then has to run */
  const int64_t* inputs;        /* replacement only: the offered tensor for each input of the replacement */
  uint64_t input_count;
  const int64_t* outputs;       /* replacement only: the offered tensor for each output of the replacement: all that */
  uint64_t output_count;        /* these layers compute and others use, each once, with unchanged types */
} ipr_substitution;

/* Layers that the backend cannot run after all. The host offers them to other backends. */
typedef struct ipr_failure {
  const int64_t* layers;
  uint64_t layer_count;
  int32_t reason_code; /* IPR_REASON_... */
  uint32_t reserved;
  ipr_string reason;
} ipr_failure;

/* Out struct of `optimize`. Layers in neither list stay unchanged and are compiled one by one. */
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

#define IPR_EXECUTABLE_CONCURRENT UINT64_C(1)      /* may be run by several threads concurrently */
#define IPR_EXECUTABLE_KEEPS_CONSTANTS UINT64_C(2) /* has copies of all constants that it needs */
#define IPR_EXECUTABLE_READS_BLOB UINT64_C(4)      /* reads the bytes that `restore` got; see IPR_HOST_LASTING_BLOBS */

/* Out struct of `compile`: an executable subgraph. It is run any number of times, then released. */
typedef struct ipr_executable {
  uint64_t struct_size;
  void* handle;                 /* passed to `execute`; opaque to the host */
  uint64_t flags;               /* IPR_EXECUTABLE_... */
  uint64_t workspace_size;      /* bytes of scratch memory that the host provides for each run, or 0. Its content is */
  uint64_t workspace_alignment; /* undefined before and after; concurrent runs have their own. A power of two */
  double seconds;               /* estimated time of one run; 0 if unknown */
  uint64_t memory;              /* bytes that it occupies until it is released, as far as known */
  void* owner;
  void (*release)(void* owner);
} ipr_executable;

/* Kinds of memory, one bit each (ipr_tensor.memory_kind has exactly one, ipr_info.memory_kinds any). */
#define IPR_MEMORY_HOST 1u              /* `data` is an address of this process */
#define IPR_MEMORY_DMA_BUF 2u           /* `native_handle` is a file descriptor of a dma-buf or memfd */
#define IPR_MEMORY_DMA_BUF_PROTECTED 4u /* the same, not readable by the processor */
#define IPR_MEMORY_GRALLOC 8u           /* `native_handle` is an Android buffer_handle_t */
#define IPR_MEMORY_PRIVATE 0x80000000u  /* `native_handle` is an opaque handle of the backend ("ipr.handles/1") */

#define IPR_TENSOR_READ_ONLY UINT64_C(1) /* ipr_tensor.flags: neither side may write */

/* A tensor with its data during a run. The first 48 bytes are a DLTensor of DLPack 0.x and 1.x. */
typedef struct ipr_tensor {
  void* data;              /* IPR_MEMORY_HOST: the address of the first element (byte_offset is 0) */
  int32_t device_type;     /* the number of DLPack; 1 for the processor */
  int32_t device_id;
  int32_t ndim;            /* the rank */
  uint8_t dtype_code;      /* DLDataType of DLPack; types of fewer than 8 bits are padded to a byte, */
  uint8_t dtype_bits;      /* with their own number of bits here */
  uint16_t dtype_lanes;    /* 1 */
  const int64_t* shape;    /* ndim dimensions; in an output, -1 if it is only known after computing it (see `resize`) */
  const int64_t* strides;  /* in elements; NULL: compact and row-major, as it always is without IPR_CAP_STRIDED.
                            * Not negative; greater than 0 in outputs, but for dimensions of size 1 */
  uint64_t byte_offset;    /* offset of the first element from `data`, or in the buffer that native_handle names */
  /* the end of the DLTensor */
  int32_t dtype;           /* IPR_DTYPE_... */
  uint32_t memory_kind;    /* IPR_MEMORY_...; IPR_MEMORY_HOST unless the backend declares others */
  uint64_t size;           /* bytes from the first element to the end of the last one */
  uint64_t native_handle;  /* its meaning depends on memory_kind; 0 for IPR_MEMORY_HOST */
  int64_t fence;           /* a sync file to wait for before use, or -1; always -1 without IPR_CAP_FENCES */
  uint64_t flags;          /* IPR_TENSOR_... */
} ipr_tensor;

/* One run of an executable: tensors in the order of `inputs` and `outputs` of the compiled graph. Outputs overlap
 * with no other tensor, except as IPR_CAP_IN_PLACE allows; inputs may overlap. When `execute` returns, all outputs
 * are complete, and no thread of the backend accesses this memory. */
typedef struct ipr_run {
  uint64_t struct_size;
  uint64_t tensor_stride;  /* of both arrays */
  uint64_t input_count;
  const ipr_tensor* inputs;
  uint64_t output_count;
  ipr_tensor* outputs;
  void* workspace;         /* as the executable requested, or NULL */
  uint64_t workspace_size;
  uint64_t run_id;         /* unique for each run of the process; 0 if the host does not count runs */
  int64_t deadline_ns;     /* on CLOCK_MONOTONIC; the run may end with IPR_DEADLINE after it; 0 if there is none */
  const uint32_t* cancel;  /* if this becomes nonzero, the run should end soon with IPR_CANCELLED; may be NULL */
  uint32_t thread_limit;   /* threads that this run should not exceed; 0 for no limit except ipr_host.thread_count */
  int32_t priority;        /* 0 is the default; greater is more urgent */
  void* host;              /* first argument of `resize` */
  /* For an output with unknown dimensions, before it is written: set its shape, with the declared rank. If the status
   * is IPR_OK, the element of `outputs` has data, shape and size afterwards. May be called only by the thread that
   * called `execute`, and once for each such output. NULL if all shapes are known. */
  int32_t (*resize)(void* host, uint64_t output, const int64_t* shape, uint64_t rank);
} ipr_run;

/* ---- The description of a backend -------------------------------------------------------------------------------- */

#define IPR_CAP_CONCURRENT_EXECUTE UINT64_C(0x1) /* each executable may be run by several threads concurrently */
#define IPR_CAP_CONCURRENT_COMPILE UINT64_C(0x2) /* query_support, optimize and compile may be called concurrently */
#define IPR_CAP_KEEPS_CONSTANTS UINT64_C(0x4)    /* each executable has copies of all constants that it needs */
#define IPR_CAP_WANTS_HASHES UINT64_C(0x8)       /* uses ipr_constant.sha256 */
#define IPR_CAP_DYNAMIC_SHAPES UINT64_C(0x10)    /* may be offered unknown dimensions, and calls `resize` */
#define IPR_CAP_IN_PLACE UINT64_C(0x20)          /* an output may have the same memory as an input of the same size; */
                                                 /* a host need not make use of it */
#define IPR_CAP_STRIDED UINT64_C(0x40)           /* accepts tensors that are not contiguous, by their `strides` */
#define IPR_CAP_FORK_SAFE UINT64_C(0x80)         /* continues to work in a child process after fork() */
#define IPR_CAP_DETERMINISTIC UINT64_C(0x100)    /* equal inputs give equal outputs, bit for bit, in every run */
#define IPR_CAP_FENCES UINT64_C(0x200)           /* waits for ipr_tensor.fence; a host may wait instead, and give -1 */
#define IPR_CAP_UNALIGNED_CONSTANTS UINT64_C(0x400) /* accepts constants at any address, so that the host need not */
                                                 /* copy those that a model file does not align */

#define IPR_SCOPE_INIT 1u  /* an option of `init`, set when a runtime is created */
#define IPR_SCOPE_MODEL 2u /* an option of query_support, optimize and compile, set for a network */

/* An option that the backend supports, or a named capability that can be queried. */
typedef struct ipr_property {
  ipr_string name;
  ipr_string doc;  /* one line for users */
  int32_t kind;    /* IPR_KIND_BOOL, INT, FLOAT or TEXT */
  uint32_t scope;  /* of an option: IPR_SCOPE_..., one or both; of a capability: 0 */
  int64_t i;       /* BOOL, INT: the default of the option, the value of the capability */
  double f;        /* FLOAT */
  ipr_string text; /* TEXT */
} ipr_property;

/* Out struct of `get_info`. All members but capabilities are the same in every call; texts and arrays live until
 * `shutdown`. */
typedef struct ipr_info {
  uint64_t struct_size;
  ipr_string vendor;
  ipr_string name;        /* for users; the id is that of GetBackendId */
  ipr_string version;     /* of the backend itself */
  ipr_string description; /* one line */
  uint64_t capabilities;  /* IPR_CAP_... */
  uint64_t alignment;     /* required alignment of the address of each tensor and constant: a power of two, */
                          /* up to 4096; 0 or 1 for that of its elements. The host copies tensors with less */
  uint32_t memory_kinds;  /* IPR_MEMORY_... that `execute` accepts; 0 means IPR_MEMORY_HOST */
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

/* A line in the ring; `ipr_log` writes it. */
typedef struct ipr_log_slot {
  uint64_t sequence; /* 1 + the number of the line, once the line is complete */
  int32_t level;
  uint32_t length;   /* bytes of the text after this struct, up to ipr_log_ring.slot_stride - 16 */
} ipr_log_slot;

/* A ring of lines in memory of the host. Any thread of the backend may write to it without waiting and without
 * calling the host, from `init` until `shutdown` returns. Lines are counted and dropped if the ring is full. */
typedef struct ipr_log_ring {
  uint64_t struct_size;
  uint64_t slot_count;  /* a power of two */
  uint64_t slot_stride; /* bytes from one slot to the next, including the text after its head */
  unsigned char* slots;
  uint64_t head;        /* number of the next line; writers increment it */
  uint64_t tail;        /* number of the oldest line in the ring; the host increments it */
  uint64_t lost;        /* dropped lines; writers increment it */
  int32_t level;        /* lines below this level are ignored; the host may change it */
  uint32_t reserved;
} ipr_log_ring;

/* An extension that the host offers: a struct that begins with struct_size, described with its name. */
typedef struct ipr_host_extension {
  ipr_string name;
  const void* table;
} ipr_host_extension;

#define IPR_HOST_CHECKING 1u /* ipr_host.flags: the host checks for errors, and accepts the time that this takes */
#define IPR_HOST_LASTING_BLOBS 2u /* the bytes that `restore` gets stay valid until an executable is released that */
                                  /* declares IPR_EXECUTABLE_READS_BLOB */

/* The argument of `init`. It is valid until `shutdown` returns, and native: no function here calls Python. */
typedef struct ipr_host {
  uint64_t struct_size;
  uint32_t api_major;      /* the version of this interface that the host supports */
  uint32_t api_minor;
  ipr_string name;         /* "interposer" ... */
  ipr_string version;      /* ... and its version */
  ipr_string library_path; /* the canonical path of the backend's shared object */
  ipr_string cache_dir;    /* an existing folder to which only this backend writes; empty if there is none */
  ipr_log_ring* log;       /* for ipr_log; may be NULL */
  void* (*aligned_alloc)(uint64_t alignment, uint64_t size); /* a power of two, a multiple of it; NULL if it fails */
  void (*free)(void* memory);                                /* memory of aligned_alloc, or NULL; from any thread */
  uint32_t thread_count;        /* threads that the backend should not exceed, including the calling one */
  uint32_t flags;               /* IPR_HOST_... */
  uint64_t cpu_mask_words;      /* cores that it may use: bit c % 64 of word c / 64; 0 words: any */
  const uint64_t* cpu_mask;
  uint64_t extension_count;
  uint64_t extension_stride;
  const ipr_host_extension* extensions;
} ipr_host;

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* The table of the backend, which BackendFactory returns. It is constant until the library is closed. The host
 * refuses a table with a NULL for a required member, or one that is smaller than in the version that GetVersion
 * returns; larger is accepted. */
typedef struct ipr_backend {
  uint64_t magic;       /* IPR_MAGIC */
  uint64_t struct_size; /* sizeof(ipr_backend) */
  void* self;           /* first argument of all functions here and in extensions; opaque to the host */

  /* Initialize the backend. `host` is valid until `shutdown` returns. The options are those with scope IPR_SCOPE_INIT
   * that the user set. Called once, before every function except get_info. If it fails, only get_info is called
   * afterwards, not even `shutdown`. It may be called again after `shutdown`. */
  int32_t (*init)(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error);

  /* Stop threads and free all memory. Called once after a successful `init`, when everything is released. */
  void (*shutdown)(void* self);

  /* Describe the backend. Called before `init` for the options, and again after `init` for the capabilities. */
  int32_t (*get_info)(void* self, ipr_info* out, ipr_error* error);

  /* Decide for each layer of a graph whether it can be run. Has to be fast and keep no state. The graph has some
   * layers of a network; the host may ask about the same layers several times in different graphs. */
  int32_t (*query_support)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                           ipr_error* error);

  /* Optimize a connected subgraph whose layers all are supported. Optional: if it is NULL, the whole subgraph becomes
   * one unit of `compile`. */
  int32_t (*optimize)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_answer* out,
                      ipr_error* error);

  /* Compile a subgraph. Slow work belongs here. IPR_UNSUPPORTED with a layer in the error returns that layer to the
   * host, and the rest is compiled without it; any other failure returns all layers. */
  int32_t (*compile)(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                     ipr_error* error);

  /* Run an executable: read the inputs and write the outputs. `executable` is ipr_executable.handle. */
  int32_t (*execute)(void* self, void* executable, const ipr_run* run, ipr_error* error);

  /* Return the table of an extension, such as IPR_EXT_CONTEXT, which is valid until `shutdown`; NULL if the backend
   * does not have it. Called after `init`. Optional. */
  const void* (*get_extension)(void* self, const char* name);
} ipr_backend;

/* ---- Extension "ipr.context/1": notifications on networks -------------------------------------------------------- */

#define IPR_EXT_CONTEXT "ipr.context/1"

/* The network that a context is notified about. */
typedef struct ipr_network {
  uint64_t struct_size;
  int64_t id; /* unique in a runtime while the network is loaded */
} ipr_network;

/* The host creates one context for each runtime, when it first loads a network that may use the backend. It notifies
 * the context before and after each network is loaded and unloaded. A status other than IPR_OK of a `before_...`
 * function prevents the operation; that of an `after_...` function is only logged. If loading fails after
 * `before_load` returned IPR_OK, `after_unload` follows. */
typedef struct ipr_context_api {
  uint64_t struct_size;
  int32_t (*create)(void* self, const ipr_options* options, void** out_context, ipr_error* error); /* IPR_SCOPE_INIT */
  void (*destroy)(void* self, void* context);
  int32_t (*before_load)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*after_load)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*before_unload)(void* self, void* context, const ipr_network* network, ipr_error* error);
  int32_t (*after_unload)(void* self, void* context, const ipr_network* network, ipr_error* error);
} ipr_context_api;

/* ---- Extension "ipr.blobs/1": compiled subgraphs that are cached ----------------------------------------------------
 *
 * The host stores blobs in files. If the plug-in declares an option "CacheDirectory" of kind TEXT, users can name with
 * it the folder in which the host stores them; an empty text selects the default folder. The plug-in itself does not use
 * the option, and the fingerprint must not depend on it.
 */

#define IPR_EXT_BLOBS "ipr.blobs/1"

#define IPR_BLOB_NEEDS_GRAPH UINT64_C(1) /* ipr_blob.flags: it has no constants; `restore` needs the graph */

/* Out struct of `save`: bytes that can be stored in a file. */
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

  /* Write a text that differs whenever blobs of one configuration are useless in another: version, device, driver,
   * and the options that matter. */
  int32_t (*fingerprint)(void* self, const ipr_options* options, ipr_text* out, ipr_error* error);

  /* Serialize an executable (ipr_executable.handle). IPR_UNSUPPORTED if this one cannot be saved. */
  int32_t (*save)(void* self, void* executable, ipr_blob* out, ipr_error* error);

  /* Return whether a blob can be restored: IPR_OK, IPR_STALE or IPR_CORRUPT. Has to be fast. Bytes are untrusted. */
  int32_t (*check)(void* self, const void* data, uint64_t size, const ipr_options* options, ipr_error* error);

  /* Create an executable from a blob that was saved here or elsewhere. The bytes are untrusted, aligned to 64, and valid
   * during the call, or longer with IPR_HOST_LASTING_BLOBS. `graph` is the compiled subgraph with its constants. It is NULL if the host no longer has it, except with
   * IPR_BLOB_NEEDS_GRAPH. Constants of the graph stay valid as in `compile`. */
  int32_t (*restore)(void* self, const void* data, uint64_t size, const ipr_graph* graph, const ipr_options* options,
                     ipr_executable* out, ipr_error* error);
} ipr_blobs_api;

/* ---- Extension "ipr.handles/1": tensors in memory of the backend ------------------------------------------------- */

#define IPR_EXT_HANDLES "ipr.handles/1"

/* ipr_factory.flags: operations on the tensors of this kind of memory. */
#define IPR_FACTORY_MAPS UINT64_C(1)          /* `map` makes them accessible to the host */
#define IPR_FACTORY_SUB_TENSORS UINT64_C(2)   /* `create_sub_tensor` can create tensors in parts of them */
#define IPR_FACTORY_DEVICE_COPIES UINT64_C(4) /* `copy` copies between them and memory of the host */

/* One kind of memory. Element of an array. */
typedef struct ipr_factory {
  ipr_string id;         /* "Vendor/Backend/Name" */
  uint64_t flags;        /* IPR_FACTORY_... */
  uint32_t import_kinds; /* IPR_MEMORY_...: foreign kinds of memory that its tensors can use; HOST or DMA_BUF */
  uint32_t export_kinds; /* IPR_MEMORY_...: kinds of memory as which others can use its tensors */
} ipr_factory;

/* Out struct of `describe`. */
typedef struct ipr_factories {
  uint64_t struct_size;
  uint64_t factory_count;
  uint64_t factory_stride;
  const ipr_factory* factories;
  uint64_t preference_count;     /* ids of the kinds of memory that executables accept, best first, also those of */
  const ipr_string* preferences; /* others, such as "Interposer/Cpu/Array", the arrays of the host */
  void* owner;
  void (*release)(void* owner);
} ipr_factories;

#define IPR_HANDLE_ALONE UINT64_C(1) /* flags of `create_tensor`: no part of the plan; `allocate` gives it memory, as for */
                                     /* constants */

/* A pool is the memory of one run of a network at a time, and is used by one thread at a time. The backend identifies
 * its tensors by numbers other than 0. In `execute`, these are in ipr_tensor.native_handle; memory_kind is
 * IPR_MEMORY_PRIVATE and `data` is NULL. Tensors in arrays of the host are IPR_MEMORY_HOST, as always. */
typedef struct ipr_handles_api {
  uint64_t struct_size;

  /* Describe the kinds of memory, and those that are preferred. The result is the same as long as the library is
   * open. */
  int32_t (*describe)(void* self, const ipr_options* options, ipr_factories* out, ipr_error* error);

  int32_t (*create_pool)(void* self, const ipr_options* options, void** out_pool, ipr_error* error);
  void (*destroy_pool)(void* self, void* pool);

  /* Allocate the planned memory before the first run; free it after the last one. */
  int32_t (*acquire)(void* self, void* pool, ipr_error* error);
  int32_t (*give_back)(void* self, void* pool, ipr_error* error);

  /* Create a tensor of the kind with that index in `describe`. */
  int32_t (*create_tensor)(void* self, void* pool, uint64_t factory, const ipr_tensor_info* info, uint64_t flags,
                           uint64_t* out_tensor, ipr_error* error);
  /* Create a tensor in a part of another one, beginning at `origin` (one number for each axis). IPR_UNSUPPORTED if it
   * cannot. */
  int32_t (*create_sub_tensor)(void* self, void* pool, uint64_t whole, const int64_t* origin,
                               const ipr_tensor_info* info, uint64_t* out_tensor, ipr_error* error);
  void (*destroy_tensor)(void* self, void* pool, uint64_t tensor);

  /* The lifetime of a tensor begins or ends. Called once each, in execution order. A tensor with IPR_HANDLE_ALONE, or
   * whose import was refused, is only allocated, and has memory of its own from then on. */
  int32_t (*manage)(void* self, void* pool, uint64_t tensor, ipr_error* error);
  int32_t (*allocate)(void* self, void* pool, uint64_t tensor, ipr_error* error);

  /* Make a tensor accessible to the host, contiguous and row-major, until `unmap`; the host may write to it. */
  int32_t (*map)(void* self, void* pool, uint64_t tensor, void** out_data, ipr_error* error);
  int32_t (*unmap)(void* self, void* pool, uint64_t tensor, ipr_error* error);

  /* Copy a whole tensor. One of the two is of the pool (IPR_MEMORY_PRIVATE), the other is in memory of the host. */
  int32_t (*copy)(void* self, void* pool, const ipr_tensor* source, const ipr_tensor* target, ipr_error* error);

  /* Let the tensor use foreign memory until `forget_memory`. IPR_UNSUPPORTED: not this memory; the host copies
   * instead. */
  int32_t (*import_memory)(void* self, void* pool, uint64_t tensor, const ipr_tensor* memory, ipr_error* error);
  int32_t (*forget_memory)(void* self, void* pool, uint64_t tensor, ipr_error* error);
  /* Return the memory of the tensor: `data` for IPR_MEMORY_HOST, `native_handle` and `byte_offset` for others. */
  int32_t (*export_memory)(void* self, void* pool, uint64_t tensor, uint32_t kind, ipr_tensor* out, ipr_error* error);
} ipr_handles_api;

/* ---- Extension "ipr.allocator/1": memory from an allocator of the user ------------------------------------------- */

#define IPR_EXT_ALLOCATOR "ipr.allocator/1"

/* An allocator of the user. It lives as long as the pool that uses it. Any thread may call it. */
typedef struct ipr_allocator {
  uint64_t struct_size;
  void* self;
  uint32_t memory_kind; /* IPR_MEMORY_...: the kind of memory that it allocates */
  uint32_t reserved;
  int32_t (*allocate)(void* self, uint64_t size, uint64_t alignment, void** out_data); /* or IPR_OUT_OF_MEMORY */
  void (*free)(void* self, void* data);
} ipr_allocator;

typedef struct ipr_allocator_api {
  uint64_t struct_size;

  /* Return whether memory of this kind can be used for all tensors of the backend, and why not. */
  int32_t (*accept)(void* self, uint32_t memory_kind, ipr_error* error);

  /* Allocate the tensors of this pool with this allocator; called before anything else is done with the pool. */
  int32_t (*use)(void* self, void* pool, const ipr_allocator* allocator, ipr_error* error);
} ipr_allocator_api;

/* ---- Extension "ipr.executable_memory/1": what executables hold, from an allocator of the user ----------------------- */

#define IPR_EXT_EXECUTABLE_MEMORY "ipr.executable_memory/1"

/* The host takes the workspace and the tensors of runs from the allocator itself. With this extension, the same allocator
 * gives an executable the memory that it holds between runs, such as packed weights. */
typedef struct ipr_executable_memory_api {
  uint64_t struct_size;

  /* Like `compile`, but allocate all memory for the values of constants that the executable holds with this allocator,
   * which is valid until the executable is released. Memory that is freed before the function returns may come from
   * elsewhere. IPR_OUT_OF_MEMORY if the allocator fails. */
  int32_t (*compile)(void* self, const ipr_graph* graph, const ipr_options* options, const ipr_allocator* allocator,
                     ipr_executable* out, ipr_error* error);

  /* The same for `restore` of "ipr.blobs/1". The executable must not read the bytes after the call. NULL if the backend
   * has no blobs. */
  int32_t (*restore)(void* self, const void* data, uint64_t size, const ipr_graph* graph, const ipr_options* options,
                     const ipr_allocator* allocator, ipr_executable* out, ipr_error* error);
} ipr_executable_memory_api;

/* ---- Extension "ipr.in_place/1": outputs in the memory of inputs ------------------------------------------------- */

#define IPR_EXT_IN_PLACE "ipr.in_place/1"

/* A subgraph may update a large tensor in a few places, such as a cache to which every run appends. If the host gives
 * the output the memory of the input, only the update needs to be written. */
typedef struct ipr_in_place_api {
  uint64_t struct_size;

  /* Write for each output of an executable (ipr_executable.handle) the index of the input whose memory it may have, or
   * -1. `count` is the number of outputs. No input is written twice, and the two tensors have the same number of bytes.
   * `execute` then has the right results both with the same `data` for input and output, and with separate memory;
   * with the same, it may overwrite the input before it writes other outputs. Called after `compile` or `restore`. */
  int32_t (*inputs_of_outputs)(void* self, void* executable, uint64_t count, int64_t* out_inputs, ipr_error* error);
} ipr_in_place_api;

/* Names of extensions that are described below, and of later ones. */
#define IPR_EXT_ASYNC "ipr.async/1"         /* runs that are submitted and complete later: see below */
#define IPR_EXT_PROFILING "ipr.profiling/1" /* events and counters: see below */
#define IPR_EXT_DEVICES "ipr.devices/1"     /* several devices of one backend: see below */
#define IPR_EXT_REGIONS "ipr.regions/1"     /* layers with control flow */
#define IPR_EXT_SEQUENCES "ipr.sequences/1" /* sequences, optional values and tensors of text */

/* ---- Extension "ipr.profiling/1": intervals and counters --------------------------------------------------------- */

/* ipr_interval.kind: what the interval is about. */
#define IPR_INTERVAL_KERNEL 1u /* a step of an executable */
#define IPR_INTERVAL_COPY 2u   /* a copy to, from or on the device */
#define IPR_INTERVAL_BUILD 3u  /* compilation */
#define IPR_INTERVAL_WAIT 4u   /* waiting, for a device or for other threads */
#define IPR_INTERVAL_OTHER 100u

/* Something that took time, as the backend measured it. Element of an array. */
typedef struct ipr_interval {
  ipr_string name;   /* of the kernel or step; valid as long as the library is open */
  ipr_string device; /* the device that it ran on, which gets a track of its own; empty for the processor */
  int64_t begin_ns;  /* in nanoseconds of CLOCK_MONOTONIC of the host; of the device's clock for a device */
  int64_t end_ns;
  uint64_t thread; /* the thread that called `execute`, as pthread_self returns it; 0: none */
  uint64_t bytes;  /* that it read and wrote; 0: not known */
  uint64_t flops;  /* operations that it computed; 0: not known */
  uint32_t kind;   /* IPR_INTERVAL_... */
  uint32_t reserved;
} ipr_interval;

/* ipr_counter.kind: how the values of a counter are to be read. */
#define IPR_COUNTER_VALUE 1u /* the value at that moment, such as the bytes in use */
#define IPR_COUNTER_RATE 2u  /* an amount per second */
#define IPR_COUNTER_EVENT 3u /* the number of events since the previous reading */

/* A number that can be read at any time. Element of an array. */
typedef struct ipr_counter {
  ipr_string name; /* unique in its category */
  ipr_string category;
  ipr_string units; /* such as "bytes" */
  ipr_string description;
  ipr_string device; /* or empty */
  double multiplier; /* converts a value to the unit; not 0 */
  uint32_t kind;     /* IPR_COUNTER_... */
  uint32_t reserved;
} ipr_counter;

/* Out struct of `describe_counters`. */
typedef struct ipr_counters {
  uint64_t struct_size;
  uint64_t counter_count;
  uint64_t counter_stride;
  const ipr_counter* counters;
  void* owner;
  void (*release)(void* owner);
} ipr_counters;

/* One moment on the clock of a device and on that of the host. Out struct of `correlate`. */
typedef struct ipr_clock {
  uint64_t struct_size;
  int64_t device_ns;
  int64_t host_ns;  /* CLOCK_MONOTONIC */
  int64_t error_ns; /* by how much the two may be apart; not negative */
} ipr_clock;

/* Any thread calls these functions, also while others are in `execute`. A backend measures only between `enable` with 1
 * and with 0, as measuring costs time. */
typedef struct ipr_profiling_api {
  uint64_t struct_size;

  /* Describe the counters. The result is the same as long as the library is open. */
  int32_t (*describe_counters)(void* self, ipr_counters* out, ipr_error* error);

  /* Begin (1) or end (0) to measure. Intervals that were not collected remain until the next `enable` with 1. */
  int32_t (*enable)(void* self, int32_t on, ipr_error* error);

  /* Move up to `capacity` intervals, the oldest first, to an array with `stride` bytes for each, which is at least the
   * size of an ipr_interval. Write how many there were, and how many the backend has dropped since the last call
   * because it had no room for them. The host calls until fewer than `capacity` are written. */
  int32_t (*collect)(void* self, uint64_t capacity, uint64_t stride, ipr_interval* out, uint64_t* out_count,
                     uint64_t* out_lost, ipr_error* error);

  /* Write the present value of each counter, in the order of `describe_counters`. */
  int32_t (*read_counters)(void* self, uint64_t count, double* out_values, ipr_error* error);

  /* Read the clock of a device that an interval names, and that of the host. */
  int32_t (*correlate)(void* self, ipr_string device, ipr_clock* out, ipr_error* error);

  /* Optional: NULL, or a `struct_size` that ends before it. Capture these counters, as indices of
   * `describe_counters`, about every `period_us` microseconds, and no others. A period of 0 and no counters end it. The
   * host calls it each time that a recorder or a collector selects others, also while others are in `execute`; an
   * error is shown to the user. Hosts that do not know this function read all counters. */
  int32_t (*select_counters)(void* self, uint64_t period_us, uint64_t count, const uint64_t* indices, ipr_error* error);
} ipr_profiling_api;

/* ---- Extension "ipr.async/1": runs that are submitted and complete later (experimental) --------------------------
 *
 * Experimental: this extension may still change, and its name will then end with another number. Everything above is
 * frozen.
 *
 * A queue runs its submissions in their order. They are numbered 1, 2, 3 ... An event is a point on the timeline of a
 * queue: the submission with that number is over. Events have no lifetime, and their state is read from memory.
 *
 *   A submission is   waiting -> ready -> running -> over. It ends with
 *                     IPR_OK; or the status of its failure (IPR_FAILED, IPR_INVALID_VALUE, IPR_OUT_OF_MEMORY ...);
 *                     IPR_SKIPPED if a point that it waits for failed, or an earlier submission of its queue;
 *                     IPR_CANCELLED if `cancel` was called before it ended well;
 *                     IPR_DEADLINE if `ipr_run.deadline_ns` had passed and it gave up;
 *                     IPR_DEVICE_LOST if the device failed: so do all others, and `submit` from then on.
 *   A queue is        good -> failed (after the first submission that did not end with IPR_OK) -> good after `reset`.
 *                     A queue whose device is lost stays so.
 *
 * Order.      Within a queue, submissions begin and end in their order. Those of different queues are ordered only by
 *             `waits`. The host waits only for what was submitted already, and for gates.
 * Visibility. A thread that reads `ipr_timeline.completed` >= n with acquire order sees all that the submissions up to
 *             n have written to memory of the host.
 * Lifetimes.  Executables, pools, tensors, imported memory, constants, workspaces and gates stay valid until all
 *             submissions that use them are over. The host ends objects in this order: tensors, pools, queues, then the
 *             backend.
 * Errors.     The first failure is the cause. IPR_SKIPPED carries the message of the cause, with its queue and number.
 *             IPR_INVALID_VALUE of a submission is no failure of the backend; the queue is `failed` until `reset`.
 * Hanging.    After a deadline, the host calls `cancel` and waits for some seconds. If a submission is still not over,
 *             its memory, queue and executable are never used, destroyed or released again, and neither `shutdown` nor
 *             any other function is called.
 * Threads.    Those of the backend may write to timelines and call `ipr_timeline.wake`, besides `ipr_log` and the
 *             allocator of the host.
 * `execute`   stays synchronous. A backend with this extension has it too: for shapes that are found in the run, and for
 *             hosts without queues. It may be called while submissions are in progress.
 */

#define IPR_SKIPPED 13 /* not run, because a submission that it depends on failed */

/* The progress of a queue, in memory of the host, which is valid until `destroy_queue` returns. Any thread of the
 * backend writes it: `failed` before `completed` reaches that number, both with release order. Both only grow, except
 * that `reset` writes 0 to `failed`. */
typedef struct ipr_timeline {
  uint64_t struct_size;
  uint64_t completed; /* all submissions up to this number are over, well or not */
  uint64_t failed;    /* the first submission that did not end with IPR_OK; 0: none. All after it end with IPR_SKIPPED */
                      /* or IPR_CANCELLED */
  int32_t wake_fd;    /* an eventfd of the host, for `notify` */
  uint32_t reserved;
  int32_t (*wake)(int32_t fd, uint64_t one); /* wake(wake_fd, 1) makes it readable; native, for any thread */
} ipr_timeline;

/* ipr_point.kind: what a submission waits for, one bit each. */
#define IPR_POINT_QUEUE 1u         /* `handle`: a queue of this backend; `value`: the number of a submission to it */
#define IPR_POINT_GATE 2u          /* `handle`: a gate of this backend, which the host will open */
#define IPR_POINT_TIMELINE 4u      /* `handle`: the address of the ipr_timeline of another queue; `value`: a number */
#define IPR_POINT_SYNC_FD 8u       /* `handle`: a sync file, which the backend duplicates during the call */
#define IPR_POINT_SEMAPHORE_FD 16u /* `handle`: a timeline semaphore (Vulkan, CUDA, Level Zero); `value`: its value */

/* Something to wait for. A failed point fails what waits for it. Element of an array. */
typedef struct ipr_point {
  uint32_t kind; /* IPR_POINT_... */
  uint32_t reserved;
  uint64_t handle;
  uint64_t value;
} ipr_point;

/* What to do: run an executable, or copy a tensor. The structs and tables are read during the call of `submit`; the
 * memory of tensors, the workspace and `run->cancel` are used until the submission is over. */
typedef struct ipr_submission {
  uint64_t struct_size;
  void* executable;         /* ipr_executable.handle; NULL: a copy */
  const ipr_run* run;       /* of an executable; `run->resize` is NULL */
  void* pool;               /* of a copy: as in ipr_handles_api.copy. With IPR_FACTORY_PEER_COPIES, both tensors may be */
  const ipr_tensor* source; /* private, and the pool is that of the target */
  const ipr_tensor* target;
  uint64_t wait_count;
  uint64_t wait_stride;
  const ipr_point* waits;   /* all must be over, with IPR_OK, before it begins */
} ipr_submission;

#define IPR_ASYNC_COPIES UINT64_C(1)      /* ipr_async_api.flags: submissions can be copies */
#define IPR_ASYNC_COPY_ENGINE UINT64_C(2) /* copies run at the same time as executables of other queues */

typedef struct ipr_async_api {
  uint64_t struct_size;
  uint32_t wait_kinds;   /* IPR_POINT_... that submissions can wait for; IPR_POINT_QUEUE always */
  uint32_t export_kinds; /* IPR_POINT_... that `export_point` can write */
  uint64_t flags;        /* IPR_ASYNC_... */

  /* Create a queue on the device that the options name. The host creates one for each run at a time, and reuses it. */
  int32_t (*create_queue)(void* self, const ipr_options* options, ipr_timeline* timeline, void** out_queue,
                          ipr_error* error);
  /* Called when all submissions are over, or none was made. */
  void (*destroy_queue)(void* self, void* queue);

  /* Submit one run or one copy, and write its number. Returns soon, whatever it waits for. Called by one thread at a
   * time for each queue. If it fails, nothing was submitted and no number is used. */
  int32_t (*submit)(void* self, void* queue, const ipr_submission* submission, uint64_t* out_number, ipr_error* error);

  /* The following functions are called by any thread, also while others are in `submit` and `wait`. */

  /* Wait until a submission is over, well or not: IPR_OK. IPR_DEADLINE if it is not over at `deadline_ns` of
   * CLOCK_MONOTONIC; 0 waits without a limit. */
  int32_t (*wait)(void* self, void* queue, uint64_t number, int64_t deadline_ns, ipr_error* error);
  /* Return how a submission that is over has ended, with the error. Of those that ended well, and of those before the
   * last `reset`, nothing needs to be remembered: IPR_OK. */
  int32_t (*result)(void* self, void* queue, uint64_t number, ipr_error* error);
  /* Call `wake` of the timeline when a submission is over, or now if it is. Additional calls of `wake` are allowed: the
   * host reads the timeline. */
  int32_t (*notify)(void* self, void* queue, uint64_t number, ipr_error* error);
  /* All submissions that have not begun end with IPR_CANCELLED; the one that runs should end soon. */
  int32_t (*cancel)(void* self, void* queue, ipr_error* error);
  /* Called when everything is over and nothing waits for it: forget the failure. Numbers go on. */
  int32_t (*reset)(void* self, void* queue, ipr_error* error);

  /* Optional: NULL, or a `struct_size` that ends before it. */

  /* From here on, all that was submitted gets done without further calls. NULL: this is always so. */
  int32_t (*flush)(void* self, void* queue, ipr_error* error);
  /* With IPR_POINT_GATE. A gate is opened once: with IPR_OK, or with a status, and what waits for it then ends with
   * IPR_SKIPPED. Gates are destroyed when nothing waits for them any more. */
  int32_t (*create_gate)(void* self, const ipr_options* options, uint64_t* out_gate, ipr_error* error);
  void (*open_gate)(void* self, uint64_t gate, int32_t status);
  void (*destroy_gate)(void* self, uint64_t gate);
  /* With `export_kinds`. Write a point of that kind; a file descriptor in it belongs to the host from then on. */
  int32_t (*export_point)(void* self, void* queue, uint64_t number, uint32_t kind, ipr_point* out, ipr_error* error);
} ipr_async_api;

/* ---- Extension "ipr.devices/1": several devices of one backend (experimental) ------------------------------------
 *
 * A backend with this extension declares the option "Device" (IPR_KIND_INT, IPR_SCOPE_MODEL or both scopes, default 0).
 * The host sets it to the index of a device in all ipr_options that concern this device: query_support, optimize,
 * compile, blobs, handles, queues. Users name the device "Id:1" or "Id:" followed by ipr_device.id. Each device is a
 * backend of its own for them; "Id" alone is the first one.
 *
 * Fingerprints of blobs contain the device and its driver. Ids of tensor handle factories differ from device to device.
 */

/* ipr_device.type */
#define IPR_DEVICE_CPU 1u
#define IPR_DEVICE_GPU 2u
#define IPR_DEVICE_NPU 3u
#define IPR_DEVICE_DSP 4u
#define IPR_DEVICE_FPGA 5u
#define IPR_DEVICE_OTHER 100u

#define IPR_DEVICE_UNIFIED UINT64_C(1)   /* ipr_device.flags: shares memory with the host */
#define IPR_DEVICE_SIMULATED UINT64_C(2) /* runs on the processor of the host, for tests */
#define IPR_DEVICE_DISPLAY UINT64_C(4)   /* also drives a display, so that long kernels may be interrupted */

/* ipr_factory.flags: `copy` also copies between two tensors in private memory of this backend, of any pool and device.
 * The numbers of all its tensors then differ. */
#define IPR_FACTORY_PEER_COPIES UINT64_C(8)

/* A device. Element of an array; the index in it is the value of the option "Device". */
typedef struct ipr_device {
  ipr_string id; /* unique among the devices of the backend, and the same in other processes: "pci:0000:41:00.0" ... */
  ipr_string name;
  ipr_string vendor;
  ipr_string driver;       /* its version */
  uint32_t type;           /* IPR_DEVICE_CPU ... */
  uint32_t memory_kinds;   /* IPR_MEMORY_... that it can use without a copy */
  uint64_t flags;          /* IPR_DEVICE_UNIFIED ... */
  uint64_t memory;         /* bytes; 0: unknown */
  uint64_t memory_free;    /* at the time of the call; 0: unknown */
  uint64_t largest;        /* bytes of the largest allocation; 0: unknown */
  uint32_t queue_limit;    /* queues that run at the same time; 0: unknown */
  int32_t dlpack_type;     /* DLDeviceType, and the number of the device; 0 if DLPack does not know it */
  int32_t dlpack_id;
  uint32_t reserved;
  const uint8_t* uuid;     /* 16 bytes as in Vulkan, by which backends know that they share a device; may be NULL */
  uint64_t property_count; /* named capabilities of this device, as in ipr_info */
  uint64_t property_stride;
  const ipr_property* properties;
} ipr_device;

/* Out struct of `describe`. */
typedef struct ipr_devices {
  uint64_t struct_size;
  uint64_t device_count; /* at least 1; the same in every call until `shutdown` */
  uint64_t device_stride;
  const ipr_device* devices;
  void* owner;
  void (*release)(void* owner);
} ipr_devices;

typedef struct ipr_devices_api {
  uint64_t struct_size;

  /* Describe all devices; only `memory_free` may change between calls. */
  int32_t (*describe)(void* self, ipr_devices* out, ipr_error* error);
} ipr_devices_api;

/* ---- The three functions that a backend exports ------------------------------------------------------------------ */

/* The id of the backend: not empty, not "Unknown", without blanks, commas and colons; valid as long as the library is
 * open. */
IPR_EXPORT const char* GetBackendId(void);

/* Write IPR_API_MAJOR and IPR_API_MINOR; a backend that exports SetHostVersion may write an older minor number. */
IPR_EXPORT void GetVersion(uint32_t* out_major, uint32_t* out_minor);

/* Optional. The host calls this function with its own version of the interface, each time directly before it calls
 * GetVersion. One binary can thus use version 1.2 on a host of 1.2 or later, and still load on a host of 1.0: its
 * GetVersion returns the smaller of the two minor numbers. Hosts of the first release of 1.0 do not call it; a
 * backend that received no version assumes 1.0. */
IPR_EXPORT void SetHostVersion(uint32_t major, uint32_t minor);

/* Optional. The revision of the vocabulary that the backend knows, IPR_VOCABULARY_REVISION of the header that it was
 * written to. The host never shows names that are newer: it withholds layers that need such a name, and leaves out
 * attributes that have their default. A backend that does not export this function knows revision 0. */
IPR_EXPORT uint32_t GetVocabularyRevision(void);

/* Return a `const ipr_backend*`, valid as long as the library is open; NULL if the backend cannot be created. Called
 * once, and again after `shutdown` or a failed `init`; the table of the previous call is not used any more then. */
IPR_EXPORT void* BackendFactory(void);

/* ---- The layout of structs: the offset of the last member of version 1.0 ----------------------------------------- */

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
IPR_LAST(ipr_executable_memory_api, restore, 16);
IPR_LAST(ipr_in_place_api, inputs_of_outputs, 8);
IPR_LAST(ipr_interval, reserved, 76);
IPR_LAST(ipr_counter, reserved, 92);
IPR_LAST(ipr_counters, release, 40);
IPR_LAST(ipr_clock, error_ns, 24);
IPR_LAST(ipr_profiling_api, correlate, 40);
IPR_LAST(ipr_tensor, dtype, 48); /* after a DLTensor */
#undef IPR_LAST

/* ---- Inline functions for all backends --------------------------------------------------------------------------- */

/* A text of constant characters: IPR_STRING("abc"). */
#ifdef __cplusplus
#define IPR_STRING(literal) ipr_string{literal, sizeof(literal) - 1}
#else
#define IPR_STRING(literal) ((ipr_string){literal, sizeof(literal) - 1})
#endif

/* Return whether a text equals one that is terminated by NUL. */
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

/* The info of an operand or result of a layer; NULL if it is absent or the layer has fewer. */
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

/* The attribute with a name; NULL if the layer does not have it. */
static inline const ipr_attribute* ipr_find(const ipr_graph* graph, const ipr_layer* layer, const char* name) {
  uint64_t n;
  for (n = 0; n < layer->attribute_count; ++n)
    if (ipr_equal(ipr_attribute_at(graph, layer, n)->name, name)) return ipr_attribute_at(graph, layer, n);
  return NULL;
}

/* The option with a name; NULL if it was not set. */
static inline const ipr_attribute* ipr_find_option(const ipr_options* options, const char* name) {
  uint64_t n;
  for (n = 0; options != NULL && n < options->count; ++n)
    if (ipr_equal(ipr_option_at(options, n)->name, name)) return ipr_option_at(options, n);
  return NULL;
}

/* The number of elements of a tensor; -1 if a dimension is unknown. */
static inline int64_t ipr_elements(const int64_t* shape, int32_t rank) {
  int64_t product = 1;
  int32_t n;
  for (n = 0; n < rank; ++n) {
    if (shape[n] < 0) return -1;
    product *= shape[n];
  }
  return product;
}

/* Fill in an error and return its status: `return ipr_fail(error, IPR_UNSUPPORTED, IPR_ITEM_LAYER, 3, "no int8");` */
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

/* Report an element of an operand that is not from `lowest` to `highest`; `layer` is its index in the compiled graph. */
static inline int32_t ipr_fail_value(ipr_error* error, int64_t layer, int32_t operand, int64_t element, int64_t value,
                                     int64_t lowest, int64_t highest, const char* message) {
  ipr_value_error* details = (ipr_value_error*)(void*)error;
  if (error == NULL || error->struct_size < sizeof(ipr_value_error))
    return ipr_fail(error, IPR_INVALID_VALUE, IPR_ITEM_LAYER, layer, message);
  details->known = IPR_VALUE_OPERAND | IPR_VALUE_ELEMENT | IPR_VALUE_VALUE | IPR_VALUE_LOWEST | IPR_VALUE_HIGHEST;
  details->operand = operand;
  details->element = element;
  details->value = value;
  details->lowest = lowest;
  details->highest = highest;
  return ipr_fail(error, IPR_INVALID_VALUE, IPR_ITEM_LAYER, layer, message);
}

/* Log a text that is terminated by NUL. Any thread may call it; it never waits; long lines are truncated. */
#if defined(__GNUC__) || defined(__clang__)
static inline void ipr_log(const ipr_host* host, int32_t level, const char* message) {
  ipr_log_ring* ring = host == NULL ? NULL : host->log;
  ipr_log_slot* slot;
  char* text;
  uint64_t number, n = 0;
  if (ring == NULL || level < __atomic_load_n(&ring->level, __ATOMIC_RELAXED)) return;
  number = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  do {
    /* Signed, because other threads may have advanced the tail beyond this number. */
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
