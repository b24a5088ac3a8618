/* The delegate for LiteRT and TensorFlow Lite: the functions that the host calls. Invocations run here if the kernel is
 * one compiled part of a native backend; all else is in the Python package `interposer.bridges.litert`. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bridge.h"

/* ---- The host's structs ------------------------------------------------------------------------------------------ */

/* As far as this file uses them; `interposer.bridges.litert.abi` has all of their members, and a test compares both. */
typedef struct Context Context;
typedef struct Node Node;
typedef struct Delegate Delegate;

typedef struct {
  int type;
  void* data;
  void* dims;
  float scale;
  int32_t zero_point;
  int allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  void* delegate;
  int buffer_handle;
  bool is_stale, is_variable;
  int quantization_type;
  void *quantization, *sparsity;
  const void* dims_signature;
} Tensor;

typedef int Status;
enum { kOk = 0, kError = 1, kDelegateOperator = 51 };

/* Hosts get this struct by value, and later ones have more members at its end: these are zero. */
typedef struct {
  void* (*init)(Context*, const char*, size_t);
  void (*free)(Context*, void*);
  Status (*prepare)(Context*, Node*);
  Status (*invoke)(Context*, Node*);
  void* profiling_string;
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* later[16];
} Registration;

struct Context {
  size_t tensors_size;
  void* get_execution_plan;
  Tensor* tensors;
  void* impl;
  Status (*resize_tensor)(Context*, Tensor*, int* shape);
  void (*report_error)(Context*, const char*, ...);
  void *add_tensors, *get_node_and_registration;
  Status (*replace_nodes)(Context*, Registration, const int* nodes, Delegate*);
};

struct Node {
  int *inputs, *outputs, *intermediates, *temporaries;
  void* user_data;
};

typedef struct {
  Delegate* delegate;
  int *nodes, *inputs, *outputs;
} DelegateParams;

struct Delegate {
  void* data;
  Status (*prepare)(Context*, Delegate*);
  void *copy_from, *copy_to, *free_handle;
  int64_t flags;
  void* later[16]; /* hosts read members that they have added at the end: these are zero */
  uint64_t number; /* of the delegate in Python; not a member that hosts know */
};

enum { kAllowDynamicTensors = 1 };

