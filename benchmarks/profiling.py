"""The cost of profiling: calls with and without a recorder, in turns, for networks of several sizes.

Each network is a chain of matrix products and ReLU, on CpuAcc, which compiles it to one partition, and on CpuRef, which
runs it layer by layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from interposer import Network, TensorInfo
from interposer.ops import ActivationFunction
from interposer.profiling import Recorder

SECONDS: Final = 0.05
"""The length of a turn."""
NETWORKS: Final = ((8, 64, 4), (16, 256, 8), (64, 512, 12), (256, 1024, 8))
"""Rows, columns and products of each network."""


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return the least microseconds of a call by network, without and with a recorder; print them and the ratios."""
    medians_by_row: dict[str, dict[str, float]] = {}
    print("\nprofiling: least microseconds of a call, in turns")
    print(f"  {'network':32} {'off':>10} {'on':>10} {'cost us':>8} {'cost':>7}")
    for backend in ("CpuAcc", "CpuRef"):
        if ip.default_runtime().registry.reason_absent(backend) is not None:
            print(f"  {backend} is not available")
            continue
        for rows, columns, layers in NETWORKS:
            title = f"{2 * layers} layers of {rows}x{columns}"
            model = ip.load(_chain(rows, columns, layers), [backend])
            x = [np.ones((rows, columns), np.float32)]
            off, on = _turns(lambda model=model, x=x: model.run(x), max(repeat, 7) * 3)
            medians_by_row[f"{backend} {title}"] = {"off": off, "on": on}
            print(f"  {f'{backend}, {title}':32} {off:10.2f} {on:10.2f} {on - off:8.2f} {on / off - 1:7.2%}")
    medians_by_row["lost"] = _lost()
    return medians_by_row


def _chain(rows: int, columns: int, layers: int) -> Network:
    network, random = Network("chain"), np.random.default_rng(0)
    x: Any = network.add_input_layer(0, TensorInfo((rows, columns)), name="x")
    for _ in range(layers):
        weights = (random.standard_normal((columns, columns)) / columns).astype(np.float32)
        x = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights))
        x = network.add_activation_layer(x, function=ActivationFunction.RELU)
    network.add_output_layer(0, x, name="y")
    return network


def _turns(call: Callable[[], Any], turns: int) -> tuple[float, float]:
    """Return the least microseconds of a call without and with a recorder, which take turns."""
    recorder = Recorder(capacity=100_000)
    least = [float("inf"), float("inf")]
    call()
    for turn in range(2 * turns):
        if turn % 2:
            recorder.start()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            call()
            least[turn % 2] = min(least[turn % 2], time.perf_counter() - start)
        recorder.stop()
    return least[0] * 1e6, least[1] * 1e6


def _lost() -> dict[str, float]:
    """Return how many events of a tiny network are recorded per second, and how many a small buffer loses."""
    model, x = ip.load(_chain(1, 4, 1), ["CpuRef"]), [np.ones((1, 4), np.float32)]
    with Recorder(capacity=10_000) as recorder:
        start = time.perf_counter()
        for _ in range(20_000):
            model.run(x)
        seconds = time.perf_counter() - start
    recorded = len(recorder.recording().intervals)
    total = recorded + recorder.lost
    print(f"  {total / seconds:,.0f} events per second; a buffer for 10,000 events lost {recorder.lost:,} of {total:,}")
    return {"events per second": total / seconds, "lost": recorder.lost, "recorded": recorded}
