#include "cpuacc/lower/gemm_q8.hpp"
#include "cpuacc/kernels/moves.hpp"
#include "cpuacc/kernels/tiles_q8.hpp"
#include "cpuacc/lower/cost_model.hpp"

#include <algorithm>
#include <cstring>

namespace cpuacc {
namespace {

constexpr int64_t kSlack = 64;  // bytes that kernels may read after the last pixel of a copy
constexpr int64_t kTileWords = kTileBytes / 4;
constexpr int64_t kCachedWeights = 512 * 1024;  // bytes of weights that stay in the second-level cache
constexpr int kMaxSums = 128 * 16;              // sums that are requantized at once: 8 KiB of the first-level cache

/// Bytes that are read contiguously for one pixel and one panel: the channels of a tap, or of a row of adjacent taps.
struct Segment {
  int64_t y, x, channel;
};

struct Gemm {
  const GemmQ8Kernels* kernels;
  const TileQ8Kernels* tiles;  // nullptr: vectors multiply
  int tile_rows;               // positions in a tile
  bool is_signed;              // bytes are multiplied as int8: those of the image in tiles, or as all vectors do
  bool small;                  // no packed weight is -128
  bool prefetches;             // weights exceed the second-level cache
  const ElementwiseQ8Kernels* elementwise;
  Q8Channels channels;
  std::vector<Segment> segments;  // those of the first slice of groups, then those of other slices
  int64_t segment_count, words;   // of each panel
  int64_t segment_bytes;          // of a segment, without padding to whole words or tiles
  int64_t depth_bytes;            // of the packed weights of a channel
  const int8_t* weights;
  const int8_t* ones;  // weights that compute the sum of the bytes; nullptr if no panel needs it
  const int32_t* bias;
  Q8Requantization requantization;
  Q8Add addition;
  const int32_t* column_sums;  // of the weights of each lane, if zero point and scales are operands; else nullptr
  Q8Conversion conversion;     // used instead of the requantization then, with the scales and the bias of the run
  int64_t item_size;           // bytes of an element of the result
  bool adds, adds_row;         // a tensor, or a row with a value for each channel
  bool by_panels;
  bool reads_rows;  // a segment is three adjacent pixels, and positions are one pixel apart

  int64_t batch, depth, outputs;
  Q8Axis rows, columns;
  bool flat;                 // a 1x1 window; all positions form one row
  bool copies;               // rows are copied to add padding
  bool gathers;              // the bytes of all segments of a position are copied, so that they become one segment
  int64_t top, left, width;  // the first row and column that the first window reads; columns of a copied row
  int64_t height;            // rows that the windows of one row of positions read
  int64_t chunk;             // rows of positions (or positions, if there is one row) that are processed at once
  uint8_t zero;
  uint32_t flip;
};

/// The values of a run: those of the network, or those of its operands.
struct Values {
  const int32_t* bias;
  uint8_t zero;
  Q8Conversion conversion;
};

/// Some rows of positions, and the addresses of their operands.
struct Chunk {
  const Gemm* gemm;
  const Values* values;
  const uint8_t* from;  // the first row and column that the first window reads
  int64_t row_bytes;    // between consecutive rows of the image
  uint32_t flip;
  int64_t rows, places;  // positions in a row
  int64_t first_row, first_place;
  uint8_t* out;  // the output image
  const uint8_t* other;
  int32_t* byte_sums;  // one for each position
};

/// Requantize or convert the sums of positions of a row.
void finish(const Chunk& chunk, const Q8Panel& panel, const int32_t* sums, int64_t row, int64_t place, int64_t count) {
  const Gemm& p = *chunk.gemm;
  int64_t y = p.rows.first + (chunk.first_row + row) * p.rows.step;
  int64_t x = p.columns.first + (chunk.first_place + place) * p.columns.step;
  int64_t at = (y * p.columns.result + x) * p.outputs + panel.first, by = p.columns.step * p.outputs;
  const int32_t* byte_sums = panel.moved ? chunk.byte_sums + row * chunk.places + place : nullptr;
  if (p.column_sums) {
    const Q8Conversion& conversion = chunk.values->conversion;
    p.kernels->convert(int(count), panel.vectors, sums, conversion, panel.lane, panel.first, byte_sums,
                       chunk.out + at * p.item_size, by * p.item_size, panel.channels);
    return;
  }
  Q8Residual residual{p.adds ? &p.addition : nullptr, chunk.other, p.adds_row ? 0 : by};
  if (p.adds) residual.codes += p.adds_row ? panel.first : at;
  p.kernels->requantize(int(count), panel.vectors, sums, p.requantization, panel.lane, byte_sums, chunk.out + at, by,
                        panel.channels, residual);
}

/// Compute the sums of positions of a row in tiles of at most `size`, and finish them.
void run_positions(const Chunk& chunk, const Q8Panel& panel, const uint8_t* const* segments, int64_t row, int64_t place,
                   int64_t count, int64_t size) {
  const Gemm& p = *chunk.gemm;
  alignas(64) int32_t sums[kMaxSums];
  const int64_t step = p.columns.stride * p.depth;
  const int8_t* weights = p.weights + panel.offset;
  const int32_t* bias = chunk.values->bias + panel.lane;
  if (count == 1 && p.segment_count == 1) {
    p.kernels->gemv_tile(panel.vectors, segments[0] + place * step, p.words, chunk.flip, weights, bias, sums);
  } else {
    Q8Rows from{segments, p.segment_count, p.words, place * step, step, chunk.flip, p.small};
    int32_t* to = sums;
    for (int64_t left = count; left > 0; left -= size, from.offset += size * step) {
      int rows = int(std::min(left, size));
      if (p.reads_rows && panel.vectors == 1)
        p.kernels->row_tile(rows, from, weights, bias, to);
      else
        p.kernels->tile(rows, panel.vectors, from, weights, bias, to);
      to += size * panel.vectors * p.kernels->lanes;
    }
  }
  finish(chunk, panel, sums, row, place, count);
}

void find_segments(const Chunk& chunk, int64_t first, int64_t row, const uint8_t** segments) {
  const Gemm& p = *chunk.gemm;
  for (int64_t n = 0; n < p.segment_count; ++n) {
    const Segment& segment = p.segments[size_t(first + n)];
    segments[n] = chunk.from + (row * p.rows.stride + segment.y - p.top) * chunk.row_bytes +
                  (segment.x - p.left) * p.depth + segment.channel;
  }
}

void run_panel(const Chunk& chunk, const Q8Panel& panel, const uint8_t** segments) {
  const Gemm& p = *chunk.gemm;
  int64_t most = p.kernels->max_rows[panel.vectors];
  int64_t tiles = (chunk.places + most - 1) / most, together = 4 / panel.vectors;  // rows that are requantized together
  int64_t rows = ((chunk.places + tiles - 1) / tiles + together - 1) / together * together;
  if (rows > most) rows = most;
  int64_t stretch = kMaxSums / (panel.vectors * p.kernels->lanes * rows) * rows;
  for (int64_t row = 0; row < chunk.rows; ++row) {
    find_segments(chunk, panel.segments, row, segments);
    for (int64_t first = 0; first < chunk.places; first += stretch)
      run_positions(chunk, panel, segments, row, first, std::min(stretch, chunk.places - first), rows);
  }
}

/// The tiles of the positions of a chunk: consecutive ones of a row, and the next row begins with a new tile.
class TileSequence {
 public:
  explicit TileSequence(const Chunk& chunk) : chunk_(chunk) {}

