"""Write what an engine computes wrongly on extreme values: ``backends/engines/recordings/<backend>.json``.

::

    python tools/engine_matrix.py                          # all installed engines
    python tools/engine_matrix.py OpenVino                 # only this engine
    python tools/engine_matrix.py OpenVino Reduce Maximum  # only these operators; the rest remains as it was
    python tools/engine_matrix.py --pairs OpenVino         # only the pairs of layers
    python tools/engine_matrix.py --check                  # change nothing; fail if an adapter takes a wrong layer

Every operator is tried on every data type that its samples have, then pairs of layers that engines merge. The results
must be those of the reference kernels. Run it for a new version of an engine, and read the difference. The layers are
tried without the refusals that follow from the old recording, so that mended errors disappear.

The engine runs in a separate process, which is started again after a crash.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import interposer.ops  # noqa: E402, F401 - declares the operators
from interposer.backends.engines.recorded import CONDITIONS, FOLDER, Recording  # noqa: E402
from interposer.core.schema import registered_ops  # noqa: E402
from interposer.testing import samples_of  # noqa: E402
from interposer.testing.bench import Bench  # noqa: E402
from interposer.testing.extremes import Subject, cells_of, errors, pairs  # noqa: E402
from tests.backends.engines.adapters import PLACES, engine_class, installed  # noqa: E402

TITLES: Final = {"LiteRt": "LiteRT", "OnnxRuntime": "ONNX Runtime", "OpenVino": "OpenVINO", "Torch": "PyTorch"}
MOST_SAMPLES: Final = 2
"""How many samples are tried of each operator and type."""
SECONDS: Final = 120
"""How long one subject may take."""

Cells = dict[str, dict[str, list[str]]]
"""Conditions by types by label, as in `Recording`."""
Result = tuple[Subject, dict[str, str] | None]
"""A subject, and its errors by condition, or None if the engine refuses it."""


def results(engine: str, subjects: Sequence[Subject], recording: Recording) -> Iterator[Result]:
    """Yield the result of each subject, with the refusals of `recording`; a crash is the condition "fails"."""
    position = 0
    while position < len(subjects):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        work = (engine, subjects[position:], recording, sender)
        child = multiprocessing.get_context("fork").Process(target=_try, args=work)
        child.start()
        sender.close()
        for result in _received(receiver):
            yield subjects[position], result
            position += 1
        child.kill()
        child.join()
        if position < len(subjects):
            yield subjects[position], {"fails": f"the process ended with {child.exitcode}"}
            position += 1


def _received(receiver: Any) -> Iterator[dict[str, str] | None]:
    try:
        while receiver.poll(SECONDS):
            yield receiver.recv()
    except EOFError:
        return


def _try(engine: str, subjects: Iterable[Subject], recording: Recording, sender: Any) -> None:
    backend = engine_class(engine)()
    backend.recording = recording
    bench = Bench(backend, ())
    for subject in subjects:
        sender.send(errors(bench, subject))
    sender.close()


def recorded(results: Iterable[Result], report: Callable[[str], None]) -> Cells:
    """Return the conditions under which the tried subjects are wrong, by label and types."""
    cells: Cells = {}
    for subject, texts in results:
        if texts is None:
            continue
        conditions = cells.setdefault(subject.label, {}).setdefault(subject.types, [])
        conditions[:] = [name for name in CONDITIONS if name in texts or name in conditions]
        for name, text in texts.items():
            report(f"{subject.label} of {subject.types}, {name}: {text}")
    return cells


def layers_of(operators: Iterable[str]) -> list[Subject]:
    """Return the single layers that are tried of these operators."""
    samples = (sample for name in operators for sample in samples_of(registered_ops()[name]))
    return [subject for subjects in cells_of(samples, MOST_SAMPLES).values() for subject in subjects]


def write(engine: str, layers: Cells, wrong_pairs: Cells, version: str) -> None:
    """Write a recording: a line for each operator and each pair of layers."""
    parts = {"title": TITLES[engine], "version": version}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in parts.items()]
    lines += [f' "{key}": {_lines(cells)}' for key, cells in (("layers", layers), ("pairs", wrong_pairs))]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{engine}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _lines(cells: Cells) -> str:
    rows = (
        f"  {json.dumps(label)}: {json.dumps(dict(sorted(types.items())))}" for label, types in sorted(cells.items())
    )
    return "{\n" + ",\n".join(rows) + "\n }" if cells else "{}"


def _record(engine: str, operators: Sequence[str], only_pairs: bool) -> None:
    old = Recording.of(engine)
    layers = {label: dict(types) for label, types in old.layers.items()}
    wrong_pairs = {label: dict(types) for label, types in old.pairs.items()}
    if not only_pairs:
        names = operators or _sampled()
        layers = {label: types for label, types in layers.items() if label.partition(".")[0] not in names}
        layers |= recorded(results(engine, layers_of(names), Recording.empty()), print)
        write(engine, layers, wrong_pairs, engine_class(engine)().version)
    if not operators:
        single = Recording(TITLES[engine], "", layers, {})
        wrong_pairs = _wrong(recorded(results(engine, list(pairs()), single), print))
    write(engine, layers, wrong_pairs, engine_class(engine)().version)


def _wrong(cells: Cells) -> Cells:
    """Return the cells that are wrong under some condition."""
    wrong = {label: {kind: names for kind, names in types.items() if names} for label, types in cells.items()}
    return {label: types for label, types in wrong.items() if types}


def _check(engine: str, operators: Sequence[str]) -> int:
    """Print what an adapter takes although the engine is wrong, and return how often that is."""
    recording, count = Recording.of(engine), 0
    subjects = [*layers_of(operators or _sampled()), *(() if operators else pairs())]
    for subject, texts in results(engine, subjects, recording):
        for name, text in (texts or {}).items():
            if CONDITIONS[name].is_refused:
                count += 1
                print(f"{engine} takes {subject.label} of {subject.types}, {name}: {text}")
    return count


def _sampled() -> list[str]:
    return [name for name, op in registered_ops().items() if op.executable and samples_of(op)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Record what engines compute wrongly on extreme values.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if a wrong layer is taken")
    parser.add_argument("--pairs", action="store_true", help="only the pairs of layers")
    parser.add_argument("engine", nargs="?", choices=sorted(PLACES), help="only this one")
    parser.add_argument("operators", nargs="*", help="only these operators")
    args = parser.parse_args(arguments)
    engines = [args.engine] if args.engine else installed()
    if args.check:
        return int(sum(_check(engine, args.operators) for engine in engines) > 0)
    for engine in engines:
        _record(engine, args.operators, args.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
