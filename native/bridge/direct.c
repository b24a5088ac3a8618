/* Direct runs of one compiled part, as `DirectCall` of native/direct makes them for NumPy arrays, but without Python.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "interposer/backend.h"

typedef int32_t (*Execute)(void* self, void* executable, const ipr_run* run, ipr_error* error);

/* A tensor of the part's network: its bytes and its dimensions. */
typedef struct {
  uint64_t size, rank;
  const int64_t* shape;
} Tensor;

/* The tables of one run, which one thread uses at a time. */
typedef struct {
  ipr_run* run;
  ipr_error* error;
} Tables;

struct bridge_direct {
  Execute execute;
  void *backend, *executable;
  const ipr_log_ring* log;
  uint64_t owner; /* the number of the part in Python, for `read_log` */
  uintptr_t misaligned;
  uint64_t input_count, output_count, operand_count, result_count, watched_count, table_count;
  Tensor *inputs, *outputs;
  uint64_t *operands, *results; /* the inputs and outputs that the part has as its tensors, in its order */
  uint64_t* watched;            /* addresses of numbers; if one of them is not 0, runs take the way through Python */
  Tables* tables;
  uint64_t free_count;
  Tables** free_tables;
  bool paused;
  pthread_mutex_t lock; /* guards the free tables and `paused` */
  pthread_cond_t changed;
  int forks;
  uint64_t* words; /* the description, to which the arrays above point */
};

BRIDGE_EXPORT void interposer_bridge_direct_free(bridge_direct* direct);

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static void* pointer(uint64_t word) { return (void*)(uintptr_t)word; }

static const uint64_t* read_tensors(const uint64_t* next, Tensor* tensors, uint64_t count) {
  for (uint64_t n = 0; n < count; ++n) {
    tensors[n] = (Tensor){next[0], next[1], (const int64_t*)(next + 2)};
    next += 2 + tensors[n].rank;
  }
  return next;
}

static void read_lists(bridge_direct* direct) {
  uint64_t* next = direct->words + 12;
  next = (uint64_t*)read_tensors(next, direct->inputs, direct->input_count);
  next = (uint64_t*)read_tensors(next, direct->outputs, direct->output_count);
  direct->operands = next;
  direct->results = direct->operands + direct->operand_count;
  direct->watched = direct->results + direct->result_count;
  next = direct->watched + direct->watched_count;
  for (uint64_t n = 0; n < direct->table_count; ++n) {
    direct->tables[n] = (Tables){pointer(next[2 * n]), pointer(next[2 * n + 1])};
    direct->free_tables[n] = &direct->tables[n];
  }
}

/* Create a direct run from its description, which the module `interposer.bridges.direct` documents. Returns NULL if
 * there is not enough memory. */
BRIDGE_EXPORT bridge_direct* interposer_bridge_direct_new(const uint64_t* words, size_t count) {
  bridge_direct* direct = calloc(1, sizeof *direct);
  if (!direct) return NULL;
  direct->words = malloc(count * sizeof *words);
  direct->inputs = calloc(words[6] + 1, sizeof(Tensor));
  direct->outputs = calloc(words[7] + 1, sizeof(Tensor));
  direct->tables = calloc(words[11] + 1, sizeof(Tables));
  direct->free_tables = calloc(words[11] + 1, sizeof(Tables*));
  pthread_mutex_init(&direct->lock, NULL);
  pthread_cond_init(&direct->changed, NULL);
  if (!direct->words || !direct->inputs || !direct->outputs || !direct->tables || !direct->free_tables) {
    interposer_bridge_direct_free(direct);
    return NULL;
  }
  memcpy(direct->words, words, count * sizeof *words);
  *(void**)&direct->execute = pointer(words[0]);
  direct->backend = pointer(words[1]);
  direct->executable = pointer(words[2]);
  direct->log = pointer(words[3]);
  direct->owner = words[4];
  direct->misaligned = words[5] - 1;
  direct->input_count = words[6], direct->output_count = words[7];
  direct->operand_count = words[8], direct->result_count = words[9];
  direct->watched_count = words[10];
  direct->free_count = direct->table_count = words[11];
  direct->forks = bridge_forks();
  read_lists(direct);
  return direct;
}

