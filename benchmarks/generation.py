"""`python benchmarks/run.py generation`: tokens that a decoder with weights of 4 bits generates in a second.

The network has the operators that ONNX Runtime's tools write: GroupQueryAttention with caches that are updated in
place, SkipSimplifiedLayerNormalization and MatMulNBits. CpuAcc and ONNX Runtime take turns: each reads the same prompt
and generates tokens, always the most probable one. The report has the milliseconds for the prompt, the tokens in a
second afterwards, and whether both have generated the same tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from benchmarks.networks.language_models import LanguageModel

__all__ = ["Interposer", "OnnxRuntime", "generate", "main"]

DESIGN: Final = LanguageModel(896, 14, 2, 4864, layers=6, vocabulary=8192, positions=1152)


class Decoder(Protocol):
    """A loaded decoder with caches of its own."""

    def logits(self, tokens: Sequence[int], new: int) -> np.ndarray:
        """Return the logits after the last of the tokens, of which the caches have all but the last `new`."""
        ...


class Interposer:
    """The decoder on backends of Interposer; each cache is one array for past and present."""

    def __init__(self, design: LanguageModel, file: bytes, threads: int, backends: Sequence[str] = ("CpuAcc",)) -> None:
        import interposer as ip  # noqa: PLC0415 - the engines are imported when they are measured

        options = {"CpuAcc": {"NumberOfThreads": threads}} if "CpuAcc" in backends else {}
        self.design = design
        self.model = ip.load(file, backends=list(backends), options=ip.OptimizerOptions(model_options=options))
        self.caches = design.caches()

    def logits(self, tokens: Sequence[int], new: int) -> np.ndarray:
        feeds = [*self.design.feeds(tokens, new).values(), *self.caches]
        logits = np.empty((1, new, self.design.vocabulary), np.float32)
        self.model.run(feeds, [logits, *self.caches])
        return logits[0, -1]


class OnnxRuntime:
    """The decoder in ONNX Runtime; each cache is bound as past and present."""

    def __init__(self, design: LanguageModel, file: bytes, threads: int) -> None:
        import onnxruntime  # noqa: PLC0415 - it is optional

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self.design = design
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.caches = [onnxruntime.OrtValue.ortvalue_from_numpy(cache) for cache in design.caches()]

    def logits(self, tokens: Sequence[int], new: int) -> np.ndarray:
        binding = self.session.io_binding()
        for name, array in self.design.feeds(tokens, new).items():
            binding.bind_cpu_input(name, array)
        names = [model_input.name for model_input in self.session.get_inputs() if model_input.name.startswith("past")]
        for name, cache in zip(names, self.caches, strict=True):
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(name.replace("past", "present"), cache)
        binding.bind_output("logits", "cpu")
        self.session.run_with_iobinding(binding)
        logits: Any = binding.get_outputs()[-1].numpy()
        return np.asarray(logits[0, -1])


@dataclass(frozen=True)
class Generated:
    """The tokens after a prompt, the seconds for the prompt, and those for all other tokens."""

    tokens: list[int]
    prompt: float
    rest: float


def generate(decoder: Decoder, prompt: Sequence[int], count: int) -> Generated:
    """Generate tokens after a prompt, always the most probable one."""
    tokens, new, times = list(prompt), len(prompt), []
    for _ in range(count):
        start = time.perf_counter()
        logits = decoder.logits(tokens, new)
        times.append(time.perf_counter() - start)
        tokens.append(int(logits.argmax()))
        new = 1
    return Generated(tokens[len(prompt) :], times[0], sum(times[1:]))


def main(arguments: list[str] | None = None) -> int:
    """Run the suite with these command-line arguments."""
    parser = argparse.ArgumentParser(prog="generation", description=__doc__)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="generated tokens, at least 2")
    parser.add_argument("--threads", type=int, default=1, help="threads of each engine")
    parser.add_argument(
        "--rounds", type=int, default=5, help="turns, of which the median counts, after one that warms up"
    )
    parser.add_argument("--accuracy-level", type=int, default=0, help="of MatMulNBits in ONNX Runtime: 4 allows 8 bits")
    args = parser.parse_args(arguments)
    file = DESIGN.quantized(accuracy_level=args.accuracy_level)
    engines = {kind.__name__: kind(DESIGN, file, args.threads) for kind in (Interposer, OnnxRuntime)}
    prompt = np.random.default_rng(0).integers(0, DESIGN.vocabulary, args.prompt).tolist()
    runs: dict[str, list[Generated]] = {name: [] for name in engines}
    for _ in range(1 + args.rounds):
        for name, engine in engines.items():
            runs[name].append(generate(engine, prompt, args.tokens))
    for name, results in runs.items():
        times = [statistics.median(getattr(result, part) for result in results[1:]) for part in ("prompt", "rest")]
        print(f"{name:12} {times[0] * 1e3:8.1f} ms for the prompt {(args.tokens - 1) / times[1]:8.1f} tokens/s")
    has_same_tokens = all(
        result.tokens == runs["Interposer"][0].tokens for results in runs.values() for result in results
    )
    print("the tokens are the has_same_tokens" if has_same_tokens else "the tokens differ")
    return 0
