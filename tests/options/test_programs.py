"""Options of the Python interface with values that cannot be meant are refused with a sentence that names them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.analysis.bench import bench
from interposer.analysis.compare import compare
from interposer.batch import Predictor
from interposer.core.errors import InterposerError
from interposer.serving.options import ServeOptions
from interposer.session.placement import place

pytestmark = pytest.mark.needs_cpuref
X = np.ones((1, 4), np.float32)


def network() -> ip.Network:
    network = ip.Network("net")
    x = network.add_input_layer(0, ip.TensorInfo((1, 4)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return network


def model() -> ip.Model:
    return ip.load(network(), ["CpuRef"])


def on_runtime(call: Callable[[ip.Runtime, int], object]) -> None:
    with ip.Runtime() as runtime:
        call(runtime, runtime.load_network(ip.optimize(network(), ["CpuRef"], runtime.device_spec)))


def compared_with_torch(**options: Any) -> None:
    if ip.default_runtime().registry.reason_absent("Torch") is not None:
        pytest.skip("there is no second backend")
    compare(network(), ["CpuRef", "Torch"], **options)


REFUSED: list[tuple[str, str, Callable[[], object], str]] = [
    ("load", "weights", lambda: ip.load(network(), ["CpuRef"], weights=b""), "weights= is for Caffe networks"),
    ("load", "subgraph", lambda: ip.load(network(), ["CpuRef"], subgraph=1), "subgraph= is for TFLite files"),
    ("load", "format", lambda: ip.load(network(), ["CpuRef"], format="onnx"), "is no model of format 'onnx'"),
    (
        "load",
        "options",
        lambda: ip.load(network(), ["CpuRef"], options=ip.OptimizerOptions(model_options={"Torch": {"threads": 1}})),
        "model_options has options for backend 'Torch', which is not one of the backends that were given",
    ),
    ("optimize", "backends", lambda: ip.optimize(network(), ["CpuReff"]), "unknown backend 'CpuReff'; did you mean"),
    ("optimize", "device_spec", lambda: ip.optimize(network(), None, 3), "the device spec must be a DeviceSpec"),  # type: ignore[arg-type]
    (
        "OptimizerOptions",
        "budget_seconds",
        lambda: ip.load(network(), ["CpuRef"], options=ip.OptimizerOptions(budget_seconds=2)),
        "budget_seconds is the time limit of a measured placement",
    ),
    (
        "OptimizerOptions",
        "placement",
        lambda: ip.optimize(network(), ["CpuRef"], options=ip.OptimizerOptions(placement="measured")),
        "placement: only interposer.load measures which placement is fastest",
    ),
    *(
        (
            "OptimizerOptions",
            name,
            lambda name=name: ip.OptimizerOptions(**{name: "yes"}),
            f"{name} must be True or False, not 'yes'",
        )
        for name in ("debug", "rewrite", "compute_in_integers", "round_activations", "reduce_fp32_to_fp16")
    ),
    ("quantize", "data", lambda: ip.quantize(network(), None), "there is no calibration data"),
    ("quantize", "observer", lambda: ip.quantize(network(), [[X]], observer="most"), "unknown observer 'most'"),
    (
        "quantize",
        "percentile",
        lambda: ip.quantize(network(), [[X]], percentile=99.0),
        "percentile is for the observer",
    ),
    ("quantize", "block_size", lambda: ip.quantize(network(), [[X]], block_size=16), "block_size is for the scheme"),
    ("quantize", "equalize", lambda: ip.quantize(network(), [[X]], equalize=3), "equalize must be True or False"),  # type: ignore[arg-type]
    ("quantize", "target", lambda: ip.quantize(network(), [[X]], target="x"), "target must be a number"),  # type: ignore[arg-type]
    ("quantize", "progress", lambda: ip.quantize(network(), [[X]], progress=3), "progress must be a function"),  # type: ignore[arg-type]
    ("quantize", "runtime", lambda: ip.quantize(network(), [[X]], runtime=3), "the runtime must be a Runtime"),  # type: ignore[arg-type]
    ("quantize", "format", lambda: ip.quantize(network(), [[X]], format="onxx"), "unknown format 'onxx'; did you mean"),
    ("quantize", "shapes", lambda: ip.quantize(network(), [[X]], shapes={"z": (1,)}), "no input 'z'"),
    ("bench", "choices", lambda: bench(network(), []), "there is nothing to compare"),
    ("bench", "rounds", lambda: bench(network(), [["CpuRef"]], rounds=0), "expected 1 round or more"),
    ("bench", "seconds", lambda: bench(network(), [["CpuRef"]], seconds=-1), "of 0 seconds or more"),
    (
        "compare",
        "backends",
        lambda: compare(network(), ["CpuRef", "Torsh"]),
        "unknown backend 'Torsh'; did you mean",
    ),  # type: ignore[arg-type]
    ("compare", "limits", lambda: compared_with_torch(limits=ip.Limits(1)), "but the limit is 1"),
    ("Predictor", "options", lambda: Predictor("none.onnx", options=3), "none.onnx"),
    ("Model.run", "signature", lambda: model().run([X], signature="z"), "the model has no signature 'z'"),
    (
        "Model.run_async",
        "signature",
        lambda: asyncio.run(model().run_async([X], signature="z")),
        "the model has no signature 'z'",
    ),
    ("ServeOptions", "sequence_idle", lambda: ServeOptions(sequence_idle=-1), "must be a number of seconds"),
    *(
        ("ServeOptions", name, lambda name=name: ServeOptions(**{name: 0}), f"{name} must be a whole number from 1 on")
        for name in ("cache", "max_connections", "max_ratio", "max_values", "min_rate")
    ),
    ("ServeOptions", "poll", lambda: ServeOptions(poll=0), "poll must be None or a number of seconds above 0, not 0"),
    ("Model.save", "shapes", lambda: model().save("n.ipn", shapes={"x": (1, 4)}), "shapes must be a list of mappings"),  # type: ignore[arg-type]
    ("Model.explain", "inputs", lambda: model().explain(inputs=[X]), "inputs and budget_seconds are for measuring"),
    ("Model.explain", "budget_seconds", lambda: model().explain(budget_seconds=2), "are for measuring"),
    (
        "Model.import_inputs",
        "memory_source",
        lambda: model().import_inputs([X], ip.MemorySource.DMA_BUF),
        "DMA_BUF",
    ),
    (
        "Model.import_outputs",
        "memory_source",
        lambda: model().import_outputs([X], ip.MemorySource.DMA_BUF),
        "DMA_BUF",
    ),
    (
        "Runtime.import_inputs",
        "memory_source",
        lambda: on_runtime(lambda runtime, number: runtime.import_inputs(number, {0: X}, ip.MemorySource.DMA_BUF)),
        "DMA_BUF",
    ),
    (
        "Runtime.import_outputs",
        "memory_source",
        lambda: on_runtime(lambda runtime, number: runtime.import_outputs(number, {0: X}, ip.MemorySource.DMA_BUF)),
        "DMA_BUF",
    ),
    ("CreationOptions", "unload_libraries", lambda: ip.CreationOptions(unload_libraries=3), "unload_libraries must be"),  # type: ignore[arg-type]
    (
        "CreationOptions",
        "backend_options",
        lambda: on_unknown(ip.CreationOptions(backend_options={"Nosuch": {}})),
        "unknown backend 'Nosuch'",
    ),
    (
        "CreationOptions",
        "isolate",
        lambda: on_unknown(ip.CreationOptions(isolate=["Nosuch"])),
        "unknown backend 'Nosuch'",
    ),
    ("Isolation", "memory_bytes", lambda: ip.Isolation(memory_bytes=-1), "memory_bytes"),
    ("Search", "mixes", lambda: ip.Search(mixes=-1), "0 mixes or more, not 8, -1"),
]


def on_unknown(options: ip.CreationOptions) -> None:
    """Load a network, as options may be for a backend that is registered after the runtime's creation."""
    with ip.Runtime(options) as runtime:
        runtime.load_network(ip.optimize(network(), ["CpuRef"], runtime.device_spec))


