// What identifies this build of a native library.

#ifndef NATIVE_COMMON_BUILD_ID_HPP
#define NATIVE_COMMON_BUILD_ID_HPP

#include <string>

namespace native {

/// The build id of the library or program that this function is linked into. The linker computes these bytes from the
/// content of the file. Empty if it was linked without `--build-id`.
std::string build_id();

}  // namespace native

#endif  // NATIVE_COMMON_BUILD_ID_HPP
