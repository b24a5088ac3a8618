#include "cpuacc/lower/small_numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpuacc/lower/encoding.hpp"

namespace cpuacc {
namespace {

/// The form of a float with a sign. `most` are the bits of its largest number, `beyond` those of larger ones, and `nan`
/// those of NaN. Types of fewer than 8 bits have no NaN: it becomes a zero of the other sign, as in ml_dtypes.
struct Form {
  int bits, mantissa, bias;
  uint8_t most, beyond, nan;
  bool has_negative_zero;
};

constexpr Form kE4M3FN = {8, 3, 7, 0x7e, 0x7f, 0x7f, true}, kE4M3FNUZ = {8, 3, 8, 0x7f, 0x80, 0x80, false},
               kE5M2 = {8, 2, 15, 0x7b, 0x7c, 0x7e, true}, kE5M2FNUZ = {8, 2, 16, 0x7f, 0x80, 0x80, false},
               kE2M3FN = {6, 3, 1, 0x1f, 0x1f, 0x20, true}, kE3M2FN = {6, 2, 3, 0x1f, 0x1f, 0x20, true},
               kE2M1FN = {4, 1, 1, 0x07, 0x07, 0x08, true};

/// The form of a type; nullptr if it is none of these.
const Form* form_of(int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT8_E4M3FN:
      return &kE4M3FN;
    case IPR_DTYPE_FLOAT8_E4M3FNUZ:
      return &kE4M3FNUZ;
    case IPR_DTYPE_FLOAT8_E5M2:
      return &kE5M2;
    case IPR_DTYPE_FLOAT8_E5M2FNUZ:
      return &kE5M2FNUZ;
    case IPR_DTYPE_FLOAT6_E2M3FN:
      return &kE2M3FN;
    case IPR_DTYPE_FLOAT6_E3M2FN:
      return &kE3M2FN;
    case IPR_DTYPE_FLOAT4_E2M1FN:
      return &kE2M1FN;
    default:
      return nullptr;
  }
}

float decoded(const Form& form, uint8_t bits) {
  const uint8_t sign = uint8_t(1u << (form.bits - 1)), magnitude = bits & uint8_t(sign - 1);
  const float signed_one = bits & sign ? -1.0f : 1.0f;
  if (!form.has_negative_zero && bits == sign) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude > form.most)
    return magnitude == form.beyond && form.beyond != form.nan ? signed_one * std::numeric_limits<float>::infinity()
                                                               : std::numeric_limits<float>::quiet_NaN();
  const int exponent = magnitude >> form.mantissa, steps = magnitude & ((1 << form.mantissa) - 1);
  const int hidden = exponent > 0 ? 1 << form.mantissa : 0;
  return signed_one * std::ldexp(float(hidden + steps), std::max(exponent, 1) - form.bias - form.mantissa);
}

