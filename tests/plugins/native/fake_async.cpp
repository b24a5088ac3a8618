// Two devices that run on threads of the host, with queues, gates, memory and clocks of their own. They compute sums,
// products, ReLU and Gather. The option "Work" lets each submission take time, which passes by itself, or only when the
// test advances the clock ("Clock" = "manual"). The option "Fault" plants an error: "fail@2" in the second submission
// of each queue; see `Fault`.
//
// The option "Lacks" names what the plug-in does not have: gates, timelines, flush, copies, engine, handles, devices,
// members (all optional ones of "ipr.async/1").

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "interposer/backend.hpp"

namespace {

// The id of the backend: the value of FAKE_ID when the file is loaded, so that two copies can be two backends.
const std::string kId = std::getenv("FAKE_ID") ? std::getenv("FAKE_ID") : "Fake";

constexpr int kDevices = 2;
constexpr int64_t kOffset[kDevices] = {7'000'000'000'000, -3'000'000'000};  // of the clocks of the devices
constexpr double kDrift[kDevices] = {1 + 5e-6, 1 - 3e-6};

int64_t monotonic() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

const int64_t began = monotonic();

int64_t device_time(int device, int64_t host) {
  return host + kOffset[device] + int64_t(double(host - began) * (kDrift[device] - 1));
}

// ---- What goes wrong -------------------------------------------------------------------------------------------------

/// What goes wrong in which submission of a queue: fail, never (it obeys `cancel`), ignore (it does not), lost. In the
/// interface, each breaks a rule: early (over before it is done), mute (a failure without a message), unmarked (a
/// failure that the timeline does not have), numbers (numbers begin at 2), silent (`notify` does nothing), late
/// (`notify` takes 30 ms), spurious (`notify` wakes at once), impatient (`wait` returns at once), deaf (`cancel` does
/// nothing), stubborn (`reset` does nothing), unordered (waits are ignored), blocking (`submit` waits for the end),
/// dangling (points of destroyed queues are never over), reckless (what depends on a failure runs), forgetful (`result` is IPR_OK), twins (both devices have one kind of
/// memory), nameless (devices have no id).
struct Fault {
  std::string name;
  uint64_t number = 0;

  explicit Fault(const ipr::Options& options) {
    std::string text(options.text("Fault", ""));
    size_t at = text.find('@');
    name = text.substr(0, at);
    number = at == std::string::npos ? 1 : std::stoull(text.substr(at + 1));
  }
  bool is(const char* other) const { return name == other; }
  bool is(const char* other, uint64_t now) const { return name == other && number == now; }
};

// ---- The world: all state, under one lock ----------------------------------------------------------------------------

struct Outcome {
  int32_t status = IPR_OK;
  std::string message;
  int32_t item_kind = IPR_ITEM_NONE;
  int64_t item = -1;
  bool has_value = false;
  int32_t operand = 0;
  int64_t element = 0, value = 0, lowest = 0, highest = 0;

  int32_t raise(ipr_error* error) const {
    if (has_value) return ipr_fail_value(error, item, operand, element, value, lowest, highest, message.c_str());
    return ipr_fail(error, status, item_kind, item, message.c_str());
  }
};

struct Submission {
  uint64_t number = 0;
  ipr::Executable* executable = nullptr;
  std::vector<ipr_tensor> tensors;  // the inputs, then the outputs; or the source and the target
  size_t inputs = 0;
  std::vector<std::vector<int64_t>> shapes;
  ipr_run run{};
  std::vector<ipr_point> waits;
};

struct Queue {
  int device = 0;
  ipr_timeline* timeline = nullptr;
  Fault fault;
  bool manual = false;
  int64_t work = 0;
  uint64_t submitted = 0, completed = 0, failed = 0, cancelled = 0;  // the latter: all up to this number
  std::map<uint64_t, Outcome> outcomes;
  std::set<uint64_t> notified;
  std::deque<Submission> pending;
  bool ends = false, is_destroyed = false;
  std::thread thread;

  explicit Queue(const ipr::Options& options) : fault(options) {}
};

std::mutex lock;
std::condition_variable changed;
std::atomic<int64_t> manual_time{0};
bool lost[kDevices];
std::map<uint64_t, int32_t> gates;  // -1: shut
uint64_t last_gate = 0;
std::vector<std::unique_ptr<Queue>> destroyed_queues;  // other queues may still wait for points of these
int64_t live_queues = 0, live_tensors = 0, live_pools = 0, live_executables = 0;

std::string lacking;

/// Whether the option "Lacks" names something.
bool lacks(const std::string& what) { return (" " + lacking + " ").find(" " + what + " ") != std::string::npos; }

struct Heap {
  uint64_t last = 0;
  std::map<uint64_t, std::vector<char>> tensors;
} heap;

void* address_of(uint64_t tensor) {
  std::lock_guard<std::mutex> hold(lock);
  return heap.tensors.at(tensor).data();
}

/// The tensor with an address, wherever it is.
ipr_tensor resolved(ipr_tensor tensor) {
  if (tensor.memory_kind != IPR_MEMORY_PRIVATE) return tensor;
  tensor.data = address_of(tensor.native_handle);
  tensor.memory_kind = IPR_MEMORY_HOST;
  return tensor;
}

// ---- Profiling -------------------------------------------------------------------------------------------------------

class Recorder : public ipr::Profiler {
 public:
  void enable(bool on) override {
    std::lock_guard<std::mutex> hold(mutex_);
    on_ = on;
    if (on) intervals_.clear();
  }
  uint64_t collect(size_t capacity, std::vector<ipr_interval>& out) override {
    std::lock_guard<std::mutex> hold(mutex_);
    size_t count = std::min(capacity, intervals_.size());
    out.assign(intervals_.begin(), intervals_.begin() + count);
    intervals_.erase(intervals_.begin(), intervals_.begin() + count);
    return 0;
  }
  void correlate(std::string_view device, ipr_clock& out) override {
    out.host_ns = monotonic();
    out.device_ns = device_time(device == "fake:1" ? 1 : 0, out.host_ns);
    out.error_ns = 1000;
  }
  void add(int device, const char* name, uint32_t kind, int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!on_) return;
    ipr_string place = device ? ipr::string("fake:1") : ipr::string("fake:0");
    intervals_.push_back(
        {ipr::string(name), place, device_time(device, begin), device_time(device, end), 0, 0, 0, kind, 0});
  }

 private:
  std::mutex mutex_;
  bool on_ = false;
  std::vector<ipr_interval> intervals_;
} recorder;

// ---- Executables -----------------------------------------------------------------------------------------------------

class Part : public ipr::Executable {
 public:
  explicit Part(std::unique_ptr<ipr::KernelList> kernels) : kernels_(std::move(kernels)) {
    workspace_size = kernels_->workspace_size;
    flags = IPR_EXECUTABLE_CONCURRENT;
    std::lock_guard<std::mutex> hold(lock);
    ++live_executables;
  }
  ~Part() override {
    std::lock_guard<std::mutex> hold(lock);
    --live_executables;
  }
  void execute(const ipr::Run& run) override {
    ipr_run raw = run.raw();
    std::vector<ipr_tensor> inputs, outputs;
    for (size_t n = 0; n < raw.input_count; ++n) inputs.push_back(resolved(*ipr_input_at(&raw, n)));
    for (size_t n = 0; n < raw.output_count; ++n) outputs.push_back(resolved(*ipr_output_at(&raw, n)));
    raw.inputs = inputs.data(), raw.outputs = outputs.data(), raw.tensor_stride = sizeof(ipr_tensor);
    kernels_->execute(ipr::Run(&raw));
  }

