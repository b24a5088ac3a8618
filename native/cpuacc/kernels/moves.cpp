#include "cpuacc/kernels/moves.hpp"

#include <string.h>

#include "cpuacc/kernels/simd.hpp"

namespace cpuacc::ISA_NS {

template <class Item>
static void copy_row(const char* in, char* out, int64_t from, int64_t to, int64_t count) {
  const int64_t size = int64_t(sizeof(Item));
  if (to == size) {
    for (int64_t n = 0; n < count; ++n) {
      Item value;
      memcpy(&value, in + n * from, sizeof value);
      memcpy(out + n * size, &value, sizeof value);
    }
    return;
  }
  for (int64_t n = 0; n < count; ++n) memcpy(out + n * to, in + n * from, sizeof(Item));
}

// ---- Transpositions: columns of the operand and rows of the result are contiguous -----------------------------------

/// The bytes of the widest vectors in which elements are transposed. A square of them has to fit into the registers.
template <class Item>
constexpr int kWidest = sizeof(Item) >= 4 ? 4 * kLanes : 16;

/// A vector of elements, and two interleavings of the halves of two of them.
template <class Item, int kBytes>
struct Row {
  static constexpr int kCount = kBytes / int(sizeof(Item));
  typedef Item Vector __attribute__((vector_size(kBytes)));

  static Vector load(const char* from) {
    Vector v;
    memcpy(&v, from, sizeof v);
    return v;
  }
  static Vector interleaved(Vector a, Vector b, int half) {
    Vector from;
    for (int n = 0; n < kCount / 2; ++n) {
      from[2 * n] = Item(half * kCount / 2 + n);
      from[2 * n + 1] = Item(kCount + half * kCount / 2 + n);
    }
    return shuffled(a, b, from);
  }
};

/// Transpose a square with one vector in a row. Interleaving the first with the second half of the rows as often as the
/// number of rows can be halved is a transposition.
template <class Item, int kBytes>
static inline __attribute__((always_inline)) void turn_square(const char* in, int64_t from, char* out, int64_t to) {
  using R = Row<Item, kBytes>;
  typename R::Vector x[R::kCount], y[R::kCount];
#pragma GCC unroll 16
  for (int n = 0; n < R::kCount; ++n) x[n] = R::load(in + n * from);
#pragma GCC unroll 4
  for (int round = 1; round < R::kCount; round *= 2) {
#pragma GCC unroll 16
    for (int n = 0; n < R::kCount / 2; ++n) {
      y[2 * n] = R::interleaved(x[n], x[n + R::kCount / 2], 0);
      y[2 * n + 1] = R::interleaved(x[n], x[n + R::kCount / 2], 1);
    }
#pragma GCC unroll 16
    for (int n = 0; n < R::kCount; ++n) x[n] = y[n];
  }
#pragma GCC unroll 16
  for (int n = 0; n < R::kCount; ++n) memcpy(out + n * to, &x[n], sizeof x[n]);
}

/// Transpose `rows` by `columns` elements, at least a square of `kBytes` vectors. The last squares overlap others.
template <class Item, int kBytes>
static inline __attribute__((always_inline)) void turn_squares(const char* in, char* out, int64_t from, int64_t to,
                                                               int64_t rows, int64_t columns) {
  constexpr int64_t size = sizeof(Item), side = Row<Item, kBytes>::kCount;
  for (int64_t c = 0; c < columns; c += side)
    for (int64_t r = 0; r < rows; r += side) {
      const int64_t row = r + side <= rows ? r : rows - side, column = c + side <= columns ? c : columns - side;
      turn_square<Item, kBytes>(in + row * size + column * from, from, out + row * to + column * size, to);
    }
}

/// Transpose a tile of up to 64 by 64 bytes. Whole rows of it are put together in a buffer, so that whole lines of the
/// cache are written. Each line is read at once, because lines at large strides may replace each other in the cache.
template <class Item>
static void turn_tile(const char* in, char* out, int64_t from, int64_t to, int64_t rows, int64_t columns) {
  constexpr int64_t size = sizeof(Item), kTile = 64 / size;
  if (columns < kTile) return turn_squares<Item, 16>(in, out, from, to, rows, columns);
  if (rows == kTile && kWidest<Item> == 64) return turn_squares<Item, kWidest<Item>>(in, out, from, to, kTile, kTile);
  alignas(64) char tile[64 * kTile];
  if (rows == kTile)
    turn_squares<Item, kWidest<Item>>(in, tile, from, 64, kTile, kTile);
  else
    turn_squares<Item, 16>(in, tile, from, 64, rows, kTile);
  for (int64_t r = 0; r < rows; ++r) memcpy(out + r * to, tile + r * 64, 64);
}

/// Few contiguous columns in each row, such as the channels of an image. A constant number of columns becomes vector
/// code.
template <class Item, int64_t kColumns>
static void interleave(const char* in, char* out, int64_t from, int64_t rows) {
  typedef Item Loose __attribute__((aligned(1), may_alias));
  Loose* __restrict to = reinterpret_cast<Loose*>(out);
  const Loose* __restrict source = reinterpret_cast<const Loose*>(in);
  const int64_t step = from / int64_t(sizeof(Item));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < kColumns; ++c) to[r * kColumns + c] = source[c * step + r];
}

