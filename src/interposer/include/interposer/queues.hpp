/* Queues for backends in C++17 ("ipr.async/1", experimental): each queue has a thread, which runs its submissions.
 *
 *   const void* extension(std::string_view name) override {
 *     return name == IPR_EXT_ASYNC ? ipr::queues<ipr::Queue>() : nullptr;
 *   }
 *
 * Derive from `ipr::Queue` to do more than to call `Executable::execute`. Older libraries of C need the linker option
 * -pthread. */

#ifndef INTERPOSER_QUEUES_HPP
#define INTERPOSER_QUEUES_HPP

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "interposer/backend.hpp"

namespace ipr {

/// The work of one queue. The thread of the queue calls `execute` and `copy`, which return when the work is done. What
/// they throw is how the submission ends; after an ipr::Error with IPR_DEVICE_LOST, all queues of the device are lost.
class Queue {
 public:
  explicit Queue(const Options&) {}
  virtual ~Queue() = default;

  /// IPR_ASYNC_..., for derived classes to replace.
  static constexpr uint64_t flags = 0;

  /// Run an executable. `Run::cancelled` is true after a cancellation.
  virtual void execute(Executable& executable, const Run& run) { executable.execute(run); }
  /// Copy a tensor, with the flag IPR_ASYNC_COPIES. By default to or from a tensor of the pool, which may be private.
  virtual void copy(Pool& pool, const ipr_tensor& source, const ipr_tensor& target) {
    if (target.memory_kind == IPR_MEMORY_PRIVATE)
      pool.upload(Tensor(source), target.native_handle);
    else
      pool.download(source.native_handle, Tensor(target));
  }
  /// Called by any thread when the submission that runs should end soon.
  virtual void interrupt() {}
};

namespace detail {

/// How far a queue is. Submissions to other queues that wait for it share it, so it may outlive the queue.
struct IPR_HIDDEN QueueProgress {
  uint64_t submitted = 0, completed = 0, failed = 0;
  std::map<uint64_t, std::exception_ptr> failures;
};

/// What all queues of a plug-in share. It is never destroyed, as threads may use it until the process ends.
struct IPR_HIDDEN QueueWorld {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, std::shared_ptr<int32_t>> gates;  // -1: closed, else the status that it was opened with
  uint64_t last_gate = 0;
  std::map<uint64_t, std::shared_ptr<const QueueProgress>> queues;  // by the handle of a queue, until it is destroyed
  std::map<int64_t, std::weak_ptr<bool>> lost;                      // by device, as long as it has queues

  static QueueWorld& the() {
    static QueueWorld* world = new QueueWorld;
    return *world;
  }
};

using WorldLock = std::unique_lock<std::mutex>;

/// A point that a submission waits for: of a gate, or of a queue. The mutex of `world` is held.
struct IPR_HIDDEN QueueWait {
  QueueWait(const ipr_point& point, const QueueWorld& world) : value(point.value) {
    const bool is_gate = point.kind == IPR_POINT_GATE;
    if (!is_gate && point.kind != IPR_POINT_QUEUE)
      throw Error("a submission cannot wait for a point of kind " + std::to_string(point.kind), IPR_INVALID_ARGUMENT);
    if (is_gate) {
      gate = found(world.gates, point.handle, "gate");
    } else {
      queue = found(world.queues, point.handle, "queue");
      if (value > queue->submitted)
        throw Error("a submission cannot wait for submission " + std::to_string(value) + " of a queue that has only " +
                        std::to_string(queue->submitted),
                    IPR_INVALID_ARGUMENT);
    }
  }

  std::shared_ptr<const int32_t> gate;
  std::shared_ptr<const QueueProgress> queue;
  uint64_t value;

