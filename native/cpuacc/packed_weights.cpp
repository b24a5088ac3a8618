#include "cpuacc/packed_weights.hpp"

#include <algorithm>
#include <cstring>

#include "cpuacc/lower/pack_f32.hpp"

namespace cpuacc {
namespace {

bool is_unsigned(int32_t dtype) {
  return dtype == IPR_DTYPE_UINT8 || dtype == IPR_DTYPE_UINT4 || dtype == IPR_DTYPE_UINT2;
}

bool has_bytes(int32_t dtype) { return dtype == IPR_DTYPE_INT8 || dtype == IPR_DTYPE_UINT8; }

/// What is added to an integer when it is packed: words of four bits hold 0 to 15, and bytes are signed.
int32_t offset_of(const StoredWeights& stored, WeightForm form) {
  if (form == WeightForm::four) return is_unsigned(stored.dtype) ? 0 : 8;
  return stored.dtype == IPR_DTYPE_UINT8 ? -128 : 0;
}

WeightForm form_of(const StoredWeights& stored) {
  if (stored.dtype == IPR_DTYPE_FLOAT16) return WeightForm::half;
  if (stored.dtype == IPR_DTYPE_BFLOAT16) return WeightForm::brain;
  // Groups of short scale blocks would be mostly padding.
  return has_bytes(stored.dtype) || stored.block < kGroup ? WeightForm::eight : WeightForm::four;
}

ScaleType scale_type_of(int32_t dtype) {
  return dtype == IPR_DTYPE_FLOAT16    ? ScaleType::half
         : dtype == IPR_DTYPE_BFLOAT16 ? ScaleType::brain
                                       : ScaleType::single;
}

/// The lowest four bits of each of eight bytes, the first byte's lowest.
uint32_t word_of(const uint8_t* bytes) {
  uint64_t x;
  std::memcpy(&x, bytes, sizeof x);
  x &= 0x0f0f0f0f0f0f0f0full;
  x = (x | x >> 4) & 0x00ff00ff00ff00ffull;
  x = (x | x >> 8) & 0x0000ffff0000ffffull;
  return uint32_t(x | x >> 16);
}

/// Pack 16 full columns of integers of 4 bits whose columns or elements of the depth are contiguous.
void pack_four_contiguous(const StoredWeights& s, int64_t first, uint32_t* to) {
  const uint32_t flip = is_unsigned(s.dtype) ? 0 : 0x88888888;  // adds 8 to each
  auto* codes = static_cast<const uint8_t*>(s.codes) + first * s.by_column;
  for (int64_t from = 0; from < s.depth; from += s.block) {
    const int64_t end = std::min(from + s.block, s.depth);
    for (int64_t group = from; group < end; group += kGroup, to += 16) {
      const int64_t count = std::min<int64_t>(kGroup, end - group);
      for (int64_t k = 0; k < count && s.by_column == 1; ++k) {
        const uint8_t* row = codes + (group + k) * s.by_depth;
        for (int n = 0; n < 16; ++n) to[n] |= uint32_t(row[n] & 15) << (4 * k);
      }
      for (int64_t n = 0; n < 16 && s.by_column != 1; ++n) {
        uint8_t bytes[kGroup] = {};
        std::memcpy(bytes, codes + n * s.by_column + group, size_t(count));
        to[n] = word_of(bytes);
      }
      for (int n = 0; n < 16; ++n) to[n] ^= flip;
    }
  }
}

/// Pack the columns [first, last) of a block as words of eight integers.
void pack_four(const StoredWeights& s, int64_t first, int64_t last, uint32_t* to) {
  const int32_t offset = offset_of(s, WeightForm::four);
  for (int64_t from = 0; from < s.depth; from += s.block) {
    const int64_t end = std::min(from + s.block, s.depth);
    for (int64_t group = from; group < end; group += kGroup, to += 16)
      for (int64_t k = group; k < std::min(group + kGroup, end); ++k)
        for (int64_t n = first; n < last; ++n) {
          const int32_t code = integer_at(s.codes, s.dtype, k * s.by_depth + n * s.by_column) + offset;
          to[n - first] |= uint32_t(code & 15) << (4 * (k - group));
        }
  }
}

void pack_eight(const StoredWeights& s, int64_t first, int64_t last, int8_t* to) {
  const int32_t offset = offset_of(s, WeightForm::eight);
  for (int64_t k = 0; k < s.depth; ++k, to += 16)
    for (int64_t n = first; n < last; ++n)
      to[n - first] = int8_t(integer_at(s.codes, s.dtype, k * s.by_depth + n * s.by_column) + offset);
}

void pack_sixteen(const StoredWeights& s, int64_t first, int64_t last, uint16_t* to) {
  auto* from = static_cast<const char*>(s.codes);
  for (int64_t k = 0; k < s.depth; ++k, to += 16)
    for (int64_t n = first; n < last; ++n)
      std::memcpy(to + n - first, from + (k * s.by_depth + n * s.by_column) * 2, 2);
}

void pack_column_block(const StoredWeights& s, WeightForm form, int64_t block, char* to) {
  const int64_t first = block * 16, last = std::min(first + 16, s.columns);
  const bool contiguous = s.by_column == 1 || s.by_depth == 1;
  const bool is_four = s.dtype == IPR_DTYPE_INT4 || s.dtype == IPR_DTYPE_UINT4;
  if (form == WeightForm::four && contiguous && is_four && last - first == 16)
    return pack_four_contiguous(s, first, reinterpret_cast<uint32_t*>(to));
  if (form == WeightForm::four) return pack_four(s, first, last, reinterpret_cast<uint32_t*>(to));
  if (form == WeightForm::eight) return pack_eight(s, first, last, reinterpret_cast<int8_t*>(to));
  pack_sixteen(s, first, last, reinterpret_cast<uint16_t*>(to));
}

/// Call one(place among the scales, index in the packed table) for each scale block and column.
template <class One>
void for_scales(const StoredWeights& s, const One& copy_scale) {
  const int64_t blocks = (s.depth + s.block - 1) / s.block;
  for (int64_t n = 0; n < s.columns; ++n)
    for (int64_t b = 0; b < blocks; ++b)
      copy_scale(b * s.scale_by_block + n * s.scale_by_column, (n / 16 * blocks + b) * 16 + n % 16);
}

const void* pack_scales(const StoredWeights& s, int64_t count, Builder& builder) {
  const size_t scale_bytes = s.scale_dtype == IPR_DTYPE_FLOAT32 ? 4 : 2;
  return builder.pack(uint64_t(count) * scale_bytes, [&](void* to) {
    auto* from = static_cast<const char*>(s.scales);
    for_scales(s, [&](int64_t place, int64_t at) {
      std::memcpy(static_cast<char*>(to) + size_t(at) * scale_bytes, from + size_t(place) * scale_bytes, scale_bytes);
    });
  });
}

const int8_t* pack_zeros(const StoredWeights& s, int32_t offset, int64_t count, Builder& builder) {
  return static_cast<const int8_t*>(builder.pack(uint64_t(count), [&](void* to) {
    for_scales(s, [&](int64_t place, int64_t at) {
      static_cast<int8_t*>(to)[at] = int8_t((s.zeros.empty() ? 0 : s.zeros[size_t(place)]) + offset);
    });
  }));
}

}  // namespace

bool has_few_bits(int32_t dtype) {
  return has_bytes(dtype) || dtype == IPR_DTYPE_INT4 || dtype == IPR_DTYPE_UINT4 || dtype == IPR_DTYPE_INT2 ||
         dtype == IPR_DTYPE_UINT2;
}

PackedWeights pack_stored_weights(const StoredWeights& stored, Builder& builder) {
  PackedWeights weights{};
  weights.form = form_of(stored);
  weights.depth = int32_t(stored.depth), weights.columns = int32_t(stored.columns),
  weights.block = int32_t(stored.block);
  const int64_t blocks = blocks_of(stored.columns), bytes = bytes_of_column_block(weights);
  weights.codes = builder.pack(uint64_t(blocks * bytes), [&](void* to) {
    builder.divide(blocks, uint64_t(stored.depth * stored.columns) * 4, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block)
        pack_column_block(stored, weights.form, block, static_cast<char*>(to) + block * bytes);
    });
  });
  if (stored.is_float()) return weights;
  const int64_t count = blocks * scale_blocks(weights) * 16;
  weights.scale_type = scale_type_of(stored.scale_dtype);
  weights.scales = pack_scales(stored, count, builder);
  const int32_t offset = offset_of(stored, weights.form), first = stored.zeros.empty() ? 0 : stored.zeros[0];
  const bool same = std::all_of(stored.zeros.begin(), stored.zeros.end(), [&](int32_t zero) { return zero == first; });
  if (same && (weights.form == WeightForm::four || first + offset == 0))
    weights.zero = float(first + offset);
  else
    weights.zeros = pack_zeros(stored, offset, count, builder);
  return weights;
}

}  // namespace cpuacc
