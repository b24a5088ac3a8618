/* Calls of Python, which is found when it is first needed, and the gate that closes before Python ends. */
#include "bridge.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- The gate ---------------------------------------------------------------------------------------------------- */

static atomic_int closing, inside, forks;

bool bridge_enter(void) {
  atomic_fetch_add(&inside, 1);
  if (!atomic_load(&closing)) return true;
  bridge_leave();
  return false;
}

void bridge_leave(void) { atomic_fetch_sub(&inside, 1); }

/* Close the gate, and wait up to so many milliseconds for the threads inside. Returns the number of those left. */
BRIDGE_EXPORT int interposer_bridge_close(int milliseconds) {
  const struct timespec moment = {0, 1000000};
  atomic_store(&closing, 1);
  for (int waited = 0; waited < milliseconds && atomic_load(&inside) > 0; ++waited) nanosleep(&moment, NULL);
  return atomic_load(&inside);
}

/* The threads that were inside do not exist in a forked process. */
static void after_fork(void) {
  atomic_store(&inside, 0);
  atomic_fetch_add(&forks, 1);
}

int bridge_forks(void) { return atomic_load(&forks); }

/* ---- Finding Python ---------------------------------------------------------------------------------------------- */

typedef struct _object PyObject;
#define FUNCTIONS(X)                                                      \
  X(int, Py_IsInitialized, (void))                                        \
  X(void, Py_InitializeEx, (int))                                         \
  X(void*, PyEval_SaveThread, (void))                                     \
  X(int, PyGILState_Ensure, (void))                                       \
  X(void, PyGILState_Release, (int))                                      \
  X(PyObject*, PyImport_ImportModule, (const char*))                      \
  X(PyObject*, PyObject_GetAttrString, (PyObject*, const char*))          \
  X(PyObject*, PyObject_CallObject, (PyObject*, PyObject*))               \
  X(PyObject*, PyTuple_New, (intptr_t))                                   \
  X(int, PyTuple_SetItem, (PyObject*, intptr_t, PyObject*))               \
  X(PyObject*, PyUnicode_FromString, (const char*))                       \
  X(PyObject*, PyLong_FromUnsignedLongLong, (unsigned long long))         \
  X(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject*))           \
  X(PyObject*, PyErr_Occurred, (void))                                    \
  X(void, PyErr_Print, (void))                                            \
  X(void, PyErr_SetObject, (PyObject*, PyObject*))                        \
  X(void, PyErr_Fetch, (PyObject**, PyObject**, PyObject**))              \
  X(void, PyErr_NormalizeException, (PyObject**, PyObject**, PyObject**)) \
  X(int, PyErr_ExceptionMatches, (PyObject*))                             \
  X(PyObject*, PyObject_Type, (PyObject*))                                \
  X(int, Py_AddPendingCall, (int (*)(void*), void*))                      \
  X(void, Py_DecRef, (PyObject*))
static struct {
#define DECLARE(result, name, arguments) result(*name) arguments;
  FUNCTIONS(DECLARE)
  PyObject** PyExc_Exception;
} py;

static _Thread_local char problem[1024];
static char missing[1024] = "Python was not started"; /* why there is no Python; empty once there is */
static PyObject* dispatch;                            /* interposer.bridges.embedding.dispatch */
static bool started_here;

const char* bridge_problem(void) { return problem; }

static bool fail(char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, 1024, format, arguments);
  va_end(arguments);
  return false;
}

/* Where this library is installed: PREFIX/lib/pythonX.Y/site-packages/interposer/bridges. Without such a place, as in a
 * source tree, `version` and `prefix` are empty, and `above` is the folder of the package. */
typedef struct {
  char above[4000], prefix[4000], version[16], interpreter[4096];
} Place;

static void cut(char* path, int levels) {
  for (char* slash; levels > 0 && (slash = strrchr(path, '/')); --levels) *slash = 0;
}

static void set_interpreter(Place* place, const char* path) {
  snprintf(place->interpreter, sizeof place->interpreter, "%s", path);
  snprintf(place->prefix, sizeof place->prefix, "%s", path);
  cut(place->prefix, 2);
}

static Place find_place(void) {
  Place place = {0};
  Dl_info own;
  if (dladdr((void*)find_place, &own) && own.dli_fname) snprintf(place.above, sizeof place.above, "%s", own.dli_fname);
  cut(place.above, 3);
  const char* asked = getenv("INTERPOSER_PYTHON");
  const char* library = strstr(place.above, "/lib/python");
  int length = 0;
  if (library) sscanf(library, "/lib/python%15[0-9.]%n", place.version, &length);
  if (asked && *asked) {
    set_interpreter(&place, asked);
  } else if (length) {
    char path[4096];
    snprintf(path, sizeof path, "%.*s/bin/python%s", (int)(library - place.above), place.above, place.version);
    set_interpreter(&place, path);
  }
  return place;
}

