// The loops around the micro-kernel: tiles of pixels by panels of output channels.

#ifndef CPUACC_KERNELS_GEMM_HPP
#define CPUACC_KERNELS_GEMM_HPP

#include "cpuacc/kernels/activations.hpp"
#include "cpuacc/kernels/micro_kernel.hpp"
#include "cpuacc/kernels/row_tiles.hpp"

namespace cpuacc::ISA_NS {
namespace {

constexpr int kPanelBlocks = kMaxPanelBlocks == 3 ? 2 : 1;

/// Blocks in the panel that begins at `block`. An odd last block belongs to the panel before it.
inline int blocks_of_panel_at(int block, int blocks) {
  int left = blocks - block;
  return left == kMaxPanelBlocks ? left : left < kPanelBlocks ? left : kPanelBlocks;
}

/// The block at which the last of the panels that begin in [block, end) begins.
inline int last_panel(int block, int end, int blocks) {
  while (block + blocks_of_panel_at(block, blocks) < end) block += blocks_of_panel_at(block, blocks);
  return block;
}

/// The vectors that tiles compute of the panel of `blocks` blocks that begins at `block`.
inline int vectors_of_panel_at(const Gemm& p, int block, int blocks) {
  return vectors_of_panel(blocks, block + blocks == p.blocks ? p.last : 16);
}

/// Compute the tiles of `count` pixels by one panel. `t` holds all arguments that are the same for every tile. With
/// `continued`, the sums are added to what the output holds: the sums over the input channels before.
template <int kStep>
CPUACC_INLINE void run_micro_kernels(MicroKernelArgs& t, int count, int vectors, int pixel, const Epilogue& epilogue,
                                     bool continued = false) {
  const int blocks = (vectors + kBlockVecs - 1) / kBlockVecs;
  RowTiles cut(count, mr_of_panel<kStep>(vectors));
  MicroKernel larger = find_micro_kernel<kStep>(cut.rows, vectors);
  MicroKernel smaller = cut.larger < cut.tiles ? find_micro_kernel<kStep>(cut.rows - 1, vectors) : nullptr;
  for (int i = 0; i < cut.tiles; ++i) {
    int rows = cut.of(i);
    const float* residual = t.residual;
    if (continued || epilogue.count) t.residual = continued ? t.c : nullptr;
    (i < cut.larger ? larger : smaller)(t);
    t.residual = residual;
    if (epilogue.count) apply_post_ops(epilogue, t.c, residual, t.c_block, t.c_pixel, rows, blocks);
    t.a += rows * pixel;
    t.c += rows * t.c_pixel;
    if (residual) t.residual += rows * t.c_pixel;
    t.prefetch += t.prefetch_step * t.depth * t.tap_count;
  }
}

constexpr int64_t kCachedFloats =
    128 * 1024;  // floats that stay in the second-level cache: 512 KiB, half of the 1 MiB that common server cores have

/// How a GEMM is divided so that what is read again stays in the cache: so many input channels (words) at a time for
/// all pixels, and of these so many pixels at a time for all panels.
struct Passes {
  int depth, pixels;
};

/// The floats that are read and written beyond the cache: rows, once for each panel if a pass over them does not stay
/// in the cache; weights, once for each strip of pixels unless they stay; sums, twice for each pass but the first.
inline int64_t traffic(const Passes& p, int64_t depth, int64_t pixels, int64_t blocks) {
  const int64_t half = kCachedFloats / 2, columns = blocks * 16;
  const int64_t strips = (pixels + p.pixels - 1) / p.pixels, passes = (depth + p.depth - 1) / p.depth;
  const bool rows_stay = int64_t{p.depth} * p.pixels <= (strips == 1 && passes == 1 ? kCachedFloats : half);
  const bool weights_stay = strips == 1 || p.depth * columns <= (passes == 1 ? kCachedFloats : half);
  return depth * pixels * (rows_stay ? 1 : (blocks + kPanelBlocks - 1) / kPanelBlocks) +
         depth * columns * (weights_stay ? 1 : strips) + 2 * (passes - 1) * pixels * columns;
}

/// Choose the passes with the least traffic. The depth is divided only if `divisible`.
inline Passes passes_of(int depth, int pixels, int blocks, bool divisible) {
  Passes best{depth, pixels};
  if (depth < 1 || pixels < 1) return best;
  int64_t least = traffic(best, depth, pixels, blocks);
  for (int part = depth; part > 0; part = divisible && part > 128 ? (part / 2 + 15) / 16 * 16 : 0) {
    const int64_t most = kCachedFloats / 2 / part / 14 * 14;
    if (most < 14) continue;
    const int64_t strips = (pixels + most - 1) / most;
    const Passes passes{part, static_cast<int>((pixels / strips + 13) / 14 * 14)};
    const int64_t floats = traffic(passes, depth, pixels, blocks);
    if (floats < least) least = floats, best = passes;
  }
  return best;
}

/// What a pass ends with that does not sum the last input channels.
constexpr Epilogue kNoEpilogue{-__builtin_inff(), __builtin_inff(), 0, {}};

/// Return whether input channels may be summed in several passes. Post-ops that read a residual need all sums at once,
/// because the output may be in the memory of the residual.
inline bool is_divisible(const float* residual, const Epilogue& epilogue) { return !(residual && epilogue.count); }

/// Let `t` sum the words [first, last) of `depth`; return what the pass ends with.
inline const Epilogue& begin_pass(MicroKernelArgs& t, int first, int last, int depth, const Epilogue& epilogue) {
  const Epilogue& own = last == depth ? epilogue : kNoEpilogue;
  t.depth = last - first;
  t.low = own.low;
  t.high = own.high;
  return own;
}

alignas(64) const float kNoBias[kMaxPanelBlocks * 16] = {};
const int32_t kNoTaps[1] = {0};

/// The parts of a GEMM that all its panels share, and the loop over the panels for some input channels and pixels.
struct GemmPass {
  const Gemm& p;
  const float* in;
  float* out;
  const OutputStrides& strides;
  const float* residual;
  int depth;  // words of all input channels
  MicroKernelArgs t;

