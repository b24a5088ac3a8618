// Products of matrices: FullyConnected, BatchMatMul.

#include "gpuacc/products.hpp"
#include "gpuacc/quantized.hpp"
#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

/// The kernel: each work item computes R rows of V vectors of columns, of one batch. `skips`: as in `Product`.
std::string product_source(const Plan& plan, const Chain& chain, const char* from, const char* to, int64_t rows,
                           int64_t vectors, bool skips) {
  auto each = [](const char* name, int64_t count, const std::string& text) {
    std::string all;
    for (int64_t n = 0; n < count; ++n) all += Template(text).set(name, n).text();
    return all;
  };
  auto sums = [&](const std::string& text) { return each("v", vectors, each("r", rows, text)); };
  Template source(R"(
#define F FB
#define V $VECTORS
#define R $ROWS
#define vload_B CAT(vload, B)
kernel void k(global const $T* restrict a, global const float* restrict b, global const float* restrict bias,
              global $Y* restrict y, global const int* restrict offsets, int M, int N, int K, int panel$PARAMETERS) {
  const int nb = get_global_id(0), m0 = get_global_id(1) * R, z = get_global_id(2);
  global const $T* az = a + offsets[2 * z];
  global const float* bz = b + (size_t)(offsets[2 * z + 1]) * panel + (size_t)nb * K * (V * B);
$START$POINTERS  for (int k = 0; k < K; ++k) {
$WEIGHTS$VALUES$PRODUCTS  }
$STORE}
)");
  const std::string store = Template(R"(
  if (m0 + $r < M) {
    const int n0 = (nb * V + $v) * B, cb = nb * V + $v;
    const size_t at = ((size_t)z * M + m0 + $r) * N + n0;
    FB v = a$r$v;
    if (n0 + B <= N) {
$FULL      STV_$Y(v, 0, y + at);
    } else {
$PART      float t[B];
      CAT(vstore, B)(v, 0, t);
      for (int c = 0; n0 + c < N; ++c) ST_$Y(t[c], at + c, y);
    }
  }
)")
                                .text();
  Template stored(store);
  std::string full, part;
  if (!chain.empty()) {
    full = chain.loads([](const Chain::Operand& chained, size_t n) {
      const std::string k = std::to_string(n), operand = storage(chained.value.dtype);
      if (chained.kind == Chain::Operand::scalar) return "(F)LD_" + operand + "(0, z" + k + ")";
      if (chained.kind == Chain::Operand::channel) return "LDV_" + operand + "(cb, z" + k + ")";
      return "LDV_" + operand + "(0, z" + k + " + at)";
    }) + chain.code();
    for (size_t n = 0; n < chain.operands().size(); ++n) {
      const std::string k = std::to_string(n), operand = storage(chain.operands()[n].value.dtype);
      if (chain.operands()[n].kind == Chain::Operand::same)
        part += "float u" + k + "[B];\nfor (int c = 0; c < B; ++c) u" + k + "[c] = n0 + c < N ? LD_" + operand +
                "(at + c, z" + k + ") : 1.0f;\n";
    }
    part += chain.loads([](const Chain::Operand& chained, size_t n) {
      const std::string k = std::to_string(n), operand = storage(chained.value.dtype);
      if (chained.kind == Chain::Operand::scalar) return "(F)LD_" + operand + "(0, z" + k + ")";
      if (chained.kind == Chain::Operand::channel) return "LDV_" + operand + "(cb, z" + k + ")";
      return "vload_B(0, u" + k + ")";
    }) + chain.code();
  }
  stored.set("FULL", full).set("PART", part);
  source.set("START", sums("  FB a$r$v = vload_B(nb * V + $v, bias);\n"));
  source.set("POINTERS", each("r", rows, "  global const $T* p$r = az + (size_t)min(m0 + $r, M - 1) * K;\n"));
  source.set("WEIGHTS", each("v", vectors, "    const FB w$v = vload_B(k * V + $v, bz);\n"));
  source.set("VALUES", each("r", rows, "    const float x$r = LD_$T(k, p$r);\n"));
  const std::string unless = skips ? "if (as_int(x$r) != INT_MIN) " : "";
  source.set("PRODUCTS", sums("    " + unless + "a$r$v = MAD((FB)x$r, w$v, a$r$v);\n"));
  source.set("STORE", sums(stored.text()));
  source.set("PARAMETERS", chain.parameters()).set("VECTORS", vectors).set("ROWS", rows);
  source.set("T", from).set("Y", to);
  return preamble(plan.profile, plan.device.info) + source.text();
}

