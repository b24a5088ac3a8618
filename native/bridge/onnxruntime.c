/* The entry points of ONNX Runtime's plug-in execution providers: factories, providers and compiled parts as tables of
 * functions. No header of ONNX Runtime is used; the numbers of its functions are in
 * interposer/bridges/onnxruntime/abi.py too, and `check_table` tries them before a factory is returned. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "bridge.h"

/* The tables have more members in later versions. ONNX Runtime calls those of the version that a table states. */
#define API_VERSION 23
#define OLDEST_PATCH 1
#define VENDOR_ID 0x1A7E

typedef void Status; /* NULL is success */
typedef void (*Function)(void);
enum {
  kCreateStatus = 0,
  kGetErrorCode = 1,
  kGetErrorMessage = 2,
  kGetTensorMutableData = 51,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kGetInput = 90,
  kGetOutput = 91,
  kReleaseStatus = 93,
  kReleaseTensorTypeAndShape = 99,
  kCreateKeyValuePairs = 295,
  kAddKeyValuePair = 296,
  kGetKeyValue = 297,
  kReleaseKeyValuePairs = 300,
  kDeviceType = 307,
  kGetEpApi = 317,
  kGetTensorSizeInBytes = 318,
};
enum { kFail = 1, kNotImplemented = 9 };
enum { kProcessor = 0 };

/* The functions of one copy of ONNX Runtime. A process may have several copies, so each object has those of its own. */
typedef const Function* Api;
#define API(api, index, result, ...) ((result(*)(__VA_ARGS__))(api)[index])

static Status* status_of(Api api, int code, const char* text) {
  return API(api, kCreateStatus, Status*, int, const char*)(code, text);
}

static Status* failed_call(Api api) {
  char text[1100];
  snprintf(text, sizeof text, "Interposer: %s", bridge_problem());
  return status_of(api, kFail, text);
}

/* Call a function of `onnxruntime.provider` with the address of `api` and more arguments. It returns the address of a
 * status or 0. */
#define CALL_STATUS(status, api, function, ...)                                                        \
  do {                                                                                                 \
    uint64_t word_ = 0;                                                                                \
    bool done_ = BRIDGE_CALL("onnxruntime.provider:" function, &word_, BRIDGE_WORD(api), __VA_ARGS__); \
    status = done_ ? (Status*)(uintptr_t)word_ : failed_call(api);                                     \
  } while (0)

/* ---- Compiled parts (OrtNodeComputeInfo) ------------------------------------------------------------------------- */

#define MOST 32          /* the most inputs and outputs of a direct run */
#define MOST_NUMBERS 256 /* the most ranks and dimensions of all inputs of a direct run */
#define MOST_VARIANTS 8  /* the most sets of shapes of a part that run directly */

/* How a part runs directly with one set of shapes. */
typedef struct {
  bridge_direct* direct;
  atomic_ullong last_run; /* the number of the latest run that used it */
} Variant;

typedef struct Part {
  uint32_t version;
  Status* (*create_state)(struct Part*, void* context, void** state);
  Status* (*compute)(struct Part*, void* state, void* context);
  void (*release_state)(struct Part*, void* state);
  /* what follows is not known to ONNX Runtime */
  Api api;
  uint64_t id;
  bool frees_memory;
  size_t input_count, output_count;
  uint32_t numbers[2 * MOST]; /* the numbers of the node's inputs, then of its outputs, in the order of direct runs */
  pthread_rwlock_t lock;      /* guards the variants: direct runs read them, Python changes them */
  size_t variant_count;
  Variant variants[MOST_VARIANTS];
  atomic_ullong runs, direct_runs, nanoseconds;
} Part;

/* The inputs of a run: their addresses, and for each its bytes, its rank and its dimensions, one after the other. */
typedef struct {
  void* addresses[MOST];
  int64_t numbers[MOST_NUMBERS];
  size_t count;
} Inputs;

/* Append the bytes, the rank and the dimensions of a tensor. Too many of them are left out, with a rank that no direct
 * run has. */
