// Bytes that were packed from constants, which programs with the same weights have in common.

#ifndef CPUACC_PACKED_HPP
#define CPUACC_PACKED_HPP

#include <cstdint>
#include <memory>
#include <vector>

#include "common/arena.hpp"

namespace cpuacc {

/// Everything that is made once from constants, in the order in which it was made; what a blob keeps.
class Packed {
 public:
  struct Piece {
    const char* data;
    uint64_t size;
  };

  /// Zeroed bytes, aligned to 64, for the next piece.
  char* take(uint64_t bytes) { return memory_.take(bytes); }
  /// Ends the piece that was taken last. Where somebody has the same bytes, they are used in its place, and stay for
  /// as long as one of the two lives. Thread safe among programs.
  const char* add(char* data, uint64_t bytes);

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Bytes of all pieces, whoever made them.
  uint64_t total() const { return total_; }

 private:
  native::Arena memory_;
  std::vector<std::shared_ptr<const void>> shared_;  // memory of others
  std::vector<Piece> pieces_;
  uint64_t total_ = 0;
};

}  // namespace cpuacc

#endif  // CPUACC_PACKED_HPP
