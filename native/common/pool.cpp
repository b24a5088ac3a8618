#include "common/pool.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/cpu.hpp"

namespace native {
namespace {

constexpr int64_t kSpinAfterWork =
    50'000;  // nanoseconds that an idle thread spins before it sleeps; waking a sleeping thread takes microseconds
constexpr int64_t kSpinWhileLeased =
    2'000'000;  // the same while the team is leased, longer than the pause between the steps of a run
constexpr int kSpinsOfCaller = 20'000;  // before the caller offers its core to other threads

std::atomic<unsigned> forks{0};

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, count_fork); });
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void sleep_while(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0); }

}  // namespace

/// The threads of one process.
struct Team {
  struct alignas(64) Worker {
    Team* team = nullptr;
    int number = 0;
    std::atomic<int> cpu{-1};          // the core that it is pinned to; -1: none
    std::atomic<uint32_t> claimed{0};  // the newest job whose part of this number is being done
    pthread_t thread{};

    bool claim(uint32_t job);
  };

  alignas(64) std::atomic<uint32_t> ticket{0};  // counts jobs and wake-up calls
  alignas(64) std::atomic<int> pending{0};      // parts of the job that are not finished
  alignas(64) std::atomic<bool> leased{false};
  std::atomic<int> sleeping{0};
  std::atomic<bool> stopping{false};
  Pool::Function function = nullptr;
  void* context = nullptr;
  std::atomic<int> parts{0};
  std::atomic<uint32_t> job{0};  // the ticket of the newest job
  std::mutex owner;
  unsigned fork_count = 0;
  std::vector<int> cpus;  // cores that the process may use, those of the highest capacity first
  std::vector<Worker> workers;

  explicit Team(int threads);
  void stop();
  void call();
  void work(Worker& self);
  void pin(Worker& worker, int cpu);
  void keep_clear_of_caller();
};

/// Return true for the thread that has to do the part of this number. The caller does the parts that sleeping workers
/// have not begun. A job stays valid until all of its parts are finished.
bool Team::Worker::claim(uint32_t job) {
  uint32_t last = claimed.load(std::memory_order_relaxed);
  return int32_t(last - job) < 0 && claimed.compare_exchange_strong(last, job, std::memory_order_acq_rel);
}

Team::Team(int threads) : fork_count(forks.load(std::memory_order_relaxed)), workers(size_t(threads - 1)) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  cpus = by_capacity(std::move(cpus));
  size_t started = 0;
  for (Worker& worker : workers) {
    worker.team = this;
    worker.number = int(started) + 1;
    auto enter = [](void* self) -> void* {
      static_cast<Worker*>(self)->team->work(*static_cast<Worker*>(self));
      return nullptr;
    };
    if (pthread_create(&worker.thread, nullptr, enter, &worker) != 0) break;
    ++started;
  }
  if (started < workers.size()) {  // workers are addressed by threads and cannot be moved, so that those that did not
                                   // start stay unused
    for (size_t n = started; n < workers.size(); ++n) workers[n].number = 0;
  }
  keep_clear_of_caller();
}

void Team::stop() {
  stopping.store(true);
  call();
  for (Worker& worker : workers)
    if (worker.number > 0) pthread_join(worker.thread, nullptr);
}

/// Issue a new ticket, and wake sleeping workers.
void Team::call() {
  ticket.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping.load(std::memory_order_seq_cst) > 0) wake(&ticket);
}

void Team::pin(Worker& worker, int cpu) {
  cpu_set_t only_cpu;
  CPU_ZERO(&only_cpu);
  CPU_SET(cpu, &only_cpu);
  if (pthread_setaffinity_np(worker.thread, sizeof only_cpu, &only_cpu) == 0)
    worker.cpu.store(cpu, std::memory_order_relaxed);
}

/// Pin workers to cores that no other worker has, and move a worker off the core of the caller.
void Team::keep_clear_of_caller() {
  int mine = sched_getcpu();
  if (cpus.size() <= workers.size()) return;  // the system places the threads if there are fewer cores than threads
  auto taken = [&](int cpu) {
    return cpu == mine || std::any_of(workers.begin(), workers.end(), [&](const Worker& other) {
             return other.cpu.load(std::memory_order_relaxed) == cpu;
           });
  };
  for (Worker& worker : workers) {
    int at = worker.cpu.load(std::memory_order_relaxed);
    if (worker.number == 0 || (at >= 0 && at != mine)) continue;
    auto free = std::find_if_not(cpus.begin(), cpus.end(), taken);
    if (free != cpus.end()) pin(worker, *free);
  }
}