  bool ended() const { return row_ == chunk_.rows || chunk_.places == 0; }
  int64_t row() const { return row_; }
  int64_t place() const { return place_; }
  /// Positions of the tile; registers may have more rows.
  int64_t count() const { return std::min<int64_t>(chunk_.gemm->tile_rows, chunk_.places - place_); }
  /// Bytes from the first position of the chunk.
  int64_t offset() const {
    const Gemm& p = *chunk_.gemm;
    if (p.gathers) return (row_ * chunk_.places + place_) * p.depth_bytes;
    return row_ * p.rows.stride * chunk_.row_bytes + place_ * p.columns.stride * p.depth;
  }
  void advance() {
    place_ += chunk_.gemm->tile_rows;
    if (place_ >= chunk_.places) place_ = 0, ++row_;
  }

 private:
  const Chunk& chunk_;
  int64_t row_ = 0, place_ = 0;
};

/// Compute the products of a panel with all positions of a chunk, and call use(sums, tile) for each tile.
template <class Use>
void multiply_tiles(const Chunk& chunk, int vectors, int64_t first_segment, const int8_t* weights, const int32_t* bias,
                    const uint8_t** segments, const Use& use) {
  const Gemm& p = *chunk.gemm;
  alignas(64) int32_t sums[kMaxSums];
  int64_t offsets[kMaxTiles];
  Q8Tiles from{segments, p.segment_count, p.words,     offsets,     p.columns.stride * p.depth,
               0,        p.tile_rows,     p.is_signed, p.prefetches};
  if (p.gathers)
    segments[0] = chunk.from, from.segment_count = 1, from.words = p.depth_bytes / 4, from.step = p.depth_bytes;
  else
    find_segments(chunk, first_segment, 0, segments);
  const int most = vectors == 1 ? kMaxTiles : 2;
  for (TileSequence tiles(chunk); !tiles.ended();) {
    TileSequence first = tiles;
    for (from.count = 0; from.count < most && !tiles.ended(); tiles.advance()) offsets[from.count++] = tiles.offset();
    p.tiles->multiply(from, vectors, weights, bias, sums);
    from.prefetches = false;  // they are in the cache now
    for (int n = 0; n < from.count; ++n, first.advance()) use(sums + n * p.tile_rows * vectors * kTileRows, first);
  }
}

void run_panel_in_tiles(const Chunk& chunk, const Q8Panel& panel, const uint8_t** segments) {
  const Gemm& p = *chunk.gemm;
  multiply_tiles(chunk, panel.vectors, panel.segments, p.weights + panel.offset, chunk.values->bias + panel.lane,
                 segments, [&](const int32_t* sums, const TileSequence& tile) {
                   finish(chunk, panel, sums, tile.row(), tile.place(), tile.count());
                 });
}

void add_bytes_in_tiles(const Chunk& chunk, int64_t first_segment, const uint8_t** segments) {
  constexpr int32_t none[kTileRows] = {};
  multiply_tiles(chunk, 1, first_segment, chunk.gemm->ones, none, segments,
                 [&](const int32_t* sums, const TileSequence& tile) {
                   int32_t* to = chunk.byte_sums + tile.row() * chunk.places + tile.place();
                   for (int64_t n = 0; n < tile.count(); ++n) to[n] = sums[n * kTileRows];
                 });
}

/// Compute the sum of the bytes under each window. A tile of ones yields it in each lane.
void add_bytes(const Chunk& chunk, int64_t first_segment, const uint8_t** segments) {
  const Gemm& p = *chunk.gemm;
  constexpr int32_t none[16] = {};
  alignas(64) int32_t sums[14 * 16];
  const int64_t step = p.columns.stride * p.depth, most = p.kernels->max_rows[1], lanes = p.kernels->lanes;
  for (int64_t row = 0; row < chunk.rows; ++row) {
    find_segments(chunk, first_segment, row, segments);
    for (int64_t place = 0; place < chunk.places; place += most) {
      int count = int(std::min(most, chunk.places - place));
      p.kernels->tile(count, 1, {segments, p.segment_count, p.words, place * step, step, chunk.flip}, p.ones, none,
                      sums);
      for (int n = 0; n < count; ++n) chunk.byte_sums[row * chunk.places + place + n] = sums[n * lanes];
    }
  }
}

void run_chunk(const Chunk& chunk, Range panels, const uint8_t** segments) {
  int64_t summed = -1;  // the segments whose bytes were summed last
  for (int64_t n = panels.first; n < panels.last; ++n) {
    const Q8Panel& panel = chunk.gemm->channels.panels[size_t(n)];
    const bool tiles = chunk.gemm->tiles;
    if (panel.moved && panel.segments != summed)
      (tiles ? add_bytes_in_tiles : add_bytes)(chunk, panel.segments, segments);
    if (panel.moved) summed = panel.segments;
    (tiles ? run_panel_in_tiles : run_panel)(chunk, panel, segments);
  }
}

/// Copy the rows that a chunk reads, with padding.
void copy_rows(const Gemm& p, uint8_t zero, const uint8_t* image, uint8_t* to, int64_t first, int64_t count) {
  int64_t begin = std::clamp<int64_t>(-p.left, 0, p.width), bytes = p.width * p.depth;
  int64_t end = std::clamp<int64_t>(p.columns.extent - p.left, begin, p.width);
  for (int64_t row = first; row < first + count; ++row, to += bytes) {
    bool inside = row >= 0 && row < p.rows.extent && begin < end;
    int64_t filled = inside ? begin * p.depth : bytes;
    memset(to, zero, size_t(filled));
    if (!inside) continue;
    const uint8_t* from = image + (row * p.columns.extent + begin + p.left) * p.depth;
    p.elementwise->copy(to + filled, from, (end - begin) * p.depth, p.flip);
    memset(to + end * p.depth, zero, size_t((p.width - end) * p.depth));
  }
}

/// Copy the bytes under the windows of a chunk to consecutive memory.
void gather(const Chunk& chunk, const uint8_t** segments, uint8_t* to) {
  const Gemm& p = *chunk.gemm;
  for (int64_t row = 0; row < chunk.rows; ++row, to += chunk.places * p.depth_bytes) {
    find_segments(chunk, 0, row, segments);
    p.tiles->gather(segments, p.segment_count, p.segment_bytes, p.columns.stride * p.depth, chunk.places, to,
                    p.depth_bytes);
  }
}

/// The scratch memory of a part: segment pointers, sums of bytes, initial values of sums, copied rows, gathered bytes.
struct Scratch {
  const uint8_t** segments;
  int32_t *byte_sums, *bias;
  uint8_t *rows, *gathered;
};

uint64_t segments_bytes(const Gemm& p) {
  return (uint64_t(std::max<int64_t>(p.segment_count, 1)) * sizeof(void*) + 63) / 64 * 64;
}

uint64_t sums_bytes(const Gemm& p) {
  int64_t places = p.flat ? p.chunk : p.chunk * p.columns.places;
  return p.ones ? (uint64_t(places) * sizeof(int32_t) + 63) / 64 * 64 : 0;
}

/// Bytes that tiles may read after the last position.
int64_t slack_of(const Gemm& p) { return kSlack + (p.tiles ? kTileRows * p.columns.stride * p.depth : 0); }

uint64_t rows_bytes(const Gemm& p) {
  if (!p.copies) return 0;
  const int64_t bytes = p.flat ? std::min(p.chunk, p.columns.places) * p.depth
                               : ((p.chunk - 1) * p.rows.stride + p.height) * p.width * p.depth;
  return uint64_t(bytes + slack_of(p) + 63) / 64 * 64;
}

uint64_t gathered_bytes(const Gemm& p) {
  return p.gathers ? uint64_t((p.chunk * p.columns.places + kTileRows) * p.depth_bytes) : 0;
}

uint64_t bias_bytes(const Gemm& p) {
  return p.column_sums ? (uint64_t(p.channels.lanes()) * sizeof(int32_t) + 63) / 64 * 64 : 0;
}

Scratch scratch_of(const Gemm& p, char* memory) {
  char *sums = memory + segments_bytes(p), *bias = sums + sums_bytes(p), *rows = bias + bias_bytes(p);
  return {reinterpret_cast<const uint8_t**>(memory), reinterpret_cast<int32_t*>(sums), reinterpret_cast<int32_t*>(bias),
          reinterpret_cast<uint8_t*>(rows), reinterpret_cast<uint8_t*>(rows + rows_bytes(p))};
}

/// The values of a run. Operands after the first two are the zero point of the input, the scales and the bias.
Values values_of(const Gemm& p, const Step& step, const Run& run, Range panels, int32_t* bias) {
  if (!p.column_sums) return {p.bias, p.zero, {}};
  Values operands{bias, p.zero, p.conversion};
  if (step.in[1]) operands.zero = uint8_t(*run.at<uint8_t>(step.in[1]) ^ uint8_t(p.flip));
  if (step.in[2]) operands.conversion.scale = run.at<float>(step.in[2]);
  if (step.in[3]) operands.conversion.bias = run.at<float>(step.in[3]);
  const Q8Panel &first = p.channels.panels[size_t(panels.first)], &last = p.channels.panels[size_t(panels.last - 1)];
  const uint32_t zero = p.is_signed ? uint32_t(int8_t(operands.zero)) : operands.zero;
  for (int64_t lane = first.lane; lane < last.lane + last.vectors * p.kernels->lanes; ++lane)
    bias[lane] = int32_t(0u - zero * uint32_t(p.column_sums[lane]));
  return operands;
}

/// Compute rows of positions [first, last) of one image.
void run_rows(const Gemm& p, const Values& values, const uint8_t* in, uint8_t* out, const uint8_t* other, Range range,
              Range panels, const Scratch& scratch) {
  for (int64_t row = range.first; row < range.last; row += p.chunk) {
    int64_t rows = std::min(p.chunk, range.last - row), first = row * p.rows.stride + p.top;
    Chunk chunk{&p,
                &values,
                in + (first * p.columns.extent + p.left) * p.depth,
                p.columns.extent * p.depth,
                p.flip,
                rows,
                p.columns.places,
                row,
                0,
                out,
                other,
                scratch.byte_sums};
    if (p.copies) {
      copy_rows(p, values.zero, in, scratch.rows, first, (rows - 1) * p.rows.stride + p.height);
      chunk.from = scratch.rows;
      chunk.row_bytes = p.width * p.depth;
      chunk.flip = 0;
    }
    if (p.gathers) {
      gather(chunk, scratch.segments, scratch.gathered);
      chunk.from = scratch.gathered;
      chunk.places *= chunk.rows;  // the results of several rows are contiguous
      chunk.rows = 1;
    }
    run_chunk(chunk, panels, scratch.segments);
  }
}

/// Return whether tiles of these positions of the only row end before the image ends.
bool is_inside(const Gemm& p, int64_t place, int64_t places) {
  if (!p.tiles) return false;
  const int64_t read = (places + p.tile_rows - 1) / p.tile_rows * p.tile_rows;
  return place + read + (p.segment_bytes % kTileBytes != 0 ? (kTileBytes + p.depth - 1) / p.depth : 0) <=
         p.columns.extent;
}

/// Compute positions [first, last) of the only row of a 1x1 window.
void run_places(const Gemm& p, const Values& values, const uint8_t* in, uint8_t* out, const uint8_t* other, Range range,
                Range panels, const Scratch& scratch) {
  for (int64_t place = range.first; place < range.last; place += p.chunk) {
    int64_t places = std::min(p.chunk, range.last - place);
    Chunk chunk{&p, &values, in + place * p.depth, 0, p.flip, 1, places, 0, place, out, other, scratch.byte_sums};
    if (p.copies && !is_inside(p, place, places)) {
      p.elementwise->copy(scratch.rows, chunk.from, places * p.depth, p.flip);
      chunk.from = scratch.rows;
      chunk.flip = 0;
    }
    run_chunk(chunk, panels, scratch.segments);
  }
}

void run_gemm(const Step& step, const Run& run, int part, int parts) {
  const Gemm& p = step.as<Gemm>();
  Scratch scratch = scratch_of(p, run.part_scratch<char>(part));
  int64_t per_image = p.flat ? p.columns.places : p.rows.places, count = p.batch * per_image;
  int64_t panel_count = int64_t(p.channels.panels.size());
  Range panels = p.by_panels ? split(panel_count, part, parts) : Range{0, panel_count};
  Range range = p.by_panels ? Range{0, count} : split(count, part, parts, p.flat && p.tiles ? 2 * p.tile_rows : 1);
  int64_t in_bytes = p.rows.extent * p.columns.extent * p.depth,
          out_bytes = p.rows.result * p.columns.result * p.outputs * p.item_size;
  if (panels.first == panels.last || range.first == range.last) return;
  const Values values = values_of(p, step, run, panels, scratch.bias);
  const uint8_t* other = p.adds ? run.at<uint8_t>(step.in[1]) : nullptr;
  if (p.tiles) p.tiles->configure(p.tile_rows);
  for (int64_t image = range.first / std::max<int64_t>(per_image, 1); image * per_image < range.last; ++image) {
    Range own{std::max(range.first - image * per_image, int64_t(0)),
              std::min(range.last - image * per_image, per_image)};
    (p.flat ? run_places : run_rows)(p, values, run.at<uint8_t>(step.in[0]) + image * in_bytes,
                                     run.at<uint8_t>(step.out[0]) + image * out_bytes,
                                     other && !p.adds_row ? other + image * out_bytes : other, own, panels, scratch);
  }
  if (p.tiles) p.tiles->release();
}

/// The product of one position with all panels.
struct Vector {
  const GemmQ8Kernels* kernels;
  std::vector<Q8GemvPanel> panels;
  Q8Requantization requantization;
  Q8Gemv work;