  GemmPass(const Gemm& p, const float* in, int64_t in_block, float* out, const OutputStrides& strides,
           const float* residual)
      : p(p), in(in), out(out), strides(strides), residual(residual), depth(words_of(p.depth)), t{} {
    t.a_block = in_block;
    t.taps = t.positions = kNoTaps;
    t.tap_count = t.window = 1;
    t.c_block = strides.block;
    t.c_pixel = strides.pixel;
  }

  /// Sum the words [first, last) of `count` pixels from `row` on by one panel, whose weights for these words are
  /// `weights`; those at `next` follow. Only the last words end with the epilogue.
  void panel(const float* weights, const float* next, int first, int last, int row, int count, int block, int blocks) {
    const Epilogue& epilogue = begin_pass(t, first, last, depth, p.epilogue);
    const int64_t to = block * strides.block + row * strides.pixel;
    const int vectors = vectors_of_panel_at(p, block, blocks), most = mr_of_panel<16>(vectors);
    const int tiles = (count + most - 1) / most;
    t.a = in + first / 16 * t.a_block + row * 16;
    t.b = weights;
    t.bias = first ? kNoBias : p.bias + block * 16;
    t.c = out + to;
    t.residual = residual ? residual + to : nullptr;
    t.prefetch = reinterpret_cast<const char*>(next);
    t.prefetch_step = (blocks * 64 + tiles - 1) / tiles;
    run_micro_kernels<16>(t, count, vectors, 16, epilogue, first > 0);
  }

  void panels(int first, int last, int row, int count, int block, int block_end) {
    for (int blocks; block < block_end; block += blocks) {
      blocks = blocks_of_panel_at(block, p.blocks);
      const float* weights = p.weights + int64_t{block} * 16 * depth + int64_t{first} * blocks * 16;
      panel(weights, weights + int64_t{blocks} * 16 * depth, first, last, row, count, block, blocks);
    }
  }
};

/// The GEMM of words, which lie in blocks of 16 (see bfloat16_pairs.hpp).
void gemm(const Gemm& p, const float* in, int64_t in_block, float* out, const OutputStrides& out_strides,
          const float* residual, const OutputRange& range) {
  GemmPass pass(p, in, in_block, out, out_strides, residual);
  const Passes passes = passes_of(pass.depth, range.row_end - range.row, range.block_end - range.block,
                                  is_divisible(residual, p.epilogue));
  int first = 0;
  do {
    const int last = pass.depth - first < passes.depth ? pass.depth : first + passes.depth;
    for (int row = range.row; row < range.row_end; row += passes.pixels) {
      const int count = range.row_end - row < passes.pixels ? range.row_end - row : passes.pixels;
      pass.panels(first, last, row, count, range.block, range.block_end);
    }
    first = last;
  } while (first < pass.depth);
}

}  // namespace
}  // namespace cpuacc::ISA_NS

#endif  // CPUACC_KERNELS_GEMM_HPP
