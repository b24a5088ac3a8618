// Convolution2d, DepthwiseConvolution2d, Pooling2d and FullyConnected: sums or maxima over windows.

#ifndef CPUREF_WINDOWS_HPP
#define CPUREF_WINDOWS_HPP

#include "rules.hpp"

namespace cpuref {

/// An image in either layout: dimensions, and strides in elements.
struct Image {
  Image(const ipr::TensorInfo& info, bool channels_last)
      : n(info.extent(0)), h(info.extent(channels_last ? 1 : 2)), w(info.extent(channels_last ? 2 : 3)),
        c(info.extent(channels_last ? 3 : 1)), by_y(channels_last ? w * c : w), by_x(channels_last ? c : 1),
        by_c(channels_last ? 1 : h * w) {}

  int64_t at(int64_t image, int64_t y, int64_t x, int64_t channel) const {
    return image * h * w * c + y * by_y + x * by_x + channel * by_c;
  }

  int64_t n, h, w, c, by_y, by_x, by_c;
};

inline bool channels_last(const ipr::Layer& layer) { return layer.text("data_layout") == "NHWC"; }

/// The taps `first` to `end` - 1 of a window along one axis.
struct Cells {
  int64_t first, end;
  int64_t count() const { return end - first; }
};

/// The movement of a window along one axis. Sizes may come from an invalid file; nothing outside of the image is read.
struct Window {
  int64_t size, stride, dilation, before, after;

  int64_t origin(int64_t place) const { return place * stride - before; }
  int64_t position(int64_t place, int64_t cell) const { return origin(place) + cell * dilation; }

  /// The taps at positions `low` to `high` - 1.
  Cells within(int64_t place, int64_t low, int64_t high) const {
    int64_t first = cells_below(low - origin(place));
    return {first, std::max(first, cells_below(high - origin(place)))};
  }

 private:
  int64_t cells_below(int64_t distance) const {
    if (distance <= 0) return 0;
    return std::min(size, distance / dilation + (distance % dilation > 0));
  }
};

/// Refuse positions that overflow 64 bits.
inline ipr::Verdict windowed(const ipr::Layer& layer) {
  for (const char* name :
       {"pad_top", "pad_bottom", "pad_left", "pad_right", "stride_x", "stride_y", "dilation_x", "dilation_y"})
    if (layer.integer(name) > int64_t(1) << 31)
      return ipr::no(std::string(name) + " is greater than 2**31", IPR_REASON_RESOURCE);
  return ipr::yes();
}

inline ipr::Verdict convolution_rule(const ipr::Layer& layer) {
  ipr::Verdict found = windowed(layer);
  return found.verdict == IPR_NO ? found : weighted(layer);
}

inline Window rows_of(const ipr::Layer& layer, int64_t size) {
  return {size, layer.integer("stride_y"), layer.integer("dilation_y"), layer.integer("pad_top"),
          layer.integer("pad_bottom")};
}

inline Window columns_of(const ipr::Layer& layer, int64_t size) {
  return {size, layer.integer("stride_x"), layer.integer("dilation_x"), layer.integer("pad_left"),
          layer.integer("pad_right")};
}

/// Call `visit(image, y, x)` for each position of an output.
template <class Visit>
void for_each_place(const Image& out, Visit visit) {
  for (int64_t n = 0; n < out.n; ++n)
    for (int64_t y = 0; y < out.h; ++y)
      for (int64_t x = 0; x < out.w; ++x) visit(n, y, x);
}

/// Base of both convolutions. Element is float or int8_t, Sum is float or int64_t.
struct Convolution {
  Convolution(const ipr::Layer& layer, const Image& weights)
      : in(layer.input(0), channels_last(layer)), weights(weights), out(layer.output(0), channels_last(layer)),
        rows(rows_of(layer, weights.h)), columns(columns_of(layer, weights.w)), zero(layer.input(0).zero_point()),
        weights_zero(layer.input(1).zero_point()) {}

