/* A backend that takes every layer, computes nothing (it copies its first input to every output), and lies as the
 * network's option "lie" says. */

#include <string.h>

#include "interposer/backend.h"

static ipr_verdict verdicts[64];
static int64_t indices[64];
static ipr_substitution substitutions[4];
static ipr_failure failures[4];
static int not_code;
static char remembered[64];

static const char* lie_of(const ipr_options* options) {
  const ipr_attribute* found = ipr_find_option(options, "lie");
  return found == NULL ? "" : found->text.data;
}

static int is(const char* lie, const char* name) { return strcmp(lie, name) == 0; }

static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
  (void)self, (void)host, (void)options, (void)error;
  return IPR_OK;
}

static void shutdown_(void* self) { (void)self; }

static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
  static const ipr_property options[] = {
      {IPR_STRING("lie"), IPR_STRING("what to lie about"), IPR_KIND_TEXT, IPR_SCOPE_MODEL, 0, 0, {NULL, 0}}};
  (void)self, (void)error;
  out->options = options, out->option_count = 1, out->option_stride = sizeof options[0];
  out->capabilities = IPR_CAP_DYNAMIC_SHAPES;
  return IPR_OK;
}

static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                             ipr_error* error) {
  const char* lie = lie_of(options);
  uint64_t n;
  (void)self, (void)error;
  memset(verdicts, 0, sizeof verdicts);
  for (n = 0; n < graph->layer_count; ++n) verdicts[n].verdict = IPR_YES;
  out->verdicts = verdicts, out->verdict_count = graph->layer_count, out->verdict_stride = sizeof verdicts[0];
  if (is(lie, "too many verdicts")) out->verdict_count += 1;
  if (is(lie, "a short stride")) out->verdict_stride = 8;
  if (is(lie, "an odd stride")) out->verdict_stride = sizeof verdicts[0] + 3;
  if (is(lie, "a huge stride")) out->verdict_stride = 1 << 20;
  if (is(lie, "no verdicts")) out->verdicts = NULL;
  if (is(lie, "verdicts nowhere")) out->verdicts = (const ipr_verdict*)0x10;
  if (is(lie, "an unknown verdict")) verdicts[0].verdict = 17;
  if (is(lie, "a release that is none")) out->release = (void (*)(void*))(void*)&not_code;
  if (is(lie, "a reason nowhere") || is(lie, "a broken reason") || is(lie, "a bare no")) verdicts[0].verdict = IPR_NO;
  if (is(lie, "a reason nowhere")) verdicts[0].reason.data = (const char*)0x10, verdicts[0].reason.size = 5;
  if (is(lie, "a broken reason")) verdicts[0].reason = IPR_STRING("caf\xe9 and \xff\xfe");
  if (is(lie, "a bare no")) verdicts[0].reason_code = IPR_REASON_QUANTIZATION;
  return IPR_OK;
}

/* The first layer of the part as a Multiplication, with a constant in place of its second operand. */
static const ipr_graph* replacement(const ipr_graph* graph, const char* lie) {
  static ipr_graph made;
  static ipr_layer layer;
  static ipr_tensor_info tensors[3];
  static ipr_constant constant;
  static ipr_attribute attribute;
  static const float three[] = {3, 3, 3, 3, 3, 3, 3, 3};
  static const int64_t in[] = {0, 2}, out[] = {1}, loop[] = {1, 2}, wide[] = {5};
  const ipr_tensor_info* x = ipr_layer_input(graph, ipr_layer_at(graph, 0), 0);
  tensors[0] = tensors[1] = tensors[2] = *x;
  tensors[0].constant = tensors[1].constant = -1, tensors[2].constant = 0;
  constant.data = three, constant.size = 4 * (uint64_t)ipr_elements(x->shape, x->rank);
  memset(&layer, 0, sizeof layer);
  layer.type = is(lie, "an unknown layer") ? IPR_STRING("Multiplicatoin") : IPR_STRING("Multiplication");
  layer.name = IPR_STRING("thrice");
  layer.inputs = is(lie, "a cycle of tensors") ? loop : in, layer.input_count = 2;
  layer.outputs = out, layer.output_count = 1;
  memset(&attribute, 0, sizeof attribute);
  attribute.name = IPR_STRING("mood"), attribute.kind = IPR_KIND_INT;
  if (is(lie, "an unknown attribute")) layer.attributes = &attribute, layer.attribute_count = 1;
  if (is(lie, "another type")) tensors[0].dtype = IPR_DTYPE_INT8;
  if (is(lie, "another shape")) tensors[1].shape = wide, tensors[1].rank = 1;
  if (is(lie, "a constant of the wrong size")) constant.size = 3;
  if (is(lie, "a rank of a hundred")) tensors[1].rank = 100;
  if (is(lie, "a negative rank")) tensors[1].rank = -1;
  memset(&made, 0, sizeof made);
  made.struct_size = is(lie, "a graph without size") ? 8 : sizeof made;
  made.layers = &layer, made.layer_count = 1, made.layer_stride = sizeof layer;
  made.attribute_stride = sizeof attribute;
  made.tensors = tensors, made.tensor_count = 3, made.tensor_stride = sizeof tensors[0];
  made.constants = &constant, made.constant_count = 1, made.constant_stride = sizeof constant;
  made.inputs = in, made.input_count = 1, made.outputs = out, made.output_count = 1;
  if (is(lie, "two inputs for one")) made.input_count = 2;
  if (is(lie, "a million layers")) made.layer_count = 1 << 21;
  return is(lie, "a graph nowhere") ? (const ipr_graph*)0x10 : &made;
}

