/* A discrete device: it adds, clamps at zero and joins float32 tensors in memory of its own, which cannot be mapped.
 * Rows of its tensors begin at multiples of 32 bytes; its own copies, which are counted, bring them in and out. With
 * -DFACTORY_FLAGS=... it says something else of its memory; an allocator of the user gives that, where there is one. */

#include <stdlib.h>
#include <string.h>

#include "interposer/backend.h"

#ifndef FACTORY_FLAGS
#define FACTORY_FLAGS (IPR_FACTORY_DEVICE_COPIES | IPR_FACTORY_SUB_TENSORS)
#endif
#ifndef AT_COPY
#define AT_COPY
#endif
#ifndef AT_CREATE
#define AT_CREATE
#endif

#ifndef AT_DESCRIBE
#define AT_DESCRIBE
#endif

#define ROW 32u
#define RANKS 8
#define FACTORY_ID "Tests/Discrete/Rows"

typedef struct tensor {
  struct tensor *whole, *next;
  int32_t rank;
  int64_t shape[RANKS], strides[RANKS]; /* strides in bytes */
  size_t item, room, offset;            /* offset: from the heap's or the whole's beginning */
  uint64_t begins, ends;                /* moments; 0 where it is alone */
  char* own;
  struct pool* pool;
} tensor;

typedef struct pool {
  tensor* tensors;
  uint64_t moment;
  size_t size;
  char* heap;
  ipr_allocator allocator;
} pool;

/* What tests look at: copies to the device and from it, their bytes, nanoseconds that a bus would need, pools, tensors. */
IPR_EXPORT uint64_t discrete_counters[7];
enum { UPLOADS, DOWNLOADS, UPLOADED, DOWNLOADED, NANOSECONDS, POOLS, TENSORS };

static int32_t fail(ipr_error* error, int32_t status, const char* message) {
  return ipr_fail(error, status, IPR_ITEM_NONE, -1, message);
}