/// The reverse: few rows, whose elements alternate in the operand.
template <class Item, int64_t kRows>
static void separate(const char* in, char* out, int64_t to, int64_t columns) {
  typedef Item Loose __attribute__((aligned(1), may_alias));
  const Loose* __restrict source = reinterpret_cast<const Loose*>(in);
  Loose* __restrict target = reinterpret_cast<Loose*>(out);
  const int64_t step = to / int64_t(sizeof(Item));
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < kRows; ++r) target[r * step + c] = source[c * kRows + r];
}

struct Piece {
  int64_t first, count;
};

/// Up to `kTile` elements from `first`, or the last `kLeast` elements if fewer are left.
template <int64_t kTile, int64_t kLeast>
static Piece piece_of(int64_t first, int64_t end) {
  if (end - first < kLeast) return {end - kLeast, kLeast};
  return {first, end - first < kTile ? end - first : kTile};
}

template <class Item>
static void copy_turned(const char* in, char* out, int64_t from, int64_t to, int64_t rows, int64_t columns) {
  constexpr int64_t size = sizeof(Item), kTile = 64 / size, kLeast = 16 / size;
  if (to == columns * size && columns == 2) return interleave<Item, 2>(in, out, from, rows);
  if (to == columns * size && columns == 3) return interleave<Item, 3>(in, out, from, rows);
  if (to == columns * size && columns == 4) return interleave<Item, 4>(in, out, from, rows);
  if (from == rows * size && rows == 2) return separate<Item, 2>(in, out, to, columns);
  if (from == rows * size && rows == 3) return separate<Item, 3>(in, out, to, columns);
  if (from == rows * size && rows == 4) return separate<Item, 4>(in, out, to, columns);
  if (rows < kLeast) {
    for (int64_t r = 0; r < rows; ++r) copy_row<Item>(in + r * size, out + r * to, from, size, columns);
    return;
  }
  if (columns < kLeast) {
    for (int64_t c = 0; c < columns; ++c) copy_row<Item>(in + c * from, out + c * size, size, to, rows);
    return;
  }
  constexpr int64_t kBand = 4 * kTile;
  for (int64_t band = 0; band < rows; band += kBand) {
    const int64_t end = rows - band < kBand ? rows : band + kBand;
    for (int64_t c = 0; c < columns; c += kTile) {
      const Piece across = piece_of<kTile, kLeast>(c, columns);
      for (int64_t next = c + kTile; next < columns && next < c + 2 * kTile; ++next)
        for (int64_t r = band; r < end; r += kTile) __builtin_prefetch(in + r * size + next * from);
      for (int64_t r = band; r < end; r += kTile) {
        const Piece down = piece_of<kTile, kLeast>(r, end);
        turn_tile<Item>(in + down.first * size + across.first * from, out + down.first * to + across.first * size, from,
                        to, down.count, across.count);
      }
    }
  }
}

