// Operands and results of any type that a step computes with as float32 or float64.

#ifndef CPUACC_LOWER_REALS_HPP
#define CPUACC_LOWER_REALS_HPP

#include "cpuacc/kernels/elementwise.hpp"
#include "cpuacc/rules.hpp"

namespace cpuacc {

/// The elements of a tensor as numbers: floats of 16 to 64 bits, and quantized integers of 8 to 32 bits with one scale.
/// float64 is computed in float64, all others in float32.
class Reals {
 public:
  Reals() = default;
  Reals(const Tensor& tensor, native::Isa isa);

  /// Return whether the type is one of these.
  bool is_taken() const { return kind_ != Kind::none; }
  bool is_double() const { return dtype_ == IPR_DTYPE_FLOAT64; }
  int64_t count() const { return count_; }
  int64_t item_size() const { return item_size_; }

  /// The numbers; `memory` for `count` of them is used if they have to be converted.
  const float* read(const void* from, int64_t count, float* memory) const;
  const double* read(const void* from, int64_t count, double* memory) const;

  /// Write numbers from element `first` on, quantized or rounded.
  void write(const float* from, int64_t count, void* to, int64_t first = 0) const;
  void write(const double* from, int64_t count, void* to, int64_t first = 0) const;

 private:
  enum class Kind { none, same, half, quantized };

  template <class Code>
  void dequantize(const Code* from, int64_t count, float* to) const;
  template <class Code>
  void quantize(const float* from, int64_t count, Code* to) const;

  Kind kind_ = Kind::none;
  int32_t dtype_ = IPR_DTYPE_FLOAT32;
  int64_t count_ = 0, item_size_ = 4, zero_ = 0;
  double scale_ = 1;
  OfOne widen_ = nullptr, narrow_ = nullptr;
};

/// Supported if operands 0 .. count - 1 (if present) can be read, and all of them are float64 or none.
Refusal takes_reals(const Graph& graph, const Node& node, size_t count, native::Isa isa);

/// Memory of a part, of which arrays are taken one after another, each aligned to 64 bytes. Without memory, it counts.
class PartMemory {
 public:
  explicit PartMemory(char* begin = nullptr) : begin_(begin) {}

  template <class T>
  T* take(int64_t count) {
    T* taken = begin_ ? reinterpret_cast<T*>(begin_ + used_) : nullptr;
    used_ += (uint64_t(std::max<int64_t>(count, 0)) * sizeof(T) + 63) / 64 * 64;
    return taken;
  }
  uint64_t used() const { return used_; }

 private:
  char* begin_;
  uint64_t used_ = 0;
};

}  // namespace cpuacc

#endif  // CPUACC_LOWER_REALS_HPP
