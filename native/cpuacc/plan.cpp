#include "cpuacc/plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <new>
#include <set>

#include "common/pages.hpp"

namespace cpuacc {
namespace {

uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr uint64_t kLargestCopiedConstant =
    64 * 1024;  // bytes; smaller constants are copied, so that the host may free them
constexpr uint64_t kLeastDividedBytes =
    256 * 1024;  // bytes; packing less than this takes about as long as waking threads

using Work = std::function<void(int64_t, int64_t)>;

/// A range from which threads take pieces dynamically.
struct Divided {
  const Work* work;
  int64_t count, piece;
  std::atomic<int64_t> next{0};

  static void part(void* self, int, int) {
    Divided& all = *static_cast<Divided*>(self);
    for (int64_t first; (first = all.next.fetch_add(all.piece)) < all.count;)
      (*all.work)(first, std::min(first + all.piece, all.count));
  }
};

}  // namespace

Plan::Plan(const Graph& graph, const Settings& settings, Packed& packed, const Restored* restored, native::Pool* pool)
    : Builder(graph, settings), packed_(packed), restored_(restored), pool_(pool) {
  for (const Tensor& tensor : graph.tensors) {
    Value value;
    value.bytes = tensor.bytes();
    if (tensor.is_constant()) value.base = 0, value.place = reinterpret_cast<uint64_t>(tensor.data);
    values_.push_back(value);
  }
  for (size_t n = 0; n < graph.inputs.size(); ++n) values_[size_t(graph.inputs[n])].base = uint32_t(2 + n);
  for (size_t n = 0; n < graph.outputs.size(); ++n)
    values_[size_t(graph.outputs[n])].base = uint32_t(2 + graph.inputs.size() + n);
}

Buffer Plan::buffer(int tensor) {
  Buffer buffer;
  buffer.id = tensor;
  if (tensor < 0 || values_[size_t(tensor)].base != 0) return buffer;
  Value& value = values_[size_t(tensor)];
  const Tensor& constant = graph[tensor];
  if (value.first == 0) return buffer;  // already copied
  if (constant.owner) {
    if (packed_.has_allocator()) copy(value, constant);
    return buffer;  // without an allocator, the program owns it
  }
  if (value.bytes > kLargestCopiedConstant) {
    if (constant.is_aligned(ipr::item_size(constant.dtype))) {
      reads_constants_ = true;
    } else {
      copy(value, constant);
    }
    return buffer;
  }
  auto fill = [&](void* to) { std::memcpy(to, constant.data, value.bytes); };
  value.place = reinterpret_cast<uint64_t>(pack(value.bytes, fill));
  value.first = 0;
  return buffer;
}

/// Copy a constant, but not as a piece, because blobs must not depend on its address.
void Plan::copy(Value& value, const Tensor& constant) {
  value.place = reinterpret_cast<uint64_t>(packed_.copy(constant.data, value.bytes));
  value.first = 0;
  if (constant.is_mapped()) native::release_pages(constant.data, value.bytes);
}

Buffer Plan::temporary(uint64_t bytes) {
  Value value;
  value.bytes = bytes;
  values_.push_back(value);
  Buffer temporary;
  temporary.id = int32_t(values_.size()) - 1;
  return temporary;
}

const void* Plan::pack(uint64_t bytes, const std::function<void(void*)>& make) {
  if (restored_ != nullptr) return restore(bytes);
  char* memory = packed_.take(bytes);
  make(memory);
  return packed_.add(memory, bytes);
}

/// Return the next piece of the blob, or a copy of it.
const void* Plan::restore(uint64_t bytes) {
  size_t number = packed_.pieces().size();
  if (number >= restored_->sizes.size() || restored_->sizes[number] != bytes)
    throw ipr::Error("the compiled subgraph does not belong to this network", IPR_STALE);
  const char* from = restored_->data + restored_offset_;
  restored_offset_ += rounded(bytes);
  if (restored_->in_place) return packed_.refer(from, bytes);
  char* memory = packed_.take(bytes);
  auto copy = [&](int64_t first, int64_t last) { std::memcpy(memory + first, from + first, size_t(last - first)); };
  if (bytes > 0) divide(int64_t(bytes), 2 * bytes, copy);
  return packed_.add(memory, bytes);
}

Plan::Place Plan::find(int id) const {
  uint64_t offset = 0;
  while (values_[size_t(id)].parent >= 0) {
    offset += values_[size_t(id)].offset;
    id = values_[size_t(id)].parent;
  }
  return {id, offset};
}

void Plan::join(int child, int parent, uint64_t offset) {
  values_[size_t(child)].parent = parent;
  values_[size_t(child)].offset = offset;
}

/// Place all that shares memory with `root` in the memory of a border tensor of the same size.
bool Plan::take_border(int root, int border) {
  if (is_border(root) || values_[size_t(root)].bytes != values_[size_t(border)].bytes) return false;
  join(root, border, 0);
  return true;
}

bool Plan::share(int result, int operand, uint64_t offset, bool inside) {
  buffer(operand);  // copies the constant if it is small
  Place a = find(operand), b = find(result);
  if (a.root == b.root) return false;
  if (inside) {
    bool fits = a.offset == 0 && values_[size_t(a.root)].bytes == values_[size_t(operand)].bytes;
    if (is_border(a.root) || !fits) return false;
    join(a.root, b.root, b.offset + offset);
    return true;
  }
  if (b.offset != 0 || values_[size_t(b.root)].bytes != values_[size_t(result)].bytes) return false;
  if (is_border(b.root)) return a.offset + offset == 0 && take_border(a.root, b.root);
  join(b.root, a.root, a.offset + offset);
  return true;
}

void Plan::add(Step step) {
  step.max_parts = std::max(1, std::min(step.max_parts, settings.threads));
  step.layer = node_->layer;
  step.fused = node_->fused;
  steps_.push_back(std::move(step));
}

void Plan::divide(int64_t count, uint64_t bytes, const Work& work) {
  int parts = pool_ == nullptr || bytes < kLeastDividedBytes ? 1 : int(std::min<int64_t>(settings.threads, count));
  if (parts < 2) return work(0, count);
  Divided divided{&work, count, std::max<int64_t>(1, count / (4 * parts))};
  native::Pool::Lease lease(pool_);
  lease.run(&Divided::part, &divided, parts);
}

void Plan::find_lifetimes() {
  for (Value& value : values_) value.first = value.last = -1;
  for (size_t n = 0; n < steps_.size(); ++n) {
    auto touch = [&](const Buffer& buffer) {
      if (!buffer) return;
      Value& root = values_[size_t(find(buffer.id).root)];
      if (root.first < 0) root.first = int(n);
      root.last = int(n);
    };
    for (const Buffer& buffer : steps_[n].in) touch(buffer);
    for (const Buffer& buffer : steps_[n].out) touch(buffer);
  }
}

void Plan::share_in_place() {
  for (size_t n = 0; n < steps_.size(); ++n) {
    const Step& step = steps_[n];
    if (step.in_place < 0 || !step.in[size_t(step.in_place)] || step.out.empty()) continue;
    Place from = find(step.in[size_t(step.in_place)].id), to = find(step.out[0].id);
    Value &source = values_[size_t(from.root)], &target = values_[size_t(to.root)];
    if (from.root == to.root || is_border(from.root) || from.offset != 0 || to.offset != 0) continue;
    if (source.last != int(n) || target.first != int(n) || target.bytes > source.bytes) continue;
    // Another operand in the same memory may be broadcast, or read again after elements were written.
    auto in_memory = [&](const Buffer& operand) { return operand && find(operand.id).root == from.root; };
    if (std::count_if(step.in.begin(), step.in.end(), in_memory) > 1) continue;
    if (is_border(to.root)) {
      int first = source.first;
      if (take_border(from.root, to.root)) target.first = first;
      continue;
    }
    source.last = target.last;
    join(to.root, from.root, 0);
  }
}

/// Find the inputs and outputs that may have the same memory.
void Plan::pair_borders() {
  const size_t inputs = graph.inputs.size();
  in_place_.assign(graph.outputs.size(), -1);
  for (size_t n = 0; n < steps_.size(); ++n) {
    const Step& step = steps_[n];
    if (step.in_place < 0 || !step.in[size_t(step.in_place)] || step.out.empty()) continue;
    const Place from = find(step.in[size_t(step.in_place)].id), to = find(step.out[0].id);
    const Value &source = values_[size_t(from.root)], &target = values_[size_t(to.root)];
    const bool crosses = source.base >= 2 && source.base < 2 + inputs && target.base >= 2 + inputs;
    if (!crosses || from.offset != 0 || to.offset != 0 || source.bytes != target.bytes) continue;
    if (source.last != int(n) || target.first != int(n)) continue;
    auto in_memory = [&](const Buffer& operand) { return operand && find(operand.id).root == from.root; };
    if (std::count_if(step.in.begin(), step.in.end(), in_memory) > 1) continue;
    in_place_[target.base - 2 - inputs] = int64_t(source.base) - 2;
  }
}

namespace {

/// Memory that is taken during a range of steps.
struct Taken {
  uint64_t place, end;
  int first, last;  // steps

