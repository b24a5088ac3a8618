// A backend that only writes kernels: Addition, Multiplication, ReLU of float32, and NonZero, whose output has a shape
// that depends on data.

#include <cmath>
#include <string>

#include "interposer/backend.hpp"

namespace {

ipr::Kernel binary(int64_t count, bool product) {
  return [count, product](ipr::Tensors in, ipr::Tensors out) {
    const float *a = in[0].data<float>(), *b = in[1].data<float>();
    for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = product ? a[n] * b[n] : a[n] + b[n];
  };
}

/// An addition that takes no nines.
ipr::Kernel without_nines(int64_t count) {
  return [count](ipr::Tensors in, ipr::Tensors out) {
    const float *a = in[0].data<float>(), *b = in[1].data<float>();
    for (int64_t n = 0; n < count; ++n)
      if (a[n] == 9) throw ipr::ValueError("nine is too much", 0, 0, n, 9, -2, 4);
    for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = a[n] + b[n];
  };
}

ipr::Kernel relu(int64_t count) {
  return [count](ipr::Tensors in, ipr::Tensors out) {
    const float* x = in[0].data<float>();
    for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = x[n] > 0 || std::isnan(x[n]) ? x[n] : 0;
  };
}

/// Where a vector of float32 is not zero: its output is int64 [1, how many].
class NonZero : public ipr::Executable {
 public:
  explicit NonZero(bool forgets) : forgets_(forgets) {}

  void execute(const ipr::Run& run) override {
    ipr::Tensor x = run.input(0);
    std::vector<int64_t> found;
    for (int64_t n = 0; n < x.elements(); ++n)
      if (x.data<float>()[n] != 0) found.push_back(n);
    if (forgets_) return;
    ipr::Tensor out = run.resized(0, {1, int64_t(found.size())});
    std::copy(found.begin(), found.end(), out.data<int64_t>());
  }

 private:
  bool forgets_;
};

class Kernels : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.capabilities = IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE | IPR_CAP_DYNAMIC_SHAPES;
    info.options = {{"forget", "forget to give a shape", false, IPR_SCOPE_MODEL}};
    return info;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    if (layer.type() == "NonZero") {
      bool fits = layer.input(0).dtype() == IPR_DTYPE_FLOAT32 && layer.input(0).rank() == 1;
      return fits ? ipr::yes() : ipr::no("not a vector of float32");
    }
    bool known = layer.type() == "Addition" || layer.type() == "Multiplication" || layer.text("function") == "RELU";
    if (!known) return ipr::no("no kernel for " + std::string(layer.type()), IPR_REASON_LAYER_TYPE);
    for (size_t n = 0; n < layer.input_count(); ++n) {
      ipr::TensorInfo in = layer.input(n);
      if (in.dtype() != IPR_DTYPE_FLOAT32) return ipr::no("not float32", IPR_REASON_DATA_TYPE);
      if (!in.is_concrete() || in.elements() != layer.output(0).elements()) return ipr::no("not of one shape");
    }
    return ipr::yes();
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& graph, const ipr::Options& options) override {
    for (ipr::Layer layer : graph) {
      if (layer.type() != "NonZero") continue;
      if (graph.size() > 1) throw layer.unsupported("only alone");
      return std::make_unique<NonZero>(options.flag("forget"));
    }
    return Backend::compile(graph, options);
  }

  ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override {
    int64_t count = layer.output(0).elements();
    if (layer.name() == "without nines") return without_nines(count);
    return layer.type() == "Activation" ? relu(count) : binary(count, layer.type() == "Multiplication");
  }
};

}  // namespace

IPR_BACKEND("Kernels", Kernels)
