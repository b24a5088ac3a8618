// The backend as the host sees it: options, support queries, compilation, blobs.

#include <stdlib.h>

#include "common/build_id.hpp"
#include "gpuacc/blob.hpp"
#include "gpuacc/lowering.hpp"
#include "gpuacc/program.hpp"
#include "gpuacc/recorder.hpp"
#include "interposer/queues.hpp"

namespace gpuacc {
namespace {

constexpr uint32_t kEverywhere = IPR_SCOPE_INIT | IPR_SCOPE_MODEL;
constexpr int64_t kMostElements = (int64_t(1) << 31) - 1;

ipr::Verdict shapes_of(const ipr::Layer& layer) {
  auto judged = [](const ipr::TensorInfo& info) {
    if (!info) return ipr::yes();
    if (!info.is_concrete()) return ipr::no("a shape is unknown until the network runs", IPR_REASON_SHAPE);
    if (info.elements() > kMostElements) return ipr::no("a tensor has 2**31 elements or more", IPR_REASON_RESOURCE);
    return ipr::yes();
  };
  for (size_t n = 0; n < layer.input_count(); ++n)
    if (ipr::Verdict verdict = judged(layer.input(n)); is_refused(verdict)) return verdict;
  for (size_t n = 0; n < layer.output_count(); ++n)
    if (ipr::Verdict found = judged(layer.output(n)); is_refused(found)) return found;
  return ipr::yes();
}

ipr::Verdict verdict(const ipr::Layer& layer, const Target& target) {
  const Lowering* lowering = find_lowering(layer.type());
  if (!lowering) return ipr::no("no kernel for " + std::string(layer.type()), IPR_REASON_LAYER_TYPE);
  ipr::Verdict found = shapes_of(layer);
  if (is_refused(found)) return found;
  if (layer.text("requantization") == "HALF_TO_EVEN" && layer.output(0).is_quantized() && layer.type() != "Activation")
    return ipr::no("no kernel for " + std::string(layer.type()) + " that rounds half to even", IPR_REASON_ATTRIBUTE);
  return lowering->support(layer, target);
}

/// The devices as the host gets them ("ipr.devices/1").
class DeviceTable {
 public:
  explicit DeviceTable(const std::vector<DeviceInfo>& infos) : infos_(infos) {
    for (const DeviceInfo& info : infos_) {
      ipr_device device = {};
      device.id = ipr::string(info.key);
      device.name = ipr::string(info.name);
      device.vendor = ipr::string(info.vendor);
      device.driver = ipr::string(info.driver);
      device.type = info.type & kDeviceTypeGpu ? IPR_DEVICE_GPU
                    : info.is_processor()      ? IPR_DEVICE_CPU
                                               : IPR_DEVICE_OTHER;
      device.memory_kinds = info.unified ? IPR_MEMORY_HOST : 0;
      device.flags = (info.unified ? IPR_DEVICE_UNIFIED : 0) | (info.is_processor() ? IPR_DEVICE_SIMULATED : 0);
      device.memory = info.memory;
      device.largest = info.largest;
      if (info.uuid != std::array<uint8_t, 16>()) device.uuid = info.uuid.data();
      raw_.push_back(device);
    }
  }

  void write(ipr_devices* out) const {
    out->device_count = raw_.size();
    out->device_stride = sizeof(ipr_device);
    out->devices = raw_.data();
  }

 private:
  const std::vector<DeviceInfo> infos_;
  std::vector<ipr_device> raw_;
};

class GpuAcc : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Interposer";
    info.name = "GpuAcc";
    info.version = "1.0.0";
    info.description = "Kernels in OpenCL for whole networks on GPUs";
    info.capabilities = IPR_CAP_CONCURRENT_COMPILE | IPR_CAP_KEEPS_CONSTANTS | IPR_CAP_WANTS_HASHES |
                        IPR_CAP_DETERMINISTIC | IPR_CAP_UNALIGNED_CONSTANTS;
    info.options = {
        {"Device", "the OpenCL device, by its number among those of all drivers, GPUs first", 0, kEverywhere},
        {"Profile", "what kernels are generated for: cpu, mobile or desktop; auto: what the device is", "auto",
         kEverywhere},
        {"TuningLevel", "0: choose kernels by rules; 1: measure alternatives when a network is loaded", 1, kEverywhere},
        {"CacheDirectory",
         "the folder where the host keeps what is compiled; empty: the one that it keeps everything in", "",
         kEverywhere},
    };
    info.properties = {{"OnlyByName", "the backend is used only if it is named", true},
                       {"NonConstWeights", "weights and bias need not be constant", true},
                       {"ConstantTensorsAsInputs", "every operand may be constant", true}};
    if (infos_.empty()) return info;
    const DeviceInfo& first = infos_[size_t(default_device_)];
    info.properties.emplace_back("Device", "the OpenCL device", first.name.c_str());
    info.properties.emplace_back("Driver", "its driver", (first.platform_name + " " + first.driver).c_str());
    info.properties.emplace_back("Profile", "what kernels are generated for",
                                 Profile::name(profile(default_profile_, first)));
    return info;
  }

  void init(const ipr::Host& host, const ipr::Options& options) override {
    // PoCL has a thread for each processor of the machine unless this variable limits them
    setenv("POCL_MAX_PTHREAD_COUNT", std::to_string(std::max<uint32_t>(host.threads(), 1)).c_str(), 0);
    infos_ = devices();
    note_process();
    table_ = std::make_unique<DeviceTable>(infos_);
    running_ = this;
    default_device_ = device_number(options);
    default_profile_ = profile_name(options);
    default_level_ = tuning_level(options);
  }

