// Functions of single elements, selection and casts, over runs around the width of a vector.

#include "cpuacc/kernels/elementwise.hpp"

#include "interposer/backend.h"
#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(BinaryKernel);
KERNEL_SUITE(UnaryKernel);
KERNEL_SUITE(ActivationKernel);
KERNEL_SUITE(SelectKernel);
KERNEL_SUITE(CastKernel);

const int64_t kCounts[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100};

double rounded_down(double x) { return std::floor(x); }
double remainder_of(double a, double b) { return a - b * rounded_down(a / b); }

double expected_binary(Binary operation, double a, double b) {
  switch (operation) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
    case Binary::maximum:
      return std::max(a, b);
    case Binary::minimum:
      return std::min(a, b);
    case Binary::sq_diff:
      return (a - b) * (a - b);
    case Binary::power:
      return std::pow(a, b);
    case Binary::floor_div:
      return rounded_down(a / b);
    case Binary::mod:
      return remainder_of(a, b);
    case Binary::fmod:
      return std::fmod(a, b);
    case Binary::atan2:
      return std::atan2(a, b);
    case Binary::prelu:
      return a >= 0 ? a : a * b;
    case Binary::equal:
      return a == b;
    case Binary::greater:
      return a > b;
    case Binary::greater_or_equal:
      return a >= b;
    case Binary::less:
      return a < b;
    case Binary::less_or_equal:
      return a <= b;
    case Binary::not_equal:
      return a != b;
    default:
      return NAN;
  }
}

bool is_comparison(Binary operation) { return operation >= Binary::equal && operation <= Binary::not_equal; }

/// All pairs of one element and a run of elements.
template <class T, class Expected>
void check_binary(native::Isa isa, Binary operation, int32_t dtype, const std::vector<T>& left,
                  const std::vector<T>& right, double tolerance, const Expected& expected) {
  auto kernel = element_kernels_for(isa).binary(operation, dtype);
  ASSERT_NE(kernel, nullptr) << "operation " << int(operation);
  for (int64_t count : kCounts)
    for (int ones = 0; ones < 4; ++ones) {
      std::vector<T> x(left.begin(), left.begin() + count), y(right.begin(), right.begin() + count);
      Guarded<T> a(x), b(y), out(count);
      Guarded<uint8_t> flags(count);
      void* to = is_comparison(operation) ? static_cast<void*>(flags.data()) : out.data();
      kernel(a.data(), b.data(), to, count, ones & 1, ones & 2);
      std::vector<double> results;
      for (int64_t n = 0; n < count; ++n) results.push_back(double(expected(a[ones & 1 ? 0 : n], b[ones & 2 ? 0 : n])));
      const std::string what = describe("operation", int(operation), "dtype", dtype, "count", count, "ones", ones);
      is_comparison(operation) ? expect_equal(flags, results, count, what)
                               : expect_near(out, results, count, tolerance, what);
    }
}

TEST_P(BinaryKernel, computes_floats) {
  Random random;
  std::vector<float> left = random.reals(100, 0.25f, 4), right = random.reals(100, 0.25f, 4);
  right[0] = left[0], right[5] = left[5];
  for (int n = 0; n < int(Binary::none); ++n) {
    const Binary operation = Binary(n);
    if (operation >= Binary::bitwise_and && operation <= Binary::shift_right) {
      EXPECT_EQ(element_kernels_for(isa()).binary(operation, IPR_DTYPE_FLOAT32), nullptr);
      continue;
    }
    check_binary<float>(isa(), operation, IPR_DTYPE_FLOAT32, left, right, 2e-6,
                        [&](float a, float b) { return float(expected_binary(operation, a, b)); });
  }
}

