// Memory for constants: many aligned pieces in a few large chunks, which are freed together.

#ifndef NATIVE_COMMON_ARENA_HPP
#define NATIVE_COMMON_ARENA_HPP

#include <cstdint>
#include <memory>
#include <vector>

#include "interposer/backend.h"

namespace native {

class Arena {
 public:
  /// Take the chunks from the system, or from `allocator`, which outlives them.
  explicit Arena(const ipr_allocator* allocator = nullptr) : allocator_(allocator) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Return zeroed bytes, aligned to 64, after the previous ones if the chunk has room for them. Throws std::bad_alloc.
  char* take(uint64_t bytes);
  /// Undo the last `take`, which has to have requested the same number of bytes.
  void give_back(char* taken, uint64_t bytes);
  /// Return a handle that keeps the last piece alive, and its chunk of at most 16 MiB, even after the arena is
  /// destroyed.
  std::shared_ptr<const void> hold() const { return chunks_.back(); }
  uint64_t total() const { return total_; }
  bool has_allocator() const { return allocator_ != nullptr; }

 private:
  struct Chunk {
    char* memory = nullptr;
    uint64_t size = 0, used = 0;
    const ipr_allocator* allocator = nullptr;

    ~Chunk();
  };

  const ipr_allocator* allocator_;
  std::vector<std::shared_ptr<Chunk>> chunks_;
  uint64_t total_ = 0;
};

}  // namespace native

#endif  // NATIVE_COMMON_ARENA_HPP
