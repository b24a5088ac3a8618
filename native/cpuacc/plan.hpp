// Lowers nodes to steps, and assigns memory to all values of a run.

#ifndef CPUACC_PLAN_HPP
#define CPUACC_PLAN_HPP

#include <vector>

#include "cpuacc/program.hpp"

namespace cpuacc {

class Plan : public Builder {
 public:
  /// `pool` helps to pack weights; nullptr if there is one thread.
  Plan(const Graph& graph, const Settings& settings, Packed& packed, const Restored* restored, native::Pool* pool);

  Buffer buffer(int tensor) override;
  Buffer temporary(uint64_t bytes) override;
  const void* pack(uint64_t bytes, const std::function<void(void*)>& make) override;
  bool share(int result, int operand, uint64_t offset, bool inside) override;
  void add(Step step) override;
  void divide(int64_t count, uint64_t bytes, const std::function<void(int64_t, int64_t)>& work) override;

  /// Attribute the following steps to a node.
  void begin(const Node& node) { node_ = &node; }
  /// Return the steps with final addresses. No other function may be called afterwards.
  std::vector<Step> finish();
  uint64_t arena_bytes() const { return arena_bytes_; }
  /// For each output, the input whose memory it may have, or -1: a step that can work in place reads the input last,
  /// and is the first one that writes the output.
  std::vector<int64_t> take_in_place() { return std::move(in_place_); }
  /// Return whether steps read constants in the memory of the host.
  bool reads_constants() const { return reads_constants_; }

 private:
  /// A value, or a part of another value: `offset` bytes after the beginning of `parent`.
  struct Value {
    uint64_t bytes = 0;
    int parent = -1;
    uint64_t offset = 0;
    uint32_t base = 1;  // see Buffer
    uint64_t place = 0;
    int first = -1, last = -1;  // lifetime in steps; for a root, of all values in its memory
  };
  struct Place {
    int root;
    uint64_t offset;
  };

  const void* restore(uint64_t bytes);
  void copy(Value& value, const Tensor& constant);
  Place find(int id) const;
  bool is_border(int root) const { return values_[size_t(root)].base != 1; }
  void join(int child, int parent, uint64_t offset);
  bool take_border(int root, int border);
  void find_lifetimes();
  void share_in_place();
  void pair_borders();
  void place_roots();
  void fill_in(Buffer& buffer);

  std::vector<Value> values_;
  std::vector<Step> steps_;
  Packed& packed_;
  const Restored* restored_;
  native::Pool* pool_;
  const Node* node_ = nullptr;
  uint64_t restored_offset_ = 0;
  uint64_t arena_bytes_ = 0;
  bool reads_constants_ = false;
  std::vector<int64_t> in_place_;
};

}  // namespace cpuacc

#endif  // CPUACC_PLAN_HPP
