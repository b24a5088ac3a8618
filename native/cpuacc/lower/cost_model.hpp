// Estimated times of steps on one thread, from which the number of parts of a step follows (see `parts_for`).
//
// The rates of GEMMs and the bandwidths were measured on server cores with AVX-512 and VNNI at 2 to 3 GHz. The other
// figures are rounded times of whole steps in networks, with operands in the second-level cache; `make native-bench`
// and INTERPOSER_CPUACC_PROFILE=1 measure them on another processor. An estimate may be wrong by a factor of two: it
// only decides whether waking threads, which takes about a microsecond, is worth the time that they save.

#ifndef CPUACC_LOWER_COST_MODEL_HPP
#define CPUACC_LOWER_COST_MODEL_HPP

namespace cpuacc::cost {

/// Operations of float32 GEMMs in a nanosecond; a multiply-add is two. The peak of one core was 145 to 153.
constexpr double kOperationsPerNs = 150;
/// Bytes of weights that a matrix product streams in a nanosecond, between the bandwidths of the second-level cache (84
/// to 95) and the third-level cache (16 to 23).
constexpr double kStreamedBytesPerNs = 30;

/// Winograd's convolution against the direct one, in whole networks on a core that reached 240 operations per
/// nanosecond: the rate of the GEMMs, in float32 and with pairs of bfloat16; the bytes of weights that are read per
/// nanosecond; and the nanoseconds of transforming one element of one square of one block of channels.
constexpr double kWinogradOperationsPerNs = 220, kWinogradBfloat16OperationsPerNs = 440;
constexpr double kWinogradBytesPerNs = 35, kWinogradBfloat16BytesPerNs = 70;
constexpr double kWinogradTransformNs = 1.7;
/// GEMMs of fewer squares than this take as long as GEMMs of this many.
constexpr double kWinogradLeastSquares = 7;

/// Nanoseconds of a depthwise convolution for one pixel of one block of 16 channels: (8 + taps) / 4.
constexpr double kDepthwiseFixedTaps = 8, kDepthwiseTapsPerNs = 4;

/// Quantized GEMMs: bytes of weights that are multiplied in a nanosecond at each position, in vectors and in tile
/// registers, and sums that are requantized.
constexpr double kQuantizedWeightBytesPerNs = 300, kTileWeightBytesPerNs = 1200, kRequantizedPerNs = 20;
/// Quantized BatchMatMul: products in a nanosecond, and packed bytes.
constexpr double kQuantizedProductsPerNs = 100, kPackedBytesPerNs = 1;
/// Quantized depthwise convolutions: nanoseconds for one vector of outputs, and for one group of taps.
constexpr double kQuantizedDepthwiseVectorNs = 4, kQuantizedDepthwiseGroupNs = 3;

/// Recurrent steps: nanoseconds for one recurrent weight and sequence.
constexpr double kRecurrentWeightNs = 0.05;

// ---- Nanoseconds of one element -------------------------------------------------------------------------------------

constexpr double kElementNs = 0.2;                             // additions, comparisons, simple activation functions
constexpr double kLibraryElementNs = 10, kUnaryLibraryNs = 8;  // functions of the C library: powf, fmodf; sinf, logf
constexpr double kExponentialNs = 0.5, kActivationNs = 0.6, kCastNs = 0.3;
constexpr double kQuantizeNs = 1, kDequantizeNs = 0.5, kRoundToStepsNs = 0.25;
constexpr double kChannelwiseNs = 0.5;  // one pixel of 16 channels, with a number for each channel
constexpr double kSelectNs = 0.3;       // Where
constexpr double kAddQuantizedNs = 0.5;
constexpr double kClampedPerNs = 30;                       // quantized values that are clamped in a nanosecond
constexpr double kLookUpNs = 0.5;                          // a table of 256 bytes
constexpr double kLookUpPairNs = 0.7, kCombinePairNs = 5;  // a table of 2**16 bytes, or integer arithmetic instead
constexpr double kCombineShortsNs = 0.7;                   // sums and products of int16
constexpr double kRescaleNs = 4;                           // Quantize and Dequantize of wide types
constexpr double kReduceNs = 0.15, kReduceQuantizedNs = 1;
constexpr double kSearchNs = 0.2, kSortNs = 10;      // ArgMinMax and TopK with few results; TopK with many
constexpr double kAccumulateNs = 1, kIndexedNs = 3;  // cumulative sums; elements at indices that are data
constexpr double kSoftmaxNs = 0.8, kSoftmaxColumnsNs = 5, kSoftmaxQuantizedNs = 6;
constexpr double kStandardizeNs = 0.4, kBatchBlockNs = 0.1, kBatchNs = 0.2, kUnitLengthNs = 0.3, kResponseNs = 1;
constexpr double kSampledNs = 0.3, kRegionNs = 5;  // one pixel of GridSample; one element of RoiAlign
constexpr double kReorderNs = 0.25;
constexpr double kPoolTapNs = 0.15;  // one output and one tap of each dimension of the window
constexpr double kResizeLinearNs = 0.6, kResizeNearestNs = 0.2;

// ---- Nanoseconds of one byte ----------------------------------------------------------------------------------------

constexpr double kContiguousByteNs = 0.1, kStridedByteNs = 0.4, kGatheredByteNs = 0.2;

}  // namespace cpuacc::cost

#endif  // CPUACC_LOWER_COST_MODEL_HPP