 private:
  template <class Value>
  static Value found(const std::map<uint64_t, Value>& known, uint64_t handle, const char* what) {
    auto at = known.find(handle);
    if (at != known.end()) return at->second;
    throw Error(std::string("a submission cannot wait for a ") + what + " that was destroyed", IPR_INVALID_ARGUMENT);
  }
};

/// A submission with copies of all tables. The mutex of `world` is held.
struct IPR_HIDDEN QueueTask {
  QueueTask(const ipr_submission& given, uint64_t number, const QueueWorld& world) : number(number) {
    executable = static_cast<Executable*>(given.executable);
    pool = static_cast<Pool*>(given.pool);
    for (uint64_t n = 0; n < given.wait_count; ++n)
      waits.emplace_back(
          *reinterpret_cast<const ipr_point*>(reinterpret_cast<const char*>(given.waits) + n * given.wait_stride),
          world);
    if (!executable) {
      add(*given.source);
      add(*given.target);
    } else {
      run = *given.run;
      for (uint64_t n = 0; n < run.input_count; ++n) add(*ipr_input_at(given.run, n));
      for (uint64_t n = 0; n < run.output_count; ++n) add(*ipr_output_at(given.run, n));
    }
    run.tensor_stride = sizeof(ipr_tensor);
    run.inputs = tensors.data();
    run.outputs = tensors.data() + run.input_count;
  }

  uint64_t number;
  Executable* executable;
  Pool* pool;
  ipr_run run = {};
  std::vector<ipr_tensor> tensors;  // inputs, then outputs; or the source and the target
  std::vector<QueueWait> waits;

 private:
  void add(ipr_tensor tensor) {
    tensor.shape = kept(tensor.shape, tensor.ndim);
    tensor.strides = kept(tensor.strides, tensor.ndim);
    tensors.push_back(tensor);
  }
  const int64_t* kept(const int64_t* numbers, int32_t count) {
    if (!numbers) return nullptr;
    numbers_.emplace_back(numbers, numbers + count);
    return numbers_.back().data();
  }
  std::deque<std::vector<int64_t>> numbers_;
};

/// Threads that are created during its lifetime handle no signals, except those of their own errors.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, own);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// A queue with its timeline and thread. All members are guarded by `QueueWorld::mutex`.
class IPR_HIDDEN QueueThread {
 public:
  QueueThread(std::unique_ptr<Queue> work, ipr_timeline* timeline, int64_t device)
      : work_(std::move(work)), timeline_(timeline), process_(getpid()) {
    std::lock_guard<std::mutex> lock(world_.mutex);
    std::weak_ptr<bool>& known = world_.lost[device];
    lost_ = known.lock();
    if (!lost_) known = lost_ = std::make_shared<bool>(false);
    if (*lost_) throw lost_error();
    const SignalsBlocked blocked;  // signals such as SIGINT are for the threads of the host
    thread_ = std::thread([this] { serve(); });
    world_.queues[handle()] = progress_;
  }

  ~QueueThread() {
    {
      std::lock_guard<std::mutex> lock(world_.mutex);
      world_.queues.erase(handle());
      ends_ = true;
      world_.changed.notify_all();
    }
    thread_.join();
  }

  /// Whether the process is that which created the queue: a forked one does not have its thread.
  bool has_thread() const { return process_ == getpid(); }

  uint64_t submit(const ipr_submission& given) {
    if (!has_thread())
      throw Error("the queue was created before this process was forked, and does not run in it", IPR_DEVICE_LOST);
    WorldLock lock(world_.mutex);
    if (*lost_) throw lost_error();
    pending_.push_back(std::make_unique<QueueTask>(given, progress_->submitted + 1, world_));
    world_.changed.notify_all();
    return ++progress_->submitted;
  }

  /// Return whether the submission is over before the deadline; 0 is none.
  bool wait(uint64_t number, int64_t deadline_ns) {
    WorldLock lock(world_.mutex);
    auto is_over = [&] { return progress_->completed >= number; };
    if (deadline_ns == 0) return world_.changed.wait(lock, is_over), true;
    return world_.changed.wait_until(lock, moment(deadline_ns), is_over);
  }

  /// Rethrow what a submission has ended with.
  void result(uint64_t number) {
    std::exception_ptr found;
    {
      WorldLock lock(world_.mutex);
      auto at = progress_->failures.find(number);
      if (at != progress_->failures.end()) found = at->second;
    }
    if (found) std::rethrow_exception(found);
  }

  void notify(uint64_t number) {
    WorldLock lock(world_.mutex);
    if (progress_->completed >= number)
      wake();
    else
      awaited_.insert(number);
  }

  void cancel() {
    WorldLock lock(world_.mutex);
    cancelled_ = progress_->submitted;
    __atomic_store_n(&stop_, 1, __ATOMIC_RELEASE);
    world_.changed.notify_all();
    if (running_) work_->interrupt();
  }

