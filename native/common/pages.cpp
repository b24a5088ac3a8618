#include "common/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace native {

void release_pages(const void* begin, uint64_t size) {
  static const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  const uint64_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uint64_t last = (reinterpret_cast<uintptr_t>(begin) + size) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace native
