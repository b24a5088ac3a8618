/* What the entry points of all hosts share: calls of Python code, the gate at the end of the process, and direct runs
 * of one compiled part without Python. */
#ifndef INTERPOSER_BRIDGE_H
#define INTERPOSER_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRIDGE_EXPORT __attribute__((visibility("default")))

/* ---- The gate ---------------------------------------------------------------------------------------------------- */

/* Enter the gate: until `bridge_leave`, the process waits for this thread before Python ends. Returns false, without
 * entering, if Python is ending or has ended; the caller then must do nothing that needs Python or a backend. */
bool bridge_enter(void);
void bridge_leave(void);

/* The number of forks between the first process that called Python here and this one. Parts of native backends work in
 * the process that compiled them only. */
int bridge_forks(void);

/* ---- Python ------------------------------------------------------------------------------------------------------ */

/* Call a function of the package `interposer.bridges`, such as "onnxruntime.provider:compile", with `count` arguments,
 * which are addresses and numbers. It must return an int, which `*result` gets. The first call starts Python unless the
 * process has it. Returns false if Python or the package is missing, if Python is ending, or if the function raised an
 * exception; `bridge_problem` says which. Threads may call it concurrently, with or without the interpreter's lock. */
bool bridge_call(const char* function, uint64_t* result, const uint64_t* arguments, int count);

/* Like `bridge_call`, which calls the function again if it was interrupted. `bridge_interrupted` says whether the last
 * call in this thread was: a signal handler has raised an exception such as KeyboardInterrupt, which Python raises
 * again when the host has returned to the program. */
bool bridge_try(const char* function, uint64_t* result, const uint64_t* arguments, int count);
bool bridge_interrupted(void);

/* The reason why the last call of this thread returned false. */
const char* bridge_problem(void);

#define BRIDGE_WORD(pointer) ((uint64_t)(uintptr_t)(pointer))
#define BRIDGE_LIST(...) (const uint64_t[]){__VA_ARGS__}, (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define BRIDGE_CALL(function, result, ...) bridge_call(function, result, BRIDGE_LIST(__VA_ARGS__))
#define BRIDGE_TRY(function, result, ...) bridge_try(function, result, BRIDGE_LIST(__VA_ARGS__))

/* ---- Direct runs ------------------------------------------------------------------------------------------------- */

/* One compiled part of a native backend, with tables for several concurrent runs. Python creates and releases it (see
 * interposer/bridges/direct.py) and keeps the part and the tables alive for as long. */
typedef struct bridge_direct bridge_direct;

size_t bridge_direct_inputs(const bridge_direct* direct);
size_t bridge_direct_outputs(const bridge_direct* direct);
uint64_t bridge_direct_input_size(const bridge_direct* direct, size_t index); /* bytes */
const int64_t* bridge_direct_input_shape(const bridge_direct* direct, size_t index, size_t* rank);
const int64_t* bridge_direct_output_shape(const bridge_direct* direct, size_t index, size_t* rank);

/* Run the part on these addresses, without the interpreter's lock and inside the gate. Returns false if the run has
 * to take the way through Python: nothing was computed then, or the backend failed, or Python is ending, in which case
 * `bridge_enter` refuses too. */
bool bridge_direct_run(bridge_direct* direct, void* const* inputs, void* const* outputs);

#endif
