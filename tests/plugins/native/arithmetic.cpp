// A backend with everything that the C++ wrapper offers: Addition and Multiplication of float32 tensors of one shape,
// and ReLU, as a tape of its own that can be saved and restored; options, contexts, groups, log.

#include <cmath>
#include <cstring>
#include <string>

#include "interposer/backend.hpp"

namespace {

const char kMagic[8] = {'T', 'A', 'P', 'E', '0', '0', '0', '1'};

struct Instruction {
  int64_t kind, a, b, out;  // kind: 0 adds, 1 multiplies, 2 clamps
};

struct Slot {
  int64_t where, index, count;  // where: 0 workspace (index: byte), 1 input, 2 output, 3 constant
};

/// A compiled part: what to do with which tensors.
class Tape : public ipr::Executable {
 public:
  void execute(const ipr::Run& run) override {
    std::vector<float*> tensors;
    for (const Slot& slot : slots) tensors.push_back(place(run, slot));
    for (const Instruction& one : instructions) step(one, tensors, slots[size_t(one.out)].count);
  }

  std::vector<Instruction> instructions;
  std::vector<Slot> slots;
  std::vector<const float*> constants;  // of the host, until the executable is released
  float gain = 1;

 private:
  float* place(const ipr::Run& run, const Slot& slot) const {
    if (slot.where == 1) return run.input(size_t(slot.index)).data<float>();
    if (slot.where == 2) return run.output(size_t(slot.index)).data<float>();
    if (slot.where == 3) return const_cast<float*>(constants[size_t(slot.index)]);
    return reinterpret_cast<float*>(run.workspace() + slot.index);
  }

  void step(const Instruction& one, const std::vector<float*>& tensors, int64_t count) const {
    const float *a = tensors[size_t(one.a)], *b = tensors[size_t(one.b)];
    float* out = tensors[size_t(one.out)];
    for (int64_t n = 0; n < count; ++n) {
      if (one.kind == 2)
        out[n] = a[n] > 0 || std::isnan(a[n]) ? a[n] : 0;
      else
        out[n] = gain * (one.kind == 1 ? a[n] * b[n] : a[n] + b[n]);
    }
  }
};

int64_t kind_of(const ipr::Layer& layer) {
  if (layer.type() == "Addition") return 0;
  if (layer.type() == "Multiplication") return 1;
  if (layer.type() == "Activation" && layer.text("function") == "RELU") return 2;
  return -1;
}

class Diary : public ipr::Context {
 public:
  Diary(const ipr::Host& host, bool refuses) : host_(host), refuses_(refuses) { note("created", -1); }
  ~Diary() override { note("destroyed", -1); }
  void before_load(int64_t id) override {
    note("before_load", id);
    if (refuses_) throw ipr::Error("networks are not welcome", IPR_REFUSED);
  }
  void after_load(int64_t id) override { note("after_load", id); }
  void before_unload(int64_t id) override { note("before_unload", id); }
  void after_unload(int64_t id) override { note("after_unload", id); }

 private:
  void note(const std::string& what, int64_t id) { host_.log(IPR_LOG_WARNING, what + " " + std::to_string(id)); }

