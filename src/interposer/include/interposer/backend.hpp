// interposer/backend.hpp: interposer/backend.h for C++17. A backend is a class that derives from ipr::Backend:
//
//     class Doubler : public ipr::Backend {
//      public:
//       ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
//         if (layer.type_name() != "Addition") return ipr::no("only Addition", IPR_REASON_LAYER_TYPE);
//         if (layer.output(0).dtype() != IPR_DTYPE_FLOAT32) return ipr::no("only float32", IPR_REASON_DATA_TYPE);
//         return ipr::yes();
//       }
//       ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override {
//         return [count = layer.output(0).elements()](ipr::Tensors in, ipr::Tensors out) {
//           for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = ...;
//         };
//       }
//     };
//     IPR_BACKEND("Doubler", Doubler)
//
// A subgraph of a network is then compiled into a list of kernels, whose intermediate tensors share the workspace that
// the host provides. A backend that compiles subgraphs in its own way overrides `compile` instead of `kernel`.
//
// All exceptions are caught and become an ipr_error: ipr::Error with its status and the layer that it names,
// std::bad_alloc as IPR_OUT_OF_MEMORY, all others as IPR_FAILED. Views (Graph, Layer, TensorInfo ...) are small, refer
// to the tables of the host, and are valid as long as these: during the call.

#ifndef INTERPOSER_BACKEND_HPP
#define INTERPOSER_BACKEND_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "interposer/backend.h"

// Put before what contains static variables, so that two shared objects of a process never share them. The loader
// shares those of inline functions otherwise, even of objects that are opened with RTLD_LOCAL.
#if defined(__GNUC__) || defined(__clang__)
#define IPR_HIDDEN __attribute__((visibility("hidden")))
#else
#define IPR_HIDDEN
#endif

namespace ipr {

inline std::string_view view(const ipr_string& text) {
  return text.size == 0 ? std::string_view() : std::string_view(text.data, static_cast<size_t>(text.size));
}

inline ipr_string string(std::string_view text) { return ipr_string{text.data(), text.size()}; }

/// Thrown by functions of a backend to fail with a status, with the item that caused the failure.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int32_t status = IPR_FAILED, int32_t item_kind = IPR_ITEM_NONE,
                 int64_t item = -1)
      : std::runtime_error(message), status(status), item_kind(item_kind), item(item) {}

  int32_t status;
  int32_t item_kind;
  int64_t item;
};

/// Thrown by `execute` for an element of an operand that cannot be used, such as an index out of range. Nothing has
/// failed: the host reports it to the caller, and goes on using the executable.
class ValueError : public Error {
 public:
  /// `layer` is the index of the layer in the compiled graph, and `element` that of the element in row-major order.
  ValueError(const std::string& message, int64_t layer, int32_t operand, int64_t element, int64_t value, int64_t lowest,
             int64_t highest)
      : Error(message, IPR_INVALID_VALUE, IPR_ITEM_LAYER, layer), operand(operand), element(element), value(value),
        lowest(lowest), highest(highest) {}

  int32_t operand;
  int64_t element, value, lowest, highest;
};

/// A view of an array of the host: numbers or texts.
template <class T>
class Span {
 public:
  Span() = default;
  Span(T* items, uint64_t count) : items_(items), count_(static_cast<size_t>(count)) {}

  T* begin() const { return items_; }
  T* end() const { return items_ + count_; }
  T& operator[](size_t index) const { return items_[index]; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  T* items_ = nullptr;
  size_t count_ = 0;
};

/// Bytes of one element in memory; 0 for unknown data types.
constexpr uint64_t item_size(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_INT16:
    case IPR_DTYPE_UINT16:
    case IPR_DTYPE_FLOAT16:
    case IPR_DTYPE_BFLOAT16:
      return 2;
    case IPR_DTYPE_INT32:
    case IPR_DTYPE_UINT32:
    case IPR_DTYPE_FLOAT32:
      return 4;
    case IPR_DTYPE_INT64:
    case IPR_DTYPE_UINT64:
    case IPR_DTYPE_FLOAT64:
      return 8;
    default:
      return dtype >= IPR_DTYPE_BOOL && dtype <= IPR_DTYPE_FLOAT4_E2M1FN ? 1 : 0;
  }
}

/// The name of a data type for messages: "float32".
inline std::string_view dtype_name(int32_t dtype) {
  static constexpr std::string_view names[] = {
      "no type", "bool",           "int8",          "int16",           "int32",         "int64",           "uint8",
      "uint16",  "uint32",         "uint64",        "float16",         "float32",       "float64",         "bfloat16",
      "int4",    "uint4",          "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",   "float8_e5m2fnuz", "int2",
      "uint2",   "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",   "float4_e2m1fn",
  };
  return dtype >= 0 && dtype <= IPR_DTYPE_FLOAT4_E2M1FN ? names[dtype] : std::string_view("a type unknown here");
}

namespace detail {

/// Return whether elements of a data type may be accessed as T. float16 and bfloat16 are 16-bit integers; types of
/// fewer than 8 bits are bytes; `void`, `char` and `std::byte` are the bytes of any type.
template <class T>
constexpr bool is_element(int32_t dtype) {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_void_v<U> || std::is_same_v<U, char> || std::is_same_v<U, std::byte>)
    return true;
  else if constexpr (std::is_same_v<U, float>)
    return dtype == IPR_DTYPE_FLOAT32;
  else if constexpr (std::is_same_v<U, double>)
    return dtype == IPR_DTYPE_FLOAT64;
  else if constexpr (std::is_same_v<U, bool>)
    return dtype == IPR_DTYPE_BOOL;
  else if constexpr (std::is_same_v<U, int8_t>)
    return dtype == IPR_DTYPE_INT8 || dtype == IPR_DTYPE_INT4 || dtype == IPR_DTYPE_INT2;
  else if constexpr (std::is_same_v<U, uint8_t>)
    return item_size(dtype) == 1 && !is_element<int8_t>(dtype);
  else if constexpr (std::is_same_v<U, uint16_t>)
    return dtype == IPR_DTYPE_UINT16 || dtype == IPR_DTYPE_FLOAT16 || dtype == IPR_DTYPE_BFLOAT16;
  else if constexpr (std::is_same_v<U, int16_t>)
    return dtype == IPR_DTYPE_INT16;
  else if constexpr (std::is_same_v<U, int32_t>)
    return dtype == IPR_DTYPE_INT32;
  else if constexpr (std::is_same_v<U, uint32_t>)
    return dtype == IPR_DTYPE_UINT32;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8)
    return dtype == (std::is_signed_v<U> ? IPR_DTYPE_INT64 : IPR_DTYPE_UINT64);
  else
    return sizeof(U) == item_size(dtype);  // a type of the backend, such as a 16-bit float
}

template <class T>
void require_element(int32_t dtype) {
  if (!is_element<T>(dtype))
    throw Error("the elements are " + std::string(dtype_name(dtype)) + ", and are used as another type",
                IPR_INVALID_ARGUMENT);
}

}  // namespace detail

