#include "cpuacc/kernels/q8.hpp"

#include "cpuacc/kernels/fixed_point.hpp"
#include "cpuacc/kernels/tiles_neon.hpp"

namespace cpuacc::ISA_NS {
namespace {

// ---- Requantization -------------------------------------------------------------------------------------------------

/// The factors of the requantization of a vector of sums.
struct Factors {
  Vec scale, rest, half;
};
CPUACC_INLINE Factors factors_at(const Q8Requantization& f, int64_t lane) {
  return {load(f.scale + lane), load(f.scale_rest + lane), load(f.half + lane)};
}

#if defined(__aarch64__)
constexpr bool kHasShifts = true;  // vectors are requantized in fixed point without extensions to 64 bits

/// The factors in fixed point: multiplier, shift to the left, and to the right as a negative number.
CPUACC_INLINE Factors shifts_at(const Q8Requantization& f, int64_t lane) {
  const Ints shift = load(f.shift + lane), none = splat(0);
  return {vreinterpretq_f32_s32(load(f.multiplier + lane)), vreinterpretq_f32_s32(vmaxq_s32(shift, none)),
          vreinterpretq_f32_s32(vminq_s32(shift, none))};
}
CPUACC_INLINE Ints shifted(Ints sum, const Factors& f) {
  return fixed_point(sum, vreinterpretq_s32_f32(f.scale), vreinterpretq_s32_f32(f.rest), vreinterpretq_s32_f32(f.half));
}
/// The factors if no shift is to the left: multiplier, and shift as a negative number.
CPUACC_INLINE Factors right_shifts_at(const Q8Requantization& f, int64_t lane) {
  return {load(reinterpret_cast<const float*>(f.multiplier + lane)),
          load(reinterpret_cast<const float*>(f.shift + lane)), broadcast(0)};
}
/// SQRDMULH and SRSHL round ties up. A negative product is first moved by one, so that ties are rounded away from zero.
template <bool AWAY>
CPUACC_INLINE Ints shifted_right(Ints sum, const Factors& f) {
  Ints product = vqrdmulhq_s32(sum, vreinterpretq_s32_f32(f.scale));
  if (AWAY) product = vsraq_n_s32(product, product, 31);
  return vrshlq_s32(product, vreinterpretq_s32_f32(f.rest));
}
#else
constexpr bool kHasShifts = false;
CPUACC_INLINE Factors shifts_at(const Q8Requantization& f, int64_t lane) { return factors_at(f, lane); }
CPUACC_INLINE Ints shifted(Ints sum, const Factors&) { return sum; }
CPUACC_INLINE Factors right_shifts_at(const Q8Requantization& f, int64_t lane) { return factors_at(f, lane); }
template <bool>
CPUACC_INLINE Ints shifted_right(Ints sum, const Factors&) {
  return sum;
}
#endif

/// The modes that only shift to the right; without shifts, a mode that is compiled anyway.
constexpr int kShiftUp = kHasShifts ? Q8Requantization::shift_up : Q8Requantization::single;
constexpr int kShiftAway = kHasShifts ? Q8Requantization::shift_away : Q8Requantization::single;

/// Whether a mode only shifts to the right.
constexpr bool only_right(int mode) {
  return mode == Q8Requantization::shift_up || mode == Q8Requantization::shift_away;
}

template <int MODE>
CPUACC_INLINE Factors factors_of(const Q8Requantization& f, int64_t lane) {
  if (kHasShifts && only_right(MODE)) return right_shifts_at(f, lane);
  return kHasShifts && MODE == Q8Requantization::fixed_point ? shifts_at(f, lane) : factors_at(f, lane);
}
CPUACC_INLINE Ints scaled(Ints sum, const Factors& f) {
  Vec x = floats(sum);
  return truncated(fused(x, f.scale, fused(x, f.rest, with_sign(f.half, x))));
}

CPUACC_INLINE Ints scaled_even(Ints sum, const Factors& f) {
  Vec x = floats(sum);
  return nearest(fused(x, f.scale, fused(x, f.rest, f.half)));
}

CPUACC_INLINE int32_t within(double x) {
  if (x >= 65536) return 65536;
  return x > -65536 ? static_cast<int32_t>(x) : -65536;
}
CPUACC_INLINE double half_away(double x, double half) { return x < 0 ? x - half : x + half; }

/// Compute the result of `scaled` with the arithmetic of the reference.
static __attribute__((noinline)) void scale_as_reference(const int32_t* sums, int32_t* to, const Q8Requantization& f,
                                                         int64_t lane) {
  if (f.mode == Q8Requantization::real)
    for (int n = 0; n < kLanes; ++n) to[n] = within(half_away(sums[n] * f.wide_scale[lane + n], 0.5));
  else if (f.mode == Q8Requantization::exact_even)
    for (int n = 0; n < kLanes; ++n) {
      const double product = sums[n] * f.wide_scale[lane + n];
      to[n] = within(__builtin_nearbyint((product + f.wide_half[lane + n]) / f.divisor));
    }
  else
    store(to, fixed_point(load(sums), load(f.multiplier + lane), load(f.shift + lane)));
}

static __attribute__((noinline)) Ints scaled_as_reference(Ints sum, const Q8Requantization& f, int64_t lane) {
  int32_t sums[kLanes], codes[kLanes];
  store(sums, sum);
  scale_as_reference(sums, codes, f, lane);
  return load(codes);
}

template <int MODE>
CPUACC_INLINE Ints distance(Ints sum, const Factors& factors, const Q8Requantization& f, int64_t lane) {
  if (MODE == Q8Requantization::single) return scaled(sum, factors);
  if (MODE == Q8Requantization::single_even) return scaled_even(sum, factors);
  if (kHasShifts && only_right(MODE)) return shifted_right<MODE == Q8Requantization::shift_away>(sum, factors);
  if (kHasShifts && MODE == Q8Requantization::fixed_point) return shifted(sum, factors);
  if (MODE == Q8Requantization::twofold) return scaled_wide(sum, f.wide_scale + lane, f.wide_half + lane);
  if (MODE == Q8Requantization::twofold_even) return scaled_wide_even(sum, f.wide_scale + lane, f.wide_half + lane);
  return scaled_as_reference(sum, f, lane);
}

CPUACC_INLINE Ints saturated(Ints a, Ints b, Ints c, Ints d, Ints zero, Ints low, Ints high) {
  Ints ab = add_shorts(to_shorts(a, b), zero), cd = add_shorts(to_shorts(c, d), zero);
  return clamp_bytes(to_bytes(ab, cd), low, high);
}

CPUACC_INLINE Ints rescaled(Ints code, const Q8Add::Factor& f) {
  Ints offset = subtract(code, splat(f.zero));
  return fixed_point(shift_left<20>(offset), splat(f.multiplier), splat(f.shift));
}

CPUACC_INLINE Ints added(Ints a, Ints b, const Q8Add& q) {
  return fixed_point(add(rescaled(a, q.a), rescaled(b, q.b)), splat(q.out.multiplier), splat(q.out.shift));
}

/// Add quantized values with the integer arithmetic of the reference.
static __attribute__((noinline)) Ints added_in_integers(Ints a, Ints b, const Q8Add& q) {
  Ints none = splat(0), a0 = low8(a, none), a1 = high8(a, none), b0 = low8(b, none), b1 = high8(b, none);
  return saturated(added(low16(a0, none), low16(b0, none), q), added(high16(a0, none), high16(b0, none), q),
                   added(low16(a1, none), low16(b1, none), q), added(high16(a1, none), high16(b1, none), q),
                   shorts(q.out.zero), bytes(q.low), bytes(q.high));
}

/// The float32 number that a quantized value represents, as ONNX dequantizes it.
CPUACC_INLINE Vec real_of(Ints code, int32_t zero, float scale) {
  return rounded(floats(subtract(code, splat(uint32_t(zero)))) * broadcast(scale));
}

/// The distance from the zero point of a float32 result in steps of `scale`, rounded half to even and saturated; 0 for
/// NaN, which infinite products can give.
CPUACC_INLINE Ints steps_of(Vec real, float scale) {
  const Vec steps = real / broadcast(scale);
  const Vec number = reinterpret_cast<Vec>(reinterpret_cast<IntVec>(steps) & (steps == steps));
  return nearest(at_most(at_least(number, broadcast(-65536)), broadcast(65536)));
}

/// Add quantized values with the float32 arithmetic of ONNX.
static __attribute__((noinline)) Ints added_as_onnx(Ints a, Ints b, const Q8Add& q) {
  Ints none = splat(0), a0 = low8(a, none), a1 = high8(a, none), b0 = low8(b, none), b1 = high8(b, none);
  const Ints of_a[4] = {low16(a0, none), high16(a0, none), low16(a1, none), high16(a1, none)};
  const Ints of_b[4] = {low16(b0, none), high16(b0, none), low16(b1, none), high16(b1, none)};
  Ints sum[4];
  for (int n = 0; n < 4; ++n)
    sum[n] = steps_of(real_of(of_a[n], q.a.zero, q.scales.a) + real_of(of_b[n], q.b.zero, q.scales.b), q.scales.out);
  return saturated(sum[0], sum[1], sum[2], sum[3], shorts(q.out.zero), bytes(q.low), bytes(q.high));
}

CPUACC_INLINE Ints added_as_reference(Ints a, Ints b, const Q8Add& q) {
  return q.to_even ? added_as_onnx(a, b, q) : added_in_integers(a, b, q);
}

CPUACC_INLINE Ints added_in_float(Ints a, Ints b, const Q8Add& q, Vec& worst) {
  Vec x = fused(floats(a), broadcast(q.scale_a), fused(floats(b), broadcast(q.scale_b), broadcast(q.shift)));
  Ints code = nearest(x);
  worst = larger_size(worst, difference(x, floats(code)));
  return code;
}

/// The parameters of an exact formula, in registers.
struct ExactAdd {
  explicit __attribute__((always_inline)) ExactAdd(const Q8Add& q)
      : scale_a(broadcast(q.exact_a)), scale_b(broadcast(q.exact_b)), shift(broadcast(q.exact_shift)),
        zero(shorts(q.out.zero)), low(bytes(q.low)), high(bytes(q.high)) {}

