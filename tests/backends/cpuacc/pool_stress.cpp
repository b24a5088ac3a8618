// The pool under stress: several callers at once, with 1 to 8 threads, that wait long enough for workers to sleep; and,
// where "fork" is said, a child that is forked at any moment and uses the same pool.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "common/pool.hpp"

namespace {

constexpr long kCount = 1000, kSum = kCount * (kCount - 1) / 2;

struct Sums {
  long of_part[8] = {};

  static void add(void* self, int part, int parts) {
    long sum = 0;
    for (long n = part; n < kCount; n += parts) sum += n;
    static_cast<Sums*>(self)->of_part[part] = sum;
  }
};

bool all_parts_are_done(native::Pool& pool, int jobs) {
  native::Pool::Lease lease(&pool);
  for (int job = 0; job < jobs; ++job) {
    Sums sums;
    lease.run(&Sums::add, &sums, 1 + job * 7 % pool.threads());
    long total = 0;
    for (long sum : sums.of_part) total += sum;
    if (total != kSum) return false;
  }
  return true;
}

int exit_code_of_child(native::Pool& pool) {
  pid_t child = fork();
  if (child == 0) {
    bool right = true;
    for (int n = 0; n < 20; ++n) right = all_parts_are_done(pool, 40) && right;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

bool holds(int threads, bool forks) {
  native::Pool pool(threads);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int n = 0; n < 60; ++n) {
        if (!all_parts_are_done(pool, 40)) ++wrong;
        if (n % 20 == caller) usleep(300);
      }
    });
  if (forks && exit_code_of_child(pool) != 0) ++wrong;
  for (std::thread& caller : callers) caller.join();
  usleep(5000);  // all sleep now
  return all_parts_are_done(pool, 100) && wrong == 0;
}

}  // namespace

int main(int count, char**) {
  for (int round = 0; round < 5; ++round)
    for (int threads = 1; threads <= 8; ++threads)
      if (!holds(threads, count > 1)) return std::printf("wrong with %d threads\n", threads), 1;
  return 0;
}