/// A tensor of the graph. If it is constant, it has data.
class TensorInfo {
 public:
  TensorInfo(const ipr_graph* graph, int64_t index)
      : graph_(graph), raw_(index < 0 ? nullptr : ipr_tensor_info_at(graph, static_cast<uint64_t>(index))),
        index_(index) {}

  /// A tensor outside of a graph: it is never constant, and its index is -1.
  explicit TensorInfo(const ipr_tensor_info* raw) : graph_(nullptr), raw_(raw), index_(-1) {}

  /// False for an absent optional operand, which has no other properties.
  explicit operator bool() const { return raw_ != nullptr; }

  const ipr_tensor_info& raw() const { return *raw_; }
  int64_t index() const { return index_; }
  std::string_view name() const { return view(raw_->name); }
  int32_t dtype() const { return raw_->dtype; }
  int32_t rank() const { return raw_->rank; }
  Span<const int64_t> shape() const { return {raw_->shape, static_cast<uint64_t>(raw_->rank)}; }
  /// The size of a dimension; negative axes count from the end.
  int64_t extent(int32_t axis) const { return raw_->shape[axis < 0 ? axis + raw_->rank : axis]; }
  bool is_concrete() const { return elements() >= 0; }
  /// The number of elements; -1 if a dimension is unknown.
  int64_t elements() const { return ipr_elements(raw_->shape, raw_->rank); }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * item_size(raw_->dtype); }

  bool is_quantized() const { return raw_->scale_count > 0; }
  Span<const double> scales() const { return {raw_->scales, raw_->scale_count}; }
  Span<const int64_t> zero_points() const { return {raw_->zero_points, raw_->scale_count}; }
  /// Scale and zero point of a tensor with one scale.
  double scale() const { return is_quantized() ? raw_->scales[0] : 1.0; }
  int64_t zero_point() const { return is_quantized() ? raw_->zero_points[0] : 0; }
  /// The axis of the scales, or -1.
  int32_t axis() const { return raw_->axis; }

  bool is_constant() const { return graph_ != nullptr && raw_->constant >= 0; }
  const ipr_constant& constant() const { return *ipr_constant_at(graph_, static_cast<uint64_t>(raw_->constant)); }
  /// The elements of a constant; nullptr if the tensor is not constant. Throws ipr::Error if T does not match their
  /// type.
  template <class T>
  const T* values() const {
    if (is_constant()) detail::require_element<T>(dtype());
    return is_constant() ? static_cast<const T*>(constant().data) : nullptr;
  }

 private:
  const ipr_graph* graph_;
  const ipr_tensor_info* raw_;
  int64_t index_;
};

/// Named values: the attributes of a layer, or the options of the user.
class Attributes {
 public:
  Attributes(const ipr_attribute* items, uint64_t count, uint64_t stride)
      : items_(items), count_(count), stride_(stride) {}

  const ipr_attribute* find(std::string_view name) const {
    for (uint64_t n = 0; n < count_; ++n) {
      auto* one = reinterpret_cast<const ipr_attribute*>(reinterpret_cast<const char*>(items_) + n * stride_);
      if (view(one->name) == name) return one;
    }
    return nullptr;
  }

  /// The value of an attribute, or `absent` if the attribute is absent or has no value.
  int64_t integer(std::string_view name, int64_t absent = 0) const {
    auto* found = given(name);
    return found ? found->i : absent;
  }
  bool flag(std::string_view name, bool absent = false) const { return integer(name, absent) != 0; }
  double number(std::string_view name, double absent = 0) const {
    auto* found = given(name);
    if (!found) return absent;
    return found->kind == IPR_KIND_FLOAT ? found->f : static_cast<double>(found->i);
  }
  /// A text, or the name of a choice ("NHWC").
  std::string_view text(std::string_view name, std::string_view absent = {}) const {
    auto* found = given(name);
    return found ? view(found->text) : absent;
  }
  Span<const int64_t> integers(std::string_view name) const {
    auto* found = given(name);
    return found ? Span<const int64_t>(found->ints, found->count) : Span<const int64_t>();
  }
  Span<const double> numbers(std::string_view name) const {
    auto* found = given(name);
    return found ? Span<const double>(found->floats, found->count) : Span<const double>();
  }

 private:
  const ipr_attribute* given(std::string_view name) const {
    auto* found = find(name);
    return found && found->kind != IPR_KIND_NONE ? found : nullptr;
  }

  const ipr_attribute* items_;
  uint64_t count_;
  uint64_t stride_;
};

/// The options that the user set. Options that were not set are absent, and the default of the backend applies.
class Options : public Attributes {
 public:
  explicit Options(const ipr_options* raw)
      : Attributes(raw ? raw->items : nullptr, raw ? raw->count : 0, raw ? raw->stride : 0) {}
};

/// One operation.
class Layer : public Attributes {
 public:
  Layer(const ipr_graph* graph, uint64_t index) : Layer(graph, ipr_layer_at(graph, index), index) {}

  const ipr_layer& raw() const { return *raw_; }
  int64_t index() const { return index_; }
  /// The name of the operator: "Convolution2d".
  std::string_view type_name() const { return view(raw_->type); }
  /// The same as `type_name`.
  std::string_view type() const { return type_name(); }
  const Attributes& attributes() const { return *this; }
  std::string_view name() const { return view(raw_->name); }
  size_t input_count() const { return static_cast<size_t>(raw_->input_count); }
  size_t output_count() const { return static_cast<size_t>(raw_->output_count); }
  Span<const int64_t> inputs() const { return {raw_->inputs, raw_->input_count}; }
  Span<const int64_t> outputs() const { return {raw_->outputs, raw_->output_count}; }
  /// An operand by position; false if absent.
  TensorInfo input(size_t position) const { return {graph_, position < input_count() ? raw_->inputs[position] : -1}; }
  TensorInfo output(size_t position) const { return {graph_, raw_->outputs[position]}; }

  /// An exception to throw: this layer cannot be run after all. The host offers it to other backends.
  Error unsupported(const std::string& why) const { return Error(why, IPR_UNSUPPORTED, IPR_ITEM_LAYER, index_); }

 private:
  Layer(const ipr_graph* graph, const ipr_layer* raw, uint64_t index)
      : Attributes(raw->attributes, raw->attribute_count, graph->attribute_stride), graph_(graph), raw_(raw),
        index_(static_cast<int64_t>(index)) {}

  const ipr_graph* graph_;
  const ipr_layer* raw_;
  int64_t index_;
};

/// Some layers of a network in topological order.
class Graph {
 public:
  explicit Graph(const ipr_graph* raw) : raw_(raw) {}