IPR_EXPORT const char* GetBackendId(void) { return "DiscreteC"; }

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) {
  *major = IPR_API_MAJOR;
  *minor = IPR_API_MINOR;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void* get_memory(pool* p, size_t size) {
  void* data = NULL;
  if (p->allocator.allocate == NULL) return aligned_alloc(64, (size + 64) / 64 * 64);
  return p->allocator.allocate(p->allocator.self, size + ROW, ROW, &data) == IPR_OK ? data : NULL;
}

static void drop_memory(pool* p, void* data) {
  if (data == NULL) return;
  if (p->allocator.allocate == NULL) free(data);
  else p->allocator.free(p->allocator.self, data);
}

static char* data_of(const tensor* t) {
  if (t->whole != NULL) return data_of(t->whole) + t->offset;
  return t->own != NULL ? t->own : t->pool->heap + t->offset;
}

static void lay_out(tensor* t, const ipr_tensor_info* info, const int64_t* strides) {
  int32_t axis;
  int64_t step = 0;
  t->rank = info->rank;
  t->item = 4;
  for (axis = info->rank - 1; axis >= 0; --axis) {
    t->shape[axis] = info->shape[axis];
    if (strides != NULL) t->strides[axis] = strides[axis];
    else t->strides[axis] = axis == info->rank - 1 ? (int64_t)t->item : step;
    step = axis == info->rank - 1 ? (t->shape[axis] * (int64_t)t->item + ROW - 1) / ROW * ROW : step * t->shape[axis];
  }
  t->room = info->rank > 0 ? (size_t)step : ROW;
}

static int32_t describe(void* self, const ipr_options* options, ipr_factories* out, ipr_error* error) {
  static const ipr_factory factory = {{FACTORY_ID, sizeof FACTORY_ID - 1}, FACTORY_FLAGS, 0, 0};
  static const ipr_string preference = {FACTORY_ID, sizeof FACTORY_ID - 1};
  (void)self, (void)options, (void)error;
  out->factory_count = 1;
  out->factory_stride = sizeof factory;
  out->factories = &factory;
  out->preference_count = 1;
  out->preferences = &preference;
  AT_DESCRIBE
  return IPR_OK;
}

static int32_t create_pool(void* self, const ipr_options* options, void** out, ipr_error* error) {
  (void)self, (void)options, (void)error;
  *out = calloc(1, sizeof(pool));
  ++discrete_counters[POOLS];
  return *out == NULL ? IPR_OUT_OF_MEMORY : IPR_OK;
}

static void destroy_pool(void* self, void* p) {
  (void)self;
  drop_memory(p, ((pool*)p)->heap);
  free(p);
  --discrete_counters[POOLS];
}

/* A tensor that lives at the same time and lies where this one would; NULL where there is none. */
static const tensor* in_the_way(const pool* p, const tensor* one, size_t offset) {
  const tensor* other;
  for (other = p->tensors; other != NULL; other = other->next) {
    int placed = other != one && other->begins > 0 && other->offset != SIZE_MAX;
    int together = placed && other->begins <= one->ends && one->begins <= other->ends;
    if (together && offset < other->offset + other->room && other->offset < offset + one->room) return other;
  }
  return NULL;
}

/* Place every tensor at the lowest gap between those that live at the same time. */
static int32_t acquire(void* self, void* the_pool, ipr_error* error) {
  pool* p = the_pool;
  tensor* one;
  (void)self;
  p->size = 0;
  for (one = p->tensors; one != NULL; one = one->next)
    if (one->begins > 0) one->offset = SIZE_MAX;
  for (one = p->tensors; one != NULL; one = one->next) {
    const tensor* other;
    size_t offset = 0;
    if (one->begins == 0) continue;
    while ((other = in_the_way(p, one, offset)) != NULL) offset = other->offset + other->room;
    one->offset = offset;
    if (p->size < offset + one->room) p->size = offset + one->room;
  }
  p->heap = get_memory(p, p->size);
  if (p->heap == NULL) return fail(error, IPR_OUT_OF_MEMORY, "the device has no more memory");
  memset(p->heap, 0xA5, p->size);
  return IPR_OK;
}

static int32_t give_back(void* self, void* the_pool, ipr_error* error) {
  pool* p = the_pool;
  (void)self, (void)error;
  drop_memory(p, p->heap);
  p->heap = NULL;
  return IPR_OK;
}

static int32_t create_tensor(void* self, void* the_pool, uint64_t factory, const ipr_tensor_info* info, uint64_t flags,
                             uint64_t* out, ipr_error* error) {
  pool* p = the_pool;
  tensor* t = calloc(1, sizeof *t);
  (void)self, (void)factory, (void)flags;
  AT_CREATE
  if (t == NULL) return fail(error, IPR_OUT_OF_MEMORY, "no memory for a tensor's description");
  t->pool = p;
  lay_out(t, info, NULL);
  t->next = p->tensors;
  p->tensors = t;
  ++discrete_counters[TENSORS];
  *out = (uint64_t)(uintptr_t)t;
  return IPR_OK;
}

static tensor* tensor_of(uint64_t number) { return (tensor*)(uintptr_t)number; }

static int32_t create_sub_tensor(void* self, void* the_pool, uint64_t whole, const int64_t* origin,
                                 const ipr_tensor_info* info, uint64_t* out, ipr_error* error) {
  int32_t status = create_tensor(self, the_pool, 0, info, 0, out, error), axis;
  tensor *t, *of = tensor_of(whole);
  if (status != IPR_OK) return status;
  t = tensor_of(*out);
  lay_out(t, info, of->strides);
  t->whole = of;
  for (axis = 0; axis < t->rank; ++axis) t->offset += (size_t)(origin[axis] * of->strides[axis]);
  return IPR_OK;
}

static void destroy_tensor(void* self, void* the_pool, uint64_t number) {
  pool* p = the_pool;
  tensor *t = tensor_of(number), **link = &p->tensors;
  (void)self;
  while (*link != t) link = &(*link)->next;
  *link = t->next;
  drop_memory(p, t->own);
  free(t);
  --discrete_counters[TENSORS];
}

static int32_t manage(void* self, void* the_pool, uint64_t number, ipr_error* error) {
  pool* p = the_pool;
  (void)self, (void)error;
  tensor_of(number)->begins = tensor_of(number)->ends = ++p->moment;
  return IPR_OK;
}

static int32_t allocate(void* self, void* the_pool, uint64_t number, ipr_error* error) {
  pool* p = the_pool;
  tensor* t = tensor_of(number);
  (void)self;
  if (t->begins > 0) {
    t->ends = ++p->moment;
    return IPR_OK;
  }
  t->own = get_memory(p, t->room);
  return t->own != NULL ? IPR_OK : fail(error, IPR_OUT_OF_MEMORY, "the device has no more memory");
}

static int32_t no_map(void* self, void* p, uint64_t number, void** out, ipr_error* error) {
  (void)self, (void)p, (void)number, (void)out;
  return fail(error, IPR_UNSUPPORTED, "the memory of the device cannot be mapped");
}

static int32_t no_unmap(void* self, void* p, uint64_t number, ipr_error* error) {
  (void)self, (void)p, (void)number, (void)error;
  return IPR_OK;
}

static int32_t no_import(void* self, void* p, uint64_t number, const ipr_tensor* memory, ipr_error* error) {
  (void)self, (void)p, (void)number, (void)memory;
  return fail(error, IPR_UNSUPPORTED, "nothing is imported");
}

static int32_t no_export(void* self, void* p, uint64_t number, uint32_t kind, ipr_tensor* out, ipr_error* error) {
  (void)self, (void)p, (void)number, (void)kind, (void)out;
  return fail(error, IPR_UNSUPPORTED, "nothing is exported");
}

/* Calls `work` for each row: where it lies in each of up to three tensors of one shape, and how many numbers it has. */
typedef void (*row_work)(char* const* rows, int64_t count);

typedef struct view {
  char* data;
  const int64_t* strides;
} view;

static void each_row(const view* views, int count, const int64_t* shape, int32_t rank, row_work work) {
  int64_t index[RANKS] = {0}, rows = 1;
  int32_t axis;
  int n;
  for (axis = 0; axis < rank - 1; ++axis) rows *= shape[axis];
  for (; rows > 0; --rows) {
    char* places[3] = {NULL, NULL, NULL};
    for (n = 0; n < count; ++n) {
      places[n] = views[n].data;
      for (axis = 0; axis < rank - 1; ++axis) places[n] += index[axis] * views[n].strides[axis];
    }
    work(places, rank > 0 ? shape[rank - 1] : 1);
    for (axis = rank - 2; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
}

static void copy_row(char* const* rows, int64_t count) { memcpy(rows[1], rows[0], (size_t)count * 4); }

static int32_t copy(void* self, void* p, const ipr_tensor* source, const ipr_tensor* target, ipr_error* error) {
  int upload = target->memory_kind == IPR_MEMORY_PRIVATE, axis;
  const ipr_tensor* host = upload ? source : target;
  const tensor* t = tensor_of(upload ? target->native_handle : source->native_handle);
  int64_t strides[RANKS], step = 4;
  view views[2];
  (void)self, (void)p, (void)error;
  AT_COPY
  for (axis = t->rank - 1; axis >= 0; step *= t->shape[axis--]) strides[axis] = step;
  views[!upload].data = host->data, views[!upload].strides = strides;
  views[upload].data = data_of(t), views[upload].strides = t->strides;
  each_row(views, 2, t->shape, t->rank, copy_row);
  ++discrete_counters[upload ? UPLOADS : DOWNLOADS];
  discrete_counters[upload ? UPLOADED : DOWNLOADED] += host->size;
  discrete_counters[NANOSECONDS] += 10000 + host->size / 12;
  return IPR_OK;
}

static const ipr_handles_api handles = {
    sizeof handles, describe, create_pool, destroy_pool, acquire, give_back, create_tensor, create_sub_tensor,
    destroy_tensor, manage, allocate, no_map, no_unmap, copy, no_import, no_unmap, no_export};

static int32_t accept(void* self, uint32_t kind, ipr_error* error) {
  (void)self;
  if (kind == IPR_MEMORY_HOST) return IPR_OK;
  return fail(error, IPR_UNSUPPORTED, "the device can only reach ordinary memory");
}

static int32_t use(void* self, void* p, const ipr_allocator* allocator, ipr_error* error) {
  (void)self, (void)error;
  ((pool*)p)->allocator = *allocator;
  return IPR_OK;
}

static const ipr_allocator_api allocators = {sizeof allocators, accept, use};

static const void* get_extension(void* self, const char* name) {
  (void)self;
  if (strcmp(name, IPR_EXT_HANDLES) == 0) return &handles;
  return strcmp(name, IPR_EXT_ALLOCATOR) == 0 ? &allocators : NULL;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  (void)self, (void)host, (void)options, (void)error;
  return IPR_OK;
}

static void shutdown_(void* self) { (void)self; }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  (void)self, (void)error;
  out->vendor = IPR_STRING("Tests");
  out->name = IPR_STRING("Discrete");
  out->version = IPR_STRING("1.0");
  out->capabilities = IPR_CAP_DETERMINISTIC | IPR_CAP_KEEPS_CONSTANTS;
  return IPR_OK;
}

static int is_float(const ipr_tensor_info* info) {
  return info != NULL && info->dtype == IPR_DTYPE_FLOAT32 && info->rank > 0 && info->constant < 0 &&
         ipr_elements(info->shape, info->rank) >= 0;
}

static int can_run(const ipr_graph* graph, const ipr_layer* layer) {
  const ipr_tensor_info* out = ipr_layer_output(graph, layer, 0);
  uint64_t n;
  for (n = 0; n < layer->input_count; ++n)
    if (!is_float(ipr_layer_input(graph, layer, n))) return 0;
  if (ipr_equal(layer->type, "Concat")) return 1;
  if (ipr_equal(layer->type, "Activation")) {
    const ipr_attribute* function = ipr_find(graph, layer, "function");
    return function != NULL && ipr_equal(function->text, "RELU");
  }
  if (!ipr_equal(layer->type, "Addition")) return 0;
  for (n = 0; n < layer->input_count; ++n) {
    const ipr_tensor_info* info = ipr_layer_input(graph, layer, n);
    if (info->rank != out->rank || memcmp(info->shape, out->shape, (size_t)out->rank * 8) != 0) return 0;
  }
  return 1;
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  ipr_verdict* verdicts = calloc(graph->layer_count + 1, sizeof *verdicts);
  uint64_t n;
  (void)self, (void)options, (void)error;
  for (n = 0; n < graph->layer_count; ++n) {
    verdicts[n].verdict = can_run(graph, ipr_layer_at(graph, n)) ? IPR_YES : IPR_NO;
    if (verdicts[n].verdict == IPR_YES) continue;
    verdicts[n].reason_code = IPR_REASON_OTHER;
    verdicts[n].reason = IPR_STRING("only Addition of one shape, ReLU and Concat in float32");
  }
  out->verdict_count = graph->layer_count;
  out->verdict_stride = sizeof *verdicts;
  out->verdicts = verdicts;
  out->owner = verdicts;
  out->release = free;
  return IPR_OK;
}

static int32_t optimize(void* self, const ipr_graph* graph, const ipr_options* options, ipr_answer* out,
                        ipr_error* error) {
  (void)self, (void)graph, (void)options, (void)out, (void)error;
  return IPR_OK; /* layers stay as they are, and are compiled one by one */
}

typedef struct plan {
  char kind; /* 'A', 'R' or 'C' */
  int64_t axis;
  uint64_t count;
  uint64_t operand[16]; /* for each of the layer's operands, which of the inputs it is */
} plan;

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  const ipr_layer* layer = ipr_layer_at(graph, 0);
  plan* p = calloc(1, sizeof *p);
  uint64_t n, k;
  (void)self, (void)options;
  if (graph->layer_count != 1 || layer->input_count > 16)
    return fail(error, IPR_UNSUPPORTED, "one layer at a time, with at most 16 operands");
  p->kind = layer->type.data[1] == 'd' ? 'A' : layer->type.data[1] == 'c' ? 'R' : 'C';
  if (p->kind == 'C') p->axis = ipr_find(graph, layer, "axis")->i;
  if (p->axis < 0) p->axis += ipr_layer_output(graph, layer, 0)->rank;
  p->count = layer->input_count;
  for (n = 0; n < layer->input_count; ++n)
    for (k = 0; k < graph->input_count; ++k)
      if (graph->inputs[k] == layer->inputs[n]) p->operand[n] = k + 1;
  for (n = 0; n < layer->input_count; ++n)
    if (p->operand[n] == 0) return fail(error, IPR_UNSUPPORTED, "constants are no operands of a layer alone");
  out->handle = p;
  out->owner = p;
  out->release = free;
  out->flags = IPR_EXECUTABLE_CONCURRENT;
  return IPR_OK;
}

static void add_row(char* const* rows, int64_t count) {
  const float *a = (const float*)rows[0], *b = (const float*)rows[1];
  float* out = (float*)rows[2];
  while (count-- > 0) *out++ = *a++ + *b++;
}

static void clamp_row(char* const* rows, int64_t count) {
  const float* x = (const float*)rows[0];
  float* out = (float*)rows[1];
  for (; count-- > 0; ++x) *out++ = *x > 0 ? *x : 0;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  const plan* p = executable;
  const ipr_tensor* result = ipr_output_at(run, 0);
  const tensor* out = tensor_of(result->native_handle);
  view views[3];
  int64_t start = 0;
  uint64_t n;
  (void)self;
  for (n = 0; n < p->count; ++n)
    if (ipr_input_at(run, p->operand[n] - 1)->memory_kind != IPR_MEMORY_PRIVATE)
      return fail(error, IPR_INVALID_ARGUMENT, "the device was given memory that it cannot read");
  if (result->memory_kind != IPR_MEMORY_PRIVATE)
    return fail(error, IPR_INVALID_ARGUMENT, "the device was given memory that it cannot write");
  for (n = 0; n < p->count; ++n) {
    const tensor* in = tensor_of(ipr_input_at(run, p->operand[n] - 1)->native_handle);
    view to = {data_of(out), out->strides};
    views[n < 2 ? n : 1].data = data_of(in), views[n < 2 ? n : 1].strides = in->strides;
    if (p->kind != 'C') continue;
    views[0] = (view){data_of(in), in->strides};
    to.data += start * out->strides[p->axis];
    views[1] = to;
    each_row(views, 2, in->shape, in->rank, copy_row);
    start += in->shape[p->axis];
  }
  if (p->kind == 'C') return IPR_OK;
  views[p->count] = (view){data_of(out), out->strides};
  each_row(views, (int)p->count + 1, out->shape, out->rank, p->kind == 'A' ? add_row : clamp_row);
  return IPR_OK;
}

IPR_EXPORT void* BackendFactory(void) {
  static const ipr_backend backend = {IPR_MAGIC, sizeof backend, NULL,    init,    shutdown_,    get_info,
                                      query_support, optimize,   compile, execute, get_extension};
  return (void*)&backend;
}
