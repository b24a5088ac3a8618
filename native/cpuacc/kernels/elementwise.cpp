#include "cpuacc/kernels/elementwise.hpp"

#include <math.h>
#include <string.h>

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/half_precision.hpp"
#include "cpuacc/kernels/transcendental.hpp"
#include "interposer/backend.h"

namespace cpuacc::ISA_NS {
namespace {

// ---- Two operands ---------------------------------------------------------------------------------------------------

template <class In, class Out, class F>
void loop2(const void* pa, const void* pb, void* po, int64_t count, bool a_one, bool b_one) {
  const In *a = static_cast<const In*>(pa), *b = static_cast<const In*>(pb);
  Out* out = static_cast<Out*>(po);
  if (b_one) {
    In y = *b;
    if (a_one) {
      for (int64_t n = 0; n < count; ++n) out[n] = F::of(*a, y);
      return;
    }
    for (int64_t n = 0; n < count; ++n) out[n] = F::of(a[n], y);
  } else if (a_one) {
    In x = *a;
    for (int64_t n = 0; n < count; ++n) out[n] = F::of(x, b[n]);
  } else {
    for (int64_t n = 0; n < count; ++n) out[n] = F::of(a[n], b[n]);
  }
}

// clang-format off
template <class T> struct Wide { using U = T; };  // the type in which integers wrap around
template <> struct Wide<int8_t> { using U = uint32_t; };
template <> struct Wide<int16_t> { using U = uint32_t; };
template <> struct Wide<uint8_t> { using U = uint32_t; };
template <> struct Wide<uint16_t> { using U = uint32_t; };
template <> struct Wide<int32_t> { using U = uint32_t; };
template <> struct Wide<int64_t> { using U = uint64_t; };

template <class T> struct Traits { static constexpr bool real = false; };
template <> struct Traits<float> { static constexpr bool real = true; };
template <> struct Traits<double> { static constexpr bool real = true; };

float mod_of(float x, float y) { return fmodf(x, y); }
double mod_of(double x, double y) { return fmod(x, y); }

template <class T> struct Add { static T of(T a, T b) { using U = typename Wide<T>::U; return T(U(a) + U(b)); } };
template <class T> struct Sub { static T of(T a, T b) { using U = typename Wide<T>::U; return T(U(a) - U(b)); } };
template <class T> struct Mul { static T of(T a, T b) { using U = typename Wide<T>::U; return T(U(a) * U(b)); } };
template <class T> struct SqDiff {
  static T of(T a, T b) { T d = Sub<T>::of(a, b); return Mul<T>::of(d, d); }
};
template <class T> struct Max { static T of(T a, T b) { return a > b || a != a ? a : b; } };
template <class T> struct Min { static T of(T a, T b) { return a < b || a != a ? a : b; } };
/// The floats in which quotients of integers are computed, because vectors cannot divide integers. A quotient of integers
/// of n bits is at least 2**-(n + 1) times its size below the next integer, so that it is not rounded to that: float has
/// 24 bits for integers of up to 16, and double 53 for those of 32.
template <class T> struct Quotient { using R = float; };
template <> struct Quotient<int32_t> { using R = double; };
template <> struct Quotient<uint32_t> { using R = double; };
template <class T> constexpr bool is_signed_integer = T(-1) < T(0);
/// The quotient, truncated. Divisors are neither 0 nor -1.
template <class T> T truncated_quotient(T a, T b) {
  using R = typename Quotient<T>::R;
  if constexpr (sizeof(T) == 8) return T(a / b);
  else if constexpr (sizeof(T) == 4) return T(R(a) / R(b));
  else return T(int32_t(R(a) / R(b)));
}
/// Divisors by which no integer is divided: the results of these are defined without a quotient.
template <class T> bool is_trivial(T b) { return b == 0 || (is_signed_integer<T> && b == T(-1)); }
template <class T> T quotient_of(T a, T b) { return truncated_quotient<T>(a, is_trivial(b) ? T(1) : b); }
/// The functions of integers are computed from their truncated quotient, which is ignored for trivial divisors.
template <class T> struct Div {
  static T of(T a, T b) {
    if constexpr (Traits<T>::real) return a / b;
    else return from(a, b, quotient_of(a, b));
  }
  static T from(T a, T b, T quotient) {
    return b == 0 ? T(0) : is_trivial(b) ? Sub<T>::of(0, a) : quotient;
  }
};
template <class T> struct Fmod {
  static T of(T a, T b) {
    if constexpr (Traits<T>::real) return mod_of(a, b);
    else return from(a, b, quotient_of(a, b));
  }
  static T from(T a, T b, T quotient) { return is_trivial(b) ? T(0) : Sub<T>::of(a, Mul<T>::of(quotient, b)); }
};
template <class T> struct Mod {
  static T of(T a, T b) {
    if constexpr (Traits<T>::real) {
      T rest = mod_of(a, b);
      if (rest == 0) return b < 0 ? -T(0) : T(0);
      return (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
      return from(a, b, quotient_of(a, b));
    }
  }
  static T from(T a, T b, T quotient) {
    const T rest = Fmod<T>::from(a, b, quotient);
    return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
  }
};
template <class T> struct FloorDiv {
  static T of(T a, T b) {
    if constexpr (Traits<T>::real) {
      if (b == 0) return a / b;
      T rest = mod_of(a, b), whole = (a - rest) / b;
      if (rest != 0 && (b < 0) != (rest < 0)) whole -= 1;
      if (whole == 0) return a / b < 0 ? -T(0) : T(0);
      T floored = floor(whole);
      return whole - floored > T(0.5) ? floored + 1 : floored;
    } else {
      return from(a, b, quotient_of(a, b));
    }
  }
  static T from(T a, T b, T quotient) {
    const bool below = Fmod<T>::from(a, b, quotient) != 0 && (a < 0) != (b < 0);
    return T(Div<T>::from(a, b, quotient) - below);
  }
};
struct Power { static float of(float a, float b) { return powf(a, b); } };
struct Squared { static float of(float a, float) { return a * a; } };
struct Cubed { static float of(float a, float) { return a * a * a; } };
struct SquareRoot { static float of(float a, float) { return a == -INFINITY ? INFINITY : sqrtf(a + 0.0f); } };
struct Atan2 { static float of(float a, float b) { return atan2f(a, b); } };
template <class T> struct Prelu { static T of(T x, T slope) { return x >= 0 ? x : Mul<T>::of(x, slope); } };
template <class T> struct And { static T of(T a, T b) { return T(a & b); } };
template <class T> struct Or { static T of(T a, T b) { return T(a | b); } };
template <class T> struct Xor { static T of(T a, T b) { return T(a ^ b); } };
template <class T> struct ShiftLeft {
  static T of(T a, T b) {
    return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(typename Wide<T>::U(a) << b);
  }
};
template <class T> struct ShiftRight {
  static T of(T a, T b) {
    bool all_out = b < 0 || b >= T(8 * sizeof(T));
    return all_out ? (a < 0 ? T(-1) : T(0)) : T(a >> b);
  }
};
template <class T> struct Equal { static uint8_t of(T a, T b) { return a == b; } };
template <class T> struct Greater { static uint8_t of(T a, T b) { return a > b; } };
template <class T> struct GreaterOrEqual { static uint8_t of(T a, T b) { return a >= b; } };
template <class T> struct Less { static uint8_t of(T a, T b) { return a < b; } };
template <class T> struct LessOrEqual { static uint8_t of(T a, T b) { return a <= b; } };
template <class T> struct NotEqual { static uint8_t of(T a, T b) { return a != b; } };

// clang-format on

// ---- Division of integers of 64 bits --------------------------------------------------------------------------------

/// Integers of this size and their quotients are exact in float64.
constexpr int64_t kMostExact = int64_t{1} << 51;
/// 1.5 * 2**52: a float64 this much larger than an integer has the integer in its lowest bits.
constexpr double kShift = 6755399441055744.0;

int64_t bits_of(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/// Conversions of integers of up to kMostExact, for which all instruction sets have vectors.
double exact_float(int64_t x) {
  const int64_t bits = bits_of(kShift) + x;
  double shifted;
  memcpy(&shifted, &bits, sizeof shifted);
  return shifted - kShift;
}
int64_t exact_integer(double x) { return bits_of(x + kShift) - bits_of(kShift); }

template <class T>
bool are_exact(const T* from, int64_t count) {
  const uint64_t most = uint64_t(kMostExact), least = is_signed_integer<T> ? most : 0;
  uint64_t beyond = 0;
  for (int64_t n = 0; n < count; ++n) beyond |= (uint64_t(from[n]) + least) & ~(most + least - 1);
  return beyond == 0;
}

/// A function of the quotient of integers of up to kMostExact.
template <class T, class F>
struct Exact {
  static T of(T a, T b) {
    const double divisor = is_trivial(b) ? 1.0 : exact_float(int64_t(b));
    return F::from(a, b, T(exact_integer(trunc(exact_float(int64_t(a)) / divisor))));
  }
};

template <class T>
bool is_power_of_two(T x) {
  return x > 0 && (x & (x - 1)) == 0;
}

/// A function of the quotients by a power of two, which are computed by shifts.
template <class T, class F>
void divide_by_power(const T* a, T power, T* out, int64_t count) {
  const int shift = __builtin_ctzll(uint64_t(power));
  for (int64_t n = 0; n < count; ++n) {
    const T toward_zero = a[n] < 0 ? T(power - 1) : T(0);
    out[n] = F::from(a[n], power, T((a[n] + toward_zero) >> shift));
  }
}

/// Integers that fit are divided as float64, because vectors cannot divide integers.
template <class T, class F>
void divide_wide(const void* pa, const void* pb, void* po, int64_t count, bool a_one, bool b_one) {
  constexpr int64_t kPiece = 512;
  if (b_one && !a_one && count > 0 && is_power_of_two(*static_cast<const T*>(pb)))
    return divide_by_power<T, F>(static_cast<const T*>(pa), *static_cast<const T*>(pb), static_cast<T*>(po), count);
  for (int64_t n = 0; n < count; n += kPiece) {
    const int64_t piece = count - n < kPiece ? count - n : kPiece;
    const T *a = static_cast<const T*>(pa) + (a_one ? 0 : n), *b = static_cast<const T*>(pb) + (b_one ? 0 : n);
    const bool exact = are_exact(a, a_one ? 1 : piece) && are_exact(b, b_one ? 1 : piece);
    (exact ? loop2<T, T, Exact<T, F>> : loop2<T, T, F>)(a, b, static_cast<T*>(po) + n, piece, a_one, b_one);
  }
}

template <class T, class F>
OfTwo dividing() {
  if constexpr (!Traits<T>::real && sizeof(T) == 8) return divide_wide<T, F>;
  return loop2<T, T, F>;
}

template <class T>
OfTwo common(Binary operation) {
  switch (operation) {
    case Binary::add:
      return loop2<T, T, Add<T>>;
    case Binary::sub:
      return loop2<T, T, Sub<T>>;
    case Binary::mul:
      return loop2<T, T, Mul<T>>;
    case Binary::div:
      return dividing<T, Div<T>>();
    case Binary::maximum:
      return loop2<T, T, Max<T>>;
    case Binary::minimum:
      return loop2<T, T, Min<T>>;
    case Binary::sq_diff:
      return loop2<T, T, SqDiff<T>>;
    case Binary::mod:
      return dividing<T, Mod<T>>();
    case Binary::fmod:
      return dividing<T, Fmod<T>>();
    case Binary::floor_div:
      return dividing<T, FloorDiv<T>>();
    case Binary::equal:
      return loop2<T, uint8_t, Equal<T>>;
    case Binary::greater:
      return loop2<T, uint8_t, Greater<T>>;
    case Binary::greater_or_equal:
      return loop2<T, uint8_t, GreaterOrEqual<T>>;
    case Binary::less:
      return loop2<T, uint8_t, Less<T>>;
    case Binary::less_or_equal:
      return loop2<T, uint8_t, LessOrEqual<T>>;
    case Binary::not_equal:
      return loop2<T, uint8_t, NotEqual<T>>;
    default:
      return nullptr;
  }
}

template <class T>
OfTwo of_integers(Binary operation) {
  switch (operation) {
    case Binary::bitwise_and:
      return loop2<T, T, And<T>>;
    case Binary::bitwise_or:
      return loop2<T, T, Or<T>>;
    case Binary::bitwise_xor:
      return loop2<T, T, Xor<T>>;
    case Binary::shift_left:
      return loop2<T, T, ShiftLeft<T>>;
    case Binary::shift_right:
      return loop2<T, T, ShiftRight<T>>;
    case Binary::prelu:
      return loop2<T, T, Prelu<T>>;
    default:
      return common<T>(operation);
  }
}

/// Powers whose exponent is the same for all elements, and often one of a few.
void power(const void* a, const void* b, void* out, int64_t count, bool a_one, bool b_one) {
  const float exponent = b_one ? *static_cast<const float*>(b) : 0;
  if (exponent == 2) return loop2<float, float, Squared>(a, b, out, count, a_one, b_one);
  if (exponent == 3) return loop2<float, float, Cubed>(a, b, out, count, a_one, b_one);
  if (exponent == 0.5f) return loop2<float, float, SquareRoot>(a, b, out, count, a_one, b_one);
  loop2<float, float, Power>(a, b, out, count, a_one, b_one);
}

OfTwo of_floats(Binary operation) {
  switch (operation) {
    case Binary::power:
      return power;
    case Binary::atan2:
      return loop2<float, float, Atan2>;
    case Binary::prelu:
      return loop2<float, float, Prelu<float>>;
    default:
      return common<float>(operation);
  }
}

/// Powers and angles are left to the caller's library, which may have vectors for them.
OfTwo of_doubles(Binary operation) {
  return operation == Binary::prelu ? loop2<double, double, Prelu<double>> : common<double>(operation);
}

OfTwo of_bools(Binary operation) {
  switch (operation) {
    case Binary::bitwise_and:
    case Binary::minimum:
      return loop2<uint8_t, uint8_t, And<uint8_t>>;
    case Binary::bitwise_or:
    case Binary::maximum:
      return loop2<uint8_t, uint8_t, Or<uint8_t>>;
    case Binary::bitwise_xor:
      return loop2<uint8_t, uint8_t, Xor<uint8_t>>;
    case Binary::equal:
      return loop2<uint8_t, uint8_t, Equal<uint8_t>>;
    case Binary::not_equal:
      return loop2<uint8_t, uint8_t, NotEqual<uint8_t>>;
    default:
      return nullptr;
  }
}

OfTwo binary(Binary operation, int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return of_floats(operation);
    case IPR_DTYPE_INT32:
      return of_integers<int32_t>(operation);
    case IPR_DTYPE_INT64:
      return of_integers<int64_t>(operation);
    case IPR_DTYPE_INT8:
      return of_integers<int8_t>(operation);
    case IPR_DTYPE_UINT8:
      return of_integers<uint8_t>(operation);
    case IPR_DTYPE_FLOAT64:
      return of_doubles(operation);
    case IPR_DTYPE_INT16:
      return of_integers<int16_t>(operation);
    case IPR_DTYPE_UINT16:
      return of_integers<uint16_t>(operation);
    case IPR_DTYPE_UINT32:
      return of_integers<uint32_t>(operation);
    case IPR_DTYPE_UINT64:
      return of_integers<uint64_t>(operation);
    case IPR_DTYPE_BOOL:
      return of_bools(operation);
    default:
      return nullptr;
  }
}

// ---- One operand ----------------------------------------------------------------------------------------------------

template <class In, class Out, class F>
void loop1(const void* pi, void* po, int64_t count) {
  const In* in = static_cast<const In*>(pi);
  Out* out = static_cast<Out*>(po);
  for (int64_t n = 0; n < count; ++n) out[n] = F::of(in[n]);
}

/// Apply a function of vectors to a run. The remainder is copied to a vector of its own.
template <class F>
void vectors(const void* pi, void* po, int64_t count) {
  const float* in = static_cast<const float*>(pi);
  float* out = static_cast<float*>(po);
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(out + n, F::of(load(in + n)));
  if (n == count) return;
  Vec rest = broadcast(1.0f);  // in the range of every function
  memcpy(&rest, in + n, size_t(count - n) * sizeof(float));
  rest = F::of(rest);
  memcpy(out + n, &rest, size_t(count - n) * sizeof(float));
}

// clang-format off
#define CPUACC_UNARY(Name, expression) struct Name { static float of(float x) { return expression; } };
CPUACC_UNARY(Ceil, ceilf(x)) CPUACC_UNARY(FloorOf, floorf(x)) CPUACC_UNARY(Round, rintf(x))
CPUACC_UNARY(Asin, asinf(x)) CPUACC_UNARY(Acos, acosf(x)) CPUACC_UNARY(Atan, atanf(x))
CPUACC_UNARY(Sinh, sinhf(x)) CPUACC_UNARY(Cosh, coshf(x)) CPUACC_UNARY(Asinh, asinhf(x)) CPUACC_UNARY(Acosh, acoshf(x))
CPUACC_UNARY(Atanh, atanhf(x)) CPUACC_UNARY(Sqrt, sqrtf(x)) CPUACC_UNARY(Rsqrt, 1.0f / sqrtf(x))
CPUACC_UNARY(RealAbs, fabsf(x)) CPUACC_UNARY(RealReciprocal, 1.0f / x)
CPUACC_UNARY(RealSign, x > 0 ? 1.0f : x < 0 ? -1.0f : x) CPUACC_UNARY(RealNeg, -x)
#undef CPUACC_UNARY
struct Exp { static Vec of(Vec x) { return exponential(x); } };
struct Erf { static Vec of(Vec x) { return error_function(x); } };
struct Log { static Vec of(Vec x) { return logarithm(x); } };
struct Sin { static Vec of(Vec x) { return sine(x); } };
struct Cos { static Vec of(Vec x) { return cosine(x); } };
struct Tan { static Vec of(Vec x) { return tangent(x); } };
template <class T> struct Neg { static T of(T x) { return Sub<T>::of(0, x); } };
template <class T> struct Abs { static T of(T x) { return x < 0 ? Neg<T>::of(x) : x; } };
template <class T> struct Sign { static T of(T x) { return T((x > 0) - (x < 0)); } };
template <class T> struct Square { static T of(T x) { return Mul<T>::of(x, x); } };
template <class T> struct Same { static T of(T x) { return x; } };
template <class T> struct Reciprocal { static T of(T x) { return x == 1 || (T(-1) < 0 && x == T(-1)) ? x : T(0); } };
template <class T> struct Not { static T of(T x) { return T(~x); } };
struct LogicalNot { static uint8_t of(uint8_t x) { return x == 0; } };
template <class T> struct IsNan { static uint8_t of(T x) { return x != x; } };
template <class T> struct IsInf { static uint8_t of(T x) { return x == T(INFINITY) || x == -T(INFINITY); } };
template <class T> struct IsPositiveInf { static uint8_t of(T x) { return x == T(INFINITY); } };
template <class T> struct IsNegativeInf { static uint8_t of(T x) { return x == -T(INFINITY); } };

// clang-format on

/// Return whether numbers are infinite, or no numbers.
template <class T>
OfOne classifying(Unary operation) {
  switch (operation) {
    case Unary::is_nan:
      return loop1<T, uint8_t, IsNan<T>>;
    case Unary::is_inf:
      return loop1<T, uint8_t, IsInf<T>>;
    case Unary::is_positive_inf:
      return loop1<T, uint8_t, IsPositiveInf<T>>;
    case Unary::is_negative_inf:
      return loop1<T, uint8_t, IsNegativeInf<T>>;
    default:
      return nullptr;
  }
}

OfOne unary_of_floats(Unary operation) {
  switch (operation) {
#define CPUACC_CASE(name, Function) \
  case Unary::name:                 \
    return loop1<float, float, Function>;
    // clang-format off
    CPUACC_CASE(abs, RealAbs) CPUACC_CASE(sqrt, Sqrt) CPUACC_CASE(rsqrt, Rsqrt) CPUACC_CASE(neg, RealNeg)
    CPUACC_CASE(ceil, Ceil) CPUACC_CASE(floor, FloorOf) CPUACC_CASE(round, Round) CPUACC_CASE(sign, RealSign)
    CPUACC_CASE(reciprocal, RealReciprocal) CPUACC_CASE(square, Square<float>) CPUACC_CASE(asin, Asin)
    CPUACC_CASE(acos, Acos) CPUACC_CASE(atan, Atan) CPUACC_CASE(sinh, Sinh) CPUACC_CASE(cosh, Cosh)
    CPUACC_CASE(asinh, Asinh) CPUACC_CASE(acosh, Acosh) CPUACC_CASE(atanh, Atanh)
#undef CPUACC_CASE
    case Unary::exp: return vectors<Exp>;
    case Unary::log: return vectors<Log>;
    case Unary::sin: return vectors<Sin>;
    case Unary::cos: return vectors<Cos>;
    case Unary::tan: return vectors<Tan>;
    // clang-format on
    case Unary::erf:
      return vectors<Erf>;
    default:
      return classifying<float>(operation);
  }
}

template <class T>
OfOne unary_of_integers(Unary operation) {
  switch (operation) {
    case Unary::abs:
      return loop1<T, T, Abs<T>>;
    case Unary::neg:
      return loop1<T, T, Neg<T>>;
    case Unary::sign:
      return loop1<T, T, Sign<T>>;
    case Unary::square:
      return loop1<T, T, Square<T>>;
    case Unary::ceil:
    case Unary::floor:
    case Unary::round:
      return loop1<T, T, Same<T>>;
    case Unary::reciprocal:
      return loop1<T, T, Reciprocal<T>>;
    case Unary::bitwise_not:
      return loop1<T, T, Not<T>>;
    default:
      return nullptr;
  }
}

#define CPUACC_UNARY(Name, expression)                \
  struct Name {                                       \
    static double of(double x) { return expression; } \
  };
CPUACC_UNARY(WideAbs, fabs(x))
CPUACC_UNARY(WideSqrt, sqrt(x))
CPUACC_UNARY(WideRsqrt, 1.0 / sqrt(x))
CPUACC_UNARY(WideNeg, -x)
CPUACC_UNARY(WideCeil, ceil(x))
CPUACC_UNARY(WideFloor, floor(x))
CPUACC_UNARY(WideRound, rint(x))
CPUACC_UNARY(WideSign, x > 0 ? 1.0 : x < 0 ? -1.0 : x)
CPUACC_UNARY(WideReciprocal, 1.0 / x)
#undef CPUACC_UNARY

OfOne unary_of_doubles(Unary operation) {
  switch (operation) {
    case Unary::abs:
      return loop1<double, double, WideAbs>;
    case Unary::sqrt:
      return loop1<double, double, WideSqrt>;
    case Unary::rsqrt:
      return loop1<double, double, WideRsqrt>;
    case Unary::neg:
      return loop1<double, double, WideNeg>;
    case Unary::ceil:
      return loop1<double, double, WideCeil>;
    case Unary::floor:
      return loop1<double, double, WideFloor>;
    case Unary::round:
      return loop1<double, double, WideRound>;
    case Unary::sign:
      return loop1<double, double, WideSign>;
    case Unary::reciprocal:
      return loop1<double, double, WideReciprocal>;
    case Unary::square:
      return loop1<double, double, Square<double>>;
    default:
      return classifying<double>(operation);
  }
}

OfOne unary(Unary operation, int32_t dtype) {
  switch (dtype) {
    case IPR_DTYPE_FLOAT32:
      return unary_of_floats(operation);
    case IPR_DTYPE_FLOAT64:
      return unary_of_doubles(operation);
    case IPR_DTYPE_INT8:
      return unary_of_integers<int8_t>(operation);
    case IPR_DTYPE_INT16:
      return unary_of_integers<int16_t>(operation);
    case IPR_DTYPE_UINT8:
      return unary_of_integers<uint8_t>(operation);
    case IPR_DTYPE_UINT16:
      return unary_of_integers<uint16_t>(operation);
    case IPR_DTYPE_UINT32:
      return unary_of_integers<uint32_t>(operation);
    case IPR_DTYPE_UINT64:
      return unary_of_integers<uint64_t>(operation);
    case IPR_DTYPE_INT32:
      return unary_of_integers<int32_t>(operation);
    case IPR_DTYPE_INT64:
      return unary_of_integers<int64_t>(operation);
    case IPR_DTYPE_BOOL:
      return operation == Unary::logical_not || operation == Unary::bitwise_not ? loop1<uint8_t, uint8_t, LogicalNot>
                                                                                : nullptr;
    default:
      return nullptr;
  }
}

// ---- Activation functions -------------------------------------------------------------------------------------------

template <Function kFunction>
void activate(float a, float b, const float* in, float* out, int64_t count) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store(out + n, apply(kFunction, load(in + n), broadcast(a), broadcast(b)));
  if (n == count) return;
  Vec rest = {};
  memcpy(&rest, in + n, size_t(count - n) * sizeof(float));
  rest = apply(kFunction, rest, broadcast(a), broadcast(b));
  memcpy(out + n, &rest, size_t(count - n) * sizeof(float));
}

void activation(Function function, float a, float b, const float* in, float* out, int64_t count) {
  switch (function) {
#define CPUACC_CASE(name) \
  case Function::name:    \
    return activate<Function::name>(a, b, in, out, count);
    // clang-format off
    CPUACC_CASE(sigmoid) CPUACC_CASE(tanh) CPUACC_CASE(linear) CPUACC_CASE(relu)
    CPUACC_CASE(bounded_relu) CPUACC_CASE(soft_relu) CPUACC_CASE(leaky_relu) CPUACC_CASE(abs)
    CPUACC_CASE(sqrt) CPUACC_CASE(square) CPUACC_CASE(elu) CPUACC_CASE(hard_swish)
    CPUACC_CASE(gelu) CPUACC_CASE(gelu_tanh) CPUACC_CASE(selu) CPUACC_CASE(celu)
    CPUACC_CASE(softsign) CPUACC_CASE(hard_sigmoid) CPUACC_CASE(swish) CPUACC_CASE(mish)
    CPUACC_CASE(thresholded_relu) CPUACC_CASE(shrink)
#undef CPUACC_CASE
    case Function::add: case Function::multiply: return;
    // clang-format on
  }
}

// ---- Choice ------------------------------------------------------------------------------------------------------

/// Each operand advances by one element, or not at all. Both are read before one is chosen, so that this becomes vector
/// code.
template <class Item, bool kConditionOne, bool kOneA, bool kOneB>
void choose_items(const uint8_t* condition, const void* pa, const void* pb, void* po, int64_t count) {
  const Item *a = static_cast<const Item*>(pa), *b = static_cast<const Item*>(pb);
  Item* out = static_cast<Item*>(po);
  for (int64_t n = 0; n < count; ++n) {
    const Item x = a[kOneA ? 0 : n], y = b[kOneB ? 0 : n];
    out[n] = condition[kConditionOne ? 0 : n] ? x : y;
  }
}

template <class Item, bool kConditionOne>
void choose_of(const uint8_t* condition, const void* a, const void* b, void* out, int64_t count, bool a_one,
               bool b_one) {
  if (a_one && b_one) return choose_items<Item, kConditionOne, true, true>(condition, a, b, out, count);
  if (a_one) return choose_items<Item, kConditionOne, true, false>(condition, a, b, out, count);
  if (b_one) return choose_items<Item, kConditionOne, false, true>(condition, a, b, out, count);
  choose_items<Item, kConditionOne, false, false>(condition, a, b, out, count);
}

template <class Item>
void choose_by(const uint8_t* condition, const void* a, const void* b, void* out, int64_t count, bool condition_one,
               bool a_one, bool b_one) {
  condition_one ? choose_of<Item, true>(condition, a, b, out, count, a_one, b_one)
                : choose_of<Item, false>(condition, a, b, out, count, a_one, b_one);
}

void choose(const uint8_t* condition, const void* a, const void* b, void* out, int64_t item_size, int64_t count,
            bool condition_one, bool a_one, bool b_one) {
  switch (item_size) {
    case 1:
      return choose_by<uint8_t>(condition, a, b, out, count, condition_one, a_one, b_one);
    case 2:
      return choose_by<uint16_t>(condition, a, b, out, count, condition_one, a_one, b_one);
    case 4:
      return choose_by<uint32_t>(condition, a, b, out, count, condition_one, a_one, b_one);
    default:
      return choose_by<uint64_t>(condition, a, b, out, count, condition_one, a_one, b_one);
  }
}

// ---- Operands that broadcast along short rows -----------------------------------------------------------------------

/// Repeat each element; a constant number of repetitions becomes vector code.
template <class Item>
inline __attribute__((always_inline)) void repeat_items(const Item* in, Item* out, int64_t rows, int64_t length) {
  for (int64_t r = 0; r < rows; ++r) {
    const Item value = in[r];
    for (int64_t n = 0; n < length; ++n) out[r * length + n] = value;
  }
}

template <class Item>
void repeat(const void* pi, void* po, int64_t rows, int64_t length) {
  const Item* in = static_cast<const Item*>(pi);
  Item* out = static_cast<Item*>(po);
  switch (length) {
    case 2:
      return repeat_items(in, out, rows, 2);
    case 3:
      return repeat_items(in, out, rows, 3);
    case 4:
      return repeat_items(in, out, rows, 4);
    default:
      return repeat_items(in, out, rows, length);
  }
}

/// Copy a row `rows` times: what was copied so far is copied again as a whole.
void tile(const void* in, void* out, int64_t rows, int64_t bytes) {
  char* to = static_cast<char*>(out);
  if (rows > 0) memcpy(to, in, size_t(bytes));
  for (int64_t done = 1; done < rows; done *= 2) {
    const int64_t more = done < rows - done ? done : rows - done;
    memcpy(to + done * bytes, to, size_t(more * bytes));
  }
}

void spread(const void* in, void* out, int64_t item_size, int64_t rows, int64_t length, bool periodic) {
  if (periodic) return tile(in, out, rows, length * item_size);
  switch (item_size) {
    case 1:
      return repeat<uint8_t>(in, out, rows, length);
    case 2:
      return repeat<uint16_t>(in, out, rows, length);
    case 4:
      return repeat<uint32_t>(in, out, rows, length);
    default:
      return repeat<uint64_t>(in, out, rows, length);
  }
}

// ---- Conversion -----------------------------------------------------------------------------------------------------

/// Casts truncate and saturate floats and map NaN to 0. Integers keep their lowest bits.
template <class In, class Out>
struct Cast {
  static Out of(In x) {
    if constexpr (Traits<In>::real && !Traits<Out>::real && sizeof(Out) < 4) {
      constexpr bool has_sign = Out(-1) < Out(0);
      constexpr int bits = 8 * int(sizeof(Out)) - has_sign;
      constexpr In high = In((1 << bits) - 1), low = has_sign ? -high - 1 : In(0);
      x = x == x ? x : In(0);
      x = x > low ? x : low;
      return Out(int32_t(x < high ? x : high));
    } else if constexpr (Traits<In>::real && !Traits<Out>::real) {
      constexpr bool has_sign = Out(-1) < Out(0);
      constexpr int bits = 8 * int(sizeof(Out)) - has_sign;
      const In high = In(bits == 64 ? 18446744073709551616.0 : double(uint64_t(1) << bits)),
               low = has_sign ? -high : In(0);
      const Out most = Out(bits >= 63 ? UINT64_MAX >> (64 - bits) : (uint64_t(1) << bits) - 1);
      if (!(x == x)) return 0;
      if (x >= high) return most;
      return x <= low ? Out(low) : Out(x);
    } else {
      return Out(x);
    }
  }
};
/// Casts of floats to bytes in vectors.
template <class Out>
void bytes_of_floats(const void* pi, void* po, int64_t count) {
  constexpr bool has_sign = Out(-1) < Out(0);
  const Vec low = broadcast(has_sign ? -128.0f : 0.0f), high = broadcast(has_sign ? 127.0f : 255.0f);
  const float* in = static_cast<const float*>(pi);
  uint8_t* out = static_cast<uint8_t*>(po);
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes)  // the lowest byte of a NaN that is truncated is 0
    store_low_bytes(out + n, truncated(at_most(at_least(load(in + n), low), high)));
  loop1<float, Out, Cast<float, Out>>(in + n, out + n, count - n);
}

template <class In>
struct Truth {
  static uint8_t of(In x) { return x != 0; }
};

template <class In>
OfOne cast_from(int32_t to) {
  switch (to) {
    case IPR_DTYPE_FLOAT32:
      return loop1<In, float, Cast<In, float>>;
    case IPR_DTYPE_FLOAT64:
      return loop1<In, double, Cast<In, double>>;
    case IPR_DTYPE_INT32:
      return loop1<In, int32_t, Cast<In, int32_t>>;
    case IPR_DTYPE_INT64:
      return loop1<In, int64_t, Cast<In, int64_t>>;
    case IPR_DTYPE_INT8:
      return loop1<In, int8_t, Cast<In, int8_t>>;
    case IPR_DTYPE_INT16:
      return loop1<In, int16_t, Cast<In, int16_t>>;
    case IPR_DTYPE_UINT8:
      return loop1<In, uint8_t, Cast<In, uint8_t>>;
    case IPR_DTYPE_UINT16:
      return loop1<In, uint16_t, Cast<In, uint16_t>>;
    case IPR_DTYPE_UINT32:
      return loop1<In, uint32_t, Cast<In, uint32_t>>;
    case IPR_DTYPE_UINT64:
      return loop1<In, uint64_t, Cast<In, uint64_t>>;
    case IPR_DTYPE_BOOL:
      return loop1<In, uint8_t, Truth<In>>;
    default:
      return nullptr;
  }
}

OfOne cast(int32_t from, int32_t to) {
  if (to == IPR_DTYPE_FLOAT32 && from == IPR_DTYPE_FLOAT16) return halves_to_floats;
  if (to == IPR_DTYPE_FLOAT32 && from == IPR_DTYPE_BFLOAT16) return brains_to_floats;
  if (from == IPR_DTYPE_FLOAT32 && to == IPR_DTYPE_FLOAT16) return floats_to_halves;
  if (from == IPR_DTYPE_FLOAT32 && to == IPR_DTYPE_BFLOAT16) return floats_to_brains;
  if (from == IPR_DTYPE_FLOAT32 && to == IPR_DTYPE_INT8) return bytes_of_floats<int8_t>;
  if (from == IPR_DTYPE_FLOAT32 && to == IPR_DTYPE_UINT8) return bytes_of_floats<uint8_t>;
  switch (from) {
    case IPR_DTYPE_FLOAT32:
      return cast_from<float>(to);
    case IPR_DTYPE_FLOAT64:
      return cast_from<double>(to);
    case IPR_DTYPE_INT32:
      return cast_from<int32_t>(to);
    case IPR_DTYPE_INT64:
      return cast_from<int64_t>(to);
    case IPR_DTYPE_INT8:
      return cast_from<int8_t>(to);
    case IPR_DTYPE_INT16:
      return cast_from<int16_t>(to);
    case IPR_DTYPE_UINT8:
    case IPR_DTYPE_BOOL:
      return cast_from<uint8_t>(to);
    case IPR_DTYPE_UINT16:
      return cast_from<uint16_t>(to);
    case IPR_DTYPE_UINT32:
      return cast_from<uint32_t>(to);
    case IPR_DTYPE_UINT64:
      return cast_from<uint64_t>(to);
    default:
      return nullptr;
  }
}

}  // namespace

extern const ElementKernels element_kernels = {binary, unary, activation, choose, spread, cast};

}  // namespace cpuacc::ISA_NS
