// Times of the steps of a program, printed when it goes, where INTERPOSER_CPUACC_PROFILE=1.

#ifndef CPUACC_PROFILE_HPP
#define CPUACC_PROFILE_HPP

#include <cstdint>
#include <mutex>
#include <vector>

#include "cpuacc/step.hpp"

namespace cpuacc {

class Profile {
 public:
  /// `steps` must outlive it.
  explicit Profile(const std::vector<Step>& steps);
  ~Profile();
  Profile(const Profile&) = delete;

  bool is_on() const { return on_; }
  /// Nanoseconds of each step of one run. May be called by several threads.
  void add(const std::vector<int64_t>& times);

 private:
  const std::vector<Step>& steps_;
  bool on_;
  std::mutex mutex_;
  int64_t runs_ = 0;
  std::vector<int64_t> sums_, least_;
};

}  // namespace cpuacc

#endif  // CPUACC_PROFILE_HPP