  const ipr_graph& raw() const { return *raw_; }
  std::string_view name() const { return view(raw_->name); }
  size_t size() const { return static_cast<size_t>(raw_->layer_count); }
  Layer layer(size_t index) const { return {raw_, index}; }
  size_t tensor_count() const { return static_cast<size_t>(raw_->tensor_count); }
  TensorInfo tensor(int64_t index) const { return {raw_, index}; }
  Span<const int64_t> inputs() const { return {raw_->inputs, raw_->input_count}; }
  Span<const int64_t> outputs() const { return {raw_->outputs, raw_->output_count}; }

  class Iterator {
   public:
    Iterator(const ipr_graph* raw, size_t index) : raw_(raw), index_(index) {}
    Layer operator*() const { return {raw_, index_}; }
    Iterator& operator++() { return ++index_, *this; }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const ipr_graph* raw_;
    size_t index_;
  };
  Iterator begin() const { return {raw_, 0}; }
  Iterator end() const { return {raw_, size()}; }

 private:
  const ipr_graph* raw_;
};

/// The answer for one layer: ipr::yes(), ipr::no("..."), ipr::preferred(), ipr::together(7).
struct Verdict {
  int32_t verdict = IPR_NO;
  int32_t reason_code = IPR_REASON_NONE;
  std::string reason;
  int64_t group = 0;
  double seconds = 0;
  double bytes = 0;
};

inline Verdict yes() { return {IPR_YES, IPR_REASON_NONE, {}, 0, 0, 0}; }
inline Verdict preferred() { return {IPR_PREFERRED, IPR_REASON_NONE, {}, 0, 0, 0}; }
inline Verdict together(int64_t group) { return {IPR_GROUP, IPR_REASON_NONE, {}, group, 0, 0}; }
inline Verdict no(std::string reason, int32_t code = IPR_REASON_OTHER) {
  return {IPR_NO, code, std::move(reason), 0, 0, 0};
}

/// A tensor with its data during a run.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, const int64_t* shape, int32_t rank, int32_t dtype)
      : data_(data), shape_(shape), rank_(rank), dtype_(dtype) {}
  explicit Tensor(const ipr_tensor& raw) : Tensor(static_cast<char*>(raw.data) + raw.byte_offset, raw) {}

  /// False for an absent optional operand.
  explicit operator bool() const { return shape_ != nullptr || data_ != nullptr; }
  /// The elements in row-major order. Throws ipr::Error if T does not match their type; `void` matches all types.
  template <class T>
  T* data() const {
    detail::require_element<T>(dtype_);
    return static_cast<T*>(data_);
  }
  int32_t dtype() const { return dtype_; }
  Span<const int64_t> shape() const { return {shape_, static_cast<uint64_t>(rank_)}; }
  int64_t elements() const { return ipr_elements(shape_, rank_); }

 private:
  Tensor(void* data, const ipr_tensor& raw) : Tensor(data, raw.shape, raw.ndim, raw.dtype) {}

  void* data_ = nullptr;
  const int64_t* shape_ = nullptr;
  int32_t rank_ = 0;
  int32_t dtype_ = 0;
};

using Tensors = Span<const Tensor>;

/// Computes a layer, given its operands (including constants) and its results by position.
using Kernel = std::function<void(Tensors inputs, Tensors outputs)>;

/// One run of an executable.
class Run {
 public:
  explicit Run(const ipr_run* raw) : raw_(raw) {}

  const ipr_run& raw() const { return *raw_; }
  size_t input_count() const { return static_cast<size_t>(raw_->input_count); }
  size_t output_count() const { return static_cast<size_t>(raw_->output_count); }
  Tensor input(size_t index) const { return Tensor(*ipr_input_at(raw_, index)); }
  Tensor output(size_t index) const { return Tensor(*ipr_output_at(raw_, index)); }
  /// The number of an input in a pool of the backend (`Pool::create_tensor`); 0 if it is in other memory.
  uint64_t input_handle(size_t index) const { return handle(*ipr_input_at(raw_, index)); }
  /// The same for an output.
  uint64_t output_handle(size_t index) const { return handle(*ipr_output_at(raw_, index)); }
  char* workspace() const { return static_cast<char*>(raw_->workspace); }
  bool cancelled() const {
    return raw_->cancel != nullptr && *static_cast<const volatile uint32_t*>(raw_->cancel) != 0;
  }

  /// Set the shape of an output that had unknown dimensions.
  Tensor resized(size_t index, const std::vector<int64_t>& shape) const {
    int32_t status = raw_->resize ? raw_->resize(raw_->host, index, shape.data(), shape.size()) : IPR_FAILED;
    if (status != IPR_OK) throw Error("the host gave no memory for an output", status, IPR_ITEM_OUTPUT, int64_t(index));
    return output(index);
  }

 private:
  static uint64_t handle(const ipr_tensor& raw) {
    return raw.memory_kind == IPR_MEMORY_PRIVATE ? raw.native_handle : 0;
  }

  const ipr_run* raw_;
};

/// A compiled subgraph as bytes ("ipr.blobs/1").
struct Blob {
  std::vector<unsigned char> data;
  uint64_t flags = 0;  // IPR_BLOB_...
};

/// A compiled subgraph.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual void execute(const Run& run) = 0;

  /// The subgraph as bytes, for backends with `has_blobs`.
  virtual Blob save() const { throw Error("this part cannot be saved", IPR_UNSUPPORTED); }

  uint64_t flags = 0;  // IPR_EXECUTABLE_...
  uint64_t workspace_size = 0;
  uint64_t workspace_alignment = 64;
  double seconds = 0;
  uint64_t memory = 0;
  /// For each output, the index of the input whose memory it may have, or -1; empty if there are none.
  std::vector<int64_t> in_place;
};

/// A list of kernels. Intermediate tensors are in the workspace, and share memory if their lifetimes do not overlap. It
/// has no state between runs, so that several threads can run it if the kernels allow that.
class KernelList : public Executable {
 public:
  /// `kernel` creates the kernel of one layer.
  KernelList(const Graph& graph, const std::function<Kernel(const Layer&)>& kernel) {
    std::vector<Place> places = border(graph);
    std::vector<size_t> last = last_uses(graph);
    std::vector<Block> live;
    for (Layer layer : graph) {
      size_t now = static_cast<size_t>(layer.index());
      for (int64_t index : layer.outputs()) place(graph, index, now, last[size_t(index)], places, live);
      steps_.push_back(Step{kernel(layer), list(layer.inputs()), list(layer.outputs())});
    }
    for (size_t index = 0; index < graph.tensor_count(); ++index) keep_shape(graph, index, places[index]);
    places_ = std::move(places);
  }

  void execute(const Run& run) override {
    std::vector<Tensor> tensors, inputs, outputs;
    tensors.reserve(places_.size());
    for (size_t index = 0; index < places_.size(); ++index) tensors.push_back(at(run, index));
    for (const Step& step : steps_) {
      gather(tensors, step.inputs, inputs);
      gather(tensors, step.outputs, outputs);
      step.kernel(Tensors(inputs.data(), inputs.size()), Tensors(outputs.data(), outputs.size()));
    }
  }

