// Custom in C++: adds float32 tensors, which may broadcast. The wrapper makes a part of a network into a list of
// kernels, and lets the tensors between them share scratch memory of the host.

#include <memory>
#include <string>
#include <vector>

#include "interposer/backend.hpp"

namespace {

/// How far it is in an operand from one element to the next along each axis of the sum; 0 where it is broadcast.
std::vector<int64_t> steps_of(const ipr::TensorInfo& operand, const ipr::TensorInfo& sum) {
  std::vector<int64_t> steps(size_t(sum.rank()), 0);
  int64_t size = 1;
  for (int32_t axis = operand.rank() - 1; axis >= 0; --axis) {
    if (operand.extent(axis) != 1) steps[size_t(axis + sum.rank() - operand.rank())] = size;
    size *= operand.extent(axis);
  }
  return steps;
}

/// An addition made ready: everything that is known before it runs.
class Addition {
 public:
  explicit Addition(const ipr::Layer& layer)
      : count_(layer.output(0).elements()),
        shape_(layer.output(0).shape().begin(), layer.output(0).shape().end()),
        a_steps_(steps_of(layer.input(0), layer.output(0))),
        b_steps_(steps_of(layer.input(1), layer.output(0))) {}

  void operator()(ipr::Tensors inputs, ipr::Tensors outputs) const {
    const float *a = inputs[0].data<float>(), *b = inputs[1].data<float>();
    float* sum = outputs[0].data<float>();
    std::vector<int64_t> at(shape_.size(), 0);
    for (int64_t n = 0; n < count_; ++n) {
      sum[n] = *a + *b;
      for (size_t axis = shape_.size(); axis-- > 0;) {
        a += a_steps_[axis], b += b_steps_[axis];
        if (++at[axis] < shape_[axis]) break;
        a -= shape_[axis] * a_steps_[axis], b -= shape_[axis] * b_steps_[axis];
        at[axis] = 0;
      }
    }
  }

 private:
  int64_t count_;
  std::vector<int64_t> shape_, a_steps_, b_steps_;
};

/// Receives notifications of networks that a runtime loads. A real backend could open and close a device here.
class CustomContext : public ipr::Context {
 public:
  explicit CustomContext(const ipr::Host& host) : host_(host) {}

  /// To refuse a network, throw ipr::Error with IPR_REFUSED.
  void before_load(int64_t) override { host_.log(IPR_LOG_INFO, "before_load"); }
  void after_load(int64_t) override { host_.log(IPR_LOG_INFO, "after_load"); }
  void before_unload(int64_t) override { host_.log(IPR_LOG_INFO, "before_unload"); }
  void after_unload(int64_t) override { host_.log(IPR_LOG_INFO, "after_unload"); }

 private:
  ipr::Host host_;
};

class Custom : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Example";
    info.name = "Custom";
    info.version = "1.0.0";
    info.capabilities = IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_DETERMINISTIC;
    info.properties = {{"ConstantTensorsAsInputs", "operands may be constant", true},
                       {"NonConstWeights", "weights may be computed", false}};
    return info;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    if (layer.type_name() != "Addition") return ipr::no(std::string(layer.type_name()) + " is not Addition", IPR_REASON_LAYER_TYPE);
    if (layer.output(0).dtype() != IPR_DTYPE_FLOAT32) return ipr::no("only float32 can be added", IPR_REASON_DATA_TYPE);
    return ipr::yes();
  }

  ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override { return Addition(layer); }

  bool has_contexts() const override { return true; }
  std::unique_ptr<ipr::Context> create_context(const ipr::Options&) override {
    return std::make_unique<CustomContext>(host);
  }
};

}  // namespace

IPR_BACKEND("Custom", Custom)
