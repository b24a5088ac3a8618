// A micro-benchmark: one call of a kernel on operands of a size that networks have, and what the call computes or
// moves.

#ifndef NATIVE_BENCHMARKS_BENCH_HPP
#define NATIVE_BENCHMARKS_BENCH_HPP

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/cpu.hpp"

namespace native::bench {

/// What a kernel is compared with: the multiply-adds of a core, a copy of as many bytes, or reading as many bytes.
enum class Limit { multiply_add, multiply_add_bfloat16, dot, copy, read };

/// One call. `amount` is in operations (a multiply-add is two), or in bytes read and written.
struct Call {
  Limit limit;
  double amount;
  std::function<void()> run;
};

/// A kernel on operands of one size. `make` prepares the operands for an instruction set; its call is empty if that
/// instruction set has no such kernel.
struct Case {
  std::string name;
  std::function<Call(Isa)> make;
};

std::vector<Case> cases_f32();     // convolutions, matrix products, attention, recurrent layers
std::vector<Case> cases_q8();      // quantized values of 8 bits
std::vector<Case> cases_memory();  // elementwise functions, reductions, pooling, layouts: limited by memory

/// Shared memory for `count` elements, aligned to 64 bytes, with 1 KiB of slack.
template <class T>
std::shared_ptr<T[]> buffer(int64_t count, T value = T{}) {
  void* memory = std::aligned_alloc(64, (size_t(count) * sizeof(T) + 1024 + 63) / 64 * 64);
  std::shared_ptr<T[]> shared(static_cast<T*>(memory), [](T* p) { std::free(p); });
  for (int64_t n = 0; n < count + int64_t(1024 / sizeof(T)); ++n) shared[n] = value;
  return shared;
}

}  // namespace native::bench

#endif  // NATIVE_BENCHMARKS_BENCH_HPP