/// Wraps around as two's complement does.
template <class T>
void check_integers(native::Isa isa, int32_t dtype) {
  Random random;
  std::vector<T> left = random.integers<T>(100), right = random.integers<T>(100);
  right[1] = left[1], right[2] = 0, right[3] = T(-1), left[3] = std::numeric_limits<T>::min();
  for (size_t n = 10; n < 50; ++n) {  // quotients that are whole, or nearly
    right[n] = T(n), left[n] = T(std::numeric_limits<T>::max() / T(n) * T(n) - T(n % 2));
  }
  const std::vector<T> shifts = random.integers<T>(100, 0, 8 * int(sizeof(T)) + 1);
  using U = std::make_unsigned_t<T>;
  for (Binary operation : {Binary::add, Binary::sub, Binary::mul, Binary::sq_diff, Binary::bitwise_and,
                           Binary::bitwise_or, Binary::bitwise_xor, Binary::maximum, Binary::minimum})
    check_binary<T>(isa, operation, dtype, left, right, 0, [&](T a, T b) {
      switch (operation) {
        case Binary::add:
          return T(U(a) + U(b));
        case Binary::sub:
          return T(U(a) - U(b));
        case Binary::mul:
          return T(uint64_t(a) * uint64_t(b));
        case Binary::sq_diff: {
          uint64_t d = uint64_t(T(U(a) - U(b)));
          return T(d * d);
        }
        case Binary::bitwise_and:
          return T(a & b);
        case Binary::bitwise_or:
          return T(a | b);
        case Binary::bitwise_xor:
          return T(a ^ b);
        case Binary::maximum:
          return std::max(a, b);
        default:
          return std::min(a, b);
      }
    });
  const bool is_signed = std::numeric_limits<T>::is_signed;
  for (Binary operation : {Binary::div, Binary::floor_div, Binary::mod, Binary::fmod})
    check_binary<T>(isa, operation, dtype, left, right, 0, [&](T a, T b) {
      const bool overflows = is_signed && b == T(-1),
                 divides = operation == Binary::div || operation == Binary::floor_div;
      if (b == 0) return T(0);
      if (overflows) return divides ? T(U(0) - U(a)) : T(0);
      T quotient = T(a / b), rest = T(a % b);
      const bool below = rest != 0 && (rest < 0) != (b < 0);
      if (operation == Binary::div) return quotient;
      if (operation == Binary::floor_div) return T(quotient - below);
      if (operation == Binary::fmod) return rest;
      return T(below ? rest + b : rest);
    });
  for (Binary operation : {Binary::shift_left, Binary::shift_right})
    check_binary<T>(isa, operation, dtype, left, shifts, 0, [&](T a, T b) {
      const bool all_out = b >= T(8 * sizeof(T));
      if (operation == Binary::shift_left) return all_out ? T(0) : T(uint64_t(a) << b);
      return all_out ? T(a < 0 ? -1 : 0) : T(a >> b);
    });
  for (Binary operation : {Binary::equal, Binary::greater, Binary::greater_or_equal, Binary::less,
                           Binary::less_or_equal, Binary::not_equal})
    check_binary<T>(isa, operation, dtype, left, right, 0, [&](T a, T b) {
      switch (operation) {
        case Binary::equal:
          return a == b;
        case Binary::greater:
          return a > b;
        case Binary::greater_or_equal:
          return a >= b;
        case Binary::less:
          return a < b;
        case Binary::less_or_equal:
          return a <= b;
        default:
          return a != b;
      }
    });
}

TEST_P(BinaryKernel, computes_int8) { check_integers<int8_t>(isa(), IPR_DTYPE_INT8); }
TEST_P(BinaryKernel, computes_uint8) { check_integers<uint8_t>(isa(), IPR_DTYPE_UINT8); }
TEST_P(BinaryKernel, computes_int16) { check_integers<int16_t>(isa(), IPR_DTYPE_INT16); }
TEST_P(BinaryKernel, computes_uint16) { check_integers<uint16_t>(isa(), IPR_DTYPE_UINT16); }
TEST_P(BinaryKernel, computes_uint32) { check_integers<uint32_t>(isa(), IPR_DTYPE_UINT32); }
TEST_P(BinaryKernel, computes_int32) { check_integers<int32_t>(isa(), IPR_DTYPE_INT32); }
TEST_P(BinaryKernel, computes_int64) { check_integers<int64_t>(isa(), IPR_DTYPE_INT64); }

