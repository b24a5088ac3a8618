#include "cpuacc/packed.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "cpuacc/checksum.hpp"

namespace cpuacc {
namespace {

using Memory = std::shared_ptr<const void>;

constexpr uint64_t kLeastSharedBytes =
    256 * 1024;  // smaller pieces are not shared: each shared piece keeps a chunk of another program alive

constexpr size_t kMostCandidates = 4;  // pieces with equal sums that are compared, as files may be made to have many

struct Known {
  std::weak_ptr<const void> memory;
  Packed::Piece piece;
};

using Pieces = std::multimap<uint64_t, Known>;

struct Library {
  std::mutex mutex;
  Pieces pieces;      // by `sampled_sum`
  size_t limit = 64;  // number of pieces at which pieces of destroyed programs are removed
};

/// A checksum of evenly spaced samples, as a whole piece takes long to read. Pieces with equal sums may still differ.
uint64_t sampled_sum(const char* data, uint64_t bytes) {
  constexpr uint64_t samples = 64, sample = 64;  // bytes of a sample
  uint64_t sum = bytes;
  for (uint64_t n = 0; n < samples; ++n) sum = checksum(data + (bytes - sample) / (samples - 1) * n, sample, sum);
  return sum;
}

Library& library();

Library* made_library() {
  // The mutex is free in the child of a fork, even if another thread of the parent held it.
  pthread_atfork([] { library().mutex.lock(); }, [] { library().mutex.unlock(); }, [] { library().mutex.unlock(); });
  return new Library;  // never freed, because programs may outlive static objects at the end of the process
}

Library& library() {
  static Library* leaked = made_library();
  return *leaked;
}

std::vector<std::pair<Memory, const char*>> alike(uint64_t sum, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(library().mutex);
  std::vector<std::pair<Memory, const char*>> candidates;
  auto [begin, end] = library().pieces.equal_range(sum);
  for (auto entry = begin; entry != end && candidates.size() < kMostCandidates; ++entry)
    if (Memory memory = entry->second.memory.lock(); memory && entry->second.piece.size == bytes)
      candidates.emplace_back(std::move(memory), entry->second.piece.data);
  return candidates;
}

/// Remove pieces of destroyed programs.
void erase_expired(Pieces::iterator one, Pieces::iterator end) {
  while (one != end) one = one->second.memory.expired() ? library().pieces.erase(one) : std::next(one);
}

void remember(uint64_t sum, const Memory& memory, Packed::Piece piece) {
  std::lock_guard<std::mutex> lock(library().mutex);
  auto& pieces = library().pieces;
  if (pieces.size() >= library().limit) {
    erase_expired(pieces.begin(), pieces.end());
    library().limit = std::max<size_t>(64, 2 * pieces.size());
  }
  auto [begin, end] = pieces.equal_range(sum);
  erase_expired(begin, end);
  if (pieces.count(sum) < kMostCandidates) pieces.insert({sum, {memory, piece}});
}

}  // namespace

const char* Packed::add(char* data, uint64_t bytes) {
  total_ += bytes;
  pieces_.push_back({data, bytes});
  if (bytes < kLeastSharedBytes || has_allocator()) return data;
  const uint64_t sum = sampled_sum(data, bytes);
  for (auto& [memory, same] : alike(sum, bytes)) {
    if (std::memcmp(data, same, bytes) != 0) continue;
    pieces_.back().data = same;
    memory_.give_back(data, bytes);
    if (std::find(shared_.begin(), shared_.end(), memory) == shared_.end()) shared_.push_back(std::move(memory));
    return same;
  }
  remember(sum, memory_.hold(), pieces_.back());
  return data;
}

char* Packed::copy(const void* data, uint64_t bytes) {
  total_ += bytes;
  char* copied = memory_.take(bytes);
  std::memcpy(copied, data, bytes);
  return copied;
}

const char* Packed::refer(const char* data, uint64_t bytes) {
  total_ += bytes;
  pieces_.push_back({data, bytes});
  return data;
}

}  // namespace cpuacc
