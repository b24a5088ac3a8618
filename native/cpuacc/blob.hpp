// Compiled programs as bytes that the host can cache in a file.

#ifndef CPUACC_BLOB_HPP
#define CPUACC_BLOB_HPP

#include <string>
#include <vector>

#include "cpuacc/program.hpp"

namespace cpuacc {

/// A hash of everything that a program depends on: layers, attributes, tensors, and samples of the bytes of each
/// constant.
uint64_t signature_of(const ipr::Graph& graph);

std::vector<unsigned char> blob_of(const Program& program);

/// The content of a blob. It refers to the bytes of the blob, which have to outlive it. `content_of` throws ipr::Error
/// with IPR_CORRUPT if the bytes are not a valid blob.
struct BlobContent {
  uint64_t signature;
  Choices choices;
  Restored restored;
};
BlobContent content_of(const void* data, uint64_t size);

}  // namespace cpuacc

#endif  // CPUACC_BLOB_HPP
