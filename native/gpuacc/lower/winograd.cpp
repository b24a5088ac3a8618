// Convolutions of 3x3 by Winograd's algorithm F(m x m, 3 x 3): tiles of the image and weights are transformed,
// multiplied as (m + 2)**2 products of matrices over the channels, and transformed back.

#include "gpuacc/products.hpp"
#include "gpuacc/source.hpp"
#include "gpuacc/windows.hpp"

namespace gpuacc {
namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr int64_t kTile = 2, kSide = kTile + 2;  // of the tiles of the result, and of those of the image
constexpr int64_t kLeastChannels = 32;           // with which it is ever faster
constexpr int64_t kManyChannels = 128;           // with which it is faster on processors
constexpr int64_t kMostElements = 1 << 28;       // of transformed images

const Matrix kImage = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
const Matrix kWeights = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
const Matrix kResult = {{1, 1, 1, 0}, {0, 1, -1, -1}};

std::string name_of(const char* letter, size_t row, size_t column) {
  return letter + std::to_string(row) + "_" + std::to_string(column);
}

/// The sum of the elements of a column of `from`, times a row of the matrix, whose elements are 0, 1 and -1; of a row
/// of `from` if `transposed`.
std::string sum_of(const std::vector<double>& row, const char* from, size_t line, bool transposed) {
  std::string text;
  for (size_t n = 0; n < row.size(); ++n) {
    if (row[n] == 0) continue;
    text += text.empty() ? (row[n] < 0 ? "-" : "") : (row[n] < 0 ? " - " : " + ");
    text += transposed ? name_of(from, line, n) : name_of(from, n, line);
  }
  return text;
}

/// The text that computes matrix * from * matrix**T from vectors `d`, to vectors `v`.
std::string transformed(const Matrix& matrix) {
  const size_t size = matrix[0].size();
  std::string text;
  for (size_t row = 0; row < matrix.size(); ++row)
    for (size_t column = 0; column < size; ++column)
      text += "  const FB " + name_of("h", row, column) + " = " + sum_of(matrix[row], "d", column, false) + ";\n";
  for (size_t row = 0; row < matrix.size(); ++row)
    for (size_t column = 0; column < matrix.size(); ++column)
      text += "  FB " + name_of("v", row, column) + " = " + sum_of(matrix[column], "h", row, true) + ";\n";
  return text;
}

/// A text for each place of a square: $r and $c are its row and column, $n its number.
std::string square(int64_t size, const std::string& text) {
  std::string all;
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column)
      all += Template(text).set("r", row).set("c", column).set("n", row * size + column).text();
  return all;
}

/// The tiles of the result of a convolution.
struct Tiles {
  explicit Tiles(const Image& out)
      : rows(divided_up(out.h, kTile)), columns(divided_up(out.w, kTile)), count(out.n * rows * columns) {}
  int64_t rows, columns, count;
};

Value transformed_image(const ipr::Layer& layer, Plan& plan, const Value& x, const Image& in, const Tiles& tiles) {
  const int64_t b = plan.profile.block, blocks = divided_up(in.c, b);
  const Value v = plan.create(IPR_DTYPE_FLOAT32, {kSide * kSide, tiles.count, blocks * b});
  Template source(R"(
kernel void k(global const $T* restrict x, global float* restrict y, int blocks, int H, int W, int TH, int TW, int tiles,
              int PT, int PL) {
  const int cb = get_global_id(0), tile = get_global_id(1);
  const int ty = tile / TW % TH * $M - PT, tx = tile % TW * $M - PL, n = tile / TW / TH;
  global const $T* image = x + (n * blocks + cb) * H * W * B;
$LOADS$TRANSFORM$STORES}
)");
  source.set("LOADS", square(kSide,
                             "  const FB d$r_$c = ty + $r >= 0 && ty + $r < H && tx + $c >= 0 && tx + $c < W ? "
                             "LDV_$T((ty + $r) * W + tx + $c, image) : (FB)0;\n"));
  source.set("TRANSFORM", transformed(kImage));
  source.set("STORES", square(kSide, "  STV_float(v$r_$c, ($n * tiles + tile) * blocks + cb, y);\n"));
  source.set("T", storage(x.dtype)).set("M", kTile);
  plan.launch(
      "winograd image", preamble(plan.profile, plan.device.info) + source.text(),
      {reads(x), writes(v), number(blocks), number(in.h), number(in.w), number(tiles.rows), number(tiles.columns),
       number(tiles.count), number(layer.integer("pad_top")), number(layer.integer("pad_left"))},
      {blocks, tiles.count, 1});
  return v;
}

