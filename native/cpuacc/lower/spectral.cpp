// Fourier transforms: Dft and Stft. Several transforms are computed at once, in lanes, in the type of the operand. Two
// real signals are one complex one. Lengths with large prime factors use Bluestein's algorithm.

#include <algorithm>
#include <cmath>

#include "cpuacc/kernels/fft.hpp"
#include "cpuacc/lower/cost_model.hpp"
#include "cpuacc/lower/reals.hpp"

namespace cpuacc {
namespace {

constexpr int64_t kLargestRadix = 13;
constexpr int64_t kLaneBytes = 256 * 1024;  // of the arrays of all lanes, so that they stay in the cache
constexpr int64_t kMostLanes = 16;

/// Cosine and sine of 2 pi numerator / denominator.
template <class T>
void root(int64_t numerator, int64_t denominator, T* to) {
  const double angle = 2 * M_PI * double(numerator % denominator) / double(denominator);
  to[0] = T(std::cos(angle)), to[1] = T(std::sin(angle));
}

/// The radices of a length; empty if it has a larger prime factor.
std::vector<int64_t> radices_of(int64_t length) {
  std::vector<int64_t> radices;
  for (int64_t radix : {4, 2, 3, 5, 7, 11, 13})
    for (; length % radix == 0; length /= radix) radices.push_back(radix);
  return length == 1 ? radices : std::vector<int64_t>();
}

/// A complex transform whose length has small prime factors.
template <class T>
struct SmoothPlan {
  int64_t length = 0;
  std::vector<FftPass<T>> passes;  // with strides for one lane

  SmoothPlan() = default;
  SmoothPlan(int64_t length, Builder& builder) : length(length) {
    int64_t left = length, stride = 1;
    for (int64_t radix : radices_of(length)) {
      const int64_t m = left / radix;
      passes.push_back({radix, m, stride, twiddles(builder, left, radix), roots(builder, radix)});
      left = m, stride *= radix;
    }
  }

  static const T* twiddles(Builder& builder, int64_t length, int64_t radix) {
    const int64_t m = length / radix;
    return static_cast<const T*>(builder.pack(uint64_t(2 * m * (radix - 1)) * sizeof(T), [&](void* to) {
      T* out = static_cast<T*>(to);
      for (int64_t p = 0; p < m; ++p)
        for (int64_t k = 1; k < radix; ++k, out += 2) root(length - p * k % length, length, out);
    }));
  }

  static const T* roots(Builder& builder, int64_t radix) {
    return static_cast<const T*>(builder.pack(uint64_t(2 * radix) * sizeof(T), [&](void* to) {
      for (int64_t k = 0; k < radix; ++k) root(radix - k, radix, static_cast<T*>(to) + 2 * k);
    }));
  }
};

/// Arrays of real and imaginary parts, [element][lane], and as many to work in.
template <class T>
struct Signals {
  T *re, *im, *work_re, *work_im;

  void swap() { std::swap(re, work_re), std::swap(im, work_im); }
  void turn() { std::swap(re, im), std::swap(work_re, work_im); }
};

void run_pass(const FftKernels& kernels, const FftPass<float>& pass, const Signals<float>& x) {
  kernels.pass32(pass, x.re, x.im, x.work_re, x.work_im);
}
void run_pass(const FftKernels& kernels, const FftPass<double>& pass, const Signals<double>& x) {
  kernels.pass64(pass, x.re, x.im, x.work_re, x.work_im);
}

template <class T>
void transform(const FftKernels& kernels, const SmoothPlan<T>& plan, int64_t lanes, Signals<T>& x) {
  for (FftPass<T> pass : plan.passes) {
    pass.s *= lanes;
    run_pass(kernels, pass, x);
    x.swap();
  }
}

/// A complex transform of any length. The sum over a quadratic phase is a convolution of a smooth length.
template <class T>
struct Plan {
  const FftKernels* kernels = nullptr;
  int64_t length = 0;
  SmoothPlan<T> smooth;
  const T* chirp = nullptr;     // Bluestein: cosine and sine of -pi n^2 / length; else nullptr
  const T* spectrum = nullptr;  // of the conjugate chirp

