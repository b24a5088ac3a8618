#include "gpuacc/program.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpuacc/recorder.hpp"

namespace gpuacc {
namespace {

constexpr int kTimedRuns = 5;
constexpr size_t kMostAhead = 16;                      // launches between two marks of a run
constexpr int64_t kShort = 1000000, kLong = 20000000;  // nanoseconds between two marks

pid_t opened_by = 0;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

/// Waits for all that was enqueued, so that no memory of the host is used after a failure.
class Finishing {
 public:
  explicit Finishing(const Queue& queue) : queue_(queue) {}
  ~Finishing() { cl().clFinish(queue_.get()); }

 private:
  const Queue& queue_;
};

}  // namespace

void note_process() { opened_by = getpid(); }

void check_process() {
  if (opened_by == getpid()) return;
  throw ipr::Error(
      "OpenCL was opened before this process was forked, and does not work in a forked process; start the "
      "process with spawn, or fork before the first use of GpuAcc",
      IPR_DEVICE_LOST);
}

Executable::Executable(Plan& plan, uint64_t signature)
    : choices(plan.choices), signature(signature), device_(plan.device), queue_(device_.queue()),
      arena_bytes_(plan.arena_bytes), arena_(device_.buffer(arena_bytes_)), buffers_(std::move(plan.buffers)),
      checks_(std::move(plan.checks)), first_wrong_(checks_.size()), status_(plan.status) {
  flags = IPR_EXECUTABLE_KEEPS_CONSTANTS;
  memory = plan.arena_bytes;
  inputs_.resize(plan.graph.inputs().size());
  outputs_.resize(plan.graph.outputs().size());
  memory_.resize(buffers_.size());
  for (size_t n = 0; n < buffers_.size(); ++n) {
    Buffer& buffer = buffers_[n];
    const bool is_border = buffer.kind == Buffer::input || buffer.kind == Buffer::output;
    if (buffer.kind == Buffer::constant || (is_border && !device_.info.unified)) memory += buffer.bytes;
    if (buffer.kind == Buffer::input) inputs_[size_t(buffer.position)].buffer = int(n);
    if (buffer.kind == Buffer::output) outputs_[size_t(buffer.position)].buffer = int(n);
    if (buffer.kind == Buffer::arena && buffer.first >= 0)
      memory_[n] = device_.part(arena_, buffer.offset, buffer.bytes);
    if (buffer.kind == Buffer::status) memory_[n] = device_.buffer(buffer.bytes);
  }
  for (const Launch& launch : plan.launches) prepare(launch);
}

Executable::~Executable() {
  if (opened_by == getpid()) cl().clFinish(queue_.get());
}

Kernel Executable::kernel(const Launch& launch) {
  try {
    std::shared_ptr<Program>& program = programs_[launch.source];
    if (!program) program = device_.program(launch.source);
    return kernel_of(*program);
  } catch (NotCompiled& error) {
    if (launch.layer >= 0) error.item_kind = IPR_ITEM_LAYER, error.item = launch.layer;
    error.log = launch.name + ": " + error.log;
    throw;
  }
}

void Executable::prepare(const Launch& launch) {
  Step step = {launch.name, kernel(launch), launch.global, launch.local};
  size_t limit = 0;
  cl().clGetKernelWorkGroupInfo(step.kernel.get(), device_.info.id, kKernelWorkGroupSize, sizeof limit, &limit,
                                nullptr);
  if (limit && launch.local[0] * launch.local[1] * launch.local[2] > limit)
    throw ipr::Error(
        "the device runs at most " + std::to_string(limit) + " work items of the kernel " + launch.name + " in a group",
        IPR_UNSUPPORTED, IPR_ITEM_LAYER, launch.layer);
  for (size_t n = 0; n < launch.arguments.size(); ++n) {
    const Argument& one = launch.arguments[n];
    const cl_uint index = cl_uint(n);
    if (one.buffer < 0) {
      check(cl().clSetKernelArg(step.kernel.get(), index, one.size, one.bytes.data()), launch.name.c_str());
      continue;
    }
    const Buffer& buffer = buffers_[size_t(one.buffer)];
    if (buffer.kind == Buffer::input)
      inputs_[size_t(buffer.position)].uses.emplace_back(steps_.size(), index);
    else if (buffer.kind == Buffer::output)
      outputs_[size_t(buffer.position)].uses.emplace_back(steps_.size(), index);
    else {
      const Memory& memory = buffer.kind == Buffer::constant ? *buffer.memory : memory_[size_t(one.buffer)];
      const cl_mem handle = memory.get();
      check(cl().clSetKernelArg(step.kernel.get(), index, sizeof handle, &handle), launch.name.c_str());
    }
  }
  steps_.push_back(std::move(step));
}

/// Memory of the host is used in place if the device shares it, at an address that suits its caches.
bool Executable::can_import(const void* data) const {
  return device_.info.unified && data && reinterpret_cast<uintptr_t>(data) % 64 == 0;
}

void Executable::bind(Border& border, const ipr::Tensor& tensor, std::vector<Memory>& imported) {
  void* data = tensor.data<void>();
  const uint64_t bytes = buffers_[size_t(border.buffer)].bytes;
  cl_mem handle = nullptr;
  if (bytes > 0 && can_import(data)) {
    imported.push_back(device_.imported(data, bytes));
    handle = imported.back().get();
  } else {
    imported.emplace_back();
    if (!border.own) border.own = device_.buffer(bytes);
    handle = border.own.get();
    if (border.is_input && bytes > 0) {
      cl_event event = nullptr;
      check(cl().clEnqueueWriteBuffer(queue_.get(), handle, 0, 0, bytes, data, 0, nullptr,
                                      is_recorded_ ? &event : nullptr),
            "an input cannot be copied to the device");
      if (event) copies_.push_back({"copy of an input", bytes, Event(event)});
    }
  }
  for (const auto& [step, index] : border.uses)
    check(cl().clSetKernelArg(steps_[step].kernel.get(), index, sizeof handle, &handle), "an argument cannot be set");
}

/// Wait until the device has at most the launches after the last mark but one to do, so that a cancellation or deadline
/// has an effect soon. Marks are as far apart as the launches are short.
void Executable::keep_close(const ipr::Run& run) {
  if (marks_.size() >= 2) {
    const cl_event earlier = events_[marks_[marks_.size() - 2]].second.get();
    check(cl().clWaitForEvents(1, &earlier), "a kernel failed on the device");
  }
  const int64_t now = now_ns(), passed = now - std::exchange(marked_at_, now);
  if (marks_.size() >= 2 && passed < kShort) ahead_ = std::min(2 * ahead_, kMostAhead);
  if (marks_.size() >= 2 && passed > kLong) ahead_ = std::max<size_t>(ahead_ / 2, 1);
  if (run.cancelled()) throw ipr::Error("the run was cancelled", IPR_CANCELLED);
  if (run.raw().deadline_ns != 0 && now > run.raw().deadline_ns)
    throw ipr::Error("the deadline of the run has passed", IPR_DEADLINE);
}

void Executable::start(const ipr::Run* run) {
  if (!checks_.empty()) {
    std::fill(first_wrong_.begin(), first_wrong_.end(), std::numeric_limits<int32_t>::max());
    check(cl().clEnqueueWriteBuffer(queue_.get(), memory_[size_t(status_)].get(), 0, 0, 4 * first_wrong_.size(),
                                    first_wrong_.data(), 0, nullptr, nullptr),
          "the device cannot be written to");
  }
  events_.clear();
  marks_.clear();
  size_t next = 0;  // the launch before which the run is checked
  for (size_t n = 0; n < steps_.size(); ++n) {
    if (run && n == next) keep_close(*run), next += ahead_;
    const Step& step = steps_[n];
    const bool is_mark = n + 1 == next, has_event = is_recorded_ || is_mark;
    cl_event event = nullptr;
    check(cl().clEnqueueNDRangeKernel(queue_.get(), step.kernel.get(), 3, nullptr, step.global.data(),
                                      step.local.data(), 0, nullptr, has_event ? &event : nullptr),
          "a kernel cannot be started");
    if (event) events_.emplace_back(n, Event(event));
    if (is_mark) marks_.push_back(events_.size() - 1);
  }
  if (!checks_.empty())
    check(cl().clEnqueueReadBuffer(queue_.get(), memory_[size_t(status_)].get(), 0, 0, 4 * first_wrong_.size(),
                                   first_wrong_.data(), 0, nullptr, nullptr),
          "the device cannot be read");
}

void Executable::execute(const ipr::Run& run) {
  check_process();
  std::vector<Memory> in, out;  // released after all is done
  Finishing finishing(queue_);
  is_recorded_ = Recorder::all().is_on();
  copies_.clear();
  for (size_t n = 0; n < inputs_.size(); ++n) inputs_[n].is_input = true, bind(inputs_[n], run.input(n), in);
  for (size_t n = 0; n < outputs_.size(); ++n) outputs_[n].is_input = false, bind(outputs_[n], run.output(n), out);
  start(&run);
  std::vector<std::pair<cl_mem, void*>> mapped;
  for (size_t n = 0; n < outputs_.size(); ++n) {
    const uint64_t bytes = buffers_[size_t(outputs_[n].buffer)].bytes;
    if (bytes == 0) continue;
    cl_int status = kSuccess;
    cl_event event = nullptr;
    if (!out[n])
      status = cl().clEnqueueReadBuffer(queue_.get(), outputs_[n].own.get(), 0, 0, bytes, run.output(n).data<void>(), 0,
                                        nullptr, is_recorded_ ? &event : nullptr);
    else if (!device_.info.is_processor())  // a processor writes to the very memory of the host
      mapped.emplace_back(out[n].get(), cl().clEnqueueMapBuffer(queue_.get(), out[n].get(), 0, kMapRead, 0, bytes, 0,
                                                                nullptr, nullptr, &status));
    check(status, "an output cannot be copied from the device");
    if (event) copies_.push_back({"copy of an output", bytes, Event(event)});
  }
  check(cl().clFinish(queue_.get()), "the run failed on the device");
  for (const auto& [memory, data] : mapped)
    check(cl().clEnqueueUnmapMemObject(queue_.get(), memory, data, 0, nullptr, nullptr),
          "an output cannot be unmapped");
  record();
  report_values();
}

void Executable::record() {
  if (is_recorded_) {
    for (const auto& [step, event] : events_)
      Recorder::all().add(steps_[step].name, device_, event, IPR_INTERVAL_KERNEL);
    for (const Copy& copy : copies_) Recorder::all().add(copy.name, device_, copy.event, IPR_INTERVAL_COPY, copy.bytes);
  }
  events_.clear();
  copies_.clear();
}

void Executable::warm_up() {
  check_process();
  is_recorded_ = false;
  std::vector<Memory> borders;  // released after all is done
  Finishing finishing(queue_);
  for (std::vector<Border>* tensors : {&inputs_, &outputs_})
    for (Border& tensor : *tensors) {
      const uint64_t bytes = std::max<uint64_t>(buffers_[size_t(tensor.buffer)].bytes, 1);
      const std::vector<char> zeros(bytes, 0);
      borders.push_back(device_.buffer(bytes));
      const cl_mem handle = borders.back().get();
      check(cl().clEnqueueWriteBuffer(queue_.get(), handle, 1, 0, bytes, zeros.data(), 0, nullptr, nullptr), "zeros");
      for (const auto& [step, index] : tensor.uses)
        check(cl().clSetKernelArg(steps_[step].kernel.get(), index, sizeof handle, &handle), "an argument");
    }
  start(nullptr);
}

double Executable::seconds() {
  const Finishing finishing(queue_);
  const std::vector<char> zeros(arena_bytes_);
  check(cl().clEnqueueWriteBuffer(queue_.get(), arena_.get(), 1, 0, arena_bytes_, zeros.data(), 0, nullptr, nullptr),
        "the device cannot be written to");
  double least = std::numeric_limits<double>::infinity();
  for (int n = 0; n < kTimedRuns; ++n) {
    const int64_t before = now_ns();
    start(nullptr);
    check(cl().clFinish(queue_.get()), "a measured run failed on the device");
    if (n > 0) least = std::min(least, double(now_ns() - before) * 1e-9);  // the first one compiles
  }
  return least;
}

/// Report the first element that a layer cannot use, such as an index out of range.
void Executable::report_values() {
  constexpr int32_t right = std::numeric_limits<int32_t>::max();
  size_t first = 0;
  while (first < checks_.size() && first_wrong_[first] == right) ++first;
  if (first == checks_.size()) return;
  for (size_t n = first; n < checks_.size(); ++n)
    if (checks_[n].layer == checks_[first].layer && first_wrong_[n] < first_wrong_[first]) first = n;
  const ValueCheck& check = checks_[first];
  const int64_t at = first_wrong_[first];
  if (!check.problem.empty())
    throw ipr::Error(check.name + " " + std::to_string(at) + " " + check.problem, IPR_INVALID_VALUE, IPR_ITEM_LAYER,
                     check.layer);
  int64_t value = 0;
  gpuacc::check(cl().clEnqueueReadBuffer(queue_.get(), memory_[size_t(status_)].get(), 1,
                                         size_t(kMostChecks) * 4 + first * 8, 8, &value, 0, nullptr, nullptr),
                "the device cannot be read");
  const std::string range = std::to_string(check.lowest) + " to " + std::to_string(check.highest);
  throw ipr::ValueError("element " + std::to_string(at) + " of " + check.name + " is " + std::to_string(value) +
                            "; it is out of the range " + range,
                        check.layer, check.operand, at, value, check.lowest, check.highest);
}

}  // namespace gpuacc
