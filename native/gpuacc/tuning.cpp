// Selection among ways to compute a layer, by running each on the device.

#include <limits>

#include "gpuacc/program.hpp"

namespace gpuacc {
namespace {

/// The seconds of the current layer of a plan if it is lowered in one of its ways. Infinity if that is not possible.
double seconds_of(const Plan& plan, int way, const std::function<void(Plan&, int)>& lower) {
  Plan trial(plan.graph, plan.device, plan.profile);
  trial.layer = plan.layer;
  const ipr::Layer layer = plan.graph.layer(size_t(plan.layer));
  const ipr::TensorInfo in = layer.input(0);
  const bool channels_last = layer.text("data_layout") == "NHWC";
  trial.set(in.index(), trial.create(in.dtype(), shape_of(in), Layout::blocked, channels_last));
  try {
    lower(trial, way);
    trial.place();
    return Executable(trial, 0).seconds();
  } catch (const ipr::Error&) {
    return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

int Plan::fastest(const std::string& key, int count, const std::function<void(Plan&, int)>& lower) {
  const std::string of_profile = std::string(Profile::name(profile.kind)) + " " + key;
  auto entry = choices.find(of_profile);
  if (entry != choices.end() && entry->second >= 0 && entry->second < count) return entry->second;
  auto measure = [&] {
    int best = 0;
    double least = seconds_of(*this, 0, lower);
    for (int way = 1; way < count; ++way)
      if (const double seconds = seconds_of(*this, way, lower); seconds < least) best = way, least = seconds;
    return best;
  };
  return choices[of_profile] = device.measured(of_profile, measure);
}

}  // namespace gpuacc