  void shutdown() override {
    std::lock_guard<std::mutex> lock(mutex_);
    opened_.clear();
    infos_.clear();
    running_ = nullptr;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options& options) override {
    return verdict(layer, target(options));
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& graph, const ipr::Options& options) override {
    return compiled(graph, options, {});
  }

  std::unique_ptr<Executable> compiled(const ipr::Graph& graph, const ipr::Options& options, Choices choices) {
    check_process();
    const Target wanted = target(options);
    Plan plan(graph, device(options), wanted.profile, std::move(choices));
    plan.measures = tuning_level(options) > 0;
    for (ipr::Layer layer : graph) {
      if (plan.lowered_before[size_t(layer.index())]) continue;
      plan.layer = layer.index();
      const ipr::Verdict answer = verdict(layer, wanted);
      if (is_refused(answer)) throw layer.unsupported(answer.reason);
      find_lowering(layer.type())->lower(layer, plan);
    }
    plan.finish();
    try {
      return std::make_unique<Executable>(plan, signature_of(graph));
    } catch (const NotCompiled& error) {
      host.log(IPR_LOG_WARNING, std::string(error.what()) + "; its layer runs elsewhere\n" + error.log);
      throw;
    }
  }

  const void* extension(std::string_view name) override {
    static const ipr_devices_api devices = {sizeof(ipr_devices_api), &describe_devices};
    if (name == IPR_EXT_ASYNC) return ipr::queues<ipr::Queue>();
    return name == IPR_EXT_DEVICES ? &devices : nullptr;
  }

  bool has_blobs() const override { return true; }
  ipr::Profiler* profiler() override { return &Recorder::all(); }

  std::string fingerprint(const ipr::Options& options) override {
    const Target wanted = target(options);
    const DeviceInfo& device = wanted.device;
    return "GpuAcc " + native::build_id() + " on " + device.platform_name + " " + device.platform_version + " " +
           device.name + " " + device.version + " " + device.driver + " profile " + Profile::name(wanted.profile.kind) +
           " tuning " + std::to_string(tuning_level(options));
  }

  ipr::Blob save(const ipr::Executable& executable) override {
    return {blob_of(const_cast<Executable&>(static_cast<const Executable&>(executable))), IPR_BLOB_NEEDS_GRAPH};
  }

  void check(const void* data, uint64_t size, const ipr::Options&) override { content_of(data, size); }

  std::unique_ptr<ipr::Executable> restore(const void* data, uint64_t size, const ipr::Graph* graph,
                                           const ipr::Options& options) override {
    if (!graph) throw ipr::Error("a compiled subgraph needs its network", IPR_INVALID_ARGUMENT);
    const BlobContent content = content_of(data, size);
    if (content.signature != signature_of(*graph))
      throw ipr::Error("the compiled subgraph does not belong to this network", IPR_STALE);
    std::vector<std::shared_ptr<Program>> restored;  // so that `compiled` finds all of them
    for (const auto& [source, binary] : content.binaries) restored.push_back(device(options).restored(source, binary));
    return compiled(*graph, options, content.choices);
  }

 private:
  static int32_t describe_devices(void*, ipr_devices* out, ipr_error* error) {
    if (!running_) return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "the backend is not initialised");
    running_->table_->write(out);
    return IPR_OK;
  }

  int64_t device_number(const ipr::Options& options) const {
    const int64_t wanted = options.integer("Device", default_device_);
    if (wanted >= 0 && wanted < int64_t(infos_.size())) return wanted;
    throw ipr::Error("Device is " + std::to_string(wanted) + "; there are " + std::to_string(infos_.size()) +
                         " OpenCL devices, numbered from 0",
                     IPR_INVALID_ARGUMENT);
  }

  std::string profile_name(const ipr::Options& options) const {
    const std::string wanted(options.text("Profile", default_profile_));
    for (const char* known : {"auto", "cpu", "mobile", "desktop"})
      if (wanted == known) return wanted;
    throw ipr::Error("Profile is '" + wanted + "'; expected auto, cpu, mobile or desktop", IPR_INVALID_ARGUMENT);
  }

  int64_t tuning_level(const ipr::Options& options) const {
    const int64_t wanted = options.integer("TuningLevel", default_level_);
    if (wanted == 0 || wanted == 1) return wanted;
    throw ipr::Error("TuningLevel is " + std::to_string(wanted) + "; expected 0 or 1", IPR_INVALID_ARGUMENT);
  }

  static Profile::Kind profile(const std::string& name, const DeviceInfo& device) {
    for (Profile::Kind kind : {Profile::cpu, Profile::mobile, Profile::desktop})
      if (name == Profile::name(kind)) return kind;
    return device.kind();
  }

  Target target(const ipr::Options& options) const {
    const DeviceInfo& device = infos_[size_t(device_number(options))];
    return {device, Profile::of(profile(profile_name(options), device))};
  }

  Device& device(const ipr::Options& options) {
    const int64_t wanted = device_number(options);
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Device>& opened = opened_[wanted];
    if (!opened) opened = std::make_unique<Device>(infos_[size_t(wanted)]);
    return *opened;
  }

  static GpuAcc* running_;  // the one that is initialised
  std::vector<DeviceInfo> infos_;
  std::unique_ptr<DeviceTable> table_;
  int64_t default_device_ = 0;
  std::string default_profile_ = "auto";
  int64_t default_level_ = 1;
  std::mutex mutex_;
  std::map<int64_t, std::unique_ptr<Device>> opened_;
};

GpuAcc* GpuAcc::running_ = nullptr;

}  // namespace
}  // namespace gpuacc

// GpuAcc is released together with the names of the next revision.
IPR_BACKEND_OF_REVISION("GpuAcc", gpuacc::GpuAcc, IPR_VOCABULARY_REVISION + 1)
