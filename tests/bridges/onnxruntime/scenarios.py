"""Life cycles of sessions with the provider, each a process of the tests: ``scenarios.py NAME BACKENDS``."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import interposer
import interposer.bridges
from examples.compute_backend import TinyBackend
from interposer.backend import KernelTable
from interposer.ops import BatchMatMul
from interposer.types import DataType

BACKENDS = sys.argv[2] if len(sys.argv) > 2 else "CpuRef"
X = np.random.default_rng(0).random((2, 16), np.float32)
WEIGHTS = np.random.default_rng(1).random((16, 16), np.float32)
ort.set_default_logger_severity(4)


def network(rows: int | str = 2) -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["1"], name="product"),
        helper.make_node("Relu", ["1"], ["2"], name="activation"),
        helper.make_node("MatMul", ["2", "w"], ["y"], name="second"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], [numpy_helper.from_array(WEIGHTS, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def register(name: str = "Interposer") -> None:
    ort.register_execution_provider_library(name, interposer.bridges.library())


def devices(name: str = "InterposerExecutionProvider") -> list[ort.OrtEpDevice]:
    return [device for device in ort.get_ep_devices() if device.ep_name == name]


def session(model: bytes | None = None, config: dict[str, str] | None = None, **options: str) -> ort.InferenceSession:
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 4
    for key, value in (config or {}).items():
        chosen.add_session_config_entry(key, value)
    chosen.add_provider_for_devices(devices(), {"backends": BACKENDS, **options})
    return ort.InferenceSession(network() if model is None else model, chosen, enable_fallback=0)


def run(made: ort.InferenceSession, x: np.ndarray = X) -> np.ndarray:
    [y] = made.run(None, {"x": x})
    np.testing.assert_allclose(y, np.maximum(x @ WEIGHTS, 0) @ WEIGHTS, rtol=1e-4)
    return y


def last() -> interposer.bridges.Report:
    return interposer.bridges.reports()[-1]


def threads():
    made = session()
    workers = [threading.Thread(target=lambda: [run(made) for _ in range(50)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(last().parts[0].counters()[0])


def sessions():
    made = [session() for _ in range(4)]
    made.pop(1)
    gc.collect()
    for each in made:
        run(each)
    others = []
    workers = [threading.Thread(target=lambda: others.append(session())) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(len(others), len(interposer.bridges.reports()))


def unregister():
    made = session()
    run(made)
    del made
    gc.collect()
    ort.unregister_execution_provider_library("Interposer")
    register()
    run(session())


def at_exit():
    made = session()
    atexit.register(lambda: print(run(made).shape))


def kept_until_the_end():
    made = session()
    run(made)
    sys.modules["kept"] = made


def exit_inside():
    made = session()
    run(made)
    sys.exit(3)


def io_binding():
    made, y = session(), ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 16), np.float32))
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("y", y)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), run(made))


def shapes():
    made = session(network("n"))
    for rows in (1, 5, 2, 5, 0):
        run(made, np.ones((rows, 16), np.float32))
    print(last().parts[0].is_dynamic)


def direct_shapes():
    made = session(network("n"))
    for rows in (1, 5, 2, 5, 1, 5, 2, *range(6, 20), 6, 19):
        run(made, np.full((rows, 16), rows, np.float32))
    runs, direct, _ = last().parts[0].counters()
    print(runs, direct)
    workers = [threading.Thread(target=_many_shapes, args=(made,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _many_shapes(made):
    for rows in range(1, 60):
        run(made, np.full((rows % 12, 16), rows, np.float32))


def new_shapes_beside_runs():
    made, is_done = session(network("n")), threading.Event()
    large = np.ones((20000, 16), np.float32)
    run(made, large)

    def until_done():
        while not is_done.is_set():
            made.run(None, {"x": large})

    workers = [threading.Thread(target=until_done, daemon=True) for _ in range(8)]
    for worker in workers:
        worker.start()
    for rows in (1, 2, 1, 2):
        run(made, np.full((rows, 16), rows, np.float32))
    is_done.set()
    for worker in workers:
        worker.join()
    print("done")


def unknown_option():
    try:
        session(backend="CpuRef")
    except Exception as error:
        print(str(error).partition("Interposer: ")[2])


def unknown_isolated_backend():
    try:
        session(isolate="Acme")
    except Exception as error:
        print(str(error).partition("Interposer: ")[2])


def asked_second():
    model = network()
    made = ort.InferenceSession(model, providers=["CPUExecutionProvider", ("InterposerExecutionProvider", {})])
    run(made)
    print({reason for node in last().refused for reason in node.reasons}, last().parts)


def undeclared_shape():
    model = onnx.load_from_string(network())
    model.graph.node.insert(0, helper.make_node("Reshape", ["flat", "shape"], ["x"], name="computed"))
    model.graph.value_info.append(model.graph.input.pop())
    model.graph.input.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [32]))
    model.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [2]))
    made = session(model.SerializeToString())
    right = {"flat": X.ravel(), "shape": np.array([2, 16])}
    made.run(None, right)
    try:
        made.run(None, right | {"shape": np.array([4, 8])})
    except Exception as error:
        print(type(error).__name__)
    print(made.run(None, right)[0].shape)


def unknown_backend():
    register("Acme")
    try:
        ort.InferenceSession(network(), _options_of("AcmeExecutionProvider"), enable_fallback=0)
    except Exception as error:
        print(str(error).partition("Interposer: ")[2])


def named_backend():
    register("CpuRef")
    run(ort.InferenceSession(network(), _options_of("CpuRefExecutionProvider")))
    print(last().backends)


def _options_of(provider):
    chosen = ort.SessionOptions()
    chosen.add_provider_for_devices(devices(provider), {})
    return chosen


def providers():
    chosen = [("InterposerExecutionProvider", {"backends": BACKENDS}), "CPUExecutionProvider"]
    made = ort.InferenceSession(network(), providers=chosen)
    run(made)
    print(made.get_providers()[0])


def parallel():
    chosen = ort.SessionOptions()
    chosen.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    chosen.add_provider_for_devices(devices(), {"backends": BACKENDS})
    run(ort.InferenceSession(network(), chosen))


def strict():
    try:
        session(_with_text_output(), strict="yes")
    except Exception as error:
        print("the option 'strict' is set" in str(error))


def _with_text_output():
    model = onnx.load_from_string(network())
    model.graph.node.append(helper.make_node("Cast", ["y"], ["t"], name="text", to=TensorProto.STRING))
    model.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, [2, 16]))
    return model.SerializeToString()


def failing_claim():
    models = [network(), network()]
    sys.modules["onnx"] = None  # an import of the package fails
    for model in models:
        run(session(model))
    print(len(interposer.bridges.reports()))
    try:
        session(models[0], strict="yes")
    except Exception as error:
        print("pip install" in str(error))


def option_of_unknown_backend():
    try:
        session(**{"options.CpuReff.Speed": "1"})
    except Exception as error:
        print(str(error).partition("Interposer: ")[2])


def texts():
    made = session(_with_text_output())
    y, t = made.run(None, {"x": X})
    print(y.shape, t.shape, [(node.name, node.reasons) for node in last().refused])


def explain_file():
    path = Path(tempfile.mkdtemp(), "report.txt")
    run(session(explain=str(path)))
    print(path.read_text().splitlines()[0].partition(" in ONNX")[0])


def forked():
    made = session()
    run(made)
    child = os.fork()
    if child == 0:
        run(made)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def killed_child():
    made = session(isolate=BACKENDS)
    run(made)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGSEGV)
    run(made)
    print(len(children) > 0)


def of_inputs() -> bytes:
    """Return a network whose matrices are both inputs, as `TinyBackend` has no kernel for constant weights."""
    model = onnx.load_from_string(network())
    del model.graph.initializer[:]
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [16, 16]))
    return model.SerializeToString()


def run_of_inputs(made: ort.InferenceSession) -> None:
    [y] = made.run(None, {"x": X, "w": WEIGHTS})
    np.testing.assert_allclose(y, np.maximum(X @ WEIGHTS, 0) @ WEIGHTS, rtol=1e-4)


def tiny_backend():
    interposer.process_registry().register("Tiny", TinyBackend)
    run_of_inputs(session(of_inputs(), backends="Tiny"))
    print(last().parts[0].backends, len(last().taken))


class OtherCopy:
    """The library of ONNX Runtime by its C interface; the module onnxruntime has another copy of it."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        base = self._library.OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(base()[0])(23)
        self._table = ctypes.cast(api, ctypes.POINTER(ctypes.c_void_p))
        self._environment, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._call(3, 4, b"copy", ctypes.byref(self._environment))  # CreateEnv
        self._call(301, self._environment, b"Interposer", interposer.bridges.library().encode())

    def _call(self, number: int, *arguments: object) -> None:
        function = ctypes.CFUNCTYPE(ctypes.c_void_p)(self._table[number])
        status = function(*(_word(argument) for argument in arguments))
        if status:
            text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(self._table[2])(status)
            raise RuntimeError(text.decode())

    def _release(self, number: int, pointer: ctypes.c_void_p) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._table[number])(pointer)

    def create_session(self, model: bytes, backends: str) -> None:
        options, found, count = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        self._call(10, ctypes.byref(options))  # CreateSessionOptions
        self._call(303, self._environment, ctypes.byref(found), ctypes.byref(count))  # GetEpDevices
        name = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(self._table[312])  # EpDevice_EpName
        own = [found[n] for n in range(count.value) if name(found[n]) == b"InterposerExecutionProvider"]
        keys, values = (ctypes.c_char_p * 1)(b"backends"), (ctypes.c_char_p * 1)(backends.encode())
        self._call(304, options, self._environment, (ctypes.c_void_p * 1)(*own), 1, keys, values, 1)
        self._call(8, self._environment, model, len(model), options, ctypes.byref(self._session))
        self._release(100, options)

    def run(self, x: np.ndarray) -> np.ndarray:
        memory, value, result = (ctypes.c_void_p() for _ in range(3))
        data = ctypes.c_void_p()
        self._call(69, 0, 0, ctypes.byref(memory))  # CreateCpuMemoryInfo
        shape = (ctypes.c_int64 * x.ndim)(*x.shape)
        self._call(49, memory, x.ctypes.data, x.nbytes, shape, x.ndim, 1, ctypes.byref(value))
        names = [(ctypes.c_char_p * 1)(name) for name in (b"x", b"y")]
        inputs = (ctypes.c_void_p * 1)(value.value)
        self._call(9, self._session, None, names[0], inputs, 1, names[1], 1, ctypes.byref(result))
        self._call(51, result, ctypes.byref(data))  # GetTensorMutableData
        y = np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), x.shape).copy()
        for number, pointer in ((96, result), (96, value), (94, memory)):
            self._release(number, pointer)
        return y

    def close(self) -> None:
        self._release(95, self._session)
        self._call(302, self._environment, b"Interposer")  # UnregisterExecutionProviderLibrary
        self._release(92, self._environment)