 private:
  std::unique_ptr<ipr::KernelList> kernels_;
};

void copy(const ipr_tensor& source, const ipr_tensor& target) {
  ipr_tensor from = resolved(source), to = resolved(target);
  std::memcpy(static_cast<char*>(to.data) + to.byte_offset, static_cast<char*>(from.data) + from.byte_offset, to.size);
}

Outcome run(const Submission& what) {
  std::vector<ipr_tensor> tensors = what.tensors;
  for (size_t n = 0; n < tensors.size(); ++n) tensors[n].shape = what.shapes[n].data();
  ipr_run raw = what.run;
  raw.tensor_stride = sizeof(ipr_tensor);
  raw.inputs = tensors.data();
  raw.outputs = tensors.data() + what.inputs;
  Outcome outcome;
  try {
    if (what.executable)
      what.executable->execute(ipr::Run(&raw));
    else
      copy(what.tensors[0], what.tensors[1]);
  } catch (const ipr::ValueError& e) {
    outcome = {IPR_INVALID_VALUE, e.what(),  e.item_kind, e.item,   true,
               e.operand,         e.element, e.value,     e.lowest, e.highest};
  } catch (const ipr::Error& e) {
    outcome = {e.status, e.what(), e.item_kind, e.item, false, 0, 0, 0, 0, 0};
  } catch (const std::exception& e) {
    outcome.status = IPR_FAILED, outcome.message = e.what();
  }
  return outcome;
}

// ---- Queues ----------------------------------------------------------------------------------------------------------

using Hold = std::unique_lock<std::mutex>;

uint64_t load(const uint64_t& number) { return __atomic_load_n(&number, __ATOMIC_ACQUIRE); }
void store(uint64_t& number, uint64_t value) { __atomic_store_n(&number, value, __ATOMIC_RELEASE); }

/// Whether a point is over: -1 not yet, else a status.
int32_t state_of(const ipr_point& point, std::string& message) {
  if (point.kind == IPR_POINT_GATE) return gates.at(point.handle);
  if (point.kind == IPR_POINT_TIMELINE) {
    auto* timeline = reinterpret_cast<const ipr_timeline*>(point.handle);
    if (load(timeline->completed) < point.value) return -1;
    uint64_t failed = load(timeline->failed);
    if (failed == 0 || failed > point.value) return IPR_OK;
    message = "a submission of another backend failed";
    return IPR_FAILED;
  }
  auto* queue = reinterpret_cast<Queue*>(point.handle);
  if (queue->completed < point.value || (queue->is_destroyed && queue->fault.is("dangling"))) return -1;
  if (queue->failed == 0 || queue->failed > point.value) return IPR_OK;
  const Outcome& cause = queue->outcomes[queue->failed];
  message = "submission " + std::to_string(queue->failed) + " of another queue failed: " + cause.message;
  return IPR_FAILED;
}

bool is_late(const Submission& what) { return what.run.deadline_ns != 0 && monotonic() > what.run.deadline_ns; }

bool is_stopped(const Queue& queue, uint64_t number) { return queue.cancelled >= number || lost[queue.device]; }

void wait_for_points(Queue& queue, const Submission& what, Hold& hold, Outcome& outcome) {
  for (const ipr_point& point : what.waits) {
    std::string message;
    int32_t state;
    while ((state = state_of(point, message)) < 0 && !is_stopped(queue, what.number) && !is_late(what) &&
           !queue.fault.is("unordered"))
      changed.wait_for(hold, std::chrono::milliseconds(point.kind == IPR_POINT_TIMELINE ? 1 : 20));
    if (state > 0 && outcome.status == IPR_OK && !queue.fault.is("reckless")) {
      outcome.status = IPR_SKIPPED;
      outcome.message = message.empty() ? "the gate was opened with status " + std::to_string(state) : message;
    }
  }
}

/// Let the time of a submission pass; it ends early if it is cancelled.
void pass_time(Queue& queue, uint64_t number, Hold& hold, Outcome& outcome) {
  int64_t end = (queue.manual ? manual_time.load() : monotonic()) + queue.work;
  bool never = queue.fault.is("never", number), ignore = queue.fault.is("ignore", number);
  while (ignore || never || (queue.manual ? manual_time.load() : monotonic()) < end) {
    if (is_stopped(queue, number) && !ignore) {
      outcome.status = IPR_CANCELLED, outcome.message = "it was cancelled";
      return;
    }
    int64_t left = queue.manual || never || ignore ? 1'000'000'000 : end - monotonic();
    changed.wait_for(hold, std::chrono::nanoseconds(std::max<int64_t>(left, 1000)));
  }
}

void wake(const Queue& queue) { queue.timeline->wake(queue.timeline->wake_fd, 1); }

void complete(Queue& queue, uint64_t number, const Outcome& outcome) {
  if (outcome.status != IPR_OK) {
    queue.outcomes[number] = outcome;
    if (queue.fault.is("mute")) queue.outcomes[number].message.clear();
    if (queue.failed == 0) {
      queue.failed = number;
      if (!queue.fault.is("unmarked")) store(queue.timeline->failed, number);
    }
  }
  queue.completed = number;
  store(queue.timeline->completed, number);
  if (!queue.notified.empty() && *queue.notified.begin() <= number) {
    queue.notified.erase(queue.notified.begin(), queue.notified.upper_bound(number));
    wake(queue);
  }
  changed.notify_all();
}

void run_one(Queue& queue, Submission& what, Hold& hold) {
  Outcome outcome;
  wait_for_points(queue, what, hold, outcome);
  if (queue.cancelled >= what.number) {
    outcome.status = IPR_CANCELLED, outcome.message = "it was cancelled before it began";
  } else if (queue.failed && outcome.status == IPR_OK && !queue.fault.is("reckless")) {
    outcome.status = IPR_SKIPPED;
    outcome.message =
        "submission " + std::to_string(queue.failed) + " of its queue failed: " + queue.outcomes[queue.failed].message;
  }
  if (outcome.status == IPR_OK && is_late(what))
    outcome.status = IPR_DEADLINE, outcome.message = "its deadline had passed before it began";
  if (queue.fault.is("lost", what.number)) lost[queue.device] = true;
  if (outcome.status == IPR_OK && !lost[queue.device]) {
    if (queue.fault.is("early")) {
      complete(queue, what.number, outcome);
      hold.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      hold.lock();
    }
    int64_t begin = monotonic();
    pass_time(queue, what.number, hold, outcome);
    if (outcome.status == IPR_OK && queue.fault.is("fail", what.number)) {
      outcome.status = IPR_FAILED, outcome.message = "the planted fault";
    } else if (outcome.status == IPR_OK) {
      hold.unlock();
      outcome = run(what);
      recorder.add(queue.device, what.executable ? "part" : "copy",
                   what.executable ? IPR_INTERVAL_KERNEL : IPR_INTERVAL_COPY, begin, monotonic());
      hold.lock();
    }
  }
  if (lost[queue.device])
    outcome = Outcome{IPR_DEVICE_LOST, "the device is lost", IPR_ITEM_NONE, -1, false, 0, 0, 0, 0, 0};
  if (!queue.fault.is("early") || outcome.status != IPR_OK) complete(queue, what.number, outcome);
}

void serve(Queue* queue) {
  Hold hold(lock);
  while (true) {
    changed.wait(hold, [&] { return queue->ends || !queue->pending.empty(); });
    if (queue->pending.empty()) return;
    Submission what = std::move(queue->pending.front());
    queue->pending.pop_front();
    run_one(*queue, what, hold);
  }
}

int device_of(const ipr::Options& options) {
  int64_t device = options.integer("Device", 0);
  if (device < 0 || device >= kDevices) throw ipr::Error("there is no such device", IPR_INVALID_ARGUMENT);
  return int(device);
}

int32_t create_queue(void*, const ipr_options* raw, ipr_timeline* timeline, void** out, ipr_error* error) {
  return ipr::detail::guarded(error, [&] {
    ipr::Options options(raw);
    auto queue = std::make_unique<Queue>(options);
    queue->device = device_of(options);
    queue->timeline = timeline;
    queue->work = options.integer("Work", 0);
    queue->manual = options.text("Clock", "real") == "manual";
    std::lock_guard<std::mutex> hold(lock);
    if (lost[queue->device]) throw ipr::Error("the device is lost", IPR_DEVICE_LOST);
    ++live_queues;
    queue->thread = std::thread(serve, queue.get());
    *out = queue.release();
  });
}

void destroy_queue(void*, void* raw) {
  auto* queue = static_cast<Queue*>(raw);
  {
    std::lock_guard<std::mutex> hold(lock);
    --live_queues;
    queue->ends = true;
    changed.notify_all();
  }
  queue->thread.join();
  std::lock_guard<std::mutex> hold(lock);
  queue->is_destroyed = true;
  destroyed_queues.emplace_back(queue);
}

void keep(Submission& kept, const ipr_tensor& tensor) {
  kept.tensors.push_back(tensor);
  kept.shapes.emplace_back(tensor.shape, tensor.shape + tensor.ndim);
}

int32_t submit(void*, void* raw, const ipr_submission* given, uint64_t* out, ipr_error* error) {
  auto* queue = static_cast<Queue*>(raw);
  return ipr::detail::guarded(error, [&] {
    Submission kept;
    kept.executable = static_cast<ipr::Executable*>(given->executable);
    if (kept.executable) {
      kept.run = *given->run;
      kept.inputs = size_t(given->run->input_count);
      for (uint64_t n = 0; n < given->run->input_count; ++n) keep(kept, *ipr_input_at(given->run, n));
      for (uint64_t n = 0; n < given->run->output_count; ++n) keep(kept, *ipr_output_at(given->run, n));
    } else {
      keep(kept, *given->source);
      keep(kept, *given->target);
    }
    for (uint64_t n = 0; n < given->wait_count; ++n)
      kept.waits.push_back(
          *reinterpret_cast<const ipr_point*>(reinterpret_cast<const char*>(given->waits) + n * given->wait_stride));
    Hold hold(lock);
    if (lost[queue->device]) throw ipr::Error("the device is lost", IPR_DEVICE_LOST);
    if (queue->fault.is("refuse", queue->submitted + 1)) throw ipr::Error("it was not accepted");
    kept.number = ++queue->submitted;
    *out = kept.number + (queue->fault.is("numbers") ? 1 : 0);
    queue->pending.push_back(std::move(kept));
    changed.notify_all();
    uint64_t number = queue->submitted;
    if (queue->fault.is("blocking")) changed.wait(hold, [&] { return queue->completed >= number; });
  });
}

int32_t wait(void*, void* raw, uint64_t number, int64_t deadline_ns, ipr_error* error) {
  auto* queue = static_cast<Queue*>(raw);
  Hold hold(lock);
  if (queue->fault.is("impatient")) return IPR_OK;
  while (queue->completed < number) {
    if (deadline_ns == 0) {
      changed.wait(hold);
      continue;
    }
    int64_t left = deadline_ns - monotonic();
    if (left <= 0) return ipr_fail(error, IPR_DEADLINE, IPR_ITEM_NONE, -1, "it is not over yet");
    changed.wait_for(hold, std::chrono::nanoseconds(left));
  }
  return IPR_OK;
}

int32_t result(void*, void* raw, uint64_t number, ipr_error* error) {
  auto* queue = static_cast<Queue*>(raw);
  std::lock_guard<std::mutex> hold(lock);
  auto found = queue->outcomes.find(number);
  if (found == queue->outcomes.end() || queue->fault.is("forgetful")) return IPR_OK;
  return found->second.raise(error);
}

int32_t notify(void*, void* raw, uint64_t number, ipr_error*) {
  auto* queue = static_cast<Queue*>(raw);
  if (queue->fault.is("silent")) return IPR_OK;
  if (queue->fault.is("late")) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::lock_guard<std::mutex> hold(lock);
  if (queue->completed >= number || queue->fault.is("spurious")) wake(*queue);
  if (queue->completed < number) queue->notified.insert(number);
  return IPR_OK;
}

int32_t cancel(void*, void* raw, ipr_error*) {
  auto* queue = static_cast<Queue*>(raw);
  std::lock_guard<std::mutex> hold(lock);
  if (!queue->fault.is("deaf")) queue->cancelled = queue->submitted;
  changed.notify_all();
  return IPR_OK;
}

int32_t reset(void*, void* raw, ipr_error* error) {
  auto* queue = static_cast<Queue*>(raw);
  std::lock_guard<std::mutex> hold(lock);
  if (lost[queue->device]) return ipr_fail(error, IPR_DEVICE_LOST, IPR_ITEM_NONE, -1, "the device is lost");
  if (queue->fault.is("stubborn")) return IPR_OK;
  queue->failed = 0;
  queue->outcomes.clear();
  store(queue->timeline->failed, 0);
  return IPR_OK;
}

int32_t flush(void*, void*, ipr_error*) { return IPR_OK; }

int32_t create_gate(void*, const ipr_options*, uint64_t* out, ipr_error*) {
  std::lock_guard<std::mutex> hold(lock);
  gates[*out = ++last_gate] = -1;
  return IPR_OK;
}

void open_gate(void*, uint64_t gate, int32_t status) {
  std::lock_guard<std::mutex> hold(lock);
  gates.at(gate) = status;
  changed.notify_all();
}

void destroy_gate(void*, uint64_t gate) {
  std::lock_guard<std::mutex> hold(lock);
  gates.erase(gate);
}

const ipr_async_api* async_table() {
  static ipr_async_api table;
  table = {lacks("members") ? offsetof(ipr_async_api, flush) : sizeof(ipr_async_api),
           IPR_POINT_QUEUE | (lacks("gates") ? 0 : IPR_POINT_GATE) | (lacks("timelines") ? 0 : IPR_POINT_TIMELINE),
           0,
           (lacks("copies") ? 0 : IPR_ASYNC_COPIES) | (lacks("engine") ? 0 : IPR_ASYNC_COPY_ENGINE),
           &create_queue,
           &destroy_queue,
           &submit,
           &wait,
           &result,
           &notify,
           &cancel,
           &reset,
           &flush,
           &create_gate,
           &open_gate,
           &destroy_gate,
           nullptr};
  if (lacks("flush")) table.flush = nullptr;
  if (lacks("gates")) table.create_gate = nullptr, table.open_gate = nullptr, table.destroy_gate = nullptr;
  return &table;
}

// ---- Devices ---------------------------------------------------------------------------------------------------------

bool nameless = false, twins = false;

int32_t describe_devices(void*, ipr_devices* out, ipr_error*) {
  static const ipr_property properties[] = {
      {IPR_STRING("HasFp16"), IPR_STRING("half precision"), IPR_KIND_BOOL, 0, 0, 0, {}}};
  static ipr_device devices[kDevices];
  static const char* ids[kDevices] = {"fake:0", "fake:1"};
  static const uint8_t uuids[kDevices][16] = {{1}, {2}};
  for (int n = 0; n < kDevices; ++n) {
    ipr_device& device = devices[n] = ipr_device{};
    device.id = nameless ? ipr_string{} : ipr::string(ids[n]);
    device.name = n ? IPR_STRING("Fake two") : IPR_STRING("Fake one");
    device.vendor = IPR_STRING("Tests");
    device.driver = IPR_STRING("1.0");
    device.type = IPR_DEVICE_GPU;
    device.memory_kinds = IPR_MEMORY_HOST;
    device.flags = IPR_DEVICE_UNIFIED | IPR_DEVICE_SIMULATED;
    device.memory = uint64_t(1) << (30 + n);
    device.memory_free = uint64_t(1) << (29 + n);
    device.largest = uint64_t(1) << 28;
    device.dlpack_type = 2, device.dlpack_id = n;
    device.uuid = uuids[n];
    device.property_count = 1, device.property_stride = sizeof(ipr_property), device.properties = properties;
  }
  out->device_count = kDevices;
  out->device_stride = sizeof(ipr_device);
  out->devices = devices;
  return IPR_OK;
}

const ipr_devices_api devices_table = {sizeof(ipr_devices_api), &describe_devices};

// ---- The backend -----------------------------------------------------------------------------------------------------

class Pool : public ipr::Pool {
 public:
  Pool() {
    std::lock_guard<std::mutex> hold(lock);
    ++live_pools;
  }
  ~Pool() override {
    std::lock_guard<std::mutex> hold(lock);
    --live_pools;
  }
  void acquire() override {}
  void give_back() override {}
  uint64_t create_tensor(size_t, const ipr::TensorInfo& info, bool) override {
    std::lock_guard<std::mutex> hold(lock);
    ++live_tensors;
    heap.tensors[++heap.last].resize(size_t(info.bytes()), char(0x7f));
    return heap.last;
  }
  void destroy_tensor(uint64_t tensor) override {
    std::lock_guard<std::mutex> hold(lock);
    --live_tensors;
    heap.tensors.erase(tensor);
  }
  void manage(uint64_t) override {}
  void allocate(uint64_t) override {}
};

class Fake : public ipr::Backend {
 public:
  ipr::Info info() const override {
    ipr::Info info;
    info.vendor = "Tests", info.name = "Fake", info.version = "1";
    info.capabilities = IPR_CAP_DETERMINISTIC | IPR_CAP_CONCURRENT_EXECUTE | IPR_CAP_CONCURRENT_COMPILE;
    uint32_t both = IPR_SCOPE_INIT | IPR_SCOPE_MODEL;
    info.options = {{"Device", "index of the device", 0, both},
                    {"Work", "nanoseconds that each submission takes", 0, both},
                    {"Clock", "real, or manual: time passes when the test says so", "real", both},
                    {"Lacks", "what the plug-in does not have", "", IPR_SCOPE_INIT},
                    {"Fault", "what goes wrong, and in which submission: fail@2", "", both}};
    return info;
  }