static Status* append_shape(Api api, void* value, Inputs* inputs) {
  void* info = NULL;
  size_t bytes = 0, rank = 0;
  Status* status = API(api, kGetTensorSizeInBytes, Status*, void*, size_t*)(value, &bytes);
  if (!status) status = API(api, kGetTensorTypeAndShape, Status*, void*, void**)(value, &info);
  if (status) return status;
  status = API(api, kGetDimensionsCount, Status*, void*, size_t*)(info, &rank);
  bool fits = rank + 2 <= MOST_NUMBERS - inputs->count;
  int64_t* next = inputs->numbers + inputs->count;
  if (fits) {
    next[0] = (int64_t)bytes, next[1] = (int64_t)rank;
    if (!status) status = API(api, kGetDimensions, Status*, void*, int64_t*, size_t)(info, next + 2, rank);
  }
  inputs->count += fits ? rank + 2 : MOST_NUMBERS + 1;
  API(api, kReleaseTensorTypeAndShape, void, void*)(info);
  return status;
}

/* Read the inputs of a run. `*plain` is false if one of them is absent, or if there are too many dimensions. */
static Status* read_inputs(const Part* part, void* context, Inputs* inputs, bool* plain) {
  *plain = true;
  inputs->count = 0;
  for (size_t n = 0; n < part->input_count; ++n) {
    void* value = NULL;
    Status* status = API(part->api, kGetInput, Status*, void*, size_t, void**)(context, part->numbers[n], &value);
    *plain = value != NULL;
    if (status || !value) return status;
    if ((status = append_shape(part->api, value, inputs))) return status;
    *plain = inputs->count <= MOST_NUMBERS;
    if (!*plain) return NULL;
    status = API(part->api, kGetTensorMutableData, Status*, void*, void**)(value, &inputs->addresses[n]);
    if (status) return status;
  }
  return NULL;
}

/* Return true if a direct run is for inputs with these shapes. */
static bool fits(const bridge_direct* direct, const Inputs* inputs) {
  const int64_t* next = inputs->numbers;
  for (size_t n = 0; n < bridge_direct_inputs(direct); ++n) {
    size_t rank;
    const int64_t* shape = bridge_direct_input_shape(direct, n, &rank);
    if ((uint64_t)next[0] != bridge_direct_input_size(direct, n) || (uint64_t)next[1] != rank) return false;
    if (memcmp(next + 2, shape, rank * sizeof *shape)) return false;
    next += 2 + rank;
  }
  return true;
}

static Variant* find_variant(Part* part, const Inputs* inputs) {
  for (size_t n = 0; n < part->variant_count; ++n)
    if (fits(part->variants[n].direct, inputs)) return &part->variants[n];
  return NULL;
}

static Status* get_output(const Part* part, void* context, size_t index, bridge_direct* direct, void** address) {
  void* value = NULL;
  size_t rank;
  const int64_t* shape = bridge_direct_output_shape(direct, index, &rank);
  Status* status = API(part->api, kGetOutput, Status*, void*, size_t, const int64_t*, size_t, void**)(
      context, part->numbers[part->input_count + index], shape, rank, &value);
  return status ? status : API(part->api, kGetTensorMutableData, Status*, void*, void**)(value, address);
}

static bool run_variant(const Part* part, bridge_direct* direct, void* context, const Inputs* inputs, Status** status) {
  void* outputs[MOST];
  for (size_t n = 0; n < part->output_count; ++n)
    if ((*status = get_output(part, context, n, direct, &outputs[n]))) return true;
  return bridge_direct_run(direct, inputs->addresses, outputs);
}

