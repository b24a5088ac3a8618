// Runs every case at every instruction set of this processor, on one thread.
//
// Columns: `per_cycle` is what the kernel does in a cycle (operations, or bytes read and written), `peak` what this
// core does at best at the same instruction set (operations: independent multiply-adds in registers; bytes: a copy, or
// reading, with the same working set), and `percent` their ratio. Cycles are those of the core's present frequency,
// measured by a chain of additions, so that they do not depend on the frequency of the counter.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <utility>

#include "bench.hpp"
#include "peak.hpp"

namespace native::bench {
namespace {

/// Processor time of this thread, which does not advance while another process has the core.
double seconds_now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

/// The least time of `times` calls, in seconds: interruptions only ever add to it.
template <class Work>
double least_seconds(int times, const Work& work) {
  double least = 1e30;
  for (int n = 0; n < times; ++n) {
    const double begin = seconds_now();
    work();
    least = std::min(least, seconds_now() - begin);
  }
  return least;
}

/// Cycles of the core in a second: each addition waits for the one before, and takes one cycle. Both operands are
/// registers, because some cores add immediate numbers without any delay.
double cycles_per_second() {
  constexpr int64_t kAdditions = 64'000;
  const double seconds = least_seconds(10, [] {
    int64_t sum = 1, step = 3;
    asm volatile("" : "+r"(step));
    for (int64_t n = 0; n < kAdditions / 16; ++n) {
#pragma GCC unroll 16
      for (int k = 0; k < 16; ++k) {
        sum += step;
        asm volatile("" : "+r"(sum));
      }
    }
  });
  return double(kAdditions) / seconds;
}

const cpuacc::PeakKernels& peak_of(Isa isa) {
#ifdef NATIVE_AMX
  if (isa == Isa::amx) return cpuacc::amx::peak_kernels;
#endif
#ifdef NATIVE_AVX512BF16
  if (isa == Isa::avx512bf16) return cpuacc::avx512bf16::peak_kernels;
#endif
  return cpuacc::peak_kernels_for(isa);
}

double operations_per_cycle(double (*kernel)(int64_t)) {
  constexpr int64_t kRounds = 20'000;
  double operations = 0;
  const double seconds = least_seconds(30, [&] { operations = kernel(kRounds); });
  return operations / (seconds * cycles_per_second());
}

/// Bytes read and written in a cycle by a copy that touches `bytes` in all.
double copied_per_cycle(Isa isa, double bytes) {
  const int64_t half = std::max<int64_t>(64, int64_t(bytes / 2) / 64 * 64),
                times = std::max<int64_t>(1, (1 << 22) / half);
  auto from = buffer<char>(half), to = buffer<char>(half);
  const double seconds = least_seconds(5, [&] {
    for (int64_t n = 0; n < times; ++n) peak_of(isa).copy(from.get(), to.get(), half);
  });
  return 2.0 * double(half * times) / (seconds * cycles_per_second());
}

/// Bytes read in a cycle, of memory of this size.
double read_per_cycle(Isa isa, double bytes) {
  const int64_t count = std::max<int64_t>(64, int64_t(bytes) / 64 * 64),
                times = std::max<int64_t>(1, (1 << 22) / count);
  auto from = buffer<char>(count, 1);
  const double seconds = least_seconds(5, [&] {
    for (int64_t n = 0; n < times; ++n) peak_of(isa).read(from.get(), count);
  });
  return double(count * times) / (seconds * cycles_per_second());
}

double peak(Isa isa, Limit limit, double amount) {
  if (limit == Limit::copy) return copied_per_cycle(isa, amount);
  if (limit == Limit::read) return read_per_cycle(isa, amount);
  static std::map<std::pair<Isa, Limit>, double> known;
  auto [entry, is_new] = known.try_emplace({isa, limit}, 0.0);
  const cpuacc::PeakKernels& kernels = peak_of(isa);
  if (is_new)
    entry->second = operations_per_cycle(limit == Limit::multiply_add            ? kernels.multiply_add
                                         : limit == Limit::multiply_add_bfloat16 ? kernels.multiply_add_bfloat16
                                                                                 : kernels.dot);
  return entry->second;
}

void measure(benchmark::State& state, const Case& which, Isa isa) {
  const Call call = which.make(isa);
  if (!call.run) return state.SkipWithError("this instruction set has no such kernel");
  call.run();
  const double frequency = cycles_per_second(), begin = seconds_now();
  for (auto _ : state) call.run();
  const double cycles = (seconds_now() - begin) * frequency / double(state.iterations());
  const double per_cycle = call.amount / cycles, at_best = peak(isa, call.limit, call.amount);
  state.counters["per_cycle"] = per_cycle;
  state.counters["peak"] = at_best;
  state.counters["percent"] = 100 * per_cycle / at_best;
  const bool moves = call.limit == Limit::copy || call.limit == Limit::read;
  if (moves) state.counters["bytes_per_ns"] = call.amount / cycles * frequency / 1e9;
  state.SetLabel(moves ? "bytes" : "operations");
}

/// Add cases for each instruction set up to `last`.
void add_cases(const std::vector<Case>& cases, Isa last) {
  for (const Case& one : cases)
    for (int n = 0; n <= int(last); ++n) {
      const Isa isa = Isa(n);
      if (!is_built(isa) || !one.make(isa).run) continue;
      const std::string name = one.name + "/" + isa_name(isa);
      benchmark::RegisterBenchmark(name.c_str(), [one, isa](benchmark::State& state) {
        measure(state, one, isa);
      })->Unit(benchmark::kMicrosecond);
    }
}

}  // namespace
}  // namespace native::bench

int main(int argc, char** argv) {
  using namespace native::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("processor", native::processor());
  const native::Isa best = native::best_isa(), best_of_floats = std::min(best, native::Isa::avx512bf16);
  add_cases(cases_f32(), best_of_floats);
  add_cases(cases_q8(), best);
  add_cases(cases_memory(), best_of_floats);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
