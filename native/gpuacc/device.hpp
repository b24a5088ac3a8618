// An OpenCL device, opened for this process: its profile, its context and queue, and the programs built for it.

#ifndef GPUACC_DEVICE_HPP
#define GPUACC_DEVICE_HPP

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpuacc/opencl.hpp"
#include "interposer/backend.hpp"

namespace gpuacc {

/// What kernels are generated for: the kind of device decides tiles, blocks and local memory.
struct Profile {
  enum Kind { cpu, mobile, desktop } kind = cpu;
  int block = 16;            // channels of a block, which are one vector
  int pixels = 14;           // pixels of a work item in convolutions
  int vectors = 2;           // blocks of output channels of a work item in convolutions and products
  int rows = 8;              // rows of a work item in products
  int group = 64;            // work items of a group in kernels over elements
  int row_group = 1;         // work items that reduce a row together, in local memory; 1: one item, without barriers
  int tile = 0;              // side of the tiles in local memory of products; 0: no local memory
  bool scalar_loads = true;  // convolutions read single input channels; false: whole blocks

  static Profile of(Kind kind);
  static const char* name(Kind kind);
};

/// A description of a device, which can be read without opening it.
struct DeviceInfo {
  cl_platform platform = nullptr;
  cl_device id = nullptr;
  std::string label;               // its name, with the key if several devices have this name
  std::string key;                 // the same in other processes: "pci:0000:41:00.0", or the platform with a number
  std::array<uint8_t, 16> uuid{};  // zeros if it is not known
  std::string platform_name, platform_version, name, vendor, version, driver, extensions;
  cl_ulong type = 0, memory = 0, largest = 0, local_memory = 0;
  size_t alignment = 128, group_limit = 1;  // bytes between sub-buffers; work items of a group
  bool unified = false, has_double = false, has_half = false, exact_division = false;

  Profile::Kind kind() const;
  bool is_processor() const { return (type & kDeviceTypeCpu) != 0; }
  bool has(const char* extension) const;
};

/// The devices of all platforms, GPUs first. Throw ipr::Error with IPR_UNAVAILABLE and the reason if there are none.
std::vector<DeviceInfo> devices();

/// Owns an OpenCL object.
template <class Handle, cl_int (*OpenCl::*Release)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) (cl().*Release)(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using Context = Owned<cl_context, &OpenCl::clReleaseContext>;
using Queue = Owned<cl_queue, &OpenCl::clReleaseCommandQueue>;
/// Memory of a device. `pages` are memory of the host that it uses, freed after it.
class Memory : std::shared_ptr<void>, public Owned<cl_mem, &OpenCl::clReleaseMemObject> {
 public:
  Memory() = default;
  explicit Memory(cl_mem handle, std::shared_ptr<void> pages = nullptr)
      : std::shared_ptr<void>(std::move(pages)), Owned(handle) {}
  using Owned::get;
  using Owned::operator bool;
};
using Program = Owned<cl_program, &OpenCl::clReleaseProgram>;
using Kernel = Owned<cl_kernel, &OpenCl::clReleaseKernel>;
using Event = Owned<cl_event, &OpenCl::clReleaseEvent>;

/// A driver does not compile a source. `what` is short; `log` has the messages of the compiler.
class NotCompiled : public ipr::Error {
 public:
  NotCompiled(const std::string& text, std::string log) : Error(text, IPR_UNSUPPORTED), log(std::move(log)) {}
  std::string log;
};

/// An opened device. All functions may be called by several threads.
class Device {
 public:
  explicit Device(const DeviceInfo& info);
  ~Device();
  Device(const Device&) = delete;

  const DeviceInfo info;

  /// A queue in order. One for each executable, so that executables overlap.
  Queue queue() const;
  /// Memory with undefined content, of at least one byte.
  Memory buffer(uint64_t bytes) const;
  /// Memory with this content.
  Memory constant(const void* data, uint64_t bytes) const;
  /// Memory of the host, used in place.
  Memory imported(const void* data, uint64_t bytes) const;
  /// A part of other memory; `offset` is a multiple of `info.alignment`.
  Memory part(const Memory& whole, uint64_t offset, uint64_t bytes) const;

  /// The program of a source text, shared by executables. It is built if no executable has it and it is not among the
  /// programs that were used last. Throw `NotCompiled` if the driver does not compile it.
  std::shared_ptr<Program> program(const std::string& source);
  /// The program of a source text, from the binary that `binary` returned. Null if the driver does not accept it.
  std::shared_ptr<Program> restored(const std::string& source, const std::string& binary);

  /// What `measure` returned at the first call with this key.
  int measured(const std::string& key, const std::function<int()>& measure);

  /// Constants by their content and packing, shared by executables as long as one uses them.
  std::shared_ptr<Memory> shared(const std::string& key, const std::function<Memory()>& make);

 private:
  Program built(const std::string& source);
  std::shared_ptr<Program> known(const std::string& source) const;
  void keep(const std::string& source, const std::shared_ptr<Program>& program);

  Context context_;
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Program>> programs_;
  std::list<std::shared_ptr<Program>> recent_;  // programs for later networks, the one that was used last at the end
  std::map<std::string, std::weak_ptr<Memory>> constants_;
  std::mutex measuring_;  // one measurement at a time, so that none disturbs another
  std::map<std::string, int> measured_;
};

/// The binary of a program for its only device.
std::string binary(const Program& program);
/// The kernel `k` of a program.
Kernel kernel_of(const Program& program);

}  // namespace gpuacc

#endif  // GPUACC_DEVICE_HPP
