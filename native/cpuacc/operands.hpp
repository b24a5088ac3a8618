// The operands of a node, and a table of the nodes that read each tensor.
//
// Passes change operands in many places, and ask who reads a tensor in between. Operands record the tensors that gain
// readers, so that the table of a graph remains valid for all other tensors.

#ifndef CPUACC_OPERANDS_HPP
#define CPUACC_OPERANDS_HPP

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace cpuacc {

/// The nodes that read each tensor when the table was filled. A thread has one valid table, the one filled last.
class ReaderTable {
 public:
  ReaderTable() = default;
  ReaderTable(const ReaderTable&) {}  // a table is valid for one graph only
  ReaderTable& operator=(const ReaderTable&) { return *this; }
  ~ReaderTable() { forget(); }

  /// Fill the table for `tensors` tensors. `nodes` is the address of the nodes, and operands(n) are those of node n.
  template <class Of>
  void fill(size_t tensors, const void* nodes, size_t count, const Of& operands) {
    begins_.assign(tensors + 1, 0);
    for (size_t n = 0; n < count; ++n)
      for (int tensor : operands(n))
        if (tensor >= 0) ++begins_[size_t(tensor) + 1];
    for (size_t n = 0; n < tensors; ++n) begins_[n + 1] += begins_[n];
    readers_.resize(begins_.back());
    std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
    for (size_t n = 0; n < count; ++n)
      for (int tensor : operands(n))
        if (tensor >= 0) readers_[next[size_t(tensor)]++] = int(n);
    gained_.assign(tensors, 0);
    nodes_ = nodes;
    current() = this;
  }

  /// Return whether no node at `nodes` can read a tensor except those in the table.
  bool is_valid(int tensor, const void* nodes) const {
    return current() == this && nodes == nodes_ && size_t(tensor) < gained_.size() && !gained_[size_t(tensor)];
  }
  /// The nodes that read a tensor, in ascending order, once for each operand.
  const int* begin(int tensor) const { return readers_.data() + begins_[size_t(tensor)]; }
  const int* end(int tensor) const { return readers_.data() + begins_[size_t(tensor) + 1]; }

  /// Record that a tensor may have gained a reader.
  static void note(int tensor) {
    ReaderTable* table = current();
    if (table && tensor >= 0 && size_t(tensor) < table->gained_.size()) table->gained_[size_t(tensor)] = 1;
  }
  /// Record that any tensor may have gained readers.
  static void note_all() { current() = nullptr; }

 private:
  static ReaderTable*& current() {
    static thread_local ReaderTable* table = nullptr;
    return table;
  }
  void forget() {
    if (current() == this) current() = nullptr;
  }

  std::vector<size_t> begins_;
  std::vector<int> readers_;
  std::vector<char> gained_;
  const void* nodes_ = nullptr;
};

/// The operands of a node: a vector of tensors that notes readers in the table of the thread.
class Operands : public std::vector<int> {
  using Base = std::vector<int>;

 public:
  /// An element that can be assigned to.
  class Element {
   public:
    explicit Element(int& tensor) : tensor_(tensor) {}
    Element(const Element&) = default;
    operator int() const { return tensor_; }
    Element& operator=(int tensor) {
      ReaderTable::note(tensor);
      tensor_ = tensor;
      return *this;
    }
    Element& operator=(const Element& other) { return *this = int(other); }

   private:
    int& tensor_;
  };

  Operands() = default;
  Operands(std::initializer_list<int> tensors) : Base(tensors) { note(); }
  Operands(Base tensors) : Base(std::move(tensors)) { note(); }
  Operands(const Operands& other) : Base(other) { note(); }
  Operands(Operands&& other) noexcept : Base(std::move(other)) { note(); }
  Operands& operator=(const Operands& other) {
    Base::operator=(other);
    note();
    return *this;
  }
  Operands& operator=(Operands&& other) noexcept {
    Base::operator=(std::move(other));
    note();
    return *this;
  }

  using Base::operator[];
  using Base::back;
  using Base::begin;
  using Base::end;
  using Base::front;
  Element operator[](size_t position) { return Element(Base::operator[](position)); }
  Element front() { return Element(Base::front()); }
  Element back() { return Element(Base::back()); }
  void push_back(int tensor) {
    ReaderTable::note(tensor);
    Base::push_back(tensor);
  }

  /// Everything else that may change elements makes the table invalid.
  iterator begin() { return changed().begin(); }
  iterator end() { return changed().end(); }
  int* data() { return changed().data(); }
  const int* data() const { return Base::data(); }
  template <class... Arguments>
  auto insert(Arguments&&... arguments) {
    return changed().insert(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  void assign(Arguments&&... arguments) {
    changed().assign(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  void resize(Arguments&&... arguments) {
    changed().resize(std::forward<Arguments>(arguments)...);
  }
  void swap(Base& other) { changed().swap(other); }
  auto rbegin() { return changed().rbegin(); }
  auto rend() { return changed().rend(); }
  int& at(size_t position) { return changed().at(position); }
  void emplace_back(int tensor) { push_back(tensor); }

 private:
  void note() const {
    for (int tensor : *this) ReaderTable::note(tensor);
  }
  Base& changed() {
    ReaderTable::note_all();
    return *this;
  }
};

}  // namespace cpuacc

#endif  // CPUACC_OPERANDS_HPP
