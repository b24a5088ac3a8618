#include "common/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace native {
namespace {

constexpr uint64_t kHuge = 2 << 20;

uint64_t rounded(uint64_t bytes) { return std::max<uint64_t>(64, (bytes + 63) / 64 * 64); }

char* mapped(uint64_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (size >= kHuge) madvise(memory, size, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

char* allocated(const ipr_allocator& allocator, uint64_t size) {
  void* memory = nullptr;
  if (allocator.allocate(allocator.self, size, 64, &memory) != IPR_OK || memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, size);
  return static_cast<char*>(memory);
}

}  // namespace

Arena::Chunk::~Chunk() {
  if (memory == nullptr) return;
  if (allocator != nullptr) {
    allocator->free(allocator->self, memory);
  } else {
    munmap(memory, size);
  }
}

char* Arena::take(uint64_t bytes) {
  const uint64_t size = rounded(bytes);
  if (chunks_.empty() || chunks_.back()->size - chunks_.back()->used < size) {
    uint64_t least = chunks_.empty() ? 64 * 1024 : 2 * chunks_.back()->size;  // small networks allocate small chunks
    if (allocator_) least = 64 * 1024;  // the rest of a chunk is not free, as untouched pages of the system are
    uint64_t wanted = std::max(size, std::min<uint64_t>(least, 8 * kHuge));
    wanted = wanted >= kHuge ? (wanted + kHuge - 1) / kHuge * kHuge : (wanted + 4095) / 4096 * 4096;
    auto new_chunk = std::make_shared<Chunk>();
    new_chunk->memory = allocator_ ? allocated(*allocator_, wanted) : mapped(wanted);
    new_chunk->size = wanted;
    new_chunk->allocator = allocator_;
    chunks_.push_back(std::move(new_chunk));
  }
  Chunk& chunk = *chunks_.back();
  char* memory = chunk.memory + chunk.used;
  chunk.used += size;
  total_ += size;
  return memory;
}

void Arena::give_back(char* taken, uint64_t bytes) {
  Chunk& chunk = *chunks_.back();
  chunk.used = uint64_t(taken - chunk.memory);
  total_ -= rounded(bytes);
  if (chunk.used > 0) {
    std::memset(taken, 0, bytes);
  } else {
    chunks_.pop_back();
  }
}

}  // namespace native