def _word(argument: object) -> object:
    return ctypes.c_size_t(argument) if isinstance(argument, int) else argument


class Failing(TinyBackend):
    id = "Failing"
    kernels = KernelTable()


@Failing.kernels(BatchMatMul, dtypes={DataType.FLOAT32})
def matmul(op, a, b, *, out):
    raise RuntimeError("the device is gone")


class Interrupted(TinyBackend):
    id = "Interrupted"
    kernels = KernelTable()
    signals = [signal.SIGINT]


@Interrupted.kernels(BatchMatMul, dtypes={DataType.FLOAT32})
def interrupted_matmul(op, a, b, *, out):
    while Interrupted.signals:
        os.kill(os.getpid(), Interrupted.signals.pop())
        for _ in range(1000):  # signal handlers run between these steps
            pass
    np.matmul(a, b, out=out)


def interrupted():
    interposer.process_registry().register("Interrupted", Interrupted)
    made = session(of_inputs(), backends="Interrupted")
    try:
        run_of_inputs(made)
    except KeyboardInterrupt as error:
        print(type(error).__name__, error.__context__)
    run_of_inputs(made)
    print(last().parts[0].events)


def exit_in_a_signal_handler():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    Interrupted.signals = [signal.SIGTERM]
    interposer.process_registry().register("Interrupted", Interrupted)
    run_of_inputs(session(of_inputs(), backends="Interrupted"))


