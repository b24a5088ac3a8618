"""The memory of the tensors between layers: CpuRef's arena, its lower bound, and the memory plans of other engines.

Nothing is fused: CpuRef's rewrites and all optimizations of ONNX Runtime are disabled, and LiteRT runs its reference
kernels without a delegate, which need no additional memory. Weights are not counted.

- CpuRef: `Model.memory()`, exact. Inputs and outputs are in the caller's memory and not in the arena.
- LiteRT: the range of addresses of all tensors except constants, exact except for alignment at both ends. Inputs and
  outputs are in its arena too. Therefore there is a second ratio, with CpuRef's inputs and outputs added. This is an
  upper bound, as an output could reuse memory of another tensor.
- ONNX Runtime: the block that its memory pattern requests from the arena at the beginning of the second run, according
  to its log, exact. The log comes from a child process whose arena grows by the requested size only. The block has
  neither inputs nor outputs, nor the scratch memory of kernels.

If the results of all three differ, the suite ends with an error. LiteRT uses NHWC and ONNX Runtime NCHW. CpuRef runs
both layouts, and each is compared with the engine of the same layout. Activations are separate layers, unlike in files
of LiteRT's converter. LiteRT does not compute them in place, which costs memory in the networks built here. The
quantized MobileNetV2 is a converter's file.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from designs import DESIGNS
from lite import has_litert, tflite_bytes

import interposer as ip
from interposer import DataLayout

QUANTIZED = "mobilenet_v2_1.0_224_quant.tflite"
ENOUGH = 1.05
"""The arena may be so many times as large as the lower bound."""

Figures = dict[str, Any]


def measure(folder: Path, repeat: int) -> dict[str, Figures]:
    """Return the bytes for each network, and print them in KiB with ratios; nothing varies, so each runs once."""
    print("\nmemory of the tensors between layers, KiB; in brackets, what CpuRef takes of what the peer takes")
    figures_of_engine: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as work_folder:
        path = folder / QUANTIZED
        if path.is_file():
            figures_of_engine["MobileNetV2, quantized"] = {"NHWC": _of_tflite(path)}
        else:
            print(f"  no {QUANTIZED} in {folder}")
        for name, design in DESIGNS.items():
            nhwc, nchw = design(DataLayout.NHWC), design(DataLayout.NCHW)
            lite = Path(work_folder, "network.tflite")
            if has_litert():
                lite.write_bytes(tflite_bytes(nhwc))
            figures_of_engine[name] = {
                "NHWC": _of_network(nhwc, lite),
                "NCHW": _of_network(nchw, Path(work_folder, "network.onnx")),
            }
    for name, layouts in figures_of_engine.items():
        for layout, figures in layouts.items():
            print(f"  {name:24} {layout}  {_line(figures)}")
    for name, absent in (("LiteRT", not has_litert()), ("ONNX Runtime", not _has_onnxruntime())):
        if absent:
            print(f"  {name} is not installed")
    return figures_of_engine


def _line(figures: Figures) -> str:
    ratio = figures["arena"] / figures["lower bound"]
    within = "within 5%" if ratio <= ENOUGH else "MORE THAN 5% ABOVE"
    text = f"arena {figures['arena'] / 1024:9.1f}  bound {figures['lower bound'] / 1024:9.1f}  {within} ({ratio:.3f})"
    if "LiteRT" in figures:
        theirs, border = figures["LiteRT"], figures["inputs and outputs"]
        text += f"  LiteRT       {theirs / 1024:9.1f} ({figures['arena'] / theirs:.3f}"
        text += f", with inputs and outputs {(figures['arena'] + border) / theirs:.3f})"
    if "ONNX Runtime" in figures:
        theirs = figures["ONNX Runtime"]
        text += f"  ONNX Runtime {theirs / 1024:9.1f} ({figures['arena'] / theirs:.3f})"
    return text


def _of_tflite(path: Path) -> Figures:
    model = _loaded(path)
    return _ours(model) | ({"LiteRT": _litert(path, None, None)} if has_litert() else {})


def _of_network(network: ip.Network, path: Path) -> Figures:
    """Return the figures of a network and of the file for the other engine; a file for ONNX Runtime is written here."""
    model = _loaded(network)
    figures = _ours(model)
    image = np.random.default_rng(0).standard_normal(model.inputs["image"].shape).astype(np.float32)
    if path.suffix == ".tflite" and has_litert():
        figures["LiteRT"] = _litert(path, image, model.run([image])[0])
    if path.suffix == ".onnx" and _has_onnxruntime():
        from interposer.writers import onnx  # noqa: PLC0415 - needs the onnx package

        onnx.save(network, path)
        figures["ONNX Runtime"] = _onnxruntime(path, image, model.run([image])[0])
    return figures


def _loaded(source: ip.Network | Path) -> ip.Model:
    return ip.load(source, ["CpuRef"], options=ip.OptimizerOptions(rewrite=False))


def _ours(model: ip.Model) -> Figures:
    report = model.memory()
    border = [*model.inputs.values(), *(info for info in model.outputs.values() if info is not None)]
    return {
        "arena": report.arenas["CpuRef"],
        "lower bound": report.lower_bounds["CpuRef"],
        "inputs and outputs": sum(int(info.num_bytes) for info in border),
    }


def _check(peer: str, actual: Any, ours: Any) -> None:
    if not np.allclose(actual, ours, rtol=1e-3, atol=1e-3 * float(np.abs(ours).max())):
        raise RuntimeError(f"{peer} and CpuRef do not give the same; the networks are not the same")


# --- LiteRT -----------------------------------------------------------------------------------------------------------


def _litert(path: Path, image: Any, ours: Any) -> int:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - only where it is installed

    kind = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_path=str(path), num_threads=1, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    inputs = [get_input_detail["index"] for get_input_detail in interpreter.get_input_details()]
    if image is not None:
        interpreter.set_tensor(inputs[0], image)
        interpreter.invoke()
        _check("LiteRT", interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), ours)
    written = [number for get_ops_detail in interpreter._get_ops_details() for number in get_ops_detail["outputs"]]
    places = [_place(interpreter.tensor(number)()) for number in {*inputs, *map(int, written)}]
    return max(end for _, end in places) - min(start for start, _ in places)


def _place(array: Any) -> tuple[int, int]:
    start = int(array.__array_interface__["data"][0])
    return start, start + int(array.nbytes)


# --- ONNX Runtime -----------------------------------------------------------------------------------------------------


def _has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def _onnxruntime(path: Path, image: Any, ours: Any) -> int:
    input_path, output_path = path.with_name("image.npy"), path.with_name("found.npy")
    np.save(input_path, image)
    words = [sys.executable, __file__, str(path), str(input_path), str(output_path)]
    completed = subprocess.run(words, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise RuntimeError(f"ONNX Runtime failed:\n{completed.stderr[-2000:]}")
    _check("ONNX Runtime", np.load(output_path), ours)
    asked = re.search(r"num_bytes: (\d+)", completed.stderr.rpartition("SECOND RUN")[2])
    if asked is None:
        raise RuntimeError("the log of ONNX Runtime says nothing of the memory that it asks for")
    return int(asked[1])


def _run_onnxruntime(path: str, value: str, text: str) -> None:
    """Run the network twice, in the child process; the second run uses the memory pattern of the first."""
    import onnxruntime as ort  # noqa: PLC0415 - only where it is installed

    ort.set_default_logger_severity(0)
    as_asked = ort.OrtArenaCfg({"arena_extend_strategy": 1})
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(memory, as_asked)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    shrink = ort.RunOptions()
    shrink.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: np.load(value)}
    np.save(text, session.run(None, feeds, shrink)[0])
    print("SECOND RUN", file=sys.stderr, flush=True)
    session.run(None, feeds, shrink)


if __name__ == "__main__":
    _run_onnxruntime(*sys.argv[1:])