  Plan() = default;
  Plan(int64_t length, Builder& builder) : kernels(&fft_kernels_for(builder.settings.isa)), length(length) {
    if (length == 1 || !radices_of(length).empty()) {
      smooth = SmoothPlan<T>(length, builder);
      return;
    }
    int64_t size = 1;
    while (size < 2 * length - 1) size *= 2;
    smooth = SmoothPlan<T>(size, builder);
    chirp = static_cast<const T*>(builder.pack(uint64_t(2 * length) * sizeof(T), [&](void* to) {
      for (int64_t n = 0; n < length; ++n) phase(n, static_cast<T*>(to) + 2 * n);
    }));
    spectrum = static_cast<const T*>(
        builder.pack(uint64_t(2 * size) * sizeof(T), [&](void* to) { fill_spectrum(static_cast<T*>(to)); }));
  }

  int64_t room() const { return smooth.length; }

  void run(Signals<T>& x, int64_t lanes) const {
    if (!chirp) return transform(*kernels, smooth, lanes, x);
    multiply(x, lanes, chirp, length);
    std::fill_n(x.re + length * lanes, (room() - length) * lanes, T(0));
    std::fill_n(x.im + length * lanes, (room() - length) * lanes, T(0));
    transform(*kernels, smooth, lanes, x);
    multiply(x, lanes, spectrum, room());
    x.turn();
    transform(*kernels, smooth, lanes, x);
    x.turn();
    multiply(x, lanes, chirp, length);
  }

 private:
  void phase(int64_t n, T* to) const {
    const int64_t square = n % (2 * length) * n % (2 * length);
    root(2 * length - square, 2 * length, to);
  }

  void fill_spectrum(T* to) const {
    std::vector<T> memory(size_t(4 * room()), T(0));
    Signals<T> x{memory.data(), memory.data() + room(), memory.data() + 2 * room(), memory.data() + 3 * room()};
    for (int64_t n = 0; n < length; ++n) {
      T of_phase[2];
      phase(n, of_phase);
      for (int64_t at : {n, (room() - n) % room()}) x.re[at] = of_phase[0], x.im[at] = -of_phase[1];
    }
    transform(*kernels, smooth, 1, x);
    for (int64_t n = 0; n < room(); ++n) to[2 * n] = x.re[n] / T(room()), to[2 * n + 1] = x.im[n] / T(room());
  }

  static void multiply(Signals<T>& x, int64_t lanes, const T* factors, int64_t count) {
    for (int64_t n = 0; n < count; ++n) {
      const T c = factors[2 * n], d = factors[2 * n + 1];
      T *re = x.re + n * lanes, *im = x.im + n * lanes;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T real = re[lane] * c - im[lane] * d;
        im[lane] = re[lane] * d + im[lane] * c, re[lane] = real;
      }
    }
  }
};

/// Where the elements of each transform are, in elements: transform `t` begins at t / inner * outer_step + t % inner *
/// inner_step.
struct Places {
  int64_t inner, outer_step, inner_step, step;

  int64_t of(int64_t t) const { return t / inner * outer_step + t % inner * inner_step; }
};

/// All transforms of a layer.
template <class T>
struct Transforms {
  Plan<T> plan;
  Places in, out;
  int64_t count, given, outputs;  // transforms; elements that are read, and written, of each
  bool is_complex, is_inverse, is_hermitian, has_window;
  int64_t lanes;

  bool pairs() const { return !is_complex && !is_inverse; }
  int64_t together() const { return lanes * (pairs() ? 2 : 1); }
  uint64_t scratch() const { return uint64_t(4 * plan.room() * lanes) * sizeof(T); }

  T factor(const T* window, int64_t n) const { return window ? window[n] : T(1); }