/* Run without Python. Returns false if the run has to take the way through Python. */
static bool run_direct(Part* part, void* context, Status** status) {
  Inputs inputs;
  bool plain, done = false;
  pthread_rwlock_rdlock(&part->lock);
  if (part->variant_count) {
    *status = read_inputs(part, context, &inputs, &plain);
    Variant* variant = !*status && plain ? find_variant(part, &inputs) : NULL;
    if (variant) atomic_store_explicit(&variant->last_run, atomic_load(&part->runs), memory_order_relaxed);
    done = *status || (variant && run_variant(part, variant->direct, context, &inputs, status));
  }
  pthread_rwlock_unlock(&part->lock);
  return done;
}

static unsigned long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (unsigned long long)time.tv_sec * 1000000000u + (unsigned long long)time.tv_nsec;
}

/* Return free memory to the system, with the function of glibc for that: the constants that ONNX Runtime released. */
static void free_memory(void) {
  int (*trim)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim");
  if (trim) trim(0);
}

static Status* create_state(Part* part, void* context, void** state) {
  (void)context;
  if (part->frees_memory) free_memory();
  *state = part;
  return NULL;
}

static void release_state(Part* part, void* state) { (void)part, (void)state; }

static Status* compute(Part* part, void* state, void* context) {
  (void)state;
  unsigned long long begin = now();
  Status* status = NULL;
  if (run_direct(part, context, &status))
    atomic_fetch_add(&part->direct_runs, 1);
  else
    CALL_STATUS(status, part->api, "compute", part->id, BRIDGE_WORD(context));
  atomic_fetch_add(&part->runs, 1);
  atomic_fetch_add(&part->nanoseconds, now() - begin);
  return status;
}

/* Create a lock whose writers come before later readers. With the default kind of glibc, a run with new shapes waits
 * for as long as other threads keep running. */
static void create_lock(pthread_rwlock_t* lock) {
  pthread_rwlockattr_t kind;
  pthread_rwlockattr_init(&kind);
#ifdef __GLIBC__
  pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
  pthread_rwlock_init(lock, &kind);
  pthread_rwlockattr_destroy(&kind);
}

/* Create the table of a compiled part for `onnxruntime.provider`; `numbers` has those of inputs, then of outputs. With
 * `frees_memory`, free memory is returned to the system when ONNX Runtime has prepared all nodes. */
BRIDGE_EXPORT Part* interposer_bridge_ort_part(Api api, uint64_t id, const uint32_t* numbers, size_t inputs,
                                               size_t outputs, bool frees_memory) {
  Part* part = calloc(1, sizeof *part);
  if (!part) return NULL;
  part->version = API_VERSION;
  part->create_state = create_state, part->compute = compute, part->release_state = release_state;
  part->api = api;
  part->id = id;
  part->frees_memory = frees_memory;
  create_lock(&part->lock);
  if (inputs > MOST || outputs > MOST) return part;
  part->input_count = inputs, part->output_count = outputs;
  if (inputs + outputs) memcpy(part->numbers, numbers, (inputs + outputs) * sizeof *numbers);
  return part;
}

static Variant* least_recent(Part* part) {
  Variant* oldest = &part->variants[0];
  for (size_t n = 1; n < part->variant_count; ++n)
    if (atomic_load(&part->variants[n].last_run) < atomic_load(&oldest->last_run)) oldest = &part->variants[n];
  return oldest;
}

/* Let runs with the shapes of a direct run be direct. If there are too many sets of shapes, it replaces the one that
 * was not used for longest, which is returned. Returns `direct` itself if the part has too many inputs or outputs. */
BRIDGE_EXPORT bridge_direct* interposer_bridge_ort_add_direct(Part* part, bridge_direct* direct) {
  bool is_right =
      bridge_direct_inputs(direct) == part->input_count && bridge_direct_outputs(direct) == part->output_count;
  if (!is_right) return direct;
  pthread_rwlock_wrlock(&part->lock);
  bool is_full = part->variant_count == MOST_VARIANTS;
  Variant* place = is_full ? least_recent(part) : &part->variants[part->variant_count++];
  bridge_direct* replaced = is_full ? place->direct : NULL;
  place->direct = direct;
  atomic_store(&place->last_run, atomic_load(&part->runs));
  pthread_rwlock_unlock(&part->lock);
  return replaced;
}

