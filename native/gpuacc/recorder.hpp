// What a host records of GpuAcc (the extension ipr.profiling/1): the times of kernels by the clock of the device, and
// the number of programs that were built.

#ifndef GPUACC_RECORDER_HPP
#define GPUACC_RECORDER_HPP

#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gpuacc/device.hpp"
#include "interposer/backend.hpp"

namespace gpuacc {

/// The recorder of this library. Thread safe.
class Recorder final : public ipr::Profiler {
 public:
  static Recorder& all();

  std::vector<ipr::Counter> counters() override;
  void enable(bool on) override;
  uint64_t collect(size_t capacity, std::vector<ipr_interval>& out) override;
  std::vector<double> read() override;
  void correlate(std::string_view device, ipr_clock& out) override;

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  void count_program() { ++programs_; }
  /// Add the interval of a command that is over. `bytes` is what it read or wrote; 0: not known.
  void add(const std::string& name, const Device& device, const Event& event, uint32_t kind, uint64_t bytes = 0);

  /// A device that can be correlated, until `forget`.
  void know(Device* device);
  void forget(Device* device);

 private:
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> programs_{0};
  uint64_t programs_read_ = 0;
  std::mutex mutex_;
  std::set<std::string> texts_;
  std::set<Device*> devices_;
  std::deque<ipr_interval> intervals_;
  uint64_t lost_ = 0;
};

}  // namespace gpuacc

#endif  // GPUACC_RECORDER_HPP
