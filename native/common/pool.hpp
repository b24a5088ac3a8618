// Threads that divide steps of a few microseconds among them: they spin for a moment, then sleep until they are called.

#ifndef NATIVE_COMMON_POOL_HPP
#define NATIVE_COMMON_POOL_HPP

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace native {

/// Runs functions in parts. Threads are started when they are first needed, each on a processor of its own among those
/// that the process may use, and started again in the child of a fork.
class Pool {
 public:
  using Function = void (*)(void* context, int part, int parts);

  /// `threads` counts the calling one.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  /// The right to use the pool for some calls of `run`. Where another thread has it, `run` does all parts itself, one
  /// after the other, with the same results. Threads that sleep are woken at once, and do not sleep while it is held.
  class Lease {
   public:
    explicit Lease(Pool* pool);  // of nullptr: none
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    /// Call function(context, part, parts) for every part, at the same time; returns when all have returned.
    void run(Function function, void* context, int parts);

   private:
    struct Team* team_ = nullptr;
  };

 private:
  struct Team* team();
  void begin_starting();

  int threads_;
  std::atomic<unsigned> starting_{0};  // 0: nobody; else one more than the forks of the process in which a thread does
  std::atomic<struct Team*> team_{nullptr};
};

}  // namespace native

#endif  // NATIVE_COMMON_POOL_HPP