  Vec scale_a, scale_b, shift;
  Ints zero, low, high;
};

/// Add four vectors of quantized values, as numbers, and a vector of quantized values.
CPUACC_INLINE Ints added_exactly(const Vec* a, Ints b, const ExactAdd& q) {
  const Ints none = splat(0), b0 = low8(b, none), b1 = high8(b, none);
  const Ints wide[4] = {low16(b0, none), high16(b0, none), low16(b1, none), high16(b1, none)};
  Ints sum[4];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) sum[n] = nearest(fused(a[n], q.scale_a, fused(floats(wide[n]), q.scale_b, q.shift)));
  return saturated(sum[0], sum[1], sum[2], sum[3], q.zero, q.low, q.high);
}

CPUACC_INLINE Ints added_exactly(Ints a, Ints b, const ExactAdd& q) {
  const Ints none = splat(0), a0 = low8(a, none), a1 = high8(a, none);
  const Vec wide[4] = {floats(low16(a0, none)), floats(high16(a0, none)), floats(low16(a1, none)),
                       floats(high16(a1, none))};
  return added_exactly(wide, b, q);
}

/// Add two vectors of quantized values. The sum is computed in float32 unless it is too close to the middle between two
/// integers.
CPUACC_INLINE Ints add_quantized(Ints a, Ints b, const Q8Add& q) {
  if (q.limit < 0) return added_as_reference(a, b, q);
  Ints none = splat(0), a0 = low8(a, none), a1 = high8(a, none), b0 = low8(b, none), b1 = high8(b, none);
  Vec worst = broadcast(0);
  Ints w = added_in_float(low16(a0, none), low16(b0, none), q, worst);
  Ints x = added_in_float(high16(a0, none), high16(b0, none), q, worst);
  Ints y = added_in_float(low16(a1, none), low16(b1, none), q, worst);
  Ints z = added_in_float(high16(a1, none), high16(b1, none), q, worst);
  if (exceeds(worst, q.limit)) return added_as_reference(a, b, q);
  return saturated(w, x, y, z, shorts(q.out.zero), bytes(q.low), bytes(q.high));
}

/// The parameters of the requantization of one panel, in registers if they fit.
template <int MODE, int VECTORS>
struct Panel {
  static constexpr int kTogether = 4 / VECTORS,
                       kPiece = VECTORS * kLanes;  // rows that make four vectors; bytes of one row

  Panel(const Q8Requantization& f, int64_t lane, int64_t step, int channels)
      : zero(shorts(f.zero)), low(bytes(f.low)), high(bytes(f.high)), flip(splat(f.flip)), step(step),
        channels(channels) {
    for (int n = 0; n < VECTORS; ++n) factors[n] = factors_of<MODE>(f, lane + n * kLanes);
    whole = channels == kPiece && (VECTORS == 4 || step == kPiece);
  }

  __attribute__((always_inline)) void write(uint8_t* to, Ints codes, int count) const {
    codes = rows_of(codes, VECTORS);
    if (whole && count == kTogether)
      store(to, codes);
    else
      for (int row = 0; row < count; ++row) store_piece(to + row * step, codes, row * kPiece, channels);
  }

  /// Load quantized values of another tensor in the order of the lanes of the sums.
  __attribute__((always_inline)) Ints others(const uint8_t* from, int64_t apart, int count, uint32_t turned) const {
    Ints other = splat(0);
    if (whole && count == kTogether && apart == step)
      other = load(from);
    else
      for (int row = 0; row < count; ++row) other = load_piece(other, from + row * apart, row * kPiece, channels);
    return packed(exclusive_or(other, splat(turned)), VECTORS);
  }

  Factors factors[VECTORS];
  Ints zero, low, high, flip;
  int64_t step;
  int channels;
  bool whole;  // the rows of four vectors are contiguous in the output
};

/// The sums of a vector of channels, with the multiple of the sum of the bytes that they need.
template <int VECTORS>
CPUACC_INLINE Ints sum_at(const int32_t* sums, int row, int vector, const Q8Requantization& f, int64_t lane,
                          const int32_t* byte_sums) {
  Ints sum = load(sums + (row * VECTORS + vector) * kLanes);
  if (!byte_sums) return sum;
  return add(sum,
             multiply(splat(static_cast<uint32_t>(byte_sums[row])), load(f.weight_offset + lane + vector * kLanes)));
}

/// Requantize `count` rows that are processed together. EXTRAS: byte sums or a residual may be added.
template <int MODE, int VECTORS, bool EXTRAS>
CPUACC_INLINE void requantize_rows(const Panel<MODE, VECTORS>& panel, int count, const int32_t* sums,
                                   const Q8Requantization& f, int64_t lane, const int32_t* byte_sums, uint8_t* to,
                                   const uint8_t* other, const Q8Residual& residual) {
  Ints x[4];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const int vector = n % VECTORS, row = n / VECTORS < count ? n / VECTORS : 0;
    Ints sum = sum_at<VECTORS>(sums, row, vector, f, lane, EXTRAS ? byte_sums : nullptr);
    x[n] = distance<MODE>(sum, panel.factors[vector], f, lane + vector * kLanes);
  }
  Ints codes = saturated(x[0], x[1], x[2], x[3], panel.zero, panel.low, panel.high);
  if (EXTRAS && residual.add) {
    Ints added = add_quantized(codes, panel.others(other, residual.step, count, residual.add->flip_b), *residual.add);
    panel.write(to, exclusive_or(added, splat(residual.add->flip)), count);
  } else {
    panel.write(to, exclusive_or(codes, panel.flip), count);
  }
}