int packed_constant(Plan& plan, const ipr::TensorInfo& info, const Matrices& matrices, int64_t step) {
  const int64_t panels = divided_up(matrices.n, step), k = matrices.k, n = matrices.n;
  std::string packing = "product";
  for (int64_t number : {step, matrices.count, k, n, matrices.by_k, matrices.by_n})
    packing += " " + std::to_string(number);
  return plan.constant(plan.key(info, packing), uint64_t(matrices.count * panels * k * step) * 4, [&](char* bytes) {
    const std::vector<float> values = constant_floats(info);
    float* to = reinterpret_cast<float*>(bytes);
    for (int64_t matrix = 0; matrix < matrices.count; ++matrix)
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t c = 0; c < k; ++c)
          for (int64_t o = 0; o < step; ++o, ++to)
            if (panel * step + o < n)
              *to = values[size_t(matrix * k * n + c * matrices.by_k + (panel * step + o) * matrices.by_n)];
  });
}

// ---- FullyConnected -----------------------------------------------------------------------------------------------------

ipr::Verdict connected_support(const ipr::Layer& layer, const Target& target) {
  return is_quantized8(layer.input(0)) ? quantized_product_support(layer, target) : all_float(layer);
}

void lower_connected(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_product(layer, plan);
  const Shape weights = shape_of(layer.input(1));
  const bool transposed = layer.flag("transpose_weight_matrix");
  Product sizes;
  sizes.k = weights[transposed ? 1 : 0], sizes.n = weights[transposed ? 0 : 1];
  sizes.m = sizes.k ? layer.input(0).elements() / sizes.k
                    : product(shape_of(layer.output(0))) / std::max<int64_t>(sizes.n, 1);
  sizes.offsets_a = sizes.offsets_b = {0};
  const int64_t vectors = vectors_of(plan, sizes.n), step = vectors * plan.profile.block;
  const Value a = plan.plain(layer.input(0).index());
  const int b =
      packed(plan, layer.input(1), {1, sizes.k, sizes.n, transposed ? 1 : sizes.n, transposed ? sizes.k : 1}, step);
  const ipr::TensorInfo bias = layer.input(2);
  int offsets = 0;
  if (bias && !bias.is_constant())
    offsets = packed_by_kernel(plan, plan.plain(bias.index()), {1, 1, sizes.n, sizes.n, 1}, step);
  else {
    std::vector<float> values = bias ? constant_floats(bias) : std::vector<float>();
    values.resize(size_t(divided_up(sizes.n, step) * step));
    offsets = plan.floats(values);
  }
  Chain chain(plan, layer.output(0).index(), int(layer.output(0).rank()) - 1);
  chain.channel_padding = int(plan.profile.block * plan.profile.vectors);
  chain.fuse(false);
  const Value y = plan.create(a.dtype, shape_of(layer.output(0)));
  multiply(plan, a, b, offsets, sizes, vectors, chain, y);
  plan.set(chain.tensor(), y);
}

// ---- BatchMatMul ----------------------------------------------------------------------------------------------------------

ipr::Verdict matrices_support(const ipr::Layer& layer, const Target&) {
  if (layer.flag("adjoint_x") || layer.flag("adjoint_y"))
    return ipr::no("no kernel for adjugate matrices", IPR_REASON_ATTRIBUTE);
  if (is_quantized8(layer.input(0))) return quantized_matrices_support(layer);
  return all_float(layer);
}

/// The batch axes of an operand.
Shape batch_of(const Shape& shape) { return shape.size() < 3 ? Shape() : Shape(shape.begin(), shape.end() - 2); }

void lower_matrices(const ipr::Layer& layer, Plan& plan) {
  if (is_quantized8(layer.input(0))) return lower_quantized_matrices(layer, plan);
  Shape a = shape_of(layer.input(0)), b = shape_of(layer.input(1));
  const bool tx = layer.flag("transpose_x") && a.size() > 1, ty = layer.flag("transpose_y") && b.size() > 1;
  Value left = plan.plain(layer.input(0).index());
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  Product sizes;
  if (tx) {
    Shape strides = strides_of(a);
    std::swap(a[a.size() - 1], a[a.size() - 2]);
    std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
    left = plan.strided(left, 0, strides, a);
  }
  sizes.m = a[a.size() - 2], sizes.k = a.back(), sizes.n = b[b.size() - (ty ? 2 : 1)];
  const Shape batch = common_batch(batch_of(a), batch_of(b));
  sizes.offsets_a = matrices_of(batch_of(a), batch, sizes.m * sizes.k);
  sizes.offsets_b = matrices_of(batch_of(b), batch, 1);
  const Value y = plan.create(left.dtype, shape_of(layer.output(0)));
  if (sizes.k == 0) {
    plan.fill(y, 0);
    return plan.set(layer.output(0).index(), y);
  }
  const int64_t vectors = vectors_of(plan, sizes.n), step = vectors * plan.profile.block;
  const int right =
      packed(plan, layer.input(1), {product(batch_of(b)), sizes.k, sizes.n, ty ? 1 : sizes.n, ty ? sizes.k : 1}, step);
  const int zeros = no_bias(plan, sizes.n, step);
  Chain chain(plan, layer.output(0).index(), layer.input(1).rank() > 1 ? int(layer.output(0).rank()) - 1 : -1);
  chain.channel_padding = int(plan.profile.block * plan.profile.vectors);
  chain.fuse(false);
  multiply(plan, left, right, zeros, sizes, vectors, chain, y);
  plan.set(chain.tensor(), y);
}

}  // namespace

