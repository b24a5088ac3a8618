// The backend as the host sees it: options, support queries, compilation, blobs.

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "common/build_id.hpp"
#include "cpuacc/blob.hpp"
#include "cpuacc/checksum.hpp"
#include "cpuacc/half_precision.hpp"
#include "cpuacc/profile.hpp"
#include "cpuacc/rules.hpp"
#include "cpuacc/tuning.hpp"

namespace cpuacc {
namespace {

constexpr uint64_t kLeastMappedBytes = 1 << 20;  // smaller blobs are copied, so that their pages need not stay loaded

/// Refuse nodes with unknown dimensions, unless only those of their results are unknown because data determines them.
Refusal unknown_extents(const Graph& graph, const Node& node) {
  auto known = [&](int tensor) { return tensor < 0 || is_known(graph[tensor].shape); };
  if (std::all_of(node.inputs.begin(), node.inputs.end(), known) &&
      (sets_shapes(node) || std::all_of(node.outputs.begin(), node.outputs.end(), known)))
    return taken();
  return refused("a shape is unknown until the network runs", IPR_REASON_SHAPE);
}

ipr::Verdict verdict(const Graph& graph, const Node& node, const Settings& settings) {
  Refusal why = unknown_extents(graph, node);
  if (why) return ipr::no(why.text, why.code);
  if (find_lowering(graph, node, settings, &why)) return ipr::yes();
  return ipr::no(why.text, why.code);
}

/// Accept nodes that are supported with float32 instead of float16 and bfloat16.
void accept_widened(const Graph& graph, const Settings& settings, std::vector<ipr::Verdict>& verdicts) {
  const Graph wide = widened(graph, settings);
  for (size_t n = 0; n < verdicts.size(); ++n) {
    if (verdicts[n].verdict != IPR_NO || has_unknown_result(graph, graph.nodes[n])) continue;  // of its own type
    Refusal why = refuse_half_precision(graph, graph.nodes[n]);
    verdicts[n] = why ? ipr::no(why.text, why.code) : verdict(wide, wide.nodes[n], settings);
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
    info.capabilities = IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE | IPR_CAP_FORK_SAFE |
                        IPR_CAP_DETERMINISTIC | IPR_CAP_UNALIGNED_CONSTANTS | IPR_CAP_DYNAMIC_SHAPES;
    info.options = {
        {"NumberOfThreads", "threads for one run, the calling one among them; 0: as many as the host allows", 0,
         everywhere},
        {"FastRequantization", "let quantized results differ from the reference by one step", false, everywhere},
        {"FastMathEnabled", "round operands of products to bfloat16 where that is quicker; sums stay float32", false,
         everywhere},
        {"TuningLevel", "0: choose kernels by rules; 1: time the alternatives when a network is loaded; 2: take longer",
         0, everywhere},
        {"CacheDirectory",
         "the folder where the host keeps what is compiled; empty: the one that it keeps everything in", "",
         everywhere},
    };
    info.properties = {
        {"NonConstWeights", "some operators take weights that are not constant", true},
        {"ConstantTensorsAsInputs", "every operand may be constant", true},
        {"QuantizedWeights", "weights of matrix products may stay quantized", true},
        {"InstructionSet", "what the kernels are compiled for here", native::isa_name(native::best_isa())},
        {"InstructionSets", "the sets that this build has kernels for", native::built_isa_names().c_str()}};
    return info;
  }

  void init(const ipr::Host& host, const ipr::Options& options) override {
    if (std::string why = native::isa_problem(); !why.empty()) throw ipr::Error(why, IPR_INVALID_ARGUMENT);
    defaults_ = Settings();
    defaults_.isa = native::best_isa();
    defaults_.threads = host_threads_ = std::clamp(int(host.threads()), 1, 256);
    defaults_ = settings(options);
  }

  void shutdown() override { pools_.clear(); }

  std::vector<ipr::Verdict> query(const ipr::Graph& offered, const ipr::Options& options) override {
    Graph graph(offered);
    Settings wanted = settings(options);
    std::vector<ipr::Verdict> verdicts;
    for (const Node& node : graph.nodes) verdicts.push_back(verdict(graph, node, wanted));
    if (has_half_precision(graph)) accept_widened(graph, wanted, verdicts);
    return verdicts;
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& offered, const ipr::Options& options) override {
    return compiled(offered, settings(options));
  }

  bool takes_allocators() const override { return true; }

  std::unique_ptr<ipr::Executable> compile_in(const ipr_allocator& allocator, const ipr::Graph& offered,
                                              const ipr::Options& options) override {
    return compiled(offered, with(allocator, settings(options)));
  }

  std::unique_ptr<ipr::Executable> restore_in(const ipr_allocator& allocator, const void* data, uint64_t size,
                                              const ipr::Graph* offered, const ipr::Options& options) override {
    return restored(data, size, offered, with(allocator, settings(options)));
  }

  bool has_blobs() const override { return true; }
  bool works_in_place() const override { return true; }
  ipr::Profiler* profiler() override { return &Intervals::all(); }

  /// Everything that affects packed constants, including a checksum of this library.
  std::string fingerprint(const ipr::Options& options) override {
    Settings wanted = settings(options);
    return "CpuAcc " + std::to_string(library()) + " " + native::isa_name(wanted.isa) + " threads " +
           std::to_string(wanted.threads) + " fast requantization " + std::to_string(wanted.fast_requantization) +
           " fast math " + std::to_string(wanted.fast_math) + " tuning " + std::to_string(wanted.tuning) + " cache " +
           std::to_string(native::l2_bytes()) + (wanted.tuning > 0 ? " on " + native::processor() : "");
  }

  ipr::Blob save(const ipr::Executable& executable) override {
    return {blob_of(static_cast<const Program&>(executable)), IPR_BLOB_NEEDS_GRAPH};
  }

  void check(const void* data, uint64_t size, const ipr::Options&) override { content_of(data, size); }

  std::unique_ptr<ipr::Executable> restore(const void* data, uint64_t size, const ipr::Graph* offered,
                                           const ipr::Options& options) override {
    return restored(data, size, offered, settings(options));
  }

 private:
  std::unique_ptr<Program> compiled(const ipr::Graph& offered, Settings wanted) {
    auto make = [&](const Choices& choices) {
      wanted.choices = choices;
      return std::make_unique<Program>(prepared(offered, wanted), wanted, pool(wanted.threads));
    };
    constexpr double seconds[] = {0, 0.1, 1};  // of measurement for each alternative, by tuning level
    std::unique_ptr<Program> program = wanted.tuning > 0 ? tuned(make, seconds[wanted.tuning]) : make({});
    program->signature = signature_of(offered);
    return program;
  }

  std::unique_ptr<Program> restored(const void* data, uint64_t size, const ipr::Graph* offered, Settings wanted) {
    if (!offered) throw ipr::Error("a compiled subgraph needs its network", IPR_INVALID_ARGUMENT);
    BlobContent content = content_of(data, size);
    if (content.signature != signature_of(*offered))
      throw ipr::Error("the compiled subgraph does not belong to this network", IPR_STALE);
    wanted.choices = content.choices;
    const bool is_aligned = reinterpret_cast<uintptr_t>(content.restored.data) % 64 == 0;
    content.restored.in_place = !wanted.allocator && host.lasting_blobs() && is_aligned && size >= kLeastMappedBytes;
    auto made = std::make_unique<Program>(prepared(*offered, wanted), wanted, pool(wanted.threads), &content.restored);
    made->signature = content.signature;
    if (content.restored.in_place) made->flags |= IPR_EXECUTABLE_READS_BLOB;
    return made;
  }

  static Settings with(const ipr_allocator& allocator, Settings settings) {
    settings.allocator = &allocator;
    return settings;
  }

  Settings settings(const ipr::Options& options) const {
    Settings settings = defaults_;
    int64_t threads = number(options, "NumberOfThreads", defaults_.threads, 0, 256);
    settings.threads = threads > 0 ? int(threads) : host_threads_;
    settings.fast_requantization = options.flag("FastRequantization", settings.fast_requantization);
    settings.fast_math = options.flag("FastMathEnabled", settings.fast_math);
    settings.tuning = int(number(options, "TuningLevel", settings.tuning, 0, 2));
    return settings;
  }

  static int64_t number(const ipr::Options& options, const char* name, int64_t absent, int64_t least, int64_t most) {
    int64_t number = options.integer(name, absent);
    if (number >= least && number <= most) return number;
    throw ipr::Error(std::string(name) + " is " + std::to_string(number) + "; expected " + std::to_string(least) +
                         " to " + std::to_string(most),
                     IPR_INVALID_ARGUMENT);
  }

  /// A checksum of this library: of its build id, or of its file if the linker gave it none.
  uint64_t library() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (library_ == 0) {
      std::string bytes = native::build_id();
      if (bytes.empty()) bytes = content(std::string(host.library_path()));
      library_ = checksum(bytes.data(), bytes.size()) | 1;
    }
    return library_;
  }

  static std::string content(const std::string& path) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }

  static Graph prepared(const ipr::Graph& offered, const Settings& settings) {
    Graph graph(offered);
    for (const Pass& pass : passes()) pass.apply(graph, settings) ? graph.index() : graph.note_readers();
    return graph;
  }

  /// The pool with this number of threads, which executables share.
  native::Pool* pool(int threads) {
    if (threads < 2) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<native::Pool>& pool = pools_[threads];
    if (!pool) pool = std::make_unique<native::Pool>(threads);
    return pool.get();
  }

  Settings defaults_;
  int host_threads_ = 1;
  std::mutex mutex_;
  uint64_t library_ = 0;
  std::map<int, std::unique_ptr<native::Pool>> pools_;
};

}  // namespace
}  // namespace cpuacc

// CpuAcc is released together with the names of the next revision.
IPR_BACKEND_OF_REVISION("CpuAcc", cpuacc::CpuAcc, IPR_VOCABULARY_REVISION + 1)
