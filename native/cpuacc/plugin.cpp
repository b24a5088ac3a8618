// CpuAcc as the host sees it.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "cpuacc/blob.hpp"
#include "cpuacc/halves.hpp"
#include "cpuacc/program.hpp"

namespace cpuacc {
namespace {

bool is_known(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t extent) { return extent >= 0; });
}

/// What holds for nodes of all types.
Refusal unknown_extents(const Graph& graph, const Node& node) {
  auto known = [&](int tensor) { return tensor < 0 || is_known(graph[tensor].shape); };
  if (std::all_of(node.inputs.begin(), node.inputs.end(), known) &&
      std::all_of(node.outputs.begin(), node.outputs.end(), known))
    return taken();
  return refused("a shape is not known before it runs", IPR_REASON_SHAPE);
}

ipr::Verdict verdict(const Graph& graph, const Node& node, const Settings& settings) {
  Refusal why = unknown_extents(graph, node);
  if (why) return ipr::no(why.text, why.code);
  if (find_lowering(graph, node, settings, &why)) return ipr::yes();
  return ipr::no(why.text, why.code);
}

/// Nodes that are not taken as they are, but with float32 in place of float16 and bfloat16.
void accept_widened(const Graph& graph, const Settings& settings, std::vector<ipr::Verdict>& found) {
  const Graph wide = widened(graph, settings);
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n].verdict != IPR_NO) continue;
    Refusal why = refuses_halves(graph, graph.nodes[n]);
    found[n] = why ? ipr::no(why.text, why.code) : verdict(wide, wide.nodes[n], settings);
  }
}

class CpuAcc : public ipr::Backend {
 public:
  ipr::Info info() const override {
    constexpr uint32_t everywhere = IPR_SCOPE_INIT | IPR_SCOPE_MODEL;
    ipr::Info info;
    info.vendor = "Interposer";
    info.name = "CpuAcc";
    info.version = "1.0.0";
    info.description = "Kernels in C++ for whole networks on processors";
    info.capabilities =
        IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE | IPR_CAP_FORK_SAFE | IPR_CAP_DETERMINISTIC;
    info.options = {
        {"NumberOfThreads", "threads for one run, the calling one among them; 0: as many as the host allows", 0, everywhere},
        {"FastMathEnabled", "let float kernels round in another order, such as Winograd's with large tiles", false,
         everywhere},
        {"FastRequantization", "let quantized results differ from the reference by one step", false, everywhere},
        {"TuningLevel", "1: time alternative kernels when a network is loaded; 0: choose by rules", 0, everywhere},
    };
    info.properties = {{"NonConstWeights", "weights and bias may be computed", true},
                       {"ConstantTensorsAsInputs", "every operand may be constant", true},
                       {"InstructionSet", "what the kernels are compiled for here", native::isa_name(native::best_isa())}};
    return info;
  }

  void init(const ipr::Host& host, const ipr::Options& options) override {
    defaults_ = Settings();
    defaults_.isa = native::best_isa();
    defaults_.threads = std::max(1, int(host.threads()));
    defaults_ = settings(options);
  }

  void shutdown() override { pools_.clear(); }

  std::vector<ipr::Verdict> query(const ipr::Graph& offered, const ipr::Options& options) override {
    Graph graph(offered);
    Settings wanted = settings(options);
    std::vector<ipr::Verdict> found;
    for (const Node& node : graph.nodes) found.push_back(verdict(graph, node, wanted));
    if (has_halves(graph)) accept_widened(graph, wanted, found);
    return found;
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& offered, const ipr::Options& options) override {
    Settings wanted = settings(options);
    auto made = std::make_unique<Program>(prepared(offered, wanted), wanted, pool(wanted.threads));
    made->signature = signature_of(offered);
    return made;
  }

  bool has_blobs() const override { return true; }

  /// Everything that changes what is packed, and the bytes of this library.
  std::string fingerprint(const ipr::Options& options) override {
    Settings wanted = settings(options);
    return "CpuAcc " + std::to_string(library()) + " " + native::isa_name(wanted.isa) + " threads " +
           std::to_string(wanted.threads) + " fast math " + std::to_string(wanted.fast_math) + " fast requantization " +
           std::to_string(wanted.fast_requantization) + " tuning " + std::to_string(wanted.autotune) + " cache " +
           std::to_string(native::l2_bytes());
  }

  ipr::Blob save(const ipr::Executable& executable) override {
    return {blob_of(static_cast<const Program&>(executable)), IPR_BLOB_NEEDS_GRAPH};
  }

  void check(const void* data, uint64_t size, const ipr::Options&) override { content_of(data, size); }

  std::unique_ptr<ipr::Executable> restore(const void* data, uint64_t size, const ipr::Graph* offered,
                                           const ipr::Options& options) override {
    if (!offered) throw ipr::Error("a compiled part needs its network", IPR_INVALID_ARGUMENT);
    BlobContent content = content_of(data, size);
    if (content.signature != signature_of(*offered))
      throw ipr::Error("the compiled part does not belong to this network", IPR_STALE);
    Settings wanted = settings(options);
    auto made = std::make_unique<Program>(prepared(*offered, wanted), wanted, pool(wanted.threads), &content.restored);
    made->signature = content.signature;
    return made;
  }

 private:
  Settings settings(const ipr::Options& options) const {
    Settings found = defaults_;
    int64_t threads = options.integer("NumberOfThreads", 0);
    if (threads < 0) throw ipr::Error("NumberOfThreads is negative", IPR_INVALID_ARGUMENT);
    if (threads > 0) found.threads = int(std::min<int64_t>(threads, 256));
    found.fast_math = options.flag("FastMathEnabled", found.fast_math);
    found.fast_requantization = options.flag("FastRequantization", found.fast_requantization);
    found.autotune = int(options.integer("TuningLevel", found.autotune));
    return found;
  }

  /// A number for the bytes of this library.
  uint64_t library() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (library_ == 0) {
      std::ifstream file{std::string(host.library_path()), std::ios::binary};
      std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      library_ = checksum(bytes.data(), bytes.size()) | 1;
    }
    return library_;
  }

  static Graph prepared(const ipr::Graph& offered, const Settings& settings) {
    Graph graph(offered);
    for (const Pass& pass : passes())
      if (pass.apply(graph, settings)) graph.index();
    return graph;
  }

  /// The pool of so many threads, which executables share.
  native::Pool* pool(int threads) {
    if (threads < 2) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<native::Pool>& found = pools_[threads];
    if (!found) found = std::make_unique<native::Pool>(threads);
    return found.get();
  }

  Settings defaults_;
  std::mutex mutex_;
  uint64_t library_ = 0;
  std::map<int, std::unique_ptr<native::Pool>> pools_;
};

}  // namespace
}  // namespace cpuacc

IPR_BACKEND("CpuAcc", cpuacc::CpuAcc)
