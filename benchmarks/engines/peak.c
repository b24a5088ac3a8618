/* The most multiplications and additions a second that this machine's vector units do: `peak THREADS SECONDS` prints
 * those of float32 (fused), and those of eight-bit integers (dot products of four), or 0 where there is no
 * instruction for it. Registers only: no memory is touched. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { SUMS = 12, CALLS = 4096 };
#if defined(__AVX512VNNI__)
#define HAS_DOTS 1
#else
#define HAS_DOTS 0
#endif

typedef float floats __attribute__((vector_size(LANES * 4)));
typedef int ints __attribute__((vector_size(LANES * 4)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

#if defined(__aarch64__)
#define IN_REGISTER "+w"
#else
#define IN_REGISTER "+x"
#endif
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

/* A sum that the compiler keeps in a register and does not see through. */
#define DECLARE(K) vector s##K = {0};
#define HIDE(K) __asm__ volatile("" : IN_REGISTER(s##K));

static void fused(void) {
    typedef floats vector;
    vector a = {0}, b = {0};
    EACH(DECLARE)
    __asm__ volatile("" : IN_REGISTER(a), IN_REGISTER(b));
#define ADD(K) s##K += a * b; HIDE(K)
    for (int call = 0; call < CALLS; call++) {
        EACH(ADD)
    }
}

static void dots(void) {
#if HAS_DOTS
    typedef ints vector;
    vector a = {0}, b = {0};
    EACH(DECLARE)
#define DOT(K) __asm__ volatile("vpdpbusd %2, %1, %0" : "+x"(s##K) : "x"(a), "x"(b));
    for (int call = 0; call < CALLS; call++) {
        EACH(DOT)
    }
#endif
}

struct work {
    void (*run)(void);
    double per_run, seconds, rate;
};

/* The best of many short stretches, since the machine may be shared. */
static void *measure(void *given) {
    struct work *work = given;
    for (double end = now() + work->seconds; now() < end;) {
        double start = now();
        for (int k = 0; k < 8; k++) work->run();
        double rate = 8 * work->per_run / (now() - start);
        if (rate > work->rate) work->rate = rate;
    }
    return NULL;
}

static double together(int threads, double seconds, void (*run)(void), double per_run) {
    pthread_t workers[64];
    struct work works[64];
    double sum = 0;
    for (int k = 0; k < threads; k++) {
        works[k] = (struct work){run, per_run, seconds, 0};
        if (pthread_create(&workers[k], NULL, measure, &works[k])) exit(1);
    }
    for (int k = 0; k < threads; k++) {
        pthread_join(workers[k], NULL);
        sum += works[k].rate;
    }
    return sum;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 1;
    double seconds = count > 2 ? atof(words[2]) : 0.2, each = 2.0 * LANES * SUMS * CALLS;
    if (threads < 1 || threads > 64) return 2;
    printf("%.6g ", together(threads, seconds, fused, each));
    printf("%.6g\n", HAS_DOTS ? together(threads, seconds, dots, 4 * each) : 0.0);
    return 0;
}