 private:
  enum class Where { workspace, input, output, constant };
  struct Place {
    Where where = Where::workspace;
    uint64_t offset = 0;  // in the workspace; or the position of the input or output
    const void* data = nullptr;
    std::vector<int64_t> shape;
    int32_t dtype = 0;
  };
  struct Block {
    uint64_t begin, end;
    size_t last;
  };
  struct Step {
    Kernel kernel;
    std::vector<int64_t> inputs, outputs;
  };

  static std::vector<Place> border(const Graph& graph) {
    std::vector<Place> places(graph.tensor_count());
    for (size_t n = 0; n < graph.inputs().size(); ++n) {
      places[size_t(graph.inputs()[n])].where = Where::input;
      places[size_t(graph.inputs()[n])].offset = n;
    }
    for (size_t n = 0; n < graph.outputs().size(); ++n) {
      places[size_t(graph.outputs()[n])].where = Where::output;
      places[size_t(graph.outputs()[n])].offset = n;
    }
    return places;
  }

  static std::vector<size_t> last_uses(const Graph& graph) {
    std::vector<size_t> last(graph.tensor_count(), 0);
    for (Layer layer : graph) {
      for (int64_t index : layer.outputs()) last[size_t(index)] = size_t(layer.index());
      for (int64_t index : layer.inputs())
        if (index >= 0) last[size_t(index)] = size_t(layer.index());
    }
    return last;
  }

  /// The lowest gap in the workspace that is large enough for a result, among the tensors that are alive.
  void place(const Graph& graph, int64_t index, size_t now, size_t last, std::vector<Place>& places,
             std::vector<Block>& live) {
    Place& own = places[size_t(index)];
    if (own.where != Where::workspace) return;
    TensorInfo info = graph.tensor(index);
    if (!info.is_concrete()) throw Error("the shape of " + std::string(info.name()) + " is not known", IPR_UNSUPPORTED);
    uint64_t size = std::max<uint64_t>(64, (info.bytes() + 63) / 64 * 64);
    live.erase(std::remove_if(live.begin(), live.end(), [&](const Block& b) { return b.last < now; }), live.end());
    std::sort(live.begin(), live.end(), [](const Block& a, const Block& b) { return a.begin < b.begin; });
    uint64_t begin = 0;
    for (const Block& block : live) {
      if (block.begin >= begin + size) break;
      begin = std::max(begin, block.end);
    }
    live.push_back(Block{begin, begin + size, last});
    own.offset = begin;
    workspace_size = std::max(workspace_size, begin + size);
  }

  static void keep_shape(const Graph& graph, size_t index, Place& place) {
    TensorInfo info = graph.tensor(int64_t(index));
    place.shape.assign(info.shape().begin(), info.shape().end());
    place.dtype = info.dtype();
    if (info.is_constant()) {
      place.where = Where::constant;
      place.data = info.constant().data;
    }
  }

  static std::vector<int64_t> list(Span<const int64_t> indices) { return {indices.begin(), indices.end()}; }

  Tensor at(const Run& run, size_t index) const {
    const Place& place = places_[index];
    if (place.where == Where::input) return run.input(place.offset);
    if (place.where == Where::output) return run.output(place.offset);
    void* data = place.where == Where::constant ? const_cast<void*>(place.data) : run.workspace() + place.offset;
    // the shape of a scalar is empty, and must differ from that of an absent operand
    const int64_t* shape = place.shape.empty() ? &no_extents() : place.shape.data();
    return Tensor(data, shape, static_cast<int32_t>(place.shape.size()), place.dtype);
  }

  IPR_HIDDEN static const int64_t& no_extents() {
    static const int64_t none = 0;
    return none;
  }

  static void gather(const std::vector<Tensor>& tensors, const std::vector<int64_t>& indices,
                     std::vector<Tensor>& out) {
    out.clear();
    for (int64_t index : indices) out.push_back(index < 0 ? Tensor() : tensors[size_t(index)]);
  }

  std::vector<Step> steps_;
  std::vector<Place> places_;
};

/// An option or a named capability; its kind follows from the value.
struct Property {
  Property(std::string name, std::string doc, bool value, uint32_t scope = 0)
      : name(std::move(name)), doc(std::move(doc)), kind(IPR_KIND_BOOL), scope(scope), i(value) {}
  Property(std::string name, std::string doc, int value, uint32_t scope = 0)
      : Property(std::move(name), std::move(doc), int64_t(value), scope) {}
  Property(std::string name, std::string doc, int64_t value, uint32_t scope = 0)
      : name(std::move(name)), doc(std::move(doc)), kind(IPR_KIND_INT), scope(scope), i(value) {}
  Property(std::string name, std::string doc, double value, uint32_t scope = 0)
      : name(std::move(name)), doc(std::move(doc)), kind(IPR_KIND_FLOAT), scope(scope), f(value) {}
  Property(std::string name, std::string doc, const char* value, uint32_t scope = 0)
      : name(std::move(name)), doc(std::move(doc)), kind(IPR_KIND_TEXT), scope(scope), text(value) {}

  std::string name, doc;
  int32_t kind;
  uint32_t scope;  // of an option: IPR_SCOPE_INIT, IPR_SCOPE_MODEL, or both
  int64_t i = 0;
  double f = 0;
  std::string text;
};

/// The description of a backend.
struct Info {
  std::string vendor, name, version, description;
  uint64_t capabilities = 0;  // IPR_CAP_...
  uint64_t alignment = 0;
  std::vector<Property> options;
  std::vector<Property> properties;
};

/// Layers that become one unit, or are replaced by a graph that lives as long as `keep`.
struct Substitution {
  std::vector<int64_t> layers;
  const ipr_graph* replacement = nullptr;
  std::vector<int64_t> inputs, outputs;
  std::shared_ptr<void> keep;
};

/// Layers that cannot be run after all.
struct Failure {
  std::vector<int64_t> layers;
  std::string reason;
  int32_t reason_code = IPR_REASON_OTHER;
};

struct Answer {
  std::vector<Substitution> substitutions;
  std::vector<Failure> failures;
};

/// The services of the host; valid from `init` until `shutdown` returns.
class Host {
 public:
  Host() = default;
  explicit Host(const ipr_host* raw) : raw_(raw) {}

  const ipr_host* raw() const { return raw_; }
  uint32_t threads() const { return raw_ ? raw_->thread_count : 1; }
  std::string_view cache_dir() const { return raw_ ? view(raw_->cache_dir) : std::string_view(); }
  std::string_view library_path() const { return raw_ ? view(raw_->library_path) : std::string_view(); }
  bool checking() const { return raw_ && (raw_->flags & IPR_HOST_CHECKING); }
  /// Return whether the bytes that `restore` gets stay valid for executables that declare IPR_EXECUTABLE_READS_BLOB.
  bool lasting_blobs() const { return raw_ && (raw_->flags & IPR_HOST_LASTING_BLOBS); }
  /// Log a text. Callable from any thread; never waits. `level` is IPR_LOG_...
  void log(int32_t level, const std::string& line) const { ipr_log(raw_, level, line.c_str()); }

