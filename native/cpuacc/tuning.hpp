// Selection among alternative kernels by timing whole programs that differ in one choice.

#ifndef CPUACC_TUNING_HPP
#define CPUACC_TUNING_HPP

#include <functional>
#include <memory>

#include "cpuacc/program.hpp"

namespace cpuacc {

/// Return the fastest program that `make` creates for different choices. Choices are combined layer by layer. An
/// alternative is selected only if it is clearly faster than the choice of the cost model. Each program runs for at
/// most `seconds`.
std::unique_ptr<Program> tuned(const std::function<std::unique_ptr<Program>(const Choices&)>& make, double seconds);

}  // namespace cpuacc

#endif  // CPUACC_TUNING_HPP
