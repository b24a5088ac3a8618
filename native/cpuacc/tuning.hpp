// Alternative kernels, timed where they run: in whole programs that differ in one choice.

#ifndef CPUACC_TUNING_HPP
#define CPUACC_TUNING_HPP

#include <functional>
#include <memory>

#include "cpuacc/program.hpp"

namespace cpuacc {

/// The fastest of the programs that `make` gives for different choices, with its choices layer by layer. Alternatives
/// are taken that are clearly quicker than what rules choose. A program is run for at most `seconds`.
std::unique_ptr<Program> tuned(const std::function<std::unique_ptr<Program>(const Choices&)>& make, double seconds);

}  // namespace cpuacc

#endif  // CPUACC_TUNING_HPP