 private:
  const ipr_host* raw_ = nullptr;
};

/// Receives notifications on networks ("ipr.context/1"). To refuse an operation, throw ipr::Error with IPR_REFUSED.
class Context {
 public:
  virtual ~Context() = default;
  virtual void before_load(int64_t) {}
  virtual void after_load(int64_t) {}
  virtual void before_unload(int64_t) {}
  virtual void after_unload(int64_t) {}
};

/// A number that a backend counts or measures ("ipr.profiling/1").
struct Counter {
  std::string name, category, units, description, device;
  double multiplier = 1;
  uint32_t kind = IPR_COUNTER_EVENT;  // IPR_COUNTER_...
};

/// What a backend measures while a host records ("ipr.profiling/1"). Any thread calls these functions, also while
/// others execute.
class Profiler {
 public:
  virtual ~Profiler() = default;
  /// The counters. The result is the same as long as the library is open.
  virtual std::vector<Counter> counters() { return {}; }
  /// Begin or end to measure.
  virtual void enable(bool) {}
  /// Move at most `capacity` intervals to the end of `out`, the oldest first. Return how many were dropped since the
  /// last call. Their texts are valid as long as the library is open.
  virtual uint64_t collect(size_t /*capacity*/, std::vector<ipr_interval>& /*out*/) { return 0; }
  /// The present values of the counters, in their order.
  virtual std::vector<double> read() { return {}; }
  /// Capture these counters, as indices of `counters`, about every `period_us` microseconds, and no others. A period of
  /// 0 and no indices end it. Throw ipr::Error if they cannot be captured together.
  virtual void select(uint64_t /*period_us*/, const std::vector<uint64_t>& /*indices*/) {}
  /// Read the clocks of a device and of the host.
  virtual void correlate(std::string_view device, ipr_clock&) {
    throw Error("there is no device '" + std::string(device) + "'", IPR_INVALID_ARGUMENT);
  }
};

/// A kind of memory of the backend ("ipr.handles/1").
struct Factory {
  std::string id;             // "Vendor/Backend/Name"
  uint64_t flags = 0;         // IPR_FACTORY_...: operations on its tensors
  uint32_t import_kinds = 0;  // IPR_MEMORY_...: foreign kinds of memory that its tensors can use
  uint32_t export_kinds = 0;  // IPR_MEMORY_...: kinds of memory as which others can use its tensors
};

/// The kinds of memory of a backend, and the ids of those that its executables accept, best first.
struct Factories {
  std::vector<Factory> factories;
  std::vector<std::string> preferences;
};

/// Memory of a tensor that others may use: `data` for IPR_MEMORY_HOST, the handle and the offset for other kinds.
struct Exported {
  void* data = nullptr;
  uint64_t native_handle = 0;
  uint64_t byte_offset = 0;
};

/// The memory of one run of a network at a time ("ipr.handles/1"), used by one thread at a time. The backend identifies
/// its tensors by numbers other than 0; in a run, `Run::input_handle` and `Run::output_handle` return them.
class Pool {
 public:
  virtual ~Pool() = default;
  /// Allocate the planned memory before the first run; free it after the last one.
  virtual void acquire() = 0;
  virtual void give_back() = 0;
  /// Create a tensor of the kind with that index in `Factories`. If it is `alone`, it is not in the memory plan;
  /// `allocate` gives it memory of its own, as for constants.
  virtual uint64_t create_tensor(size_t factory, const TensorInfo& info, bool alone) = 0;
  /// Create a tensor in a part of another one, beginning at `origin`, one number for each axis.
  virtual uint64_t create_sub_tensor(uint64_t, Span<const int64_t>, const TensorInfo&) {
    throw Error("pieces of tensors cannot be tensors", IPR_UNSUPPORTED);
  }
  virtual void destroy_tensor(uint64_t tensor) = 0;
  /// Called in execution order, once each: the lifetime of the tensor begins ...
  virtual void manage(uint64_t tensor) = 0;
  /// ... and ends; or, without `manage`, the tensor gets memory of its own.
  virtual void allocate(uint64_t tensor) = 0;
  /// Make the tensor accessible to the host until `unmap`, contiguous and row-major; the host may write to it.
  virtual void* map(uint64_t) { throw Error("the memory cannot be mapped", IPR_UNSUPPORTED); }
  virtual void unmap(uint64_t) {}
  /// Copy a tensor of the host to a tensor.
  virtual void upload(const Tensor&, uint64_t) { throw Error("the device does not copy", IPR_UNSUPPORTED); }
  /// Copy a tensor to memory of the host.
  virtual void download(uint64_t, const Tensor&) { throw Error("the device does not copy", IPR_UNSUPPORTED); }
  /// Let the tensor use foreign memory until `forget_memory`. After IPR_UNSUPPORTED, the host copies instead.
  virtual void import_memory(uint64_t, const ipr_tensor&) { throw Error("nothing is imported", IPR_UNSUPPORTED); }
  virtual void forget_memory(uint64_t) {}
  /// Return the memory of the tensor as one of the kinds that its factory names.
  virtual Exported export_memory(uint64_t, uint32_t) { throw Error("nothing is exported", IPR_UNSUPPORTED); }
};

