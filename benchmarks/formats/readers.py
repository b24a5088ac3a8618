"""The programs that read the files: Interposer, OpenVINO, TensorFlow and OpenCV's dnn module."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import interposer
from benchmarks.formats.architectures import Array
from benchmarks.formats.tensorflow_files import OUTPUT
from interposer.core.telemetry import without_openvino_telemetry

__all__ = ["Reader", "Runner", "readers"]

Runner = Callable[[Array], Array]
"""A function that runs a network on an image in the layout of the file and returns the first result."""
Reader = Callable[[Path, int], Runner]
"""A function that loads a file for a number of threads."""


def readers(kind: str) -> Iterator[tuple[str, Reader]]:
    """Yield the names of the installed readers of a kind of file, and the functions that load one."""
    yield "CpuAcc", _ours
    if kind.startswith("caffe"):
        if importlib.util.find_spec("cv2"):
            yield "OpenCV", _opencv
        return
    if importlib.util.find_spec("openvino"):
        yield "OpenVINO", _openvino
    if kind == "frozen graph" and importlib.util.find_spec("tensorflow"):
        yield "TensorFlow", _tensorflow


def _ours(path: Path, threads: int) -> Runner:
    options = interposer.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    model = interposer.load(path, ["CpuAcc", "CpuRef"], options=options)
    return lambda image: np.asarray(model.run([image])[0])


def _openvino(path: Path, threads: int) -> Runner:
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - only where it is installed

    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", config)
    request = compiled.create_infer_request()

    def run(image: Array) -> Array:
        results = request.infer([image], share_inputs=True, share_outputs=True)
        return np.asarray(results[compiled.outputs[0]])

    return run


def _tensorflow(path: Path, threads: int) -> Runner:
    import tensorflow  # noqa: PLC0415 - only where it is installed

    v1 = tensorflow.compat.v1
    definition = v1.GraphDef.FromString(path.read_bytes())
    graph = tensorflow.Graph()
    with graph.as_default():
        tensorflow.import_graph_def(definition, name="")
    config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1)
    session = v1.Session(graph=graph, config=config)
    run = session.make_callable(f"{OUTPUT}:0", feed_list=["image:0"])
    return lambda image: np.asarray(run(image))


def _opencv(path: Path, threads: int) -> Runner:
    import cv2  # noqa: PLC0415 - only where it is installed

    cv2.setNumThreads(threads)
    net = cv2.dnn.readNetFromCaffe(str(path.with_suffix(".prototxt")), str(path.with_suffix(".caffemodel")))
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)

    def run(image: Array) -> Array:
        net.setInput(image)
        return np.asarray(net.forward())

    return run
