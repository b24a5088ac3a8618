/* Custom in C: adds float32 tensors, which may broadcast. A part of a network becomes a list of additions; tensors
 * between them lie in scratch memory of the host, in blocks that tensors of one size use one after the other. */

#include <stdlib.h>

#include "interposer/backend.h"

enum { MAX_RANK = 8, BLOCK = 64 };

static const ipr_host* host; /* from init to shutdown */

static int32_t init(void* self, const ipr_host* given, const ipr_options* options, ipr_error* error) {
  (void)self, (void)options, (void)error;
  host = given;
  return IPR_OK;
}

static void shut_down(void* self) { (void)self, host = NULL; }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  static ipr_property properties[2] = {{.kind = IPR_KIND_BOOL, .i = 1}, {.kind = IPR_KIND_BOOL, .i = 0}};
  (void)self, (void)error;
  properties[0].name = IPR_STRING("ConstantTensorsAsInputs"), properties[1].name = IPR_STRING("NonConstWeights");
  out->vendor = IPR_STRING("Example"), out->name = IPR_STRING("Custom"), out->version = IPR_STRING("1.0.0");
  out->capabilities = IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_DETERMINISTIC;
  out->properties = properties, out->property_count = 2, out->property_stride = sizeof *properties;
  return IPR_OK;
}

/* ---- What it can run --------------------------------------------------------------------------------------------- */

static ipr_verdict verdict_of(const ipr_graph* graph, const ipr_layer* layer) {
  if (!ipr_equal(layer->type, "Addition"))
    return (ipr_verdict){IPR_NO, IPR_REASON_LAYER_TYPE, 0, IPR_STRING("it is not Addition"), 0, 0};
  if (ipr_layer_output(graph, layer, 0)->dtype != IPR_DTYPE_FLOAT32)
    return (ipr_verdict){IPR_NO, IPR_REASON_DATA_TYPE, 0, IPR_STRING("only float32 can be added"), 0, 0};
  return (ipr_verdict){.verdict = IPR_YES};
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  ipr_verdict* verdicts = malloc((graph->layer_count + 1) * sizeof *verdicts);
  (void)self, (void)options;
  if (verdicts == NULL) return ipr_fail(error, IPR_OUT_OF_MEMORY, IPR_ITEM_NONE, -1, "no memory for the verdicts");
  for (uint64_t n = 0; n < graph->layer_count; ++n) verdicts[n] = verdict_of(graph, ipr_layer_at(graph, n));
  out->verdicts = verdicts, out->verdict_count = graph->layer_count, out->verdict_stride = sizeof *verdicts;
  out->owner = verdicts, out->release = free;
  return IPR_OK;
}

/* ---- What a part becomes ----------------------------------------------------------------------------------------- */

typedef struct place {
  enum { WORKSPACE, INPUT, OUTPUT, CONSTANT } where;
  uint64_t offset;   /* a byte of the workspace, or which input or output */
  uint64_t last_use; /* the last addition that reads or writes it */
  uint64_t size;     /* of its block, in bytes */
  const void* data;  /* of a constant, which the host keeps until the part is released */
} place;

typedef struct addition {
  int64_t a, b, sum; /* tensors */
  int64_t count;     /* of elements of the sum */
  int32_t rank;
  int64_t shape[MAX_RANK], a_step[MAX_RANK], b_step[MAX_RANK]; /* elements to the next along an axis; 0: stays */
} addition;

typedef struct part {
  uint64_t additions;
  place* place;        /* of every tensor; follows the additions in the same block of memory */
  addition addition[];
} part;

static void set_steps(int64_t* steps, const ipr_tensor_info* operand, int32_t rank) {
  int64_t size = 1;
  for (int32_t axis = operand->rank - 1; axis >= 0; --axis) {
    steps[axis + rank - operand->rank] = operand->shape[axis] == 1 ? 0 : size;
    size *= operand->shape[axis];
  }
}

static addition addition_of(const ipr_graph* graph, const ipr_layer* layer) {
  const ipr_tensor_info* sum = ipr_layer_output(graph, layer, 0);
  addition made = {.a = layer->inputs[0], .b = layer->inputs[1], .sum = layer->outputs[0], .rank = sum->rank};
  made.count = ipr_elements(sum->shape, sum->rank);
  for (int32_t axis = 0; axis < sum->rank; ++axis) made.shape[axis] = sum->shape[axis];
  set_steps(made.a_step, ipr_layer_input(graph, layer, 0), sum->rank);
  set_steps(made.b_step, ipr_layer_input(graph, layer, 1), sum->rank);
  return made;
}