/// Requantize `count` rows in a simple mode, and add a residual by an exact formula.
template <int MODE, int VECTORS>
CPUACC_INLINE void requantize_and_add(const Panel<MODE, VECTORS>& panel, const ExactAdd& formula, int count,
                                      const int32_t* sums, const Q8Requantization& f, int64_t lane,
                                      const int32_t* byte_sums, uint8_t* to, const uint8_t* other, int64_t step,
                                      uint32_t flip_b, uint32_t flip) {
  const Vec zero = broadcast(static_cast<float>(f.zero)), low = broadcast(static_cast<float>(f.low)),
            high = broadcast(static_cast<float>(f.high));
  Vec own[4];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const int vector = n % VECTORS, row = n / VECTORS < count ? n / VECTORS : 0;
    const Ints sum = sum_at<VECTORS>(sums, row, vector, f, lane, byte_sums);
    const Ints own_steps = distance<MODE>(sum, panel.factors[vector], f, lane + vector * kLanes);
    own[n] = at_most(at_least(floats(own_steps) + zero, low), high);
  }
  panel.write(to, exclusive_or(added_exactly(own, panel.others(other, step, count, flip_b), formula), splat(flip)),
              count);
}

/// Requantize the rows of a panel in a simple mode, and add a residual by an exact formula.
template <int MODE, int VECTORS>
static void requantize_panel_and_add(int rows, const int32_t* sums, const Q8Requantization& requantization,
                                     int64_t lane, const int32_t* byte_sums, uint8_t* out, int64_t step, int channels,
                                     const Q8Residual& residual) {
  const Q8Requantization f = requantization;  // a copy, which stores of bytes cannot change
  const Panel<MODE, VECTORS> panel(f, lane, step, channels);
  const ExactAdd formula(*residual.add);
  const int64_t other_step = residual.step;
  const uint32_t flip_b = residual.add->flip_b, flip = residual.add->flip;
  constexpr int together = Panel<MODE, VECTORS>::kTogether;
  const uint8_t* other = residual.codes;
  for (; rows > 0; rows -= together) {
    if (rows >= together)
      requantize_and_add<MODE, VECTORS>(panel, formula, together, sums, f, lane, byte_sums, out, other, other_step,
                                        flip_b, flip);
    else
      requantize_and_add<MODE, VECTORS>(panel, formula, rows, sums, f, lane, byte_sums, out, other, other_step, flip_b,
                                        flip);
    sums += 4 * kLanes, out += together * step, other += together * other_step;
    byte_sums += byte_sums ? together : 0;
  }
}

template <int MODE, int VECTORS, bool EXTRAS>
static void requantize_panel(int rows, const int32_t* sums, const Q8Requantization& f, int64_t lane,
                             const int32_t* byte_sums, uint8_t* out, int64_t step, int channels,
                             const Q8Residual& residual) {
  const Panel<MODE, VECTORS> panel(f, lane, step, channels);
  constexpr int together = Panel<MODE, VECTORS>::kTogether;
  const uint8_t* other = residual.codes;
  for (; rows > 0; rows -= together) {
    if (rows >= together)
      requantize_rows<MODE, VECTORS, EXTRAS>(panel, together, sums, f, lane, byte_sums, out, other, residual);
    else
      requantize_rows<MODE, VECTORS, EXTRAS>(panel, rows, sums, f, lane, byte_sums, out, other, residual);
    sums += 4 * kLanes, out += together * step;
    if (EXTRAS) other += together * residual.step, byte_sums += byte_sums ? together : 0;
  }
}

using RequantizePanel = void (*)(int rows, const int32_t* sums, const Q8Requantization& f, int64_t lane,
                                 const int32_t* byte_sums, uint8_t* out, int64_t step, int channels,
                                 const Q8Residual& residual);

template <int MODE, int VECTORS>
static RequantizePanel requantize_simply(bool extras, const Q8Residual& residual) {
  if (residual.add && residual.add->is_exact) return requantize_panel_and_add<MODE, VECTORS>;
  return extras ? requantize_panel<MODE, VECTORS, true> : requantize_panel<MODE, VECTORS, false>;
}

template <int VECTORS>
static RequantizePanel requantize_by_shifts(Q8Requantization::Mode mode, bool extras, const Q8Residual& residual) {
  return (mode == Q8Requantization::shift_up ? requantize_simply<kShiftUp, VECTORS>
                                             : requantize_simply<kShiftAway, VECTORS>)(extras, residual);
}

template <int VECTORS>
static void requantize_of(int rows, const int32_t* sums, const Q8Requantization& f, int64_t lane,
                          const int32_t* byte_sums, uint8_t* out, int64_t step, int channels,
                          const Q8Residual& residual) {
  bool extras = byte_sums || residual.add;
  RequantizePanel run = requantize_panel<Q8Requantization::real, VECTORS, true>;
  if (f.mode == Q8Requantization::single)
    run = requantize_simply<Q8Requantization::single, VECTORS>(extras, residual);
  else if (f.mode == Q8Requantization::single_even)
    run = requantize_simply<Q8Requantization::single_even, VECTORS>(extras, residual);
  else if (kHasShifts && only_right(f.mode))
    run = requantize_by_shifts<VECTORS>(f.mode, extras, residual);
  else if (f.mode == Q8Requantization::twofold)
    run = requantize_panel<Q8Requantization::twofold, VECTORS, true>;
  else if (f.mode == Q8Requantization::twofold_even)
    run = requantize_panel<Q8Requantization::twofold_even, VECTORS, true>;
  else if (kHasShifts && f.mode == Q8Requantization::fixed_point)
    run = extras ? requantize_panel<Q8Requantization::fixed_point, VECTORS, kHasShifts>
                 : requantize_panel<Q8Requantization::fixed_point, VECTORS, false>;
  run(rows, sums, f, lane, byte_sums, out, step, channels, residual);
}

static void requantize(int rows, int vectors, const int32_t* sums, const Q8Requantization& f, int64_t lane,
                       const int32_t* byte_sums, uint8_t* out, int64_t step, int channels, const Q8Residual& residual) {
  auto run = vectors == 4 ? requantize_of<4> : vectors == 2 ? requantize_of<2> : requantize_of<1>;
  run(rows, sums, f, lane, byte_sums, out, step, channels, residual);
}

// ---- Conversion of sums ---------------------------------------------------------------------------------------------

/// Copy the values of a panel's channels, and fill the other lanes with zeros.
template <int VECTORS>
struct Lanes {
  alignas(64) float values[VECTORS * kLanes];

  Lanes(const float* from, bool many, int channels) {
    for (int n = 0; n < VECTORS * kLanes; ++n) values[n] = from && n < channels ? from[many ? n : 0] : 0;
  }
};

template <int VECTORS, bool REAL>
static void convert_panel(int rows, const int32_t* sums, const Q8Conversion& c, int64_t lane, int64_t channel,
                          const int32_t* byte_sums, uint8_t* out, int64_t step, int channels) {
  const Lanes<VECTORS> scale(c.scale ? c.scale + (c.many_scales ? channel : 0) : nullptr, c.many_scales, channels);
  const Lanes<VECTORS> bias(c.bias ? c.bias + channel : nullptr, true, channels);
  const Vec low = broadcast(c.low), high = broadcast(c.high);
  for (int row = 0; row < rows; ++row, out += step)
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n, sums += kLanes) {
      Ints sum = load(sums);
      if (byte_sums)
        sum =
            add(sum, multiply(splat(static_cast<uint32_t>(byte_sums[row])), load(c.weight_offset + lane + n * kLanes)));
      if (REAL) {
        Vec real = rounded(floats(sum) * load(scale.values + n * kLanes));
        if (c.bias) real = real + load(bias.values + n * kLanes);
        sum = reinterpret_cast<Ints>(at_most(at_least(real, low), high));
      }
      const int64_t left = 4 * (int64_t{channels} - n * kLanes);
      if (left > 0) store_bytes(out + 4 * n * kLanes, sum, left);
    }
}

template <bool REAL>
static void convert_of(int rows, int vectors, const int32_t* sums, const Q8Conversion& c, int64_t lane, int64_t channel,
                       const int32_t* byte_sums, uint8_t* out, int64_t step, int channels) {
  auto run = vectors == 4 ? convert_panel<4, REAL> : vectors == 2 ? convert_panel<2, REAL> : convert_panel<1, REAL>;
  run(rows, sums, c, lane, channel, byte_sums, out, step, channels);
}