  bool operator<(const Taken& other) const { return place < other.place; }
};

/// Finds the lowest free memory during a range of steps. Steps are divided into segments, so that a value that lives
/// for a few steps is compared only with values that live at about the same time, and with the few that live for long.
class FreeMemory {
 public:
  explicit FreeMemory(size_t steps) : segments_(steps / kSegment + 1) {}

  uint64_t take(uint64_t size, int first, int last) {
    uint64_t place = 0;
    auto avoid = [&](const auto& all) {
      for (const Taken& other : all) {  // in order of place
        if (other.last < first || other.first > last) continue;
        if (other.place >= place + size) break;
        place = std::max(place, other.end);
      }
    };
    is_long(first, last) ? avoid(all_) : avoid(near(first, last));
    add({place, place + size, first, last});
    return place;
  }

 private:
  static constexpr int kSegment = 64, kShort = 4;  // a short lifetime has at most `kShort` segments

  static size_t segment(int step) { return size_t(step / kSegment); }
  static bool is_long(int first, int last) { return segment(last) - segment(first) >= kShort; }

  void add(const Taken& taken) {
    all_.insert(taken);
    if (is_long(taken.first, taken.last)) {
      long_.insert(taken);
      return;
    }
    for (size_t n = segment(taken.first); n <= segment(taken.last); ++n) segments_[n].push_back(taken);
  }