  /// The sum over one window of `count` channels, beginning with `channel`, with the weights beginning at element `w`.
  template <class Sum, class Element>
  Sum sum(const Element* x, const Element* w, int64_t n, int64_t y, int64_t x_place, int64_t channel,
          int64_t count) const {
    Cells down = rows.within(y, 0, in.h), across = columns.within(x_place, 0, in.w);
    Sum total = 0;
    for (int64_t i = down.first; i < down.end; ++i)
      for (int64_t j = across.first; j < across.end; ++j) {
        const Element* seen = x + in.at(n, rows.position(y, i), columns.position(x_place, j), channel);
        const Element* weight = w + i * weights.by_y + j * weights.by_x;
        for (int64_t c = 0; c < count; ++c)
          total += (Sum(seen[c * in.by_c]) - Sum(zero)) * (Sum(weight[c * weights.by_c]) - Sum(weights_zero));
      }
    return total;
  }

  Image in, weights, out;
  Window rows, columns;
  int64_t zero, weights_zero;
};

template <class Element, class Sum, class Bias, class Finish>
ipr::Kernel convolution_of(const ipr::Layer& layer, Finish finish) {
  Convolution conv(layer, Image(layer.input(1), channels_last(layer)));
  int64_t groups = layer.integer("groups");
  return [=](ipr::Tensors in, ipr::Tensors out) {
    const Element *x = in[0].data<Element>(), *w = in[1].data<Element>();
    const Bias* bias = in.size() > 2 && in[2] ? in[2].data<Bias>() : nullptr;
    int64_t depth = conv.weights.c, outputs = conv.out.c / groups;
    for_each_place(conv.out, [&](int64_t n, int64_t y, int64_t x_place) {
      for (int64_t o = 0; o < conv.out.c; ++o) {
        const Element* filter = w + conv.weights.at(o, 0, 0, 0);
        Sum sum = conv.template sum<Sum>(x, filter, n, y, x_place, o / outputs * depth, depth);
        out[0].data<Element>()[conv.out.at(n, y, x_place, o)] = finish(sum, bias, o);
      }
    });
  };
}

inline ipr::Kernel convolution(const ipr::Layer& layer) {
  if (is_float32(layer.input(0))) return convolution_of<float, float, float>(layer, Offset());
  return convolution_of<int8_t, int64_t, int32_t>(layer, Requantizer(layer, false));
}

/// Weights are (1, KH, KW, channels) in both layouts.
template <class Element, class Sum, class Bias, class Finish>
ipr::Kernel depthwise_of(const ipr::Layer& layer, Finish finish) {
  Convolution conv(layer, Image(layer.input(1), true));
  return [=](ipr::Tensors in, ipr::Tensors out) {
    const Element *x = in[0].data<Element>(), *w = in[1].data<Element>();
    const Bias* bias = in.size() > 2 && in[2] ? in[2].data<Bias>() : nullptr;
    for_each_place(conv.out, [&](int64_t n, int64_t y, int64_t x_place) {
      for (int64_t o = 0; o < conv.out.c; ++o) {
        Sum sum = conv.template sum<Sum>(x, w + o, n, y, x_place, o / (conv.out.c / conv.in.c), 1);
        out[0].data<Element>()[conv.out.at(n, y, x_place, o)] = finish(sum, bias, o);
      }
    });
  };
}

inline ipr::Kernel depthwise(const ipr::Layer& layer) {
  if (is_float32(layer.input(0))) return depthwise_of<float, float, float>(layer, Offset());
  return depthwise_of<int8_t, int64_t, int32_t>(layer, Requantizer(layer, false));
}

template <class Element, class Sum, class Bias, class Finish>
ipr::Kernel fully_connected_of(const ipr::Layer& layer, Finish finish) {
  const ipr::TensorInfo weights = layer.input(1);
  bool transposed = layer.flag("transpose_weight_matrix");
  int64_t size = weights.extent(transposed ? 1 : 0), outputs = weights.extent(transposed ? 0 : 1);
  int64_t by_input = transposed ? 1 : outputs, by_output = transposed ? size : 1;
  int64_t rows = layer.input(0).elements() / size;
  Sum zero = Sum(layer.input(0).zero_point()), weights_zero = Sum(weights.zero_point());
  return [=](ipr::Tensors in, ipr::Tensors out) {
    const Element *x = in[0].data<Element>(), *w = in[1].data<Element>();
    const Bias* bias = in.size() > 2 && in[2] ? in[2].data<Bias>() : nullptr;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<Sum> sums(size_t(outputs), 0);
      auto add = [&](int64_t i, int64_t o) {
        sums[size_t(o)] += (Sum(x[row * size + i]) - zero) * (Sum(w[i * by_input + o * by_output]) - weights_zero);
      };
      for (int64_t m = 0; m < (transposed ? outputs : size); ++m)  // weights are read in memory order
        for (int64_t n = 0; n < (transposed ? size : outputs); ++n) transposed ? add(n, m) : add(m, n);
      for (int64_t o = 0; o < outputs; ++o)
        out[0].data<Element>()[row * outputs + o] = finish(sums[size_t(o)], bias, o);
    }
  };
}

