// An executable program: steps in order, with memory for each value.

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

/// Packed pieces of a blob, which are copied or used in place instead of packed again.
struct Restored {
  const char* data = nullptr;  // the pieces, each at a multiple of 64 bytes
  bool in_place = false;       // the pieces outlive the program, so that they need not be copied
  std::vector<uint64_t> sizes;
};

class Program : public ipr::Executable {
 public:
  /// Lower a graph after its passes. `pool` may be nullptr if there is one thread.
  Program(Graph graph, const Settings& settings, native::Pool* pool, const Restored* restored = nullptr);

  void execute(const ipr::Run& run) override;

  /// Run with inputs and outputs in this memory, in this thread.
  void compute(const std::vector<char*>& border);
  /// The same as a part of the run of another program. `bases` has a null pointer, the address of `workspace_size`
  /// bytes, and the memory of inputs and outputs.
  void compute_inside(const std::vector<char*>& bases, Fault* fault) const;

  /// Measure each step on zeros or constant inputs for about `seconds`. Return the least nanoseconds of each step.
  std::vector<double> measured(double seconds);

  const Packed& packed() const { return packed_; }
  const Choices& choices() const { return choices_; }
  /// Return whether a step is a convolution, for which there are several algorithms.
  bool has_convolutions() const;
  const std::vector<Step>& steps() const { return steps_; }
  uint64_t signature = 0;  // of the graph that it was compiled from

 private:
  struct Border {
    uint64_t bytes;
    int32_t dtype;
  };

  void run_steps(const ipr::Run& run, char* const* bases);

  std::vector<Step> steps_;
  Profile profile_{steps_};
  Packed packed_;
  std::vector<std::shared_ptr<void>> pass_constants_;  // constants that passes created; empty with an allocator
  native::Pool* pool_;
  int threads_;
  Choices choices_;
  std::vector<Border> border_;  // inputs, then outputs
  bool parallel_ = false;
  uint64_t arena_bytes_ = 0, scratch_stride_ = 0;
};

}  // namespace cpuacc

#endif  // CPUACC_PROGRAM_HPP
