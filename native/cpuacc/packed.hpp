// Packed constants, which programs with the same weights share.

#ifndef CPUACC_PACKED_HPP
#define CPUACC_PACKED_HPP

#include <cstdint>
#include <memory>
#include <vector>

#include "common/arena.hpp"

namespace cpuacc {

/// All pieces that a program packed from constants, in order of creation. A blob stores these.
class Packed {
 public:
  struct Piece {
    const char* data;
    uint64_t size;
  };

  /// Take the memory from the system, or from `allocator`, which outlives this object. Memory of an allocator is not
  /// shared with other programs.
  explicit Packed(const ipr_allocator* allocator) : memory_(allocator) {}

  /// Return zeroed bytes, aligned to 64, for the next piece.
  char* take(uint64_t bytes) { return memory_.take(bytes); }
  /// Complete the piece that `take` returned last, and return its address. If another program has a piece with the same
  /// bytes, that piece is used instead, and stays alive as long as one of the two programs. Thread safe with respect to
  /// other programs.
  const char* add(char* data, uint64_t bytes);

  /// Use bytes that outlive the program, such as those of a mapped blob, as the next piece.
  const char* refer(const char* data, uint64_t bytes);

  /// Return memory, aligned to 64, for a copy of a constant that is no piece. `take` was not called since the last
  /// `add`.
  char* copy(const void* data, uint64_t bytes);
  bool has_allocator() const { return memory_.has_allocator(); }

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Bytes of all pieces and copies, including shared ones.
  uint64_t total() const { return total_; }

 private:
  native::Arena memory_;
  std::vector<std::shared_ptr<const void>> shared_;  // chunks of other programs
  std::vector<Piece> pieces_;
  uint64_t total_ = 0;
};

}  // namespace cpuacc

#endif  // CPUACC_PACKED_HPP
