#include "gpuacc/device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "gpuacc/recorder.hpp"

namespace gpuacc {
namespace {

constexpr size_t kMostRecent = 256;  // programs that stay in memory for later networks

template <class Objects>
void erase_expired(Objects& objects) {
  for (auto at = objects.begin(); at != objects.end();) at = at->second.expired() ? objects.erase(at) : std::next(at);
}

template <class T>
T number(cl_device device, cl_uint property, T absent = {}) {
  T value = absent;
  return cl().clGetDeviceInfo(device, property, sizeof value, &value, nullptr) == kSuccess ? value : absent;
}

template <class Function, class Handle>
std::string text_of(Function function, Handle handle, cl_uint property) {
  size_t size = 0;
  if (function(handle, property, 0, nullptr, &size) != kSuccess || size == 0) return "";
  std::string text(size, '\0');
  if (function(handle, property, size, &text[0], nullptr) != kSuccess) return "";
  text.resize(text.find('\0'));
  return text;
}

/// The address of a device on the bus; empty if the driver does not know it.
std::string bus_address(const DeviceInfo& info) {
  struct {
    cl_uint domain, bus, device, function;
  } address = {};
  if (!info.has("cl_khr_pci_bus_info")) return "";
  if (cl().clGetDeviceInfo(info.id, kDevicePci, sizeof address, &address, nullptr) != kSuccess) return "";
  char text[40];
  std::snprintf(text, sizeof text, "pci:%04x:%02x:%02x.%x", address.domain, address.bus, address.device,
                address.function);
  return text;
}

/// The letters and digits of the platform's name, with the number of the device in the platform.
std::string platform_address(const DeviceInfo& info, size_t number) {
  std::string text;
  for (char c : info.platform_name)
    if (std::isalnum(static_cast<unsigned char>(c))) text += c;
  return text + ":" + std::to_string(number);
}

DeviceInfo described(cl_platform platform, cl_device id) {
  DeviceInfo info;
  auto text = [&](cl_uint property) { return text_of(cl().clGetDeviceInfo, id, property); };
  info.platform = platform;
  info.id = id;
  info.platform_name = text_of(cl().clGetPlatformInfo, platform, kPlatformName);
  info.platform_version = text_of(cl().clGetPlatformInfo, platform, kPlatformVersion);
  info.name = text(kDeviceName);
  info.vendor = text(kDeviceVendor);
  info.version = text(kDeviceVersion);
  info.driver = text(kDriverVersion);
  info.extensions = text(kDeviceExtensions);
  info.type = number<cl_ulong>(id, kDeviceType);
  info.memory = number<cl_ulong>(id, kDeviceGlobalMemory);
  info.largest = number<cl_ulong>(id, kDeviceMaxAllocation);
  info.local_memory = number<cl_ulong>(id, kDeviceLocalMemory);
  info.alignment = std::max<size_t>(number<cl_uint>(id, kDeviceBaseAlignment, 1024) / 8, 64);
  info.group_limit = number<size_t>(id, kDeviceMaxWorkGroupSize, 1);
  info.unified = number<cl_uint>(id, kDeviceUnified) != 0;
  info.has_double = number<cl_ulong>(id, kDeviceDoubleConfig) != 0;
  info.has_half = info.has("cl_khr_fp16");
  info.exact_division = (number<cl_ulong>(id, kDeviceSingleConfig) & kCorrectlyRoundedDivision) != 0;
  if (info.has("cl_khr_device_uuid"))
    cl().clGetDeviceInfo(id, kDeviceUuid, info.uuid.size(), info.uuid.data(), nullptr);
  return info;
}

std::vector<cl_platform> platforms() {
  cl_uint count = 0;
  if (cl().clGetPlatformIDs(0, nullptr, &count) != kSuccess) count = 0;
  std::vector<cl_platform> found(count);
  if (count) check(cl().clGetPlatformIDs(count, found.data(), nullptr), "the OpenCL platforms cannot be listed");
  return found;
}

std::vector<cl_device> devices_of(cl_platform platform) {
  cl_uint count = 0;
  if (cl().clGetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count) != kSuccess) return {};
  std::vector<cl_device> found(count);
  if (count) check(cl().clGetDeviceIDs(platform, kDeviceTypeAll, count, found.data(), nullptr), "devices");
  return found;
}

void add_devices(cl_platform platform, std::vector<DeviceInfo>& infos) {
  size_t number = 0;
  for (cl_device id : devices_of(platform)) {
    infos.push_back(described(platform, id));
    const std::string address = bus_address(infos.back());
    infos.back().key = address.empty() ? platform_address(infos.back(), number) : address;
    ++number;
  }
}

/// Memory that goes back to the system at once when it is freed, unlike that of the C library.
std::shared_ptr<void> mapped_pages(uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return {pages, [bytes](void* mapping) { munmap(mapping, bytes); }};
}

constexpr uint64_t kMappedBytes = 1 << 17;

}  // namespace

