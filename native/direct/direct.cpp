// The Python extension `interposer.plugins.capi.running._direct`: runs one executable of a backend on NumPy arrays.
//
// `DirectCall.run` runs only if every argument is an array that needs neither a conversion nor a copy. Otherwise it
// returns None and has no effect, and its caller takes the path in Python, which defines the meaning of a run and has
// all error messages.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "interposer/backend.h"

namespace {

/// The version of what `DirectCall` is created with and calls. It is increased together with `VERSION` in direct.py,
/// which refuses to use an extension with another version.
constexpr int kVersion = 1;

/// The first members of a NumPy array, as NumPy's C API documents them (PyArrayObject_fields). `layout` shows them to
/// Python, which compares them with the attributes of an array before it uses this module.
struct Array {
  PyObject_HEAD char* data;
  int rank;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* dtype;
  int flags;
};

constexpr int kContiguous = 0x0001, kAligned = 0x0100, kWriteable = 0x0400;  // NPY_ARRAY_... of NumPy's C API

using Execute = int32_t (*)(void* self, void* executable, const ipr_run* run, ipr_error* error);

/// A strong reference to a Python object.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  static Ref to(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return Ref(borrowed);
  }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// An input or output of the network: what an array must be to be used as it is.
struct Tensor {
  Ref name, dtype, shape;
  Ref creation;                   // the arguments of numpy.empty
  std::vector<Py_ssize_t> sizes;  // -1: the run determines it
  uint64_t bytes = 0, alignment = 1;
  bool is_open = false;  // a size is unknown before the run; `bytes` are those of an element
};

/// A range of addresses of constants, which outputs must not overlap.
struct Range {
  uintptr_t begin, end;
};

/// What a `DirectCall` is created with.
struct Call {
  std::vector<Tensor> inputs, outputs;
  std::vector<size_t> operands, results;  // the inputs and outputs that the executable has as its tensors, in its order
  std::vector<Range> constants;           // sorted, without overlaps
  uint64_t room = 0;                      // the most bytes that open outputs may take together
  Execute execute = nullptr;
  void *backend = nullptr, *executable = nullptr;
  const ipr_log_ring* log = nullptr;
  Ref array_type, empty;                // numpy.ndarray and numpy.empty
  Ref library, inside, watchers, runs;  // `Library`, the list of its calls, and the runs of the network by thread
  Ref pop, create, append;              // functions of the tables of runs that no thread uses
  Ref failed, read_log, left;
  Ref acquire, release;                 // functions of the lock that serializes runs; None if they may be concurrent
  Ref refuses, address, error_address;  // names of attributes
  bool open = true;
  bool resizes = false;  // some output is open
};

struct DirectCall {
  PyObject_HEAD Call* call;
};

Array* as_array(PyObject* object) { return reinterpret_cast<Array*>(object); }

/// References to the arrays of one run, inputs first.
class Arrays {
 public:
  explicit Arrays(size_t capacity) {
    if (capacity > kFew) items_ = static_cast<PyObject**>(PyMem_Malloc(capacity * sizeof(PyObject*)));
  }
  ~Arrays() {
    for (size_t n = 0; n < count_; ++n) Py_DECREF(items_[n]);
    if (items_ != few_) PyMem_Free(items_);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  bool allocated() const { return items_ != nullptr; }
  void add(Ref array) { items_[count_++] = array.release(); }
  void replace(size_t index, Ref array) {
    Py_DECREF(items_[index]);
    items_[index] = array.release();
  }
  size_t count() const { return count_; }
  Array* operator[](size_t index) const { return as_array(items_[index]); }
  Ref reference(size_t index) const { return Ref::to(items_[index]); }

 private:
  static constexpr size_t kFew = 16;
  PyObject* few_[kFew];
  PyObject** items_ = few_;
  size_t count_ = 0;
};

/// Return whether an object is an array for a tensor whose shape is `sizes`, and may be used as it is.
bool fits(const Call& call, const Tensor& tensor, const Py_ssize_t* sizes, PyObject* object, int flags) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != call.array_type.get()) return false;
  const Array* array = as_array(object);
  if ((array->flags & flags) != flags || size_t(array->rank) != tensor.sizes.size()) return false;
  if (!std::equal(sizes, sizes + array->rank, array->shape)) return false;
  if (reinterpret_cast<uintptr_t>(array->data) & (tensor.alignment - 1)) return false;
  return array->dtype == tensor.dtype.get() || PyObject_RichCompareBool(array->dtype, tensor.dtype.get(), Py_EQ) == 1;
}