/* Let all later runs of a part take the way through Python; direct runs in progress are completed first. */
BRIDGE_EXPORT void interposer_bridge_ort_give_up_direct(Part* part) {
  pthread_rwlock_wrlock(&part->lock);
  part->variant_count = 0;
  pthread_rwlock_unlock(&part->lock);
}

/* Read the number of runs, how many of them were direct, and the nanoseconds of all. */
BRIDGE_EXPORT void interposer_bridge_ort_counts(const Part* part, uint64_t counts[3]) {
  counts[0] = atomic_load(&part->runs);
  counts[1] = atomic_load(&part->direct_runs);
  counts[2] = atomic_load(&part->nanoseconds);
}

/* ---- Providers (OrtEp) ------------------------------------------------------------------------------------------- */

/* The members of the structs that are not declared are NULL: ONNX Runtime tests them. */
typedef struct Provider {
  uint32_t version;
  const char* (*get_name)(const struct Provider*);
  Status* (*get_capability)(struct Provider*, const void* graph, void* support);
  Status* (*compile)(struct Provider*, const void** graphs, const void** nodes, size_t count, Part** parts,
                     void** context_nodes);
  void (*release_parts)(struct Provider*, Part** parts, size_t count);
  Function others[40];
  Api api;
  char* name;
  uint64_t id;
} Provider;

static const char* provider_name(const Provider* provider) { return provider->name; }

/* An interruption leaves all nodes to ONNX Runtime. */
static Status* get_capability(Provider* provider, const void* graph, void* support) {
  uint64_t status = 0;
  if (BRIDGE_TRY("onnxruntime.provider:get_capability", &status, BRIDGE_WORD(provider->api), provider->id,
                 BRIDGE_WORD(graph), BRIDGE_WORD(support)))
    return (Status*)(uintptr_t)status;
  return bridge_interrupted() ? NULL : failed_call(provider->api);
}

static Status* compile(Provider* provider, const void** graphs, const void** nodes, size_t count, Part** parts,
                       void** context_nodes) {
  Status* status;
  CALL_STATUS(status, provider->api, "compile_parts", provider->id, BRIDGE_WORD(graphs), BRIDGE_WORD(nodes), count,
              BRIDGE_WORD(parts), BRIDGE_WORD(context_nodes));
  return status;
}

/* The tables of direct runs belong to Python, which releases them. If Python has ended, they stay. */
static void release_parts(Provider* provider, Part** parts, size_t count) {
  (void)provider;
  uint64_t ignored;
  for (size_t n = 0; n < count; ++n) {
    if (!parts[n]) continue;
    interposer_bridge_ort_give_up_direct(parts[n]);
    BRIDGE_CALL("onnxruntime.provider:release_part", &ignored, parts[n]->id);
    pthread_rwlock_destroy(&parts[n]->lock);
    free(parts[n]);
  }
}

/* ---- Factories (OrtEpFactory) ------------------------------------------------------------------------------------ */

typedef struct Factory {
  uint32_t version;
  const char* (*get_name)(const struct Factory*);
  const char* (*get_vendor)(const struct Factory*);
  Status* (*get_devices)(struct Factory*, const void* const* devices, size_t count, void** accepted, size_t most,
                         size_t* found_count);
  Status* (*create_provider)(struct Factory*, const void* const* devices, const void* const* metadata, size_t count,
                             const void* options, const void* logger, Provider** provider);
  void (*release_provider)(struct Factory*, Provider* provider);
  uint32_t (*get_vendor_id)(const struct Factory*);
  const char* (*get_version)(const struct Factory*);
  Status* (*validate_compiled)(struct Factory*, const void* const* devices, size_t count, const char* information,
                               int* compatibility);
  Status* (*create_allocator)(struct Factory*, const void* memory, const void* options, void** allocator);
  void (*release_allocator)(struct Factory*, void* allocator);
  Status* (*create_data_transfer)(struct Factory*, void** transfer);
  bool (*is_stream_aware)(const struct Factory*);
  Status* (*create_stream)(struct Factory*, const void* device, const void* options, void** stream);
  Function others[40];
  Api api, ep_api;
  char *name, version_text[32];
} Factory;