/* Read the folder of the base interpreter and its version from the pyvenv.cfg of a virtual environment. */
static void read_environment(const Place* place, char* home, char* version) {
  char path[4096], line[4096];
  snprintf(path, sizeof path, "%.4000s/pyvenv.cfg", place->prefix);
  FILE* file = place->prefix[0] ? fopen(path, "r") : NULL;
  if (!file) return;
  while (fgets(line, sizeof line, file)) {
    sscanf(line, "home = %4000[^\n]", home);
    sscanf(line, "version = %15[0-9.]", version);
  }
  fclose(file);
}

/* Keep the first two numbers of a version, such as "3.11.7". */
static void shorten(char* version) {
  char* dot = strchr(version, '.');
  char* second = dot ? strchr(dot + 1, '.') : NULL;
  if (second) *second = 0;
}

static void* open_python_of(const char* home, const char* version) {
  char name[64], path[4200];
  snprintf(name, sizeof name, "libpython%.15s.so.1.0", version);
  snprintf(path, sizeof path, "%.4000s/../lib/%s", home, name);
  void* library = home[0] ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
  return library ? library : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static void* open_python(const Place* place) {
  const char* asked = getenv("INTERPOSER_LIBPYTHON");
  if (asked && *asked) return dlopen(asked, RTLD_NOW | RTLD_GLOBAL);
  char home[4096] = "", version[16] = "";
  read_environment(place, home, version);
  if (!version[0]) snprintf(version, sizeof version, "%s", place->version);
  if (!home[0] && place->prefix[0]) snprintf(home, sizeof home, "%.4000s/bin", place->prefix);
  shorten(version);
  if (version[0]) return open_python_of(home, version);
  void* library = NULL;
  for (int minor = 14; minor >= 11 && !library; --minor) {
    snprintf(version, sizeof version, "3.%d", minor);
    library = open_python_of(home, version);
  }
  return library;
}

static bool find_functions(void* library) {
#define FIND(result, name, arguments) \
  if (!(*(void**)& py.name = dlsym(library, #name))) return fail(missing, "Python has no %s", #name);
  FUNCTIONS(FIND)
  py.PyExc_Exception = dlsym(library, "PyExc_Exception");
  return py.PyExc_Exception || fail(missing, "Python has no PyExc_Exception");
}

/* ---- Starting Python --------------------------------------------------------------------------------------------- */

static void set_program_name(void* library, const char* path) {
  static wchar_t name[4096]; /* Python reads it later */
  void (*set)(const wchar_t*) = (void (*)(const wchar_t*))dlsym(library, "Py_SetProgramName");
  if (set && path[0] && mbstowcs(name, path, 4095) != (size_t)-1) set(name);
}

static bool start_python(const Place* place) {
  void* library = open_python(place);
  if (!library)
    return fail(missing,
                "the library of Python cannot be opened (%.300s); name it with INTERPOSER_LIBPYTHON, or the "
                "interpreter that has Interposer with INTERPOSER_PYTHON",
                dlerror());
  if (!find_functions(library)) return false;
  if (py.Py_IsInitialized()) return true;
  set_program_name(library, place->interpreter);
  py.Py_InitializeEx(0);
  started_here = true;
  return true;
}

static PyObject* import_dispatch(const Place* place) {
  PyObject* module = py.PyImport_ImportModule("interposer.bridges.embedding");
  PyObject* function = module ? py.PyObject_GetAttrString(module, "dispatch") : NULL;
  if (module) py.Py_DecRef(module);
  if (!function) {
    py.PyErr_Print();
    fail(missing, "the package interposer cannot be imported; this library is in %.900s", place->above);
  }
  return function;
}

/* In a Python that was started here, make the package importable: add the folder that this library was loaded from. */
static void add_folder(const Place* place) {
  PyObject* site = py.PyImport_ImportModule("site");
  PyObject* function = site ? py.PyObject_GetAttrString(site, "addsitedir") : NULL;
  PyObject* arguments = function ? py.PyTuple_New(1) : NULL;
  if (arguments) {
    py.PyTuple_SetItem(arguments, 0, py.PyUnicode_FromString(place->above));
    PyObject* result = py.PyObject_CallObject(function, arguments);
    if (result) py.Py_DecRef(result);
    py.Py_DecRef(arguments);
  }
  if (function) py.Py_DecRef(function);
  if (site) py.Py_DecRef(site);
  if (py.PyErr_Occurred()) py.PyErr_Print();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
  Place place = find_place();
  pthread_atfork(NULL, NULL, after_fork);
  bool has_python = dlsym(RTLD_DEFAULT, "Py_IsInitialized") ? find_functions(RTLD_DEFAULT) : start_python(&place);
  if (!has_python) return;
  if (!py.Py_IsInitialized()) {
    py.Py_InitializeEx(0);
    started_here = true;
  }
  if (started_here) {
    add_folder(&place);
    py.PyEval_SaveThread();
  }
  missing[0] = 0;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Import what the calls need, in the first call that has the interpreter's lock. An import may wait for another thread
 * that has the lock, so it must not happen inside `pthread_once`. */
static PyObject* resolved(void) {
  if (!dispatch) {
    Place place = find_place();
    PyObject* function = import_dispatch(&place);
    if (dispatch && function)
      py.Py_DecRef(function);
    else
      dispatch = function;
  }
  return dispatch;
}

/* The exception of a signal handler, such as KeyboardInterrupt, that ended a call in the main thread of Python. A host
 * would replace it by an error of its own, so it is raised when the host has returned to the program. */
static PyObject* interruption;
static _Thread_local int calls; /* in progress in this thread */
static _Thread_local bool interrupted;

bool bridge_interrupted(void) { return interrupted; }

/* A pending call, which Python makes in its main thread: raise `interruption`, unless a host is still there. */
static int raise_interruption(void* unused) {
  (void)unused;
  if (calls || !interruption) return 0; /* `call` asks again */
  PyObject *exception = interruption, *type = py.PyObject_Type(exception);
  interruption = NULL;
  py.PyErr_SetObject(type, exception);
  py.Py_DecRef(type);
  py.Py_DecRef(exception);
  return -1;
}

/* Note the exception that is raised, and clear it, if it is not an Exception: those of signal handlers are not. */
static bool note_interruption(void) {
  if (!py.PyErr_Occurred() || py.PyErr_ExceptionMatches(*py.PyExc_Exception)) return false;
  PyObject *type, *exception, *traceback;
  py.PyErr_Fetch(&type, &exception, &traceback);
  py.PyErr_NormalizeException(&type, &exception, &traceback);
  if (type) py.Py_DecRef(type);
  if (traceback) py.Py_DecRef(traceback);
  if (!interruption)
    interruption = exception;
  else
    py.Py_DecRef(exception);
  return true;
}

static bool call(const char* function, uint64_t* result, const uint64_t* arguments, int count) {
  PyObject* target = resolved();
  if (!target) return fail(problem, "%s", missing);
  PyObject* tuple = py.PyTuple_New(count + 1);
  py.PyTuple_SetItem(tuple, 0, py.PyUnicode_FromString(function));
  for (int n = 0; n < count; ++n) py.PyTuple_SetItem(tuple, n + 1, py.PyLong_FromUnsignedLongLong(arguments[n]));
  PyObject* returned = py.PyObject_CallObject(target, tuple);
  py.Py_DecRef(tuple);
  if (returned) {
    *result = py.PyLong_AsUnsignedLongLong(returned);
    py.Py_DecRef(returned);
  }
  if (!py.PyErr_Occurred()) return true;
  interrupted = note_interruption();
  if (interrupted) return fail(problem, "%s was interrupted", function);
  py.PyErr_Print();
  return fail(problem, "%s raised an exception, which is on standard error", function);
}

bool bridge_try(const char* function, uint64_t* result, const uint64_t* arguments, int count) {
  interrupted = false;
  if (!bridge_enter()) return fail(problem, "Python is ending");
  pthread_once(&once, start);
  bool succeeded = false;
  if (missing[0]) {
    fail(problem, "%s", missing);
  } else {
    int state = py.PyGILState_Ensure();
    ++calls;
    succeeded = call(function, result, arguments, count);
    if (!--calls && interruption) py.Py_AddPendingCall(raise_interruption, NULL);
    py.PyGILState_Release(state);
  }
  bridge_leave();
  return succeeded;
}

bool bridge_call(const char* function, uint64_t* result, const uint64_t* arguments, int count) {
  return bridge_try(function, result, arguments, count) ||
         (interrupted && bridge_try(function, result, arguments, count));
}
