// All families in order of priority: specialized implementations before general ones.

#include <algorithm>
#include <iterator>

#include "cpuacc/rules.hpp"

namespace cpuacc {

Family attention_family();
Family block_dequantize_family();
Family blocks_family();
Family border_family();
Family boxes_family();
Family bottleneck_f32_family();
Family chains_family();
Family channels_last_family();
Family elementwise_q16_family();
Family elementwise_q8_family();
Family col2im_family();
Family conv_f32_family();
Family conv_q8_family();
Family deformable_family();
Family depthwise_f32_family();
Family depthwise_q8_family();
Family detection_family();
Family dynamic_moves_family();
Family einsum_family();
Family elementwise_family();
Family fills_family();
Family filters_family();
Family fully_connected_q8_family();
Family matmul_q16_family();
Family matmul_q8_family();
Family functions_q8_family();
Family fusion_family();
Family gather_family();
Family generators_family();
Family image_moves_family();
Family integer_lstm_family();
Family integer_q8_family();
Family keypoints_family();
Family layouts_family();
Family linear_attention_family();
Family half_precision_family();
Family lookup_family();
Family lengths_q8_family();
Family lstm_family();
Family matmul_f32_family();
Family mix_family();
Family moves_family();
Family normalizations_family();
Family normalize_family();
Family binary_q8_family();
Family packed_matmul_family();
Family patterns_family();
Family plain_products_family();
Family pool_family();
Family proposals_family();
Family quantize_family();
Family recurrent_family();
Family recurrent_sequence_family();
Family reduce_family();
Family reduce_q8_family();
Family reorder_family();
Family resize_family();
Family rotary_family();
Family sample_family();
Family scales_family();
Family scatter_family();
Family select_family();
Family sequence_family();
Family sequences_family();
Family small_numbers_family();
Family softmax_q16_family();
Family spectral_family();
Family softmax_q8_family();
Family svdf_family();
Family suppression_family();
Family tables_family();
Family tabulate_family();
Family unique_family();
Family wide_family();
Family windows_family();
Family winograd_f32_family();

namespace {

using Make = Family (*)();

const Make kFamilies[] = {
    packed_matmul_family,  // before constants become float32
    half_precision_family,
    block_dequantize_family,
    lstm_family,
    normalizations_family,
    rotary_family,
    attention_family,
    mix_family,  // after attention_family
    patterns_family,
    sequences_family,      // after normalizations_family
    integer_q8_family,     // before images get channels last
    channels_last_family,  // before the fusion of additions
    tabulate_family,       // before activation functions are fused
    fusion_family,
    bottleneck_f32_family,
    elementwise_q8_family,
    wide_family,
    elementwise_q16_family,
    conv_q8_family,
    depthwise_q8_family,
    fully_connected_q8_family,
    matmul_q8_family,
    matmul_q16_family,  // after matmul_q8_family
    binary_q8_family,
    softmax_q8_family,
    softmax_q16_family,
    lengths_q8_family,
    depthwise_f32_family,
    winograd_f32_family,
    conv_f32_family,
    matmul_f32_family,
    plain_products_family,
    reorder_family,
    moves_family,
    functions_q8_family,
    elementwise_family,
    border_family,
    small_numbers_family,  // after elementwise_family
    gather_family,
    quantize_family,
    scales_family,
    pool_family,
    resize_family,
    reduce_q8_family,
    reduce_family,
    normalize_family,
    select_family,
    scatter_family,
    sequence_family,
    sample_family,
    lookup_family,
    col2im_family,
    boxes_family,
    integer_lstm_family,
    recurrent_family,
    recurrent_sequence_family,  // after lstm_family
    svdf_family,
    blocks_family,
    fills_family,
    unique_family,
    dynamic_moves_family,  // after fills_family
    filters_family,
    deformable_family,
    detection_family,
    generators_family,
    linear_attention_family,
    proposals_family,
    spectral_family,
    suppression_family,
    keypoints_family,
    tables_family,
    einsum_family,
    windows_family,
    image_moves_family,
    chains_family,   // after all fusions
    layouts_family,  // its pass is the last one
};

struct All {
  std::vector<Lowering> lowerings;
  std::vector<Pass> passes;

  All() {
    for (Make make : kFamilies) {
      Family family = make();
      lowerings.insert(lowerings.end(), family.lowerings.begin(), family.lowerings.end());
      passes.insert(passes.end(), family.passes.begin(), family.passes.end());
    }
  }
};

const All& all() {
  static const All all;
  return all;
}

/// Return whether a node computes with quantized values and rounds its results half to even.
bool rounds_quantized_to_even(const Graph& graph, const Node& node) {
  return node.text("requantization") == "HALF_TO_EVEN" && !node.outputs.empty() && graph.out(node).is_quantized();
}

}  // namespace

const std::vector<Lowering>& lowerings() { return all().lowerings; }
const std::vector<Pass>& passes() { return all().passes; }

const Lowering* find_lowering(const Graph& graph, const Node& node, const Settings& settings, Refusal* why) {
  const bool to_even = rounds_quantized_to_even(graph, node);
  Refusal last = to_even ? refused("no kernel for " + node.type + " that rounds half to even", IPR_REASON_ATTRIBUTE)
                         : refused("no kernel for " + node.type, IPR_REASON_LAYER_TYPE);
  const bool shapes_unknown = has_unknown_result(graph, node);
  for (const Lowering& lowering : lowerings()) {
    if (node.type != lowering.type) continue;
    if (to_even && !lowering.to_even) continue;
    if (shapes_unknown && !lowering.sets_shapes) continue;
    last = lowering.support(graph, node, settings);
    if (!last) return &lowering;
  }
  if (why) *why = last;
  return nullptr;
}

bool sets_shapes(const Node& node) {
  return std::any_of(lowerings().begin(), lowerings().end(),
                     [&](const Lowering& lowering) { return lowering.sets_shapes && node.type == lowering.type; });
}

}  // namespace cpuacc
