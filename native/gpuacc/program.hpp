// An executable network on a device: launches in order, with their memory.

#ifndef GPUACC_PROGRAM_HPP
#define GPUACC_PROGRAM_HPP

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpuacc/plan.hpp"

namespace gpuacc {

/// The process that opened OpenCL. Drivers do not work in a child process after fork.
void note_process();
/// Throw ipr::Error if this process was forked from the one that opened OpenCL.
void check_process();

class Executable : public ipr::Executable {
 public:
  Executable(Plan& plan, uint64_t signature);
  ~Executable() override;

  void execute(const ipr::Run& run) override;

  /// Run once on zeros, so that the driver compiles what it compiles at the first launch.
  void warm_up();

  /// The least seconds of some runs on memory of zeros, with nothing bound to the network's inputs and outputs.
  double seconds();

  const Choices choices;  // with which it was compiled
  /// All programs by their source.
  const std::map<std::string, std::shared_ptr<Program>>& programs() const { return programs_; }
  const uint64_t signature;  // of the graph that it was compiled from

 private:
  struct Step {
    std::string name;
    Kernel kernel;
    std::array<size_t, 3> global, local;
  };
  struct Border {
    int buffer;
    bool is_input;
    Memory own;                                    // memory of the device, made when it is needed
    std::vector<std::pair<size_t, cl_uint>> uses;  // launches and arguments
  };

  struct Copy {
    const char* name;
    uint64_t bytes;
    Event event;
  };

  Kernel kernel(const Launch& launch);
  void prepare(const Launch& launch);
  bool can_import(const void* data) const;
  void bind(Border& border, const ipr::Tensor& tensor, std::vector<Memory>& imported);
  void start(const ipr::Run* run);
  void keep_close(const ipr::Run& run);
  void record();
  void report_values();

  Device& device_;
  Queue queue_;
  const uint64_t arena_bytes_;
  Memory arena_;
  std::vector<Buffer> buffers_;
  std::vector<Memory> memory_;  // of the buffers in the arena
  std::vector<Step> steps_;
  std::vector<Border> inputs_, outputs_;
  std::map<std::string, std::shared_ptr<Program>> programs_;
  std::vector<ValueCheck> checks_;
  std::vector<int32_t> first_wrong_;
  int status_ = -1;
  std::vector<std::pair<size_t, Event>> events_;  // of launches of the run: all if it is recorded, else marks
  std::vector<size_t> marks_;                     // events that the run waits for
  size_t ahead_ = 1;                              // launches between two marks
  int64_t marked_at_ = 0;                         // when the run was checked last
  std::vector<Copy> copies_;                      // of the run, if it is recorded
  bool is_recorded_ = false;
};

}  // namespace gpuacc

#endif  // GPUACC_PROGRAM_HPP
