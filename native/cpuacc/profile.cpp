#include "cpuacc/profile.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace cpuacc {
namespace {

constexpr size_t kMostIntervals = 1 << 17;

bool is_wanted() {
  const char* wanted = std::getenv("INTERPOSER_CPUACC_PROFILE");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

void print(double least, double mean, double operations, int parts, const char* name) {
  std::fprintf(stderr, "%10.1f %10.1f %8.1f %3d  %s\n", least / 1e3, mean / 1e3, operations / least, parts, name);
}

}  // namespace

Profile::Profile(const std::vector<Step>& steps) : steps_(steps), on_(is_wanted()) {}

Intervals& Intervals::all() {
  static Intervals* intervals = new Intervals;  // never destroyed: programs may outlive static objects
  return *intervals;
}

void Intervals::enable(bool on) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on && !is_on()) intervals_.clear(), lost_ = 0;
  on_ = on;
}

const std::string* Intervals::lasting(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  return &*names_.insert(name).first;
}

void Intervals::add(const std::vector<ipr_interval>& intervals) {
  std::lock_guard<std::mutex> lock(mutex_);
  intervals_.insert(intervals_.end(), intervals.begin(), intervals.end());
  for (; intervals_.size() > kMostIntervals; ++lost_) intervals_.pop_front();
}

uint64_t Intervals::collect(size_t capacity, std::vector<ipr_interval>& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto end = intervals_.begin() + int64_t(std::min(capacity, intervals_.size()));
  out.insert(out.end(), intervals_.begin(), end);
  intervals_.erase(intervals_.begin(), end);
  return std::exchange(lost_, 0);
}

void Profile::add(int64_t begin, const std::vector<int64_t>& times) {
  if (on_) sum_up(times);
  if (Intervals::all().is_on()) record(begin, times);
}

void Profile::record(int64_t begin, const std::vector<int64_t>& times) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t n = names_.size(); n < steps_.size(); ++n) names_.push_back(Intervals::all().lasting(steps_[n].name));
  }
  std::vector<ipr_interval> intervals(times.size());
  for (size_t n = 0; n < times.size(); ++n) {
    ipr_interval& interval = intervals[n];
    interval = {ipr::string(*names_[n]), {}, begin, begin + times[n], 0, 0, 0, IPR_INTERVAL_KERNEL, 0};
    interval.thread = uint64_t(pthread_self());
    interval.flops = uint64_t(steps_[n].operations);
    begin = interval.end_ns;
  }
  Intervals::all().add(intervals);
}

void Profile::sum_up(const std::vector<int64_t>& times) {
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
