/* A backend that takes everything and computes nothing: what remains is the cost of the C interface. */

#include <stdlib.h>

#include "interposer/backend.h"

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  (void)self, (void)host, (void)options, (void)error;
  return IPR_OK;
}

static void shutdown_(void* self) { (void)self; }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  (void)self, (void)out, (void)error;
  return IPR_OK;
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  ipr_verdict* verdicts = calloc(graph->layer_count + 1, sizeof *verdicts);
  uint64_t n;
  (void)self, (void)options;
  if (verdicts == NULL) return ipr_fail(error, IPR_OUT_OF_MEMORY, IPR_ITEM_NONE, -1, "no memory");
  for (n = 0; n < graph->layer_count; ++n) verdicts[n].verdict = IPR_YES;
  out->verdicts = out->owner = verdicts;
  out->verdict_count = graph->layer_count, out->verdict_stride = sizeof *verdicts;
  out->release = free;
  return IPR_OK;
}

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  (void)self, (void)graph, (void)options, (void)out, (void)error;
  return IPR_OK;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  (void)self, (void)executable, (void)run, (void)error;
  return IPR_OK;
}

static const ipr_backend table = {
    .magic = IPR_MAGIC, .struct_size = sizeof(ipr_backend), .init = init, .shutdown = shutdown_, .get_info = get_info,
    .query_support = query_support, .compile = compile, .execute = execute,
};

IPR_EXPORT const char* GetBackendId(void) { return "Nothing"; }

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) { *major = IPR_API_MAJOR, *minor = IPR_API_MINOR; }

IPR_EXPORT void* BackendFactory(void) { return (void*)&table; }