/// 2**exponent for normal numbers of float64.
double power_of_two(int exponent) {
  const uint64_t bits = uint64_t(exponent + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

int exponent_of(double size) {
  uint64_t bits;
  std::memcpy(&bits, &size, sizeof bits);
  return int(bits >> 52) - 1023;
}

uint8_t encoded(const Form& form, double number) {
  if (std::isnan(number)) return form.bits < 8 && std::signbit(number) ? uint8_t(0) : form.nan;
  const uint8_t sign = std::signbit(number) ? uint8_t(1u << (form.bits - 1)) : uint8_t(0);
  const double size = std::fabs(number);
  uint8_t bits = form.beyond;
  if (size < 0x1p30) {
    const int least = 1 - form.bias, exponent = std::max(exponent_of(size), least);
    const auto steps = int(std::nearbyint(size * power_of_two(form.mantissa - exponent)));
    const int code = ((exponent - least) << form.mantissa) + steps;
    bits = code > form.most ? form.beyond : uint8_t(code);
  }
  if (!form.has_negative_zero && (bits == 0 || bits == form.nan)) return bits;
  return bits | sign;
}

/// The exponent of the nearest power of two, ties upwards; NaN for numbers that are not positive.
uint8_t encoded_exponent(double number) {
  if (!(number > 0) || std::isinf(number)) return 0xff;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent);  // from 1/2 on
  exponent += 126 + (mantissa >= 0.75 ? 1 : 0);
  return exponent < 0 ? uint8_t(0) : exponent > 254 ? uint8_t(0xff) : uint8_t(exponent);
}

using Table = std::array<float, 256>;

template <int32_t kType>
const Table& numbers() {
  static const Table table = [] {
    Table table;
    for (size_t n = 0; n < table.size(); ++n) table[n] = small_float_at(kType, uint8_t(n));
    return table;
  }();
  return table;
}

template <int32_t kType>
void widen(const void* in, void* out, int64_t count) {
  const Table& table = numbers<kType>();
  for (int64_t n = 0; n < count; ++n) static_cast<float*>(out)[n] = table[static_cast<const uint8_t*>(in)[n]];
}

template <int32_t kType>
void narrow(const void* in, void* out, int64_t count) {
  for (int64_t n = 0; n < count; ++n)
    static_cast<uint8_t*>(out)[n] = small_float_of(double(static_cast<const float*>(in)[n]), kType);
}

template <int32_t kType>
OfOne cast_of(bool widens) {
  return widens ? widen<kType> : narrow<kType>;
}

// ---- Cast -----------------------------------------------------------------------------------------------------------

constexpr int64_t kPiece = 256;  // elements that are converted together

bool is_half(int32_t dtype) { return dtype == IPR_DTYPE_FLOAT16 || dtype == IPR_DTYPE_BFLOAT16; }

bool is_float(int32_t dtype) {
  return is_small_float(dtype) || is_half(dtype) || dtype == IPR_DTYPE_FLOAT32 || dtype == IPR_DTYPE_FLOAT64;
}

int64_t small_integer_at(int32_t dtype, uint8_t bits) {
  if (dtype == IPR_DTYPE_INT4) return int8_t(bits << 4) >> 4;
  if (dtype == IPR_DTYPE_INT2) return int8_t(bits << 6) >> 6;
  return bits & (dtype == IPR_DTYPE_UINT4 ? 15 : 3);
}

uint8_t small_integer_of(int64_t number, int32_t dtype) {
  return uint8_t(number & (dtype == IPR_DTYPE_INT4 || dtype == IPR_DTYPE_UINT4 ? 15 : 3));
}

/// Truncate to an integer of a type, which saturates; NaN becomes 0.
int64_t truncated(double number, int32_t dtype) {
  const Limits limits = limits_of(dtype);
  return std::isnan(number) ? 0 : int64_t(std::clamp(std::trunc(number), limits.least, limits.most));
}

struct Conversion {
  int32_t from, to;
  int64_t count, from_item, to_item;
  OfOne read,
      write;     // from types that are not small to float64, or float32 for halves, or int64; from float32 to halves
  OfOne direct;  // between the two types; nullptr if there is no such function
  bool reads_half;

  /// Convert a piece of elements. Integers pass through int64, all others through float64.
  void piece(const char* in, char* out, int64_t size) const {
    double reals[kPiece];
    int64_t wholes[kPiece];
    if (is_float(from)) {
      read_reals(in, reals, size);
      if (!is_float(to) && to != IPR_DTYPE_BOOL)
        for (int64_t n = 0; n < size; ++n) wholes[n] = truncated(reals[n], to);
    } else {
      read_integers(in, wholes, size);
      for (int64_t n = 0; n < size; ++n) reals[n] = double(wholes[n]);
    }
    is_float(to) || to == IPR_DTYPE_BOOL ? write_reals(reals, out, size) : write_integers(wholes, out, size);
  }

  void read_reals(const char* in, double* to_reals, int64_t size) const {
    if (reads_half) {
      float singles[kPiece];
      read(in, singles, size);
      for (int64_t n = 0; n < size; ++n) to_reals[n] = double(singles[n]);
      return;
    }
    if (!is_small_float(from)) return read(in, to_reals, size);
    for (int64_t n = 0; n < size; ++n) to_reals[n] = double(small_float_at(from, uint8_t(in[n])));
  }

  void read_integers(const char* in, int64_t* to_wholes, int64_t size) const {
    if (!is_small_integer(from)) return read(in, to_wholes, size);
    for (int64_t n = 0; n < size; ++n) to_wholes[n] = small_integer_at(from, uint8_t(in[n]));
  }

  void write_reals(const double* reals, char* out, int64_t size) const {
    if (to == IPR_DTYPE_BOOL)
      for (int64_t n = 0; n < size; ++n) out[n] = reals[n] != 0;
    else if (is_small_float(to))
      for (int64_t n = 0; n < size; ++n) out[n] = char(small_float_of(reals[n], to));
    else
      write_wide(reals, out, size);
  }

  void write_wide(const double* reals, char* out, int64_t size) const {
    if (to == IPR_DTYPE_FLOAT64) return void(std::memcpy(out, reals, size_t(size) * sizeof *reals));
    float singles[kPiece];
    for (int64_t n = 0; n < size; ++n) singles[n] = float(reals[n]);
    write ? write(singles, out, size) : void(std::memcpy(out, singles, size_t(size) * sizeof *singles));
  }

  void write_integers(const int64_t* wholes, char* out, int64_t size) const {
    if (!is_small_integer(to)) {
      for (int64_t n = 0; n < size; ++n) std::memcpy(out + n * to_item, wholes + n, size_t(to_item));
      return;
    }
    for (int64_t n = 0; n < size; ++n) out[n] = char(small_integer_of(wholes[n], to));
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Conversion& self = step.as<Conversion>();
    const Range range = split(self.count, part, parts, kPiece);
    if (self.direct)
      return self.direct(run.at<char>(step.in[0]) + range.first * self.from_item,
                         run.at<char>(step.out[0]) + range.first * self.to_item, range.last - range.first);
    for (int64_t n = range.first; n < range.last; n += kPiece)
      self.piece(run.at<char>(step.in[0]) + n * self.from_item, run.at<char>(step.out[0]) + n * self.to_item,
                 std::min(kPiece, range.last - n));
  }
};

template <class From, class To>
void converted(const void* in, void* out, int64_t count) {
  for (int64_t n = 0; n < count; ++n) static_cast<To*>(out)[n] = To(static_cast<const From*>(in)[n]);
}

/// The conversion from a type that is not small: to float32 from halves, to float64 from other floats, and to int64
/// from integers; nullptr if there is none.
OfOne reader_of(int32_t dtype, native::Isa isa) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return converted<float, double>;
    case IPR_DTYPE_FLOAT64:
      return converted<double, double>;
    case IPR_DTYPE_BOOL:
    case IPR_DTYPE_UINT8:
      return converted<uint8_t, int64_t>;
    case IPR_DTYPE_INT8:
      return converted<int8_t, int64_t>;
    case IPR_DTYPE_INT16:
      return converted<int16_t, int64_t>;
    case IPR_DTYPE_UINT16:
      return converted<uint16_t, int64_t>;
    case IPR_DTYPE_INT32:
      return converted<int32_t, int64_t>;
    case IPR_DTYPE_UINT32:
      return converted<uint32_t, int64_t>;
    case IPR_DTYPE_INT64:
      return converted<int64_t, int64_t>;
    case IPR_DTYPE_UINT64:
      return converted<uint64_t, int64_t>;
    default:
      return element_kernels_for(isa).cast(dtype, IPR_DTYPE_FLOAT32);
  }
}

