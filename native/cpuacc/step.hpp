// Steps, to which a network is lowered. A program is a list of steps that run one after another, each on several
// threads.

#ifndef CPUACC_STEP_HPP
#define CPUACC_STEP_HPP

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/cpu.hpp"
#include "cpuacc/graph.hpp"

namespace cpuacc {

using native::Isa;

/// The address of a tensor during a run: `offset` bytes after one of Run::bases. The planner sets both after lowering.
struct Buffer {
  int32_t id = -1;    // -1: an absent optional operand
  uint32_t base = 0;  // 0: a constant, whose address is `offset`; 1: the arena; then inputs and outputs at the border
  uint64_t offset = 0;

  explicit operator bool() const { return id >= 0; }
};

/// Sets the shape of the output with this base (see Run::bases), and returns its memory.
using ResizeOutput = std::function<void*(uint32_t base, const Shape& shape)>;

/// The first element of an operand that a step cannot use, such as an index out of range. Its parts may report several.
class Fault {
 public:
  int operand = -1;  // of the layer
  int64_t element = 0, value = 0, lowest = 0, highest = 0;
  const char* why = nullptr;  // for values that are no integers; the other members are not set

  void report(int by, int64_t at, int64_t actual, int64_t least, int64_t most, const char* text = nullptr) {
    if (is_reported() && at >= first_.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(turn_);
    if (is_reported() && at >= first_.load(std::memory_order_relaxed)) return;
    operand = by, element = at, value = actual, lowest = least, highest = most, why = text;
    first_.store(at, std::memory_order_relaxed);
    reported_.store(true, std::memory_order_relaxed);
  }

  bool is_reported() const { return reported_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> reported_{false};
  std::atomic<int64_t> first_{0};
  std::mutex turn_;
};

/// The memory of one run. Tensors at the border are aligned to their elements only. The arena and packed constants are
/// aligned to 64 bytes; other constants of the network are aligned to their elements only.
struct Run {
  char* const* bases;
  char* scratch;                         // aligned to 64 bytes
  uint64_t scratch_stride;               // bytes between the scratch memory of consecutive parts
  Fault* fault;                          // what `fail` reports
  const ResizeOutput* resize = nullptr;  // nullptr: there is no host

  /// End the run with an error after this step, because an element of an operand of the layer is not from `lowest` to
  /// `highest`. `element` is its index in the operand.
  void fail(int operand, int64_t element, int64_t value, int64_t lowest, int64_t highest) const {
    fault->report(operand, element, value, lowest, highest);
  }

  /// The same for a reason `why` that is no range of integers.
  void fail(int operand, int64_t element, const char* why) const { fault->report(operand, element, 0, 0, 0, why); }

  /// Set the shape of an output of the program that is known only now, and return its memory; nullptr if there is no
  /// host. Only for steps of one part.
  void* resized(const Buffer& output, const Shape& shape) const {
    return resize ? (*resize)(output.base, shape) : nullptr;
  }

  template <class T = void>
  T* at(const Buffer& buffer) const {
    return reinterpret_cast<T*>(bases[buffer.base] + buffer.offset);
  }
  template <class T = void>
  T* part_scratch(int part) const {
    return reinterpret_cast<T*>(scratch + static_cast<uint64_t>(part) * scratch_stride);
  }
};

/// One step. `fn` is called once for each part in 0 .. parts - 1, concurrently on different threads, with any 1 <=
/// parts <= max_parts. All calls end before the next step begins. `fn` does not throw, and keeps no state between
/// calls.
struct Step {
  using Function = void (*)(const Step& step, const Run& run, int part, int parts);

  std::string name;  // of the kernel and the node, for profiles: "conv3x3 features/0"
  Function fn = nullptr;
  Function check = nullptr;  // runs before `fn`, which is skipped if it fails; for steps that may write in place
  int max_parts = 1;
  std::vector<Buffer> in, out;
  std::shared_ptr<const void> state;  // parameters; a struct of the family
  uint64_t scratch_per_part = 0;      // bytes
  double operations = 0;              // additions and multiplications, for profiles; 0: not counted
  int64_t layer = -1;          // the layer of the offered graph that this step computes; set when the step is added
  std::vector<int64_t> fused;  // further layers of a fused block, which tuning may compute one after another instead
  int in_place = -1;  // position in `in` whose memory out[0] may reuse if no other step needs it (same number of bytes)

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(state.get());
  }
};

/// The elements [first, last) of `count` that part `part` of `parts` computes, in multiples of `grain`.
struct Range {
  int64_t first, last;
};
inline Range split(int64_t count, int part, int parts, int64_t grain = 1) {
  int64_t grains = (count + grain - 1) / grain;
  int64_t first = grains * part / parts * grain, last = grains * (part + 1) / parts * grain;
  return {first < count ? first : count, last < count ? last : count};
}

/// Decisions with alternatives: the tile of Winograd's algorithm (1: the direct sum), and whether a block is fused to
/// one step.
enum class Choice : int32_t { winograd, block };

/// Alternatives that were selected for layers of the offered graph by timing, instead of by the cost model.
class Choices {
 public:
  static constexpr int64_t kAll = -1;  // all layers without a choice of their own

