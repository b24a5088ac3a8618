// Times of the steps of a program: printed when it is destroyed if INTERPOSER_CPUACC_PROFILE is 1, and given to a host
// that records them (the extension ipr.profiling/1).

#ifndef CPUACC_PROFILE_HPP
#define CPUACC_PROFILE_HPP

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cpuacc/step.hpp"
#include "interposer/backend.hpp"

namespace cpuacc {

/// The intervals of the steps of all programs, while a host records them. Thread safe.
class Intervals final : public ipr::Profiler {
 public:
  /// The intervals of this library.
  static Intervals& all();

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  void enable(bool on) override;
  uint64_t collect(size_t capacity, std::vector<ipr_interval>& out) override;
  /// Return a text that is equal to `name` and lasts as long as the library.
  const std::string* lasting(const std::string& name);
  /// Add intervals; the oldest ones are dropped if there is no room.
  void add(const std::vector<ipr_interval>& intervals);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::set<std::string> names_;
  std::deque<ipr_interval> intervals_;
  uint64_t lost_ = 0;
};

class Profile {
 public:
  /// `steps` have to outlive the profile.
  explicit Profile(const std::vector<Step>& steps);
  ~Profile();
  Profile(const Profile&) = delete;

  bool is_on() const { return on_ || Intervals::all().is_on(); }
  /// Record one run that began at `begin`, with the nanoseconds that each step took. Thread safe.
  void add(int64_t begin, const std::vector<int64_t>& times);

 private:
  void sum_up(const std::vector<int64_t>& times);
  void record(int64_t begin, const std::vector<int64_t>& times);

  const std::vector<Step>& steps_;
  bool on_;
  std::vector<const std::string*> names_;  // of the steps, once a run was recorded
  std::mutex mutex_;
  int64_t runs_ = 0;
  std::vector<int64_t> sums_, least_;
};

}  // namespace cpuacc

#endif  // CPUACC_PROFILE_HPP
