// The part of OpenCL 1.2 that GpuAcc uses, declared here so that no OpenCL package is needed to build it. The library
// is opened at run time; the names and numbers are those of the OpenCL specification.

#ifndef GPUACC_OPENCL_HPP
#define GPUACC_OPENCL_HPP

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuacc {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_platform = struct cl_platform_id_*;
using cl_device = struct cl_device_id_*;
using cl_context = struct cl_context_*;
using cl_queue = struct cl_command_queue_*;
using cl_mem = struct cl_mem_*;
using cl_program = struct cl_program_*;
using cl_kernel = struct cl_kernel_*;
using cl_event = struct cl_event_*;

constexpr cl_int kSuccess = 0;
constexpr cl_int kDeviceNotFound = -1;
constexpr cl_int kDeviceNotAvailable = -2;
constexpr cl_int kOutOfDeviceMemory = -4;
constexpr cl_int kOutOfResources = -5;
constexpr cl_int kOutOfHostMemory = -6;
constexpr cl_int kInvalidContext = -34;
constexpr cl_int kInvalidQueue = -36;
constexpr cl_int kInvalidBinary = -42;
constexpr cl_int kNoPlatform = -1001;

constexpr cl_ulong kDeviceTypeCpu = 2, kDeviceTypeGpu = 4, kDeviceTypeAll = 0xFFFFFFFF;
constexpr cl_ulong kMemReadWrite = 1, kMemUseHostPtr = 8, kMemCopyHostPtr = 32;
constexpr cl_ulong kQueueProfiling = 2;
constexpr cl_ulong kMapRead = 1, kMapWrite = 2;
constexpr cl_uint kBufferRegion = 0x1220;

/// What is asked of platforms, devices, programs, kernels and events.
enum : cl_uint {
  kPlatformVersion = 0x0901,
  kPlatformName = 0x0902,
  kDeviceType = 0x1000,
  kDeviceVendorId = 0x1001,
  kDeviceComputeUnits = 0x1002,
  kDeviceMaxWorkGroupSize = 0x1004,
  kDeviceMaxAllocation = 0x1010,
  kDeviceBaseAlignment = 0x1019,  // in bits
  kDeviceSingleConfig = 0x101B,
  kDeviceGlobalMemory = 0x101F,
  kDeviceLocalType = 0x1022,  // 1: memory of its own, 2: global memory
  kDeviceLocalMemory = 0x1023,
  kDeviceName = 0x102B,
  kDeviceVendor = 0x102C,
  kDriverVersion = 0x102D,
  kDeviceVersion = 0x102F,
  kDeviceExtensions = 0x1030,
  kDeviceDoubleConfig = 0x1032,
  kDeviceUnified = 0x1035,
  kDeviceUuid = 0x106A,  // cl_khr_device_uuid
  kDevicePci = 0x410F,   // cl_khr_pci_bus_info
  kProgramBinarySizes = 0x1165,
  kProgramBinaries = 0x1166,
  kProgramBuildLog = 0x1183,
  kKernelWorkGroupSize = 0x11B0,
  kEventStart = 0x1282,
  kEventEnd = 0x1283,
};

constexpr cl_ulong kCorrectlyRoundedDivision = 1 << 7;

struct BufferRegion {
  size_t origin, size;
};

/// The functions of the library; all are present after `open_opencl` succeeded.
#define GPUACC_FUNCTIONS(F)                                                                                           \
  F(clGetPlatformIDs, cl_int, (cl_uint, cl_platform*, cl_uint*))                                                      \
  F(clGetPlatformInfo, cl_int, (cl_platform, cl_uint, size_t, void*, size_t*))                                        \
  F(clGetDeviceIDs, cl_int, (cl_platform, cl_ulong, cl_uint, cl_device*, cl_uint*))                                   \
  F(clGetDeviceInfo, cl_int, (cl_device, cl_uint, size_t, void*, size_t*))                                            \
  F(clCreateContext, cl_context,                                                                                      \
    (const intptr_t*, cl_uint, const cl_device*, void (*)(const char*, const void*, size_t, void*), void*, cl_int*))  \
  F(clReleaseContext, cl_int, (cl_context))                                                                           \
  F(clCreateCommandQueue, cl_queue, (cl_context, cl_device, cl_ulong, cl_int*))                                       \
  F(clReleaseCommandQueue, cl_int, (cl_queue))                                                                        \
  F(clCreateBuffer, cl_mem, (cl_context, cl_ulong, size_t, void*, cl_int*))                                           \
  F(clCreateSubBuffer, cl_mem, (cl_mem, cl_ulong, cl_uint, const void*, cl_int*))                                     \
  F(clReleaseMemObject, cl_int, (cl_mem))                                                                             \
  F(clCreateProgramWithSource, cl_program, (cl_context, cl_uint, const char**, const size_t*, cl_int*))               \
  F(clCreateProgramWithBinary, cl_program,                                                                            \
    (cl_context, cl_uint, const cl_device*, const size_t*, const unsigned char**, cl_int*, cl_int*))                  \
  F(clBuildProgram, cl_int, (cl_program, cl_uint, const cl_device*, const char*, void (*)(cl_program, void*), void*)) \
  F(clGetProgramInfo, cl_int, (cl_program, cl_uint, size_t, void*, size_t*))                                          \
  F(clGetProgramBuildInfo, cl_int, (cl_program, cl_device, cl_uint, size_t, void*, size_t*))                          \
  F(clReleaseProgram, cl_int, (cl_program))                                                                           \
  F(clCreateKernel, cl_kernel, (cl_program, const char*, cl_int*))                                                    \
  F(clGetKernelWorkGroupInfo, cl_int, (cl_kernel, cl_device, cl_uint, size_t, void*, size_t*))                        \
  F(clReleaseKernel, cl_int, (cl_kernel))                                                                             \
  F(clSetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void*))                                                \
  F(clEnqueueNDRangeKernel, cl_int,                                                                                   \
    (cl_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint, const cl_event*, cl_event*)) \
  F(clEnqueueReadBuffer, cl_int,                                                                                      \
    (cl_queue, cl_mem, cl_uint, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))                          \
  F(clEnqueueWriteBuffer, cl_int,                                                                                     \
    (cl_queue, cl_mem, cl_uint, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*))                    \
  F(clEnqueueMapBuffer, void*,                                                                                        \
    (cl_queue, cl_mem, cl_uint, cl_ulong, size_t, size_t, cl_uint, const cl_event*, cl_event*, cl_int*))              \
  F(clEnqueueUnmapMemObject, cl_int, (cl_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))                  \
  F(clFlush, cl_int, (cl_queue))                                                                                      \
  F(clWaitForEvents, cl_int, (cl_uint, const cl_event*))                                                              \
  F(clFinish, cl_int, (cl_queue))                                                                                     \
  F(clGetEventProfilingInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                                     \
  F(clReleaseEvent, cl_int, (cl_event))

#define GPUACC_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
struct OpenCl {
  GPUACC_FUNCTIONS(GPUACC_MEMBER)
};
#undef GPUACC_MEMBER

/// Open the library at the first call. Return why it cannot be used, or an empty text.
const std::string& open_opencl();

/// The functions, after `open_opencl`.
const OpenCl& cl();

/// Keeps the handlers of signals as they are. Compilers in drivers install handlers, which would take Ctrl-C and
/// crashes from the program. The handlers from before the first object of this kind are restored after the last one.
class SignalHandlers {
 public:
  SignalHandlers();
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
};

/// The name of an error: "CL_OUT_OF_RESOURCES (-5)".
std::string error_name(cl_int status);

/// Throw ipr::Error unless `status` is CL_SUCCESS. `failure` says what was tried: "the kernel cannot be started".
void check(cl_int status, const char* failure);

}  // namespace gpuacc

#endif  // GPUACC_OPENCL_HPP