static void convert(int rows, int vectors, const int32_t* sums, const Q8Conversion& c, int64_t lane, int64_t channel,
                    const int32_t* byte_sums, uint8_t* out, int64_t step, int channels) {
  auto run = c.scale ? convert_of<true> : convert_of<false>;
  run(rows, vectors, sums, c, lane, channel, byte_sums, out, step, channels);
}

// ---- Products of matrices -------------------------------------------------------------------------------------------

CPUACC_INLINE uint32_t word(const uint8_t* from) {
  uint32_t x;
  memcpy(&x, from, sizeof(x));
  return x;
}

#if defined(__aarch64__)
#define MAX_ROWS \
  { 0, kTileRows[1], kTileRows[2], 0, kTileRows[4] }
static void tile(int rows, int vectors, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  find_neon_tile(rows, vectors, from)(from, weights, bias, sums);
}
#else
constexpr int kWeightBytes = 4;
/// Compute a tile of ROWS pixels by VECTORS vectors of output channels in registers.
template <int ROWS, int VECTORS>
static void tile_of(const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  Ints sum[ROWS][VECTORS], flip = splat(from.flip);
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n)
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m) sum[m][n] = load(bias + n * kLanes);
  const int64_t step = from.step;
  for (int64_t s = 0; s < from.segment_count; ++s) {
    const uint8_t* p[(ROWS + 2) / 3];
#pragma GCC unroll 5
    for (int m = 0; m < (ROWS + 2) / 3; ++m) {
      p[m] = from.segments[s] + from.offset + 3 * m * step;
      asm(""
          : "+r"(
              p[m]));  // keeps the compiler from using one pointer for each row, which exceeds the number of registers
    }
    for (int64_t k = 0; k < from.words; ++k, weights += VECTORS * 4 * kLanes) {
      Ints w[VECTORS];
#pragma GCC unroll 4
      for (int n = 0; n < VECTORS; ++n) w[n] = load(weights + n * 4 * kLanes);
#pragma GCC unroll 16
      for (int m = 0; m < ROWS; ++m) {
        Ints x = exclusive_or(splat(word(p[m / 3] + m % 3 * step)), flip);
#pragma GCC unroll 4
        for (int n = 0; n < VECTORS; ++n) sum[m][n] = dot(sum[m][n], x, w[n]);
      }
#pragma GCC unroll 5
      for (int m = 0; m < (ROWS + 2) / 3; ++m) p[m] += 4;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) store(sums + (m * VECTORS + n) * kLanes, sum[m][n]);
}

typedef void (*Tile)(const Q8Rows&, const int8_t*, const int32_t*, int32_t*);

#if defined(__AVX512VNNI__)
constexpr Tile kTiles[4][15] = {
    {nullptr, tile_of<1, 1>, tile_of<2, 1>, tile_of<3, 1>, tile_of<4, 1>, tile_of<5, 1>, tile_of<6, 1>, tile_of<7, 1>,
     tile_of<8, 1>, tile_of<9, 1>, tile_of<10, 1>, tile_of<11, 1>, tile_of<12, 1>, tile_of<13, 1>, tile_of<14, 1>},
    {nullptr, tile_of<1, 2>, tile_of<2, 2>, tile_of<3, 2>, tile_of<4, 2>, tile_of<5, 2>, tile_of<6, 2>, tile_of<7, 2>,
     tile_of<8, 2>, tile_of<9, 2>, tile_of<10, 2>, tile_of<11, 2>, tile_of<12, 2>},
    {},
    {nullptr, tile_of<1, 4>, tile_of<2, 4>, tile_of<3, 4>, tile_of<4, 4>, tile_of<5, 4>, tile_of<6, 4>}};
#define MAX_ROWS \
  { 0, 14, 12, 0, 6 }
#elif defined(__AVX512BW__)
constexpr Tile kTiles[4][15] = {
    {nullptr, tile_of<1, 1>, tile_of<2, 1>, tile_of<3, 1>, tile_of<4, 1>, tile_of<5, 1>, tile_of<6, 1>},
    {nullptr, tile_of<1, 2>, tile_of<2, 2>, tile_of<3, 2>, tile_of<4, 2>, tile_of<5, 2>, tile_of<6, 2>},
    {},
    {nullptr, tile_of<1, 4>, tile_of<2, 4>, tile_of<3, 4>, tile_of<4, 4>}};
#define MAX_ROWS \
  { 0, 6, 6, 0, 4 }
#else
constexpr Tile kTiles[4][15] = {{nullptr, tile_of<1, 1>, tile_of<2, 1>, tile_of<3, 1>, tile_of<4, 1>},
                                {nullptr, tile_of<1, 2>, tile_of<2, 2>, tile_of<3, 2>},
                                {},
                                {nullptr, tile_of<1, 4>, tile_of<2, 4>}};
#define MAX_ROWS \
  { 0, 4, 3, 0, 2 }
#endif

static void tile(int rows, int vectors, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  kTiles[vectors - 1][rows](from, weights, bias, sums);
}
#endif

#if defined(__AVX512VNNI__)
#define ROW_TILE row_tile
/// Compute a tile for three horizontally neighbouring taps. Each pixel is loaded once for all three.
template <int ROWS>
static void row_tile_of(const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  Ints sum[ROWS], flip = splat(from.flip);
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m) sum[m] = load(bias);
  const int64_t words = from.words / 3, step = from.step, tap = words * 4 * kLanes;
  for (int64_t s = 0; s < from.segment_count; ++s, weights += 2 * tap) {
    const uint8_t* p[(ROWS + 4) / 3];
#pragma GCC unroll 6
    for (int m = 0; m < (ROWS + 4) / 3; ++m) {
      p[m] = from.segments[s] + from.offset + 3 * m * step;
      asm("" : "+r"(p[m]));
    }
    for (int64_t k = 0; k < words; ++k, weights += 4 * kLanes) {
      Ints a = load(weights), b = load(weights + tap), c = load(weights + 2 * tap);
#pragma GCC unroll 16
      for (int m = 0; m < ROWS + 2; ++m) {
        Ints x = exclusive_or(splat(word(p[m / 3] + m % 3 * step)), flip);
        if (m < ROWS) sum[m] = dot(sum[m], x, a);
        if (m > 0 && m <= ROWS) sum[m - 1] = dot(sum[m - 1], x, b);
        if (m > 1) sum[m - 2] = dot(sum[m - 2], x, c);
      }
#pragma GCC unroll 6
      for (int m = 0; m < (ROWS + 4) / 3; ++m) p[m] += 4;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < ROWS; ++m) store(sums + m * kLanes, sum[m]);
}

constexpr Tile kRowTiles[15] = {nullptr,         row_tile_of<1>,  row_tile_of<2>,  row_tile_of<3>,  row_tile_of<4>,
                                row_tile_of<5>,  row_tile_of<6>,  row_tile_of<7>,  row_tile_of<8>,  row_tile_of<9>,
                                row_tile_of<10>, row_tile_of<11>, row_tile_of<12>, row_tile_of<13>, row_tile_of<14>};

static void row_tile(int rows, const Q8Rows& from, const int8_t* weights, const int32_t* bias, int32_t* sums) {
  kRowTiles[rows](from, weights, bias, sums);
}
#else
#define ROW_TILE nullptr  // without VNNI, the multiplications take longer than the loads
#endif

