// Makes a shared object need no later GNU C library than 2.28, though it is linked with a later one (NATIVE_PORTABLE).
//
// The linker binds a function to its newest version in the library at hand. So each function with a version after 2.28
// is defined here, for this shared object alone, and calls the oldest version, which later libraries still have.

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#define OF_AFFINITY "GLIBC_2.3.4"
constexpr int kStatVersion = 1;
#else
#define OLDEST "GLIBC_2.17"
#define OF_AFFINITY OLDEST
constexpr int kStatVersion = 0;
#endif

#pragma GCC diagnostic ignored \
    "-Wattributes"  // built-in functions keep their visibility; the version script hides them
#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#define OLD(version, result, name, parameters)         \
  __asm__(".symver old_" #name "," #name "@" version); \
  extern "C" result old_##name parameters;             \
  HIDDEN result name parameters

OLD(OLDEST, double, exp, (double x)) { return old_exp(x); }
OLD(OLDEST, double, log, (double x)) { return old_log(x); }
OLD(OLDEST, double, log2, (double x)) { return old_log2(x); }
OLD(OLDEST, double, pow, (double x, double y)) { return old_pow(x, y); }

OLD(OLDEST, int, pthread_create,
    (pthread_t * thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument)) {
  return old_pthread_create(thread, attributes, work, argument);
}
OLD(OLDEST, int, pthread_join, (pthread_t thread, void** result)) { return old_pthread_join(thread, result); }
OLD(OLDEST, int, pthread_mutex_trylock, (pthread_mutex_t * mutex)) { return old_pthread_mutex_trylock(mutex); }
OLD(OLDEST, int, pthread_once, (pthread_once_t * once, void (*work)())) { return old_pthread_once(once, work); }
OLD(OLDEST, int, __pthread_key_create, (pthread_key_t * key, void (*destroy)(void*))) {
  return old___pthread_key_create(key, destroy);
}
OLD(OF_AFFINITY, int, pthread_setaffinity_np, (pthread_t thread, size_t size, const cpu_set_t* cpus)) {
  return old_pthread_setaffinity_np(thread, size, cpus);
}
OLD(OLDEST, int, pthread_sigmask, (int how, const sigset_t* changes, sigset_t* before)) {
  return old_pthread_sigmask(how, changes, before);
}

// std::shared_mutex calls these.
OLD(OLDEST, int, pthread_rwlockattr_init, (pthread_rwlockattr_t * attributes)) {
  return old_pthread_rwlockattr_init(attributes);
}
OLD(OLDEST, int, pthread_rwlockattr_destroy, (pthread_rwlockattr_t * attributes)) {
  return old_pthread_rwlockattr_destroy(attributes);
}
OLD(OLDEST, int, pthread_rwlockattr_setkind_np, (pthread_rwlockattr_t * attributes, int kind)) {
  return old_pthread_rwlockattr_setkind_np(attributes, kind);
}
OLD(OLDEST, int, pthread_rwlock_init, (pthread_rwlock_t * lock, const pthread_rwlockattr_t* attributes)) {
  return old_pthread_rwlock_init(lock, attributes);
}
OLD(OLDEST, int, pthread_rwlock_destroy, (pthread_rwlock_t * lock)) { return old_pthread_rwlock_destroy(lock); }
OLD(OLDEST, int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock)) { return old_pthread_rwlock_rdlock(lock); }
OLD(OLDEST, int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock)) { return old_pthread_rwlock_wrlock(lock); }
OLD(OLDEST, int, pthread_rwlock_unlock, (pthread_rwlock_t * lock)) { return old_pthread_rwlock_unlock(lock); }

// std::condition_variable waits for a time of the steady clock with this function of 2.30. Where it is missing, the C++
// library waits for the same moment of the system's clock, and then looks at the steady clock again.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  constexpr long kBillion = 1'000'000'000;
  timespec now, end;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += until->tv_sec - now.tv_sec;
  end.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (end.tv_nsec >= kBillion) {
    end.tv_nsec -= kBillion;
    ++end.tv_sec;
  } else if (end.tv_nsec < 0) {
    end.tv_nsec += kBillion;
    --end.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &end);
}

// Before 2.34, these were in a library of their own.
OLD(OLDEST, void*, dlopen, (const char* file, int mode)) { return old_dlopen(file, mode); }
OLD(OLDEST, void*, dlsym, (void* library, const char* name)) { return old_dlsym(library, name); }
OLD(OLDEST, int, dladdr, (const void* address, Dl_info* found)) { return old_dladdr(address, found); }
OLD(OLDEST, char*, dlerror, ()) { return old_dlerror(); }

// Before 2.33, `fstat` was a function with the version of the structure as its first argument.
__asm__(".symver old_fxstat64,__fxstat64@" OLDEST);
extern "C" int old_fxstat64(int version, int file, struct stat64* status);
HIDDEN int fstat64(int file, struct stat64* status) { return old_fxstat64(kStatVersion, file, status); }

// The C++ library asks whether atomic operations can be omitted: never.
HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

struct Search {
  uintptr_t address;
  dl_find_object* found;
};

// Fills `found` if the object contains the address, and returns 1 to end the search.
int find_frames(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const ElfW(Phdr)* frames = nullptr;
  bool contains = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    contains |= segment.p_type == PT_LOAD && search.address - start < segment.p_memsz;
    if (segment.p_type == PT_GNU_EH_FRAME) frames = &segment;
  }
  if (!contains || !frames) return 0;
  *search.found = {};
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

// The unwinder of GCC finds the tables of an exception's frames with this function of 2.35, here as it did before.
HIDDEN int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(find_frames, &search) ? 0 : -1;
}
#endif
