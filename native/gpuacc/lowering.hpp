// Lowerings: which layers are supported, and how they become launches. registry.cpp lists them.

#ifndef GPUACC_LOWERING_HPP
#define GPUACC_LOWERING_HPP

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "gpuacc/plan.hpp"

namespace gpuacc {

/// What support depends on beside the layer.
struct Target {
  DeviceInfo device;
  Profile profile;
};

/// The implementation of one type of layer.
struct Lowering {
  const char* type;  // "Convolution2d"
  ipr::Verdict (*support)(const ipr::Layer&, const Target&);
  void (*lower)(const ipr::Layer&, Plan&);
};

using Lowerings = std::vector<Lowering>;

/// The lowering of a type of layer; nullptr if there is none.
const Lowering* find_lowering(std::string_view type);

// One function for each file in lower/.
Lowerings element_lowerings();
Lowerings move_lowerings();
Lowerings window_lowerings();
Lowerings product_lowerings();
Lowerings row_lowerings();
Lowerings quantized_lowerings();
Lowerings gather_lowerings();
Lowerings resize_lowerings();
Lowerings attention_lowerings();
Lowerings recurrent_lowerings();
Lowerings dynamic_lowerings();
Lowerings volume_lowerings();
Lowerings scan_lowerings();
Lowerings scatter_lowerings();
Lowerings block_lowerings();
Lowerings sampling_lowerings();
Lowerings lookup_lowerings();

// ---- Checks that lowerings share --------------------------------------------------------------------------------------

inline bool is_float(int32_t dtype) { return dtype == IPR_DTYPE_FLOAT32 || dtype == IPR_DTYPE_FLOAT16; }
inline bool is_float(const ipr::TensorInfo& info) { return is_float(info.dtype()) && !info.is_quantized(); }
inline bool is_quantized8(const ipr::TensorInfo& info) {
  return (info.dtype() == IPR_DTYPE_INT8 || info.dtype() == IPR_DTYPE_UINT8) && info.is_quantized();
}
bool same_quantization(const ipr::TensorInfo& a, const ipr::TensorInfo& b);

/// "float32", "int8 with a scale".
std::string described(const ipr::TensorInfo& info);

/// Refuse a layer unless all of its tensors are of one float type.
ipr::Verdict all_float(const ipr::Layer& layer);
inline bool is_refused(const ipr::Verdict& verdict) { return verdict.verdict == IPR_NO; }

/// The number of an axis from 0 on; a negative one counts from the end.
inline int64_t normal_axis(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

inline bool channels_last(const ipr::Layer& layer) { return layer.text("data_layout") == "NHWC"; }

/// A division that is rounded up, of numbers that are not negative.
inline int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

/// The elements of a constant of float32 or float16 as floats.
std::vector<float> constant_floats(const ipr::TensorInfo& info);

}  // namespace gpuacc

#endif  // GPUACC_LOWERING_HPP