bool fits(const Call& call, const Tensor& tensor, PyObject* object, int flags) {
  return fits(call, tensor, tensor.sizes.data(), object, flags);
}

/// Return a borrowed reference to one of the values of a call: from a list or tuple by index, or a dict by name.
PyObject* value_of(PyObject* values, const Tensor& tensor, size_t index) {
  if (PyDict_CheckExact(values)) return PyDict_GetItemWithError(values, tensor.name.get());
  return PyList_CheckExact(values) ? PyList_GetItem(values, index) : PyTuple_GetItem(values, index);
}

Py_ssize_t count_of(PyObject* values) {
  if (PyList_CheckExact(values)) return PyList_Size(values);
  if (PyTuple_CheckExact(values)) return PyTuple_Size(values);
  return PyDict_CheckExact(values) ? PyDict_Size(values) : -1;
}

/// Add the arrays of a call for these tensors; return false if they do not fit as they are.
bool take(const Call& call, const std::vector<Tensor>& tensors, PyObject* values, int flags, Arrays& arrays) {
  if (count_of(values) != Py_ssize_t(tensors.size())) return false;
  for (size_t n = 0; n < tensors.size(); ++n) {
    PyObject* value = value_of(values, tensors[n], n);
    if (value == nullptr || !fits(call, tensors[n], value, flags)) return false;
    arrays.add(Ref::to(value));
  }
  return true;
}

/// Add a new array for each output; None for those whose shapes the run determines.
bool create_outputs(const Call& call, Arrays& arrays) {
  for (const Tensor& output : call.outputs) {
    if (output.is_open) {
      arrays.add(Ref::to(Py_None));
      continue;
    }
    Ref array(PyObject_Call(call.empty.get(), output.creation.get(), nullptr));
    if (!array || !fits(call, output, array.get(), kContiguous | kAligned | kWriteable)) return false;
    arrays.add(std::move(array));
  }
  return true;
}

Range range_of(const Array* array, const Tensor& tensor) {
  uintptr_t begin = reinterpret_cast<uintptr_t>(array->data);
  return {begin, begin + tensor.bytes};
}

bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

bool overlaps_constant(const Call& call, const Range& range) {
  auto after = [](const Range& constants, uintptr_t address) { return constants.end <= address; };
  auto next = std::lower_bound(call.constants.begin(), call.constants.end(), range.begin, after);
  return next != call.constants.end() && overlap(*next, range);
}

/// Return true if an output of the caller overlaps a constant, an input or another output.
bool outputs_overlap(const Call& call, const Arrays& arrays) {
  size_t inputs = call.inputs.size();
  for (size_t n = inputs; n < arrays.count(); ++n) {
    Range range = range_of(arrays[n], call.outputs[n - inputs]);
    if (overlaps_constant(call, range)) return true;
    for (size_t other = 0; other < n; ++other) {
      const Tensor& tensor = other < inputs ? call.inputs[other] : call.outputs[other - inputs];
      if (overlap(range, range_of(arrays[other], tensor))) return true;
    }
  }
  return false;
}

/// Add the number of the output with this name to `picks`; return false if there is none, or the name is repeated.
bool pick(const Call& call, PyObject* name, std::vector<size_t>& picks) {
  if (!PyUnicode_CheckExact(name)) return false;
  auto is_named = [&](const Tensor& output) { return PyUnicode_Compare(output.name.get(), name) == 0; };
  size_t index = size_t(std::find_if(call.outputs.begin(), call.outputs.end(), is_named) - call.outputs.begin());
  if (index == call.outputs.size() || std::find(picks.begin(), picks.end(), index) != picks.end()) return false;
  picks.push_back(index);
  return true;
}