  void reset() {
    WorldLock lock(world_.mutex);
    if (*lost_) throw lost_error();
    progress_->failed = 0;
    progress_->failures.clear();
    __atomic_store_n(&timeline_->failed, 0, __ATOMIC_RELEASE);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// A time of CLOCK_MONOTONIC in nanoseconds.
  static Clock::time_point moment(int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }

  uint64_t handle() const { return reinterpret_cast<uintptr_t>(this); }

  static Error lost_error() { return Error("the device is lost", IPR_DEVICE_LOST); }

  static std::string message(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "an exception without a message";
    }
  }

  static bool is_loss(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      return error.status == IPR_DEVICE_LOST;
    } catch (...) {
      return false;
    }
  }

  /// Return what the message of a skipped submission says about the first failure of `queue`, or of another one.
  static std::string first_failure(const QueueProgress& progress, const char* queue) {
    return "it was not run, as submission " + std::to_string(progress.failed) + " of " + queue +
           " failed: " + message(progress.failures.at(progress.failed));
  }

  /// Return whether a point is over; throw if it failed.
  static bool is_over(const QueueWait& wait) {
    if (wait.gate) {
      const int32_t status = *wait.gate;
      if (status > IPR_OK)
        throw Error("it was not run, as the host opened its gate with status " + std::to_string(status), IPR_SKIPPED);
      return status == IPR_OK;
    }
    const QueueProgress& queue = *wait.queue;
    if (queue.completed < wait.value) return false;
    if (queue.failed == 0 || queue.failed > wait.value) return true;
    throw Error(first_failure(queue, "another queue"), IPR_SKIPPED);
  }

  /// Wait until a task can begin; throw if it must not.
  void await(const QueueTask& task, WorldLock& lock) {
    const int64_t deadline_ns = task.run.deadline_ns;
    while (true) {
      if (*lost_) throw lost_error();
      if (cancelled_ >= task.number) throw Error("it was cancelled before it began", IPR_CANCELLED);
      if (progress_->failed != 0) throw Error(first_failure(*progress_, "its queue"), IPR_SKIPPED);
      bool is_ready = true;
      for (const QueueWait& wait : task.waits) is_ready = is_over(wait) && is_ready;
      if (deadline_ns != 0 && Clock::now() > moment(deadline_ns))
        throw Error("its deadline had passed before it began", IPR_DEADLINE);
      if (is_ready) return;
      if (deadline_ns == 0)
        world_.changed.wait(lock);
      else
        world_.changed.wait_until(lock, moment(deadline_ns));
    }
  }

  void run(QueueTask& task) {
    if (!task.executable) return work_->copy(*task.pool, task.tensors[0], task.tensors[1]);
    if (!task.run.cancel) task.run.cancel = &stop_;
    work_->execute(*task.executable, Run(&task.run));
  }