  void init(const ipr::Host&, const ipr::Options& options) override {
    lacking = options.text("Lacks", "");
    nameless = Fault(options).is("nameless"), twins = Fault(options).is("twins");
    std::lock_guard<std::mutex> hold(lock);
    for (bool& one : lost) one = false;
    manual_time = 0;
  }

  ipr::Verdict support(const ipr::Layer& layer, const ipr::Options& options) override {
    device_of(options);
    for (size_t n = 0; n < layer.input_count(); ++n)
      if (!layer.input(n).is_concrete()) return ipr::no("unknown shapes", IPR_REASON_SHAPE);
    bool gathers = layer.type() == "Gather";
    if (!gathers && layer.type() != "Addition" && layer.type() != "Multiplication" &&
        !(layer.type() == "Activation" && layer.text("function") == "RELU"))
      return ipr::no("no " + std::string(layer.type()), IPR_REASON_LAYER_TYPE);
    ipr::TensorInfo out = layer.output(0);
    if (out.dtype() != IPR_DTYPE_FLOAT32) return ipr::no("only float32", IPR_REASON_DATA_TYPE);
    if (gathers) {
      bool fits = layer.input(0).rank() > 0 && layer.input(1).dtype() == IPR_DTYPE_INT32 &&
                  layer.integer("axis") == 0 && layer.integer("batch_dims", 0) == 0;
      return fits ? ipr::yes() : ipr::no("only int32 indices along axis 0", IPR_REASON_ATTRIBUTE);
    }
    for (size_t n = 0; n < layer.input_count(); ++n) {
      ipr::TensorInfo in = layer.input(n);
      bool same = in.rank() == out.rank() && std::equal(in.shape().begin(), in.shape().end(), out.shape().begin());
      if (!same) return ipr::no("shapes differ", IPR_REASON_SHAPE);
    }
    return ipr::yes();
  }