bool pick_all(const Call& call, PyObject* names, std::vector<size_t>& picks) {
  for (Py_ssize_t n = 0; n < PyList_Size(names); ++n)
    if (!pick(call, PyList_GetItem(names, n), picks)) return false;
  return true;
}

bool are_names(PyObject* values) {
  return PyList_CheckExact(values) && PyList_Size(values) > 0 && PyUnicode_CheckExact(PyList_GetItem(values, 0));
}

/// Add the arrays for the outputs: new ones for None or for names, whose numbers `picks` gets, or those of the caller.
bool take_outputs(const Call& call, PyObject* values, Arrays& arrays, std::vector<size_t>& picks) {
  if (values == Py_None) return create_outputs(call, arrays);
  if (PyUnicode_CheckExact(values)) return pick(call, values, picks) && create_outputs(call, arrays);
  if (are_names(values)) return pick_all(call, values, picks) && create_outputs(call, arrays);
  if (!take(call, call.outputs, values, kContiguous | kAligned | kWriteable, arrays)) return false;
  return !outputs_overlap(call, arrays);
}

/// A run that is registered with the network and with the library, so that neither is unloaded before it ends.
class Registered {
 public:
  explicit Registered(const Call& call) : call_(call) {
    Ref thread(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    if (!thread || PyDict_Contains(call.runs.get(), thread.get()) != 0) return;
    if (PyDict_SetItem(call.runs.get(), thread.get(), Py_None) != 0) return;
    thread_ = std::move(thread);
    inside_ = PyList_Append(call.inside.get(), Py_None) == 0;
  }

  /// End the registration before the destructor does; return false if a Python exception is set.
  bool end() {
    if (!thread_) return true;
    Ref thread = std::move(thread_);
    Py_ssize_t calls = PyList_Size(call_.inside.get());
    if (inside_ && calls > 0) PyList_SetSlice(call_.inside.get(), calls - 1, calls, nullptr);
    if (PyDict_DelItem(call_.runs.get(), thread.get()) != 0) return false;
    if (__atomic_load_n(&call_.log->head, __ATOMIC_ACQUIRE) != call_.log->tail)
      if (!Ref(PyObject_CallNoArgs(call_.read_log.get()))) return false;
    return call_.open || Ref(PyObject_CallNoArgs(call_.left.get()));
  }
  ~Registered() {
    if (!thread_) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!end()) PyErr_WriteUnraisable(call_.library.get());
    PyErr_Restore(type, value, trace);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  /// Return false if this thread is inside a run already, or the network or the library cannot be run any more.
  bool may_run() const {
    if (!inside_ || !call_.open || PyList_Size(call_.watchers.get()) != 0) return false;
    Ref refuses(PyObject_GetAttr(call_.library.get(), call_.refuses.get()));
    return refuses.get() == Py_False;
  }

 private:
  const Call& call_;
  Ref thread_;
  bool inside_ = false;
};

/// Return an address that is an attribute of a Python object; nullptr with an exception if that fails.
void* address(PyObject* object, const Ref& name) {
  Ref number(PyObject_GetAttr(object, name.get()));
  return number ? PyLong_AsVoidPtr(number.get()) : nullptr;
}

/// True from the end of a run until the next one begins: some thread probably has the lock of the interpreter.
std::atomic<bool> interpreter_busy{false};

/// Wait a moment for the lock of the interpreter without sleeping. Other threads that call small networks hold it for
/// less time than it takes to wake a thread. A false alarm, such as a thread that works on in Python, costs this
/// moment.
void await_interpreter() {
  constexpr int kSpins = 64;  // about two microseconds
  for (int n = 0; n < kSpins && interpreter_busy.load(std::memory_order_relaxed); ++n) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
}

/// Gives arrays to open outputs during a run, as the plug-in asks for them.
class Resizing {
 public:
  Resizing(const Call& call, Arrays& arrays) : call_(call), arrays_(arrays) {}

  void begin(ipr_run& run, PyThreadState* state) { run_ = &run, state_ = state, thread_ = PyThread_get_thread_ident(); }
  PyThreadState* state() const { return state_; }

