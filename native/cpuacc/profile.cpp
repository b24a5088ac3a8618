#include "cpuacc/profile.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cpuacc {
namespace {

bool is_wanted() {
  const char* wanted = std::getenv("INTERPOSER_CPUACC_PROFILE");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

void print(double least, double mean, double operations, int parts, const char* name) {
  std::fprintf(stderr, "%10.1f %10.1f %8.1f %3d  %s\n", least / 1e3, mean / 1e3, operations / least, parts, name);
}

}  // namespace

Profile::Profile(const std::vector<Step>& steps) : steps_(steps), on_(is_wanted()) {}

void Profile::add(const std::vector<int64_t>& times) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (runs_++ == 0) sums_.assign(times.size(), 0), least_ = times;
  for (size_t n = 0; n < times.size(); ++n) {
    sums_[n] += times[n];
    least_[n] = std::min(least_[n], times[n]);
  }
}

Profile::~Profile() {
  if (!on_ || runs_ == 0) return;
  std::fprintf(stderr, "%10s %10s %8s %3s  step, of %lld runs\n", "least us", "mean us", "GFLOP/s", "max",
               static_cast<long long>(runs_));
  double least = 0, mean = 0, operations = 0;
  for (size_t n = 0; n < steps_.size(); ++n) {
    const Step& step = steps_[n];
    double average = double(sums_[n]) / double(runs_), shortest = double(std::max<int64_t>(1, least_[n]));
    print(shortest, average, step.operations, step.max_parts, step.name.c_str());
    least += shortest, mean += average, operations += step.operations;
  }
  print(std::max(1.0, least), mean, operations, 0, "all");
}

}  // namespace cpuacc
