"""Loads and runs damaged variants of one model, one line of JSON for each: what became of it.

Started as ``python child.py MODEL SEED FIRST LAST bytes|structure|fields|programs BACKENDS``, in a process of its own,
so that a crash, a hang or hunger for memory is seen from outside.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import interposer as ip
from tests.damage import damaged_structure, damaged_variants
from tests.fuzz.damaged_programs import damaged_programs
from tests.fuzz.damaged_protos import damaged_protos
from tests.fuzz.weights import weights_of

PATIENCE = 60
LIMITS = ip.Limits(max_bytes=200 << 20, max_operations=10**9)


def peak() -> int:
    """Return the most memory that this process has used, in bytes.

    `getrusage` would count what its parent used when it started this process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    [line] = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def outcome(data: bytes, format: str, backends: Sequence[str]) -> str:
    """How loading the bytes and running on zeros ends; only exceptions of ours are caught."""
    try:
        with ip.load(data, backends, format=format, limits=LIMITS) as model:
            model.run([_zeros(info) for info in model.inputs.values()])
    except ip.InterposerError as error:
        return type(error).__name__
    return "ran"


def _zeros(info: ip.TensorInfo) -> Any:
    shape = [dim if type(dim) is int else 1 for dim in info.shape]
    return np.zeros(shape, info.dtype.numpy)


def variants(path: Path, count: int, seed: int, kind: str) -> Any:
    """`count` damaged variants of a file, each with its name."""
    data = path.read_bytes()
    if kind == "structure":
        return damaged_structure(data, weights_of(path), count, seed)
    return {"bytes": damaged_variants, "fields": damaged_protos, "programs": damaged_programs}[kind](data, count, seed)


def main(path: Path, seed: int, first: int, last: int, kind: str, backends: Sequence[str]) -> None:
    """Go through the variants numbered `first` to `last`, `last` left out."""
    format = path.suffix.lstrip(".").replace("pt2", "torch")
    for name, data in itertools.islice(variants(path, last, seed, kind), first, last):
        print(json.dumps({"starting": name}), flush=True)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        ended = outcome(data, format, backends)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"variant": name, "ended": ended, "peak": peak()}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5], sys.argv[6].split(","))