class Asked(TinyBackend):
    id = "Asked"
    kernels = KernelTable()


def interrupt(op, info):
    os.kill(os.getpid(), signal.SIGINT)


@Asked.kernels(BatchMatMul, when=interrupt)
def matmul_of_asked(op, a, b, *, out):
    np.matmul(a, b, out=out)


def interrupted_while_asked():
    interposer.process_registry().register("Asked", Asked)
    try:
        session(of_inputs(), backends="Asked")
    except KeyboardInterrupt as error:
        print(type(error).__name__)


def two_copies():
    [path] = Path(ort.__file__).parent.glob("capi/libonnxruntime.so.*")
    copy = OtherCopy(str(path))
    made = session()
    copy.create_session(network(), BACKENDS)
    later = session()
    run(made)
    np.testing.assert_array_equal(copy.run(X), run(later))
    run(made)
    copy.close()
    run(later)
    made_reports = interposer.bridges.reports()
    print(len(made_reports), {part.counters()[0] for report in made_reports for part in report.parts})


def failing_backend():
    interposer.process_registry().register("Failing", Failing)
    made = session(of_inputs(), backends="Failing")
    run_of_inputs(made)
    run_of_inputs(made)
    print([event.partition(": ")[0] for part in last().parts for event in part.events])


def failing_only_backend():
    os.environ["INTERPOSER_DISABLED_BACKENDS"] = "CpuRef"
    interposer.process_registry().register("Failing", Failing)
    try:
        run_of_inputs(session(of_inputs(), backends="Failing"))
    except Exception as error:
        print(type(error).__name__, "the device is gone" in str(error))


