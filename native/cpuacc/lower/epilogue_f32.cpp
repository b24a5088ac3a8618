#include "cpuacc/lower/epilogue_f32.hpp"

#include <algorithm>
#include <cmath>

#include "cpuacc/pointwise.hpp"

namespace cpuacc {
namespace {

bool is_clamp(const PostOp& op) { return op.function == Function::relu || op.function == Function::bounded_relu; }

/// Turn the post-ops [add] [clamp] into the form that kernels apply in registers.
void simplify(Epilogue* epilogue) {
  int32_t at = epilogue->count > 0 && epilogue->ops[0].function == Function::add ? 1 : 0;
  if (epilogue->count > at + 1 || (epilogue->count == at + 1 && !is_clamp(epilogue->ops[at]))) return;
  if (epilogue->count == at + 1) {
    const PostOp& clamp = epilogue->ops[at];
    bool bounded = clamp.function == Function::bounded_relu;
    epilogue->low = bounded ? clamp.b : 0.0f;
    if (bounded) epilogue->high = clamp.a;
  }
  epilogue->count = 0;
}

/// The padding of the last block of channels is 0, and has to stay 0.
bool keeps_zero(const PostOp& op) {
  switch (op.function) {
    case Function::sigmoid:
    case Function::soft_relu:
      return false;
    case Function::linear:
    case Function::hard_sigmoid:
      return op.b == 0;
    case Function::bounded_relu:
      return op.a >= 0 && op.b <= 0;
    case Function::thresholded_relu:
      return op.a >= 0;
    case Function::shrink:
      return op.a >= 0;
    default:
      return true;
  }
}

bool fills_blocks(const Graph& graph, const Node& node) {
  if (!node.has("data_layout")) return true;  // matrices have no blocks
  return graph.out(node).extent(node.text("data_layout").back() == 'C' ? -1 : 1) % 16 == 0;
}

}  // namespace

Refusal find_epilogue(const Graph& graph, const Node& node, FusedEpilogue* fused) {
  *fused = FusedEpilogue();
  Epilogue& epilogue = fused->epilogue;
  epilogue = {-INFINITY, INFINITY, 0, {}};
  for (const Post& post : node.posts) {
    if (epilogue.count == 4) return refused("more than four post-ops");
    PostOp& op = epilogue.ops[epilogue.count++] = {Function::add, float(post.a), float(post.b)};
    if (post.kind == Post::multiply) op.function = Function::multiply;
    if (post.kind == Post::multiply && node.has("data_layout")) return refused("only matrix products multiply results");
    if (post.kind == Post::activation) {
      op.function = function_of(post.function);
      if (op.function == Function::add) return refused(post.function + " is not supported", IPR_REASON_ATTRIBUTE);
      if (!keeps_zero(op) && !fills_blocks(graph, node))
        return refused(post.function + " of channels that fill up a block");
    } else if (fused->residual >= 0 || graph[post.tensor].shape != graph.out(node).shape) {
      return refused("combines the result with more than one tensor of its shape");
    } else {
      fused->residual = post.tensor;
    }
  }
  simplify(&epilogue);
  return taken();
}

FusedEpilogue epilogue_of(const Graph& graph, const Node& node) {
  FusedEpilogue fused;
  find_epilogue(graph, node, &fused);
  return fused;
}

const Tensor* bias_of(const Graph& graph, const Node& node) {
  auto has_operand = [](const Post& post) { return post.has_operand(); };
  auto added = size_t(std::count_if(node.posts.begin(), node.posts.end(), has_operand));
  return node.inputs.size() > 2 + added ? graph.in(node, 2) : nullptr;
}

Refusal constant_weights(const Graph& graph, const Node& node) {
  if (!graph.in(node, 1)->is_constant()) return refused("weights are not constant", IPR_REASON_NOT_CONSTANT);
  const Tensor* bias = bias_of(graph, node);
  return !bias || bias->is_constant() ? taken() : refused("bias is not constant", IPR_REASON_NOT_CONSTANT);
}

}  // namespace cpuacc
