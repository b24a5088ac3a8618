// A thread pool for steps of a few microseconds. Idle threads spin for a moment, and then sleep until they are woken.

#ifndef NATIVE_COMMON_POOL_HPP
#define NATIVE_COMMON_POOL_HPP

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace native {

/// Runs functions in parts on several threads. Threads are started on first use, pinned to different cores that the
/// process may use, big cores first, and started again in the child of a fork. Thread safe.
class Pool {
 public:
  using Function = void (*)(void* context, int part, int parts);

  /// `threads` includes the calling thread.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  /// The right to use the pool for several calls of `run`. While another thread holds the pool, `run` computes all
  /// parts on the calling thread, one after another, with the same results. Creating a lease wakes the threads, which
  /// do not sleep while it is held.
  class Lease {
   public:
    explicit Lease(Pool* pool);  // nullptr: `run` computes all parts on the calling thread
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    /// Call function(context, part, parts) for each part concurrently, and return when all calls have returned.
    void run(Function function, void* context, int parts);

   private:
    struct Team* team_ = nullptr;
  };

 private:
  struct Team* team();
  void begin_starting();

  int threads_;
  std::atomic<unsigned> starting_{
      0};  // 0: no thread starts a team; otherwise 1 + the number of forks of the process in which a thread does
  std::atomic<struct Team*> team_{nullptr};
};

}  // namespace native

#endif  // NATIVE_COMMON_POOL_HPP