inline ipr::Kernel fully_connected(const ipr::Layer& layer) {
  if (is_float32(layer.input(0))) return fully_connected_of<float, float, float>(layer, Offset());
  return fully_connected_of<int8_t, int64_t, int32_t>(layer, Requantizer(layer, true));
}

// ---- Pooling --------------------------------------------------------------------------------------------------------

inline Window pool_window(Window window, int64_t extent) {
  if (window.size == 0) return {extent, 1, 1, 0, 0};
  window.stride = std::max<int64_t>(window.stride, 1);
  return window;
}

struct Pool {
  explicit Pool(const ipr::Layer& layer)
      : in(layer.input(0), channels_last(layer)), out(layer.output(0), channels_last(layer)),
        rows(pool_window(rows_of(layer, layer.integer("pool_height")), in.h)),
        columns(pool_window(columns_of(layer, layer.integer("pool_width")), in.w)),
        counts_padding(layer.text("padding_method") == "IGNORE_VALUE") {}

  int64_t seen(int64_t y, int64_t x) const {
    return rows.within(y, 0, in.h).count() * columns.within(x, 0, in.w).count();
  }

  /// The divisor of an average.
  int64_t counted(int64_t y, int64_t x) const {
    if (!counts_padding) return seen(y, x);
    return rows.within(y, -rows.before, in.h + rows.after).count() *
           columns.within(x, -columns.before, in.w + columns.after).count();
  }

  template <class Element, class Visit>
  void for_each_seen(const Element* image, int64_t n, int64_t y, int64_t x, int64_t c, Visit visit) const {
    Cells down = rows.within(y, 0, in.h), across = columns.within(x, 0, in.w);
    for (int64_t i = down.first; i < down.end; ++i)
      for (int64_t j = across.first; j < across.end; ++j)
        visit(image[in.at(n, rows.position(y, i), columns.position(x, j), c)]);
  }

  Image in, out;
  Window rows, columns;
  bool counts_padding;
};

/// Write one number for each position and channel.
template <class Element, class Compute>
ipr::Kernel pooled(const Pool& pool, Compute compute) {
  return [=](ipr::Tensors in, ipr::Tensors out) {
    for_each_place(pool.out, [&](int64_t n, int64_t y, int64_t x) {
      for (int64_t c = 0; c < pool.out.c; ++c)
        out[0].data<Element>()[pool.out.at(n, y, x, c)] = compute(in[0].data<Element>(), n, y, x, c);
    });
  };
}

