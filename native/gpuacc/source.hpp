// The text of kernels: types, loads and stores of all element types, and the preamble that all kernels share.

#ifndef GPUACC_SOURCE_HPP
#define GPUACC_SOURCE_HPP

#include <string>
#include <string_view>
#include <vector>

#include "gpuacc/device.hpp"

namespace gpuacc {

/// The type in which a kernel stores elements: "float", "half", "char" ...; nullptr for types without one.
const char* storage(int32_t dtype);

/// An unsigned type of the same size, for copies.
const char* bits_type(uint64_t bytes);

/// A text in which each "$name" is replaced. Names are letters; "$$" is not used.
class Template {
 public:
  explicit Template(std::string text) : text_(std::move(text)) {}
  Template& set(const std::string& name, const std::string& value);
  Template& set(const std::string& name, int64_t value) { return set(name, std::to_string(value)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Definitions that kernels share: B and the vectors of B floats (FB), loads and stores.
std::string preamble(const Profile& profile, const DeviceInfo& info);

}  // namespace gpuacc

#endif  // GPUACC_SOURCE_HPP