int64_t vectors_of(const Plan& plan, int64_t n) {
  return std::min<int64_t>(plan.profile.vectors, std::max<int64_t>(divided_up(n, plan.profile.block), 1));
}

void multiply(Plan& plan, const Value& a, int packed, int bias, const Product& sizes, int64_t vectors,
              const Chain& chain, const Value& y) {
  const int64_t step = vectors * plan.profile.block, panels = divided_up(sizes.n, step);
  const int64_t rows = sizes.m == 1 ? 1 : sizes.m < plan.profile.rows ? 4 : plan.profile.rows;
  std::vector<int32_t> offsets;
  for (size_t z = 0; z < sizes.offsets_a.size(); ++z) {
    offsets.push_back(sizes.offsets_a[z]);
    offsets.push_back(sizes.offsets_b[z]);
  }
  std::vector<Argument> arguments = {reads(a),
                                     reads(packed),
                                     reads(bias),
                                     writes(y),
                                     reads(plan.integers(offsets)),
                                     number(sizes.m),
                                     number(sizes.n),
                                     number(sizes.k),
                                     number(panels * sizes.k * step)};
  for (const Argument& argument : chain.arguments()) arguments.push_back(argument);
  plan.launch(
      "product",
      product_source(plan, chain, storage(a.dtype), storage(y.dtype), rows, vectors, sizes.skips_negative_zeros),
      arguments, {panels, divided_up(sizes.m, rows), int64_t(sizes.offsets_a.size())});
}

int packed_by_kernel(Plan& plan, const Value& b, const Matrices& matrices, int64_t step) {
  const int64_t panels = divided_up(matrices.n, step), count = matrices.count * panels * matrices.k * step;
  const Value out = plan.create(IPR_DTYPE_FLOAT32, {count});
  Template source(R"(
kernel void k(global const $T* restrict x, global float* restrict y, int count, int K, int N, int byk, int byn, int step) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int panels = (N + step - 1) / step, c = i / step % K, block = i / step / K;
  const int n = block % panels * step + i % step, matrix = block / panels;
  y[i] = n < N ? LD_$T(matrix * K * N + c * byk + n * byn, x) : 0.0f;
}
)");
  source.set("T", storage(b.dtype));
  plan.launch_elements("pack", preamble(plan.profile, plan.device.info) + source.text(),
                       {reads(b), writes(out), number(count), number(matrices.k), number(matrices.n),
                        number(matrices.by_k), number(matrices.by_n), number(step)},
                       count);
  return out.buffer;
}

std::vector<int32_t> matrices_of(const Shape& own, const Shape& whole, int64_t scale) {
  const Shape strides = broadcast_strides(own, whole);
  std::vector<int32_t> found(size_t(product(whole)));
  for (size_t n = 0; n < found.size(); ++n) {
    int64_t rest = int64_t(n), index = 0;
    for (size_t axis = whole.size(); axis-- > 0; rest /= whole[axis]) index += rest % whole[axis] * strides[axis];
    found[n] = int32_t(index * scale);
  }
  return found;
}

Shape common_batch(const Shape& a, const Shape& b) {
  Shape whole(std::max(a.size(), b.size()), 1);
  for (const Shape& shape : {a, b})
    for (size_t n = 0; n < shape.size(); ++n) {
      int64_t& size = whole[whole.size() - shape.size() + n];
      if (shape[n] != 1) size = shape[n];
    }
  return whole;
}

int packed(Plan& plan, const ipr::TensorInfo& info, const Matrices& matrices, int64_t step) {
  if (info.is_constant()) return packed_constant(plan, info, matrices, step);
  return packed_by_kernel(plan, plan.plain(info.index()), matrices, step);
}

int no_bias(Plan& plan, int64_t n, int64_t step) {
  return plan.floats(std::vector<float>(size_t(divided_up(n, step) * step)));
}

Lowerings product_lowerings() {
  return {{"FullyConnected", connected_support, lower_connected}, {"BatchMatMul", matrices_support, lower_matrices}};
}

}  // namespace gpuacc
