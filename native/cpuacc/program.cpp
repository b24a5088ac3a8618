#include "cpuacc/program.hpp"

#include <time.h>

#include <algorithm>

#include "cpuacc/plan.hpp"

namespace cpuacc {
namespace {

constexpr size_t kFewBases = 32;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

struct Call {
  const Step* step;
  const Run* run;

  static void part(void* self, int part, int parts) {
    const Call& call = *static_cast<Call*>(self);
    call.step->fn(*call.step, *call.run, part, parts);
  }
};

}  // namespace

int parts_for(const Settings& settings, double nanoseconds) {
  constexpr double least = 3000;  // that a part has to take for the others to be worth waking
  return std::clamp(int(nanoseconds / least), 1, settings.threads);
}

Program::Program(Graph graph, const Settings& settings, native::Pool* pool, const Restored* restored)
    : pool_(pool), threads_(settings.threads) {
  Plan plan(graph, settings, pack_, restored, pool);
  for (const Node& node : graph.nodes) {
    Refusal why;
    const Lowering* lowering = find_lowering(graph, node, settings, &why);
    if (!lowering) throw ipr::Error(why.text, IPR_UNSUPPORTED, IPR_ITEM_LAYER, node.layer);
    lowering->lower(node, plan);
  }
  if (restored && (restored->sizes.size() != pack_.pieces.size() || restored->choices.size() != pack_.choices.size()))
    throw ipr::Error("the compiled part does not belong to this network", IPR_STALE);
  steps_ = plan.finish();
  for (const Step& step : steps_) {
    scratch_stride_ = std::max(scratch_stride_, (step.scratch_per_part + 63) / 64 * 64);
    parallel_ = parallel_ || step.max_parts > 1;
  }
  for (const Tensor& tensor : graph.tensors)
    if (tensor.keep) kept_.push_back(tensor.keep);
  arena_bytes_ = plan.arena_bytes();
  workspace_size = arena_bytes_ + scratch_stride_ * uint64_t(parallel_ ? threads_ : 1);
  flags = IPR_EXECUTABLE_CONCURRENT;
  if (!plan.reads_constants()) flags |= IPR_EXECUTABLE_KEEPS_CONSTANTS;
  memory = pack_.memory.total();
}

void Program::execute(const ipr::Run& run) {
  char* few[kFewBases];
  std::vector<char*> many;
  size_t count = 2 + run.input_count() + run.output_count();
  char** bases = few;
  if (count > kFewBases) many.resize(count), bases = many.data();
  bases[0] = nullptr;
  bases[1] = run.workspace();
  for (size_t n = 0; n < run.input_count(); ++n) {
    const ipr_tensor& raw = *ipr_input_at(&run.raw(), n);
    bases[2 + n] = static_cast<char*>(raw.data) + raw.byte_offset;
  }
  for (size_t n = 0; n < run.output_count(); ++n) {
    const ipr_tensor& raw = *ipr_output_at(&run.raw(), n);
    bases[2 + run.input_count() + n] = static_cast<char*>(raw.data) + raw.byte_offset;
  }
  run_steps(run, bases);
}

void Program::run_steps(const ipr::Run& run, char* const* bases) {
  const ipr_run& raw = run.raw();
  const char* fault = nullptr;
  Run inner{bases, bases[1] + arena_bytes_, scratch_stride_, &fault};
  int limit = raw.thread_limit > 0 ? std::min(threads_, int(raw.thread_limit)) : threads_;
  std::vector<int64_t> times;
  int64_t begin = profile_.is_on() ? now() : 0;
  native::Pool::Lease lease(parallel_ && limit > 1 ? pool_ : nullptr);
  for (const Step& step : steps_) {
    if (run.cancelled()) throw ipr::Error("the run was cancelled", IPR_CANCELLED);
    if (raw.deadline_ns != 0 && now() > raw.deadline_ns) throw ipr::Error("the deadline has passed", IPR_DEADLINE);
    int parts = std::min(step.max_parts, limit);
    if (parts == 1) {
      step.fn(step, inner, 0, 1);
    } else {
      Call call{&step, &inner};
      lease.run(&Call::part, &call, parts);
    }
    if (fault != nullptr) throw ipr::Error(step.name + ": " + fault, IPR_INVALID_ARGUMENT);
    if (profile_.is_on()) {
      int64_t end = now();
      times.push_back(end - begin);
      begin = end;
    }
  }
  if (profile_.is_on()) profile_.add(times);
}

}  // namespace cpuacc
