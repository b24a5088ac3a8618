// CpuRef as a shared object: the layers of a small convolutional network in float32 and in int8. The int8 arithmetic
// equals that of the reference backend in Python, bit for bit. The code is written to be read, not to be fast.

#include "moves.hpp"
#include "pointwise.hpp"
#include "windows.hpp"

namespace cpuref {
namespace {

/// The support rule of a type of layer, and the function that prepares it.
struct LayerType {
  const char* name;
  ipr::Verdict (*rule)(const ipr::Layer&);
  ipr::Kernel (*kernel)(const ipr::Layer&);
};

const LayerType kTypes[] = {
    {"Activation", activation_rule, activation},
    {"Addition", binary_rule, addition},
    {"Concat", concat_rule, concat},
    {"Convolution2d", convolution_rule, convolution},
    {"DepthwiseConvolution2d", convolution_rule, depthwise},
    {"Dequantize", dequantize_rule, dequantize},
    {"FullyConnected", weighted, fully_connected},
    {"Multiplication", binary_rule, multiplication},
    {"Pooling2d", pooling_rule, pooling},
    {"Quantize", quantize_rule, quantize},
    {"Reshape", reshape_rule, reshape},
    {"Softmax", softmax_rule, softmax},
};

const LayerType* find(std::string_view name) {
  for (const LayerType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

class CpuRef : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Interposer";
    info.name = "CpuRef";
    info.version = "1.0.0";
    info.description = "Reference kernels in C++ for the layers of convolutional networks";
    info.capabilities =
        IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE | IPR_CAP_FORK_SAFE | IPR_CAP_DETERMINISTIC;
    info.properties = {{"NonConstWeights", "weights and bias need not be constant", true},
                       {"ConstantTensorsAsInputs", "every operand may be constant", true}};
    return info;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    const LayerType* type = find(layer.type());
    return type ? type->rule(layer) : ipr::no("no kernel for " + std::string(layer.type()), IPR_REASON_LAYER_TYPE);
  }

  ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override {
    const LayerType* type = find(layer.type());
    if (!type) throw layer.unsupported("there is no kernel for it");
    return type->kernel(layer);
  }
};

}  // namespace
}  // namespace cpuref

IPR_BACKEND("CpuRef", cpuref::CpuRef)