TEST_P(BinaryKernel, computes_bools) {
  Random random;
  const std::vector<uint8_t> left = random.integers<uint8_t>(100, 0, 1), right = random.integers<uint8_t>(100, 0, 1);
  check_binary<uint8_t>(isa(), Binary::bitwise_and, IPR_DTYPE_BOOL, left, right, 0, [](int a, int b) { return a & b; });
  check_binary<uint8_t>(isa(), Binary::bitwise_or, IPR_DTYPE_BOOL, left, right, 0, [](int a, int b) { return a | b; });
  check_binary<uint8_t>(isa(), Binary::bitwise_xor, IPR_DTYPE_BOOL, left, right, 0, [](int a, int b) { return a ^ b; });
  check_binary<uint8_t>(isa(), Binary::equal, IPR_DTYPE_BOOL, left, right, 0, [](int a, int b) { return a == b; });
}

double expected_unary(Unary operation, double x) {
  switch (operation) {
    case Unary::abs:
      return std::abs(x);
    case Unary::exp:
      return std::exp(x);
    case Unary::sqrt:
      return std::sqrt(x);
    case Unary::rsqrt:
      return 1 / std::sqrt(x);
    case Unary::neg:
      return -x;
    case Unary::log:
      return std::log(x);
    case Unary::sin:
      return std::sin(x);
    case Unary::ceil:
      return std::ceil(x);
    case Unary::cos:
      return std::cos(x);
    case Unary::tan:
      return std::tan(x);
    case Unary::floor:
      return std::floor(x);
    case Unary::round:
      return std::nearbyint(x);
    case Unary::sign:
      return (x > 0) - (x < 0);
    case Unary::reciprocal:
      return 1 / x;
    case Unary::square:
      return x * x;
    case Unary::erf:
      return std::erf(x);
    case Unary::asin:
      return std::asin(x);
    case Unary::acos:
      return std::acos(x);
    case Unary::atan:
      return std::atan(x);
    case Unary::sinh:
      return std::sinh(x);
    case Unary::cosh:
      return std::cosh(x);
    case Unary::asinh:
      return std::asinh(x);
    case Unary::acosh:
      return std::acosh(x);
    case Unary::atanh:
      return std::atanh(x);
    case Unary::is_nan:
      return std::isnan(x);
    case Unary::is_inf:
      return std::isinf(x);
    case Unary::is_positive_inf:
      return x == double(INFINITY);
    case Unary::is_negative_inf:
      return x == -double(INFINITY);
    default:
      return NAN;
  }
}

/// Functions whose domain is not all numbers are given arguments within it.
std::vector<float> arguments_of(Unary operation, Random& random) {
  switch (operation) {
    case Unary::sqrt:
    case Unary::rsqrt:
    case Unary::log:
      return random.reals(100, 0.1f, 5);
    case Unary::asin:
    case Unary::acos:
    case Unary::atanh:
      return random.reals(100, -0.9f, 0.9f);
    case Unary::acosh:
      return random.reals(100, 1, 5);
    default:
      return random.reals(100, -4, 4);
  }
}

TEST_P(UnaryKernel, computes_floats) {
  Random random;
  for (int operation = 0; operation < int(Unary::none); ++operation) {
    auto kernel = element_kernels_for(isa()).unary(Unary(operation), IPR_DTYPE_FLOAT32);
    if (Unary(operation) == Unary::logical_not || Unary(operation) == Unary::bitwise_not) {
      EXPECT_EQ(kernel, nullptr);
      continue;
    }
    ASSERT_NE(kernel, nullptr) << "operation " << operation;
    std::vector<float> arguments = arguments_of(Unary(operation), random);
    const bool flags = Unary(operation) >= Unary::is_nan && Unary(operation) <= Unary::is_negative_inf;
    if (flags) arguments[0] = kNan, arguments[1] = kInfinity, arguments[2] = -kInfinity;
    for (int64_t count : kCounts) {
      Floats in(std::vector<float>(arguments.begin(), arguments.begin() + count)), out(count);
      Guarded<uint8_t> bools(count);
      kernel(in.data(), flags ? static_cast<void*>(bools.data()) : out.data(), count);
      std::vector<double> expected;
      for (int64_t n = 0; n < count; ++n) expected.push_back(expected_unary(Unary(operation), in[n]));
      const std::string what = describe("operation", operation, "count", count);
      flags ? expect_equal(bools, expected, count, what) : expect_near(out, expected, count, 3e-6, what);
    }
  }
}