  std::unique_ptr<ipr::Executable> compile(const ipr::Graph& graph, const ipr::Options& options) override {
    device_of(options);
    return std::make_unique<Part>(
        std::make_unique<ipr::KernelList>(graph, [&](const ipr::Layer& l) { return made(l); }));
  }

  bool has_handles() const override { return !lacks("handles"); }
  ipr::Factories describe(const ipr::Options& options) override {
    std::string id = device_of(options) && !twins ? "Tests/" + kId + ".1/Heap" : "Tests/" + kId + ".0/Heap";
    return {{{id, IPR_FACTORY_DEVICE_COPIES | IPR_FACTORY_PEER_COPIES, 0, 0}}, {id}};
  }
  std::unique_ptr<ipr::Pool> create_pool(const ipr::Options&) override { return std::make_unique<Pool>(); }

  ipr::Profiler* profiler() override { return &recorder; }

  const void* extension(std::string_view name) override {
    if (name == IPR_EXT_ASYNC) return async_table();
    return name == IPR_EXT_DEVICES && !lacks("devices") ? &devices_table : nullptr;
  }

 private:
  static ipr::Kernel made(const ipr::Layer& layer) {
    if (layer.type() == "Gather") return gather(layer);
    std::string type(layer.type());
    return [type, count = layer.output(0).elements()](ipr::Tensors in, ipr::Tensors out) {
      const float *a = in[0].data<float>(), *b = in[in.size() - 1].data<float>();
      float* c = out[0].data<float>();
      for (int64_t n = 0; n < count; ++n)
        c[n] = type == "Addition"         ? a[n] + b[n]
               : type == "Multiplication" ? a[n] * b[n]
               : a[n] > 0 || a[n] != a[n] ? a[n]
                                          : 0;
    };
  }

