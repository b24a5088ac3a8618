// An OpenCL library that passes all calls on to the one that the environment variable REAL_OPENCL names. Sources that
// contain the text of the variable NOT_COMPILED are not compiled. `plant` lets the next wait take longer, or fail.
// `living` counts the objects that were created and not yet released.

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <tuple>

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

enum Kind { context, queue, memory, program, kernel, event, kinds };
std::array<std::atomic<int>, kinds> objects{};

/// A function of OpenCL that creates or releases an object. `Name` has its name and the kind of object.
template <class Name, class Pointer>
struct Counted;
template <class Name, class Result, class... Arguments>
struct Counted<Name, Result (*)(Arguments...)> {
  static Result call(Arguments... arguments) {
    static auto* function = reinterpret_cast<Result (*)(Arguments...)>(found());
    return function(arguments...);
  }
  static Result create(Arguments... arguments) {
    Result made = call(arguments...);
    if (made) ++objects[Name::kind()];
    return made;
  }
  static Result release(Arguments... arguments) {
    --objects[Name::kind()];
    return call(arguments...);
  }
  /// The object is an event, if the caller wants one.
  static Result enqueue(Arguments... arguments) {
    Result result = call(arguments...);
    cl_event* made = std::get<cl_event*>(std::tuple<Arguments...>(arguments...));
    if (made && *made) ++objects[Name::kind()];
    return result;
  }
  static Function found() {
    if (std::strcmp(Name::text(), "clCreateProgramWithSource") == 0) return reinterpret_cast<Function>(&create_program);
    return real(Name::text());
  }
};

#define COUNT(name, object, action)             \
  struct name##_name {                          \
    static Kind kind() { return object; }       \
    static const char* text() { return #name; } \
  };                                            \
  if (std::strcmp(wanted, #name) == 0)          \
    return reinterpret_cast<Function>(&Counted<name##_name, decltype(OpenCl::name)>::action);

Function counted(const char* wanted) {
  COUNT(clCreateContext, context, create)
  COUNT(clReleaseContext, context, release)
  COUNT(clCreateCommandQueue, queue, create)
  COUNT(clReleaseCommandQueue, queue, release)
  COUNT(clCreateBuffer, memory, create)
  COUNT(clCreateSubBuffer, memory, create)
  COUNT(clReleaseMemObject, memory, release)
  COUNT(clCreateProgramWithSource, program, create)
  COUNT(clCreateProgramWithBinary, program, create)
  COUNT(clReleaseProgram, program, release)
  COUNT(clCreateKernel, kernel, create)
  COUNT(clReleaseKernel, kernel, release)
  COUNT(clEnqueueNDRangeKernel, event, enqueue)
  COUNT(clEnqueueReadBuffer, event, enqueue)
  COUNT(clEnqueueWriteBuffer, event, enqueue)
  COUNT(clEnqueueMapBuffer, event, enqueue)
  COUNT(clEnqueueUnmapMemObject, event, enqueue)
  COUNT(clReleaseEvent, event, release)
  return nullptr;
}

Function function(const char* name) {
  if (Function found = counted(name)) return found;
  if (std::strcmp(name, "clFinish") == 0) return reinterpret_cast<Function>(&finish);
  return real(name);
}

}  // namespace

/// Let the next wait for a queue take so many milliseconds more, and return an error unless `status` is 0.
extern "C" void plant(int status, int milliseconds) {
  planted_milliseconds = milliseconds;
  planted_status = status;
}

/// The number of objects of a kind that were created and not released: 0 contexts, 1 queues, 2 memory, 3 programs, 4
/// kernels, 5 events.
extern "C" int living(int kind) { return objects[size_t(kind)]; }

#define PASS_ON(name, result, parameters)                       \
  extern "C" Function find_##name() { return function(#name); } \
  extern "C" void name() __attribute__((ifunc("find_" #name)));
GPUACC_FUNCTIONS(PASS_ON)