template <class T>
void check_unary_integers(native::Isa isa, int32_t dtype) {
  Random random;
  const std::vector<T> arguments = random.integers<T>(100);
  for (int64_t count : kCounts) {
    Guarded<T> in(std::vector<T>(arguments.begin(), arguments.begin() + count)), out(count);
    for (Unary operation : {Unary::abs, Unary::neg, Unary::sign, Unary::square, Unary::floor, Unary::bitwise_not}) {
      element_kernels_for(isa).unary(operation, dtype)(in.data(), out.data(), count);
      for (int64_t n = 0; n < count; ++n) {
        const T x = in[n], negated = T(-uint64_t(x));
        const T expected = operation == Unary::abs      ? (x < 0 ? negated : x)
                           : operation == Unary::neg    ? negated
                           : operation == Unary::sign   ? T((x > 0) - (x < 0))
                           : operation == Unary::square ? T(uint64_t(x) * uint64_t(x))
                           : operation == Unary::floor  ? x
                                                        : T(~x);
        ASSERT_EQ(out[n], expected) << describe("operation", int(operation), "count", count, "argument", x);
      }
    }
  }
}

TEST_P(UnaryKernel, computes_int32) { check_unary_integers<int32_t>(isa(), IPR_DTYPE_INT32); }
TEST_P(UnaryKernel, computes_int64) { check_unary_integers<int64_t>(isa(), IPR_DTYPE_INT64); }

