/* The C code of the bridges without Python and without a host: threads run a part while others change or close it.
 * `threads shapes`, `threads pause` and `threads end` print how they ended. The functions of ONNX Runtime are replaced
 * by small ones. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bridge.h"
#include "interposer/backend.h"

enum { THREADS = 6, MOST_RUNS = 20000, TABLES = 2 };
typedef void (*Function)(void);
typedef struct Part Part;
struct Part { /* the beginning of the table that ONNX Runtime gets */
  uint32_t version;
  void* (*create_state)(Part*, void* context, void** state);
  void* (*compute)(Part*, void* state, void* context);
  void (*release_state)(Part*, void* state);
};

bridge_direct* interposer_bridge_direct_new(const uint64_t* words, size_t count);
void interposer_bridge_direct_free(bridge_direct* direct);
void interposer_bridge_direct_pause(bridge_direct* direct, bool paused);
Part* interposer_bridge_ort_part(const Function* api, uint64_t id, const uint32_t* numbers, size_t inputs,
                                 size_t outputs, bool frees_memory);
bridge_direct* interposer_bridge_ort_add_direct(Part* part, bridge_direct* direct);
void interposer_bridge_ort_give_up_direct(Part* part);
void interposer_bridge_ort_counts(const Part* part, uint64_t counts[3]);
int interposer_bridge_close(int milliseconds);

/* ---- A backend, and the functions of ONNX Runtime that a run uses ------------------------------------------------ */

typedef struct {
  int64_t length; /* of the input and of the output */
  float data[2][64];
} Context;

static int problem; /* what `CreateStatus` returns the address of */
static ipr_log_ring no_log;
static atomic_int running, most_running, finished;

static int32_t execute(void* self, void* executable, const ipr_run* run, ipr_error* error) {
  const struct timespec moment = {0, 200000};
  (void)self, (void)executable, (void)error;
  int count = atomic_fetch_add(&running, 1) + 1;
  if (count > atomic_load(&most_running)) atomic_store(&most_running, count);
  nanosleep(&moment, NULL);
  ((float*)run->outputs[0].data)[0] = 2 * ((const float*)run->inputs[0].data)[0];
  atomic_fetch_sub(&running, 1);
  return IPR_OK;
}

static void* create_status(int code, const char* text) { return (void)code, (void)text, &problem; }
static void* tensor_data(void* value, void** data) { return *data = value, NULL; }
static Context* context_of(void* value) { return (Context*)((char*)value - offsetof(Context, data)); }
static void* dimensions_count(void* info, size_t* rank) { return (void)info, *rank = 1, NULL; }
static void* dimensions(void* info, int64_t* shape, size_t rank) {
  return (void)rank, shape[0] = context_of(info)->length, NULL;
}
static void* type_and_shape(void* value, void** info) { return *info = value, NULL; }
static void* input_of(void* context, size_t index, void** value) {
  return (void)index, *value = ((Context*)context)->data[0], NULL;
}
static void* output_of(void* context, size_t index, const int64_t* shape, size_t rank, void** value) {
  return (void)index, (void)shape, (void)rank, *value = ((Context*)context)->data[1], NULL;
}
static void release(void* info) { (void)info; }
static void* bytes_of(void* value, size_t* bytes) {
  return *bytes = (size_t)context_of(value)->length * sizeof(float), NULL;
}

static const Function api[400] = {
    [0] = (Function)create_status, [51] = (Function)tensor_data,    [61] = (Function)dimensions_count,
    [62] = (Function)dimensions,   [65] = (Function)type_and_shape, [90] = (Function)input_of,
    [91] = (Function)output_of,    [99] = (Function)release,        [318] = (Function)bytes_of,
};

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

typedef struct {
  ipr_tensor tensors[TABLES][2];
  ipr_run runs[TABLES];
  ipr_error errors[TABLES];
} Tables;

static bridge_direct* direct_for(Tables* tables, int64_t length) {
  uint64_t bytes = (uint64_t)length * sizeof(float), words[64], count = 0;
  const uint64_t facts[] = {BRIDGE_WORD(execute),
                            0,
                            0,
                            BRIDGE_WORD(&no_log),
                            1,
                            sizeof(float),
                            1,
                            1,
                            1,
                            1,
                            0,
                            TABLES,
                            bytes,
                            1,
                            (uint64_t)length,
                            bytes,
                            1,
                            (uint64_t)length,
                            0,
                            0};
  memcpy(words, facts, sizeof facts);
  count = sizeof facts / sizeof *facts;
  for (int n = 0; n < TABLES; ++n) {
    tables->runs[n] = (ipr_run){.inputs = &tables->tensors[n][0], .outputs = &tables->tensors[n][1]};
    words[count++] = BRIDGE_WORD(&tables->runs[n]), words[count++] = BRIDGE_WORD(&tables->errors[n]);
  }
  return interposer_bridge_direct_new(words, count);
}