  explicit Vector(const Gemm& p)
      : kernels(p.kernels),
        requantization(p.requantization), work{nullptr, p.words, p.flip, p.weights, p.bias, &requantization} {
    for (const Q8Panel& panel : p.channels.panels)
      panels.push_back({panel.first, panel.channels, panel.vectors, panel.lane, panel.offset});
    work.panels = panels.data();
  }
  Vector(const Vector&) = delete;  // contains pointers to itself
  Vector& operator=(const Vector&) = delete;
};

/// Return whether `gemv` computes the whole product.
bool is_gemv(const Gemm& p) {
  return p.flat && p.columns.places == 1 && p.segment_count == 1 && !p.copies && !p.adds && p.ones == nullptr &&
         p.requantization.is_simple();
}

void run_gemv(const Step& step, const Run& run, int part, int parts) {
  const Vector& v = step.as<Vector>();
  Range panels = split(int64_t(v.panels.size()), part, parts);
  v.kernels->gemv(v.work, run.at<uint8_t>(step.in[0]), run.at<uint8_t>(step.out[0]), panels.first, panels.last);
}

// ---- Packing --------------------------------------------------------------------------------------------------------

/// Groups that are multiplied together with zeros in between, so that vectors are not mostly empty.
struct Slices {
  int64_t groups, inputs, outputs;  // of one slice
};
Slices slices_of(const Q8Window& w) {
  int64_t inputs = w.depth / w.groups, outputs = w.outputs / w.groups, together = 1;
  while (together * 2 <= w.groups && w.groups % (together * 2) == 0 && together * 2 * outputs <= 16) together *= 2;
  return {together, together * inputs, together * outputs};
}

/// The length of rows of adjacent taps, whose bytes are contiguous; 1 if there are none.
int64_t adjacent_taps(const Q8Window& w) {
  if (w.taps.empty() || w.groups > 1) return 1;
  int64_t length = 1;
  while (size_t(length) < w.taps.size() && w.taps[size_t(length)].y == w.taps[0].y) ++length;
  for (size_t n = 0; n < w.taps.size(); ++n)
    if (n % size_t(length) != 0 && (w.taps[n].y != w.taps[n - 1].y || w.taps[n].x != w.taps[n - 1].x + 1)) return 1;
  return int64_t(w.taps.size()) % length == 0 ? length : 1;
}

/// Sums and limits of weights minus their zero point.
struct Spread {
  int64_t sum = 0, size = 0;
  int32_t least = 0, most = 0;