  /// Read the transforms [first, last) into the lanes. The second half of real signals are imaginary parts.
  void gather(const T* from, const T* window, int64_t first, int64_t last, Signals<T>& x) const {
    std::fill_n(x.re, plan.length * lanes, T(0));
    std::fill_n(x.im, plan.length * lanes, T(0));
    for (int64_t t = first; t < last; ++t) {
      const int64_t lane = (t - first) % lanes;
      const T* signal = from + in.of(t);
      T* to = t - first < lanes ? x.re : x.im;
      for (int64_t n = 0; n < given; ++n) {
        to[n * lanes + lane] = signal[n * in.step] * factor(window, n);
        if (is_complex) x.im[n * lanes + lane] = signal[n * in.step + 1] * factor(window, n);
      }
    }
    if (is_hermitian) mirror(x);
  }

  /// Complete the frequencies of real signals.
  void mirror(Signals<T>& x) const {
    const int64_t length = plan.length;
    std::fill_n(x.im, lanes, T(0));
    if (length % 2 == 0) std::fill_n(x.im + length / 2 * lanes, lanes, T(0));
    for (int64_t n = length / 2 + 1; n < length; ++n)
      for (int64_t lane = 0; lane < lanes; ++lane) {
        x.re[n * lanes + lane] = x.re[(length - n) * lanes + lane];
        x.im[n * lanes + lane] = -x.im[(length - n) * lanes + lane];
      }
  }

  void scatter(const Signals<T>& x, int64_t first, int64_t last, T* to) const {
    const T scale = is_inverse ? T(1) / T(plan.length) : T(1);
    for (int64_t t = first; t < last; ++t) {
      T* result = to + out.of(t);
      const int64_t lane = (t - first) % lanes;
      for (int64_t n = 0; n < outputs; ++n, result += out.step) {
        if (pairs()) {
          separate(x, n, lane, t - first >= lanes, result);
          continue;
        }
        result[0] = x.re[n * lanes + lane] * scale;
        if (!is_hermitian) result[1] = x.im[n * lanes + lane] * scale;
      }
    }
  }

  /// A frequency of one of the two real signals of a lane.
  void separate(const Signals<T>& x, int64_t n, int64_t lane, bool second, T* to) const {
    const int64_t at = n * lanes + lane, mirrored = (n == 0 ? 0 : plan.length - n) * lanes + lane;
    if (second) {
      to[0] = (x.im[at] + x.im[mirrored]) / 2, to[1] = (x.re[mirrored] - x.re[at]) / 2;
    } else {
      to[0] = (x.re[at] + x.re[mirrored]) / 2, to[1] = (x.im[at] - x.im[mirrored]) / 2;
    }
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Transforms& self = step.as<Transforms>();
    const int64_t size = self.plan.room() * self.lanes;
    T* memory = run.part_scratch<T>(part);
    const T* window = self.has_window ? run.at<T>(step.in[1]) : nullptr;
    const Range range = split(self.count, part, parts, self.together());
    for (int64_t first = range.first; first < range.last; first += self.together()) {
      Signals<T> x{memory, memory + size, memory + 2 * size, memory + 3 * size};
      const int64_t last = std::min(first + self.together(), range.last);
      self.gather(run.at<T>(step.in[0]), window, first, last, x);
      if (self.is_inverse) x.turn();
      self.plan.run(x, self.lanes);
      if (self.is_inverse) x.turn();
      self.scatter(x, first, last, run.at<T>(step.out[0]));
    }
  }
};

Refusal support(const Graph& graph, const Node& node, const Settings& settings) {
  for (size_t n = 0; n < node.inputs.size(); ++n) {
    const Tensor* operand = graph.in(node, n);
    if (operand && operand->dtype != IPR_DTYPE_FLOAT32 && operand->dtype != IPR_DTYPE_FLOAT64)
      return refused("operand " + std::to_string(n) + " is " + described(*operand), IPR_REASON_DATA_TYPE);
    if (operand && operand->dtype != graph.in(node, 0)->dtype)
      return refused("the operands have two types", IPR_REASON_DATA_TYPE);
  }
  return without_posts(graph, node, settings);
}

template <class T>
void add_step(const Node& node, Builder& builder, Transforms<T> all, int64_t length) {
  all.plan = Plan<T>(length, builder);
  const int64_t bytes = 4 * all.plan.room() * int64_t(sizeof(T));
  all.lanes = std::clamp<int64_t>(kLaneBytes / bytes, 1, kMostLanes);
  while (all.lanes > 1 && all.together() / 2 >= all.count) all.lanes /= 2;
  const double operations = 5 * double(all.count * all.plan.room()) * std::log2(double(all.plan.room()) + 1);
  Step step;
  step.name = node.type + " " + node.name;
  step.fn = &Transforms<T>::run;
  step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, operations / 8),
                                         std::max<int64_t>(1, (all.count + all.together() - 1) / all.together())));
  step.scratch_per_part = all.scratch();
  step.operations = operations;
  for (int operand : node.inputs) step.in.push_back(builder.buffer(operand));
  step.out = {builder.buffer(node.outputs[0])};
  step.state = std::make_shared<Transforms<T>>(std::move(all));
  builder.add(std::move(step));
}

