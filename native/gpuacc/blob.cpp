#include "gpuacc/blob.hpp"

#include "cpuacc/checksum.hpp"

namespace gpuacc {
namespace {

constexpr uint64_t kMagic = 0x3242636341757047;  // "GpuAccB2"
constexpr uint64_t kMostPrograms = 1 << 16, kMostChoices = 1 << 16;

void put(std::vector<unsigned char>& bytes, const void* data, uint64_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

void put(std::vector<unsigned char>& bytes, uint64_t number) { put(bytes, &number, sizeof number); }

/// A text with its size and checksum.
void put(std::vector<unsigned char>& bytes, const std::string& text) {
  put(bytes, uint64_t(text.size()));
  put(bytes, cpuacc::checksum(text.data(), text.size()));
  put(bytes, text.data(), text.size());
}

class Reader {
 public:
  Reader(const void* data, uint64_t size) : at_(static_cast<const char*>(data)), left_(size) {}

  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, taken(sizeof value), sizeof value);
    return value;
  }

  std::string text() {
    const uint64_t size = number(), expected = number();
    std::string found(taken(size), size_t(size));
    if (cpuacc::checksum(found.data(), found.size()) != expected) throw damaged();
    return found;
  }

  bool is_at_end() const { return left_ == 0; }
  static ipr::Error damaged() { return ipr::Error("the compiled subgraph is damaged", IPR_CORRUPT); }

 private:
  const char* taken(uint64_t size) {
    if (size > left_) throw damaged();
    const char* bytes = at_;
    at_ += size, left_ -= size;
    return bytes;
  }

  const char* at_;
  uint64_t left_;
};

class Mixer {
 public:
  void add(const void* data, uint64_t size) { sum = cpuacc::checksum(data, size, sum); }
  void add(int64_t number) { add(&number, sizeof number); }
  void add(double number) { add(&number, sizeof number); }
  void add(std::string_view text) {
    add(int64_t(text.size()));
    add(text.data(), text.size());
  }
  uint64_t sum = kMagic;
};

void add(Mixer& mixer, const ipr::TensorInfo& info) {
  mixer.add(int64_t(info.dtype()));
  for (int64_t size : info.shape()) mixer.add(size);
  for (double scale : info.scales()) mixer.add(scale);
  for (int64_t zero : info.zero_points()) mixer.add(zero);
  mixer.add(int64_t(info.axis()));
  mixer.add(int64_t(info.is_constant()));
}

void add(Mixer& mixer, const ipr::Graph& graph, const ipr::Layer& layer) {
  mixer.add(layer.type());
  for (int64_t tensor : layer.inputs()) mixer.add(tensor);
  for (int64_t tensor : layer.outputs()) mixer.add(tensor);
  for (uint64_t n = 0; n < layer.raw().attribute_count; ++n) {
    const ipr_attribute& attribute = *ipr_attribute_at(&graph.raw(), &layer.raw(), n);
    mixer.add(ipr::view(attribute.name));
    mixer.add(attribute.i);
    mixer.add(attribute.f);
    mixer.add(ipr::view(attribute.text));
    if (attribute.ints) mixer.add(attribute.ints, attribute.count * sizeof(int64_t));
    if (attribute.floats) mixer.add(attribute.floats, attribute.count * sizeof(double));
    for (uint64_t k = 0; attribute.texts && k < attribute.count; ++k) mixer.add(ipr::view(attribute.texts[k]));
  }
}

}  // namespace

uint64_t signature_of(const ipr::Graph& graph) {
  Mixer mixer;
  for (size_t n = 0; n < graph.tensor_count(); ++n) add(mixer, graph.tensor(int64_t(n)));
  for (ipr::Layer layer : graph) add(mixer, graph, layer);
  for (int64_t tensor : graph.inputs()) mixer.add(tensor);
  for (int64_t tensor : graph.outputs()) mixer.add(tensor);
  return mixer.sum;
}

std::vector<unsigned char> blob_of(Executable& executable) {
  executable.warm_up();
  std::vector<unsigned char> bytes;
  put(bytes, kMagic);
  put(bytes, executable.signature);
  put(bytes, uint64_t(executable.choices.size()));
  for (const auto& [key, choice] : executable.choices) {
    put(bytes, key);
    put(bytes, uint64_t(choice));
  }
  put(bytes, uint64_t(executable.programs().size()));
  for (const auto& [source, program] : executable.programs()) {
    put(bytes, source);
    put(bytes, binary(*program));
  }
  put(bytes, cpuacc::checksum(bytes.data(), bytes.size()));
  return bytes;
}

BlobContent content_of(const void* data, uint64_t size) {
  if (size < 8) throw Reader::damaged();
  uint64_t expected = 0;
  std::memcpy(&expected, static_cast<const char*>(data) + size - 8, 8);
  if (cpuacc::checksum(data, size - 8) != expected) throw Reader::damaged();
  Reader reader(data, size - 8);
  if (reader.number() != kMagic) throw Reader::damaged();
  BlobContent content;
  content.signature = reader.number();
  const uint64_t choices = reader.number();
  if (choices > kMostChoices) throw Reader::damaged();
  for (uint64_t n = 0; n < choices; ++n) {
    const std::string key = reader.text();
    content.choices[key] = int(reader.number());
  }
  const uint64_t count = reader.number();
  if (count > kMostPrograms) throw Reader::damaged();
  for (uint64_t n = 0; n < count; ++n) {
    std::string source = reader.text(), binary = reader.text();
    if (!binary.empty()) content.binaries.emplace_back(std::move(source), std::move(binary));
  }
  if (!reader.is_at_end()) throw Reader::damaged();
  return content;
}

}  // namespace gpuacc