  ipr::Host host_;
  bool refuses_;
};

class Arithmetic : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Tests";
    info.name = "Arithmetic";
    info.version = "2.1";
    info.description = "Sums and products";
    info.capabilities = IPR_CAP_DETERMINISTIC | IPR_CAP_WANTS_HASHES;
    info.alignment = 64;
    info.options = {{"gain", "factor of every sum and product", 1.0, IPR_SCOPE_MODEL},
                    {"groups", "take ReLU only after a sum", false, IPR_SCOPE_MODEL},
                    {"concurrent", "executables may run at the same time", false, IPR_SCOPE_MODEL},
                    {"missing", "have no device", false, IPR_SCOPE_INIT},
                    {"refuse", "refuse all networks", false, IPR_SCOPE_INIT},
                    {"greeting", "what to log at first", "", IPR_SCOPE_INIT | IPR_SCOPE_MODEL}};
    info.properties = {{"HasFp16", "half precision", false}, {"Lanes", "how wide it is", 8}};
    return info;
  }

  void init(const ipr::Host& host, const ipr::Options& options) override {
    if (options.flag("missing")) throw ipr::Error("there is no device", IPR_UNAVAILABLE);
    std::string greeting(options.text("greeting"));
    if (!greeting.empty()) host.log(IPR_LOG_WARNING, greeting + " from " + std::string(host.library_path()));
    refuses_ = options.flag("refuse");
  }

  void shutdown() override { host.log(IPR_LOG_WARNING, "shut down"); }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    if (kind_of(layer) < 0) return ipr::no("no " + std::string(layer.type()), IPR_REASON_LAYER_TYPE);
    ipr::TensorInfo out = layer.output(0);
    for (size_t n = 0; n < layer.input_count(); ++n) {
      ipr::TensorInfo in = layer.input(n);
      if (in.dtype() != IPR_DTYPE_FLOAT32) return ipr::no("not float32", IPR_REASON_DATA_TYPE);
      bool same = in.rank() == out.rank() && std::equal(in.shape().begin(), in.shape().end(), out.shape().begin());
      if (!same) return ipr::no("shapes differ", IPR_REASON_SHAPE);
    }
    ipr::Verdict verdict = ipr::preferred();
    verdict.seconds = 1e-9 * double(out.elements());
    return verdict;
  }

  std::vector<ipr::Verdict> query(const ipr::Graph& graph, const ipr::Options& options) override {
    std::vector<ipr::Verdict> verdicts = Backend::query(graph, options);
    if (!options.flag("groups")) return verdicts;
    for (ipr::Layer layer : graph) {
      if (kind_of(layer) != 2) continue;
      int64_t before = layer.input(0).raw().producer;
      bool behind_sum = before >= 0 && kind_of(graph.layer(size_t(before))) == 0;
      ipr::Verdict& own = verdicts[size_t(layer.index())];
      own = behind_sum ? ipr::together(before) : ipr::no("only after a sum", IPR_REASON_NEIGHBOURS);
      if (behind_sum) verdicts[size_t(before)] = ipr::together(before);
    }
    return verdicts;
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& graph, const ipr::Options& options) override {
    auto tape = std::make_unique<Tape>();
    for (size_t n = 0; n < graph.tensor_count(); ++n) add_slot(*tape, graph.tensor(int64_t(n)));
    for (size_t n = 0; n < graph.inputs().size(); ++n) tape->slots[size_t(graph.inputs()[n])] = slot(graph, 1, n);
    for (size_t n = 0; n < graph.outputs().size(); ++n) tape->slots[size_t(graph.outputs()[n])] = slot(graph, 2, n);
    for (ipr::Layer layer : graph) {
      if (layer.name().find("poison") != std::string_view::npos) throw layer.unsupported("it is poisonous");
      Span in = layer.inputs();
      tape->instructions.push_back({kind_of(layer), in[0], in[in.size() - 1], layer.outputs()[0]});
    }
    tape->gain = float(options.number("gain", 1));
    tape->flags = options.flag("concurrent") ? IPR_EXECUTABLE_CONCURRENT : 0;
    return tape;
  }

  bool has_contexts() const override { return true; }
  std::unique_ptr<ipr::Context> create_context(const ipr::Options&) override {
    return std::make_unique<Diary>(host, refuses_);
  }

  bool has_blobs() const override { return true; }
  std::string fingerprint(const ipr::Options& options) override {
    return "tape 1, gain " + std::to_string(options.number("gain", 1));
  }

  ipr::Blob save(const ipr::Executable& executable) override {
    const Tape& tape = static_cast<const Tape&>(executable);
    ipr::Blob blob;
    int64_t head[4] = {int64_t(tape.instructions.size()), int64_t(tape.slots.size()), int64_t(tape.workspace_size), 0};
    std::memcpy(head + 3, &tape.gain, sizeof tape.gain);
    append(blob.data, kMagic, sizeof kMagic);
    append(blob.data, head, sizeof head);
    append(blob.data, tape.instructions.data(), tape.instructions.size() * sizeof(Instruction));
    append(blob.data, tape.slots.data(), tape.slots.size() * sizeof(Slot));
    blob.flags = tape.constants.empty() ? 0 : IPR_BLOB_NEEDS_GRAPH;
    return blob;
  }

  void check(const void* data, uint64_t size, const ipr::Options& options) override {
    if (size < 40 || std::memcmp(data, kMagic, 4) != 0) throw ipr::Error("it is no tape", IPR_CORRUPT);
    if (std::memcmp(data, kMagic, 8) != 0) throw ipr::Error("another version of tapes", IPR_STALE);
    int64_t head[4];
    std::memcpy(head, static_cast<const char*>(data) + 8, sizeof head);
    float gain;
    std::memcpy(&gain, head + 3, sizeof gain);
    if (uint64_t(40 + 32 * head[0] + 24 * head[1]) != size) throw ipr::Error("it is truncated", IPR_CORRUPT);
    if (gain != float(options.number("gain", 1))) throw ipr::Error("another gain", IPR_STALE);
  }

  std::unique_ptr<ipr::Executable> restore(const void* data, uint64_t size, const ipr::Graph* graph,
                                           const ipr::Options& options) override {
    check(data, size, options);
    const char* bytes = static_cast<const char*>(data);
    int64_t head[4];
    std::memcpy(head, bytes + 8, sizeof head);
    auto tape = std::make_unique<Tape>();
    tape->instructions.resize(size_t(head[0]));
    tape->slots.resize(size_t(head[1]));
    std::memcpy(tape->instructions.data(), bytes + 40, size_t(32 * head[0]));
    std::memcpy(tape->slots.data(), bytes + 40 + 32 * head[0], size_t(24 * head[1]));
    tape->workspace_size = uint64_t(head[2]);
    std::memcpy(&tape->gain, head + 3, sizeof tape->gain);
    for (size_t n = 0; graph && n < graph->tensor_count(); ++n)
      if (graph->tensor(int64_t(n)).is_constant()) tape->constants.push_back(graph->tensor(int64_t(n)).values<float>());
    return tape;
  }

 private:
  using Span = ipr::Span<const int64_t>;

  static Slot slot(const ipr::Graph& graph, int64_t where, size_t index) {
    int64_t tensor = where == 1 ? graph.inputs()[index] : graph.outputs()[index];
    return {where, int64_t(index), graph.tensor(tensor).elements()};
  }

  static void add_slot(Tape& tape, const ipr::TensorInfo& info) {
    if (info.is_constant()) {
      if (info.constant().sha256 == nullptr) throw ipr::Error("a constant has no hash");
      tape.slots.push_back({3, int64_t(tape.constants.size()), info.elements()});
      tape.constants.push_back(info.values<float>());
      return;
    }
    tape.slots.push_back({0, int64_t(tape.workspace_size), info.elements()});
    tape.workspace_size += (info.bytes() + 63) / 64 * 64;
  }

  static void append(std::vector<unsigned char>& bytes, const void* data, size_t size) {
    const unsigned char* from = static_cast<const unsigned char*>(data);
    bytes.insert(bytes.end(), from, from + size);
  }

  bool refuses_ = false;
};

}  // namespace

IPR_BACKEND("Arithmetic", Arithmetic)
