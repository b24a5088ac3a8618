"""``interposer run``: run a network on files, and show its outputs."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.cli import interrupts
from interposer.cli.arguments.run import configure
from interposer.cli.inputs import input_sets, inputs_text, read_inputs, seed_of, sized_inputs
from interposer.cli.labels import Labels, check_count, read_labels
from interposer.cli.network import names_of, open_model, report_absent
from interposer.cli.outputs import Ranked, check_suffix, check_writable, figures, flat, has_classes, save, top
from interposer.cli.progress import Progress, progress_line
from interposer.cli.running import running
from interposer.cli.sources import sources_of
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.files import is_same_file
from interposer.core.records import dataclass
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.kernels.fixedpoint import dequantize
from interposer.report.optimized import OptimizedNetwork
from interposer.session import Model
from interposer.session.images import Preprocessing

__all__ = ["configure", "execute"]

_log: Final = logging.getLogger("interposer.cli")
_TOP: Final = 5
"""Classes that are shown without --top."""


def execute(args: argparse.Namespace) -> int:
    """Run the network, save its outputs and print them; return 1 if a run took longer than --threshold."""
    _check_targets(args)
    labels = None if args.labels is None else read_labels(args.labels)
    with running(args) as setup, open_model(args, setup) as model:
        names = _names_to_compute(args, model)
        _check_output(args.output, names)
        if args.save is not None:
            check_suffix("--save", args.save, len(names))
        sets = _sets(args, model)
        _check_saved(args, len(sets))
        outputs, times = _timed(model, sets, names, args.repeat, args.concurrent)
        if args.dequantize_outputs:
            outputs = [{name: _dequantized(model, name, value) for name, value in of_set.items()} for of_set in outputs]
        intermediates = _intermediates(model, sets[0].arrays()) if args.save_intermediates is not None else {}
        report_absent(model)
        results = [_result(args, model, of_set, labels, times) for of_set in outputs]
        if args.top is not None and not results[0].top and not _is_default(args, "top"):
            _log.warning("--top has no effect: it needs %s", _why_no_classes(model, _shown(args, outputs[0])))
    _save(args, outputs, intermediates)
    if args.json:
        write_json(_facts(args, sets, results))
    else:
        _print_all(args, sets, results)
    return int(_is_late(results[0], args.threshold))


def _is_default(args: argparse.Namespace, dest: str) -> bool:
    """Return True if a settings file has set an option, as it may for networks that the option does not concern."""
    return any(default.action.dest == dest for default in getattr(args, "defaults", ()))


class _Set:
    """The inputs of one run: the texts of --input, whose files are read when they are needed.

    The arrays of the only set stay in memory. Those of several sets are read for each run.
    """

    def __init__(self, texts: Sequence[str], read: Callable[[Sequence[str]], dict[str, Any]], stays: bool) -> None:
        self.title = " ".join(texts)
        self._texts, self._read = texts, read
        self._arrays = read(texts) if stays else None

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by the names of the inputs."""
        return self._read(self._texts) if self._arrays is None else self._arrays


def _sets(args: argparse.Namespace, model: Model) -> list[_Set]:
    """Return the sets of inputs; raise `InvalidArgumentError` for options that need one set, if there are several."""
    layout = DataLayout[args.layout] if args.layout else None
    preprocessing = Preprocessing(layout, args.mean, args.std, args.quantize_inputs)
    sized_infos = sized_inputs(model)

    def read(texts: Sequence[str]) -> dict[str, Any]:
        return read_inputs(texts, model.inputs, preprocessing, seed_of(args), sized_infos)

    text_sets = input_sets(args.input, model.inputs)
    if len(text_sets) > 1 and args.save_intermediates is not None:
        raise InvalidArgumentError(f"--save-intermediates takes one set of inputs, but {len(text_sets)} are given")
    return [_Set(texts, read, stays=len(text_sets) == 1) for texts in text_sets]


def _saved(args: argparse.Namespace, count: int) -> list[Path]:
    """Return the files of --save: one, or for several sets of inputs one with the number of each set."""
    if args.save is None:
        return []
    path = Path(args.save)
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(count)]


def _check_saved(args: argparse.Namespace, count: int) -> None:
    for path in _saved(args, count):
        check_writable("--save", path, sources_of(args))
        if args.profile_to is not None and is_same_file(path, args.profile_to):
            raise InvalidArgumentError(f"--save and --profile-to name one file, {str(path)!r}")