/// Transformed weights, packed as `multiply` reads them: (kSide * kSide, panels, channels, step).
int transformed_weights(const ipr::Layer& layer, Plan& plan, int64_t step) {
  const Weights weights(layer, false);
  const int64_t b = plan.profile.block, channels = divided_up(weights.i, b) * b, panels = divided_up(weights.o, step),
                matrix = panels * channels * step;
  const ipr::TensorInfo info = layer.input(1);
  const std::string packing =
      "winograd " + std::to_string(step) + "/" + std::to_string(b) + (channels_last(layer) ? "l" : "f");
  auto pack = [&](char* bytes) {
    const std::vector<float> values = constant_floats(info);
    float* to = reinterpret_cast<float*>(bytes);
    for (int64_t o = 0; o < weights.o; ++o)
      for (int64_t i = 0; i < weights.i; ++i)
        for (int64_t place = 0; place < kSide * kSide; ++place) {
          double sum = 0;
          for (int64_t tap = 0; tap < 9; ++tap)
            sum += kWeights[size_t(place / kSide)][size_t(tap / 3)] * kWeights[size_t(place % kSide)][size_t(tap % 3)] *
                   double(values[size_t(o * weights.by_o + i * weights.by_i + tap / 3 * weights.by_y +
                                        tap % 3 * weights.by_x)]);
          to[place * matrix + (o / step * channels + i) * step + o % step] = float(sum);
        }
  };
  return plan.constant(plan.key(info, packing), uint64_t(kSide * kSide * matrix) * 4, pack);
}

/// The function that computes a pixel as a direct sum: where an infinity or NaN was transformed, infinities cancel out.
constexpr char kDirect[] = R"(
FB direct(global const $T* image, global const $T* w, FB v, int o, int C, int H, int W, int iy, int ix, int wo, int wi,
          int wy, int wx) {
  float sums[B];
  CAT(vstore, B)(v, 0, sums);
  for (int ky = max(-iy, 0); ky < min(3, H - iy); ++ky)
    for (int kx = max(-ix, 0); kx < min(3, W - ix); ++kx)
      for (int c = 0; c < C; ++c) {
        const float e = LD_$T(((c / B * H + iy + ky) * W + ix + kx) * B + c % B, image);
        for (int n = 0; n < B; ++n) sums[n] += e * LD_$T((o + n) * wo + c * wi + ky * wy + kx * wx, w);
      }
  return CAT(vload, B)(0, sums);
}
)";

