// What was packed for a program, as bytes that a file can keep.

#ifndef CPUACC_BLOB_HPP
#define CPUACC_BLOB_HPP

#include <string>
#include <vector>

#include "cpuacc/program.hpp"

namespace cpuacc {

/// Of everything that a program depends on: layers, attributes, tensors, and some of the bytes of every constant.
uint64_t signature_of(const ipr::Graph& graph);

std::vector<unsigned char> blob_of(const Program& program);

/// The content of a blob, which must outlive it. Throws ipr::Error with IPR_CORRUPT where the bytes are no blob.
struct BlobContent {
  uint64_t signature;
  Choices choices;
  Restored restored;
};
BlobContent content_of(const void* data, uint64_t size);

}  // namespace cpuacc

#endif  // CPUACC_BLOB_HPP
