#include "cpuacc/blob.hpp"

#include <algorithm>
#include <cstring>

#include "cpuacc/checksum.hpp"

namespace cpuacc {
namespace {

constexpr uint64_t kMagic = 0x32304243434155ull;

struct Header {
  uint64_t magic, signature, check, pieces, choices,
      begin;  // `begin` is the offset of the pieces; `check` is the checksum of all bytes after the header
};

uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

class Hasher {
 public:
  void bytes(const void* data, uint64_t size) { value_ = checksum(data, size, value_ + size); }
  void number(uint64_t value) { value_ = mixed(value_ ^ value) + 1; }
  void text(std::string_view text) { bytes(text.data(), text.size()); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1;
};

void add_constant(Hasher& hash, const ipr_constant& constant) {
  constexpr uint64_t most = 4096, pieces = 64, piece = 32;
  hash.number(constant.size);
  const char* data = static_cast<const char*>(constant.data);
  if (constant.size <= most) return hash.bytes(data, constant.size);
  for (uint64_t n = 0; n < pieces; ++n) hash.bytes(data + n * (constant.size - piece) / (pieces - 1), piece);
}

void add_attribute(Hasher& hash, const ipr_attribute& attribute) {
  hash.text(ipr::view(attribute.name));
  hash.number(uint64_t(attribute.kind));
  hash.number(uint64_t(attribute.i));
  hash.bytes(&attribute.f, sizeof attribute.f);
  hash.text(ipr::view(attribute.text));
  for (uint64_t n = 0; attribute.ints && n < attribute.count; ++n) hash.number(uint64_t(attribute.ints[n]));
  for (uint64_t n = 0; attribute.floats && n < attribute.count; ++n) hash.bytes(attribute.floats + n, sizeof(double));
  for (uint64_t n = 0; attribute.texts && n < attribute.count; ++n) hash.text(ipr::view(attribute.texts[n]));
}

void add_tensor(Hasher& hash, const ipr::TensorInfo& info) {
  hash.number(uint64_t(info.dtype()));
  hash.number(uint64_t(info.rank()));
  for (int64_t extent : info.shape()) hash.number(uint64_t(extent));
  for (double scale : info.scales()) hash.bytes(&scale, sizeof scale);
  for (int64_t zero : info.zero_points()) hash.number(uint64_t(zero));
  hash.number(uint64_t(info.axis()));
  hash.number(info.is_constant());
  if (info.is_constant()) add_constant(hash, info.constant());
}

[[noreturn]] void corrupt() {
  throw ipr::Error("the bytes are not a compiled subgraph of CpuAcc, or are damaged", IPR_CORRUPT);
}

}  // namespace

uint64_t signature_of(const ipr::Graph& graph) {
  Hasher hash;
  for (ipr::Layer layer : graph) {
    hash.text(layer.type());
    for (int64_t tensor : layer.inputs()) hash.number(uint64_t(tensor));
    for (int64_t tensor : layer.outputs()) hash.number(uint64_t(tensor));
    for (uint64_t n = 0; n < layer.raw().attribute_count; ++n)
      add_attribute(hash, *ipr_attribute_at(&graph.raw(), &layer.raw(), n));
  }
  for (size_t n = 0; n < graph.tensor_count(); ++n) add_tensor(hash, graph.tensor(int64_t(n)));
  for (int64_t tensor : graph.inputs()) hash.number(uint64_t(tensor));
  for (int64_t tensor : graph.outputs()) hash.number(uint64_t(tensor));
  return hash.value();
}

std::vector<unsigned char> blob_of(const Program& program) {
  const std::vector<Packed::Piece>& pieces = program.packed().pieces();
  const std::vector<int32_t> choices = program.choices().numbers();
  uint64_t begin = rounded(sizeof(Header) + pieces.size() * 8 + choices.size() * 4), size = begin;
  for (const Packed::Piece& piece : pieces) size += rounded(piece.size);
  std::vector<unsigned char> blob(size);
  unsigned char* at = blob.data() + sizeof(Header);
  for (const Packed::Piece& piece : pieces) std::memcpy(at, &piece.size, 8), at += 8;
  for (int32_t choice : choices) std::memcpy(at, &choice, 4), at += 4;
  at = blob.data() + begin;
  for (const Packed::Piece& piece : pieces) {
    if (piece.size > 0) std::memcpy(at, piece.data, piece.size);
    at += rounded(piece.size);
  }
  Header header{kMagic, program.signature, 0, pieces.size(), choices.size(), begin};
  header.check = checksum(blob.data() + sizeof(Header), size - sizeof(Header), header.signature);
  std::memcpy(blob.data(), &header, sizeof header);
  return blob;
}

BlobContent content_of(const void* data, uint64_t size) {
  Header header;
  if (size < sizeof header) corrupt();
  std::memcpy(&header, data, sizeof header);
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  if (header.magic != kMagic || header.pieces > size / 8 || header.choices > size / 4) corrupt();
  if (header.begin != rounded(sizeof header + header.pieces * 8 + header.choices * 4) || header.begin > size) corrupt();
  if (header.check != checksum(bytes + sizeof header, size - sizeof header, header.signature)) corrupt();
  BlobContent content;
  content.signature = header.signature;
  content.restored.sizes.resize(header.pieces);
  std::vector<int32_t> choices(header.choices);
  if (header.pieces > 0) std::memcpy(content.restored.sizes.data(), bytes + sizeof header, header.pieces * 8);
  if (header.choices > 0) std::memcpy(choices.data(), bytes + sizeof header + header.pieces * 8, header.choices * 4);
  content.choices = Choices::of_numbers(choices);
  uint64_t left = size - header.begin;
  for (uint64_t piece : content.restored.sizes) {
    if (piece > left || rounded(piece) > left) corrupt();
    left -= rounded(piece);
  }
  content.restored.data = reinterpret_cast<const char*>(bytes) + header.begin;
  return content;
}

}  // namespace cpuacc
