// Times of the steps of a program, printed when it is destroyed if INTERPOSER_CPUACC_PROFILE is 1.

#ifndef CPUACC_PROFILE_HPP
#define CPUACC_PROFILE_HPP

#include <cstdint>
#include <mutex>
#include <vector>

#include "cpuacc/step.hpp"

namespace cpuacc {

class Profile {
 public:
  /// `steps` have to outlive the profile.
  explicit Profile(const std::vector<Step>& steps);
  ~Profile();
  Profile(const Profile&) = delete;

  bool is_on() const { return on_; }
  /// Record the nanoseconds of each step of one run. Thread safe.
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
