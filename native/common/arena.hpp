// Memory for constants: many pieces, aligned, in a few large pages, freed together.

#ifndef NATIVE_COMMON_ARENA_HPP
#define NATIVE_COMMON_ARENA_HPP

#include <cstdint>
#include <memory>
#include <vector>

namespace native {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed bytes, aligned to 64, behind those that were given before where there is room. Throws std::bad_alloc.
  char* take(uint64_t bytes);
  /// Undoes the last `take`, which has to have been of so many bytes.
  void give_back(char* taken, uint64_t bytes);
  /// Keeps what was taken last where it is, and what lies in the same 16 MiB at most, also when the arena is gone.
  std::shared_ptr<const void> hold() const { return chunks_.back(); }
  uint64_t total() const { return total_; }

 private:
  struct Chunk {
    char* memory = nullptr;
    uint64_t size = 0, used = 0;

    ~Chunk();
  };
  std::vector<std::shared_ptr<Chunk>> chunks_;
  uint64_t total_ = 0;
};

}  // namespace native

#endif  // NATIVE_COMMON_ARENA_HPP