def _save(args: argparse.Namespace, outputs: Sequence[dict[str, Any]], intermediates: dict[str, Any]) -> None:
    """Write the outputs of each set of inputs, and the intermediate results."""
    for path, of_set in zip(_saved(args, len(outputs)), outputs, strict=args.save is not None):
        save(str(path), flat(of_set))
    if args.save_intermediates is not None:
        save(args.save_intermediates, flat(intermediates), "--save-intermediates")


def _facts(args: argparse.Namespace, sets: Sequence[_Set], results: Sequence[_Result]) -> dict[str, Any]:
    """Return the result as JSON-compatible data; that of several sets of inputs has a list with an entry for each."""
    inputs = {} if seed_of(args) is None else {"inputs": inputs_text(args)}
    facts = results[0].to_dict()
    if len(sets) == 1:
        return facts | inputs
    of_sets = [
        {"inputs": of_set.title, "top": [ranked.to_dict() for ranked in result.top], "outputs": result.outputs}
        for of_set, result in zip(sets, results, strict=True)
    ]
    del facts["top"], facts["outputs"]
    return {"sets": of_sets, **facts, **inputs}


def _print_all(args: argparse.Namespace, sets: Sequence[_Set], results: Sequence[_Result]) -> None:
    for of_set, result in zip(sets, results, strict=True):
        if len(sets) > 1:
            say(f"{of_set.title}:")
        show(_classes(result.top) if result.top else _outputs(result.outputs))
        if len(sets) > 1:
            print()
    say(_where(results[0].placement, len(results[0].optimized.copies)))
    print(_time(results[0]))
    if seed_of(args) is not None:
        say(f"inputs: {inputs_text(args)}")
    if _is_late(results[0], args.threshold):
        say(f"the median of {results[0].median:.3g} ms is above the threshold of {args.threshold:g} ms")


def _is_late(result: _Result, threshold: float | None) -> bool:
    return threshold is not None and result.median > threshold


def _check_targets(args: argparse.Namespace) -> None:
    targets = {"--save": args.save, "--save-intermediates": args.save_intermediates}
    for option, path in targets.items():
        if path is not None:
            check_suffix(option, path)
            check_writable(option, Path(path), sources_of(args))
    if None not in targets.values() and is_same_file(args.save, args.save_intermediates):
        raise InvalidArgumentError(f"--save and --save-intermediates name one file, {args.save!r}")


def _names_to_compute(args: argparse.Namespace, model: Model) -> list[str]:
    """Return the names of the values to compute: those of --outputs, by default the model's outputs.

    A name that the model does not have is an error of its run. `InvalidArgumentError` is raised if the network has
    neither outputs nor states.
    """
    if not model.outputs and not model.state:
        raise InvalidArgumentError(f"{args.network}: the network has no outputs, so it computes nothing")
    if not args.outputs:
        return list(model.outputs)
    computable_values = model.outputs if model.needed_values else model.values
    return names_of("--outputs", args.outputs, computable_values) or []


def _check_output(name: str | None, output_names: list[str]) -> None:
    if name is not None and name not in output_names:
        hint = did_you_mean(name, output_names)
        raise InvalidArgumentError(f"the network has no output {name!r}{hint} (it has: {', '.join(output_names)})")