#if defined(__aarch64__)
/// Compute the sums of one contiguous pixel and a panel, and move `weights` to the next panel.
template <int VECTORS>
CPUACC_INLINE void multiply_row(const uint8_t* from, int64_t words, Ints flip, const int8_t*& weights,
                                const int32_t* bias, Ints (&sums)[VECTORS]) {
  RowSums<VECTORS> sum(bias);
  int64_t k = words;
  for (; k >= 4; k -= 4, from += 16, weights += VECTORS * 64) sum.add_four(exclusive_or(load(from), flip), weights);
  for (; k > 0; k -= RowSums<VECTORS>::kWords, from += kWeightBytes, weights += VECTORS * 4 * kWeightBytes)
    sum.add_some(exclusive_or(RowSums<VECTORS>::load_some(from), flip), weights);
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) sums[n] = sum.total(n);
}
#else
/// Compute the sums of one contiguous pixel and a panel, and move `weights` to the next panel. Each lane has two sums,
/// so that a product does not wait for the one before.
template <int VECTORS>
CPUACC_INLINE void multiply_row(const uint8_t* from, int64_t words, Ints flip, const int8_t*& weights,
                                const int32_t* bias, Ints (&sums)[VECTORS]) {
  constexpr int size = VECTORS * 4 * kLanes;
  DotSums even[VECTORS], odd[VECTORS];
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) even[n] = dot_sums(load(bias + n * kLanes)), odd[n] = dot_sums(splat(0));
  int64_t k = 0;
  for (; k + 2 <= words; k += 2, weights += 2 * size) {
    Ints x = exclusive_or(splat(word(from + 4 * k)), flip), y = exclusive_or(splat(word(from + 4 * k + 4)), flip);
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) {
      even[n] = dot(even[n], x, load(weights + n * 4 * kLanes));
      odd[n] = dot(odd[n], y, load(weights + size + n * 4 * kLanes));
    }
  }
  if (k < words) {
    Ints x = exclusive_or(splat(word(from + 4 * k)), flip);
#pragma GCC unroll 4
    for (int n = 0; n < VECTORS; ++n) even[n] = dot(even[n], x, load(weights + n * 4 * kLanes));
    weights += size;
  }
#pragma GCC unroll 4
  for (int n = 0; n < VECTORS; ++n) sums[n] = add(total(even[n]), total(odd[n]));
}
#endif

template <int VECTORS>
static void gemv_tile_of(const uint8_t* from, int64_t words, uint32_t flip, const int8_t* weights, const int32_t* bias,
                         int32_t* sums) {
  Ints products[VECTORS];
  multiply_row<VECTORS>(from, words, splat(flip), weights, bias, products);
  for (int n = 0; n < VECTORS; ++n) store(sums + n * kLanes, products[n]);
}

static void gemv_tile(int vectors, const uint8_t* from, int64_t words, uint32_t flip, const int8_t* weights,
                      const int32_t* bias, int32_t* sums) {
  auto run = vectors == 4 ? gemv_tile_of<4> : vectors == 2 ? gemv_tile_of<2> : gemv_tile_of<1>;
  run(from, words, flip, weights, bias, sums);
}

/// Compute one panel of one pixel, from its bytes to quantized results.
template <int MODE, int VECTORS>
CPUACC_INLINE const int8_t* gemv_panel(const Q8Gemv& v, const uint8_t* from, const Q8GemvPanel& p,
                                       const int8_t* weights, uint8_t* out) {
  Ints sums[VECTORS];
  multiply_row<VECTORS>(from, v.words, splat(v.flip), weights, v.bias + p.lane, sums);
  const Panel<MODE, VECTORS> panel(*v.requantization, p.lane, 0, p.channels);
  Ints x[4];
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const int vector = n % VECTORS;
    x[n] = distance<MODE>(sums[vector], panel.factors[vector], *v.requantization, p.lane + vector * kLanes);
  }
  Ints codes = exclusive_or(saturated(x[0], x[1], x[2], x[3], panel.zero, panel.low, panel.high), panel.flip);
  if (p.channels == 4 * kLanes)
    store(out, codes);
  else
    store_piece(out, rows_of(codes, VECTORS), 0, p.channels);
  return weights;
}

template <int MODE>
static void gemv_of(const Q8Gemv& v, const uint8_t* from, uint8_t* out, int64_t first, int64_t last) {
  const int8_t* weights = v.weights + v.panels[first].offset;
  for (int64_t n = first; n < last; ++n) {
    const Q8GemvPanel& p = v.panels[n];
    uint8_t* to = out + p.first;
    if (p.vectors == 4)
      weights = gemv_panel<MODE, 4>(v, from, p, weights, to);
    else if (p.vectors == 2)
      weights = gemv_panel<MODE, 2>(v, from, p, weights, to);
    else
      weights = gemv_panel<MODE, 1>(v, from, p, weights, to);
  }
}

/// Compute panels [first, last) of one pixel; the mode of the requantization is simple.
static void gemv(const Q8Gemv& v, const uint8_t* from, uint8_t* out, int64_t first, int64_t last) {
  const Q8Requantization::Mode mode = v.requantization->mode;
  auto run = mode == Q8Requantization::single_even ? gemv_of<Q8Requantization::single_even>
                                                   : gemv_of<Q8Requantization::single>;
  if (mode == Q8Requantization::shift_up) run = gemv_of<kShiftUp>;
  if (mode == Q8Requantization::shift_away) run = gemv_of<kShiftAway>;
  run(v, from, out, first, last);
}

// ---- Depthwise ------------------------------------------------------------------------------------------------------

/// Interleave the bytes of four taps, so that each group of four bytes belongs to one channel.
CPUACC_INLINE void interleave(const uint8_t* const* from, int64_t at, Ints* to) {
  Ints a = load(from[0] + at), b = load(from[1] + at), c = load(from[2] + at), d = load(from[3] + at);
  Ints low_ab = low8(a, b), high_ab = high8(a, b), low_cd = low8(c, d), high_cd = high8(c, d);
  to[0] = low16(low_ab, low_cd);
  to[1] = high16(low_ab, low_cd);
  to[2] = low16(high_ab, high_cd);
  to[3] = high16(high_ab, high_cd);
}

/// Add the products of four taps of four vectors of channels.
CPUACC_INLINE void add_taps(DotSums (&sum)[4], const Ints (&x)[4], const int8_t* weights) {
#if defined(__ARM_FEATURE_DOTPROD)
  Ints w[4];
  load_pair<0>(weights, &w[0], &w[1]);
  load_pair<32>(weights, &w[2], &w[3]);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) sum[j] = dot(sum[j], x[j], w[j]);
#else
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) sum[j] = dot(sum[j], x[j], load(weights + j * 4 * kLanes));
#endif
}

template <int MODE, int ROWS, int SETS>
CPUACC_INLINE void depthwise_of(const Q8Depthwise& d, const uint8_t* const* taps, const Q8Requantization& f,
                                uint8_t* const* out, int64_t count) {
  constexpr int size = 4 * kLanes;
  Ints zero = shorts(f.zero), low = bytes(f.low), high = bytes(f.high), flip = splat(f.flip);
  int64_t phase = 0;
  const int8_t* w = d.weights;
  for (int64_t at = 0; at < count; at += size) {
    DotSums sum[ROWS][4];
    for (int r = 0; r < ROWS; ++r)
      for (int j = 0; j < 4; ++j) sum[r][j] = dot_sums(load(d.bias + (phase * 4 + j) * kLanes));
    for (int64_t g = 0; g < d.groups; ++g, w += ROWS * SETS * 4 * size) {
      Ints x[4];
      interleave(taps + 4 * g, at, x);
#pragma GCC unroll 6
      for (int n = 0; n < ROWS * SETS; ++n) add_taps(sum[n / SETS], x, w + n * 4 * size);
    }
    for (int r = 0; r < ROWS; ++r) {
      Ints y[4];
      for (int j = 0; j < 4; ++j) {
        int64_t lane = (phase * 4 + j) * kLanes;
        y[j] = distance<MODE>(total(sum[r][j]), factors_of<MODE>(f, lane), f, lane);
      }
      store_bytes(out[r] + at, exclusive_or(saturated(y[0], y[1], y[2], y[3], zero, low, high), flip), count - at);
    }
    if (++phase == d.period) phase = 0, w = d.weights;
  }
}