static const char* factory_name(const Factory* factory) { return factory->name; }
static const char* factory_vendor(const Factory* factory) { return (void)factory, "Interposer"; }
static uint32_t factory_vendor_id(const Factory* factory) { return (void)factory, VENDOR_ID; }
static const char* factory_version(const Factory* factory) { return factory->version_text; }

/* Offer the provider for the first processor. */
static Status* get_devices(Factory* factory, const void* const* devices, size_t count, void** found, size_t most,
                           size_t* found_count) {
  *found_count = 0;
  for (size_t n = 0; n < count && most && !*found_count; ++n) {
    if (API(factory->api, kDeviceType, int, const void*)(devices[n]) != kProcessor) continue;
    Status* status = API(factory->ep_api, 0, Status*, void*, const void*, const void*, const void*, void**)(
        factory, devices[n], NULL, NULL, &found[0]);
    if (status) return status;
    *found_count = 1;
  }
  return NULL;
}

static Status* create_provider(Factory* factory, const void* const* devices, const void* const* metadata, size_t count,
                               const void* options, const void* logger, Provider** created) {
  (void)devices, (void)metadata, (void)count, (void)logger;
  *created = NULL;
  Provider* provider = calloc(1, sizeof *provider);
  if (!provider || !(provider->name = strdup(factory->name))) {
    free(provider);
    return status_of(factory->api, kFail, "Interposer: there is not enough memory for a provider");
  }
  provider->api = factory->api;
  provider->version = API_VERSION;
  provider->get_name = provider_name, provider->get_capability = get_capability;
  provider->compile = compile, provider->release_parts = release_parts;
  Status* status;
  CALL_STATUS(status, factory->api, "create_provider", BRIDGE_WORD(provider->name), BRIDGE_WORD(options),
              BRIDGE_WORD(&provider->id));
  if (status) {
    free(provider->name);
    free(provider);
    return status;
  }
  *created = provider;
  return NULL;
}

static void release_provider(Factory* factory, Provider* provider) {
  (void)factory;
  if (!provider) return;
  uint64_t ignored;
  BRIDGE_CALL("onnxruntime.provider:release_provider", &ignored, provider->id);
  free(provider->name);
  free(provider);
}

static Status* validate_compiled(Factory* factory, const void* const* devices, size_t count, const char* information,
                                 int* compatibility) {
  (void)devices, (void)count, (void)information, (void)compatibility;
  return status_of(factory->api, kNotImplemented, "Interposer: this provider says nothing of compiled models");
}

static Status* create_allocator(Factory* factory, const void* memory, const void* options, void** allocator) {
  (void)factory, (void)memory, (void)options;
  *allocator = NULL; /* the one of the processor */
  return NULL;
}

static void release_allocator(Factory* factory, void* allocator) { (void)factory, (void)allocator; }

static Status* create_data_transfer(Factory* factory, void** transfer) {
  (void)factory;
  *transfer = NULL;
  return NULL;
}

static bool is_stream_aware(const Factory* factory) { return (void)factory, false; }

static Status* create_stream(Factory* factory, const void* device, const void* options, void** stream) {
  (void)factory, (void)device, (void)options;
  *stream = NULL;
  return NULL;
}

