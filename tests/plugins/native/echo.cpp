// A backend that takes nothing, and whose reasons report all that it gets of each layer.

#include <sstream>

#include "interposer/backend.hpp"

namespace {

void write(std::ostream& out, const ipr_attribute& one) {
  out << " " << ipr::view(one.name) << (one.flags & IPR_ATTRIBUTE_IS_DEFAULT ? "~" : "=");
  switch (one.kind) {
    case IPR_KIND_NONE: out << "none"; break;
    case IPR_KIND_BOOL: out << (one.i ? "true" : "false"); break;
    case IPR_KIND_INT: out << one.i; break;
    case IPR_KIND_FLOAT: out << one.f; break;
    case IPR_KIND_TEXT: out << "'" << ipr::view(one.text) << "'"; break;
    case IPR_KIND_ENUM: out << ipr::view(one.text); break;
    case IPR_KIND_DTYPE: out << "dtype " << one.i; break;
    case IPR_KIND_INTS:
      for (uint64_t n = 0; n < one.count; ++n) out << (n ? one.columns && n % one.columns == 0 ? ";" : "," : "") << one.ints[n];
      break;
    case IPR_KIND_FLOATS:
      for (uint64_t n = 0; n < one.count; ++n) out << (n ? "," : "") << one.floats[n];
      break;
    case IPR_KIND_ENUMS:
      for (uint64_t n = 0; n < one.count; ++n) out << (n ? "," : "") << ipr::view(one.texts[n]);
      break;
  }
}

void write(std::ostream& out, const ipr::TensorInfo& info) {
  if (!info) {
    out << " -";
    return;
  }
  out << " " << info.name() << ":" << info.dtype() << "[";
  for (size_t n = 0; n < info.shape().size(); ++n) out << (n ? "," : "") << info.shape()[n];
  out << "]";
  for (size_t n = 0; n < info.scales().size(); ++n) out << " q" << info.scales()[n] << "/" << info.zero_points()[n];
  if (info.is_quantized()) out << " axis " << info.axis();
  if (info.is_constant()) out << " const " << info.constant().size << " bytes";
  if (info.is_constant() && info.dtype() == IPR_DTYPE_FLOAT32 && info.elements() > 0) out << " " << info.values<float>()[0];
}

class Echo : public ipr::Backend {
 public:
  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options&) override {
    std::ostringstream out;
    out << layer.type() << " " << layer.name() << "(";
    for (size_t n = 0; n < layer.input_count(); ++n) write(out, layer.input(n));
    out << " ->";
    for (size_t n = 0; n < layer.output_count(); ++n) write(out, layer.output(n));
    out << " )";
    const ipr_layer& raw = layer.raw();
    for (uint64_t n = 0; n < raw.attribute_count; ++n) write(out, raw.attributes[n]);
    return ipr::no(out.str());
  }
};

}  // namespace

IPR_BACKEND("Echo", Echo)