/// The base class of backends. Override `support`, and `kernel` or `compile`; the other functions are optional.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual Info info() const { return {}; }
  /// Throw ipr::Error with IPR_UNAVAILABLE and a reason if the device or driver is missing.
  virtual void init(const Host&, const Options&) {}
  virtual void shutdown() {}

  virtual Verdict support(const Layer&, const Options&) { return no("support is not implemented"); }
  /// Verdicts for all layers, for backends whose verdicts depend on neighbouring layers.
  virtual std::vector<Verdict> query(const Graph& graph, const Options& options) {
    std::vector<Verdict> found;
    for (Layer layer : graph) found.push_back(support(layer, options));
    return found;
  }

  virtual Kernel kernel(const Layer& layer, const Options&) { throw layer.unsupported("there is no kernel for it"); }
  virtual std::unique_ptr<Executable> compile(const Graph& graph, const Options& options) {
    return std::make_unique<KernelList>(graph, [&](const Layer& layer) { return kernel(layer, options); });
  }

  /// Return whether to call `optimize`; if not, each subgraph becomes one unit.
  virtual bool optimizes() const { return false; }
  virtual Answer optimize(const Graph&, const Options&) { return {}; }

  virtual bool has_contexts() const { return false; }
  virtual std::unique_ptr<Context> create_context(const Options&) { return std::make_unique<Context>(); }

  virtual bool has_blobs() const { return false; }
  virtual std::string fingerprint(const Options&) { return {}; }
  virtual Blob save(const Executable& executable) { return executable.save(); }
  /// Throw ipr::Error with IPR_STALE or IPR_CORRUPT if a blob cannot be restored.
  virtual void check(const void*, uint64_t, const Options&) {}
  /// `graph` is nullptr if the host no longer has it.
  virtual std::unique_ptr<Executable> restore(const void*, uint64_t, const Graph*, const Options&) {
    throw Error("blobs cannot be restored", IPR_UNSUPPORTED);
  }

  /// Return whether executables can hold their memory in that of an allocator: `compile_in` and `restore_in`, which are
  /// `compile` and `restore` with the allocator. It is valid until the executable is destroyed.
  virtual bool takes_allocators() const { return false; }
  virtual std::unique_ptr<Executable> compile_in(const ipr_allocator&, const Graph&, const Options&) {
    throw Error("executables do not use allocators", IPR_UNSUPPORTED);
  }
  /// The executable must not read the bytes after the call.
  virtual std::unique_ptr<Executable> restore_in(const ipr_allocator&, const void*, uint64_t, const Graph*,
                                                 const Options&) {
    throw Error("blobs cannot be restored", IPR_UNSUPPORTED);
  }

  /// What the backend measures, or nullptr; the same object as long as the library is open.
  virtual Profiler* profiler() { return nullptr; }

  /// Return whether executables may write outputs to the memory of inputs: `Executable::in_place`.
  virtual bool works_in_place() const { return false; }

  /// Return whether the backend has memory of its own: `describe` and `create_pool`.
  virtual bool has_handles() const { return false; }
  /// The kinds of memory. The result is the same as long as the library is open.
  virtual Factories describe(const Options&) { return {}; }
  virtual std::unique_ptr<Pool> create_pool(const Options&) {
    throw Error("there is no memory of its own", IPR_UNSUPPORTED);
  }

  /// The table of another extension by its name.
  virtual const void* extension(std::string_view) { return nullptr; }

  Host host;  // set before `init`
};

// ---- The table of functions of a backend class -----------------------------------------------------------------------

namespace detail {

inline int32_t failed(ipr_error* error, const Error& thrown) {
  return ipr_fail(error, thrown.status, thrown.item_kind, thrown.item, thrown.what());
}

template <class Function>
int32_t guarded(ipr_error* error, Function&& function) noexcept {
  try {
    function();
    return IPR_OK;
  } catch (const ValueError& thrown) {
    return ipr_fail_value(error, thrown.item, thrown.operand, thrown.element, thrown.value, thrown.lowest,
                          thrown.highest, thrown.what());
  } catch (const Error& thrown) {
    return failed(error, thrown);
  } catch (const std::bad_alloc&) {
    return ipr_fail(error, IPR_OUT_OF_MEMORY, IPR_ITEM_NONE, -1, "no memory is left");
  } catch (const std::exception& thrown) {
    return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, thrown.what());
  } catch (...) {
    return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "something that is no std::exception was thrown");
  }
}

template <class T>
void destroy(void* owner) {
  delete static_cast<T*>(owner);
}

/// Let an out struct own an object.
template <class Out, class T>
T* give(Out* out, std::unique_ptr<T> owned) {
  out->owner = owned.get();
  out->release = &destroy<T>;
  return owned.release();
}

struct InfoTexts {
  Info info;
  std::vector<ipr_property> options, properties;
};

struct CounterTexts {
  std::vector<Counter> counters;
  std::vector<ipr_counter> raw;
};

struct ReportTexts {
  std::vector<Verdict> verdicts;
  std::vector<ipr_verdict> raw;
};

struct AnswerTexts {
  Answer answer;
  std::vector<ipr_substitution> substitutions;
  std::vector<ipr_failure> failures;
};

struct FactoryTexts {
  Factories given;
  std::vector<ipr_factory> factories;
  std::vector<ipr_string> preferences;
};

inline std::vector<ipr_property> raw_properties(const std::vector<Property>& given) {
  std::vector<ipr_property> raw;
  for (const Property& one : given)
    raw.push_back({string(one.name), string(one.doc), one.kind, one.scope, one.i, one.f, string(one.text)});
  return raw;
}

inline void give_executable(ipr_executable* out, std::unique_ptr<Executable> made) {
  if (!made) throw Error("nothing was made");
  out->flags = made->flags;
  out->workspace_size = made->workspace_size;
  out->workspace_alignment = made->workspace_alignment;
  out->seconds = made->seconds;
  out->memory = made->memory;
  out->handle = made.get();
  give(out, std::move(made));
}

/// The table of one backend; its functions find the backend by `self`.
class IPR_HIDDEN Bridge {
 public:
  explicit Bridge(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
    table_ = {IPR_MAGIC,      sizeof(ipr_backend),
              this,           &init,
              &shutdown,      &get_info,
              &query_support, backend_->optimizes() ? &optimize : nullptr,
              &compile,       &execute,
              &get_extension};
  }

  ipr_backend* table() { return &table_; }

 private:
  static Bridge& of(void* self) { return *static_cast<Bridge*>(self); }
  static Backend& at(void* self) { return *of(self).backend_; }

  static int32_t init(void* self, const ipr_host* host, const ipr_options* options, ipr_error* error) {
    return guarded(error, [&] {
      at(self).host = Host(host);
      at(self).init(at(self).host, Options(options));
    });
  }

  static void shutdown(void* self) {
    guarded(nullptr, [&] { at(self).shutdown(); });
    at(self).host = Host();
  }

  static int32_t get_info(void* self, ipr_info* out, ipr_error* error) {
    return guarded(error, [&] {
      auto& texts = of(self).infos_.emplace_back();
      texts.info = at(self).info();
      texts.options = raw_properties(texts.info.options);
      texts.properties = raw_properties(texts.info.properties);
      out->vendor = string(texts.info.vendor);
      out->name = string(texts.info.name);
      out->version = string(texts.info.version);
      out->description = string(texts.info.description);
      out->capabilities = texts.info.capabilities;
      out->alignment = texts.info.alignment;
      out->option_count = texts.options.size();
      out->option_stride = sizeof(ipr_property);
      out->options = texts.options.data();
      out->property_count = texts.properties.size();
      out->property_stride = sizeof(ipr_property);
      out->properties = texts.properties.data();
    });
  }

  static int32_t query_support(void* self, const ipr_graph* graph, const ipr_options* options, ipr_report* out,
                               ipr_error* error) {
    return guarded(error, [&] {
      auto texts = std::make_unique<ReportTexts>();
      texts->verdicts = at(self).query(Graph(graph), Options(options));
      for (const Verdict& one : texts->verdicts)
        texts->raw.push_back({one.verdict, one.reason_code, one.group, string(one.reason), one.seconds, one.bytes});
      out->verdict_count = texts->raw.size();
      out->verdict_stride = sizeof(ipr_verdict);
      out->verdicts = texts->raw.data();
      give(out, std::move(texts));
    });
  }

