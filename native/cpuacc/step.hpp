// Steps: what a network becomes. A program is a list of steps that run one after the other, each on some threads.

#ifndef CPUACC_STEP_HPP
#define CPUACC_STEP_HPP

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpuacc/graph.hpp"
#include "common/cpu.hpp"

namespace cpuacc {

using native::Isa;

/// Where bytes lie during a run: `offset` behind one of Run::bases. The planner fills both in after lowering.
struct Buffer {
  int32_t id = -1;    // -1: there is none (an optional operand that is absent)
  uint32_t base = 0;  // 0: a constant, whose address `offset` is; 1: the arena; then border inputs and outputs
  uint64_t offset = 0;

  explicit operator bool() const { return id >= 0; }
};

/// One run. Border tensors may be unaligned beyond their elements; constants and the arena are aligned to 64 bytes
/// (constants of the network that were not packed: to their elements only).
struct Run {
  char* const* bases;
  char* scratch;            // aligned to 64 bytes
  uint64_t scratch_stride;  // bytes from the scratch memory of one part to that of the next
  const char** fault;       // what `fail` was told

  /// To end the run with an error after this step: an index in the data that is out of range, and the like.
  void fail(const char* why) const { __atomic_store_n(fault, why, __ATOMIC_RELAXED); }

  template <class T = void>
  T* at(const Buffer& buffer) const {
    return reinterpret_cast<T*>(bases[buffer.base] + buffer.offset);
  }
  template <class T = void>
  T* part_scratch(int part) const {
    return reinterpret_cast<T*>(scratch + static_cast<uint64_t>(part) * scratch_stride);
  }
};

/// One piece of work. `fn` is called once for each part in 0 .. parts - 1, at the same time on different threads, with
/// any 1 <= parts <= max_parts; all of them end before the next step begins. It throws nothing and keeps nothing.
struct Step {
  using Function = void (*)(const Step& step, const Run& run, int part, int parts);

  std::string name;  // of the kernel and the node, for profiles: "conv3x3 features/0"
  Function fn = nullptr;
  int max_parts = 1;
  std::vector<Buffer> in, out;
  std::shared_ptr<const void> state;  // parameters; a struct of the family's own
  uint64_t scratch_per_part = 0;      // bytes
  double operations = 0;              // additions and multiplications, for profiles; 0: not counted
  int64_t layer = -1;         // whose work it does, of the offered graph; filled in when it is added
  std::vector<int64_t> also;  // and those of other layers
  int in_place = -1;  // position in `in` whose memory out[0] may take where nobody else needs it (same bytes)

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(state.get());
  }
};

/// The elements [first, last) of `count` that part `part` of `parts` does, in multiples of `grain`.
struct Range {
  int64_t first, last;
};
inline Range split(int64_t count, int part, int parts, int64_t grain = 1) {
  int64_t grains = (count + grain - 1) / grain;
  int64_t first = grains * part / parts * grain, last = grains * (part + 1) / parts * grain;
  return {first < count ? first : count, last < count ? last : count};
}

/// What there are alternatives for: the tile of Winograd's algorithm (1: none), and whether a block is one step.
enum class Choice : int32_t { winograd, block };

/// Alternatives that were chosen for layers of the offered graph instead of those that rules choose.
class Choices {
 public:
  static constexpr int64_t kAll = -1;  // every layer for which there is no other choice

  void set(Choice what, int64_t layer, int value) { chosen_[{what, layer}] = value; }
  /// The choice for a layer; -1: by rules.
  int of(Choice what, int64_t layer) const {
    auto found = chosen_.find({what, layer});
    if (found == chosen_.end()) found = chosen_.find({what, kAll});
    return found == chosen_.end() ? -1 : found->second;
  }
  bool empty() const { return chosen_.empty(); }
  /// Three numbers for every choice, and back.
  std::vector<int32_t> numbers() const {
    std::vector<int32_t> found;
    for (const auto& [key, value] : chosen_) found.insert(found.end(), {int32_t(key.first), int32_t(key.second), value});
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

/// What a network is compiled for.
struct Settings {
  Isa isa = Isa::baseline;
  int threads = 1;
  bool fast_requantization = false;  // codes may differ by one step
  bool fast_math = false;            // products may be of bfloat16
  int tuning = 0;                    // 0: rules, more: time the alternatives
  Choices choices;                   // what was found by that
};

/// How many parts are worth while for some work, given about how many nanoseconds it takes on one thread.
int parts_for(const Settings& settings, double nanoseconds);

/// Takes what nodes become. Handed to Lowering::lower.
class Builder {
 public:
  virtual ~Builder() = default;

  const Graph& graph;
  const Settings& settings;

  /// The place of a tensor of the graph; of -1 an absent one. Data of constants is to be reached at run time by such a
  /// buffer or by `pack` only: the tensor's own pointer may be gone by then.
  virtual Buffer buffer(int tensor) = 0;
  /// Memory in the arena that lives from the step added next to the last one that was given it.
  virtual Buffer temporary(uint64_t bytes) = 0;
  /// Constant bytes made from the network's constants (packed weights, tables), aligned to 64, zero where `make` does
  /// not write. Made once: when a program is restored from a blob, `make` is not called and the bytes come from it, so
  /// that `bytes` must not depend on them. The pointer holds as long as the program.
  virtual const void* pack(uint64_t bytes, const std::function<void(void*)>& make) = 0;
  /// The result lies where the operand does, `offset` bytes behind its beginning: no step is needed (Reshape). Or the
  /// operand in the result (Concat): then `inside` is true and the operand is placed within the result.
  /// False where that cannot be (both at the border): copy then.
  virtual bool share(int result, int operand, uint64_t offset = 0, bool inside = false) = 0;
  virtual void add(Step step) = 0;
  /// Calls work(first, last) for ranges that cover 0 .. count - 1, on several threads at the same time where all of it
  /// touches so many `bytes` that this is worth while. For what is packed; `work` throws nothing.
  virtual void divide(int64_t count, uint64_t bytes, const std::function<void(int64_t, int64_t)>& work) = 0;

 protected:
  Builder(const Graph& graph, const Settings& settings) : graph(graph), settings(settings) {}
};

}  // namespace cpuacc

#endif  // CPUACC_STEP_HPP
