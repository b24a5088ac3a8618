"""`python benchmarks/run.py cliffs`: every operator and data type on CpuAcc and the engines, and random networks.

Each sample of the conformance kit is measured at three sizes ("small", as it is; "cache", with operands of 256 KiB;
"large", with operands of 16 MiB), in a network of its own ("alone") and between two convolutions ("between"). It is
written as ONNX and as TFLite, and CpuAcc and all engines that read the file run it on one thread, in turns, by their
plain calls. The ratio is the shortest time of the best engine divided by that of CpuAcc, in the format where that is
least. Random networks have 5 to 20 operators or blocks, composed as published families compose them.

All rows below 0.5 and below 0.9 are listed, with the share of the machine's arithmetic peak or of its memory bandwidth
that CpuAcc reaches, whichever is nearer, and rows in which CpuAcc is slower than the reference backend.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.engines import PEERS
from benchmarks.engines.peak import measure_peaks
from benchmarks.machine import machine

from .cases import FORMS, SIZES, Case, cases, network_of, written
from .families import random_model
from .measured import OURS, Model, Peaks, Row, Work, bandwidth, measured

__all__ = ["main"]

CLIFF: Final = 0.5
SLOW: Final = 0.9


def main(words: Sequence[str] | None = None) -> int:
    """Measure the cases that the command line selects, and print the slow ones."""
    args = _parser().parse_args(words)
    os.environ["INTERPOSER_NUM_THREADS"] = "1"
    peaks = _peaks()
    subjects = [(case.title, f"{case.size} {case.form}", partial(_files, case)) for case in _selected(args)]
    subjects += [_random(seed) for seed in range(args.first, args.first + args.random)]
    engines = args.engines or list(PEERS)
    print(f"{len(subjects)} cases on CpuAcc, {', '.join(engines)}; one thread of {machine()['processor']}", flush=True)
    rows = []
    for number, row in enumerate(measured(subjects, engines, args.seconds), 1):
        rows.append(row)
        if args.verbose:
            print(f"{number:5} {_line(row, peaks)}", flush=True)
    print("\n".join(_report(rows, peaks)))
    if args.json:
        data = {"machine": machine(), "rows": [row.plain() for row in rows]}
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py cliffs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", default=["*"], help="patterns of operators, such as 'Reduce*'")
    parser.add_argument("--types", nargs="+", default=["*"], help="patterns of data types, such as 'quantized int8'")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="all by default")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="all by default")
    parser.add_argument("--samples", type=int, default=1, help="samples of each operator, type and size (1)")
    parser.add_argument("--random", type=int, default=0, help="number of random networks (0)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random network (0)")
    parser.add_argument("--no-operators", action="store_true", help="measure only random networks")
    parser.add_argument("--engines", nargs="+", choices=list(PEERS), default=None, help="all that are installed")
    parser.add_argument("--seconds", type=float, default=0.05, help="time for each engine and case (0.05)")
    parser.add_argument("--verbose", action="store_true", help="print every row when it is measured")
    parser.add_argument("--json", type=Path, default=None, help="also write all rows there")
    return parser


def _selected(args: argparse.Namespace) -> list[Case]:
    if args.no_operators:
        return []
    return list(cases(args.operators, args.types, args.sizes, args.forms, args.samples))


def _peaks() -> Peaks:
    peak = measure_peaks([1])[1]
    return Peaks(peak.float32, peak.int8, bandwidth())


def _files(case: Case, folder: Path) -> tuple[Mapping[str, Path], Sequence[Any], Work]:
    """Write the network of a case in the formats that can express it."""
    network, inputs = network_of(case)
    files = written(network, folder)
    return files, inputs, _work(network.graph, "quantized" in case.dtype)


def _work(graph: Any, quantized: bool) -> Work:
    layers = [layer for layer in graph.topological() if layer.op.op_name() not in ("Input", "Constant", "Output")]
    infos = {value: value.known for layer in layers for value in (*layer.inputs, *layer.outputs) if value is not None}
    concrete = [info for info in infos.values() if info.shape.is_concrete]
    size = sum(int(info.num_elements) * info.dtype.numpy.itemsize for info in concrete)
    operations = 0
    for layer in layers:
        inputs, outputs = layer.input_infos, [value.known for value in layer.outputs]
        if all(info is None or info.shape.is_concrete for info in (*inputs, *outputs)):
            operations += layer.op.operations(inputs, outputs)
    return Work(size, operations, quantized)


def _random(seed: int) -> tuple[str, str, Model]:
    family, model = random_model(seed)
    return f"{family} {seed}", f"random {family}", partial(_random_files, model, seed)


def _random_files(model: Any, seed: int, folder: Path) -> tuple[Mapping[str, Path], Sequence[Any], Work]:
    import onnx  # noqa: PLC0415 - it is optional

    path = folder / "random.onnx"
    onnx.save(model, path)
    draw = np.random.default_rng(seed)
    shapes = [[dim.dim_value for dim in model_input.type.tensor_type.shape.dim] for model_input in model.graph.input]
    inputs = [draw.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    import interposer as ip  # noqa: PLC0415

    network = ip.frontends.onnx.load(path)
    return {".onnx": path}, inputs, _work(network.graph, quantized=False)


def _report(rows: Sequence[Row], peaks: Peaks) -> Iterator[str]:
    """Yield the lines of the report."""
    compared = [row for row in rows if row.ratio is not None]
    cliffs = [row for row in compared if _ratio(row) < CLIFF]
    slow = [row for row in compared if CLIFF <= _ratio(row) < SLOW]
    behind = [row for row in rows if row.ours is not None and 0 < row.reference < row.ours]
    yield from _listed(f"below {CLIFF}", cliffs, peaks)
    yield from _listed(f"below {SLOW}", slow, peaks)
    yield from _listed("slower than the reference", behind, peaks)
    yield from _listed("not measured", [row for row in rows if not row.times and row.note], peaks)
    yield from _summary(compared)
    alone = sum(row.ours is not None and row.ratio is None for row in rows)
    unwritten = sum(not row.times and not row.note for row in rows)
    yield f"{alone} cases that no other engine runs, {unwritten} that neither ONNX nor TFLite can express"


def _ratio(row: Row) -> float:
    assert row.ratio is not None
    return row.ratio


def _listed(title: str, rows: Sequence[Row], peaks: Peaks) -> Iterator[str]:
    yield f"\n{title}: {len(rows)}"
    yield from (_line(row, peaks) for row in sorted(rows, key=lambda row: row.ratio or 0))


def _line(row: Row, peaks: Peaks) -> str:
    ratio = "     -" if row.ratio is None else f"{row.ratio:6.2f}"
    if row.ours is None:
        return f"{row.title:64} {ratio}  {row.note}"
    share, of = row.work.share(row.ours, peaks)
    suffix = row.worst[0] if row.worst else ""
    others = [f"{name} {1e6 * time:.1f}" for name, time in row.times.get(suffix, {}).items() if name != OURS]
    times = f"{1e6 * row.ours:9.1f} us, {', '.join(others) or 'no other'}, CpuRef {1e6 * row.reference:.1f}"
    return f"{row.title:64} {ratio}  {times}; {share:.0%} of {of}; {suffix} {row.note}".rstrip("; ")


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each kind of case: how many there are, how many are slow, and the geometric mean."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(_ratio(row))
    yield f"\n{'':24}{'cases':>8}{'< 0.5':>8}{'< 0.9':>8}{'mean':>8}"
    for kind, ratios in [*by_kind.items(), ("all", [_ratio(row) for row in rows])]:
        counts = Counter(CLIFF if ratio < CLIFF else SLOW for ratio in ratios if ratio < SLOW)
        mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
        yield f"{kind:24}{len(ratios):8}{counts[CLIFF]:8}{counts.total():8}{mean:8.2f}"
