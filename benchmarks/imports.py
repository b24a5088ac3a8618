"""The time of imports: `import interposer`, `import numpy`, and the creation of the first network."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "import numpy": "import numpy",
    "import interposer": "import numpy, interposer",
    "first Network": (
        "import numpy, interposer as ip; n = ip.Network('n'); "
        "x = n.add_input_layer(0, ip.TensorInfo((1, 4))); n.add_output_layer(0, x)"
    ),
}
_TIMER = "import time; t = time.perf_counter()\n{program}\nprint(time.perf_counter() - t)"


def measure(folder: Path, repeat: int) -> dict[str, float]:
    """Return the median seconds of each program in a new process, interleaved; print them and the differences."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(max(repeat, 5)):
        for name, program in PROGRAMS.items():
            times[name].append(_seconds(program))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print("\nimports, seconds (median)")
    before = 0.0
    for name, seconds in medians.items():
        print(f"  {name:20} {seconds:8.3f}   adds {seconds - before:+.3f}")
        before = seconds
    return medians


def _seconds(program: str) -> float:
    code = _TIMER.format(program=program)
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(completed.stdout.split()[-1])
