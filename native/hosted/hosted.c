/* A backend that is written in Python, as a shared object: the functions of its table call Python.
 *
 * BACKEND_ID is the id, and BACKEND_CLASS the class, "package.module:Class". By default, it is the reference backend
 * CpuRef with all its operators and types. The package interposer of the process provides the table. Only the stable
 * ABI of Python 3.11 is used, so that one file serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <pthread.h>

#include "interposer/backend.h"

#ifndef BACKEND_ID
#define BACKEND_ID "CpuRef"
#endif
#ifndef BACKEND_CLASS
#define BACKEND_CLASS "interposer.backends.reference:ReferenceBackend"
#endif

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void initialize(void) {
  if (Py_IsInitialized()) return;
  Py_InitializeEx(0);
  PyEval_SaveThread();
}

/* Start an interpreter if the process has none: a host that is not written in Python. Several threads may call it. */
static void start_python(void) { pthread_once(&started, initialize); }

/* Print the exception and clear it. PyErr_Print would end the process for a SystemExit. */
static void print_error(void) {
  if (!PyErr_ExceptionMatches(PyExc_SystemExit)) {
    PyErr_Print();
    return;
  }
  PyErr_Clear();
  PySys_WriteStderr("%s: creating the backend raised SystemExit\n", BACKEND_CLASS);
}

/* Return what interposer.plugins.capi.hosting.<name>(argument) returns; NULL if it fails, with the error printed. */
static PyObject* ask(const char* name, const char* argument) {
  PyObject* module = PyImport_ImportModule("interposer.plugins.capi.hosting");
  PyObject* result = NULL;
  if (module != NULL)
    result =
        argument == NULL ? PyObject_CallMethod(module, name, NULL) : PyObject_CallMethod(module, name, "s", argument);
  Py_XDECREF(module);
  if (result == NULL) print_error();
  return result;
}

IPR_EXPORT const char* GetBackendId(void) { return BACKEND_ID; }

IPR_EXPORT void GetVersion(uint32_t* out_major, uint32_t* out_minor) {
  *out_major = IPR_API_MAJOR;
  *out_minor = IPR_API_MINOR;
}

IPR_EXPORT uint32_t GetVocabularyRevision(void) {
  PyGILState_STATE state;
  PyObject* number;
  uint32_t revision = IPR_VOCABULARY_REVISION;
  start_python();
  state = PyGILState_Ensure();
  number = ask("revision", NULL);
  if (number != NULL) revision = (uint32_t)PyLong_AsUnsignedLong(number);
  Py_XDECREF(number);
  PyGILState_Release(state);
  return revision;
}

IPR_EXPORT void* BackendFactory(void) {
  PyGILState_STATE state;
  PyObject* address;
  void* table = NULL;
  start_python();
  state = PyGILState_Ensure();
  address = ask("table", BACKEND_CLASS);
  if (address != NULL) table = PyLong_AsVoidPtr(address);
  Py_XDECREF(address);
  PyGILState_Release(state);
  return table;
}
