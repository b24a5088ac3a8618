#include "cpuacc/tuning.hpp"

#include <map>
#include <utility>

namespace cpuacc {
namespace {

constexpr double kRequiredSpeedup =
    0.95;  // part of the time of the cost model's choice that an alternative may take: measured times vary by up to 5 %

/// Measured nanoseconds of the steps of each layer. Steps that compute several layers count for the first of these.
struct Times {
  explicit Times(Program& program, double seconds) {
    std::vector<double> nanoseconds = program.measured(seconds);
    for (size_t n = 0; n < nanoseconds.size(); ++n) {
      total += nanoseconds[n];
      const Step& step = program.steps()[n];
      of_layer[step.layer] += nanoseconds[n];
      names[step.layer] += step.name + ";";
      if (!step.fused.empty()) fused[step.layer] = step.fused;
    }
  }
  double of(int64_t layer) const {
    auto entry = of_layer.find(layer);
    return entry == of_layer.end() ? 0 : entry->second;
  }

  double total = 0;
  std::map<int64_t, double> of_layer;
  std::map<int64_t, std::string> names;
  std::map<int64_t, std::vector<int64_t>> fused;
};

/// Select an alternative for each layer that it changes, and that it makes clearly faster than all before.
void compare(Choice choice, int value, const Times& times, std::map<int64_t, double>& best, const Times& rules,
             Choices& chosen) {
  for (const auto& [layer, name] : times.names) {
    auto before = rules.names.find(layer);
    if (layer < 0 || before == rules.names.end() || before->second == name || rules.fused.count(layer)) continue;
    auto known = best.emplace(layer, rules.of(layer) * kRequiredSpeedup).first;
    if (times.of(layer) >= known->second) continue;
    known->second = times.of(layer);
    chosen.set(choice, layer, value);
  }
}

/// Select separate steps for the layers of fused blocks that are clearly faster one after another.
void compare_blocks(const Times& apart, const Times& rules, Choices& chosen) {
  for (const auto& [layer, also] : rules.fused) {
    double sum = apart.of(layer);
    for (int64_t other : also) sum += apart.of(other);
    if (sum >= rules.of(layer) * kRequiredSpeedup) continue;
    chosen.set(Choice::block, layer, 0);
    for (int64_t other : also) chosen.set(Choice::block, other, 0);
  }
}

}  // namespace

std::unique_ptr<Program> tuned(const std::function<std::unique_ptr<Program>(const Choices&)>& make, double seconds) {
  std::unique_ptr<Program> plain = make({});
  Times rules(*plain, seconds);
  auto timed = [&](Choice choice, int value) {
    Choices all;
    all.set(choice, Choices::kAll, value);
    return Times(*make(all), seconds);
  };
  Choices chosen;
  std::map<int64_t, double> best;
  if (plain->has_convolutions())
    for (int tile : {1, 2, 4}) compare(Choice::winograd, tile, timed(Choice::winograd, tile), best, rules, chosen);
  if (!rules.fused.empty()) compare_blocks(timed(Choice::block, 0), rules, chosen);
  if (chosen.empty()) return plain;
  std::unique_ptr<Program> other = make(chosen);
  return Times(*other, seconds).total < rules.total ? std::move(other) : std::move(plain);
}

}  // namespace cpuacc