def _intermediates(model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run the model, and return the results of all its layers by name, except for constants and inputs."""
    if model.needed_values:
        model.run(inputs)  # the first run determines the layers
    constants = {name for name, info in model.values.items() if info.constant is not None}
    names = [name for name in model.values if name in model.outputs or name not in {*constants, *model.inputs}]
    return dict(zip(names, model.run(inputs, names), strict=True))


@dataclass(frozen=True)
class _Times:
    """The milliseconds of each run, the number of threads that ran, and the seconds until all were done."""

    milliseconds: list[float]
    concurrency: int
    seconds: float


def _timed(
    model: Model, sets: Sequence[_Set], names: list[str], repeat: int, concurrency: int
) -> tuple[list[dict[str, Any]], _Times]:
    """Run the model `repeat` times on each set of inputs in each of `concurrency` threads.

    The result has the outputs of each set by name, and the times. `names` are the values to compute. Runs before these
    do the one-time setup, which is not timed. The outputs are those of the last runs of one thread.
    """
    extra_names = None if names == list(model.outputs) else names
    _warm_up(model, sets, extra_names, repeat * concurrency > 1 or len(sets) > 1)
    ready = Barrier(concurrency)
    with progress_line() as progress:

        def work(thread: int) -> _Runs:
            if concurrency > 1:
                _warm_up_together(model, sets[0], extra_names, ready)
            return _runs(model, sets, extra_names, repeat, progress if thread == 0 else None)

        thread_runs = _on_threads(work, ready)
    milliseconds = [milliseconds_of_run for runs in thread_runs for milliseconds_of_run in runs.milliseconds]
    seconds = max(runs.end for runs in thread_runs) - min(runs.begin for runs in thread_runs)
    outputs_of_sets = [dict(zip(names, outputs, strict=True)) for outputs in thread_runs[0].outputs]
    return outputs_of_sets, _Times(milliseconds, concurrency, seconds)


def _on_threads(work: Callable[[int], _Runs], ready: Barrier) -> list[_Runs]:
    """Return the results of `work` in as many threads as `ready` waits for, by the number of the thread."""
    if ready.parties == 1:
        return [work(0)]
    with ThreadPoolExecutor(ready.parties) as pool:
        try:
            return [future.result() for future in _submitted(pool, work, ready.parties)]
        except BaseException:
            ready.abort()  # threads would wait for ever for one that could not be started
            raise


def _submitted(pool: ThreadPoolExecutor, work: Callable[[int], _Runs], count: int) -> list[Future[_Runs]]:
    try:
        return [pool.submit(work, thread) for thread in range(count)]
    except RuntimeError as error:
        raise InvalidArgumentError(f"--concurrent: the system does not start {count} threads ({error})") from error


class _Runs(NamedTuple):
    """The last outputs for each set of inputs, the milliseconds of each run, and the begin and end in seconds."""

    outputs: list[Any]
    milliseconds: list[float]
    begin: float
    end: float


def _warm_up(model: Model, sets: Sequence[_Set], extra_names: list[str] | None, runs_often: bool) -> None:
    """Make the runs that are not timed, as they set up what later runs use."""
    is_open = not all(info.is_concrete for info in model.inputs.values())
    if runs_often or extra_names is not None or is_open:
        model.run(sets[0].arrays())
    if extra_names is not None:
        model.run(sets[0].arrays(), extra_names)


def _warm_up_together(model: Model, inputs: _Set, extra_names: list[str] | None, ready: Barrier) -> None:
    """Make a run that allocates the memory of this thread, and wait until all threads have made theirs."""
    try:
        model.run(inputs.arrays(), extra_names)
    finally:
        ready.wait()


def _runs(
    model: Model, sets: Sequence[_Set], extra_names: list[str] | None, repeat: int, progress: Progress | None
) -> _Runs:
    """Run the model `repeat` times on each set of inputs in this thread."""
    outputs: list[Any] = [None] * len(sets)
    times: list[float] = []
    begin = time.perf_counter()
    for _ in range(repeat):
        for number, of_set in enumerate(sets):
            if interrupts.happened():  # which only the main thread notices otherwise
                raise KeyboardInterrupt
            if progress is not None:
                progress("running", len(times), repeat * len(sets))
            inputs = of_set.arrays()
            start = time.perf_counter()
            outputs[number] = model.run(inputs, extra_names)
            times.append((time.perf_counter() - start) * 1e3)
    return _Runs(outputs, times, begin, time.perf_counter())


def _dequantized(model: Model, name: str, output: Any) -> Any:
    """Return the floats that a quantized output stands for; any other output is returned unchanged."""
    info = model.outputs.get(name) or model.values.get(name)
    if info is None or info.quantization is None:
        return output
    return dequantize(output, info.quantization).astype(np.float32)


# --- the result -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Result:
    top: list[Ranked]
    outputs: list[dict[str, Any]]
    optimized: OptimizedNetwork
    times: _Times

    @property
    def placement(self) -> dict[str, int]:
        """The number of layers on each backend that has any, in order of preference."""
        counts = Counter(placement.backend for placement in self.optimized.placements)
        return {backend: counts[backend] for backend in self.optimized.preferences if counts[backend]}

    @property
    def median(self) -> float:
        return float(np.median(self.times.milliseconds))

    @property
    def per_second(self) -> float:
        return len(self.times.milliseconds) / self.times.seconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "top": [ranked.to_dict() for ranked in self.top],
            "outputs": self.outputs,
            "placement": self.placement,
            "copies": len(self.optimized.copies),
            "absent": [{"id": backend.id, "reason": backend.reason} for backend in self.optimized.absent],
            "ms": round(self.median, 3),
            "runs": len(self.times.milliseconds),
            "concurrent": self.times.concurrency,
            "runs_per_second": round(self.per_second, 3),
        }


def _result(
    args: argparse.Namespace, model: Model, outputs: dict[str, Any], labels: Labels | None, times: _Times
) -> _Result:
    arrays = _shown(args, outputs)
    rows = [figures(name, array, _info(model, name, array)) for name, array in arrays.items()]
    top_classes = _top(args, model, arrays, labels)
    return _Result(top_classes, rows, model.optimized, times)


def _shown(args: argparse.Namespace, outputs: dict[str, Any]) -> dict[str, Array]:
    """Return the arrays of the outputs that are shown: all, or the one that --output names."""
    return flat(outputs if args.output is None else {args.output: outputs[args.output]})


def _info(model: Model, name: str, array: Array) -> TensorInfo:
    """Return the info of output `name`: type and actual shape of its array, and the quantization in the model."""
    declared_info = model.outputs.get(name) or model.values.get(name)
    if declared_info is None or (
        declared_info.is_quantized and array.dtype.kind == "f"
    ):  # dequantized, or no value of the model
        return TensorInfo.of(array)
    return declared_info.with_shape(array.shape)


def _top(args: argparse.Namespace, model: Model, arrays: dict[str, Array], labels: Labels | None) -> list[Ranked]:
    name, array = next(iter(arrays.items()), (None, None))
    if name is None or array is None or len(arrays) > 1 or not has_classes(array):
        if labels is not None:
            raise InvalidArgumentError(f"--labels needs {_why_no_classes(model, arrays)}")
        return []
    if labels is not None:
        check_count(labels, array.size, args.labels)
    return top(array, _info(model, name, array), args.top or _TOP, labels)


def _why_no_classes(model: Model, arrays: dict[str, Array]) -> str:
    if len(arrays) != 1:
        return f"one output; choose it with --output ({', '.join(arrays)})"
    [(name, array)] = arrays.items()
    return f"a vector of classes, but output {name!r} is {_info(model, name, array)}"


def _where(placement: dict[str, int], copies: int) -> str:
    layers = counted(sum(placement.values()), "layer")
    if len(placement) == 1 and not copies:
        return f"{layers} on {next(iter(placement))}"
    shares = ", ".join(f"{count} on {backend}" for backend, count in placement.items())
    return f"{layers} ({shares}), {counted(copies, 'copy', 'copies')} between backends"


def _time(result: _Result) -> str:
    runs = result.times.milliseconds
    if len(runs) == 1:
        return f"{runs[0]:.2f} ms"
    text = f"{result.median:.2f} ms (median of {len(runs)} runs, {min(runs):.2f} to {max(runs):.2f})"
    concurrency = result.times.concurrency
    return text if concurrency == 1 else f"{text}, {concurrency} at a time, {result.per_second:.4g} runs per second"


def _classes(ranked_classes: list[Ranked]) -> Table:
    numbers = (_figures([entry.score for entry in ranked_classes]), _figures([entry.value for entry in ranked_classes]))
    rows = [
        (str(entry.index), score, value, entry.label or "")
        for entry, score, value in zip(ranked_classes, *numbers, strict=True)
    ]
    return without_empty_columns(Table(("class", "score", "value", "label"), rows, ("class", "score", "value")))


def _outputs(summaries: list[dict[str, Any]]) -> Table:
    keys = ("min", "max", "mean")
    rows = [(summary["name"], summary["info"], *(_figure(summary.get(key)) for key in keys)) for summary in summaries]
    return Table(("output", "info", *keys), rows, keys)


def _figures(numbers: list[int | float | None]) -> list[str]:
    """Return numbers as texts for a column of a table, floats with the same format: 5 decimals or 5 significant digits.

    Fixed decimals are used unless the largest number is below 0.001, which would hide digits, or 100,000 and more. None
    becomes an empty text.
    """
    largest = max((abs(number) for number in numbers if number is not None), default=0)
    style = ".5f" if 1e-3 <= largest < 1e5 else ".5g"
    return [format(number, style) if isinstance(number, float) else _figure(number) for number in numbers]


def _figure(number: int | float | None) -> str:
    if number is None:
        return ""
    return f"{number:.5g}" if isinstance(number, float) else str(number)