  static ipr::Kernel gather(const ipr::Layer& layer) {
    int64_t rows = layer.input(0).shape()[0], count = layer.input(1).elements(), index = layer.index();
    int64_t width = count ? layer.output(0).elements() / count : 0;
    return [=](ipr::Tensors in, ipr::Tensors out) {
      for (int64_t n = 0; n < count; ++n) {
        int64_t row = in[1].data<int32_t>()[n];
        if (row < -rows || row >= rows)
          throw ipr::ValueError("an index is out of range", index, 1, n, row, -rows, rows - 1);
        std::memcpy(out[0].data<float>() + n * width, in[0].data<float>() + (row < 0 ? row + rows : row) * width,
                    size_t(width) * sizeof(float));
      }
    };
  }
};

}  // namespace

// The raw table copies tensors for `ipr.handles/1` itself, as copies between two tensors of the device are possible.
static const void* (*plain_extension)(void*, const char*);
static ipr_handles_api handles;

static int32_t copy_now(void*, void*, const ipr_tensor* source, const ipr_tensor* target, ipr_error* error) {
  return ipr::detail::guarded(error, [&] { copy(*source, *target); });
}

static const void* extension(void* self, const char* name) {
  const void* found = plain_extension(self, name);
  if (found == nullptr || std::strcmp(name, IPR_EXT_HANDLES) != 0) return found;
  handles = *static_cast<const ipr_handles_api*>(found);
  handles.copy = &copy_now;
  return &handles;
}

extern "C" {
const char* GetBackendId(void) { return kId.c_str(); }
void GetVersion(uint32_t* out_major, uint32_t* out_minor) { *out_major = IPR_API_MAJOR, *out_minor = IPR_API_MINOR; }
void* BackendFactory(void) {
  auto* table = static_cast<ipr_backend*>(ipr::detail::factory<Fake>());
  plain_extension = table->get_extension;
  table->get_extension = &extension;
  return table;
}

// For tests: let the manual clock go on, and count what is alive.
IPR_EXPORT void fake_advance(int64_t ns) {
  std::lock_guard<std::mutex> hold(lock);
  manual_time += ns;
  changed.notify_all();
}
IPR_EXPORT int64_t fake_live(int32_t what) {
  std::lock_guard<std::mutex> hold(lock);
  int64_t counts[] = {live_queues, live_tensors, live_pools, live_executables, int64_t(gates.size())};
  return counts[what];
}
}