void Team::work(Worker& self) {
  uint32_t seen = 0;
  for (;;) {
    int64_t until = 0;
    uint32_t current;
    for (int spins = 0; (current = ticket.load(std::memory_order_acquire)) == seen; ++spins) {
      relax();
      if (spins % 64 != 63) continue;
      int64_t time = now();
      if (until == 0) until = time;
      int64_t patience = leased.load(std::memory_order_relaxed) ? kSpinWhileLeased : kSpinAfterWork;
      if (time - until < patience) continue;
      sleeping.fetch_add(1, std::memory_order_seq_cst);
      if (ticket.load(std::memory_order_seq_cst) == seen) sleep_while(&ticket, seen);
      sleeping.fetch_sub(1, std::memory_order_seq_cst);
      until = 0;
    }
    seen = current;
    if (stopping.load(std::memory_order_relaxed)) return;
    if (job.load(std::memory_order_relaxed) != seen) continue;  // a wake-up call without a job
    if (!self.claim(seen)) continue;
    int count = parts.load(std::memory_order_relaxed);
    if (self.number < count) function(context, self.number, count);
    pending.fetch_sub(1, std::memory_order_release);
  }
}

Pool::Pool(int threads) : threads_(threads) { watch_forks(); }

Pool::~Pool() {
  Team* team = team_.load();
  if (team == nullptr) return;
  if (team->fork_count != forks.load()) return;  // after a fork, the threads exist in the parent only
  team->stop();
  delete team;
}

/// Wait until no other thread starts a team. Threads of the parent that were starting one do not exist after a fork.
void Pool::begin_starting() {
  unsigned mine = forks.load(std::memory_order_relaxed) + 1;
  for (;;) {
    unsigned seen = starting_.load(std::memory_order_relaxed);
    if (seen != mine && starting_.compare_exchange_weak(seen, mine, std::memory_order_acquire)) return;
    sched_yield();
  }
}

Team* Pool::team() {
  Team* team = team_.load(std::memory_order_acquire);
  if (team != nullptr && team->fork_count == forks.load(std::memory_order_relaxed)) return team;
  begin_starting();
  struct Ended {
    std::atomic<unsigned>& starting;
    ~Ended() { starting.store(0, std::memory_order_release); }
  } ended{starting_};
  team = team_.load(std::memory_order_acquire);
  if (team == nullptr || team->fork_count != forks.load(std::memory_order_relaxed)) {
    team = new Team(
        threads_);  // the team of the parent is leaked, because its locks may be held by threads that do not exist here
    team_.store(team, std::memory_order_release);
  }
  return team;
}

Pool::Lease::Lease(Pool* pool) {
  if (pool == nullptr || pool->threads() < 2) return;
  Team* team = pool->team();
  if (!team->owner.try_lock()) return;
  team_ = team;
  team->keep_clear_of_caller();
  team->leased.store(true, std::memory_order_relaxed);
  if (team->sleeping.load(std::memory_order_seq_cst) > 0) team->call();
}

Pool::Lease::~Lease() {
  if (team_ == nullptr) return;
  team_->leased.store(false, std::memory_order_relaxed);
  team_->owner.unlock();
}

void Pool::Lease::run(Function function, void* context, int parts) {
  int helpers = 0;
  if (team_ != nullptr)
    for (Team::Worker& worker : team_->workers) helpers += worker.number > 0;
  if (team_ == nullptr || helpers + 1 < parts) {
    for (int part = 0; part < parts; ++part) function(context, part, parts);
    return;
  }
  Team& team = *team_;
  team.function = function;
  team.context = context;
  team.parts.store(parts, std::memory_order_relaxed);
  team.pending.store(helpers, std::memory_order_relaxed);
  uint32_t job = team.ticket.load(std::memory_order_relaxed) + 1;
  team.job.store(job, std::memory_order_relaxed);
  team.call();
  function(context, 0, parts);
  for (Team::Worker& worker : team.workers) {
    if (worker.number == 0 || !worker.claim(job)) continue;
    if (worker.number < parts) function(context, worker.number, parts);
    team.pending.fetch_sub(1, std::memory_order_relaxed);
  }
  for (int spins = 0; team.pending.load(std::memory_order_acquire) != 0; ++spins) {
    relax();
    if (spins > kSpinsOfCaller) sched_yield();
  }
}

}  // namespace native
