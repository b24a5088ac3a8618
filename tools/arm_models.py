"""What tools/arm.py runs under emulation.

    check              # each model with golden outputs: quantized ones bit for bit, others to the last digits
    count ENGINE       # one inference of each model and kernel between two marks of the counting emulator
    count ENGINE FILE...   # the same of these ONNX files, which tools/arm.py has written
    networks COUNT     # random networks on CpuAcc, beside the reference

Engines are interposer, litert, onnxruntime, openvino and armnn, on one thread.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.telemetry import without_openvino_telemetry

MODELS: Final = Path(__file__).resolve().parents[2] / "shared" / "models"
MARK: Final = 424242
"""The number of the system call that marks a region for native/arm/count.c."""
REPEATS: Final = 3
FLOATS: Final = ("ad01_fp32", "pretrainedResnet", "vww_96_float")
DYNAMIC_RANGE: Final = "kws_ref_model_float32"
"""TFLite quantizes activations of this model on the fly; here its weights are dequantized."""

EXACT_PRODUCTS: Final = ("session.qdq_matmulnbits_accuracy_level", "1")
"""By default, ONNX Runtime rounds the other operand of products with weights of 4 bits to 8 bits. CpuAcc does not."""

LITE_ONLY: Final = ("litert", "armnn")
"""Engines that read TensorFlow Lite files, but no ONNX."""

Call = Callable[[], Any]


def main(command: str, argument: str = "", *files: str) -> int:
    """Run a command of the module docstring, and return its exit status."""
    if command == "networks":
        return _networks(int(argument))
    return _check() if command == "check" else _count(argument, [Path(file) for file in files])


def _check() -> int:
    if not MODELS.is_dir():
        print(f"no models in {MODELS.parent.name}/{MODELS.name}: they are not checked")
        return 0
    wrong = [name for name in _names() if not _agrees(name)]
    print(f"{len(_names()) - len(wrong)} of {len(_names())} models agree with their golden outputs")
    if wrong:
        print(f"others do not: {', '.join(wrong)}")
    return int(bool(wrong))


def _names() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.tflite"))


def _agrees(name: str) -> bool:
    import interposer  # noqa: PLC0415

    model = interposer.load(MODELS / f"{name}.tflite", backends=["CpuAcc", "CpuRef"])
    with np.load(MODELS / f"{name}.golden.npz") as golden:
        cases = range(sum(key.endswith("_input0") for key in golden.files))
        return all(
            _is_close(name, _only(model.run([golden[f"case{n}_input0"]])), golden[f"case{n}_output0_reference"])
            for n in cases
        )


def _only(results: Any) -> np.ndarray:
    return np.asarray(next(iter(results.values())) if hasattr(results, "values") else results[0])


def _is_close(name: str, result: np.ndarray, expected: np.ndarray) -> bool:
    if name == DYNAMIC_RANGE:
        return bool(np.allclose(result, expected, rtol=0, atol=0.01))
    if name in FLOATS:
        return bool(np.allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max()))
    return bool(np.array_equal(result, expected))


def _networks(count: int) -> int:
    from interposer.testing import campaign  # noqa: PLC0415

    report = campaign("CpuAcc", count, seed=2, jobs=1, shrink=0, seconds=300)
    print(report)
    return int(not report.ok)


# ---- Counting -------------------------------------------------------------------------------------------------------


def _count(engine: str, files: Sequence[Path]) -> int:
    first: Call | None = None
    for number, (name, call) in enumerate(_calls_of_files(engine, files) if files else _calls(engine)):
        print(f"NAME {name}", flush=True)
        _count_calls(number, call)
        first = first or call
    if first is not None:  # threads that begin with the process may have run beside the first model
        _count_calls(0, first)
    return 0


def _count_calls(number: int, call: Call) -> None:
    mark = ctypes.CDLL(None).syscall
    call()
    gc.disable()
    for _ in range(REPEATS):
        mark(MARK, 1, number)
        call()
        mark(MARK, 2, number)
    gc.enable()


def _calls(engine: str) -> Iterator[tuple[str, Call]]:
    """Yield the name of each model and kernel, and a function that runs it once."""
    if engine != "onnxruntime":
        for name in _names():
            yield name, PREPARE[engine](str(MODELS / f"{name}.tflite"), [_input_of(name)])
    if engine in LITE_ONLY:
        return
    import arm_kernels  # noqa: PLC0415

    for name, model, inputs in arm_kernels.models():
        yield name, PREPARE[engine](model, inputs)


def _calls_of_files(engine: str, files: Sequence[Path]) -> Iterator[tuple[str, Call]]:
    """Yield the name of each network that the engine can read, and a function that runs it once."""
    for path in files:
        file = path.with_suffix(".tflite") if engine in LITE_ONLY else path
        if file.exists():
            with np.load(path.with_suffix(".inputs.npz")) as arrays:
                inputs = list(arrays.values())
            yield path.stem.split("-")[0], PREPARE[engine](str(file), inputs)


def _input_of(name: str) -> np.ndarray:
    with np.load(MODELS / f"{name}.golden.npz") as golden:
        return np.asarray(golden["case0_input0"])


def _interposer(model: Any, inputs: list[np.ndarray]) -> Call:
    import interposer  # noqa: PLC0415

    loaded = interposer.load(model, backends=["CpuAcc", "CpuRef"])
    return lambda: loaded.run(inputs)


def _litert(model: Any, inputs: list[np.ndarray]) -> Call:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415

    interpreter = Interpreter(model, num_threads=1)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> list[Any]:
        for place, array in zip(places, inputs, strict=True):
            interpreter.set_tensor(place, array)
        interpreter.invoke()
        return [interpreter.get_tensor(place) for place in outputs]

    return run


def _onnxruntime(model: Any, inputs: list[np.ndarray]) -> Call:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry(*EXACT_PRODUCTS)
    read = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(read, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([each.name for each in session.get_inputs()], inputs, strict=True))
    return lambda: session.run(None, feeds)


def _openvino(model: Any, inputs: list[np.ndarray]) -> Call:
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415

    core = openvino.Core()
    read = model if isinstance(model, str) else core.read_model(model.SerializeToString())
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return lambda: request.infer(inputs)


def _armnn(model: Any, inputs: list[np.ndarray]) -> Call:
    import pyarmnn  # noqa: PLC0415

    options, cpu = pyarmnn.OptimizerOptions(), pyarmnn.BackendOptions(pyarmnn.BackendId("CpuAcc"))
    cpu.AddOption(pyarmnn.BackendOption("NumberOfThreads", 1))
    options.m_ModelOptions = [cpu]
    parser, runtime = pyarmnn.ITfLiteParser(), pyarmnn.IRuntime(pyarmnn.CreationOptions())
    network = parser.CreateNetworkFromBinaryFile(model)
    optimized, _ = pyarmnn.Optimize(network, [pyarmnn.BackendId("CpuAcc")], runtime.GetDeviceSpec(), options)
    number, _ = runtime.LoadNetwork(optimized)
    sources = [parser.GetNetworkInputBindingInfo(0, name) for name in parser.GetSubgraphInputTensorNames(0)]
    results = [parser.GetNetworkOutputBindingInfo(0, name) for name in parser.GetSubgraphOutputTensorNames(0)]
    outputs = pyarmnn.make_output_tensors(results)

    def run() -> list[Any]:
        runtime.EnqueueWorkload(number, pyarmnn.make_input_tensors(sources, inputs), outputs)
        return list(pyarmnn.workload_tensors_to_ndarray(outputs))

    return run


PREPARE: Final[dict[str, Callable[[Any, list[np.ndarray]], Call]]] = {
    "interposer": _interposer,
    "litert": _litert,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "armnn": _armnn,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