template <int ROWS, int SETS>
static void depthwise_rows(const Q8Depthwise& d, const uint8_t* const* taps, const Q8Requantization& f,
                           uint8_t* const* out, int64_t count) {
  if (f.mode == Q8Requantization::single)
    depthwise_of<Q8Requantization::single, ROWS, SETS>(d, taps, f, out, count);
  else if (f.mode == Q8Requantization::shift_up)
    depthwise_of<kShiftUp, ROWS, SETS>(d, taps, f, out, count);
  else if (f.mode == Q8Requantization::shift_away)
    depthwise_of<kShiftAway, ROWS, SETS>(d, taps, f, out, count);
  else if (f.mode == Q8Requantization::single_even)
    depthwise_of<Q8Requantization::single_even, ROWS, SETS>(d, taps, f, out, count);
  else if (f.mode == Q8Requantization::twofold)
    depthwise_of<Q8Requantization::twofold, ROWS, SETS>(d, taps, f, out, count);
  else if (f.mode == Q8Requantization::twofold_even)
    depthwise_of<Q8Requantization::twofold_even, ROWS, SETS>(d, taps, f, out, count);
  else if (kHasShifts && f.mode == Q8Requantization::fixed_point)
    depthwise_of<Q8Requantization::fixed_point, ROWS, SETS>(d, taps, f, out, count);
  else
    depthwise_of<Q8Requantization::real, ROWS, SETS>(d, taps, f, out, count);
}

static void depthwise(const Q8Depthwise& d, const uint8_t* const* taps, const Q8Requantization& f, uint8_t* const* out,
                      int64_t count) {
  if (d.sets == 3)
    (d.rows == 2 ? depthwise_rows<2, 3> : depthwise_rows<1, 3>)(d, taps, f, out, count);
  else if (d.sets == 2)
    (d.rows == 2 ? depthwise_rows<2, 2> : depthwise_rows<1, 2>)(d, taps, f, out, count);
  else
    (d.rows == 2 ? depthwise_rows<2, 1> : depthwise_rows<1, 1>)(d, taps, f, out, count);
}

// ---- Bytes ----------------------------------------------------------------------------------------------------------

/// Call `compute(n, bytes)` for each vector of bytes from element n; only the last one may have fewer bytes.
template <class Compute>
CPUACC_INLINE void each_vector(int64_t count, const Compute& compute) {
  constexpr int64_t kBytes = 4 * kLanes;
  int64_t n = 0;
  for (; n + kBytes <= count; n += kBytes) compute(n, kBytes);
  if (n < count) compute(n, count - n);
}

static void copy(uint8_t* to, const uint8_t* from, int64_t count, uint32_t flip) {
  Ints mask = splat(flip);
  each_vector(
      count, [&](int64_t n, int64_t bytes) __attribute__((always_inline)) {
        store_bytes(to + n, exclusive_or(load_bytes(from + n, bytes), mask), bytes);
      });
}

/// Copy pixels of SIZE bytes.
template <int SIZE>
CPUACC_INLINE void gather_pixels(uint8_t* to, const uint8_t* from, int64_t pixels, int64_t step) {
  for (int64_t n = 0; n < pixels; ++n) memcpy(to + n * SIZE, from + n * step, SIZE);
}

static void gather(uint8_t* to, const uint8_t* from, int64_t pixels, int64_t channels, int64_t step, int64_t times,
                   uint32_t flip) {
  uint8_t* end = to + pixels * channels * times;
  if (times > 1) {
    for (int64_t n = 0; n < pixels; ++n)
      for (int64_t c = 0; c < channels; ++c)
        memset(to + (n * channels + c) * times, from[n * step + c], static_cast<size_t>(times));
  } else if (channels == 8) {
    gather_pixels<8>(to, from, pixels, step);
  } else if (channels == 16) {
    gather_pixels<16>(to, from, pixels, step);
  } else if (channels == 32) {
    gather_pixels<32>(to, from, pixels, step);
  } else {
    for (int64_t n = 0; n < pixels; ++n) copy(to + n * channels, from + n * step, channels, flip);
    return;
  }
  if (flip) copy(to, to, end - to, flip);
}

static void add_elements(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t count, uint32_t flip_a,
                         const Q8Add& add) {
  const Q8Add q = add;  // the compiler need not expect that stores to `out` change it
  const Ints mask_a = splat(flip_a), mask_b = splat(q.flip_b), mask = splat(q.flip);
  const auto add_with = [&](const auto& formula) __attribute__((always_inline)) {
    each_vector(
        count, [&](int64_t n, int64_t bytes) __attribute__((always_inline)) {
          const Ints x = exclusive_or(load_bytes(a + n, bytes), mask_a),
                     y = exclusive_or(load_bytes(b + n, bytes), mask_b);
          store_bytes(out + n, exclusive_or(formula(x, y), mask), bytes);
        });
  };
  const ExactAdd exact(q);
  if (q.is_exact)
    add_with([&](Ints x, Ints y) __attribute__((always_inline)) { return added_exactly(x, y, exact); });
  else
    add_with([&](Ints x, Ints y) __attribute__((always_inline)) { return add_quantized(x, y, q); });
}

template <bool TO_EVEN>
CPUACC_INLINE Ints multiplied(Ints a, Ints b, const Q8Multiply& q) {
  if (TO_EVEN)
    return steps_of(rounded(real_of(a, q.zero_a, q.scales.a) * real_of(b, q.zero_b, q.scales.b)), q.scales.out);
  Ints x = subtract(a, splat(static_cast<uint32_t>(q.zero_a))), y = subtract(b, splat(static_cast<uint32_t>(q.zero_b)));
  return fixed_point(multiply(x, y), splat(static_cast<uint32_t>(q.multiplier)), splat(static_cast<uint32_t>(q.shift)));
}

template <bool TO_EVEN>
static void multiply_elements_of(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t count,
                                 const Q8Multiply& product) {
  const Q8Multiply q = product;  // the compiler need not expect that stores to `out` change it
  const Ints flip_a = splat(q.flip_a), flip_b = splat(q.flip_b), flip = splat(q.flip), none = splat(0);
  const Ints only_a = bytes(*a), only_b = bytes(*b), zero = shorts(q.zero), low = bytes(0), high = bytes(255);
  each_vector(
      count, [&](int64_t n, int64_t size) __attribute__((always_inline)) {
        const Ints x = exclusive_or(q.one_a ? only_a : load_bytes(a + n, size), flip_a);
        const Ints y = exclusive_or(q.one_b ? only_b : load_bytes(b + n, size), flip_b);
        const Ints x0 = low8(x, none), x1 = high8(x, none), y0 = low8(y, none), y1 = high8(y, none);
        const Ints p = multiplied<TO_EVEN>(low16(x0, none), low16(y0, none), q),
                   r = multiplied<TO_EVEN>(high16(x0, none), high16(y0, none), q),
                   s = multiplied<TO_EVEN>(low16(x1, none), low16(y1, none), q),
                   t = multiplied<TO_EVEN>(high16(x1, none), high16(y1, none), q);
        store_bytes(out + n, exclusive_or(saturated(p, r, s, t, zero, low, high), flip), size);
      });
}

static void multiply_elements(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t count, const Q8Multiply& q) {
  (q.to_even ? multiply_elements_of<true> : multiply_elements_of<false>)(a, b, out, count, q);
}

/// Sums of up to 256 bytes fit 16 bits.
static void add_rows(const uint8_t* from, int64_t rows, int64_t step, int64_t count, bool flip, uint32_t* sums) {
  constexpr int64_t width = 64;
  const uint8_t mask = flip ? 0x80 : 0;
  for (int64_t first = 0; first < count; first += width) {
    const int64_t bytes = count - first < width ? count - first : width;
    for (int64_t row = 0; row < rows; row += 256) {
      uint16_t part[width] = {};
      const int64_t last = row + 256 < rows ? row + 256 : rows;
      const uint8_t* at = from + row * step + first;
      if (bytes == width)
        for (int64_t r = row; r < last; ++r, at += step)
          for (int64_t n = 0; n < width; ++n) part[n] = static_cast<uint16_t>(part[n] + (at[n] ^ mask));
      else
        for (int64_t r = row; r < last; ++r, at += step)
          for (int64_t n = 0; n < bytes; ++n) part[n] = static_cast<uint16_t>(part[n] + (at[n] ^ mask));
      for (int64_t n = 0; n < bytes; ++n) sums[first + n] += part[n];
    }
  }
}

