// Recurrent steps, for numbers of units around a block of 16, against the definition of an LSTM.

#include "cpuacc/kernels/lstm.hpp"

#include "support.hpp"

namespace cpuacc {
namespace {

using namespace native::testing;

KERNEL_SUITE(LstmKernel);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Weights (gates, units, units before) as the kernels read them: [block of units][unit before][gate][16].
std::vector<float> pack_gates(const std::vector<float>& weights, int gates, int size, bool pairs) {
  auto at = [&](int gate, int unit, int before) {
    return unit < size && before < size ? weights[size_t((gate * size + unit) * size + before)] : 0.0f;
  };
  std::vector<float> packed;
  for (int block = 0; block < int(blocks_of(size)); ++block)
    for (int before = 0; before < size; before += pairs ? 2 : 1)
      for (int gate = 0; gate < gates; ++gate)
        for (int unit = block * 16; unit < block * 16 + 16; ++unit)
          packed.push_back(pairs ? bfloat16_pair(at(gate, unit, before), at(gate, unit, before + 1))
                                 : at(gate, unit, before));
  return packed;
}

struct Cell {
  double hidden, cell;
};

/// One unit of one sequence, given what the input adds to each gate (input, output, forget, cell).
Cell expected_cell(const double (&sums)[4], double cell) {
  double now = sigmoid(sums[2]) * cell + sigmoid(sums[0]) * std::tanh(sums[3]);
  return {sigmoid(sums[1]) * std::tanh(now), now};
}

TEST_P(LstmKernel, steps_one_sequence) {
  Random random;
  for (int size : {1, 2, 3, 15, 16, 17, 31, 32, 33, 50})
    for (bool pairs : {false, true}) {
      std::vector<float> weights = random.reals(4 * size * size, -0.5f, 0.5f);
      const std::vector<float> hidden = random.reals(size), cell = random.reals(size), inputs = random.reals(4 * size);
      const int64_t words = pairs ? (size + 1) / 2 : size;
      Floats packed(pack_gates(weights, 4, size, pairs)), before(hidden), cells(cell), given(inputs), out(size);
      for (int64_t block = 0; block < blocks_of(size); ++block)
        lstm_kernels_for(isa()).step[pairs](packed.data() + block * words * 64, given.data(), before.data(),
                                            cells.data(), out.data(), size, block);
      if (pairs) weights = rounded_to_bfloat16(weights);
      for (int unit = 0; unit < size; ++unit) {
        double sums[4];
        for (int gate = 0; gate < 4; ++gate) {
          sums[gate] = inputs[size_t(gate * size + unit)];
          for (int k = 0; k < size; ++k)
            sums[gate] += double(weights[size_t((gate * size + unit) * size + k)]) * hidden[size_t(k)];
        }
        const Cell expected = expected_cell(sums, cell[size_t(unit)]);
        ASSERT_NEAR(out[unit], expected.hidden, 2e-6) << describe("size", size, "pairs", pairs, "unit", unit);
        ASSERT_NEAR(cells[unit], expected.cell, 4e-6) << describe("size", size, "pairs", pairs, "unit", unit);
      }
    }
}

TEST_P(LstmKernel, finishes_products_of_a_batch) {
  Random random;
  for (int size : {3, 16, 21, 32})
    for (int batch : {1, 3}) {
      const int64_t blocks = blocks_of(size), gate_step = 16, sequence = 4 * 16;
      const std::vector<float> cell = random.reals(batch * size), inputs = random.reals(batch * 4 * size);
      Floats cells(cell), given(inputs), out(batch * size);
      for (int64_t block = 0; block < blocks; ++block) {
        Floats products(random.reals(batch * 64));
        lstm_kernels_for(isa()).finish(products.data(), sequence, gate_step, given.data(), cells.data(), out.data(),
                                       size, block, batch);
        for (int b = 0; b < batch; ++b)
          for (int64_t unit = block * 16; unit < std::min<int64_t>(block * 16 + 16, size); ++unit) {
            double sums[4];
            for (int gate = 0; gate < 4; ++gate)
              sums[gate] = double(inputs[size_t((b * 4 + gate) * size + unit)]) +
                           products[b * sequence + gate * gate_step + unit % 16];
            const Cell expected = expected_cell(sums, cell[size_t(b * size + unit)]);
            ASSERT_NEAR(out[b * size + unit], expected.hidden, 2e-6) << describe("size", size, "batch", batch);
            ASSERT_NEAR(cells[b * size + unit], expected.cell, 4e-6) << describe("size", size, "batch", batch);
          }
      }
    }
}

TEST_P(LstmKernel, multiplies_one_to_three_gates) {
  Random random;
  for (int gates : {1, 2, 3})
    for (int size : {1, 2, 15, 16, 17, 40})
      for (bool pairs : {false, true}) {
        std::vector<float> weights = random.reals(gates * size * size);
        Floats packed(pack_gates(weights, gates, size, pairs)), hidden(random.reals(size));
        if (pairs) weights = rounded_to_bfloat16(weights);
        const int64_t words = pairs ? (size + 1) / 2 : size;
        for (int64_t block = 0; block < blocks_of(size); ++block) {
          Floats sums(gates * 16);
          lstm_kernels_for(isa()).multiply[pairs](packed.data() + block * words * gates * 16, hidden.data(), gates,
                                                  size, sums.data());
          for (int64_t n = 0; n < gates * 16; ++n) {
            const int64_t unit = block * 16 + n % 16;
            double expected = 0;
            for (int k = 0; k < size && unit < size; ++k)
              expected += double(weights[size_t((n / 16 * size + unit) * size + k)]) * hidden[k];
            ASSERT_NEAR(sums[n], expected, 1e-5)
                << describe("gates", gates, "size", size, "pairs", pairs, "element", n);
          }
        }
      }
}

TEST_P(LstmKernel, computes_gates_of_a_block) {
  Random random;
  Floats sums(random.reals(16, -3, 3)), given(random.reals(16, -3, 3)), out(16);
  for (bool tangent : {false, true}) {
    lstm_kernels_for(isa()).gate(sums.data(), given.data(), tangent, out.data());
    for (int n = 0; n < 16; ++n) {
      const double x = double(sums[n]) + given[n];
      ASSERT_NEAR(out[n], tangent ? std::tanh(x) : sigmoid(x), 1e-6);
    }
  }
}

}  // namespace
}  // namespace cpuacc