  /// The function `ipr_run.resize`. A call against the rules of the interface fails, and so does the run. The path in
  /// Python repeats the run, and has the messages.
  static int32_t resize(void* host, uint64_t output, const int64_t* shape, uint64_t rank) {
    Resizing& self = *static_cast<Resizing*>(host);
    const bool is_right = PyThread_get_thread_ident() == self.thread_ && self.has(output, shape, rank);
    const bool done = is_right && self.give(output, shape);
    if (!done) self.failed_.store(true, std::memory_order_relaxed);
    return done ? IPR_OK : IPR_INVALID_ARGUMENT;
  }

  /// Return false if an output got no array, although the plug-in asked for it or the run succeeded.
  bool succeeded(int32_t status) const {
    if (failed_.load(std::memory_order_relaxed)) return false;
    for (size_t result : call_.results)
      if (status == 0 && is_missing(result)) return false;
    return true;
  }

 private:
  bool is_missing(size_t result) const {
    return call_.outputs[result].is_open && arrays_[call_.inputs.size() + result] == as_array(Py_None);
  }

  bool has(uint64_t output, const int64_t* shape, uint64_t rank) const {
    if (output >= call_.results.size() || !is_missing(call_.results[output])) return false;
    const std::vector<Py_ssize_t>& declared = call_.outputs[call_.results[output]].sizes;
    if (rank != declared.size() || (rank > 0 && shape == nullptr)) return false;
    auto agree = [](Py_ssize_t wanted, int64_t given) { return given >= 0 && (wanted < 0 || wanted == given); };
    return std::equal(declared.begin(), declared.end(), shape, agree);
  }

  bool give(uint64_t output, const int64_t* shape) {
    const size_t result = call_.results[output];
    PyEval_RestoreThread(state_);
    Ref array = array_of(call_.outputs[result], shape);
    const bool done = bool(array);
    if (done) {
      bind(run_->outputs[output], as_array(array.get()), call_.outputs[result]);
      arrays_.replace(call_.inputs.size() + result, std::move(array));
    }
    PyErr_Clear();
    state_ = PyEval_SaveThread();
    return done;
  }

  bool has_room(const Tensor& output, const int64_t* shape) {
    uint64_t bytes = output.bytes;
    for (size_t axis = 0; axis < output.sizes.size(); ++axis)
      if (__builtin_mul_overflow(bytes, uint64_t(shape[axis]), &bytes)) return false;
    return !__builtin_add_overflow(taken_, bytes, &taken_) && taken_ <= call_.room;
  }

  /// Return a new array for an output; nothing if there is no memory or no room for it.
  Ref array_of(const Tensor& output, const int64_t* shape) {
    Ref sizes(PyTuple_New(Py_ssize_t(output.sizes.size())));
    for (size_t axis = 0; sizes && axis < output.sizes.size(); ++axis)
      PyTuple_SetItem(sizes.get(), Py_ssize_t(axis), PyLong_FromLongLong(shape[axis]));
    if (!sizes || PyErr_Occurred() || !has_room(output, shape)) return Ref();
    Ref array(PyObject_CallFunctionObjArgs(call_.empty.get(), sizes.get(), output.dtype.get(), nullptr));
    const std::vector<Py_ssize_t> wanted(shape, shape + output.sizes.size());
    const int flags = kContiguous | kAligned | kWriteable;
    return array && fits(call_, output, wanted.data(), array.get(), flags) ? std::move(array) : Ref();
  }

  static void bind(ipr_tensor& table, const Array* array, const Tensor& output) {
    std::copy(array->shape, array->shape + array->rank, const_cast<int64_t*>(table.shape));
    table.data = array->data;
    table.size = output.bytes;
    for (int axis = 0; axis < array->rank; ++axis) table.size *= uint64_t(array->shape[axis]);
  }

  const Call& call_;
  Arrays& arrays_;
  ipr_run* run_ = nullptr;
  PyThreadState* state_ = nullptr;
  unsigned long thread_ = 0;
  uint64_t taken_ = 0;  // bytes of the arrays
  std::atomic<bool> failed_{false};
};

/// The tables of one run: a Python object that has the addresses of an `ipr_run` and of an `ipr_error`.
class Tables {
 public:
  /// Take tables that no thread uses, or create them. Without success, `run` is nullptr.
  explicit Tables(const Call& call) : owner_(PyObject_CallNoArgs(call.pop.get())) {
    if (!owner_ && PyErr_ExceptionMatches(PyExc_IndexError)) {
      PyErr_Clear();
      owner_ = Ref(PyObject_CallNoArgs(call.create.get()));
    }
    if (!owner_) return;
    error = static_cast<ipr_error*>(address(owner_.get(), call.error_address));
    if (error != nullptr) run = static_cast<ipr_run*>(address(owner_.get(), call.address));
  }

