/* A program without Python that runs digits.onnx in ONNX Runtime, on the provider of a library:
 * host LIBONNXRUNTIME LIBRARY MODEL */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* Pointer;
static Pointer* api; /* OrtApi, as a table of functions */

#define CALL(number, ...)                                                        \
  do {                                                                           \
    Pointer status = ((Pointer(*)())api[number])(__VA_ARGS__);                   \
    if (status) {                                                                \
      printf("%s\n", ((const char* (*)(Pointer))api[2])(status));                \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

static Pointer session_with_provider(Pointer environment, const char* model) {
  Pointer options, session, *devices;
  size_t count;
  const char *keys[] = {"backends"}, *values[] = {getenv("BACKENDS")};
  CALL(10, &options);                     /* CreateSessionOptions */
  CALL(303, environment, &devices, &count); /* GetEpDevices */
  for (size_t n = 0; n < count; ++n) {
    const char* name = ((const char* (*)(Pointer))api[312])(devices[n]); /* EpDevice_EpName */
    if (!strcmp(name, "InterposerExecutionProvider"))
      CALL(304, options, environment, &devices[n], (size_t)1, keys, values, (size_t)1); /* ..._V2 */
  }
  CALL(7, environment, model, options, &session); /* CreateSession */
  ((void (*)(Pointer))api[100])(options);
  return session;
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  Pointer library = dlopen(arguments[1], RTLD_NOW), environment, memory, input, output = NULL;
  if (!library) return puts(dlerror()), 2;
  Pointer* base = ((Pointer * (*)(void)) dlsym(library, "OrtGetApiBase"))();
  api = ((Pointer * (*)(uint32_t)) base[0])(23);
  CALL(3, 4, "host", &environment);                     /* CreateEnv */
  CALL(301, environment, "Interposer", arguments[2]);   /* RegisterExecutionProviderLibrary */
  Pointer session = session_with_provider(environment, arguments[3]);
  static float image[64];
  int64_t shape[4] = {1, 1, 8, 8};
  const char *inputs[] = {"image"}, *outputs[] = {"probabilities"};
  for (int n = 0; n < 64; ++n) image[n] = (float)(n * 7 % 16) / 16;
  CALL(69, 0, 0, &memory);                                                        /* CreateCpuMemoryInfo */
  CALL(49, memory, image, sizeof image, shape, (size_t)4, 1, &input);             /* CreateTensorWithData... */
  for (int n = 0; n < 3; ++n)
    CALL(9, session, NULL, inputs, &input, (size_t)1, outputs, (size_t)1, &output); /* Run */
  float* values;
  CALL(51, output, &values); /* GetTensorMutableData */
  for (int n = 0; n < 10; ++n) printf("%.5f ", values[n]);
  puts("");
  ((void (*)(Pointer))api[96])(output);
  ((void (*)(Pointer))api[96])(input);
  ((void (*)(Pointer))api[94])(memory);
  ((void (*)(Pointer))api[95])(session);
  CALL(302, environment, "Interposer"); /* UnregisterExecutionProviderLibrary */
  ((void (*)(Pointer))api[92])(environment);
  return 0;
}
