"""The other engines, each through its own Python API, as its documentation recommends for low latency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.telemetry import without_openvino_telemetry

from .engine import Arrays, Call, Engine

__all__ = ["LiteRT", "OnnxRuntime", "OpenVINO", "Tinygrad"]

CACHED: Final = "optimized.onnx"
EXACT: Final = ("session.qdq_matmulnbits_accuracy_level", "1")
"""By default, products with weights of 4 bits round the other operand to 8 bits."""


class OnnxRuntime(Engine):
    """ONNX Runtime on its CPU provider; the cache holds the optimized graph."""

    name = "ONNX Runtime"
    packages = ("onnxruntime",)

    def begin(self) -> None:
        import onnxruntime  # noqa: PLC0415 - in the engine's process only

        self._ort = onnxruntime

    def load(self, path: Path, threads: int, cache: Path) -> None:
        options = self._ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry(*EXACT)
        optimized_file = cache / CACHED
        if optimized_file.exists():
            options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            path = optimized_file
        self._session = self._ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def keep(self, path: Path, threads: int, cache: Path) -> None:
        options = self._ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry(*EXACT)
        options.optimized_model_filepath = str(cache / CACHED)
        self._ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def feed(self, inputs: Arrays) -> None:
        names = [get_input.name for get_input in self._session.get_inputs()]
        self._feeds = dict(zip(names, inputs, strict=True))

    def ways(self) -> Mapping[str, Call]:
        bound: list[Any] = []

        def run() -> None:
            self._outputs = self._session.run(None, self._feeds)

        def run_bound() -> None:
            if not bound:
                bound.append(self._binding())
            self._session.run_with_iobinding(bound[0])

        return {"run": run, "run_with_iobinding": run_bound}

    def _binding(self) -> Any:
        binding = self._session.io_binding()
        for name, array in self._feeds.items():
            binding.bind_cpu_input(name, array)
        values = [self._ort.OrtValue.ortvalue_from_numpy(output) for output in self._outputs]
        for get_output, value in zip(self._session.get_outputs(), values, strict=True):
            binding.bind_ortvalue_output(get_output.name, value)
        self._outputs = values
        return binding

    def outputs(self) -> Arrays:
        return [output if isinstance(output, np.ndarray) else output.numpy() for output in self._outputs]

    def version(self) -> str:
        return str(self._ort.__version__)


class OpenVINO(Engine):
    """OpenVINO on the CPU, with an inference request on the caller's memory, and float32 if the network has it."""

    name = "OpenVINO"
    formats = (".onnx", ".tflite")
    packages = ("openvino",)

    def begin(self) -> None:
        with without_openvino_telemetry():
            import openvino  # noqa: PLC0415 - in the engine's process only

        self._openvino = openvino
        self._core = openvino.Core()

    def load(self, path: Path, threads: int, cache: Path) -> None:
        cache_settings = {"CACHE_DIR": str(cache)} if any(cache.iterdir()) else {}
        self._compiled = self._core.compile_model(str(path), "CPU", self._config(threads) | cache_settings)

    def keep(self, path: Path, threads: int, cache: Path) -> None:
        self._core.compile_model(str(path), "CPU", self._config(threads) | {"CACHE_DIR": str(cache)})

    @staticmethod
    def _config(threads: int) -> dict[str, Any]:
        return {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }

    def feed(self, inputs: Arrays) -> None:
        self._plain, self._placed = (self._compiled.create_infer_request() for _ in range(2))
        self._last = self._plain
        self._inputs = list(inputs)
        for number, array in enumerate(inputs):
            self._placed.set_input_tensor(number, self._openvino.Tensor(array, shared_memory=True))

    def ways(self) -> Mapping[str, Call]:
        def infer() -> None:
            self._last = self._plain
            self._plain.infer(self._inputs)

        def infer_placed() -> None:
            self._last = self._placed
            self._placed.infer()

        return {"infer": infer, "infer in place": infer_placed}

    def outputs(self) -> Arrays:
        return [self._last.get_output_tensor(n).data.copy() for n in range(len(self._compiled.outputs))]

    def version(self) -> str:
        return str(self._openvino.__version__).partition("-")[0]


class LiteRT(Engine):
    """LiteRT's interpreter with XNNPACK, which it uses by default."""

    name = "LiteRT"
    formats = (".tflite",)
    packages = ("ai_edge_litert",)

    def begin(self) -> None:
        from ai_edge_litert import interpreter  # noqa: PLC0415 - in the engine's process only

        self._interpreters = interpreter

    def load(self, path: Path, threads: int, cache: Path) -> None:
        self._interpreter = self._interpreters.Interpreter(model_path=str(path), num_threads=threads)
        self._interpreter.allocate_tensors()

    def feed(self, inputs: Arrays) -> None:
        indices = [get_input_detail["index"] for get_input_detail in self._interpreter.get_input_details()]
        self._inputs = list(zip(indices, inputs, strict=True))
        for index, array in self._inputs:
            self._interpreter.set_tensor(index, array)
        self._results = [get_output_detail["index"] for get_output_detail in self._interpreter.get_output_details()]

    def ways(self) -> Mapping[str, Call]:
        def run() -> None:
            for index, array in self._inputs:
                self._interpreter.set_tensor(index, array)
            self._interpreter.invoke()
            self.outputs()

        return {"set_tensor, invoke, get_tensor": run, "invoke in place": self._interpreter.invoke}

    def outputs(self) -> Arrays:
        return [self._interpreter.get_tensor(index) for index in self._results]

    def version(self) -> str:
        from importlib.metadata import version  # noqa: PLC0415 - the package does not say it itself

        return version("ai-edge-litert")


class Tinygrad(Engine):
    """tinygrad on its OpenCL device, with the kernels of a run recorded and called together."""

    name = "tinygrad"
    packages = ("tinygrad",)

    def environment(self, threads: int, cache: Path) -> Mapping[str, str]:
        return {"DEV": "CL", "CACHEDB": str(cache / "tinygrad.db"), "POCL_MAX_PTHREAD_COUNT": str(threads)}

    def begin(self) -> None:
        import tinygrad  # noqa: PLC0415 - in the engine's process only
        from tinygrad.nn import onnx  # noqa: PLC0415

        self._tinygrad, self._onnx = tinygrad, onnx

    def load(self, path: Path, threads: int, cache: Path) -> None:
        network = self._onnx.OnnxRunner(path)
        self._names = list(network.graph_inputs)
        self._recorded = self._tinygrad.TinyJit(
            lambda **inputs: [output.realize() for output in network(inputs).values()]
        )

    def feed(self, inputs: Arrays) -> None:
        self._inputs = dict(zip(self._names, inputs, strict=True))

    def ways(self) -> Mapping[str, Call]:
        def run() -> None:
            inputs = {name: self._tinygrad.Tensor(array).realize() for name, array in self._inputs.items()}
            self._outputs = [output.numpy() for output in self._recorded(**inputs)]

        return {"TinyJit": run}

    def outputs(self) -> Arrays:
        return self._outputs

    def version(self) -> str:
        from importlib.metadata import version  # noqa: PLC0415 - the package does not say it itself

        return version("tinygrad")
