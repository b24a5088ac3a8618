/* A program without Python that loads the delegate as programs in C load external delegates. Its arguments are the path
 * of the library, and names and texts of options. It prints what the delegate reports. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void* Create(const char* const* keys, const char* const* values, size_t count, void (*report)(const char*));
typedef void Destroy(void* delegate);

static void report(const char* text) { printf("%s\n", text); }

int main(int count, char** words) {
  const char *keys[8], *values[8];
  size_t options = 0;
  void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s\n", dlerror());
    return 2;
  }
  Create* create = (Create*)dlsym(library, "tflite_plugin_create_delegate");
  Destroy* destroy = (Destroy*)dlsym(library, "tflite_plugin_destroy_delegate");
  for (int n = 2; n + 1 < count && options < 8; n += 2, ++options) {
    keys[options] = words[n];
    values[options] = words[n + 1];
  }
  void* delegate = create(keys, values, options, report);
  printf(delegate ? "created\n" : "refused\n");
  if (delegate) destroy(delegate);
  return 0;
}
