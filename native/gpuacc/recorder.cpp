#include "gpuacc/recorder.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace gpuacc {
namespace {

constexpr size_t kMostIntervals = 1 << 17;
constexpr int kCorrelations = 20;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

int64_t time_of(const Event& event, cl_uint moment) {
  cl_ulong time = 0;
  check(cl().clGetEventProfilingInfo(event.get(), moment, sizeof time, &time, nullptr), "no time of a command");
  return int64_t(time);
}

}  // namespace

Recorder& Recorder::all() {
  static Recorder* recorder = new Recorder;  // never destroyed: executables may outlive static objects
  return *recorder;
}

std::vector<ipr::Counter> Recorder::counters() {
  ipr::Counter built;
  built.name = "Programs built";
  built.category = "GpuAcc";
  built.units = "programs";
  built.description = "OpenCL programs that the driver compiled from source";
  built.kind = IPR_COUNTER_EVENT;
  return {built};
}

std::vector<double> Recorder::read() {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t now = programs_;
  return {double(now - std::exchange(programs_read_, now))};
}

void Recorder::enable(bool on) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on && !is_on()) intervals_.clear(), lost_ = 0;
  on_ = on;
}

void Recorder::add(const std::string& name, const Device& device, const Event& event, uint32_t kind, uint64_t bytes) {
  const int64_t begin = time_of(event, kEventStart), end = time_of(event, kEventEnd);
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string& text = *texts_.insert(name).first;
  const std::string& on = *texts_.insert(device.info.label).first;
  intervals_.push_back(
      {ipr::string(text), ipr::string(on), begin, std::max(begin, end), uint64_t(pthread_self()), bytes, 0, kind, 0});
  for (; intervals_.size() > kMostIntervals; ++lost_) intervals_.pop_front();
}

uint64_t Recorder::collect(size_t capacity, std::vector<ipr_interval>& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto end = intervals_.begin() + int64_t(std::min(capacity, intervals_.size()));
  out.insert(out.end(), intervals_.begin(), end);
  intervals_.erase(intervals_.begin(), end);
  return std::exchange(lost_, 0);
}

void Recorder::know(Device* device) {
  std::lock_guard<std::mutex> lock(mutex_);
  devices_.insert(device);
}

void Recorder::forget(Device* device) {
  std::lock_guard<std::mutex> lock(mutex_);
  devices_.erase(device);
}

/// Enclose a command that writes a few bytes between two readings of the host's clock; the closest pair counts.
void Recorder::correlate(std::string_view device, ipr_clock& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto position = std::find_if(devices_.begin(), devices_.end(),
                               [&](Device* candidate) { return candidate->info.label == device; });
  if (position == devices_.end()) return Profiler::correlate(device, out);
  const Queue queue = (*position)->queue();
  const Memory memory = (*position)->buffer(64);
  int64_t closest = -1;
  for (int n = 0; n < kCorrelations; ++n) {
    const char bytes[64] = {};
    cl_event raw = nullptr;
    const int64_t before = now_ns();
    check(cl().clEnqueueWriteBuffer(queue.get(), memory.get(), 1, 0, sizeof bytes, bytes, 0, nullptr, &raw),
          "the clock");
    const int64_t after = now_ns();
    const Event event(raw);
    if (closest >= 0 && after - before >= closest) continue;
    closest = after - before;
    out.device_ns = (time_of(event, kEventStart) + time_of(event, kEventEnd)) / 2;
    out.host_ns = before + closest / 2;
    out.error_ns = closest / 2 + 1;
  }
}

}  // namespace gpuacc
