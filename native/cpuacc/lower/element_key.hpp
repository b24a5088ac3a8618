// Numbers that order elements of any type.

#ifndef CPUACC_LOWER_ELEMENT_KEY_HPP
#define CPUACC_LOWER_ELEMENT_KEY_HPP

#include "cpuacc/graph.hpp"

namespace cpuacc {

/// Gives an element a number that is larger if the element is larger, and equal if it is equal. All NaNs have the
/// largest number, and -0 has that of 0. Quantized tensors are ordered by their quantized values.
class ElementKeys {
 public:
  ElementKeys() = default;
  explicit ElementKeys(const Tensor& tensor);

  /// Return whether the type has an order.
  bool is_ordered() const { return kind_ != Kind::none; }
  /// Write the keys of `count` elements that are `step` elements apart.
  void all(const void* from, int64_t step, int64_t count, uint64_t* to) const;

 private:
  enum class Kind { none, is_unsigned, is_signed, magnitude };  // magnitude: a sign, and bits that grow with the number

  void choose(int32_t dtype);
  template <class Bits>
  void each(const Bits* from, int64_t step, int64_t count, uint64_t* to) const;
  uint64_t key(uint64_t bits) const;

  Kind kind_ = Kind::none;
  int bits_ = 8;                      // of an element; further bits of its memory are ignored
  uint64_t infinity_ = ~uint64_t{0};  // a magnitude above this is NaN
  bool negative_zero_is_nan_ = false;
  int64_t item_size_ = 1;
};

}  // namespace cpuacc

#endif  // CPUACC_LOWER_ELEMENT_KEY_HPP
