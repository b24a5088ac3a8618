#include "gpuacc/opencl.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <map>
#include <mutex>

#include "interposer/backend.hpp"

namespace gpuacc {
namespace {

OpenCl functions;

std::string missing_function(void* library) {
#define GPUACC_FIND(name, result, parameters)                                     \
  functions.name = reinterpret_cast<result(*) parameters>(dlsym(library, #name)); \
  if (!functions.name) return std::string("libOpenCL has no function ") + #name + "; OpenCL 1.2 or later is needed";
  GPUACC_FUNCTIONS(GPUACC_FIND)
#undef GPUACC_FIND
  return "";
}

std::string opened() {
  for (const char* name : {"libOpenCL.so.1", "libOpenCL.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return missing_function(library);
  return "libOpenCL.so.1 was not found; install the OpenCL loader (Debian: ocl-icd-libopencl1) and a driver";
}

constexpr int kSignals = 32;  // 1 to 31; the later ones are for real time, and drivers leave them alone

std::mutex handlers_mutex;
int keepers = 0;
std::array<struct sigaction, kSignals> handlers;

/// Restore a handler that was replaced.
void restore(int number) {
  struct sigaction now;
  if (sigaction(number, nullptr, &now) != 0) return;
  const struct sigaction& before = handlers[size_t(number)];
  if (now.sa_sigaction != before.sa_sigaction) sigaction(number, &before, nullptr);
}

}  // namespace

SignalHandlers::SignalHandlers() {
  std::lock_guard<std::mutex> lock(handlers_mutex);
  if (keepers++ > 0) return;
  for (int number = 1; number < kSignals; ++number) sigaction(number, nullptr, &handlers[size_t(number)]);
}

SignalHandlers::~SignalHandlers() {
  std::lock_guard<std::mutex> lock(handlers_mutex);
  if (--keepers > 0) return;
  for (int number = 1; number < kSignals; ++number) restore(number);
}

const std::string& open_opencl() {
  static const std::string reason = opened();
  return reason;
}

const OpenCl& cl() { return functions; }

std::string error_name(cl_int status) {
  static const std::map<cl_int, const char*> names = {
      {-1, "CL_DEVICE_NOT_FOUND"},
      {-2, "CL_DEVICE_NOT_AVAILABLE"},
      {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
      {-5, "CL_OUT_OF_RESOURCES"},
      {-6, "CL_OUT_OF_HOST_MEMORY"},
      {-11, "CL_BUILD_PROGRAM_FAILURE"},
      {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
      {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
      {-30, "CL_INVALID_VALUE"},
      {-34, "CL_INVALID_CONTEXT"},
      {-36, "CL_INVALID_COMMAND_QUEUE"},
      {-38, "CL_INVALID_MEM_OBJECT"},
      {-42, "CL_INVALID_BINARY"},
      {-48, "CL_INVALID_KERNEL"},
      {-51, "CL_INVALID_ARG_SIZE"},
      {-52, "CL_INVALID_KERNEL_ARGS"},
      {-54, "CL_INVALID_WORK_GROUP_SIZE"},
      {-55, "CL_INVALID_WORK_ITEM_SIZE"},
      {-61, "CL_INVALID_BUFFER_SIZE"},
      {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
      {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
  };
  auto entry = names.find(status);
  return std::string(entry == names.end() ? "OpenCL error" : entry->second) + " (" + std::to_string(status) + ")";
}

void check(cl_int status, const char* failure) {
  if (status == kSuccess) return;
  const bool memory = status == kOutOfDeviceMemory || status == kOutOfHostMemory;
  const bool lost = status == kDeviceNotAvailable || status == kInvalidContext || status == kInvalidQueue;
  throw ipr::Error(std::string(failure) + ": " + error_name(status), memory ? IPR_OUT_OF_MEMORY
                                                                     : lost ? IPR_DEVICE_LOST
                                                                            : IPR_FAILED);
}

}  // namespace gpuacc