void transform_back(const ipr::Layer& layer, Plan& plan, const Chain& chain, const Value& x, const Value& products,
                    int bias, const Value& y, const Image& in, const Image& out, const Tiles& tiles) {
  const Weights weights(layer, false);
  const int64_t blocks = out.c / plan.profile.block;
  Template source(R"(
#define F FB
kernel void k(global const float* restrict x, global const float* restrict bias, global $T* restrict y, int OBS, int OH,
              int OW, int TH, int TW, int tiles, global const $T* restrict image, global const $T* restrict w, int C,
              int H, int W, int PT, int PL, int wo, int wi, int wy, int wx$PARAMETERS) {
  const int cb = get_global_id(0), tile = get_global_id(1);
  const int oy = tile / TW % TH * $M, ox = tile % TW * $M, n = tile / TW / TH;
  image += n * ((C + B - 1) / B) * H * W * B;
$LOADS$TRANSFORM$STORES}
)");
  source.set("LOADS", square(kSide, "  const FB d$r_$c = LDV_float(($n * tiles + tile) * OBS + cb, x);\n"));
  source.set("TRANSFORM", transformed(kResult));
  const std::string store = Template(R"(  if (oy + $r < OH && ox + $c < OW) {
    const int at = ((n * OBS + cb) * OH + oy + $r) * OW + ox + $c;
    FB v = v$r_$c + LDV_float(cb, bias);
    if (!all(isfinite(v)))
      v = direct(image, w, LDV_float(cb, bias), cb * B, C, H, W, oy + $r - PT, ox + $c - PL, wo, wi, wy, wx);
$EPILOGUE    STV_$T(v, at, y);
  }
)")
                                .set("EPILOGUE", loads_in_blocks(chain) + chain.code())
                                .text();
  source.set("STORES", square(kTile, store)).set("T", storage(y.dtype)).set("M", kTile);
  source.set("PARAMETERS", chain.parameters());
  std::vector<Argument> arguments = {reads(products),
                                     reads(bias),
                                     writes(y),
                                     number(blocks),
                                     number(out.h),
                                     number(out.w),
                                     number(tiles.rows),
                                     number(tiles.columns),
                                     number(tiles.count),
                                     reads(x),
                                     reads(plan.plain(layer.input(1).index())),
                                     number(in.c),
                                     number(in.h),
                                     number(in.w),
                                     number(layer.integer("pad_top")),
                                     number(layer.integer("pad_left")),
                                     number(weights.by_o),
                                     number(weights.by_i),
                                     number(weights.by_y),
                                     number(weights.by_x)};
  for (const Argument& argument : chain.arguments()) arguments.push_back(argument);
  plan.launch(
      "winograd result",
      preamble(plan.profile, plan.device.info) + Template(kDirect).set("T", storage(x.dtype)).text() + source.text(),
      arguments, {blocks, tiles.count, 1});
}

}  // namespace

bool suits_winograd(const ipr::Layer& layer, const Plan& plan) {
  const Weights weights(layer, false);
  return plan.profile.kind == Profile::cpu && std::min(weights.i, weights.o) >= kManyChannels;
}

bool has_winograd_form(const ipr::Layer& layer, const Plan& plan) {
  const Weights weights(layer, false);
  if (weights.h != 3 || weights.w != 3) return false;
  if (std::min(weights.i, weights.o) < kLeastChannels || weights.o % plan.profile.block != 0) return false;
  for (const char* name : {"stride_x", "stride_y", "dilation_x", "dilation_y", "groups"})
    if (layer.integer(name, 1) != 1) return false;
  const Tiles tiles(Image(shape_of(layer.output(0)), channels_last(layer)));
  return tiles.count * kSide * kSide <= kMostElements / std::max(weights.i, weights.o);
}

void convolve_by_winograd(const ipr::Layer& layer, Plan& plan, int bias) {
  const bool last = channels_last(layer);
  const Value x = plan.blocked(layer.input(0).index(), last);
  const Image in(x.shape, last), out(shape_of(layer.output(0)), last);
  const Tiles tiles(out);
  const Value image = transformed_image(layer, plan, x, in, tiles);
  const int64_t vectors = vectors_of(plan, out.c), step = vectors * plan.profile.block;
  Product sizes{tiles.count, out.c, image.shape[2], {}, {}, false};
  for (int64_t n = 0; n < kSide * kSide; ++n) {
    sizes.offsets_a.push_back(int32_t(n * tiles.count * image.shape[2]));
    sizes.offsets_b.push_back(int32_t(n));
  }
  const Value products = plan.create(IPR_DTYPE_FLOAT32, {kSide * kSide, tiles.count, out.c});
  multiply(plan, image, transformed_weights(layer, plan, step), no_bias(plan, out.c, step), sizes, vectors,
           Chain(plan, layer.output(0).index(), -1), products);
  Chain chain(plan, layer.output(0).index(), last ? 3 : 1);
  chain.channel_padding = int(plan.profile.block);
  chain.fuse(true);
  const Value y = plan.create(x.dtype, shape_of(layer.output(0)), Layout::blocked, last);
  transform_back(layer, plan, chain, x, products, bias, y, in, out, tiles);
  plan.set(chain.tensor(), y);
}

}  // namespace gpuacc