  void bind(const Call& call, const Arrays& arrays) {
    auto* inputs = const_cast<ipr_tensor*>(run->inputs);
    for (size_t n = 0; n < call.operands.size(); ++n)
      bind(inputs[n], arrays[call.operands[n]], call.inputs[call.operands[n]]);
    for (size_t n = 0; n < call.results.size(); ++n) {
      const Tensor& output = call.outputs[call.results[n]];
      if (output.is_open)
        bind_open(run->outputs[n], output);
      else
        bind(run->outputs[n], arrays[call.inputs.size() + call.results[n]], output);
    }
  }

  /// Run the executable without the interpreter's lock. `resizing` gives arrays to open outputs.
  int32_t execute(const Call& call, Resizing& resizing) {
    void* host = std::exchange(run->host, &resizing);
    auto resize = std::exchange(run->resize, call.resizes ? &Resizing::resize : nullptr);
    interpreter_busy.store(false, std::memory_order_relaxed);
    resizing.begin(*run, PyEval_SaveThread());
    int32_t status = call.execute(call.backend, call.executable, run, error);
    await_interpreter();
    PyEval_RestoreThread(resizing.state());
    interpreter_busy.store(true, std::memory_order_relaxed);
    run->host = host, run->resize = resize;  // a run on another path has its own
    return status;
  }

  /// Let other runs use the tables; return false if a Python exception is set. Tables with an error are not used again.
  bool give_back(const Call& call) {
    if (error->code != 0 || error->item_kind != 0 || error->length != 0) return true;
    return bool(Ref(PyObject_CallFunctionObjArgs(call.append.get(), owner_.get(), nullptr)));
  }

  PyObject* owner() const { return owner_.get(); }

  ipr_run* run = nullptr;
  ipr_error* error = nullptr;

 private:
  static void bind_open(ipr_tensor& table, const Tensor& tensor) {
    std::copy(tensor.sizes.begin(), tensor.sizes.end(), const_cast<int64_t*>(table.shape));
    table.data = nullptr;
    table.strides = nullptr;
    table.size = 0;
  }
  static void bind(ipr_tensor& table, const Array* array, const Tensor& tensor) {
    table.data = array->data;
    table.strides = nullptr;  // a run on another path may have left some here
    table.size = tensor.bytes;
  }