static void weave_four(const uint8_t* from, int64_t step, int64_t bytes, uint8_t mask, uint8_t* __restrict to) {
  const uint8_t *a = from, *b = from + step, *c = from + 2 * step, *d = from + 3 * step;
  for (int64_t n = 0; n < bytes; ++n) {
    to[4 * n] = a[n] ^ mask;
    to[4 * n + 1] = b[n] ^ mask;
    to[4 * n + 2] = c[n] ^ mask;
    to[4 * n + 3] = d[n] ^ mask;
  }
}

static void weave(const uint8_t* from, int64_t rows, int64_t step, int64_t bytes, bool flip, uint8_t* to) {
  const uint8_t mask = flip ? 0x80 : 0;
  if (rows == 4) return weave_four(from, step, bytes, mask, to);
  for (int64_t n = 0; n < bytes; ++n)
    for (int64_t row = 0; row < 4; ++row) to[4 * n + row] = row < rows ? from[row * step + n] ^ mask : 0;
}

static uint32_t sum(const uint8_t* from, int64_t count, bool flip) {
  constexpr int64_t width = 64;
  uint32_t sums[width] = {}, total = 0;
  add_rows(from, count / width, width, width, flip, sums);
  for (uint32_t each : sums) total += each;
  for (int64_t n = count / width * width; n < count; ++n) total += static_cast<uint8_t>(from[n] ^ (flip ? 0x80 : 0));
  return total;
}

/// The greatest byte of one row.
static uint8_t greatest(const uint8_t* from, int64_t count, uint8_t mask, uint8_t most) {
  for (int64_t n = 0; n < count; ++n) {
    const uint8_t x = from[n] ^ mask;
    most = x > most ? x : most;
  }
  return most;
}

static void raise(const uint8_t* from, int64_t rows, int64_t step, int64_t count, uint8_t mask, uint8_t* most) {
  if (count == 1 && step == 1) {
    *most = greatest(from, rows, mask, *most);
    return;
  }
  for (int64_t row = 0; row < rows; ++row, from += step)
    for (int64_t n = 0; n < count; ++n) {
      const uint8_t x = from[n] ^ mask;
      most[n] = x > most[n] ? x : most[n];
    }
}

static void clamp(const uint8_t* from, uint8_t* to, int64_t count, uint32_t flip, int low, int high) {
  const Ints mask = splat(flip), least = bytes(low), most = bytes(high);
  each_vector(
      count, [&](int64_t n, int64_t size) __attribute__((always_inline)) {
        const Ints x = clamp_bytes(exclusive_or(load_bytes(from + n, size), mask), least, most);
        store_bytes(to + n, exclusive_or(x, mask), size);
      });
}

/// The least and the greatest of 0 and the numbers of each lane, and the lanes in which a number was NaN.
struct Extremes {
  Vec low = broadcast(0), high = broadcast(0);
  IntVec unordered = {};

  void include(Vec x) {
    low = at_most(x, low), high = at_least(x, high);
    unordered |= x != x;
  }

  void include(const Extremes& others) {
    include(others.low), include(others.high);
    unordered |= others.unordered;
  }
};

static void find_range(const float* from, int64_t count, float* range) {
  constexpr int kChains = 4;  // a minimum waits for the one before it
  Extremes chains[kChains], &all = chains[0];
  int64_t n = 0;
  for (; n + kChains * kLanes <= count; n += kChains * kLanes)
    for (int chain = 0; chain < kChains; ++chain) chains[chain].include(load(from + n + chain * kLanes));
  for (; n + kLanes <= count; n += kLanes) all.include(load(from + n));
  for (int chain = 1; chain < kChains; ++chain) all.include(chains[chain]);
  float least = 0, most = 0;
  bool is_nan = any_lane(all.unordered);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (all.low[lane] < least) least = all.low[lane];
    if (all.high[lane] > most) most = all.high[lane];
  }
  for (; n < count; ++n) {
    if (from[n] < least) least = from[n];
    if (from[n] > most) most = from[n];
    is_nan = is_nan || from[n] != from[n];
  }
  range[0] = is_nan ? __builtin_nanf("") : least;
  range[1] = is_nan ? __builtin_nanf("") : most;
}

/// Quantize one vector, without its zero point: round(x / scale) within [low, high], and `none` for NaN.
template <bool EVEN>
CPUACC_INLINE Ints steps_of(Vec x, const Q8Quantization& q) {
  Vec steps = x / broadcast(q.scale);
  Vec inside = at_most(at_least(steps, broadcast(q.low)), broadcast(q.high));
  inside = steps == steps ? inside : broadcast(q.none);
  if (EVEN) return nearest(inside);
  Ints whole = truncated(inside);
  Vec rest = inside - floats(whole), one = broadcast(1), zero = broadcast(0);
  Vec more = rest >= broadcast(0.5f) ? one : rest <= broadcast(-0.5f) ? zero - one : zero;
  return add(whole, truncated(more));
}

template <bool EVEN>
static void quantize_elements(const float* from, uint8_t* to, int64_t count, const Q8Quantization& q) {
  const Ints zero = splat(static_cast<uint32_t>(q.zero));
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) store_low_bytes(to + n, add(steps_of<EVEN>(load(from + n), q), zero));
  if (n == count) return;
  float rest[kLanes] = {};
  uint8_t quantized[kLanes];
  memcpy(rest, from + n, static_cast<size_t>(count - n) * sizeof(float));
  store_low_bytes(quantized, add(steps_of<EVEN>(load(rest), q), zero));
  memcpy(to + n, quantized, static_cast<size_t>(count - n));
}

static void quantize(const float* from, uint8_t* to, int64_t count, const Q8Quantization& q) {
  (q.to_even ? quantize_elements<true> : quantize_elements<false>)(from, to, count, q);
}

static void add_product(int32_t* sums, const int16_t* row, int32_t factor, int64_t count) {
  for (int64_t n = 0; n < count; ++n)
    sums[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) + static_cast<uint32_t>(row[n] * factor));
}

/// The numbers are products of integers of 9 bits and a scale, rounded once.
template <class Stored>
static void dequantize_elements(const Stored* from, float* to, int64_t count, float scale, int32_t zero) {
  for (int64_t n = 0; n < count; ++n) to[n] = static_cast<float>(static_cast<int32_t>(from[n]) - zero) * scale;
}

static void dequantize(const uint8_t* from, float* to, int64_t count, bool is_signed, float scale, int32_t zero) {
  if (is_signed)
    dequantize_elements(reinterpret_cast<const int8_t*>(from), to, count, scale, zero);
  else
    dequantize_elements(from, to, count, scale, zero);
}