TEST_P(UnaryKernel, follows_exp_to_the_ends_of_its_range) {
  const std::vector<float> arguments = {-200, -104, -103,  -88, -87.5f, -87,       -1e-8f,     0,   1e-8f,
                                        1,    88,   88.7f, 89,  200,    kInfinity, -kInfinity, kNan};
  Floats in(arguments), out(in.size());
  element_kernels_for(isa()).unary(Unary::exp, IPR_DTYPE_FLOAT32)(in.data(), out.data(), in.size());
  for (int64_t n = 0; n < in.size(); ++n) {
    const float expected = std::exp(in[n]);
    EXPECT_TRUE(is_near(out[n], expected, 3e-7)) << "exp(" << in[n] << ") is " << out[n] << "; expected " << expected;
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double expected_activation(Function function, double a, double b, double x) {
  switch (function) {
    case Function::sigmoid:
      return sigmoid(x);
    case Function::tanh:
      return a * std::tanh(b * x);
    case Function::linear:
      return a * x + b;
    case Function::relu:
      return std::max(x, 0.0);
    case Function::bounded_relu:
      return std::min(a, std::max(b, x));
    case Function::soft_relu:
      return std::log1p(std::exp(x));
    case Function::leaky_relu:
      return x > 0 ? x : a * x;
    case Function::abs:
      return std::abs(x);
    case Function::sqrt:
      return std::sqrt(x);
    case Function::square:
      return x * x;
    case Function::elu:
      return x >= 0 ? x : a * std::expm1(x);
    case Function::hard_swish:
      return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Function::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Function::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Function::selu:
      return b * (x > 0 ? x : a * std::expm1(x));
    case Function::celu:
      return std::max(x, 0.0) + std::min(0.0, a * std::expm1(x / a));
    case Function::softsign:
      return x / (1 + std::abs(x));
    case Function::hard_sigmoid:
      return std::clamp(a * x + b, 0.0, 1.0);
    case Function::swish:
      return x * sigmoid(a * x);
    case Function::mish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case Function::thresholded_relu:
      return x > a ? x : 0;
    case Function::shrink:
      return x > a ? x - b : x < -a ? x + b : 0;
    case Function::add:
      break;
  }
  return NAN;
}

/// Compare a function with the C library's in float64, relative to the size of the result.
void check_function(native::Isa isa, Unary operation, double (*expected)(double), const std::vector<float>& arguments,
                    double tolerance) {
  const int64_t count = int64_t(arguments.size());
  Floats in(arguments), out(count);
  element_kernels_for(isa).unary(operation, IPR_DTYPE_FLOAT32)(in.data(), out.data(), count);
  for (int64_t n = 0; n < count; ++n) {
    const double right = expected(double(in[n]));
    if (std::isnan(right) || std::isinf(right))
      ASSERT_TRUE(is_near(out[n], right, 0)) << describe("function", int(operation), "argument", in[n]);
    else
      ASSERT_NEAR(out[n], right, tolerance * std::abs(right) + 1e-38)
          << describe("function", int(operation), "argument", in[n]);
  }
}

TEST_P(UnaryKernel, computes_trigonometric_functions_of_small_and_large_arguments) {
  Random random;
  for (float range : {1e-3f, 4.0f, 100.0f, 8000.0f, 1e6f, 1e30f}) {
    const std::vector<float> arguments = random.reals(999, -range, range);
    check_function(isa(), Unary::sin, std::sin, arguments, 1e-5);
    check_function(isa(), Unary::cos, std::cos, arguments, 1e-5);
    check_function(isa(), Unary::tan, std::tan, arguments, 1e-5);
  }
  const std::vector<float> special = {0, -0.0f, 3.14159274f, 1.57079637f, -6.28318548f, 8192, kInfinity, kNan, 1e-40f};
  check_function(isa(), Unary::sin, std::sin, special, 1e-5);
  check_function(isa(), Unary::cos, std::cos, special, 1e-5);
  Floats in(std::vector<float>{-0.0f}), out(1);
  element_kernels_for(isa()).unary(Unary::sin, IPR_DTYPE_FLOAT32)(in.data(), out.data(), 1);
  EXPECT_TRUE(std::signbit(out[0]));
}

TEST_P(UnaryKernel, computes_logarithms_of_all_magnitudes) {
  Random random;
  std::vector<float> arguments = {0, -0.0f, -1, 1, kInfinity, -kInfinity, kNan, 1e-45f, 1e-39f, 3.4e38f};
  check_function(isa(), Unary::log, std::log, arguments, 1e-6);
  for (int n = 0; n < 999; ++n) arguments.push_back(std::exp(random.real(-80, 80)));
  for (int n = 0; n < 999; ++n) arguments.push_back(random.real(0.9f, 1.1f));
  check_function(isa(), Unary::log, std::log, arguments, 1e-6);
}

TEST_P(BinaryKernel, raises_to_a_constant_power) {
  Random random;
  for (float exponent : {2.0f, 3.0f, 0.5f, 1.5f}) {
    std::vector<float> bases = {0, -0.0f, kInfinity, -kInfinity, kNan, -2};
    for (int n = 0; n < 50; ++n) bases.push_back(random.real(0, 10));
    const int64_t count = int64_t(bases.size());
    Floats in(bases), out(count);
    element_kernels_for(isa()).binary(Binary::power, IPR_DTYPE_FLOAT32)(in.data(), &exponent, out.data(), count, false,
                                                                        true);
    for (int64_t n = 0; n < count; ++n)
      ASSERT_TRUE(is_near(out[n], std::pow(double(in[n]), double(exponent)), 1e-6)) << describe("base", in[n]);
  }
}

TEST_P(BinaryKernel, spreads_operands_along_short_rows) {
  Random random;
  for (int64_t item_size : {1, 2, 4, 8})
    for (int64_t length : {1, 2, 3, 4, 5, 17})
      for (int64_t rows : {0, 1, 2, 7, 33})
        for (bool periodic : {false, true}) {
          Guarded<uint8_t> in(random.integers<uint8_t>((periodic ? length : rows) * item_size)),
              out(rows * length * item_size);
          element_kernels_for(isa()).spread(in.data(), out.data(), item_size, rows, length, periodic);
          for (int64_t n = 0; n < rows * length * item_size; ++n) {
            const int64_t element = n / item_size, from = periodic ? element % length : element / length;
            ASSERT_EQ(out[n], in[from * item_size + n % item_size])
                << describe("item", item_size, "length", length, "rows", rows);
          }
        }
}

TEST_P(ActivationKernel, follows_the_definitions) {
  Random random;
  const float a = 0.75f, b = 0.25f;
  for (int function = 0; function < int(Function::add); ++function) {
    const bool positive = Function(function) == Function::sqrt;
    const std::vector<float> arguments = random.reals(100, positive ? 0 : -9, 9);
    for (int64_t count : kCounts) {
      Floats in(std::vector<float>(arguments.begin(), arguments.begin() + count)), out(count);
      element_kernels_for(isa()).activation(Function(function), a, b, in.data(), out.data(), count);
      std::vector<double> expected;
      for (int64_t n = 0; n < count; ++n) expected.push_back(expected_activation(Function(function), a, b, in[n]));
      expect_near(out, expected, count, 2e-6, describe("function", function, "count", count));
    }
  }
}

TEST_P(ActivationKernel, keeps_the_digits_of_small_results_of_gelu) {
  for (float x = -12; x < -1; x += 0.125f) {
    float in = x, out = 0;
    element_kernels_for(isa()).activation(Function::gelu, 0, 0, &in, &out, 1);
    const double expected = expected_activation(Function::gelu, 0, 0, x);
    EXPECT_NEAR(out, expected, 2e-5 * std::abs(expected)) << x;
  }
}

TEST_P(SelectKernel, chooses_items_of_every_size) {
  Random random;
  for (int64_t item_size : {1, 2, 4, 8})
    for (int64_t count : kCounts)
      for (int ones = 0; ones < 8; ++ones) {
        Guarded<uint8_t> condition(random.integers<uint8_t>(count, 0, 1)), out(count * item_size);
        Guarded<uint8_t> a(random.integers<uint8_t>(count * item_size)), b(random.integers<uint8_t>(count * item_size));
        element_kernels_for(isa()).choose(condition.data(), a.data(), b.data(), out.data(), item_size, count, ones & 1,
                                          ones & 2, ones & 4);
        for (int64_t n = 0; n < count * item_size; ++n) {
          const int64_t element = n / item_size, byte = n % item_size;
          const bool yes = condition[ones & 1 ? 0 : element];
          const uint8_t expected =
              yes ? a[(ones & 2 ? 0 : element) * item_size + byte] : b[(ones & 4 ? 0 : element) * item_size + byte];
          ASSERT_EQ(out[n], expected) << describe("item", item_size, "count", count, "ones", ones);
        }
      }
}

template <class In, class Out>
void check_cast(native::Isa isa, int32_t from, int32_t to, const std::vector<In>& arguments) {
  auto kernel = element_kernels_for(isa).cast(from, to);
  ASSERT_NE(kernel, nullptr);
  for (int64_t count : kCounts) {
    Guarded<In> in(std::vector<In>(arguments.begin(), arguments.begin() + count));
    Guarded<Out> out(count);
    kernel(in.data(), out.data(), count);
    for (int64_t n = 0; n < count; ++n) {
      Out expected = Out(in[n]);
      if constexpr (std::is_floating_point_v<In> && std::is_integral_v<Out>) {
        const double x = double(in[n]), low = double(std::numeric_limits<Out>::min()),
                     high = double(std::numeric_limits<Out>::max());
        expected = std::isnan(x) ? Out(0)
                   : x <= low    ? std::numeric_limits<Out>::min()
                   : x >= high   ? std::numeric_limits<Out>::max()
                                 : Out(x);
      }
      ASSERT_EQ(out[n], expected) << describe("from", from, "to", to, "count", count) << " argument " << double(in[n]);
    }
  }
}

TEST_P(CastKernel, truncates_and_saturates_floats) {
  Random random;
  std::vector<float> arguments = random.reals(100, -300, 300);
  arguments[0] = kNan, arguments[1] = kInfinity, arguments[2] = -kInfinity, arguments[3] = 3e9f, arguments[4] = -3e9f;
  arguments[5] = 1e19f, arguments[6] = -1e19f, arguments[7] = 127.9f, arguments[8] = -0.9f;
  check_cast<float, int8_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_INT8, arguments);
  check_cast<float, uint8_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_UINT8, arguments);
  check_cast<float, int32_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_INT32, arguments);
  check_cast<float, int64_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_INT64, arguments);
  check_cast<float, uint16_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_UINT16, arguments);
  check_cast<float, uint32_t>(isa(), IPR_DTYPE_FLOAT32, IPR_DTYPE_UINT32, arguments);
  check_cast<double, uint64_t>(isa(), IPR_DTYPE_FLOAT64, IPR_DTYPE_UINT64,
                               std::vector<double>(arguments.begin(), arguments.end()));
}

