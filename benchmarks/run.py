"""Measure Interposer and other engines alternately, and print medians of the interleaved runs and their ratios.

    python benchmarks/run.py engines [--help]
    python benchmarks/run.py placement [--help]
    python benchmarks/run.py loading [--help]
    python benchmarks/run.py convolutions [--help]
    python benchmarks/run.py operators [--help]
    python benchmarks/run.py cliffs [--help]
    python benchmarks/run.py weights [--help]
    python benchmarks/run.py generation [--help]
    python benchmarks/run.py formats [--help]
    python benchmarks/run.py arm-nn [--help]
    python benchmarks/run.py quantization [--help]
    python benchmarks/run.py saved [--help]
    python benchmarks/run.py sharing [--help]
    python benchmarks/run.py devices [--help]
    python benchmarks/run.py bridges [FILE ...] [--help]
    python benchmarks/run.py serving MODEL [--help]
    python benchmarks/run.py wrong-values [--help]
    python benchmarks/run.py torch [--help]
    python benchmarks/run.py compare NEW.json [--help]
    python benchmarks/run.py [models] [imports] [abi] [isolation] [new-backend] [memory] [overhead] [profiling]
                             [--models FOLDER] [--repeat N] [--json FILE]

`engines` runs whole networks on CpuAcc and other engines, and `placement` compares "auto" with every single engine.
Both take long. `loading` measures the time and the memory of loading, and their growth. `convolutions`, `operators`
and `weights` run networks of one layer, and `cliffs` searches all operators for slow ones. `generation` lets a decoder
generate tokens.
`formats` runs classifiers as files of TensorFlow and Caffe, and `arm-nn` runs models through the interface of PyArmNN.
`quantization` compares networks that several quantizers have made with the float networks. `saved` loads saved networks
beside model files and the cache, `sharing` measures the memory of several processes with one file, and `devices` runs
a network over two devices. `bridges` compares ONNX Runtime and LiteRT alone with the same hosts and a backend of
Interposer in them, `serving` sends requests to servers, `wrong-values` sends a server requests that it must refuse
beside good ones, and `torch` runs programs of PyTorch. These suites have separate options.
`compare` compares figures with recorded ones.

`models` times one inference of every .tflite and .onnx file of a folder (by default that of the environment variable
INTERPOSER_BENCHMARK_MODELS, else the digits example) on CpuRef, and on LiteRT and ONNX Runtime if they are installed.
`imports` times `import interposer`, `import numpy`, and the creation of the first `Network`, in separate processes.
`abi` times the C interface for backends with a plug-in that does nothing. `isolation` times a backend in a child
process, the same backend in this process, and the start of a child process. `new-backend` times the steps from
`interposer new-backend` to a successful conformance run, once for each installed language. `memory` compares arenas
with their lower bounds, and with the memory plans of LiteRT and ONNX Runtime for the same networks.
`overhead` times a call from Python whose kernels take almost no time, in
comparison with ONNX Runtime, LiteRT and OpenVINO, and one network in one and two threads. `profiling` times calls with
and without a recorder. Without names, the suites of the last line are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before ONNX Runtime is imported, here and in other processes
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import abi
import imports
import isolation
import memory
import models
import new_backend
import overhead
import profiling

from benchmarks import (
    arm_nn,
    baseline,
    bridges,
    convolutions,
    devices,
    generation,
    loading,
    operators,
    placement,
    quantization,
    saved,
    serving,
    sharing,
    weights,
    wrong_values,
)
from benchmarks.cliffs import command as cliffs
from benchmarks.engines import command
from benchmarks.folders import add_models
from benchmarks.formats import command as formats
from benchmarks.machine import machine

ROOT = Path(__file__).resolve().parent.parent
SUITES = {
    "models": models.measure,
    "imports": imports.measure,
    "abi": abi.measure,
    "isolation": isolation.measure,
    "new-backend": new_backend.measure,
    "memory": memory.measure,
    "overhead": overhead.measure,
    "profiling": profiling.measure,
}


def _torch(words: list[str]) -> int:
    from benchmarks.pytorch import command as pytorch  # noqa: PLC0415 - PyTorch is optional

    return pytorch.main(words)


COMMANDS = {
    "engines": command.main,
    "placement": placement.main,
    "loading": loading.main,
    "convolutions": convolutions.main,
    "operators": operators.main,
    "cliffs": cliffs.main,
    "weights": weights.main,
    "generation": generation.main,
    "formats": formats.main,
    "arm-nn": arm_nn.main,
    "quantization": quantization.main,
    "saved": saved.main,
    "sharing": sharing.main,
    "devices": devices.main,
    "bridges": bridges.main,
    "serving": serving.main,
    "wrong-values": wrong_values.main,
    "torch": _torch,
    "compare": baseline.main,
}
"""Commands with options of their own."""


def main() -> int:
    """Run the requested suites."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        return COMMANDS[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="what to measure; all of them by default")
    add_models(parser)
    parser.add_argument("--repeat", type=int, default=7, help="runs of each, of which the median counts")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures there")
    args = parser.parse_args()
    folder = args.models or ROOT / "examples/digits"
    figures: dict[str, Any] = {name: SUITES[name](folder, args.repeat) for name in args.suites or SUITES}
    if args.json:
        args.json.write_text(json.dumps({"machine": machine()} | figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
