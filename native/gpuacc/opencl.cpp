#include "gpuacc/opencl.hpp"

#include <dlfcn.h>

#include <map>

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

}  // namespace

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
  auto found = names.find(status);
  return std::string(found == names.end() ? "OpenCL error" : found->second) + " (" + std::to_string(status) + ")";
}

void check(cl_int status, const char* what) {
  if (status == kSuccess) return;
  const bool memory = status == kOutOfDeviceMemory || status == kOutOfHostMemory;
  throw ipr::Error(std::string(what) + ": " + error_name(status), memory ? IPR_OUT_OF_MEMORY : IPR_FAILED);
}

}  // namespace gpuacc