template <class T>
void lower_dft_of(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const int axis = axis_of(node.integer("axis", -2), in.rank());
  const bool onesided = node.flag("onesided"), inverse = node.flag("inverse");
  const int64_t size = in.extent(axis), parts = in.extent(-1), out_parts = out.extent(-1);
  const Around at = around(in.shape, axis);
  const int64_t inner = at.inner / parts, outputs = out.extent(axis);
  const int64_t length = node.has("length") ? node.integer("length") : onesided && inverse ? 2 * (size - 1) : size;
  Transforms<T> all{};
  all.count = at.outer * inner;
  all.is_complex = parts == 2, all.is_inverse = inverse, all.is_hermitian = onesided && inverse;
  all.given = std::min(size, all.is_hermitian ? length / 2 + 1 : length), all.outputs = outputs;
  all.in = {inner, size * inner * parts, parts, inner * parts};
  all.out = {inner, outputs * inner * out_parts, out_parts, inner * out_parts};
  add_step(node, builder, std::move(all), length);
}

template <class T>
void lower_stft_of(const Node& node, Builder& builder) {
  const Tensor &in = *builder.graph.in(node, 0), &out = builder.graph.out(node);
  const int64_t length = node.integer("frame_length"), hop = node.integer("frame_step"), parts = in.extent(-1);
  const int64_t frames = out.shape[1], outputs = out.shape[2];
  Transforms<T> all{};
  all.count = out.shape[0] * frames;
  all.is_complex = parts == 2;
  all.has_window = builder.graph.in(node, 1) != nullptr;
  all.given = length, all.outputs = outputs;
  all.in = {frames, in.shape[1] * parts, hop * parts, parts};
  all.out = {frames, frames * outputs * 2, outputs * 2, 2};
  add_step(node, builder, std::move(all), length);
}

bool is_double(const Node& node, const Builder& builder) {
  return builder.graph.in(node, 0)->dtype == IPR_DTYPE_FLOAT64;
}

void lower_dft(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  is_double(node, builder) ? lower_dft_of<double>(node, builder) : lower_dft_of<float>(node, builder);
}

void lower_stft(const Node& node, Builder& builder) {
  if (builder.graph.out(node).elements() == 0) return;
  is_double(node, builder) ? lower_stft_of<double>(node, builder) : lower_stft_of<float>(node, builder);
}

}  // namespace

Family spectral_family() {
  return {{{"Dft", "fast transforms", support, lower_dft, nullptr},
           {"Stft", "fast transforms", support, lower_stft, nullptr}},
          {}};
}

}  // namespace cpuacc
