// Pages of mapped files.

#ifndef NATIVE_COMMON_PAGES_HPP
#define NATIVE_COMMON_PAGES_HPP

#include <cstdint>

namespace native {

/// Release the whole pages in a range of a mapped file from the memory of the process. They are loaded again when they
/// are read, usually from the page cache of the system.
void release_pages(const void* begin, uint64_t size);

}  // namespace native

#endif  // NATIVE_COMMON_PAGES_HPP