#if defined(__AVX512VNNI__)
/// Look up 64 values at once, each in both halves of the table.
__attribute__((target("avx512vbmi"))) static void look_up_in_registers(const uint8_t* from, uint8_t* to, int64_t count,
                                                                       const uint8_t* table) {
  const Ints a = load(table), b = load(table + 64), c = load(table + 128), d = load(table + 192);
  for (int64_t n = 0; n < count; n += 64) {
    const uint64_t mask = lowest_bytes(count - n < 64 ? count - n : 64);
    const Ints x = _mm512_maskz_loadu_epi8(mask, from + n);
    const Ints low = _mm512_permutex2var_epi8(a, x, b), high = _mm512_permutex2var_epi8(c, x, d);
    _mm512_mask_storeu_epi8(to + n, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
  }
}
#endif

#if defined(__aarch64__)
CPUACC_INLINE uint8x16x4_t load_quarter(const uint8_t* from) {
  return {{vld1q_u8(from), vld1q_u8(from + 16), vld1q_u8(from + 32), vld1q_u8(from + 48)}};
}

/// Look up 16 values at once, each in all quarters of the table. TBX leaves a byte whose index is beyond its quarter.
static void look_up_in_quarters(const uint8_t* from, uint8_t* to, int64_t count, const uint8_t* table) {
  const uint8x16x4_t a = load_quarter(table), b = load_quarter(table + 64), c = load_quarter(table + 128),
                     d = load_quarter(table + 192);
  const uint8x16_t quarter = vdupq_n_u8(64);
  each_vector(
      count, [&](int64_t n, int64_t size) __attribute__((always_inline)) {
        uint8x16_t x = as_u8(load_bytes(from + n, size)), found = vqtbl4q_u8(a, x);
        found = vqtbx4q_u8(found, b, x = vsubq_u8(x, quarter));
        found = vqtbx4q_u8(found, c, x = vsubq_u8(x, quarter));
        store_bytes(to + n, as_ints(vqtbx4q_u8(found, d, vsubq_u8(x, quarter))), size);
      });
}
#endif

static int32_t sum_squares(const uint8_t* from, int64_t count, uint32_t flip, int32_t zero) {
  const uint8_t mask = static_cast<uint8_t>(flip);
  const int16_t middle = static_cast<int16_t>(zero);
  int32_t sum = 0;
  for (int64_t n = 0; n < count; ++n) {
    const int16_t distance = static_cast<int16_t>((from[n] ^ mask) - middle);
    sum += distance * distance;
  }
  return sum;
}

static void scale(const uint8_t* from, uint8_t* to, int64_t count, uint32_t flip, int32_t zero,
                  const Q8Factor& factor) {
  const uint8_t mask = static_cast<uint8_t>(flip);
  const int32_t left = factor.left, high = factor.high, low = factor.low, right = factor.right;
  const int32_t half = right ? 1 << (right - 1) : 0, negative = right ? 1 : 0;
  for (int64_t n = 0; n < count; ++n) {
    const int32_t x = ((from[n] ^ mask) - zero) * (1 << left);
    const int32_t product = (x * high + ((x * low + (1 << 30)) >> 15)) >> 16;
    const int32_t scaled = 128 + ((product + half - (product < 0 ? negative : 0)) >> right);
    const int32_t clamped = scaled < 0 ? 0 : scaled > 255 ? 255 : scaled;
    to[n] = static_cast<uint8_t>(clamped ^ mask);
  }
}

static void look_up(const uint8_t* from, uint8_t* to, int64_t count, const uint8_t* table) {
#if defined(__AVX512VNNI__)
  static const bool has_permutations = __builtin_cpu_supports("avx512vbmi");
  if (has_permutations) return look_up_in_registers(from, to, count, table);
#elif defined(__aarch64__)
  return look_up_in_quarters(from, to, count, table);
#endif
  for (int64_t n = 0; n < count; ++n) to[n] = table[from[n]];
}

// ---- Values of 16 bits ----------------------------------------------------------------------------------------------

/// The exponents of the highest bits of positive integers of up to 24 bits.
CPUACC_INLINE IntVec highest_bit(IntVec x) {
  return (reinterpret_cast<IntVec>(floats(reinterpret_cast<Ints>(x))) >> 23) - 127;
}

/// The quotient of integers of 17 bits, rescaled: `native::quotient`, and the zero point of the result.
CPUACC_INLINE IntVec quotient(IntVec a, IntVec b, const Q16Pair& q) {
  const IntVec none = {}, sign = b >> 31, divisor = b == none ? none + 1 : (b ^ sign) - sign;
  const IntVec dividend = b == none ? none : (a ^ sign) - sign;
  const IntVec bit = highest_bit((dividend < none ? -2 * dividend - 1 : dividend) | 1);
  const IntVec scaled = high_product(dividend, gathered(q.inverses, divisor), 30 - bit);
  const IntVec shift = q.out.shift - highest_bit(divisor) - 30 + bit;
  return clamped16(far_fixed_point(scaled, none + q.out.multiplier, shift), q.out.zero);
}

template <Q16Operation OPERATION>
CPUACC_INLINE Vec combined(Vec x, Vec y) {
  if (OPERATION == Q16Operation::sum) return x + y;
  return OPERATION == Q16Operation::product ? rounded(x * y) : x / y;
}

template <Q16Operation OPERATION, bool TO_EVEN>
CPUACC_INLINE Ints combined(Ints a, Ints b, const Q16Pair& q) {
  if (TO_EVEN) {
    const Vec x = real_of(a, q.a.zero, q.scales.a), y = real_of(b, q.b.zero, q.scales.b);
    return add(steps_of(combined<OPERATION>(x, y), q.scales.out), splat(static_cast<uint32_t>(q.out.zero)));
  }
  if (OPERATION == Q16Operation::quotient)
    return reinterpret_cast<Ints>(
        quotient(reinterpret_cast<IntVec>(a) - q.a.zero, reinterpret_cast<IntVec>(b) - q.b.zero, q));
  const auto scaled = [](Ints x, const Q8Add::Factor& f) {
    return fixed_point(x, splat(static_cast<uint32_t>(f.multiplier)), splat(static_cast<uint32_t>(f.shift)));
  };
  if (OPERATION == Q16Operation::product) return scaled(multiply(a, b), q.out);
  return scaled(add(scaled(shift_left<15>(a), q.a), scaled(shift_left<15>(b), q.b)), q.out);
}

template <Q16Operation OPERATION, bool TO_EVEN>
static void combine_shorts_of(const int16_t* a, const int16_t* b, int16_t* out, int64_t count, const Q16Pair& pair) {
  const Q16Pair q = pair;  // the compiler need not expect that stores to `out` change it
  const Ints none = splat(0), half = splat(0x8000), high_bit = shorts(-32768), only_a = shorts(*a), only_b = shorts(*b);
  const auto *from_a = reinterpret_cast<const uint8_t*>(a), *from_b = reinterpret_cast<const uint8_t*>(b);
  each_vector(
      2 * count, [&](int64_t n, int64_t size) __attribute__((always_inline)) {
        const Ints x = exclusive_or(q.one_a ? only_a : load_bytes(from_a + n, size), high_bit);
        const Ints y = exclusive_or(q.one_b ? only_b : load_bytes(from_b + n, size), high_bit);
        const Ints low =
            combined<OPERATION, TO_EVEN>(subtract(low16(x, none), half), subtract(low16(y, none), half), q);
        const Ints high =
            combined<OPERATION, TO_EVEN>(subtract(high16(x, none), half), subtract(high16(y, none), half), q);
        store_bytes(reinterpret_cast<uint8_t*>(out) + n, to_shorts(low, high), size);
      });
}

template <Q16Operation OPERATION>
static void combine_shorts_by(const int16_t* a, const int16_t* b, int16_t* out, int64_t count, const Q16Pair& q) {
  (q.to_even ? combine_shorts_of<OPERATION, true> : combine_shorts_of<OPERATION, false>)(a, b, out, count, q);
}

static void combine_shorts(const int16_t* a, const int16_t* b, int16_t* out, int64_t count, const Q16Pair& q) {
  switch (q.operation) {
    case Q16Operation::sum:
      return combine_shorts_by<Q16Operation::sum>(a, b, out, count, q);
    case Q16Operation::product:
      return combine_shorts_by<Q16Operation::product>(a, b, out, count, q);
    default:
      return combine_shorts_by<Q16Operation::quotient>(a, b, out, count, q);
  }
}

}  // namespace

extern const GemmQ8Kernels gemm_q8_kernels = {kLanes,   kSignedDots, kWeightBytes, kHasShifts, MAX_ROWS, tile,
                                              ROW_TILE, gemv_tile,   gemv,         requantize, convert};
extern const DepthwiseQ8Kernels depthwise_q8_kernels = {kLanes, kSignedDots, depthwise};
extern const ElementwiseQ8Kernels elementwise_q8_kernels = {
    copy,    gather,     add_elements, multiply_elements, add_rows,   weave,       sum,   raise,         clamp,
    look_up, find_range, quantize,     add_product,       dequantize, sum_squares, scale, combine_shorts};

}  // namespace cpuacc::ISA_NS
