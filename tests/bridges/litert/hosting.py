"""Interpreters of LiteRT with and without the delegate of Interposer; modules that import this one need both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate

import interposer as ip
from interposer.bridges import Report, reports
from interposer.bridges.files import library
from interposer.writers import tflite as writer

if not Path(library(check=False)).is_file():
    pytest.skip("the library of the bridges was not built", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT.parent / "shared" / "models"
FILES = sorted(MODELS.glob("*.tflite"))
HOSTS_OWN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def interpreter(source: bytes | Path, delegates: Sequence[Any] = (), **more: Any) -> Interpreter:
    """An interpreter without XNNPACK, which has its tensors allocated."""
    where = {"model_content": source} if isinstance(source, bytes) else {"model_path": str(source)}
    made = Interpreter(
        **where, experimental_delegates=list(delegates), experimental_op_resolver_type=HOSTS_OWN, num_threads=1, **more
    )
    made.allocate_tensors()
    return made


def delegate(**options: str) -> Any:
    """Return a delegate with these options; ``_`` in a name stands for ``-``."""
    return load_delegate(library(), {name.replace("_", "-"): text for name, text in options.items()})


def run(interpreter: Interpreter, feeds: Sequence[Any]) -> list[np.ndarray]:
    """Copies of the outputs for these inputs."""
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def random_feeds(interpreter: Interpreter, seed: int = 0) -> list[np.ndarray]:
    """Return an array for each input: numbers below 1, or small integers."""
    generator, feeds = np.random.default_rng(seed), []
    for detail in interpreter.get_input_details():
        shape, dtype = tuple(detail["shape"]), detail["dtype"]
        is_float = np.dtype(dtype).kind == "f"
        feeds.append((generator.random(shape) if is_float else generator.integers(0, 100, shape)).astype(dtype))
    return feeds


def last_report() -> Report:
    return reports()[-1]


@contextmanager
def registered(name: str, backend: Callable[[], Any]) -> Iterator[None]:
    """Register a backend in the process for the body of this context."""
    ip.process_registry().register(name, backend)
    try:
        yield
    finally:
        ip.process_registry().deregister(name)


def perceptron(widths: Sequence[int] = (8, 16, 16, 4), batch: int = 2, softmax: bool = True) -> bytes:
    """The file of a network of products, with a softmax in the middle, which the example backend does not have."""
    generator = np.random.default_rng(3)
    network = ip.Network("perceptron")
    x = network.add_input_layer(0, ip.TensorInfo((batch, widths[0])), name="x")
    for number, (rows, columns) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        weights = network.add_constant_layer(generator.random((rows, columns), np.float32) - 0.5, name=f"w{number}")
        x = network.add_batch_mat_mul_layer(x, weights, name=f"product{number}")
        if number == 1 and softmax:
            x = network.add_softmax_layer(x, name="softmax")
    network.add_output_layer(0, x, name="y")
    return writer.write(network)