  Ref owner_;
};

/// The turn of a run, if runs of the executable are serialized.
class Turn {
 public:
  explicit Turn(const Call& call) : release_(call.release.get()) {
    begun_ = call.acquire.get() == Py_None || Ref(PyObject_CallNoArgs(call.acquire.get()));
  }
  ~Turn() {
    if (begun_ && release_ != Py_None && !Ref(PyObject_CallNoArgs(release_))) PyErr_WriteUnraisable(release_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Return false, with a Python exception, if the thread was interrupted while it waited.
  bool begun() const { return begun_; }

 private:
  PyObject* release_;
  bool begun_;
};

/// Return None for a call that the path in Python has to take; nullptr for an exception that must not be lost.
PyObject* declined() {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  return Ref::to(Py_None).release();
}

/// Return a list of the outputs with the numbers `picks`, or of all outputs if there are none.
PyObject* outputs_of(const Call& call, const Arrays& arrays, const std::vector<size_t>& picks) {
  size_t count = picks.empty() ? call.outputs.size() : picks.size();
  Ref list(PyList_New(Py_ssize_t(count)));
  for (size_t n = 0; list && n < count; ++n) {
    size_t index = picks.empty() ? n : picks[n];
    PyList_SetItem(list.get(), Py_ssize_t(n), arrays.reference(call.inputs.size() + index).release());
  }
  return list.release();
}

/// Raise the exception that `failed` makes of a status.
PyObject* fail(const Call& call, const Tables& tables, int32_t status) {
  Ref number(PyLong_FromLong(status));
  if (!number || !Ref(PyObject_CallFunctionObjArgs(call.failed.get(), tables.owner(), number.get(), nullptr)))
    return nullptr;
  PyErr_SetString(PyExc_SystemError, "no exception was raised for a run that failed");
  return nullptr;
}

PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "run takes the inputs and the outputs");
    return nullptr;
  }
  const Call& call = *reinterpret_cast<DirectCall*>(self)->call;
  Arrays arrays(call.inputs.size() + call.outputs.size());
  if (!arrays.allocated() || !take(call, call.inputs, arguments[0], kContiguous | kAligned, arrays)) return declined();
  std::vector<size_t> picks;
  if (!take_outputs(call, arguments[1], arrays, picks)) return declined();
  Registered registered(call);
  if (!registered.may_run()) return declined();
  Tables tables(call);
  if (tables.run == nullptr) return declined();
  tables.bind(call, arrays);
  Resizing resizing(call, arrays);
  int32_t status;
  {
    Turn turn(call);
    if (!turn.begun()) return nullptr;
    status = tables.execute(call, resizing);
  }
  if (!resizing.succeeded(status)) return declined();
  if (status == 0 && !tables.give_back(call)) return nullptr;
  if (!registered.end()) return nullptr;
  return status == 0 ? outputs_of(call, arrays, picks) : fail(call, tables, status);
}

PyObject* close(PyObject* self, PyObject*) {
  reinterpret_cast<DirectCall*>(self)->call->open = false;
  return Ref::to(Py_None).release();
}

// ---- creation -------------------------------------------------------------------------------------------------------

bool read_tensor(PyObject* value, Tensor& tensor) {
  PyObject *name, *dtype, *shape;
  unsigned long long bytes, alignment;
  if (!PyArg_ParseTuple(value, "UOO!KK", &name, &dtype, &PyTuple_Type, &shape, &bytes, &alignment)) return false;
  tensor.name = Ref::to(name);
  tensor.dtype = Ref::to(dtype);
  tensor.creation = Ref(PyTuple_Pack(2, shape, dtype));
  tensor.bytes = bytes;
  tensor.alignment = alignment;
  for (Py_ssize_t axis = 0; axis < PyTuple_Size(shape); ++axis)
    tensor.sizes.push_back(PyLong_AsSsize_t(PyTuple_GetItem(shape, axis)));
  tensor.is_open = std::any_of(tensor.sizes.begin(), tensor.sizes.end(), [](Py_ssize_t size) { return size < 0; });
  return tensor.creation && PyErr_Occurred() == nullptr;
}

bool read_index(PyObject* value, size_t& index) {
  index = PyLong_AsSize_t(value);
  return PyErr_Occurred() == nullptr;
}

bool read_range(PyObject* value, Range& range) {
  unsigned long long begin, end;
  if (!PyArg_ParseTuple(value, "KK", &begin, &end)) return false;
  range = {uintptr_t(begin), uintptr_t(end)};
  return true;
}

template <class T>
bool read_all(PyObject* values, bool (*read)(PyObject*, T&), std::vector<T>& out) {
  for (Py_ssize_t n = 0; n < PyTuple_Size(values); ++n) {
    out.emplace_back();
    if (!read(PyTuple_GetItem(values, n), out.back())) return false;
  }
  return true;
}

bool are_below(const std::vector<size_t>& indices, size_t limit) {
  return std::all_of(indices.begin(), indices.end(), [&](size_t index) { return index < limit; });
}