bool is_small(int32_t dtype) { return is_small_float(dtype) || is_small_integer(dtype); }

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  const Tensor &in = *graph.in(node, 0), &out = graph.out(node);
  const bool half = is_half(out.dtype);
  if (!is_small(in.dtype) && !is_small(out.dtype)) return refused("neither type is small", IPR_REASON_DATA_TYPE);
  if (!is_small(in.dtype) && !reader_of(in.dtype, settings.isa))
    return refused("no conversion from " + described(in), IPR_REASON_DATA_TYPE);
  if (half && !element_kernels_for(settings.isa).cast(IPR_DTYPE_FLOAT32, out.dtype))
    return refused("no conversion to " + described(out), IPR_REASON_DATA_TYPE);
  return without_posts(graph, node, settings);
}

void lower(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const bool half = is_half(out.dtype);
  auto state = std::make_shared<Conversion>();
  state->from = in.dtype, state->to = out.dtype, state->count = out.elements();
  state->from_item = int64_t(ipr::item_size(in.dtype)), state->to_item = int64_t(ipr::item_size(out.dtype));
  state->read = is_small(in.dtype) ? nullptr : reader_of(in.dtype, builder.settings.isa);
  state->reads_half = is_half(in.dtype);
  state->direct = small_cast(in.dtype, out.dtype);
  state->write = half ? element_kernels_for(builder.settings.isa).cast(IPR_DTYPE_FLOAT32, out.dtype) : nullptr;
  Step step;
  step.name = "Cast " + node.name;
  step.fn = &Conversion::run;
  step.max_parts = parts_for(builder.settings, double(out.elements()) * 4);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::move(state);
  builder.add(std::move(step));
}

}  // namespace

bool is_small_float(int32_t dtype) { return dtype == IPR_DTYPE_FLOAT8_E8M0FNU || form_of(dtype) != nullptr; }

float small_float_at(int32_t dtype, uint8_t bits) {
  if (const Form* form = form_of(dtype)) return decoded(*form, bits);
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int(bits) - 127);
}

uint8_t small_float_of(double number, int32_t dtype) {
  if (const Form* form = form_of(dtype)) return encoded(*form, number);
  return encoded_exponent(number);
}

OfOne small_cast(int32_t from, int32_t to) {
  const bool widens = to == IPR_DTYPE_FLOAT32;
  if (!widens && from != IPR_DTYPE_FLOAT32) return nullptr;
  switch (widens ? from : to) {
    case IPR_DTYPE_FLOAT8_E4M3FN:
      return cast_of<IPR_DTYPE_FLOAT8_E4M3FN>(widens);
    case IPR_DTYPE_FLOAT8_E4M3FNUZ:
      return cast_of<IPR_DTYPE_FLOAT8_E4M3FNUZ>(widens);
    case IPR_DTYPE_FLOAT8_E5M2:
      return cast_of<IPR_DTYPE_FLOAT8_E5M2>(widens);
    case IPR_DTYPE_FLOAT8_E5M2FNUZ:
      return cast_of<IPR_DTYPE_FLOAT8_E5M2FNUZ>(widens);
    default:
      return nullptr;
  }
}

Family small_numbers_family() { return {{{"Cast", "small numbers", support, lower, nullptr}}, {}}; }

}  // namespace cpuacc