static int32_t optimize(void* self, const ipr_graph* graph, const ipr_options* options, ipr_answer* out,
                        ipr_error* error) {
  const char* lie = lie_of(options);
  const ipr_layer* first = ipr_layer_at(graph, 0);
  uint64_t n;
  (void)self;
  memset(substitutions, 0, sizeof substitutions), memset(failures, 0, sizeof failures);
  for (n = 0; n < 64; ++n) indices[n] = (int64_t)n;
  for (n = 0; n < 4; ++n) substitutions[n].layers = indices, failures[n].layers = indices;
  out->substitutions = substitutions, out->substitution_stride = sizeof substitutions[0];
  out->failures = failures, out->failure_stride = sizeof failures[0];
  out->substitution_count = 1, substitutions[0].layer_count = graph->layer_count;
  if (is(lie, "failing to optimize")) return ipr_fail(error, 77, IPR_ITEM_TENSOR, 0, "tired");
  if (is(lie, "untouched")) out->substitution_count = 0;
  if (is(lie, "a layer that is missing")) indices[0] = 60;
  if (is(lie, "a negative layer")) indices[0] = -1;
  if (is(lie, "no layers")) substitutions[0].layer_count = 0;
  if (is(lie, "too many layers")) substitutions[0].layer_count = 1000;
  if (is(lie, "layers nowhere")) substitutions[0].layers = (const int64_t*)0x18;
  if (is(lie, "too many substitutions")) out->substitution_count = 1000;
  if (is(lie, "overlapping substitutions")) out->substitution_count = 2, substitutions[1].layer_count = 1;
  if (is(lie, "failed and substituted")) out->failure_count = 1, failures[0].layer_count = 1;
  if (is(lie, "parts in a cycle")) indices[1] = 2, substitutions[0].layer_count = 2;
  if (is(lie, "the last layer failed")) {
    substitutions[0].layer_count -= 1;
    out->failure_count = 1, failures[0].layers = &indices[graph->layer_count - 1], failures[0].layer_count = 1;
    failures[0].reason = IPR_STRING("no room");
  }
  if (is(lie, "a replacement") || strncmp(lie, "a replacement with ", 19) == 0) {
    lie += is(lie, "a replacement") ? 13 : 19;
    substitutions[0].layer_count = 1;
    substitutions[0].replacement = replacement(graph, lie);
    substitutions[0].inputs = first->inputs, substitutions[0].input_count = 1;
    substitutions[0].outputs = first->outputs, substitutions[0].output_count = 1;
    if (is(lie, "other outputs")) substitutions[0].outputs = first->inputs;
    if (is(lie, "an output twice")) indices[8] = indices[9] = first->outputs[0], substitutions[0].outputs = &indices[8];
    if (is(lie, "an output twice")) substitutions[0].output_count = 2;
    if (is(lie, "an input that is missing")) indices[8] = 99, substitutions[0].inputs = &indices[8];
  }
  return IPR_OK;
}

static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                       ipr_error* error) {
  const char* lie = lie_of(options);
  (void)self, (void)graph;
  if (is(lie, "a long error")) {
    memset(error->text, 'x', error->capacity);
    error->length = 1000000;
    return IPR_FAILED;
  }
  if (is(lie, "an error past its end")) {
    memset(error->text, 'x', error->capacity + 100);
    error->length = error->capacity + 100;
    return IPR_FAILED;
  }
  if (is(lie, "a broken error")) return ipr_fail(error, IPR_OUT_OF_MEMORY, IPR_ITEM_LAYER, 99, "caf\xe9");
  if (is(lie, "a silent error")) return error->code = 42, IPR_DEVICE_LOST;
  if (is(lie, "a workspace without end")) out->workspace_size = UINT64_C(1) << 60;
  if (is(lie, "an odd alignment")) out->workspace_alignment = 96;
  strncpy(remembered, lie, sizeof remembered - 1);
  out->handle = remembered;
  return IPR_OK;
}

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  static const int64_t shape[] = {1, 2}, below[] = {1, -2};
  const char* lie = executable;
  const ipr_tensor* x = ipr_input_at(run, 0);
  int32_t status = IPR_OK;
  uint64_t n;
  (void)self;
  if (is(lie, "a failing run")) return ipr_fail(error, IPR_FAILED, IPR_ITEM_OUTPUT, 0, "it broke");
  if (is(lie, "resizing another")) status = run->resize(run->host, 9, shape, 2);
  if (is(lie, "resizing to another rank")) status = run->resize(run->host, 0, shape, 1);
  if (is(lie, "resizing below zero")) status = run->resize(run->host, 0, below, 2);
  if (is(lie, "resizing nowhere")) status = run->resize(run->host, 0, (const int64_t*)0x10, 2);
  if (status != IPR_OK) return ipr_fail(error, status, IPR_ITEM_NONE, -1, "resize failed");
  for (n = 0; n < run->output_count; ++n) {
    ipr_tensor* y = ipr_output_at(run, n);
    if (y->size > 0) memcpy(y->data, x->data, y->size < x->size ? y->size : x->size);
    if (is(lie, "outside")) ((char*)y->data)[y->size + 2] = 1;
    if (is(lie, "before")) ((char*)y->data)[-1] = 1;
  }
  if (is(lie, "an input")) ((char*)x->data)[0] ^= 1;
  return IPR_OK;
}

static const ipr_backend table = {
    .magic = IPR_MAGIC, .struct_size = sizeof(ipr_backend), .init = init, .shutdown = shutdown_, .get_info = get_info,
    .query_support = query_support, .optimize = optimize, .compile = compile, .execute = execute,
};

IPR_EXPORT const char* GetBackendId(void) { return "Liar"; }

IPR_EXPORT void GetVersion(uint32_t* major, uint32_t* minor) { *major = 1, *minor = 0; }

IPR_EXPORT void* BackendFactory(void) { return (void*)&table; }