static void find_border(part* p, const ipr_graph* graph) {
  for (uint64_t n = 0; n < graph->tensor_count; ++n) {
    const ipr_tensor_info* info = ipr_tensor_info_at(graph, n);
    p->place[n].size = ((uint64_t)ipr_elements(info->shape, info->rank) * sizeof(float) / BLOCK + 1) * BLOCK;
    if (info->constant < 0) continue;
    p->place[n].where = CONSTANT, p->place[n].data = ipr_constant_at(graph, (uint64_t)info->constant)->data;
  }
  for (uint64_t n = 0; n < graph->input_count; ++n)
    p->place[graph->inputs[n]].where = INPUT, p->place[graph->inputs[n]].offset = n;
  for (uint64_t n = 0; n < graph->output_count; ++n)
    p->place[graph->outputs[n]].where = OUTPUT, p->place[graph->outputs[n]].offset = n;
  for (uint64_t n = 0; n < p->additions; ++n) {
    const addition* one = &p->addition[n];
    p->place[one->a].last_use = p->place[one->b].last_use = p->place[one->sum].last_use = n;
  }
}

/* Give a sum the block of one that nobody reads any more (and make that one forget it), or a new one at the end. */
static void take_block(part* p, uint64_t now, uint64_t* end) {
  place* own = &p->place[p->addition[now].sum];
  if (own->where != WORKSPACE) return;
  for (uint64_t n = 0; n < now; ++n) {
    place* other = &p->place[p->addition[n].sum];
    if (other->where != WORKSPACE || other->last_use >= now || other->size != own->size) continue;
    own->offset = other->offset, other->size = 0;
    return;
  }
  own->offset = *end, *end += own->size;
}

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  uint64_t additions_size = graph->layer_count * sizeof(addition), places_size = graph->tensor_count * sizeof(place);
  part* p = calloc(1, sizeof *p + additions_size + places_size);
  (void)self, (void)options;
  if (p == NULL) return ipr_fail(error, IPR_OUT_OF_MEMORY, IPR_ITEM_NONE, -1, "no memory for a part");
  p->additions = graph->layer_count;
  p->place = (place*)&p->addition[p->additions];
  for (uint64_t n = 0; n < p->additions; ++n) p->addition[n] = addition_of(graph, ipr_layer_at(graph, n));
  find_border(p, graph);
  for (uint64_t n = 0; n < p->additions; ++n) take_block(p, n, &out->workspace_size);
  out->workspace_alignment = BLOCK;
  out->handle = out->owner = p, out->release = free;
  return IPR_OK;
}

/* ---- What runs --------------------------------------------------------------------------------------------------- */

static float* data_of(const part* p, const ipr_run* run, int64_t tensor) {
  const place* at = &p->place[tensor];
  if (at->where == INPUT) return ipr_input_at(run, at->offset)->data;
  if (at->where == OUTPUT) return ipr_output_at(run, at->offset)->data;
  return at->where == CONSTANT ? (float*)at->data : (float*)((char*)run->workspace + at->offset);
}

static void add(const addition* one, const float* a, const float* b, float* sum) {
  int64_t at[MAX_RANK] = {0};
  for (int64_t n = 0; n < one->count; ++n) {
    sum[n] = *a + *b;
    for (int32_t axis = one->rank - 1; axis >= 0; --axis) {
      a += one->a_step[axis], b += one->b_step[axis];
      if (++at[axis] < one->shape[axis]) break;
      a -= one->shape[axis] * one->a_step[axis], b -= one->shape[axis] * one->b_step[axis];
      at[axis] = 0;
    }
  }
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  const part* p = executable;
  (void)self, (void)error;
  for (uint64_t n = 0; n < p->additions; ++n) {
    const addition* one = &p->addition[n];
    add(one, data_of(p, run, one->a), data_of(p, run, one->b), data_of(p, run, one->sum));
  }
  return IPR_OK;
}

static int32_t create(void* self, const ipr_options* options, void** out, ipr_error* error) {
  (void)self, (void)options, (void)error;
  *out = NULL; /* nothing to remember; a device would be opened here, for example, and closed in `destroy` */
  return IPR_OK;
}
static void destroy(void* self, void* context) { (void)self, (void)context; }

#define NOTICE(name) /* another status than IPR_OK would refuse the network, before it is loaded or unloaded */ \
  static int32_t name(void* self, void* context, const ipr_network* network, ipr_error* error) {               \
    (void)self, (void)context, (void)network, (void)error;                                                     \
    ipr_log(host, IPR_LOG_INFO, #name);                                                                        \
    return IPR_OK;                                                                                             \
  }
NOTICE(before_load)
NOTICE(after_load)
NOTICE(before_unload)
NOTICE(after_unload)

static const void* get_extension(void* self, const char* name) {
  static const ipr_context_api contexts = {sizeof contexts, create, destroy, before_load, after_load, before_unload,
                                           after_unload};
  return (void)self, ipr_equal(IPR_STRING(IPR_EXT_CONTEXT), name) ? (const void*)&contexts : NULL;
}

static const ipr_backend table = {IPR_MAGIC, sizeof table, NULL, init, shut_down, get_info, query_support,
                                  NULL /* optimize: parts are compiled as they are */, compile, execute, get_extension};

const char* GetBackendId(void) { return "Custom"; }
void GetVersion(uint32_t* major, uint32_t* minor) { *major = IPR_API_MAJOR, *minor = IPR_API_MINOR; }
void* BackendFactory(void) { return (void*)&table; }
