// A device in C++ that adds float32 tensors of one shape in memory of its own, and whose parts can be saved.

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "interposer/backend.hpp"

namespace {

constexpr const char* memory = "Tests/Vault/Cells";
using Elements = std::vector<float>;

/// The memory of the device: the elements of every tensor by its number.
struct Cells {
  std::mutex lock;
  uint64_t next = 0;
  std::map<uint64_t, Elements> tensors;
} cells;

class VaultPool : public ipr::Pool {
 public:
  void acquire() override {
    std::lock_guard<std::mutex> hold(cells.lock);
    for (auto [tensor, size] : sizes_) cells.tensors.try_emplace(tensor, size, NAN);
  }
  void give_back() override {
    std::lock_guard<std::mutex> hold(cells.lock);
    for (auto [tensor, size] : sizes_) cells.tensors.erase(tensor);
  }
  uint64_t create_tensor(size_t, const ipr::TensorInfo& info, bool) override {
    std::lock_guard<std::mutex> hold(cells.lock);
    sizes_[++cells.next] = size_t(info.elements());
    return cells.next;
  }
  void destroy_tensor(uint64_t tensor) override {
    std::lock_guard<std::mutex> hold(cells.lock);
    sizes_.erase(tensor);
    cells.tensors.erase(tensor);
  }
  void manage(uint64_t) override {}
  void allocate(uint64_t tensor) override {
    std::lock_guard<std::mutex> hold(cells.lock);
    cells.tensors.try_emplace(tensor, sizes_.at(tensor), NAN);
  }
  void upload(const ipr::Tensor& source, uint64_t tensor) override {
    std::lock_guard<std::mutex> hold(cells.lock);
    const float* data = source.data<float>();
    cells.tensors[tensor].assign(data, data + source.elements());
  }
  void download(uint64_t tensor, const ipr::Tensor& target) override {
    std::lock_guard<std::mutex> hold(cells.lock);
    const Elements& data = cells.tensors.at(tensor);
    std::copy(data.begin(), data.end(), target.data<float>());
  }

 private:
  std::map<uint64_t, size_t> sizes_;
};

/// Additions of a part: tensors are numbered by their index in the graph.
struct Sums : ipr::Executable {
  std::vector<int64_t> inputs, outputs, steps;

  void execute(const ipr::Run& run) override {
    std::map<int64_t, Elements> tensors;
    for (size_t n = 0; n < inputs.size(); ++n) tensors[inputs[n]] = read(run, n);
    for (size_t n = 0; n < steps.size(); n += 3) {
      Elements sum = tensors[steps[n]];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += tensors[steps[n + 1]][i];
      tensors[steps[n + 2]] = sum;
    }
    for (size_t n = 0; n < outputs.size(); ++n) write(run, n, tensors[outputs[n]]);
  }

  ipr::Blob save() const override {
    std::vector<int64_t> numbers{int64_t(inputs.size()), int64_t(outputs.size())};
    for (auto* list : {&inputs, &outputs, &steps}) numbers.insert(numbers.end(), list->begin(), list->end());
    ipr::Blob blob;
    blob.data.resize(numbers.size() * 8);
    std::memcpy(blob.data.data(), numbers.data(), blob.data.size());
    return blob;
  }

 private:
  static Elements read(const ipr::Run& run, size_t index) {
    if (uint64_t tensor = run.input_handle(index)) {
      std::lock_guard<std::mutex> hold(cells.lock);
      return cells.tensors.at(tensor);
    }
    ipr::Tensor input = run.input(index);
    return Elements(input.data<float>(), input.data<float>() + input.elements());
  }
  static void write(const ipr::Run& run, size_t index, const Elements& sum) {
    if (uint64_t tensor = run.output_handle(index)) {
      std::lock_guard<std::mutex> hold(cells.lock);
      cells.tensors.at(tensor) = sum;
      return;
    }
    std::copy(sum.begin(), sum.end(), run.output(index).data<float>());
  }
};

class Vault : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Tests", info.name = "Vault", info.version = "1";
    info.capabilities = IPR_CAP_DETERMINISTIC | IPR_CAP_KEEPS_CONSTANTS;
    return info;
  }
  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    ipr::TensorInfo out = layer.output(0);
    bool fits = layer.type_name() == "Addition" && out.dtype() == IPR_DTYPE_FLOAT32 && out.rank() > 0;
    for (size_t n = 0; n < 2 && fits; ++n) {
      ipr::TensorInfo in = layer.input(n);
      fits = !in.is_constant() && in.rank() == out.rank() &&
             std::equal(in.shape().begin(), in.shape().end(), out.shape().begin());
    }
    return fits ? ipr::yes() : ipr::no("only additions of float32 tensors of one shape");
  }
  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& graph, const ipr::Options&) override {
    auto made = std::make_unique<Sums>();
    made->inputs.assign(graph.inputs().begin(), graph.inputs().end());
    made->outputs.assign(graph.outputs().begin(), graph.outputs().end());
    for (ipr::Layer layer : graph)
      for (int64_t tensor : {layer.inputs()[0], layer.inputs()[1], layer.outputs()[0]}) made->steps.push_back(tensor);
    return made;
  }
  bool has_blobs() const override { return true; }
  std::string fingerprint(const ipr::Options&) override { return "vault 1"; }
  void check(const void*, uint64_t size, const ipr::Options&) override {
    if (size % 8 != 0) throw ipr::Error("the bytes are no numbers", IPR_CORRUPT);
  }
  std::unique_ptr<ipr::Executable> restore(const void* data, uint64_t size, const ipr::Graph*,
                                           const ipr::Options&) override {
    std::vector<int64_t> numbers(size_t(size) / 8);
    if (!numbers.empty()) std::memcpy(numbers.data(), data, numbers.size() * 8);
    if (numbers.size() < 2 || numbers.size() < size_t(2 + numbers[0] + numbers[1]))
      throw ipr::Error("the numbers make no part", IPR_CORRUPT);
    auto made = std::make_unique<Sums>();
    auto inputs = numbers.begin() + 2, outputs = inputs + numbers[0], steps = outputs + numbers[1];
    made->inputs.assign(inputs, outputs);
    made->outputs.assign(outputs, steps);
    made->steps.assign(steps, numbers.end());
    return made;
  }
  bool has_handles() const override { return true; }
  ipr::Factories describe(const ipr::Options&) override {
    return {{{memory, IPR_FACTORY_DEVICE_COPIES, 0, 0}}, {memory}};
  }
  std::unique_ptr<ipr::Pool> create_pool(const ipr::Options&) override { return std::make_unique<VaultPool>(); }
};

}  // namespace

IPR_BACKEND("Vault", Vault)
