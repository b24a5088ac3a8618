// What the lowerings of recurrent layers of TFLite share.

#ifndef CPUACC_LOWER_RECURRENT_HPP
#define CPUACC_LOWER_RECURRENT_HPP

#include <optional>
#include <string_view>
#include <utility>

#include "cpuacc/kernels/recurrent.hpp"

namespace cpuacc {

/// The next multiple of 16.
inline int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }

/// The function with this name, if it is one of TFLite's recurrent layers.
inline std::optional<Squash> squash_of(std::string_view name) {
  constexpr std::pair<std::string_view, Squash> names[] = {
      {"NONE", Squash::none},      {"RELU", Squash::relu}, {"RELU_N1_TO_1", Squash::relu_one},
      {"RELU6", Squash::relu_six}, {"TANH", Squash::tanh}, {"SIGMOID", Squash::sigmoid}};
  for (const auto& [text, squash] : names)
    if (text == name) return squash;
  return std::nullopt;
}

}  // namespace cpuacc

#endif  // CPUACC_LOWER_RECURRENT_HPP
