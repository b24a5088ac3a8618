// An OpenCL library that passes all calls on to the one that the environment variable REAL_OPENCL names. Sources that
// contain the text of the variable NOT_COMPILED are not compiled.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "gpuacc/opencl.hpp"

namespace {

using namespace gpuacc;
using Function = void (*)();

Function real(const char* name) {
  static void* library = dlopen(std::getenv("REAL_OPENCL"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, name));
}

cl_program create_program(cl_context context, cl_uint count, const char** texts, const size_t* sizes, cl_int* status) {
  static auto* create = reinterpret_cast<decltype(&create_program)>(real("clCreateProgramWithSource"));
  const char *wanted = std::getenv("NOT_COMPILED"), *wrong = "this is not OpenCL C";
  if (wanted && std::strstr(texts[0], wanted)) return create(context, 1, &wrong, nullptr, status);
  return create(context, count, texts, sizes, status);
}

Function function(const char* name) {
  if (std::strcmp(name, "clCreateProgramWithSource") == 0) return reinterpret_cast<Function>(&create_program);
  return real(name);
}

}  // namespace

#define PASS_ON(name, result, parameters)                       \
  extern "C" Function find_##name() { return function(#name); } \
  extern "C" void name() __attribute__((ifunc("find_" #name)));
GPUACC_FUNCTIONS(PASS_ON)