bool read_call(PyObject* arguments, PyObject* keywords, Call& call) {
  static const char* names[] = {"inputs",   "outputs",    "operands", "results",    "constants", "room",    "execute",
                                "backend",  "executable", "log",      "array_type", "empty",     "library", "inside",
                                "watchers", "runs",       "pop",      "create",     "append",    "failed",  "read_log",
                                "left",     "acquire",    "release",  nullptr};
  PyObject *inputs, *outputs, *operands, *results, *constants, *addresses[4], *objects[14];
  unsigned long long room;
  PyTypeObject* tuple = &PyTuple_Type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$O!O!O!O!O!KOOOOOOOO!O!O!OOOOOOOO:DirectCall",
                                   const_cast<char**>(names), tuple, &inputs, tuple, &outputs, tuple, &operands, tuple,
                                   &results, tuple, &constants, &room, &addresses[0], &addresses[1], &addresses[2],
                                   &addresses[3], &objects[0], &objects[1], &objects[2], &PyList_Type, &objects[3],
                                   &PyList_Type, &objects[4], &PyDict_Type, &objects[5], &objects[6], &objects[7],
                                   &objects[8], &objects[9], &objects[10], &objects[11], &objects[12], &objects[13]))
    return false;
  if (!read_all(inputs, read_tensor, call.inputs) || !read_all(outputs, read_tensor, call.outputs)) return false;
  if (!read_all(operands, read_index, call.operands) || !read_all(results, read_index, call.results)) return false;
  if (!read_all(constants, read_range, call.constants)) return false;
  if (!are_below(call.operands, call.inputs.size()) || !are_below(call.results, call.outputs.size())) {
    PyErr_SetString(PyExc_IndexError, "an operand or a result is not an input or an output");
    return false;
  }
  call.room = room;
  auto is_open = [](const Tensor& tensor) { return tensor.is_open; };
  call.resizes = std::any_of(call.outputs.begin(), call.outputs.end(), is_open);
  call.execute = reinterpret_cast<Execute>(PyLong_AsVoidPtr(addresses[0]));
  call.backend = addresses[1] == Py_None ? nullptr : PyLong_AsVoidPtr(addresses[1]);
  call.executable = addresses[2] == Py_None ? nullptr : PyLong_AsVoidPtr(addresses[2]);
  call.log = static_cast<const ipr_log_ring*>(PyLong_AsVoidPtr(addresses[3]));
  Ref* owners[] = {&call.array_type, &call.empty, &call.library, &call.inside, &call.watchers,
                   &call.runs,       &call.pop,   &call.create,  &call.append, &call.failed,
                   &call.read_log,   &call.left,  &call.acquire, &call.release};
  for (size_t n = 0; n < 14; ++n) *owners[n] = Ref::to(objects[n]);
  call.refuses = Ref(PyUnicode_InternFromString("refuses"));
  call.address = Ref(PyUnicode_InternFromString("address"));
  call.error_address = Ref(PyUnicode_InternFromString("error_address"));
  return PyErr_Occurred() == nullptr;
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  Ref self(allocate(type, 0));
  Call* call = self ? new (std::nothrow) Call : nullptr;
  if (call == nullptr) return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
  reinterpret_cast<DirectCall*>(self.get())->call = call;
  return read_call(arguments, keywords, *call) ? self.release() : nullptr;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<DirectCall*>(self)->call;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/// Return what this module reads of a NumPy array.
PyObject* layout(PyObject*, PyObject* object) {
  const Array* array = as_array(object);
  Ref shape(PyTuple_New(array->rank)), data(PyLong_FromVoidPtr(array->data));
  for (int axis = 0; shape && axis < array->rank; ++axis)
    PyTuple_SetItem(shape.get(), axis, PyLong_FromSsize_t(array->shape[axis]));
  if (!shape || !data) return nullptr;
  return Py_BuildValue("OOOi", data.get(), shape.get(), array->dtype, array->flags);
}

PyMethodDef call_methods[] = {
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot call_slots[] = {{Py_tp_new, reinterpret_cast<void*>(create)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                            {Py_tp_methods, call_methods},
                            {0, nullptr}};

PyType_Spec call_spec = {"interposer.plugins.capi.running._direct.DirectCall", sizeof(DirectCall), 0,
                         Py_TPFLAGS_DEFAULT, call_slots};

int fill_module(PyObject* module) {
  Ref type(PyType_FromSpec(&call_spec));
  if (!type || PyModule_AddObjectRef(module, "DirectCall", type.get()) < 0) return -1;
  return PyModule_AddIntConstant(module, "version", kVersion);
}

PyMethodDef functions[] = {{"layout", layout, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill_module)}, {0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_direct", nullptr, 0, functions, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__direct() { return PyModuleDef_Init(&definition); }
