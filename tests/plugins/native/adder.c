/* A backend that adds: Addition of two float32 tensors of one shape. Everything about it can be changed from outside:
 * ID, MAJOR and MINOR, and with AT_<function> a statement that goes first in that function, such as -DAT_INIT='abort();'. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interposer/backend.h"

#ifndef ID
#define ID "Adder"
#endif
#ifndef MAJOR
#define MAJOR IPR_API_MAJOR
#endif
#ifndef MINOR
#define MINOR IPR_API_MINOR
#endif
#ifndef AT_LOAD
#define AT_LOAD
#endif
#ifndef AT_UNLOAD
#define AT_UNLOAD
#endif
#ifndef AT_ID
#define AT_ID
#endif
#ifndef AT_VERSION
#define AT_VERSION
#endif
#ifndef AT_FACTORY
#define AT_FACTORY
#endif
#ifndef AT_INFO
#define AT_INFO
#endif
#ifndef AT_INIT
#define AT_INIT
#endif
#ifndef AT_SHUTDOWN
#define AT_SHUTDOWN
#endif
#ifndef AT_SUPPORT
#define AT_SUPPORT
#endif
#ifndef AT_COMPILE
#define AT_COMPILE
#endif
#ifndef AT_EXECUTE
#define AT_EXECUTE
#endif

#define CRASH *(volatile int*)8 = 0;
#define HANG for (;;) pause();

__attribute__((constructor)) static void at_load(void) { AT_LOAD }
__attribute__((destructor)) static void at_unload(void) { AT_UNLOAD }

IPR_EXPORT const char* GetBackendId(void) {
  AT_ID
  return ID;
}

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) {
  AT_VERSION
  *major = MAJOR;
  *minor = MINOR;
}

static const ipr_host* the_host;

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  (void)self, (void)options, (void)error;
  the_host = host;
  AT_INIT
  return IPR_OK;
}

static void shutdown_(void* self) {
  (void)self;
  AT_SHUTDOWN
}

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  (void)self, (void)error;
  AT_INFO
  out->vendor = IPR_STRING("Tests");
  out->name = IPR_STRING("Adder");
  out->version = IPR_STRING("1.2.3");
  out->capabilities = IPR_CAP_DETERMINISTIC | IPR_CAP_KEEPS_CONSTANTS;
  return IPR_OK;
}

static int same_shape(const ipr_tensor_info* a, const ipr_tensor_info* b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

static int can_run(const ipr_graph* graph, const ipr_layer* layer) {
  const ipr_tensor_info *a = ipr_layer_input(graph, layer, 0), *b = ipr_layer_input(graph, layer, 1);
  return ipr_equal(layer->type, "Addition") && a != NULL && b != NULL && a->dtype == IPR_DTYPE_FLOAT32 &&
         b->dtype == IPR_DTYPE_FLOAT32 && same_shape(a, b) && ipr_elements(a->shape, a->rank) >= 0;
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  ipr_verdict* verdicts = calloc(graph->layer_count + 1, sizeof *verdicts);
  uint64_t n;
  (void)self, (void)options, (void)error;
  AT_SUPPORT
  for (n = 0; n < graph->layer_count; ++n) {
    verdicts[n].verdict = can_run(graph, ipr_layer_at(graph, n)) ? IPR_YES : IPR_NO;
    verdicts[n].reason_code = verdicts[n].verdict == IPR_NO ? IPR_REASON_OTHER : IPR_REASON_NONE;
    if (verdicts[n].verdict == IPR_NO) verdicts[n].reason = IPR_STRING("only float32 tensors of one shape are added");
  }
  out->verdict_count = graph->layer_count;
  out->verdict_stride = sizeof *verdicts;
  out->verdicts = verdicts;
  out->owner = verdicts;
  out->release = free;
  return IPR_OK;
}

/* A step adds two of the tensors, which are those of the graph: the first are given, each step makes the next. */
typedef struct step {
  int64_t inputs[2];
  int64_t output;
} step;

typedef struct plan {
  uint64_t tensors, steps, inputs, outputs;
  int64_t *input, *output, *count;
  step* step;
} plan;

static void release_plan(void* owner) {
  plan* p = owner;
  free(p->input), free(p->output), free(p->count), free(p->step), free(p);
}

static int64_t* copied(const int64_t* from, uint64_t count) {
  int64_t* to = calloc(count + 1, sizeof *to);
  if (count > 0) memcpy(to, from, count * sizeof *to);
  return to;
}

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  plan* p;
  uint64_t n;
  (void)self, (void)options;
  AT_COMPILE
  if (graph->constant_count > 0) return ipr_fail(error, IPR_UNSUPPORTED, IPR_ITEM_LAYER, 0, "constants are not added");
  p = calloc(1, sizeof *p);
  p->tensors = graph->tensor_count, p->steps = graph->layer_count;
  p->inputs = graph->input_count, p->outputs = graph->output_count;
  p->input = copied(graph->inputs, p->inputs), p->output = copied(graph->outputs, p->outputs);
  p->count = calloc(p->tensors + 1, sizeof *p->count), p->step = calloc(p->steps + 1, sizeof *p->step);
  for (n = 0; n < p->tensors; ++n) {
    const ipr_tensor_info* info = ipr_tensor_info_at(graph, n);
    p->count[n] = ipr_elements(info->shape, info->rank);
  }
  for (n = 0; n < p->steps; ++n) {
    const ipr_layer* layer = ipr_layer_at(graph, n);
    p->step[n].inputs[0] = layer->inputs[0], p->step[n].inputs[1] = layer->inputs[1];
    p->step[n].output = layer->outputs[0];
  }
  out->handle = out->owner = p;
  out->release = release_plan;
  return IPR_OK;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  const plan* p = executable;
  float** tensors = calloc(p->tensors + 1, sizeof *tensors);
  char* ours = calloc(p->tensors + 1, 1);
  uint64_t n;
  int64_t i;
  (void)self, (void)error;
  AT_EXECUTE
  for (n = 0; n < p->inputs; ++n) tensors[p->input[n]] = ipr_input_at(run, n)->data;
  for (n = 0; n < p->outputs; ++n) tensors[p->output[n]] = ipr_output_at(run, n)->data;
  for (n = 0; n < p->steps; ++n) {
    const step* s = &p->step[n];
    if (tensors[s->output] == NULL) {
      tensors[s->output] = calloc((size_t)p->count[s->output] + 1, sizeof(float));
      ours[s->output] = 1;
    }
    for (i = 0; i < p->count[s->output]; ++i)
      tensors[s->output][i] = tensors[s->inputs[0]][i] + tensors[s->inputs[1]][i];
  }
  for (n = 0; n < p->tensors; ++n)
    if (ours[n]) free(tensors[n]);
  free(tensors), free(ours);
  return IPR_OK;
}

static const ipr_backend table = {
    .magic = IPR_MAGIC, .struct_size = sizeof(ipr_backend), .init = init, .shutdown = shutdown_, .get_info = get_info,
    .query_support = query_support, .compile = compile, .execute = execute,
};

IPR_EXPORT void* BackendFactory(void) {
  AT_FACTORY
  return (void*)&table;
}
