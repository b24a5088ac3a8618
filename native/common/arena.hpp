// Memory for constants: many pieces, aligned, in a few large pages, freed together.

#ifndef NATIVE_COMMON_ARENA_HPP
#define NATIVE_COMMON_ARENA_HPP

#include <cstdint>
#include <vector>

namespace native {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed bytes, aligned to 64, behind those that were given before where there is room. Throws std::bad_alloc.
  char* take(uint64_t bytes);
  /// Undoes the last `take`, which has to have been of so many bytes.
  void give_back(char* taken, uint64_t bytes);
  uint64_t total() const { return total_; }

 private:
  struct Chunk {
    char* memory;
    uint64_t size, used;
  };
  std::vector<Chunk> chunks_;
  uint64_t total_ = 0;
};

}  // namespace native

#endif  // NATIVE_COMMON_ARENA_HPP