  void perform(QueueTask& task, WorldLock& lock) {
    await(task, lock);
    running_ = true;
    __atomic_store_n(&stop_, 0, __ATOMIC_RELEASE);
    lock.unlock();
    std::exception_ptr failure;
    try {
      run(task);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    running_ = false;
    if (failure) std::rethrow_exception(failure);
  }

  void complete(uint64_t number, const std::exception_ptr& failure) {
    if (failure) {
      if (is_loss(failure)) *lost_ = true;
      progress_->failures[number] = failure;
      if (progress_->failed == 0) __atomic_store_n(&timeline_->failed, progress_->failed = number, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&timeline_->completed, progress_->completed = number, __ATOMIC_RELEASE);
    if (!awaited_.empty() && *awaited_.begin() <= number) {
      awaited_.erase(awaited_.begin(), awaited_.upper_bound(number));
      wake();
    }
    world_.changed.notify_all();
  }

  void wake() const { timeline_->wake(timeline_->wake_fd, 1); }

  void serve() {
    WorldLock lock(world_.mutex);
    while (true) {
      world_.changed.wait(lock, [&] { return ends_ || !pending_.empty(); });
      if (pending_.empty()) return;
      const std::unique_ptr<QueueTask> task = std::move(pending_.front());
      pending_.pop_front();
      std::exception_ptr failure;
      try {
        perform(*task, lock);
      } catch (...) {
        failure = std::current_exception();
      }
      complete(task->number, failure);
    }
  }

  QueueWorld& world_ = QueueWorld::the();
  const std::unique_ptr<Queue> work_;
  ipr_timeline* const timeline_;
  const pid_t process_;
  std::shared_ptr<bool> lost_;
  std::deque<std::unique_ptr<QueueTask>> pending_;
  const std::shared_ptr<QueueProgress> progress_ = std::make_shared<QueueProgress>();
  std::set<uint64_t> awaited_;  // by `notify`
  uint64_t cancelled_ = 0;      // all submissions up to this number are
  uint32_t stop_ = 0;           // ipr_run.cancel of the task that runs
  bool running_ = false, ends_ = false;
  std::thread thread_;
};

inline QueueThread& queue_at(void* raw) { return *static_cast<QueueThread*>(raw); }

template <class Work>
int32_t create_queue(void*, const ipr_options* raw, ipr_timeline* timeline, void** out, ipr_error* error) {
  return guarded(error, [&] {
    const Options options(raw);
    auto work = std::make_unique<Work>(options);
    *out = new QueueThread(std::move(work), timeline, options.integer("Device", 0));
  });
}

inline void destroy_queue(void*, void* queue) {
  if (queue_at(queue).has_thread()) delete static_cast<QueueThread*>(queue);
}

inline int32_t submit(void*, void* queue, const ipr_submission* what, uint64_t* out_number, ipr_error* error) {
  return guarded(error, [&] { *out_number = queue_at(queue).submit(*what); });
}

inline int32_t wait(void*, void* queue, uint64_t number, int64_t deadline_ns, ipr_error* error) {
  return guarded(error, [&] {
    if (!queue_at(queue).wait(number, deadline_ns)) throw Error("it is not over yet", IPR_DEADLINE);
  });
}

inline int32_t result(void*, void* queue, uint64_t number, ipr_error* error) {
  return guarded(error, [&] { queue_at(queue).result(number); });
}

inline int32_t notify(void*, void* queue, uint64_t number, ipr_error* error) {
  return guarded(error, [&] { queue_at(queue).notify(number); });
}

inline int32_t cancel(void*, void* queue, ipr_error* error) {
  return guarded(error, [&] { queue_at(queue).cancel(); });
}

inline int32_t reset(void*, void* queue, ipr_error* error) {
  return guarded(error, [&] { queue_at(queue).reset(); });
}

inline int32_t create_gate(void*, const ipr_options*, uint64_t* out, ipr_error* error) {
  return guarded(error, [&] {
    std::lock_guard<std::mutex> lock(QueueWorld::the().mutex);
    *out = ++QueueWorld::the().last_gate;
    QueueWorld::the().gates[*out] = std::make_shared<int32_t>(-1);
  });
}

inline void open_gate(void*, uint64_t gate, int32_t status) {
  std::lock_guard<std::mutex> lock(QueueWorld::the().mutex);
  auto at = QueueWorld::the().gates.find(gate);
  if (at != QueueWorld::the().gates.end()) *at->second = status;
  QueueWorld::the().changed.notify_all();
}

inline void destroy_gate(void*, uint64_t gate) {
  std::lock_guard<std::mutex> lock(QueueWorld::the().mutex);
  QueueWorld::the().gates.erase(gate);
}

}  // namespace detail

/// The table of "ipr.async/1", for `Backend::extension`. `Work` is ipr::Queue, or derived from it with a constructor
/// that takes `const Options&`.
template <class Work>
IPR_HIDDEN const ipr_async_api* queues() {
  static const ipr_async_api table = {sizeof(ipr_async_api),
                                      IPR_POINT_QUEUE | IPR_POINT_GATE,
                                      0,
                                      Work::flags,
                                      &detail::create_queue<Work>,
                                      &detail::destroy_queue,
                                      &detail::submit,
                                      &detail::wait,
                                      &detail::result,
                                      &detail::notify,
                                      &detail::cancel,
                                      &detail::reset,
                                      nullptr,
                                      &detail::create_gate,
                                      &detail::open_gate,
                                      &detail::destroy_gate,
                                      nullptr};
  return &table;
}

}  // namespace ipr

#endif /* INTERPOSER_QUEUES_HPP */