/* For the test that compares the structs with those of `abi`: sizes, and offsets of last members. */
BRIDGE_EXPORT void interposer_bridge_litert_layout(size_t facts[6]) {
  facts[0] = sizeof(Tensor);
  facts[1] = offsetof(Tensor, data);
  facts[2] = offsetof(Tensor, bytes);
  facts[3] = offsetof(Context, replace_nodes);
  facts[4] = offsetof(Node, user_data);
  facts[5] = offsetof(Registration, version);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* A group of nodes that a delegate took, as one node of the host. */
typedef struct {
  uint64_t number; /* of the kernel in Python; 0 if Python could not create it */
  _Atomic uint64_t runs, direct_runs, nanoseconds;
  bridge_direct* direct;
  int* tensors; /* the indices of the direct run's inputs, then those of its outputs */
  void** addresses;
} Kernel;

static Status report(Context* context, const char* text) {
  context->report_error(context, "Interposer: %s\n", text);
  return kError;
}

/* Call a function of `interposer.bridges.litert.delegate` that returns a status. */
static Status call(const char* function, Context* context, uint64_t first, uint64_t second) {
  uint64_t status = kError;
  if (!BRIDGE_CALL(function, &status, BRIDGE_WORD(context), first, second)) return report(context, bridge_problem());
  return (Status)status;
}

static void* kernel_init(Context* context, const char* buffer, size_t size) {
  (void)size;
  const DelegateParams* params = (const DelegateParams*)buffer;
  Kernel* kernel = calloc(1, sizeof *kernel);
  if (!kernel) return NULL;
  if (!BRIDGE_CALL("litert.delegate:create_kernel", &kernel->number, BRIDGE_WORD(context), params->delegate->number,
                   BRIDGE_WORD(params), BRIDGE_WORD(kernel)))
    report(context, bridge_problem());
  return kernel;
}

/* When Python is ending, its reports cannot drop the kernel and may still read its counts, so it is not freed then. */
static void kernel_free(Context* context, void* data) {
  (void)context;
  Kernel* kernel = data;
  uint64_t ignored;
  if (!kernel) return;
  if (kernel->number && !BRIDGE_CALL("litert.delegate:free_kernel", &ignored, kernel->number)) return;
  free(kernel->tensors);
  free(kernel->addresses);
  free(kernel);
}

static Status kernel_prepare(Context* context, Node* node) {
  const Kernel* kernel = node->user_data;
  if (!kernel || !kernel->number) return report(context, "the nodes that were taken have no kernel");
  return call("litert.delegate:prepare_kernel", context, BRIDGE_WORD(node), kernel->number);
}

/* Run the kernel without Python; return false if Python has to run it. */
static bool run_directly(const Context* context, const Kernel* kernel) {
  size_t inputs = bridge_direct_inputs(kernel->direct), outputs = bridge_direct_outputs(kernel->direct);
  for (size_t n = 0; n < inputs + outputs; ++n) {
    const Tensor* tensor = &context->tensors[kernel->tensors[n]];
    if (n < inputs && tensor->bytes != bridge_direct_input_size(kernel->direct, n)) return false;
    kernel->addresses[n] = tensor->data;
  }
  return bridge_direct_run(kernel->direct, kernel->addresses, kernel->addresses + inputs);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void add(_Atomic uint64_t* counter, uint64_t number) {
  atomic_fetch_add_explicit(counter, number, memory_order_relaxed);
}

static Status kernel_invoke(Context* context, Node* node) {
  Kernel* kernel = node->user_data;
  uint64_t begin = now();
  bool direct = kernel->direct && run_directly(context, kernel);
  Status status = direct ? kOk : call("litert.delegate:run_kernel", context, BRIDGE_WORD(node), kernel->number);
  add(&kernel->runs, 1);
  add(&kernel->direct_runs, direct);
  add(&kernel->nanoseconds, now() - begin);
  return status;
}

/* The number of runs of a kernel, how many of them needed no Python, and the nanoseconds of all of them. */
BRIDGE_EXPORT void interposer_bridge_litert_counts(const Kernel* kernel, uint64_t counts[3]) {
  counts[0] = kernel->runs;
  counts[1] = kernel->direct_runs;
  counts[2] = kernel->nanoseconds;
}

/* Let a kernel run directly on the host's tensors with these indices, or not if `direct` is NULL. Returns false if
 * there is not enough memory. No thread may be running the kernel. */
BRIDGE_EXPORT bool interposer_bridge_litert_direct(Kernel* kernel, bridge_direct* direct, const int* tensors) {
  free(kernel->tensors);
  free(kernel->addresses);
  memset(&kernel->direct, 0, sizeof *kernel - offsetof(Kernel, direct));
  if (!direct) return true;
  size_t count = bridge_direct_inputs(direct) + bridge_direct_outputs(direct);
  kernel->tensors = malloc((count + 1) * sizeof *kernel->tensors);
  kernel->addresses = malloc((count + 1) * sizeof *kernel->addresses);
  if (!kernel->tensors || !kernel->addresses) return false;
  memcpy(kernel->tensors, tensors, count * sizeof *tensors);
  kernel->direct = direct;
  return true;
}

/* ---- The delegate ------------------------------------------------------------------------------------------------ */

/* An interruption leaves all nodes to the host. */
static Status delegate_prepare(Context* context, Delegate* delegate) {
  uint64_t status = kError;
  if (BRIDGE_TRY("litert.delegate:prepare", &status, BRIDGE_WORD(context), BRIDGE_WORD(delegate), delegate->number))
    return (Status)status;
  return bridge_interrupted() ? kOk : report(context, bridge_problem());
}

/* Let the host replace nodes by kernels. `nodes` has their numbers, preceded by their count. */
BRIDGE_EXPORT Status interposer_bridge_litert_replace(Context* context, const int* nodes, Delegate* delegate) {
  const Registration registration = {
      .init = kernel_init,
      .free = kernel_free,
      .prepare = kernel_prepare,
      .invoke = kernel_invoke,
      .builtin_code = kDelegateOperator,
      .custom_name = "InterposerDelegate",
      .version = 1,
  };
  return context->replace_nodes(context, registration, nodes, delegate);
}

/* Give a tensor a shape; `shape` has its dimensions, preceded by their number. The host frees the copy that it gets. */
BRIDGE_EXPORT Status interposer_bridge_litert_resize(Context* context, Tensor* tensor, const int* shape) {
  size_t size = (size_t)(shape[0] + 1) * sizeof *shape;
  int* copy = malloc(size);
  if (!copy) return kError;
  memcpy(copy, shape, size);
  return context->resize_tensor(context, tensor, copy);
}

/* Report an error of a node or of the delegate to the host, which raises it or writes it to its log. */
BRIDGE_EXPORT void interposer_bridge_litert_report(Context* context, const char* text) { report(context, text); }

BRIDGE_EXPORT void* tflite_plugin_create_delegate(const char* const* keys, const char* const* values, size_t count,
                                                  void (*report_error)(const char*)) {
  Delegate* delegate = calloc(1, sizeof *delegate);
  if (!delegate) return NULL;
  delegate->prepare = delegate_prepare;
  delegate->flags = kAllowDynamicTensors;
  bool called = BRIDGE_CALL("litert.delegate:create", &delegate->number, BRIDGE_WORD(keys), BRIDGE_WORD(values), count,
                            BRIDGE_WORD(report_error));
  if (called && delegate->number) return delegate;
  if (!called && report_error) report_error(bridge_problem());
  free(delegate);
  return NULL;
}

BRIDGE_EXPORT void tflite_plugin_destroy_delegate(void* data) {
  Delegate* delegate = data;
  uint64_t ignored;
  if (!delegate) return;
  BRIDGE_CALL("litert.delegate:destroy", &ignored, delegate->number);
  free(delegate);
}