  /// Add weights that are `by` elements apart. Compilers vectorize loops of a constant length, whose sums fit 16 bits.
  template <class T>
  void add(const T* from, int64_t by, int64_t count, int32_t zero) {
    constexpr int64_t block = 64;
    int64_t n = 0;
    for (; by == 1 && n + block <= count; n += block) add_block<block>(from + n, zero);
    for (; n < count; ++n) add_block<1>(from + n * by, zero);
  }

 private:
  template <int64_t count, class T>
  void add_block(const T* from, int32_t zero) {
    int16_t sums = 0, sizes = 0, low = int16_t(least), high = int16_t(most);
    for (int64_t n = 0; n < count; ++n) {
      const int16_t weight = int16_t(from[n] - int16_t(zero)), negated = int16_t(-weight);
      sums = int16_t(sums + weight);
      sizes = int16_t(sizes + std::max(weight, negated));
      low = std::min(low, weight);
      high = std::max(high, weight);
    }
    sum += sums, size += sizes, least = low, most = high;
  }
};

/// Return whether the weights of a channel are consecutive elements, from the least offset of a tap on.
bool is_contiguous(const Q8Window& w) {
  std::vector<int64_t> taps = w.weight.taps;
  std::sort(taps.begin(), taps.end());
  const int64_t inputs = w.depth / w.groups, count = int64_t(taps.size());
  const int64_t step = w.weight.by_input == 1 ? inputs : 1;
  if (w.weight.by_input != (step == 1 ? count : 1)) return false;
  for (int64_t n = 0; n < count; ++n)
    if (taps[size_t(n)] != taps[0] + n * step) return false;
  return count > 0;
}

template <class T>
Spread spread_of(const Q8Window& w, int64_t channel, bool contiguous) {
  Spread spread;
  const T* data = static_cast<const T*>(w.weight.data);
  const int64_t inputs = w.depth / w.groups, taps = int64_t(w.taps.size());
  const int32_t zero = w.weight.zero(channel);
  if (contiguous) {
    const int64_t least = *std::min_element(w.weight.taps.begin(), w.weight.taps.end());
    spread.add(data + w.weight.place(channel, 0) - w.weight.taps[0] + least, 1, inputs * taps, zero);
    return spread;
  }
  for (int64_t tap = 0; tap < taps; ++tap)
    spread.add(data + w.weight.place(channel, size_t(tap)), w.weight.by_input, inputs, zero);
  return spread;
}

/// Compute the ranges of the sums. Weights that need 9 bits are shifted by an offset, so that they fit int8. `small`
/// becomes whether none of them is -128 then.
Q8Sums sums_of(const Q8Window& w, const std::vector<int64_t>& biases, int64_t zero, bool* small) {
  Q8Sums sums;
  *small = true;
  const bool contiguous = is_contiguous(w);
  for (int64_t channel = 0; channel < w.outputs; ++channel) {
    const Spread spread =
        w.weight.is_signed ? spread_of<int8_t>(w, channel, contiguous) : spread_of<uint8_t>(w, channel, contiguous);
    int32_t offset = spread.least < -128 ? spread.least + 128 : spread.most > 127 ? spread.most - 127 : 0;
    *small = *small && spread.least - offset > -128 && offset <= 127;
    sums.add({spread.sum, spread.size}, biases[size_t(channel)], zero, offset);
  }
  return sums;
}

/// Write weights that are `by` elements apart, minus an offset, to consecutive bytes.
template <class T>
void shift_weights(const T* from, int64_t by, int64_t count, int32_t offset, int8_t* to) {
  if (by == 1)
    for (int64_t n = 0; n < count; ++n) to[n] = int8_t(from[n] - offset);
  else
    for (int64_t n = 0; n < count; ++n) to[n] = int8_t(from[n * by] - offset);
}

/// Write the weights of a channel as kernels multiply them, which consecutive segments are `pitch` bytes apart.
void lay_out(const Q8Window& w, const Slices& slices, int64_t length, int64_t pitch, int64_t channel, int32_t offset,
             int8_t* to) {
  const int64_t inputs = w.depth / w.groups, outputs = w.outputs / w.groups;
  const int64_t own = length > 1 ? 0 : channel / outputs % slices.groups * inputs;
  const int32_t zero = w.weight.zero(channel) + offset;
  for (size_t tap = 0; tap < w.taps.size(); ++tap) {
    int8_t* segment = to + int64_t(tap) / length * pitch;
    if (slices.groups > 1) memset(segment, -offset, size_t(slices.inputs));  // weights of other groups are zero
    int8_t* place = segment + own + int64_t(tap) % length * w.depth;
    const int64_t from = w.weight.place(channel, tap), by = w.weight.by_input;
    if (w.weight.is_signed)
      shift_weights(static_cast<const int8_t*>(w.weight.data) + from, by, inputs, zero, place);
    else
      shift_weights(static_cast<const uint8_t*>(w.weight.data) + from, by, inputs, zero, place);
  }
}

/// Let the pieces of rows alternate, each of `piece` bytes. Rows are `pitch` bytes apart, and `bytes` long.
void interleave(const MoveKernels& kernels, int64_t piece, const int8_t* rows, int64_t count, int64_t pitch,
                int64_t bytes, int8_t* to) {
  const Box box{2, piece, {bytes / piece, count}, {piece, pitch}, {count * piece, piece}};
  kernels.copy(box, reinterpret_cast<const char*>(rows), reinterpret_cast<char*>(to), 0, box.extent[0]);
}

/// Consecutive bytes of a channel in packed weights.
int64_t piece_of(const Gemm& p) { return p.tiles ? 4 : p.kernels->weight_bytes; }

/// Bytes between the weights of consecutive segments.
int64_t segment_pitch(const Gemm& p) { return p.gathers ? p.segment_bytes : p.words * 4; }

/// Pack the weights of panels [first, last).
void pack_panels(const MoveKernels& moves, const Gemm& p, const Q8Window& w, const Slices& slices, int64_t length,
                 const Q8Sums& sums, Range panels, int8_t* to) {
  const int64_t pitch = p.depth_bytes + 64;  // no power of two, which caches hold few rows of
  const bool fills = p.segment_bytes == segment_pitch(p) && p.segment_count * p.segment_bytes == p.depth_bytes;
  std::vector<int8_t> rows;
  for (int64_t number = panels.first; number < panels.last; ++number) {
    const Q8Panel& panel = p.channels.panels[size_t(number)];
    const int64_t lanes = panel.vectors * p.kernels->lanes;
    const int64_t together = p.tiles ? std::min<int64_t>(lanes, 2 * kTileRows) : lanes;  // lanes whose words alternate
    for (int64_t first = 0; first < lanes; first += together) {
      rows.resize(size_t(together * pitch));
      for (int64_t lane = 0; lane < together; ++lane) {
        const int64_t channel = p.channels.of_lane[size_t(panel.lane + first + lane)];
        int8_t* row = rows.data() + lane * pitch;
        if (!fills || channel < 0) memset(row, 0, size_t(p.depth_bytes));
        if (channel >= 0) lay_out(w, slices, length, segment_pitch(p), channel, sums.offset[size_t(channel)], row);
      }
      int8_t* packed = to + panel.offset + first * p.depth_bytes;
      interleave(moves, piece_of(p), rows.data(), together, pitch, p.depth_bytes, packed);
    }
  }
}

void pack_ones(const Gemm& p, int8_t* to) {
  const int64_t pitch = segment_pitch(p), piece = piece_of(p);
  for (int64_t segment = 0; segment < p.segment_count; ++segment)
    for (int64_t byte = segment * pitch; byte < segment * pitch + p.segment_bytes; ++byte)
      for (int64_t lane = 0; lane < p.kernels->lanes; ++lane)
        to[(byte / piece * p.kernels->lanes + lane) * piece + byte % piece] = 1;
}

/// Return whether kernels read more bytes than the segments of a row have.
bool reads_more(const Gemm& p) {
  if (!p.tiles) return p.segment_bytes % p.kernels->weight_bytes != 0;
  return !p.gathers && (p.segment_bytes % kTileBytes != 0 || p.columns.places % p.tile_rows != 0);
}

/// Compute which rows and columns the window reads, and whether these have to be copied.
void place(Gemm& p, const Q8Window& w) {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  for (size_t n = 0; n < w.taps.size(); ++n) {
    const Q8Tap& tap = w.taps[n];
    top = n ? std::min(top, tap.y) : tap.y, bottom = n ? std::max(bottom, tap.y) : tap.y;
    left = n ? std::min(left, tap.x) : tap.x, right = n ? std::max(right, tap.x) : tap.x;
  }
  p.top = top;
  p.left = left;
  p.height = bottom - top + 1;
  p.width = (w.columns.places - 1) * w.columns.stride + right - left + 1;
  int64_t last = (w.rows.places - 1) * w.rows.stride + bottom;
  bool outside = top < 0 || left < 0 || last >= w.rows.extent || left + p.width > w.columns.extent;
  p.copies = (outside || reads_more(p)) && !w.taps.empty();
}

/// Return whether position n of the window is pixel n of the image and element n of the result, for all pixels and
/// elements. Padding at the end adds positions; cropping at the end of a transposed convolution removes some.
bool covers_image(const Q8Axis& axis) {
  return axis.stride == 1 && axis.step == 1 && axis.first == 0 && axis.places == axis.extent &&
         axis.places == axis.result;
}

/// The same for tiles, which read weights from the second-level cache. If the weights fit it, a chunk is small, so that
/// all channels of a position are written soon after one another.
int64_t tiled_chunk_of(const Gemm& p, int64_t weight_bytes) {
  const int64_t together = kMaxTiles * p.tile_rows;
  const int64_t room = (weight_bytes > kCachedWeights ? 256 : p.flat ? 16 : 64) * 1024;
  if (p.flat) return std::max<int64_t>(1, room / std::max<int64_t>(p.depth, 1) / together) * together;
  const int64_t row = p.gathers ? p.columns.places * p.depth_bytes : p.width * p.depth * p.rows.stride;
  return std::max<int64_t>(1, room / std::max<int64_t>(row, 1));
}

/// Rows (or positions) whose operands fit a cache together with the weights: 96 KiB if the weights exceed the
/// first-level cache, otherwise 20 KiB.
int64_t chunk_of(const Gemm& p, int64_t weight_bytes) {
  if (p.tiles) return tiled_chunk_of(p, weight_bytes);
  int64_t room = weight_bytes > 24 * 1024 ? 96 * 1024 : 20 * 1024;
  if (p.flat) return std::max<int64_t>(84, room / std::max<int64_t>(p.depth, 1) / 84 * 84);
  int64_t row = std::max<int64_t>(p.width * p.depth * p.rows.stride, 1);
  return std::max<int64_t>(1, (room - p.height * p.width * p.depth) / row);
}

/// Let all pixels of all images form one row, if the window is a single pixel that slides over each of them.
bool flatten(Q8Window& w) {
  bool is_single_pixel =
      w.taps.size() == 1 && w.taps[0].y == 0 && w.taps[0].x == 0 && covers_image(w.rows) && covers_image(w.columns);
  if (!is_single_pixel) return false;
  int64_t pixels = w.batch * w.rows.places * w.columns.places;
  w.batch = 1;
  w.rows = {1, 1, 1, 1, 0, 1};
  w.columns = {pixels, pixels, 1, pixels, 0, 1};
  return true;
}

/// Bytes of a position whose segments are gathered.
int64_t gathered_depth(const Gemm& p) {
  return (p.segment_count * p.segment_bytes + kTileBytes - 1) / kTileBytes * kTileBytes;
}

/// Positions of a tile, if a row of `places` is divided into as few as possible of equal size.
int64_t tile_rows_of(int64_t places) {
  const int64_t tiles = (places + kTileRows - 1) / kTileRows;
  return (places + tiles - 1) / tiles;
}

/// Cycles of a product in tile registers, of the same product in vectors, and of the copies for gathered segments.
struct TileCosts {
  static constexpr double kLeastTile = 8;        // cycles of the product of two tiles, if there are few positions
  static constexpr double kVector = 2;           // vectors of four bytes that are multiplied in a cycle
  static constexpr double kGatheredLine = 3;     // cycles of copying up to 64 bytes
  static constexpr int64_t kLeastPositions = 4;  // below this, reading the weights takes longest