Profile Profile::of(Kind kind) {
  Profile profile;
  profile.kind = kind;
  if (kind == cpu) return profile;
  profile.block = 4;
  profile.pixels = 4;
  profile.vectors = kind == mobile ? 1 : 2;
  profile.rows = 4;
  profile.row_group = kind == mobile ? 32 : 64;
  profile.tile = kind == mobile ? 0 : 32;
  profile.scalar_loads = false;
  return profile;
}

const char* Profile::name(Kind kind) { return kind == cpu ? "cpu" : kind == mobile ? "mobile" : "desktop"; }

Profile::Kind DeviceInfo::kind() const {
  if (type & kDeviceTypeCpu) return Profile::cpu;
  if (unified && (name.find("Mali") != std::string::npos || name.find("Adreno") != std::string::npos ||
                  name.find("PowerVR") != std::string::npos))
    return Profile::mobile;
  return Profile::desktop;
}

bool DeviceInfo::has(const char* extension) const {
  return (" " + extensions + " ").find(std::string(" ") + extension + " ") != std::string::npos;
}

std::vector<DeviceInfo> devices() {
  const SignalHandlers handlers;
  if (const std::string& why = open_opencl(); !why.empty()) throw ipr::Error(why, IPR_UNAVAILABLE);
  std::vector<DeviceInfo> infos;
  const std::vector<cl_platform> all = platforms();
  if (all.empty())
    throw ipr::Error("no OpenCL driver is installed (on a processor: Debian's pocl-opencl-icd)", IPR_UNAVAILABLE);
  for (cl_platform platform : all) add_devices(platform, infos);
  if (infos.empty()) throw ipr::Error("the OpenCL drivers found no device", IPR_UNAVAILABLE);
  std::stable_sort(infos.begin(), infos.end(), [](const DeviceInfo& a, const DeviceInfo& b) {
    return (a.type & kDeviceTypeGpu) > (b.type & kDeviceTypeGpu);
  });
  for (DeviceInfo& info : infos) {
    const auto same = std::count_if(infos.begin(), infos.end(), [&](auto& other) { return other.name == info.name; });
    info.label = same > 1 ? info.name + " " + info.key : info.name;
  }
  return infos;
}

Device::Device(const DeviceInfo& info) : info(info) {
  cl_int status = kSuccess;
  context_ = Context(cl().clCreateContext(nullptr, 1, &info.id, nullptr, nullptr, &status));
  check(status, "the OpenCL device cannot be opened");
  Recorder::all().know(this);
}

Device::~Device() { Recorder::all().forget(this); }

Queue Device::queue() const {
  cl_int status = kSuccess;
  Queue made(cl().clCreateCommandQueue(context_.get(), info.id, kQueueProfiling, &status));
  check(status, "no command queue can be created");
  return made;
}

Memory Device::buffer(uint64_t bytes) const {
  cl_int status = kSuccess;
  if (info.is_processor() && bytes >= kMappedBytes) {
    std::shared_ptr<void> pages = mapped_pages(bytes);
    Memory made(cl().clCreateBuffer(context_.get(), kMemReadWrite | kMemUseHostPtr, bytes, pages.get(), &status),
                pages);
    check(status, "no memory can be allocated on the device");
    return made;
  }
  Memory made(cl().clCreateBuffer(context_.get(), kMemReadWrite, std::max<uint64_t>(bytes, 1), nullptr, &status));
  check(status, "no memory can be allocated on the device");
  return made;
}

Memory Device::constant(const void* data, uint64_t bytes) const {
  if (bytes == 0) return buffer(1);
  cl_int status = kSuccess;
  Memory made(
      cl().clCreateBuffer(context_.get(), kMemReadWrite | kMemCopyHostPtr, bytes, const_cast<void*>(data), &status));
  check(status, "no memory can be allocated on the device for constants");
  return made;
}