def wrong_value():
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="rows")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16])]
    model = helper.make_model(
        helper.make_graph([node], "rows", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    made = session(model.SerializeToString())
    try:
        made.run(None, {"x": X, "i": np.array([9])})
    except Exception as error:
        print(type(error).__name__, "9" in str(error).partition("Interposer: ")[2])
    print(made.run(None, {"x": X, "i": np.array([1])})[0].shape)


def profiled():
    made = session()
    run(made)
    with interposer.profile() as profile:
        run(made)
    run(made)
    print(len(profile.layers()) > 0)


def from_program_without_files():
    chosen = ort.SessionOptions()
    chosen.add_provider_for_devices(devices(), {"backends": BACKENDS})
    chosen.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    run(ort.InferenceSession(network(), chosen))


def _body(name: str, nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*inputs, *outputs)}
    return helper.make_graph(nodes, name, [infos[name] for name in inputs], [infos[name] for name in outputs])


def control_flow():
    """Branches read a value of a group and a constant, and the body of the Scan reads no value around it."""
    product = _body("product", [helper.make_node("MatMul", ["1", "w"], ["then"])], [], ["then"])
    negative = _body("negative", [helper.make_node("Neg", ["1"], ["else"])], [], ["else"])
    added = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["1"], name="product"),
        helper.make_node("If", ["condition"], ["2"], then_branch=product, else_branch=negative),
        helper.make_node("MatMul", ["2", "w"], ["3"], name="second"),
        helper.make_node("Scan", ["zero", "3"], ["total", "y"], body=_body("sums", added, ["a", "b"], ["c", "d"]),
                         num_scan_inputs=1),
    ]  # fmt: skip
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 16]) for name in "xy"]
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    constants = [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(np.zeros(16, np.float32), "zero")]
    graph = helper.make_graph(nodes, "net", [infos[0], condition], infos[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    alone, made = ort.InferenceSession(content), session(content)
    for value in (True, False):
        feeds = {"x": X, "condition": np.array(value)}
        np.testing.assert_allclose(made.run(None, feeds)[0], alone.run(None, feeds)[0], rtol=1e-4)


def many_sessions():
    for _ in range(20):
        run(session())
    gc.collect()
    before = _resident()
    for _ in range(300):
        run(session())
    gc.collect()
    print(_resident() - before < 20 << 20)


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    register()
    globals()[sys.argv[1]]()
    sys.stdout.flush()
