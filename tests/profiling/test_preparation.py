"""What a recorded run does not contain: the preparation of the recording."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Network, Runtime, TensorInfo
from interposer.backend import (
    Backend,
    KernelTable,
    KernelWorkloadFactory,
    MemoryManager,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer
from interposer.ops import Addition
from interposer.profiling import Category, Interval, Profile
from tests.isolating import needs_linux

X = np.ones((2, 3), np.float32)
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
additions = KernelTable()


@additions(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    np.add(a, b, out=out)


class Preparing(Workload):
    """Adds one to the sums that another workload computes for each time that it was asked to prepare a recording."""

    def __init__(self, inner: Workload) -> None:
        self._inner = inner
        self.prepared: list[int] = []

    def prepare_recording(self) -> None:
        self.prepared.append(perf_counter_ns())

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        self._inner.execute(inputs, outputs)
        [output] = outputs
        array = output.map()
        array += len(self.prepared)
        output.unmap()


class PreparingFactory(KernelWorkloadFactory):
    workloads: ClassVar[list[Preparing]] = []

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        self.workloads.append(Preparing(super().create_workload(layer, info)))
        return self.workloads[-1]


class Prepared(Backend):
    id: ClassVar = "Prepared"
    kernels: ClassVar = additions

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Any) -> WorkloadFactory:
        return PreparingFactory(self.kernels, memory_manager)


def doubled() -> Network:
    network = Network("doubled")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    return network


def runtime_with_prepared(isolate: tuple[str, ...] = ()) -> Runtime:
    PreparingFactory.workloads.clear()
    runtime = Runtime(CreationOptions(isolate=isolate))
    runtime.registry.register("Prepared", Prepared)
    return runtime


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with runtime_with_prepared() as new_runtime:
        yield new_runtime


def of(profile: Profile, category: Category) -> list[Interval]:
    return [interval for interval in profile.recording.intervals if interval.site.category is category]


def test_a_workload_prepares_a_recording_before_the_run_begins(runtime: Runtime) -> None:
    model = ip.load(doubled(), ["Prepared"], runtime=runtime)
    model.run([X])
    [workload] = PreparingFactory.workloads
    assert workload.prepared == []
    with ip.profile() as profile:
        model.run([X])
        model.run([X])
    begins = [interval.begin for interval in of(profile, Category.RUN)]
    first, second = workload.prepared
    assert first <= begins[0] <= second <= begins[1]


def test_a_preparation_that_fails_is_logged_and_the_run_goes_on(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Preparing) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(Preparing, "prepare_recording", fail)
    model = ip.load(doubled(), ["Prepared"], runtime=runtime)
    with ip.profile() as profile:
        assert model.run([X])[0].max() == 2
    assert len(of(profile, Category.RUN)) == 1
    assert caplog.messages == ["a workload cannot prepare a recording: ValueError: no room"]


def test_a_bound_run_prepares_a_recording_too(runtime: Runtime) -> None:
    with ip.load(doubled(), ["Prepared"], runtime=runtime) as model, model.bind([X]) as bound:
        with ip.profile() as profile:
            bound()
        [workload] = PreparingFactory.workloads
        [run] = of(profile, Category.RUN)
        [prepared] = workload.prepared
        assert prepared <= run.begin


def test_a_run_of_a_thread_that_is_not_recorded_prepares_nothing(runtime: Runtime) -> None:
    model = ip.load(doubled(), ["Prepared"], runtime=runtime)
    with Profile().of_this_thread():
        other_thread = threading.Thread(target=model.run, args=([X],))
        other_thread.start()
        other_thread.join()
    [workload] = PreparingFactory.workloads
    assert workload.prepared == []


@needs_linux
def test_a_child_process_prepares_a_recording_before_its_layers() -> None:
    with runtime_with_prepared(("Prepared",)) as runtime:
        model = ip.load(doubled(), ["Prepared"], runtime=runtime)
        assert model.run([X])[0].max() == 2
        with ip.profile():
            assert model.run([X])[0].max() == 3
        assert model.run([X])[0].max() == 3


@pytest.mark.parametrize(("engine", "executable"), [("OnnxRuntime", "_Session"), ("OpenVino", "_Compiled")])
def test_an_engine_compiles_for_a_recording_before_the_run_begins(
    engine: str, executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_at = []
    kind = getattr(import_module(f"interposer.backends.engines.{engine.lower()}"), executable)
    begin_measuring = kind.begin_measuring

    def noting(self: Any, examples: Any) -> None:
        begin_measuring(self, examples)
        compiled_at.append(perf_counter_ns())

    with Runtime() as runtime:
        reason = runtime.registry.reason_absent(engine)
        if reason is not None:
            pytest.skip(f"needs {engine}: {reason}")
        model = ip.load(DIGITS, [engine], runtime=runtime)
        monkeypatch.setattr(kind, "begin_measuring", noting)
        with ip.profile() as profile:
            model.run([np.ones((1, 1, 8, 8), np.float32)])
    [moment] = compiled_at
    [layer] = of(profile, Category.LAYER)
    assert moment <= layer.begin
    assert of(profile, Category.KERNEL)


@pytest.mark.usefixtures("cpuacc")
def test_a_model_from_the_cache_is_profiled_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    file, image = tmp_path / "digits.onnx", np.ones((1, 1, 8, 8), np.float32)
    shutil.copyfile(DIGITS, file)
    known = []
    for _ in range(2):
        with Runtime() as runtime:
            profile, model = Profile(), ip.load(file, ["CpuAcc"], runtime=runtime)
            if known:
                file.unlink()
            model.run([image], profile=profile)
            known.append([(layer.name, layer.site.layers, layer.site.flops) for layer in profile.layers()])
    assert known[0] == known[1]
    assert known[1][0][2]