  static int32_t optimize(void* self, const ipr_graph* graph, const ipr_options* options, ipr_answer* out,
                          ipr_error* error) {
    return guarded(error, [&] {
      auto texts = std::make_unique<AnswerTexts>();
      texts->answer = at(self).optimize(Graph(graph), Options(options));
      for (const Substitution& one : texts->answer.substitutions)
        texts->substitutions.push_back({one.layers.data(), one.layers.size(), one.replacement, one.inputs.data(),
                                        one.inputs.size(), one.outputs.data(), one.outputs.size()});
      for (const Failure& one : texts->answer.failures)
        texts->failures.push_back({one.layers.data(), one.layers.size(), one.reason_code, 0, string(one.reason)});
      out->substitution_count = texts->substitutions.size();
      out->substitution_stride = sizeof(ipr_substitution);
      out->substitutions = texts->substitutions.data();
      out->failure_count = texts->failures.size();
      out->failure_stride = sizeof(ipr_failure);
      out->failures = texts->failures.data();
      give(out, std::move(texts));
    });
  }

  static int32_t compile(void* self, const ipr_graph* graph, const ipr_options* options, ipr_executable* out,
                         ipr_error* error) {
    return guarded(error, [&] { give_executable(out, at(self).compile(Graph(graph), Options(options))); });
  }

  static int32_t execute(void*, void* executable, const ipr_run* run, ipr_error* error) {
    return guarded(error, [&] { static_cast<Executable*>(executable)->execute(Run(run)); });
  }

  static const void* get_extension(void* self, const char* name) {
    const void* found = nullptr;
    guarded(nullptr, [&] {
      std::string_view wanted(name);
      if (wanted == IPR_EXT_CONTEXT && at(self).has_contexts())
        found = &contexts();
      else if (wanted == IPR_EXT_BLOBS && at(self).has_blobs())
        found = &blobs();
      else if (wanted == IPR_EXT_HANDLES && at(self).has_handles())
        found = &handles();
      else if (wanted == IPR_EXT_EXECUTABLE_MEMORY && at(self).takes_allocators())
        found = &executable_memory();
      else if (wanted == IPR_EXT_IN_PLACE && at(self).works_in_place())
        found = &in_place();
      else if (wanted == IPR_EXT_PROFILING && at(self).profiler())
        found = &profiling();
      else
        found = at(self).extension(wanted);
    });
    return found;
  }

  static const ipr_context_api& contexts() {
    static const ipr_context_api table = {
        sizeof(ipr_context_api),
        [](void* self, const ipr_options* options, void** out, ipr_error* error) -> int32_t {
          return guarded(error, [&] { *out = at(self).create_context(Options(options)).release(); });
        },
        [](void*, void* context) { delete static_cast<Context*>(context); },
        &notice<&Context::before_load>,
        &notice<&Context::after_load>,
        &notice<&Context::before_unload>,
        &notice<&Context::after_unload>,
    };
    return table;
  }

  template <void (Context::*what)(int64_t)>
  static int32_t notice(void*, void* context, const ipr_network* network, ipr_error* error) {
    return guarded(error, [&] { (static_cast<Context*>(context)->*what)(network->id); });
  }

  static const ipr_blobs_api& blobs() {
    static const ipr_blobs_api table = {sizeof(ipr_blobs_api), &fingerprint, &save, &check, &restore};
    return table;
  }

  static int32_t fingerprint(void* self, const ipr_options* options, ipr_text* out, ipr_error* error) {
    return guarded(error, [&] {
      auto text = std::make_unique<std::string>(at(self).fingerprint(Options(options)));
      out->text = string(*text);
      give(out, std::move(text));
    });
  }

  static int32_t save(void* self, void* executable, ipr_blob* out, ipr_error* error) {
    return guarded(error, [&] {
      auto blob = std::make_unique<Blob>(at(self).save(*static_cast<Executable*>(executable)));
      out->data = blob->data.data();
      out->size = blob->data.size();
      out->flags = blob->flags;
      give(out, std::move(blob));
    });
  }

  static int32_t check(void* self, const void* data, uint64_t size, const ipr_options* options, ipr_error* error) {
    return guarded(error, [&] { at(self).check(data, size, Options(options)); });
  }

  static int32_t restore(void* self, const void* data, uint64_t size, const ipr_graph* graph,
                         const ipr_options* options, ipr_executable* out, ipr_error* error) {
    return guarded(error, [&] {
      Graph given(graph);
      give_executable(out, at(self).restore(data, size, graph ? &given : nullptr, Options(options)));
    });
  }

  static const ipr_executable_memory_api& executable_memory() {
    static const ipr_executable_memory_api table = {sizeof(ipr_executable_memory_api), &compile_in, &restore_in};
    return table;
  }

  static int32_t compile_in(void* self, const ipr_graph* graph, const ipr_options* options,
                            const ipr_allocator* allocator, ipr_executable* out, ipr_error* error) {
    return guarded(error,
                   [&] { give_executable(out, at(self).compile_in(*allocator, Graph(graph), Options(options))); });
  }

  static int32_t restore_in(void* self, const void* data, uint64_t size, const ipr_graph* graph,
                            const ipr_options* options, const ipr_allocator* allocator, ipr_executable* out,
                            ipr_error* error) {
    return guarded(error, [&] {
      Graph given(graph);
      const Graph* offered = graph ? &given : nullptr;
      give_executable(out, at(self).restore_in(*allocator, data, size, offered, Options(options)));
    });
  }

  static const ipr_in_place_api& in_place() {
    static const ipr_in_place_api table = {sizeof(ipr_in_place_api), &inputs_of_outputs};
    return table;
  }

  static int32_t inputs_of_outputs(void*, void* executable, uint64_t count, int64_t* out, ipr_error* error) {
    return guarded(error, [&] {
      const std::vector<int64_t>& inputs = static_cast<Executable*>(executable)->in_place;
      for (uint64_t n = 0; n < count; ++n) out[n] = n < inputs.size() ? inputs[n] : -1;
    });
  }

  static Profiler& profiler(void* self) { return *at(self).profiler(); }

  static const ipr_profiling_api& profiling() {
    static const ipr_profiling_api table = {
        sizeof(ipr_profiling_api),
        &describe_counters,
        [](void* self, int32_t on, ipr_error* error) -> int32_t {
          return guarded(error, [&] { profiler(self).enable(on != 0); });
        },
        &collect,
        &read_counters,
        [](void* self, ipr_string device, ipr_clock* out, ipr_error* error) -> int32_t {
          return guarded(error, [&] { profiler(self).correlate({device.data, device.size}, *out); });
        },
        [](void* self, uint64_t period_us, uint64_t count, const uint64_t* indices, ipr_error* error) -> int32_t {
          return guarded(error, [&] { profiler(self).select(period_us, {indices, indices + count}); });
        }};
    return table;
  }