TEST_P(CastKernel, converts_integers) {
  Random random;
  check_cast<int32_t, float>(isa(), IPR_DTYPE_INT32, IPR_DTYPE_FLOAT32, random.integers<int32_t>(100));
  check_cast<int32_t, int8_t>(isa(), IPR_DTYPE_INT32, IPR_DTYPE_INT8, random.integers<int32_t>(100));
  check_cast<int64_t, int32_t>(isa(), IPR_DTYPE_INT64, IPR_DTYPE_INT32, random.integers<int64_t>(100));
  check_cast<uint8_t, double>(isa(), IPR_DTYPE_UINT8, IPR_DTYPE_FLOAT64, random.integers<uint8_t>(100));
}

TEST_P(CastKernel, goes_to_half_precision_and_back_for_every_half) {
  std::vector<uint16_t> halves;
  for (int n = 0; n < 65536; ++n) halves.push_back(uint16_t(n));
  Guarded<uint16_t> in(halves), back(65536);
  Floats out(65536);
  for (int32_t half : {IPR_DTYPE_FLOAT16, IPR_DTYPE_BFLOAT16}) {
    element_kernels_for(isa()).cast(half, IPR_DTYPE_FLOAT32)(in.data(), out.data(), 65536);
    element_kernels_for(isa()).cast(IPR_DTYPE_FLOAT32, half)(out.data(), back.data(), 65536);
    for (int n = 0; n < 65536; ++n) {
      if (std::isnan(out[n])) continue;
      if (half == IPR_DTYPE_BFLOAT16) {
        ASSERT_EQ(out[n], from_bfloat16(uint16_t(n)));
      }
      ASSERT_EQ(back[n], in[n]);
    }
  }
}

TEST_P(CastKernel, rounds_to_the_nearest_even_half) {
  for (int64_t count : kCounts) {
    Floats in(count, 1.0f + 1.0f / 2048), up(count, 1.0f + 3.0f / 2048), large(count, 65520.0f);
    Guarded<uint16_t> out(count);
    auto kernel = element_kernels_for(isa()).cast(IPR_DTYPE_FLOAT32, IPR_DTYPE_FLOAT16);
    const std::pair<Floats*, uint16_t> cases[] = {{&in, 0x3c00}, {&up, 0x3c02}, {&large, 0x7c00}};
    for (auto [values, expected] : cases) {
      kernel(values->data(), out.data(), count);
      for (int64_t n = 0; n < count; ++n) ASSERT_EQ(out[n], expected) << describe("count", count);
    }
  }
}

}  // namespace
}  // namespace cpuacc
