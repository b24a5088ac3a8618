// Prints the best instruction set of this processor, for builds that compile only its kernels (instruction_sets.cmake).

#include <cstdio>

#include "common/cpu.hpp"

int main() { return std::puts(native::isa_name(native::processor_isa())) < 0; }