static Factory* new_factory(const char* registration_name) {
  static const char suffix[] = "ExecutionProvider";
  Factory* factory = calloc(1, sizeof *factory);
  size_t length = strlen(registration_name), most = length + sizeof suffix;
  if (!factory || !(factory->name = malloc(most))) {
    free(factory);
    return NULL;
  }
  const char* end = length >= strlen(suffix) ? registration_name + length - strlen(suffix) : "";
  snprintf(factory->name, most, "%s%s", strcasecmp(registration_name, "interposer") ? registration_name : "Interposer",
           strcmp(end, suffix) ? suffix : "");
  factory->version = API_VERSION;
  factory->get_name = factory_name, factory->get_vendor = factory_vendor, factory->get_devices = get_devices;
  factory->create_provider = create_provider, factory->release_provider = release_provider;
  factory->get_vendor_id = factory_vendor_id, factory->get_version = factory_version;
  factory->validate_compiled = validate_compiled, factory->create_allocator = create_allocator;
  factory->release_allocator = release_allocator, factory->create_data_transfer = create_data_transfer;
  factory->is_stream_aware = is_stream_aware, factory->create_stream = create_stream;
  return factory;
}

/* ---- Entry points ------------------------------------------------------------------------------------------------ */

/* Try functions whose results are known, so that a table with another layout is not used. */
static bool check_table(Api api) {
  Status* status = status_of(api, kNotImplemented, "a trial");
  bool right = status && API(api, kGetErrorCode, int, Status*)(status) == kNotImplemented &&
               !strcmp(API(api, kGetErrorMessage, const char*, Status*)(status), "a trial");
  if (!right) return false;
  API(api, kReleaseStatus, void, Status*)(status);
  void* pairs = NULL;
  API(api, kCreateKeyValuePairs, void, void**)(&pairs);
  if (!pairs) return false;
  API(api, kAddKeyValuePair, void, void*, const char*, const char*)(pairs, "key", "value");
  const char* value = API(api, kGetKeyValue, const char*, void*, const char*)(pairs, "key");
  right = value && !strcmp(value, "value");
  API(api, kReleaseKeyValuePairs, void, void*)(pairs);
  return right;
}

/* Before 1.23.1, ONNX Runtime inserts copies between devices into networks of which a provider takes a part, and has no
 * kernel for them. */
static bool is_supported(const char* version) {
  int minor = 0, patch = 0;
  if (sscanf(version, "1.%d.%d", &minor, &patch) < 1) return false;
  return minor > API_VERSION || (minor == API_VERSION && patch >= OLDEST_PATCH);
}

/* `OrtApiBase` has two functions: GetApi and GetVersionString. */
BRIDGE_EXPORT Status* CreateEpFactories(const char* registration_name, const Function* base, const void* logger,
                                        Factory** factories, size_t most, size_t* count) {
  (void)logger;
  *count = 0;
  const char* version = ((const char* (*)(void))base[1])();
  Api (*get_api)(uint32_t) = (Api(*)(uint32_t))base[0];
  if (!is_supported(version) || !get_api(API_VERSION)) {
    char text[200];
    snprintf(text, sizeof text, "Interposer needs ONNX Runtime 1.%d.%d or a later 1.x; this is %.60s", API_VERSION,
             OLDEST_PATCH, version);
    Api oldest = get_api(1); /* CreateStatus was never moved */
    return oldest ? status_of(oldest, kFail, text) : NULL;
  }
  Api api = get_api(API_VERSION);
  if (!check_table(api)) {
    fprintf(stderr, "Interposer: the functions of ONNX Runtime %s are not where they should be; it is not used\n",
            version);
    return NULL;
  }
  if (!most) return status_of(api, kFail, "Interposer: there is no room for a factory");
  Factory* factory = new_factory(registration_name);
  if (!factory) return status_of(api, kFail, "Interposer: there is not enough memory for a factory");
  factory->api = api;
  factory->ep_api = API(api, kGetEpApi, Api, void)();
  Status* status;
  CALL_STATUS(status, api, "start", BRIDGE_WORD(factory->ep_api), BRIDGE_WORD(version),
              BRIDGE_WORD(factory->version_text), sizeof factory->version_text);
  if (status) {
    free(factory->name);
    free(factory);
    return status;
  }
  factories[0] = factory;
  *count = 1;
  return NULL;
}

BRIDGE_EXPORT Status* ReleaseEpFactory(Factory* factory) {
  if (!factory) return NULL;
  free(factory->name);
  free(factory);
  return NULL;
}