  /// All memory that is taken in the segments of these steps; values of several segments occur several times.
  const std::vector<Taken>& near(int first, int last) {
    short_.clear();
    for (size_t n = segment(first); n <= segment(last); ++n)
      short_.insert(short_.end(), segments_[n].begin(), segments_[n].end());
    std::sort(short_.begin(), short_.end());
    near_.clear();
    std::merge(short_.begin(), short_.end(), long_.begin(), long_.end(), std::back_inserter(near_));
    return near_;
  }

  std::multiset<Taken> all_, long_;
  std::vector<std::vector<Taken>> segments_;
  std::vector<Taken> short_, near_;
};

}  // namespace

/// Place the largest values first, each at the lowest offset that is free during its lifetime.
void Plan::place_roots() {
  std::vector<int> roots;
  for (size_t n = 0; n < values_.size(); ++n)
    if (values_[n].parent < 0 && values_[n].base == 1 && values_[n].first >= 0) roots.push_back(int(n));
  std::stable_sort(roots.begin(), roots.end(),
                   [&](int a, int b) { return values_[size_t(a)].bytes > values_[size_t(b)].bytes; });
  FreeMemory memory(steps_.size());
  for (int root : roots) {
    Value& value = values_[size_t(root)];
    uint64_t size = std::max<uint64_t>(64, rounded(value.bytes));
    value.place = memory.take(size, value.first, value.last);
    arena_bytes_ = std::max(arena_bytes_, value.place + size);
  }
}

void Plan::fill_in(Buffer& buffer) {
  if (!buffer) return;
  Place place = find(buffer.id);
  const Value& root = values_[size_t(place.root)];
  buffer.base = root.base;
  buffer.offset = place.offset + (root.base < 2 ? root.place : 0);
}

std::vector<Step> Plan::finish() {
  find_lifetimes();
  share_in_place();
  pair_borders();
  place_roots();
  for (Step& step : steps_) {
    for (Buffer& buffer : step.in) fill_in(buffer);
    for (Buffer& buffer : step.out) fill_in(buffer);
  }
  return std::move(steps_);
}

}  // namespace cpuacc