  void set(Choice choice, int64_t layer, int value) { chosen_[{choice, layer}] = value; }
  /// The choice for a layer; -1: use the cost model.
  int of(Choice choice, int64_t layer) const {
    auto entry = chosen_.find({choice, layer});
    if (entry == chosen_.end()) entry = chosen_.find({choice, kAll});
    return entry == chosen_.end() ? -1 : entry->second;
  }
  bool empty() const { return chosen_.empty(); }
  /// Serialization: three numbers for each choice.
  std::vector<int32_t> numbers() const {
    std::vector<int32_t> found;
    for (const auto& [key, value] : chosen_)
      found.insert(found.end(), {int32_t(key.first), int32_t(key.second), value});
    return found;
  }
  static Choices of_numbers(const std::vector<int32_t>& numbers) {
    Choices found;
    for (size_t n = 0; n + 2 < numbers.size(); n += 3) found.set(Choice(numbers[n]), numbers[n + 1], numbers[n + 2]);
    return found;
  }

 private:
  std::map<std::pair<Choice, int64_t>, int> chosen_;
};

/// The settings that a network is compiled with.
struct Settings {
  Isa isa = Isa::baseline;
  int threads = 1;
  bool fast_requantization = false;          // quantized results may differ by one
  bool fast_math = false;                    // products may round operands to bfloat16
  int tuning = 0;                            // 0: use the cost model; more: time the alternatives
  Choices choices;                           // the result of tuning
  const ipr_allocator* allocator = nullptr;  // of the memory that a program holds; nullptr: the system
};

/// The number of parts into which work should be divided, given its estimated nanoseconds on one thread.
int parts_for(const Settings& settings, double nanoseconds);

/// Receives the steps of a network. Passed to Lowering::lower.
class Builder {
 public:
  virtual ~Builder() = default;

  const Graph& graph;
  const Settings& settings;

  /// The buffer of a tensor of the graph; for -1, an absent buffer. At run time, steps may read constants only by such
  /// a buffer or by `pack`, because the pointer of the tensor may be invalid by then.
  virtual Buffer buffer(int tensor) = 0;
  /// Memory in the arena that lives from the next step that is added to the last step that uses it.
  virtual Buffer temporary(uint64_t bytes) = 0;
  /// Constant bytes that `make` computes from the constants of the network, such as packed weights. They are aligned to
  /// 64, and zero unless `make` writes them. When a program is restored from a blob, the bytes come from the blob and
  /// `make` is not called, so `bytes` must not depend on it. The pointer is valid as long as the program.
  virtual const void* pack(uint64_t bytes, const std::function<void(void*)>& make) = 0;
  /// Let a result share the memory of an operand, at `offset` bytes, so that no step is needed (Reshape). If `inside`,
  /// place the operand within the result instead (Concat). Return false if the two cannot share memory because both are
  /// at the border; the caller then has to copy.
  virtual bool share(int result, int operand, uint64_t offset = 0, bool inside = false) = 0;
  virtual void add(Step step) = 0;
  /// Call work(first, last) for ranges that cover 0 .. count - 1, on several threads if the work touches enough
  /// `bytes`. For packing; `work` does not throw.
  virtual void divide(int64_t count, uint64_t bytes, const std::function<void(int64_t, int64_t)>& work) = 0;

 protected:
  Builder(const Graph& graph, const Settings& settings) : graph(graph), settings(settings) {}
};

}  // namespace cpuacc

#endif  // CPUACC_STEP_HPP