  static int32_t describe_counters(void* self, ipr_counters* out, ipr_error* error) {
    return guarded(error, [&] {
      auto texts = std::make_unique<CounterTexts>();
      texts->counters = profiler(self).counters();
      for (const Counter& one : texts->counters)
        texts->raw.push_back({string(one.name), string(one.category), string(one.units), string(one.description),
                              string(one.device), one.multiplier, one.kind, 0});
      out->counter_count = texts->raw.size();
      out->counter_stride = sizeof(ipr_counter);
      out->counters = texts->raw.data();
      give(out, std::move(texts));
    });
  }

  static int32_t collect(void* self, uint64_t capacity, uint64_t stride, ipr_interval* out, uint64_t* out_count,
                         uint64_t* out_lost, ipr_error* error) {
    return guarded(error, [&] {
      std::vector<ipr_interval> intervals;
      *out_count = *out_lost = 0;
      *out_lost = profiler(self).collect(size_t(capacity), intervals);
      for (; *out_count < intervals.size() && *out_count < capacity; ++*out_count)
        std::memcpy(reinterpret_cast<char*>(out) + *out_count * stride, &intervals[*out_count], sizeof(ipr_interval));
    });
  }

  static int32_t read_counters(void* self, uint64_t count, double* out, ipr_error* error) {
    return guarded(error, [&] {
      std::vector<double> values = profiler(self).read();
      for (uint64_t n = 0; n < count; ++n) out[n] = n < values.size() ? values[n] : 0;
    });
  }

  static Pool& pool(void* raw) { return *static_cast<Pool*>(raw); }

  static const ipr_handles_api& handles() {
    static const ipr_handles_api table = {
        sizeof(ipr_handles_api),
        &describe,
        &create_pool,
        [](void*, void* raw) { delete static_cast<Pool*>(raw); },
        [](void*, void* raw, ipr_error* error) -> int32_t { return guarded(error, [&] { pool(raw).acquire(); }); },
        [](void*, void* raw, ipr_error* error) -> int32_t { return guarded(error, [&] { pool(raw).give_back(); }); },
        &create_tensor,
        &create_sub_tensor,
        [](void*, void* raw, uint64_t tensor) { guarded(nullptr, [&] { pool(raw).destroy_tensor(tensor); }); },
        &of_tensor<&Pool::manage>,
        &of_tensor<&Pool::allocate>,
        &map,
        &of_tensor<&Pool::unmap>,
        &copy,
        &import_memory,
        &of_tensor<&Pool::forget_memory>,
        &export_memory};
    return table;
  }

  static int32_t describe(void* self, const ipr_options* options, ipr_factories* out, ipr_error* error) {
    return guarded(error, [&] {
      auto texts = std::make_unique<FactoryTexts>();
      texts->given = at(self).describe(Options(options));
      for (const Factory& one : texts->given.factories)
        texts->factories.push_back({string(one.id), one.flags, one.import_kinds, one.export_kinds});
      for (const std::string& id : texts->given.preferences) texts->preferences.push_back(string(id));
      out->factory_count = texts->factories.size();
      out->factory_stride = sizeof(ipr_factory);
      out->factories = texts->factories.data();
      out->preference_count = texts->preferences.size();
      out->preferences = texts->preferences.data();
      give(out, std::move(texts));
    });
  }

  static int32_t create_pool(void* self, const ipr_options* options, void** out, ipr_error* error) {
    return guarded(error, [&] { *out = at(self).create_pool(Options(options)).release(); });
  }

  static int32_t create_tensor(void*, void* raw, uint64_t factory, const ipr_tensor_info* info, uint64_t flags,
                               uint64_t* out, ipr_error* error) {
    return guarded(error, [&] {
      *out = pool(raw).create_tensor(static_cast<size_t>(factory), TensorInfo(info), (flags & IPR_HANDLE_ALONE) != 0);
    });
  }

  static int32_t create_sub_tensor(void*, void* raw, uint64_t whole, const int64_t* origin, const ipr_tensor_info* info,
                                   uint64_t* out, ipr_error* error) {
    return guarded(error, [&] {
      Span<const int64_t> from(origin, static_cast<uint64_t>(info->rank));
      *out = pool(raw).create_sub_tensor(whole, from, TensorInfo(info));
    });
  }

  template <void (Pool::*what)(uint64_t)>
  static int32_t of_tensor(void*, void* raw, uint64_t tensor, ipr_error* error) {
    return guarded(error, [&] { (pool(raw).*what)(tensor); });
  }

  static int32_t map(void*, void* raw, uint64_t tensor, void** out, ipr_error* error) {
    return guarded(error, [&] { *out = pool(raw).map(tensor); });
  }

  static int32_t copy(void*, void* raw, const ipr_tensor* source, const ipr_tensor* target, ipr_error* error) {
    return guarded(error, [&] {
      if (target->memory_kind == IPR_MEMORY_PRIVATE)
        pool(raw).upload(Tensor(*source), target->native_handle);
      else
        pool(raw).download(source->native_handle, Tensor(*target));
    });
  }

  static int32_t import_memory(void*, void* raw, uint64_t tensor, const ipr_tensor* memory, ipr_error* error) {
    return guarded(error, [&] { pool(raw).import_memory(tensor, *memory); });
  }

  static int32_t export_memory(void*, void* raw, uint64_t tensor, uint32_t kind, ipr_tensor* out, ipr_error* error) {
    return guarded(error, [&] {
      Exported given = pool(raw).export_memory(tensor, kind);
      out->data = given.data;
      out->native_handle = given.native_handle;
      out->byte_offset = given.byte_offset;
    });
  }

  std::unique_ptr<Backend> backend_;
  std::list<InfoTexts> infos_;
  ipr_backend table_;
};

/// Create a backend and its table, which live until the next one is created or the library is closed.
template <class T>
IPR_HIDDEN void* factory() noexcept {
  try {
    static std::unique_ptr<Bridge> bridge;
    bridge = std::make_unique<Bridge>(std::make_unique<T>());
    return bridge->table();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace detail
}  // namespace ipr

/// Define the functions that a backend exports, for a class that derives from ipr::Backend. Use once, outside of
/// namespaces. The backend knows this revision of the vocabulary.
#define IPR_BACKEND_OF_REVISION(id, Class, revision)                   \
  extern "C" {                                                         \
  const char* GetBackendId(void) { return id; }                        \
  void GetVersion(uint32_t* out_major, uint32_t* out_minor) {          \
    *out_major = IPR_API_MAJOR;                                        \
    *out_minor = IPR_API_MINOR;                                        \
  }                                                                    \
  uint32_t GetVocabularyRevision(void) { return revision; }            \
  void* BackendFactory(void) { return ipr::detail::factory<Class>(); } \
  }

/// The same, with the revision of this header.
#define IPR_BACKEND(id, Class) IPR_BACKEND_OF_REVISION(id, Class, IPR_VOCABULARY_REVISION)

#endif  // INTERPOSER_BACKEND_HPP
