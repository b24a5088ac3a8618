// A graph made ready to run: steps in their order, with a place in memory for every value.

#ifndef CPUACC_PROGRAM_HPP
#define CPUACC_PROGRAM_HPP

#include <memory>
#include <string>
#include <vector>

#include "common/pool.hpp"
#include "cpuacc/lowering.hpp"
#include "cpuacc/packed.hpp"
#include "cpuacc/profile.hpp"

namespace cpuacc {

/// Pieces of a blob, to be used instead of making them.
struct Restored {
  const char* data = nullptr;  // pieces, each at a multiple of 64 bytes
  std::vector<uint64_t> sizes;
};

class Program : public ipr::Executable {
 public:
  /// Lowers a graph after its passes. `pool` may be nullptr where there is one thread.
  Program(Graph graph, const Settings& settings, native::Pool* pool, const Restored* restored = nullptr);

  void execute(const ipr::Run& run) override;

  /// Nanoseconds of every step: the least of some runs on made-up inputs, for about so long.
  std::vector<double> measured(double seconds);

  const Packed& packed() const { return packed_; }
  const Choices& choices() const { return choices_; }
  /// Whether there is a layer with such alternatives.
  bool has(Choice what) const;
  const std::vector<Step>& steps() const { return steps_; }
  uint64_t signature = 0;  // of the graph that it was made from

 private:
  struct Border {
    uint64_t bytes;
    int32_t dtype;
  };

  void run_steps(const ipr::Run& run, char* const* bases);

  std::vector<Step> steps_;
  Profile profile_{steps_};
  Packed packed_;
  std::vector<std::shared_ptr<void>> pass_constants_;  // constants that passes made
  native::Pool* pool_;
  int threads_;
  Choices choices_;
  std::vector<Border> border_;  // inputs, then outputs
  bool parallel_ = false;
  uint64_t arena_bytes_ = 0, scratch_stride_ = 0;
};

}  // namespace cpuacc

#endif  // CPUACC_PROGRAM_HPP
