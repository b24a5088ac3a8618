#include "cpuacc/program.hpp"

#include <time.h>

#include <algorithm>

#include "common/pages.hpp"
#include "cpuacc/plan.hpp"

namespace cpuacc {
namespace {

constexpr size_t kBasesOnStack = 32;
constexpr uint64_t kLeastReleasedBytes = 256 * 1024;  // smaller constants are not worth a call of the system

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

/// Prefetch the beginning of the operands of a step while the previous step runs.
void prefetch_operands(const Step& step) {
  const char* state = static_cast<const char*>(step.state.get());
  for (int line = 0; line < 4; ++line) __builtin_prefetch(state + 64 * line);
  __builtin_prefetch(step.in.data());
  __builtin_prefetch(step.out.data());
}

/// Throw the error for a value that a step cannot use.
[[noreturn]] void refuse(const Step& step, const Fault& fault) {
  if (fault.why != nullptr)
    throw ipr::Error(step.name + ": " + fault.why, IPR_INVALID_VALUE, IPR_ITEM_LAYER, step.layer);
  const std::string text = step.name + ": operand " + std::to_string(fault.operand) + " has " +
                           std::to_string(fault.value) + "; expected " + std::to_string(fault.lowest) + " to " +
                           std::to_string(fault.highest);
  throw ipr::ValueError(text, step.layer, fault.operand, fault.element, fault.value, fault.lowest, fault.highest);
}

/// Release the memory of a constant that is packed.
void release(Tensor& tensor) {
  tensor.drop_copy();
  if (tensor.is_mapped() && tensor.bytes() >= kLeastReleasedBytes) native::release_pages(tensor.data, tensor.bytes());
}

}  // namespace

int parts_for(const Settings& settings, double nanoseconds) {
  constexpr double least =
      1000;  // nanoseconds that one part has to take at least, because waking a thread takes up to a microsecond
  return std::clamp(int(nanoseconds / least), 1, settings.threads);
}

Program::Program(Graph graph, const Settings& settings, native::Pool* pool, const Restored* restored)
    : packed_(settings.allocator), pool_(pool), threads_(settings.threads), choices_(settings.choices) {
  Plan plan(graph, settings, packed_, restored, pool);
  for (const Node& node : graph.nodes) {
    Refusal why;
    const Lowering* lowering = find_lowering(graph, node, settings, &why);
    if (!lowering) throw ipr::Error(why.text, IPR_UNSUPPORTED, IPR_ITEM_LAYER, node.layer);
    plan.begin(node);
    lowering->lower(node, plan);
    for (int tensor : node.inputs)
      if (tensor >= 0) release(graph[tensor]);
  }
  if (restored && restored->sizes.size() != packed_.pieces().size())
    throw ipr::Error("the compiled subgraph does not belong to this network", IPR_STALE);
  steps_ = plan.finish();
  for (const Step& step : steps_) {
    scratch_stride_ = std::max(scratch_stride_, (step.scratch_per_part + 63) / 64 * 64);
    parallel_ = parallel_ || step.max_parts > 1;
  }
  for (const Tensor& tensor : graph.tensors)
    if (tensor.owner && !packed_.has_allocator()) pass_constants_.push_back(tensor.owner);
  for (const std::vector<int>* side : {&graph.inputs, &graph.outputs})
    for (int tensor : *side) border_.push_back({graph[tensor].bytes(), graph[tensor].dtype});
  arena_bytes_ = plan.arena_bytes();
  in_place = plan.take_in_place();
  workspace_size = arena_bytes_ + scratch_stride_ * uint64_t(parallel_ ? threads_ : 1);
  flags = IPR_EXECUTABLE_CONCURRENT;
  if (!plan.reads_constants()) flags |= IPR_EXECUTABLE_KEEPS_CONSTANTS;
  memory = sizeof *this + steps_.size() * sizeof(Step) + packed_.total();
}

bool Program::has_convolutions() const {
  auto is_convolution = [](const Step& step) {
    return step.name.rfind("winograd", 0) == 0 || step.name.rfind("conv ", 0) == 0;
  };
  return std::any_of(steps_.begin(), steps_.end(), is_convolution);
}

std::vector<double> Program::measured(double seconds) {
  native::Arena memory;
  std::vector<char*> bases{nullptr, memory.take(workspace_size)};
  for (const Border& tensor : border_) {
    bases.push_back(memory.take(tensor.bytes));
    if (tensor.dtype != IPR_DTYPE_FLOAT32) continue;  // zeros are valid quantized values, indices and lengths
    float* values = reinterpret_cast<float*>(bases.back());
    for (uint64_t n = 0; n < tensor.bytes / 4; ++n) values[n] = float(n % 17) / 16 - 0.5f;
  }
  Fault fault;
  Run run{bases.data(), bases[1] + arena_bytes_, scratch_stride_, &fault};
  std::vector<double> least(steps_.size(), 1e18);
  native::Pool::Lease lease(parallel_ ? pool_ : nullptr);
  int64_t begin = now(), end = begin + int64_t(seconds * 1e9);
  for (int round = 0; round < 3 || (round < 200 && now() < end); ++round)
    for (size_t n = 0; n < steps_.size(); ++n) {
      int64_t start = now();
      Call call{&steps_[n], &run};
      lease.run(&Call::part, &call, std::min(steps_[n].max_parts, threads_));
      if (round > 0) least[n] = std::min(least[n], double(now() - start));  // the first run warms up the caches
    }
  return least;
}

void Program::compute(const std::vector<char*>& border) {
  native::Arena memory;
  std::vector<char*> bases{nullptr, memory.take(workspace_size)};
  bases.insert(bases.end(), border.begin(), border.end());
  Fault fault;
  compute_inside(bases, &fault);
}

void Program::compute_inside(const std::vector<char*>& bases, Fault* fault) const {
  Run run{bases.data(), bases[1] + arena_bytes_, scratch_stride_, fault};
  for (const Step& step : steps_) step.fn(step, run, 0, 1);
}

void Program::execute(const ipr::Run& run) {
  char* few[kBasesOnStack];
  std::vector<char*> many;
  size_t count = 2 + run.input_count() + run.output_count();
  char** bases = few;
  if (count > kBasesOnStack) many.resize(count), bases = many.data();
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
  Fault fault;
  const ResizeOutput resize = [&](uint32_t base, const Shape& shape) {
    const size_t number = base - 2 - run.input_count();
    run.resized(number, shape);
    const ipr_tensor& resized = *ipr_output_at(&run.raw(), number);
    return static_cast<void*>(static_cast<char*>(resized.data) + resized.byte_offset);
  };
  Run inner{bases, bases[1] + arena_bytes_, scratch_stride_, &fault, &resize};
  int limit = raw.thread_limit > 0 ? std::min(threads_, int(raw.thread_limit)) : threads_;
  std::vector<int64_t> times;
  const bool is_timed = profile_.is_on();
  const int64_t start = is_timed ? now() : 0;
  int64_t begin = start;
  native::Pool::Lease lease(parallel_ && limit > 1 ? pool_ : nullptr);
  for (const Step& step : steps_) {
    if (run.cancelled()) throw ipr::Error("the run was cancelled", IPR_CANCELLED);
    if (raw.deadline_ns != 0 && now() > raw.deadline_ns) throw ipr::Error("the deadline has passed", IPR_DEADLINE);
    if (&step != &steps_.back()) prefetch_operands((&step)[1]);
    if (step.check != nullptr) {
      step.check(step, inner, 0, 1);
      if (fault.is_reported()) refuse(step, fault);
    }
    int parts = std::min(step.max_parts, limit);
    if (parts == 1) {
      step.fn(step, inner, 0, 1);
    } else {
      Call call{&step, &inner};
      lease.run(&Call::part, &call, parts);
    }
    if (fault.is_reported()) refuse(step, fault);
    if (is_timed) {
      int64_t end = now();
      times.push_back(end - begin);
      begin = end;
    }
  }
  if (is_timed) profile_.add(start, times);
}

}  // namespace cpuacc