@pytest.mark.parametrize(
    ("call", "message"), [row[2:] for row in REFUSED], ids=[f"{row[0]}-{row[1]}" for row in REFUSED]
)
def test_an_option_that_cannot_be_meant_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InterposerError) as caught:
        call()
    assert message in str(caught.value)


def test_bench_lists_a_candidate_that_needs_more_than_the_limits() -> None:
    [candidate] = bench(network(), [["CpuRef"]], rounds=1, seconds=0, limits=ip.Limits(1)).candidates
    assert "but the limit is 1" in str(candidate.reason)


def test_bench_measures_what_a_plan_says_too() -> None:
    plan = place(network(), ip.default_runtime(), ["CpuRef"], search=ip.Search(budget_seconds=0.1))
    report = bench(network(), [["CpuRef"]], rounds=1, seconds=0, plan=plan)
    assert len(report.candidates) == 2


def test_the_time_to_look_for_the_fastest_mix_must_be_positive() -> None:
    [candidate] = bench(network(), [["auto"]], rounds=1, seconds=0, budget_seconds=0).candidates
    assert "budget_seconds must be more than 0" in str(candidate.reason)


def test_compare_reports_its_progress() -> None:
    steps: list[str] = []
    compared_with_torch(progress=lambda step, done, total: steps.append(step))
    assert steps
