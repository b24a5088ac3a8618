// What other lowerings of LSTMs ask.

#ifndef CPUACC_LOWER_LSTM_HPP
#define CPUACC_LOWER_LSTM_HPP

#include "cpuacc/rules.hpp"

namespace cpuacc {

/// Return why an LstmSequence does not run with states that are quantized in each step.
Refusal support_dynamic_lstm(const Graph& graph, const Node& node, const Settings& settings);

}  // namespace cpuacc

#endif  // CPUACC_LOWER_LSTM_HPP