  double direct, gathered, vectors;

  TileCosts(const Gemm& p) {
    const int64_t rows = p.flat ? 1 : p.rows.places, places = p.columns.places, all = rows * places;
    const double channels = double((p.outputs + kTileRows - 1) / kTileRows);
    const double lines = double((p.segment_bytes + kTileBytes - 1) / kTileBytes), segments = double(p.segment_count);
    direct = tiles(rows, places) * segments * lines * channels;
    gathered = tiles(1, all) * double(gathered_depth(p) / kTileBytes) * channels +
               double(all) * segments * lines * kGatheredLine;
    vectors = double(all) * segments * double((p.segment_bytes + 3) / 4) * channels / kVector;
  }

 private:
  static double tiles(int64_t rows, int64_t places) {
    return double(rows * ((places + kTileRows - 1) / kTileRows)) * std::max(double(tile_rows_of(places)), kLeastTile);
  }
};

/// Return whether the results of consecutive positions are consecutive, also across rows.
bool is_dense(const Gemm& p) {
  return p.rows.step == 1 && p.columns.step == 1 && p.columns.first == 0 && p.columns.places == p.columns.result;
}

/// Choose whether tile registers multiply, and whether bytes are gathered for them. Groups are in several slices if
/// their segments begin at different channels.
void choose_tiles(Gemm& p, Isa isa, bool several_slices) {
  p.tiles = nullptr, p.tile_rows = 0, p.gathers = false;
  const int64_t rows = p.flat ? 1 : p.rows.places;
  if (p.segment_count * p.segment_bytes == 0 || rows * p.columns.places < TileCosts::kLeastPositions) return;
  const TileCosts costs(p);
  p.gathers = !p.flat && !several_slices && is_dense(p) && costs.gathered < costs.direct;
  if (costs.vectors < (p.gathers ? costs.gathered : costs.direct))
    p.gathers = false;
  else
    p.tiles = tile_q8_kernels_for(isa);
  p.gathers = p.gathers && p.tiles;
  p.tile_rows = int(tile_rows_of(p.gathers ? rows * p.columns.places : p.columns.places));
}

/// Transpose weights whose consecutive elements are those of consecutive channels, so that the elements of a channel
/// are, which takes less time than to read them with gaps. `memory` receives the elements.
void transpose_weights(Q8Window& w, std::vector<int8_t>& memory) {
  if (w.taps.size() != 1 || w.groups != 1 || w.weight.by_output != 1 || w.weight.by_input <= 1) return;
  constexpr int64_t block = 64;
  const int8_t* from = static_cast<const int8_t*>(w.weight.data) + w.weight.taps[0];
  memory.resize(size_t(w.outputs * w.depth));
  for (int64_t first = 0; first < w.depth; first += block)
    for (int64_t start = 0; start < w.outputs; start += block)
      for (int64_t channel = start; channel < std::min(start + block, w.outputs); ++channel)
        for (int64_t input = first; input < std::min(first + block, w.depth); ++input)
          memory[size_t(channel * w.depth + input)] = from[input * w.weight.by_input + channel];
  w.weight.data = memory.data();
  w.weight.taps[0] = 0, w.weight.by_output = w.depth, w.weight.by_group = 0, w.weight.by_input = 1;
}

/// Divide the channels into panels, and pack the weights. Return the ranges of the sums, and the bytes of the weights.
std::pair<Q8Sums, int64_t> pack(Builder& builder, Gemm& p, Q8Window& w, const Tensor& input,
                                const std::vector<int64_t>& biases, int64_t zero, bool natural) {
  std::vector<int8_t> transposed;
  transpose_weights(w, transposed);
  p.flat = flatten(w);
  p.kernels = &gemm_q8_kernels_for(builder.settings.isa);
  p.elementwise = &elementwise_q8_kernels_for(builder.settings.isa);
  p.batch = w.batch, p.depth = w.depth, p.outputs = w.outputs, p.rows = w.rows, p.columns = w.columns;
  p.flip = flip_of(input, p.kernels->is_signed);
  p.column_sums = nullptr, p.item_size = 1, p.adds = p.adds_row = false;

  int64_t length = adjacent_taps(w);
  Slices slices = slices_of(w);
  int64_t segment_bytes = length > 1 ? length * w.depth : slices.inputs;
  p.segment_count = int64_t(w.taps.size()) / length;
  p.segment_bytes = segment_bytes;
  choose_tiles(p, builder.settings.isa, slices.groups < w.groups);
  p.words = p.tiles ? (segment_bytes + kTileBytes - 1) / kTileBytes * kTileWords : words_of(*p.kernels, segment_bytes);
  p.depth_bytes = p.gathers ? gathered_depth(p) : p.segment_count * p.words * 4;
  p.is_signed = p.tiles ? is_signed(input) : p.kernels->is_signed;
  if (p.tiles) p.flip = 0;
  if (p.is_signed) zero -= 128;
  p.zero = uint8_t(zero);
  for (int64_t slice = 0; slice * slices.groups < w.groups; ++slice) {
    size_t first = p.channels.panels.size();
    p.channels.add(slice * slices.outputs, slices.outputs, p.kernels->lanes, natural);
    for (size_t n = first; n < p.channels.panels.size(); ++n)
      p.channels.panels[n].segments = int64_t(p.segments.size());
    for (size_t tap = 0; tap < w.taps.size(); tap += size_t(length))
      p.segments.push_back({w.taps[tap].y, w.taps[tap].x, slice * slices.inputs});
  }
  int64_t weight_bytes = 0;
  for (Q8Panel& panel : p.channels.panels) {
    panel.offset = weight_bytes;
    weight_bytes += p.depth_bytes * panel.vectors * p.kernels->lanes;
  }
  place(p, w);
  p.chunk = chunk_of(p, weight_bytes);
  p.prefetches = weight_bytes > kCachedWeights;
  p.reads_rows = !p.tiles && p.kernels->row_tile && length == 3 && p.columns.stride == 1 && p.depth % 4 == 0;

  Q8Sums sums = sums_of(w, biases, zero, &p.small);
  bool moved = std::any_of(sums.offset.begin(), sums.offset.end(), [](int32_t offset) { return offset != 0; });
  int64_t ones_bytes = moved ? p.depth_bytes * p.kernels->lanes : 0;
  const void* packed = builder.pack(uint64_t(std::max<int64_t>(weight_bytes + ones_bytes, 64)), [&](void* memory) {
    int8_t* to = static_cast<int8_t*>(memory);
    builder.divide(int64_t(p.channels.panels.size()), 2 * uint64_t(weight_bytes), [&](int64_t first, int64_t last) {
      pack_panels(move_kernels_for(builder.settings.isa), p, w, slices, length, sums, {first, last}, to);
    });
    if (ones_bytes) pack_ones(p, to + weight_bytes);
  });
  p.weights = static_cast<const int8_t*>(packed);
  p.ones = moved ? p.weights + weight_bytes : nullptr;
  for (Q8Panel& panel : p.channels.panels)
    for (int64_t n = panel.first; n < panel.first + panel.channels; ++n)
      panel.moved = panel.moved || sums.offset[size_t(n)] != 0;
  return {std::move(sums), weight_bytes};
}

double nanoseconds_of(const Gemm& p, const Q8Window& w, int64_t weight_bytes) {
  const double places = double(w.batch * w.rows.places * w.columns.places);
  const double bytes_per_ns = p.tiles ? cost::kTileWeightBytesPerNs : cost::kQuantizedWeightBytesPerNs;
  return places * double(weight_bytes) / bytes_per_ns + places * double(w.outputs) / cost::kRequantizedPerNs;
}

/// The step of a GEMM on `in`, without its result.
Step step_of(Builder& builder, const std::string& name, const std::shared_ptr<Gemm>& gemm, const Q8Window& w,
             int64_t weight_bytes, Buffer in) {
  Gemm& p = *gemm;
  int64_t places = w.batch * w.rows.places * w.columns.places;
  Step step;
  step.name = name;
  step.fn = run_gemm;
  step.max_parts = parts_for(builder.settings, nanoseconds_of(p, w, weight_bytes));
  int64_t parts = step.max_parts, pieces = p.flat ? places / 42 : w.batch * w.rows.places;
  p.by_panels = int64_t(p.channels.panels.size()) >= parts && (pieces < parts || weight_bytes > places * w.depth * 2);
  if (!p.by_panels) step.max_parts = int(std::clamp<int64_t>(pieces, 1, parts));
  step.in = {in};
  step.scratch_per_part = segments_bytes(p) + sums_bytes(p) + bias_bytes(p) + rows_bytes(p) + gathered_bytes(p);
  step.state = gemm;
  return step;
}

bool is_empty(const Q8Window& w) { return w.batch * w.rows.places * w.columns.places * w.outputs == 0; }

}  // namespace

void add_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Rounding& rule,
              const Q8Posts& posts, const Tensor& input, const Tensor* bias, const Tensor& output, Buffer in,
              Buffer out, Buffer other) {
  Q8Window w = window;
  if (is_empty(w)) return;
  auto gemm = std::make_shared<Gemm>();
  Gemm& p = *gemm;
  const std::vector<int64_t> biases = q8_biases(rule, bias, w.outputs);
  auto [sums, weight_bytes] = pack(builder, p, w, input, biases, uint8_t(unsigned_zero(input)), false);
  const Tensor& result = builder.graph[posts.result];
  const void* parameters = Q8Parameters::pack(builder, p.channels, rule, result, posts.limits, sums);
  Q8Parameters own(parameters, p.channels.lanes(), result, posts.limits);
  p.bias = own.bias;
  p.requantization = own.requantization;
  p.adds = posts.other >= 0;
  p.adds_row = p.adds && is_row(builder.graph[posts.other], output);
  if (p.adds)
    p.addition =
        q8_addition(builder, result, builder.graph[posts.other], output, posts.limits_of_sum, posts.adds_to_even);

  Step step = step_of(builder, name, gemm, w, weight_bytes, in);
  if (p.adds) step.in.push_back(other);
  step.out = {out};
  if (is_gemv(p)) {
    step.fn = run_gemv;
    step.state = std::make_shared<Vector>(p);
    step.max_parts = int(std::min<int64_t>(parts_for(builder.settings, nanoseconds_of(p, w, weight_bytes)),
                                           int64_t(p.channels.panels.size())));
    step.scratch_per_part = 0;
  }
  builder.add(std::move(step));
}

