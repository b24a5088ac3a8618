#include "cpuacc/lower/dynamic_result.hpp"

#include <algorithm>

namespace cpuacc {

namespace {

constexpr int64_t kMostBytes = int64_t(1) << 46;  // no machine has more memory

}  // namespace

int64_t product_of(const Shape& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t product = 1;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(product, size, &product)) return -1;
  return product;
}

Shape Integers::all(const Run& run, const Buffer& buffer) const {
  Shape integers;
  for (int64_t n = 0; n < count; ++n) integers.push_back(at(run, buffer, n));
  return integers;
}

DynamicResult::DynamicResult(const Graph& graph, const Node& node, size_t position) : position_(position) {
  if (position >= node.outputs.size() || node.outputs[position] < 0) return;
  tensor_ = node.outputs[position];
  declared_ = graph[tensor_].shape;
  item_size_ = int64_t(ipr::item_size(graph[tensor_].dtype));
  is_known_ = is_known(declared_);
  is_read_ = is_known_ || graph.is_border(tensor_);
}

bool DynamicResult::takes(const Run& run, int operand, const Shape& shape) const {
  const int64_t elements = product_of(shape);
  if (elements < 0 || elements > kMostBytes / item_size_) {
    run.fail(operand, 0, "the result would be larger than any memory");
    return false;
  }
  auto fits = [](int64_t declared, int64_t size) { return declared < 0 || declared == size; };
  if (!is_read_ || std::equal(declared_.begin(), declared_.end(), shape.begin(), shape.end(), fits)) return true;
  run.fail(operand, 0, "the shape of the result differs from the declared shape");
  return false;
}

char* DynamicResult::memory(const Step& step, const Run& run, const Shape& shape) const {
  if (!is_read_) return nullptr;
  if (is_known_) return run.at<char>(step.out[position_]);
  return static_cast<char*>(run.resized(step.out[position_], shape));
}

}  // namespace cpuacc
