"""`python benchmarks/run.py devices`: a network over two devices, and several runs in flight.

The network has two branches of equal convolutions, which are added at the end. It runs wholly on the first device, and
with one branch on each device. The results must agree. Each placement is timed with one run, with several runs one
after the other, and with the same number of runs that are submitted together. The least times of all rounds count.

Recorded runs give the least time for which each device is busy, and the largest overlap: the time in which both are
busy, as a share of the busy time of the device that is busy for less. A backend that names no devices in its records,
such as CpuAcc, counts as one device, which is busy while its layers run. With PoCL, POCL_DEVICES="pthread pthread"
shows two devices, which share the threads of one pool.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from benchmarks.machine import machine
from benchmarks.option_types import positive
from interposer.ops import Activation, ActivationFunction, Addition, Convolution2d
from interposer.profiling import Category, Interval

HERE: Final = Path(__file__).resolve().parent
RECORDED: Final = 20
"""Recorded runs: on a busy processor, a device has to wait in some of them."""

Span = tuple[int, int]
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure both placements, and print a table."""
    parser = _parser()
    args = parser.parse_args(words)
    image = np.random.default_rng(0).normal(0, 1, (1, args.channels, args.size, args.size)).astype(np.float32)
    try:
        models = _models(_branches(image.shape, args.depth), args.devices, args.depth)
    except ip.errors.InterposerError as error:
        parser.error(str(error))
    _check(models, image)
    rows = [_times(models, image, args.runs) for _ in range(args.rounds + 1)][1:]  # the first round warms up
    figures = {name: _least([row[name] for row in rows]) | _recorded(model, image) for name, model in models.items()}
    _print(figures, args.runs)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine(), "placements": figures}, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py devices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", nargs=2, default=["GpuAcc:0", "GpuAcc:1"], help="the addresses of two devices")
    parser.add_argument("--runs", type=positive, default=8, help="how many runs are in flight")
    parser.add_argument("--rounds", type=positive, default=10, help="how often everything is measured")
    parser.add_argument("--depth", type=positive, default=6, help="convolutions in each branch")
    parser.add_argument("--channels", type=positive, default=64, help="channels of the convolutions")
    parser.add_argument("--size", type=positive, default=28, help="width and height of the images")
    parser.add_argument("--json", type=Path, default=HERE / "results/devices.json", help="the file to write")
    return parser


# --- the networks -----------------------------------------------------------------------------------------------------


def _branches(shape: tuple[int, ...], depth: int) -> ip.Network:
    """Return a network of two branches, whose layers are "left 0", "left 0 relu" and so on, and the same "right"."""
    network, random = ip.Network("branches"), np.random.default_rng(1)
    image = network.add_input_layer(0, ip.TensorInfo(shape))
    ends = []
    for branch in ("left", "right"):
        end = image
        for number in range(depth):
            weights = random.normal(0, 0.05, (shape[1], shape[1], 3, 3)).astype(np.float32)
            end = _convolved(network, end, weights, f"{branch} {number}")
        ends.append(end)
    network.add_output_layer(0, network.add_layer(Addition(), *ends, name="sum"))
    return network


def _convolved(network: ip.Network, image: Any, weights: Any, name: str) -> Any:
    padded = Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1)
    result = network.add_layer(padded, image, network.add_constant_layer(weights), name=name)
    return network.add_layer(Activation(function=ActivationFunction.RELU), result, name=f"{name} relu")


def _models(network: ip.Network, devices: Sequence[str], depth: int) -> dict[str, ip.Model]:
    first, second = devices
    hints = {f"left {number}{end}": second for number in range(depth) for end in ("", " relu")}
    return {
        first: ip.load(network, [first]),
        f"{first} and {second}": ip.load(network, [first, second], options=ip.OptimizerOptions(hints=hints)),
    }


def _check(models: dict[str, ip.Model], image: Any) -> None:
    """Raise an AssertionError unless all placements have the same results, also with many runs in flight.

    They may differ by rounding errors: 1e-5 of the largest result.
    """
    alone, *others = models.values()
    expected = [alone.run([factor * image])[0] for factor in range(1, 9)]
    for model in (alone, *others):
        runs = [model.submit([factor * image]) for factor in range(1, 9)]
        for run, values in zip(runs, expected, strict=True):
            np.testing.assert_allclose(run.result()[0], values, rtol=0, atol=1e-5 * np.abs(values).max())


# --- the figures ------------------------------------------------------------------------------------------------------


def _times(models: dict[str, ip.Model], image: Any, count: int) -> dict[str, Row]:
    """Return the milliseconds of one run, of `count` runs in a row, and of `count` runs that are submitted together."""
    return {name: _ways(model, image, count) for name, model in models.items()}


def _ways(model: ip.Model, image: Any, count: int) -> Row:
    def in_a_row() -> None:
        for _ in range(count):
            model.run([image])

    def in_flight() -> None:
        for run in [model.submit([image]) for _ in range(count)]:
            run.result()

    return {"one": _timed(lambda: model.run([image])), "row": _timed(in_a_row), "flight": _timed(in_flight)}


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _least(rows: Sequence[Row]) -> Row:
    return {way: min(row[way] for row in rows) for way in rows[0]}


def _recorded(model: ip.Model, image: Any) -> Row:
    """Return the least busy milliseconds of each device in recorded runs, and the largest overlap of the devices."""
    runs = [_busy(model, image) for _ in range(RECORDED)]
    least = [min(map(_length, device)) for device in zip(*runs, strict=True)]
    return {"busy": [length / 1e6 for length in least], "overlap": max(map(_overlap, runs))}


def _overlap(busy: Sequence[Sequence[Span]]) -> float:
    lengths = [_length(device) for device in busy]
    shared = sum(lengths) - _length(_merged([span for device in busy for span in device]))
    return shared / min(lengths)


def _busy(model: ip.Model, image: Any) -> list[list[Span]]:
    """Return the times in which each device is busy during a run; the device that is busy last comes first.

    This is the first device of the placement, since it computes the sum.
    """
    with ip.profile() as profile:
        model.run([image])
    intervals = profile.recording.intervals
    named = {_backend(interval) for interval in intervals if interval.site.device}
    spans: dict[str, list[Span]] = defaultdict(list)
    for interval in intervals:
        is_layer = interval.site.category is Category.LAYER
        if interval.site.device or (is_layer and _backend(interval) not in named):
            spans[interval.site.device or interval.site.backend].append((interval.begin, interval.end))
    return sorted(map(_merged, spans.values()), key=lambda device: -device[-1][1])


def _backend(interval: Interval) -> str:
    """Return the backend of an interval without the number of the device."""
    return interval.site.backend.partition(":")[0]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Return the union of intervals as intervals that do not overlap."""
    result: list[Span] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((begin, end))
    return result


def _length(spans: Sequence[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def _print(figures: dict[str, Row], count: int) -> None:
    print(f"| least milliseconds | one run | {count} in a row | {count} in flight | devices busy | overlap |")
    print("| --- |" + " ---: |" * 5)
    for name, row in figures.items():
        busy = " and ".join(f"{one:.1f}" for one in row["busy"])
        times = " | ".join(f"{row[way]:.1f}" for way in ("one", "row", "flight"))
        print(f"| {name} | {times} | {busy} | {row['overlap']:.0%} |")