Step integer_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Products& products,
                  const Tensor& input, Buffer in, Buffer out) {
  Q8Window w = window;
  auto gemm = std::make_shared<Gemm>();
  Gemm& p = *gemm;
  auto [sums, weight_bytes] =
      pack(builder, p, w, input, std::vector<int64_t>(size_t(w.outputs)), is_signed(input) ? 128 : 0, true);
  p.item_size = 4;
  const size_t lanes = size_t(p.channels.lanes());
  const Q8Sums& found = sums;
  const void* packed = builder.pack(2 * lanes * sizeof(int32_t), [&](void* memory) {
    int32_t *column_sums = static_cast<int32_t*>(memory), *offsets = column_sums + lanes;
    for (size_t lane = 0; lane < lanes; ++lane) {
      int64_t channel = p.channels.of_lane[lane];
      if (channel < 0) continue;
      column_sums[lane] = int32_t(found.weights[size_t(channel)]);
      offsets[lane] = found.offset[size_t(channel)];
    }
  });
  p.column_sums = static_cast<const int32_t*>(packed);
  p.conversion = {p.column_sums + lanes, nullptr, nullptr, products.scale_count > 1, products.low, products.high};
  Step step = step_of(builder, name, gemm, w, weight_bytes, in);
  for (const Buffer& operand : {products.zero, products.scale, products.bias}) step.in.push_back(operand);
  step.out = {out};
  return step;
}

void add_integer_gemm(Builder& builder, const std::string& name, const Q8Window& window, const Q8Products& products,
                      const Tensor& input, Buffer in, Buffer out) {
  if (!is_empty(window)) builder.add(integer_gemm(builder, name, window, products, input, in, out));
}

}  // namespace cpuacc
