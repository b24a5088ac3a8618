#include "gpuacc/source.hpp"

#include "interposer/backend.hpp"

namespace gpuacc {

const char* storage(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return "float";
    case IPR_DTYPE_FLOAT16:
      return "half";
    case IPR_DTYPE_BOOL:
    case IPR_DTYPE_UINT8:
      return "uchar";
    case IPR_DTYPE_INT8:
      return "char";
    case IPR_DTYPE_INT16:
      return "short";
    case IPR_DTYPE_UINT16:
      return "ushort";
    case IPR_DTYPE_INT32:
      return "int";
    case IPR_DTYPE_UINT32:
      return "uint";
    case IPR_DTYPE_INT64:
      return "long";
    case IPR_DTYPE_UINT64:
      return "ulong";
    default:
      return nullptr;
  }
}

const char* bits_type(uint64_t bytes) {
  return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
}

Template& Template::set(const std::string& name, const std::string& value) {
  const std::string wanted = "$" + name;
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = 0; (at = text_.find(wanted, at)) != std::string::npos;) {
    const size_t end = at + wanted.size();
    if (end < text_.size() && is_letter(text_[end])) {
      at = end;
      continue;
    }
    text_.replace(at, wanted.size(), value);
    at += value.size();
  }
  return *this;
}

std::string preamble(const Profile& profile, const DeviceInfo& info) {
  std::string text = info.has_double
                         ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
                           "typedef double ACC;\n#define ACCV CAT(double, B)\n"
                           "#define TO_ACCV CAT(convert_double, B)\n#define FROM_ACCV CAT(convert_float, B)\n"
                         : "typedef float ACC;\n#define ACCV FB\n#define TO_ACCV\n#define FROM_ACCV\n";
  text += "#define B " + std::to_string(profile.block) + "\n";
  text += profile.kind == Profile::mobile ? "#define MAD mad\n" : "#define MAD fma\n";
  std::string lanes;
  for (int n = 0; n < profile.block; ++n) lanes += (n ? ", " : "") + std::to_string(n);
  text += "#define LANES (IB)(" + lanes + ")\n";
  text += R"(
#define KEEP(v, valid) ((valid) >= B ? (v) : select((FB)0, v, LANES < (IB)(valid)))
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define FB CAT(float, B)
#define IB CAT(int, B)
#define LD_float(i, p) ((p)[i])
#define LD_half(i, p) vload_half(i, p)
#define LD_char(i, p) ((p)[i])
#define LD_uchar(i, p) ((p)[i])
#define LD_short(i, p) ((p)[i])
#define LD_ushort(i, p) ((p)[i])
#define LD_int(i, p) ((p)[i])
#define LD_uint(i, p) ((p)[i])
#define LD_long(i, p) ((p)[i])
#define LD_ulong(i, p) ((p)[i])
#define ST_float(v, i, p) (p)[i] = (v)
#define ST_half(v, i, p) vstore_half_rte(v, i, p)
#define ST_char(v, i, p) (p)[i] = (v)
#define ST_uchar(v, i, p) (p)[i] = (v)
#define ST_short(v, i, p) (p)[i] = (v)
#define ST_ushort(v, i, p) (p)[i] = (v)
#define ST_int(v, i, p) (p)[i] = (v)
#define ST_uint(v, i, p) (p)[i] = (v)
#define ST_long(v, i, p) (p)[i] = (v)
#define ST_ulong(v, i, p) (p)[i] = (v)
#define LDV_float(i, p) CAT(vload, B)(i, p)
#define LDV_half(i, p) CAT(vload_half, B)(i, p)
#define STV_float(v, i, p) CAT(vstore, B)(v, i, p)
#define STV_half(v, i, p) CAT(CAT(vstore_half, B), _rte)(v, i, p)
)";
  return text;
}

}  // namespace gpuacc
