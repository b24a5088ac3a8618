/* A backend that adds two float32 tensors of one shape by their strides. CAPABILITIES are what it declares. */

#include <stdlib.h>
#include <string.h>

#include "interposer/backend.h"

#ifndef CAPABILITIES
#define CAPABILITIES IPR_CAP_STRIDED
#endif
#define RANKS 8

static uint64_t gaps; /* how many tensors with strides `execute` was given */

IPR_EXPORT uint64_t tensors_with_strides(void) { return gaps; }

IPR_EXPORT const char* GetBackendId(void) { return "StridedC"; }

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) { *major = IPR_API_MAJOR, *minor = IPR_API_MINOR; }

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  (void)self, (void)host, (void)options, (void)error;
  return IPR_OK;
}

static void shutdown_(void* self) { (void)self; }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  (void)self, (void)error;
  out->vendor = IPR_STRING("Tests"), out->name = IPR_STRING("Strided"), out->version = IPR_STRING("1");
  out->capabilities = CAPABILITIES;
  return IPR_OK;
}

static int can_run(const ipr_graph* graph, const ipr_layer* layer) {
  const ipr_tensor_info *a = ipr_layer_input(graph, layer, 0), *b = ipr_layer_input(graph, layer, 1);
  return ipr_equal(layer->type, "Addition") && a != NULL && b != NULL && a->dtype == IPR_DTYPE_FLOAT32 &&
         b->dtype == IPR_DTYPE_FLOAT32 && a->rank == b->rank && a->rank <= RANKS && a->constant < 0 && b->constant < 0 &&
         memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  ipr_verdict* verdicts = calloc(graph->layer_count + 1, sizeof *verdicts);
  uint64_t n;
  (void)self, (void)options, (void)error;
  for (n = 0; n < graph->layer_count; ++n)
    verdicts[n].verdict = can_run(graph, ipr_layer_at(graph, n)) ? IPR_YES : IPR_NO;
  out->verdict_count = graph->layer_count, out->verdict_stride = sizeof *verdicts;
  out->verdicts = verdicts, out->owner = verdicts, out->release = free;
  return IPR_OK;
}

/* Positions of the operands among the inputs. */
typedef struct pair {
  uint64_t a, b;
} pair;

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  const ipr_layer* layer = ipr_layer_at(graph, 0);
  pair* p;
  (void)self, (void)options;
  if (graph->layer_count != 1) return ipr_fail(error, IPR_UNSUPPORTED, IPR_ITEM_LAYER, 1, "one layer at a time");
  p = calloc(1, sizeof *p);
  p->a = graph->inputs[0] == layer->inputs[0] ? 0 : 1, p->b = graph->inputs[0] == layer->inputs[1] ? 0 : 1;
  out->handle = out->owner = p;
  out->release = free;
  return IPR_OK;
}

static float* element(const ipr_tensor* t, const int64_t* index) {
  int64_t at = 0, step = 1, axis;
  for (axis = t->ndim - 1; axis >= 0; step *= t->shape[axis--])
    at += index[axis] * (t->strides != NULL ? t->strides[axis] : step);
  return (float*)t->data + at;
}

static int is_within(const ipr_tensor* t, const float* place) {
  const char* start = t->data;
  return (const char*)place >= start && (const char*)(place + 1) <= start + t->size;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  const pair* p = executable;
  const ipr_tensor *a = ipr_input_at(run, p->a), *b = ipr_input_at(run, p->b), *out = ipr_output_at(run, 0);
  int64_t index[RANKS] = {0}, left = ipr_elements(out->shape, (uint64_t)out->ndim), axis;
  (void)self;
  gaps += (a->strides != NULL) + (b->strides != NULL) + (out->strides != NULL);
  for (; left > 0; --left) {
    float* to = element(out, index);
    if (!is_within(out, to) || !is_within(a, element(a, index)) || !is_within(b, element(b, index)))
      return ipr_fail(error, IPR_INVALID_ARGUMENT, IPR_ITEM_NONE, 0, "an element lies outside of its tensor");
    *to = *element(a, index) + *element(b, index);
    for (axis = out->ndim - 1; axis >= 0 && ++index[axis] == out->shape[axis]; --axis) index[axis] = 0;
  }
  return IPR_OK;
}

static const ipr_backend table = {
    .magic = IPR_MAGIC, .struct_size = sizeof(ipr_backend), .init = init, .shutdown = shutdown_, .get_info = get_info,
    .query_support = query_support, .compile = compile, .execute = execute,
};

IPR_EXPORT void* BackendFactory(void) { return (void*)&table; }
