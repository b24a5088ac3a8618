#include "cpuacc/kernels/moves.hpp"

#include <string.h>

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

/// Transpose rows by columns: columns of the operand and rows of the result are contiguous. Tiles of 16 x 16 fit the
/// cache.
template <class Item>
static void copy_turned(const char* in, char* out, int64_t from, int64_t to, int64_t rows, int64_t columns) {
  constexpr int64_t size = sizeof(Item), side = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += side)
    for (int64_t c0 = 0; c0 < columns; c0 += side) {
      int64_t r1 = r0 + side < rows ? r0 + side : rows, c1 = c0 + side < columns ? c0 + side : columns;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) memcpy(out + r * to + c * size, in + r * size + c * from, sizeof(Item));
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
  switch (box.item) {
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

static void fill(char* out, const char* value, int64_t item, int64_t count) {
  switch (item) {
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

static void pick(const char* in, char* out, const int64_t* offsets, int64_t item, int64_t inner) {
  switch (item) {
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