template <class Item>
static void copy_rows(const char* in, char* out, int64_t in_row, int64_t out_row, int64_t from, int64_t to,
                      int64_t rows, int64_t columns) {
  const int64_t size = int64_t(sizeof(Item));
  if (in_row == size && to == size && from != size) return copy_turned<Item>(in, out, from, out_row, rows, columns);
  for (int64_t r = 0; r < rows; ++r) {
    if (from == size && to == size)
      memcpy(out + r * out_row, in + r * in_row, size_t(columns * size));
    else
      copy_row<Item>(in + r * in_row, out + r * out_row, from, to, columns);
  }
}

static void copy_plane(const Box& box, const char* in, char* out, int64_t rows) {
  int last = box.rank - 1, row = box.rank - 2;
  int64_t in_row = row >= 0 ? box.from[row] : 0, out_row = row >= 0 ? box.to[row] : 0;
  int64_t from = box.from[last], to = box.to[last], columns = box.extent[last];
  switch (box.item_size) {
    case 1:
      return copy_rows<uint8_t>(in, out, in_row, out_row, from, to, rows, columns);
    case 2:
      return copy_rows<uint16_t>(in, out, in_row, out_row, from, to, rows, columns);
    case 4:
      return copy_rows<uint32_t>(in, out, in_row, out_row, from, to, rows, columns);
    default:
      return copy_rows<uint64_t>(in, out, in_row, out_row, from, to, rows, columns);
  }
}

static void copy(const Box& box, const char* in, char* out, int64_t first, int64_t last) {
  int64_t per_plane = box.rank > 1 ? box.extent[box.rank - 2] : 1;
  for (int64_t row = first; row < last;) {
    int64_t place = row, in_at = 0, out_at = 0;
    for (int axis = box.rank - 2; axis >= 0; --axis) {
      int64_t index = place % box.extent[axis];
      place /= box.extent[axis];
      in_at += index * box.from[axis];
      out_at += index * box.to[axis];
    }
    int64_t rows = per_plane - row % per_plane;
    if (rows > last - row) rows = last - row;
    copy_plane(box, in + in_at, out + out_at, rows);
    row += rows;
  }
}

template <class Item>
static void fill_items(char* out, const char* value, int64_t count) {
  for (int64_t n = 0; n < count; ++n) memcpy(out + n * int64_t(sizeof(Item)), value, sizeof(Item));
}

static void fill(char* out, const char* value, int64_t item_size, int64_t count) {
  switch (item_size) {
    case 1:
      memset(out, *reinterpret_cast<const unsigned char*>(value), size_t(count));
      return;
    case 2:
      return fill_items<uint16_t>(out, value, count);
    case 4:
      return fill_items<uint32_t>(out, value, count);
    default:
      return fill_items<uint64_t>(out, value, count);
  }
}

template <class Item>
static void pick_items(const char* in, char* out, const int64_t* offsets, int64_t count) {
  for (int64_t n = 0; n < count; ++n) memcpy(out + n * int64_t(sizeof(Item)), in + offsets[n], sizeof(Item));
}

static void pick(const char* in, char* out, const int64_t* offsets, int64_t item_size, int64_t inner) {
  switch (item_size) {
    case 1:
      return pick_items<uint8_t>(in, out, offsets, inner);
    case 2:
      return pick_items<uint16_t>(in, out, offsets, inner);
    case 4:
      return pick_items<uint32_t>(in, out, offsets, inner);
    default:
      return pick_items<uint64_t>(in, out, offsets, inner);
  }
}

extern const MoveKernels move_kernels = {copy, fill, pick};

}  // namespace cpuacc::ISA_NS
