// A backend that adds, and takes part in profiling: two counters, and intervals on its threads and on a device whose
// clock is ahead of the host's.

#include <time.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "interposer/backend.hpp"

namespace {

constexpr int64_t kAhead = 1'000'000'000'000;  // nanoseconds

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// Returns the number of nanoseconds in an environment variable, by which a test shifts an end of an interval.
int64_t shift(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : 0;
}

class Measures : public ipr::Profiler {
 public:
  std::vector<ipr::Counter> counters() override {
    return {{"additions", "work", "additions", "sums computed", "", 1, IPR_COUNTER_EVENT},
            {"heat", "work", "K", "", "unit 0", 0.5, IPR_COUNTER_VALUE}};
  }

  void enable(bool on) override {
    std::lock_guard<std::mutex> lock(mutex_);
    on_ = on;
    if (on) intervals_.clear(), added_ = 0;
  }

  uint64_t collect(size_t capacity, std::vector<ipr_interval>& out) override {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t count = std::min(capacity, intervals_.size());
    out.assign(intervals_.begin(), intervals_.begin() + count);
    intervals_.erase(intervals_.begin(), intervals_.begin() + count);
    return 0;
  }

  std::vector<double> read() override {
    std::lock_guard<std::mutex> lock(mutex_);
    double added = added_;
    added_ = 0;
    return {added, period_ == 10'000 ? 600 : double(period_)};  // a collector chooses other periods than a recorder
  }

  void select(uint64_t period_us, const std::vector<uint64_t>& indices) override {
    if (period_us > 1'000'000) throw ipr::Error("the period is too long", IPR_INVALID_ARGUMENT);
    std::lock_guard<std::mutex> lock(mutex_);
    period_ = indices.empty() ? 0 : period_us;
  }

  void correlate(std::string_view device, ipr_clock& out) override {
    if (device != "unit 0") return ipr::Profiler::correlate(device, out);
    out.host_ns = now();
    out.device_ns = out.host_ns + kAhead;
    out.error_ns = 100;
  }

  void add(int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!on_) return;
    ++added_;
    intervals_.push_back({ipr::string("add"), {}, begin + shift("SHIFT_OF_BEGIN"), end + shift("SHIFT_OF_END"),
                          uint64_t(pthread_self()), 72, 6, IPR_INTERVAL_KERNEL, 0});
    intervals_.push_back({ipr::string("add on the device"), ipr::string("unit 0"), begin + kAhead, end + kAhead, 0, 0, 0,
                          IPR_INTERVAL_KERNEL, 0});
  }

 private:
  std::mutex mutex_;
  bool on_ = false;
  double added_ = 0;
  uint64_t period_ = 0;
  std::vector<ipr_interval> intervals_;
};

class Measured : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.capabilities = IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE;
    return info;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    bool fits = layer.type() == "Addition" && layer.input(0).dtype() == IPR_DTYPE_FLOAT32;
    return fits ? ipr::yes() : ipr::no("not an addition of float32", IPR_REASON_LAYER_TYPE);
  }

  ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override {
    return [this, count = layer.output(0).elements()](ipr::Tensors in, ipr::Tensors out) {
      int64_t begin = now();
      const float *a = in[0].data<float>(), *b = in[1].data<float>();
      for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = a[n] + b[n];
      measures_.add(begin, now());
    };
  }

  ipr::Profiler* profiler() override { return &measures_; }

 private:
  Measures measures_;
};

}  // namespace

IPR_BACKEND("Measured", Measured)