Memory Device::imported(const void* data, uint64_t bytes) const {
  cl_int status = kSuccess;
  Memory made(
      cl().clCreateBuffer(context_.get(), kMemReadWrite | kMemUseHostPtr, bytes, const_cast<void*>(data), &status));
  check(status, "memory of the host cannot be used");
  return made;
}

Memory Device::part(const Memory& whole, uint64_t offset, uint64_t bytes) const {
  cl_int status = kSuccess;
  BufferRegion region = {size_t(offset), std::max<size_t>(size_t(bytes), 1)};
  Memory made(cl().clCreateSubBuffer(whole.get(), kMemReadWrite, kBufferRegion, &region, &status));
  check(status, "memory cannot be divided");
  return made;
}

Program Device::built(const std::string& source) {
  const SignalHandlers handlers;
  cl_int status = kSuccess;
  const char* text = source.c_str();
  const size_t size = source.size();
  Program program(cl().clCreateProgramWithSource(context_.get(), 1, &text, &size, &status));
  check(status, "a program cannot be created");
  const char* options = info.exact_division ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
  status = cl().clBuildProgram(program.get(), 1, &info.id, options, nullptr, nullptr);
  if (status == kSuccess) return program;
  size_t length = 0;
  cl().clGetProgramBuildInfo(program.get(), info.id, kProgramBuildLog, 0, nullptr, &length);
  std::string log(length, '\0');
  if (length) cl().clGetProgramBuildInfo(program.get(), info.id, kProgramBuildLog, length, &log[0], nullptr);
  throw NotCompiled("the driver " + info.driver + " does not compile a kernel: " + error_name(status),
                    log.substr(0, 2000));
}

std::shared_ptr<Program> Device::program(const std::string& source) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Program> program = known(source);
  if (!program) {
    program = std::make_shared<Program>(built(source));
    Recorder::all().count_program();
  }
  keep(source, program);
  return program;
}

std::shared_ptr<Program> Device::restored(const std::string& source, const std::string& binary) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::shared_ptr<Program> program = known(source)) return program;
  cl_int status = kSuccess, accepted = kSuccess;
  const size_t size = binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  Program made(cl().clCreateProgramWithBinary(context_.get(), 1, &info.id, &size, &bytes, &accepted, &status));
  if (status != kSuccess || accepted != kSuccess) return nullptr;
  if (cl().clBuildProgram(made.get(), 1, &info.id, "", nullptr, nullptr) != kSuccess) return nullptr;
  const auto program = std::make_shared<Program>(std::move(made));
  keep(source, program);
  return program;
}

std::shared_ptr<Program> Device::known(const std::string& source) const {
  const auto at = programs_.find(source);
  return at == programs_.end() ? nullptr : at->second.lock();
}

/// Make a program the one that was used last, and forget the least recently used one if there are too many.
void Device::keep(const std::string& source, const std::shared_ptr<Program>& program) {
  programs_[source] = program;
  recent_.remove(program);
  recent_.push_back(program);
  if (recent_.size() <= kMostRecent) return;
  recent_.pop_front();
  erase_expired(programs_);
}

std::string binary(const Program& program) {
  size_t size = 0;
  check(cl().clGetProgramInfo(program.get(), kProgramBinarySizes, sizeof size, &size, nullptr), "no binary size");
  std::string bytes(size, '\0');
  auto* data = reinterpret_cast<unsigned char*>(&bytes[0]);
  check(cl().clGetProgramInfo(program.get(), kProgramBinaries, sizeof data, &data, nullptr), "no binary");
  return bytes;
}

Kernel kernel_of(const Program& program) {
  cl_int status = kSuccess;
  Kernel kernel(cl().clCreateKernel(program.get(), "k", &status));
  check(status, "a kernel cannot be created");
  return kernel;
}

int Device::measured(const std::string& key, const std::function<int()>& measure) {
  std::lock_guard<std::mutex> lock(measuring_);
  auto entry = measured_.find(key);
  if (entry == measured_.end()) entry = measured_.emplace(key, measure()).first;
  return entry->second;
}

std::shared_ptr<Memory> Device::shared(const std::string& key, const std::function<Memory()>& make) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::shared_ptr<Memory> found = constants_[key].lock()) return found;
  auto constant = std::make_shared<Memory>(make());
  constants_[key] = constant;
  erase_expired(constants_);
  return constant;
}

}  // namespace gpuacc
