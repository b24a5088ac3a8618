"""What plain calls of tiny networks cost on Interposer and on the other engines, from one thread and from two.

A plain call takes arrays and returns new ones: `Model.run`, `session.run`, `infer`, and `set_tensor`, `invoke` and
`get_tensor`. All engines compute with one thread. For a second calling thread, LiteRT gets another interpreter and
OpenVINO another inference request, because they cannot be shared.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from benchmarks.engines import PEERS, engine
from benchmarks.engines.cases import FORMATS, Case, prepare

NETWORKS: Final = ("tiny_autoencoder", "tiny_keywords", "tiny_autoencoder_qdq", "tiny_keywords_qdq")
MODELS: Final = ("ad01_int8.tflite", "kws_ref_model.tflite")
"""Files that are measured if the folder of models has them."""
SECONDS: Final = 0.1
"""How long the calls of one round take."""
CACHE: Final = Path(__file__).parent / ".cache"

Call = Callable[[], Any]


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return microseconds of one call and calls in a second by threads, for each network; print both."""
    names = [*NETWORKS, *(name for name in MODELS if (folder / name).exists())]
    cases = {name: prepare(name, 1, folder, CACHE, FORMATS) for name in names}
    return {name: _of_network(case, repeat) for name, case in cases.items()}


def _of_network(case: Case, repeat: int) -> dict[str, float]:
    inputs = list(np.load(case.inputs).values())
    with _interposer(case.path) as model:
        forms = _forms(model, inputs)
        makers: dict[str, Callable[[], Call]] = {"Interposer": lambda: forms["Interposer: run, a list"]}
        makers |= _peers(case, inputs)
        calls = forms | {f"{name}: a plain call": maker() for name, maker in makers.items() if name != "Interposer"}
        medians = _medians(calls, repeat)
        rates = _rates(makers, repeat)
    print(f"\nplain calls of {case.title}, one thread, microseconds")
    for name, value in medians.items():
        print(f"  {name:40} {value:8.2f}")
    for name in makers:
        single, double = rates[f"{name}, 1 threads"], rates[f"{name}, 2 threads"]
        print(f"  {name:24} 1 thread {single:9.0f} calls a second   2 threads {double:9.0f} ({double / single:.2f} x)")
    return medians | rates


@contextmanager
def _interposer(path: Path) -> Iterator[ip.Model]:
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": 1}})
    with ip.Runtime(ip.CreationOptions(num_threads=1)) as runtime:
        yield ip.load(path, ["CpuAcc"], runtime=runtime, options=options)


def _forms(model: ip.Model, inputs: list[Any]) -> dict[str, Call]:
    """Return the forms of a plain call, and a bound one."""
    by_name = dict(zip(model.inputs, inputs, strict=True))
    outputs = model.run(inputs)
    bound = model.bind(inputs)
    return {
        "Interposer: run, a list": lambda: model.run(inputs),
        "Interposer: run, a mapping": lambda: model.run(by_name),
        "Interposer: run, given outputs": lambda: model.run(inputs, outputs),
        "Interposer: the model itself": lambda: model(by_name),
        "Interposer: bound": bound,
    }


def _peers(case: Case, inputs: list[Any]) -> dict[str, Callable[[], Call]]:
    """Return functions that make a plain call for one thread, by the names of the engines that are installed."""

    def maker(name: str) -> Callable[[], Call]:
        path = case.file(engine(name).formats)
        assert path is not None
        return lambda: _plain_call(name, path, inputs)

    usable = [name for name in PEERS if not engine(name).absent() and case.file(engine(name).formats)]
    return {name: maker(name) for name in usable}


def _plain_call(name: str, path: Path, inputs: list[Any]) -> Call:
    loaded = engine(name)
    loaded.begin()
    with tempfile.TemporaryDirectory() as empty:
        loaded.load(path, 1, Path(empty))
    loaded.feed(inputs)
    return next(iter(loaded.ways().values()))


# --- times ------------------------------------------------------------------------------------------------------------


def _medians(calls: Mapping[str, Call], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            times[name].append(1e6 / _calls_a_second([call]))
    return {name: statistics.median(values) for name, values in times.items()}


def _rates(makers: Mapping[str, Callable[[], Call]], repeat: int) -> dict[str, float]:
    """Return the calls in a second of one and two threads."""
    calls = {name: [maker(), maker()] for name, maker in makers.items()}
    rates: dict[str, list[float]] = {f"{name}, {count} threads": [] for name in makers for count in (1, 2)}
    for _ in range(repeat):
        for row, values in rates.items():
            name, _, count = row.partition(", ")
            values.append(_calls_a_second(calls[name][: int(count[0])]))
    return {row: statistics.median(values) for row, values in rates.items()}


def _calls_a_second(calls: list[Call]) -> float:
    """Return how often these functions return in a second, each in a thread of its own."""
    counts = [0] * len(calls)
    started = threading.Barrier(len(calls))

    def work(number: int, call: Call) -> None:
        started.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for _ in range(10):
                call()
            counts[number] += 10

    workers = [threading.Thread(target=work, args=number_and_call) for number_and_call in enumerate(calls)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - begun)