/* Release a direct run that no thread uses. */
BRIDGE_EXPORT void interposer_bridge_direct_free(bridge_direct* direct) {
  if (!direct) return;
  pthread_mutex_destroy(&direct->lock);
  pthread_cond_destroy(&direct->changed);
  free(direct->words);
  free(direct->inputs);
  free(direct->outputs);
  free(direct->tables);
  free(direct->free_tables);
  free(direct);
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

size_t bridge_direct_inputs(const bridge_direct* direct) { return direct->input_count; }
size_t bridge_direct_outputs(const bridge_direct* direct) { return direct->output_count; }
uint64_t bridge_direct_input_size(const bridge_direct* direct, size_t index) { return direct->inputs[index].size; }

const int64_t* bridge_direct_input_shape(const bridge_direct* direct, size_t index, size_t* rank) {
  *rank = direct->inputs[index].rank;
  return direct->inputs[index].shape;
}

const int64_t* bridge_direct_output_shape(const bridge_direct* direct, size_t index, size_t* rank) {
  *rank = direct->outputs[index].rank;
  return direct->outputs[index].shape;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static bool is_watched(const bridge_direct* direct) {
  for (uint64_t n = 0; n < direct->watched_count; ++n)
    if (*(volatile int64_t*)pointer(direct->watched[n])) return true;
  return false;
}

static bool are_aligned(const bridge_direct* direct, void* const* addresses, uint64_t count) {
  uintptr_t bits = 0;
  for (uint64_t n = 0; n < count; ++n) bits |= (uintptr_t)addresses[n];
  return !(bits & direct->misaligned);
}

static bool overlap(const void* a, uint64_t a_size, const void* b, uint64_t b_size) {
  return (uintptr_t)a < (uintptr_t)b + b_size && (uintptr_t)b < (uintptr_t)a + a_size;
}

static bool outputs_overlap(const bridge_direct* direct, void* const* inputs, void* const* outputs) {
  for (uint64_t n = 0; n < direct->output_count; ++n) {
    uint64_t size = direct->outputs[n].size;
    for (uint64_t k = 0; k < direct->input_count; ++k)
      if (overlap(outputs[n], size, inputs[k], direct->inputs[k].size)) return true;
    for (uint64_t k = 0; k < n; ++k)
      if (overlap(outputs[n], size, outputs[k], direct->outputs[k].size)) return true;
  }
  return false;
}

/* Take tables that no thread uses; wait for some if there are none. Returns NULL while runs are paused. */
static Tables* take_tables(bridge_direct* direct) {
  pthread_mutex_lock(&direct->lock);
  while (!direct->free_count && !direct->paused) pthread_cond_wait(&direct->changed, &direct->lock);
  Tables* tables = direct->paused ? NULL : direct->free_tables[--direct->free_count];
  pthread_mutex_unlock(&direct->lock);
  return tables;
}

static void give_back(bridge_direct* direct, Tables* tables) {
  pthread_mutex_lock(&direct->lock);
  direct->free_tables[direct->free_count++] = tables;
  pthread_cond_signal(&direct->changed);
  pthread_mutex_unlock(&direct->lock);
}

/* Let runs take the way through Python until they are resumed, and wait for direct runs in progress. So a run through
 * Python is alone with a part that does not allow concurrent runs. One thread at a time may pause a part. A forked
 * process has no direct runs, and would wait forever for those that were in progress. */
BRIDGE_EXPORT void interposer_bridge_direct_pause(bridge_direct* direct, bool paused) {
  if (direct->forks != bridge_forks()) return;
  pthread_mutex_lock(&direct->lock);
  direct->paused = paused;
  pthread_cond_broadcast(&direct->changed);
  while (paused && direct->free_count < direct->table_count) pthread_cond_wait(&direct->changed, &direct->lock);
  pthread_mutex_unlock(&direct->lock);
}

static void bind(const bridge_direct* direct, const ipr_run* run, void* const* inputs, void* const* outputs) {
  ipr_tensor* bound = (ipr_tensor*)run->inputs;
  for (uint64_t n = 0; n < direct->operand_count; ++n) bound[n].data = inputs[direct->operands[n]];
  for (uint64_t n = 0; n < direct->result_count; ++n) run->outputs[n].data = outputs[direct->results[n]];
}

static void clear(ipr_error* error) {
  error->code = error->item_kind = 0;
  error->item = -1;
  error->length = 0;
}

static bool run(bridge_direct* direct, void* const* inputs, void* const* outputs) {
  Tables* tables = take_tables(direct);
  if (!tables) return false;
  bind(direct, tables->run, inputs, outputs);
  int32_t status = direct->execute(direct->backend, direct->executable, tables->run, tables->error);
  if (tables->error->code || tables->error->item_kind || tables->error->length) clear(tables->error);
  give_back(direct, tables);
  uint64_t ignored;
  if (__atomic_load_n(&direct->log->head, __ATOMIC_ACQUIRE) != direct->log->tail)
    BRIDGE_CALL("direct:read_log", &ignored, direct->owner);
  return status == IPR_OK;
}

bool bridge_direct_run(bridge_direct* direct, void* const* inputs, void* const* outputs) {
  if (is_watched(direct) || direct->forks != bridge_forks()) return false;
  if (!are_aligned(direct, inputs, direct->input_count) || !are_aligned(direct, outputs, direct->output_count))
    return false;
  if (outputs_overlap(direct, inputs, outputs) || !bridge_enter()) return false;
  bool was_run = run(direct, inputs, outputs);
  bridge_leave();
  return was_run;
}
