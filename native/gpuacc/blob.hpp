// Compiled networks as bytes: the binaries of their programs, each with a checksum, and what was measured.

#ifndef GPUACC_BLOB_HPP
#define GPUACC_BLOB_HPP

#include <string>
#include <utility>
#include <vector>

#include "gpuacc/program.hpp"

namespace gpuacc {

struct BlobContent {
  uint64_t signature = 0;
  Choices choices;
  std::vector<std::pair<std::string, std::string>> binaries;  // by source
};

/// A checksum of the layers, attributes, tensors and operands of a graph.
uint64_t signature_of(const ipr::Graph& graph);

/// The bytes of an executable, which is run once on zeros before, so that its binaries are complete.
std::vector<unsigned char> blob_of(Executable& executable);

/// Read a blob. Throw ipr::Error with IPR_CORRUPT if it is damaged. The driver never sees a binary whose checksum is
/// wrong, as drivers accept damaged ones.
BlobContent content_of(const void* data, uint64_t size);

}  // namespace gpuacc

#endif  // GPUACC_BLOB_HPP
