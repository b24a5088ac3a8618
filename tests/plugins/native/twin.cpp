// An asynchronous backend that adds. Compiled with the macro LOST, its device is lost at the first run.

#include "interposer/queues.hpp"

#ifdef LOST
#define NAME "Losing"
constexpr bool kLoses = true;
#else
#define NAME "Lasting"
constexpr bool kLoses = false;
#endif

class Twin : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Tests";
    info.name = NAME;
    info.version = "1.0.0";
    return info;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    return layer.type_name() == "Addition" ? ipr::yes() : ipr::no("only additions", IPR_REASON_LAYER_TYPE);
  }

  ipr::Kernel kernel(const ipr::Layer& layer, const ipr::Options&) override {
    return [count = layer.output(0).elements(), loses = kLoses](ipr::Tensors in, ipr::Tensors out) {
      if (loses) throw ipr::Error("it is gone", IPR_DEVICE_LOST);
      for (int64_t n = 0; n < count; ++n) out[0].data<float>()[n] = in[0].data<float>()[n] + in[1].data<float>()[n];
    };
  }

  const void* extension(std::string_view name) override {
    return name == IPR_EXT_ASYNC ? ipr::queues<ipr::Queue>() : nullptr;
  }
};

IPR_BACKEND(NAME, Twin)
