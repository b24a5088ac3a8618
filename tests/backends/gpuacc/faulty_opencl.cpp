// An OpenCL library that passes all calls on to the one that the environment variable REAL_OPENCL names. Sources that
// contain the text of the variable NOT_COMPILED are not compiled. `plant` lets the next wait take longer, or fail.

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

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

std::atomic<int> planted_status{0}, planted_milliseconds{0};

cl_int finish(cl_queue queue) {
  static auto* wait = reinterpret_cast<decltype(&finish)>(real("clFinish"));
  std::this_thread::sleep_for(std::chrono::milliseconds(planted_milliseconds.exchange(0)));
  const cl_int planted = planted_status.exchange(0), found = wait(queue);
  return planted ? planted : found;
}

Function function(const char* name) {
  if (std::strcmp(name, "clFinish") == 0) return reinterpret_cast<Function>(&finish);
  if (std::strcmp(name, "clCreateProgramWithSource") == 0) return reinterpret_cast<Function>(&create_program);
  return real(name);
}

}  // namespace

/// Let the next wait for a queue take so many milliseconds more, and return an error unless `status` is 0.
extern "C" void plant(int status, int milliseconds) {
  planted_milliseconds = milliseconds;
  planted_status = status;
}

#define PASS_ON(name, result, parameters)                       \
  extern "C" Function find_##name() { return function(#name); } \
  extern "C" void name() __attribute__((ifunc("find_" #name)));
GPUACC_FUNCTIONS(PASS_ON)