static Part* new_part(bridge_direct* direct) {
  static const uint32_t numbers[] = {0, 0};
  Part* part = interposer_bridge_ort_part(api, 1, numbers, 1, 1, false);
  if (interposer_bridge_ort_add_direct(part, direct)) abort();
  return part;
}

static void wait_for(atomic_int* number, int value) {
  const struct timespec moment = {0, 100000};
  while (atomic_load(number) < value) nanosleep(&moment, NULL);
}

/* ---- Scenarios --------------------------------------------------------------------------------------------------- */

static Part* shared;
static atomic_int stops, begun, refused;

/* Run with one length until `stops`, or until a run fails. */
static void* run_many(void* unused) {
  Context context = {.length = 4};
  (void)unused;
  for (int n = 0; n < MOST_RUNS && !atomic_load(&stops); ++n) {
    context.data[0][0] = (float)n;
    if (shared->compute(shared, NULL, &context)) break;
    if (context.data[1][0] != 2 * (float)n) abort();
    atomic_fetch_add(&begun, 1);
  }
  atomic_fetch_add(&finished, 1);
  return NULL;
}

/* Add a part for other shapes while threads run all the time, and withdraw all parts. */
static int shapes(void) {
  static Tables tables[20];
  bridge_direct* directs[20];
  pthread_t threads[THREADS];
  for (int n = 0; n < 20; ++n) directs[n] = direct_for(&tables[n], 4 + n);
  shared = new_part(directs[0]);
  for (int n = 0; n < THREADS; ++n) pthread_create(&threads[n], NULL, run_many, NULL);
  wait_for(&begun, 2 * THREADS);
  int replaced = 0;
  for (int n = 1; n < 20; ++n) replaced += interposer_bridge_ort_add_direct(shared, directs[n]) != NULL;
  printf("%d replaced beside %d threads\n", replaced, THREADS - atomic_load(&finished));
  interposer_bridge_ort_give_up_direct(shared);
  if (atomic_load(&running)) return 1;
  atomic_store(&stops, 1);
  for (int n = 0; n < THREADS; ++n) pthread_join(threads[n], NULL);
  uint64_t counts[3];
  interposer_bridge_ort_counts(shared, counts);
  for (int n = 0; n < 20; ++n) interposer_bridge_direct_free(directs[n]);
  free(shared);
  return counts[1] != (uint64_t)atomic_load(&begun) || atomic_load(&most_running) > TABLES;
}

/* Run with one length until `stops`; runs may find the part paused. */
static void* run_or_be_paused(void* unused) {
  Context context = {.length = 4};
  (void)unused;
  while (!atomic_load(&stops)) atomic_fetch_add(shared->compute(shared, NULL, &context) ? &refused : &begun, 1);
  return NULL;
}

/* Pause a part again and again while threads run it: no run is in progress then, and all continue later. */
static int pause_runs(void) {
  static Tables tables;
  pthread_t threads[THREADS];
  bridge_direct* direct = direct_for(&tables, 4);
  shared = new_part(direct);
  for (int n = 0; n < THREADS; ++n) pthread_create(&threads[n], NULL, run_or_be_paused, NULL);
  int seen = 0;
  for (int n = 0; n < 50; ++n) {
    wait_for(&begun, atomic_load(&begun) + 1);
    interposer_bridge_direct_pause(direct, true);
    seen += atomic_load(&running);
    wait_for(&refused, atomic_load(&refused) + 1);
    seen += atomic_load(&running);
    interposer_bridge_direct_pause(direct, false);
  }
  atomic_store(&stops, 1);
  for (int n = 0; n < THREADS; ++n) pthread_join(threads[n], NULL);
  printf("%d running in 50 pauses\n", seen);
  interposer_bridge_ort_give_up_direct(shared);
  interposer_bridge_direct_free(direct);
  free(shared);
  return seen;
}

/* Close the gate while threads run all the time: runs in progress are completed, and later ones fail. */
static int end(void) {
  static Tables tables;
  pthread_t threads[THREADS];
  shared = new_part(direct_for(&tables, 4));
  for (int n = 0; n < THREADS; ++n) pthread_create(&threads[n], NULL, run_many, NULL);
  wait_for(&begun, 2 * THREADS);
  int left = interposer_bridge_close(60000);
  printf("%d left, %d running\n", left, atomic_load(&running));
  for (int n = 0; n < THREADS; ++n) pthread_join(threads[n], NULL);
  return left || bridge_enter();
}

int main(int count, char** words) {
  if (count < 2) return 2;
  if (!strcmp(words[1], "pause")) return pause_runs();
  return !strcmp(words[1], "shapes") ? shapes() : end();
}
