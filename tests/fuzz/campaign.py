"""Thousands of damaged ONNX and TensorFlow Lite files through a backend, with a table of what became of them.

    python -m tests.fuzz.campaign --count 24000 --seed 1 --backends CpuAcc,CpuRef --jobs 2

Half of the files are real networks of many layers, half are small ones of random operators. The real networks are
those of ``../shared/models``, if it exists, as they are and converted to ONNX, and the example of handwritten digits.
The exit status is 1 after a crash, a hang or too much memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import interposer as ip
from interposer import writers
from interposer.testing.random_networks import random_network

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).parent / "child.py"
BATCH = 100
SMALL = 120
"""How many small files are made, of which half are ONNX and half TensorFlow Lite as far as can be."""
MOST_BYTES = 1 << 30
SECONDS = 900


@dataclass
class Found:
    """What became of the variants of a kind of file."""

    ended: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    peak: int = 0

    def add(self, other: Found) -> None:
        """Count another batch."""
        self.ended += other.ended
        self.problems += other.problems
        self.peak = max(self.peak, other.peak)


def large_files(folder: Path) -> list[Path]:
    """Return real networks, each as a TensorFlow Lite and as an ONNX file."""
    files = [ROOT / "examples/digits/digits.onnx"]
    for source in sorted((ROOT.parent / "shared/models").glob("*.tflite")):
        target = folder / f"{source.stem}.onnx"
        writers.onnx.save(ip.frontends.tflite.load(source), target, exact=False)
        files += [source, target]
    return files


def small_files(folder: Path, seed: int) -> list[Path]:
    """Return networks of one to three random operators."""
    files: list[Path] = []
    number = 0
    while len(files) < SMALL:
        network = random_network(seed, number, max_layers=1 + number % 3).network
        writer, suffix = ((writers.onnx, "onnx"), (writers.tflite, "tflite"))[number % 2]
        path = folder / f"random-{number}.{suffix}"
        number += 1
        try:
            writer.save(network, path)
        except ip.InterposerError:
            continue
        if 64 <= path.stat().st_size < 1 << 20:
            files.append(path)
    return files


def jobs_of(files: list[Path], count: int) -> Iterator[tuple[Path, int, int, str]]:
    """`count` variants, divided among the files and the ways to damage them, in batches."""
    kinds = [(path, kind) for path in files for kind in ("structure", "bytes")]
    for number, (path, kind) in enumerate(kinds):
        own = count // len(kinds) + (number < count % len(kinds))
        yield from ((path, first, min(first + BATCH, own), kind) for first in range(0, own, BATCH))


def go_through(path: Path, first: int, last: int, kind: str, seed: int, backends: str) -> Found:
    """Run a batch; a variant that ends the process is an error, and the rest goes on in another one."""
    result = Found()
    while first < last:
        command = [sys.executable, str(CHILD), str(path), *map(str, (seed, first, last)), kind, backends]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            output, code, said = done.stdout, done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            output, code, said = (error.stdout or b"").decode(), -1, "it takes too long"
        lines = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        ended = [line for line in lines if "ended" in line]
        result.ended.update(line["ended"] for line in ended)
        peak = max((line["peak"] for line in ended), default=0)
        result.peak = max(result.peak, peak)
        if peak > MOST_BYTES:
            result.problems.append(f"{path.name}: {peak >> 20} MiB after one of {ended[0]['variant']} ...")
        first += len(ended)
        if code != 0:
            name = lines[-1].get("starting", "?") if lines else "the beginning"
            result.problems.append(f"{path.name}: {name}: status {code}: {said[-2000:]}")
            result.ended["ended the process"] += 1
            first += 1
    return result


def main() -> int:
    """Go through all files and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=2400, help="how many damaged files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backends", default="CpuAcc,CpuRef")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(args.jobs) as pool:
        kinds = {
            "networks of many layers": large_files(Path(work)),
            "small networks": small_files(Path(work), args.seed),
        }
        errors = 0
        for title, files in kinds.items():
            jobs = list(jobs_of(files, args.count // 2))
            total = Found()
            for result in pool.map(lambda job: go_through(*job, args.seed, args.backends), jobs):
                total.add(result)
            ends = ", ".join(f"{count:,} {name}" for name, count in total.ended.most_common())
            print(f"{title}: {sum(total.ended.values()):,} damaged variants of {len(files)} files: {ends}; ")
            print(f"  {len(total.problems)} errors, at most {total.peak >> 20} MiB", flush=True)
            for error in total.problems:
                print(f"  {error}")
            errors += len(total.problems)
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