/// The largest element; NaN is larger than all numbers.
template <class Element>
Element largest(const Pool& pool, const Element* image, int64_t n, int64_t y, int64_t x, int64_t c, Element nothing) {
  if (pool.seen(y, x) == 0) return nothing;
  bool first = true;
  Element found = nothing;
  pool.for_each_seen(image, n, y, x, c, [&](Element cell) {
    if (first || cell > found || cell != cell) found = found != found ? found : cell;
    first = false;
  });
  return found;
}

/// The mean, or the root of the mean square, of real values; `real` dequantizes elements.
template <class Element, class Real>
double mean(const Pool& pool, bool square, const Element* image, int64_t n, int64_t y, int64_t x, int64_t c,
            Real real) {
  double sum = 0;
  pool.for_each_seen(image, n, y, x, c, [&](Element cell) { sum += square ? real(cell) * real(cell) : real(cell); });
  double found = sum / double(std::max<int64_t>(pool.counted(y, x), 1));
  return square ? std::sqrt(found) : found;
}

/// The mean of quantized values, rounded half away from zero.
inline int64_t mean_code(const Pool& pool, const int8_t* image, int64_t n, int64_t y, int64_t x, int64_t c,
                         int64_t zero) {
  int64_t count = pool.counted(y, x), sum = zero * count;
  if (count == 0) return zero;
  pool.for_each_seen(image, n, y, x, c, [&](int8_t cell) { sum += cell - zero; });
  int64_t half_up = (std::abs(sum) + count / 2) / count;
  return sum < 0 ? -half_up : half_up;
}

inline ipr::Kernel pooling_of_reals(const ipr::Layer& layer) {
  Pool pool(layer);
  if (layer.text("pool_type") == "MAX")
    return pooled<float>(pool, [=](const float* image, int64_t n, int64_t y, int64_t x, int64_t c) {
      return largest(pool, image, n, y, x, c, 0.0f);
    });
  bool square = layer.text("pool_type") == "L2";
  return pooled<float>(pool, [=](const float* image, int64_t n, int64_t y, int64_t x, int64_t c) {
    return float(mean(pool, square, image, n, y, x, c, [](float cell) { return double(cell); }));
  });
}

/// MAX, and AVERAGE with one quantization, use quantized values; L2 and other averages use real values, rounded once.
inline ipr::Kernel pooling_of_codes(const ipr::Layer& layer) {
  Pool pool(layer);
  int64_t zero = layer.input(0).zero_point(), target_zero = layer.output(0).zero_point();
  float scale = scale32(layer.input(0)), target = scale32(layer.output(0));
  bool same = same_quantization(layer.input(0), layer.output(0)), max = layer.text("pool_type") == "MAX";
  bool square = layer.text("pool_type") == "L2";
  if (square || !(max || same))
    return pooled<int8_t>(pool, [=](const int8_t* image, int64_t n, int64_t y, int64_t x, int64_t c) {
      auto real = [&](int8_t cell) { return double(cell - zero) * double(scale); };
      return quantized(float(mean(pool, square, image, n, y, x, c, real)), target, target_zero);
    });
  FixedPoint factor = quantize_multiplier(double(scale) / double(target));
  return pooled<int8_t>(pool, [=](const int8_t* image, int64_t n, int64_t y, int64_t x, int64_t c) {
    int64_t code = max ? largest(pool, image, n, y, x, c, int8_t(zero)) : mean_code(pool, image, n, y, x, c, zero);
    return clamped(same ? code : multiply(code - zero, factor) + target_zero);
  });
}

inline ipr::Kernel pooling(const ipr::Layer& layer) {
  return is_float32(layer.input(0)) ? pooling_of_reals(layer) : pooling_of_codes(layer);
}

inline ipr::Verdict pooling_rule(const ipr::Layer& layer) {
  ipr::Verdict found = windowed(layer);
  return found.verdict == IPR_NO ? found : one_kind(layer, {"input"});
}

}  // namespace cpuref

#endif  // CPUREF_WINDOWS_HPP
