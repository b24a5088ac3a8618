"""``interposer compile``: optimize a network for some backends, and save it with what they compiled."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interposer.cli.arguments.compile import _ISA, configure
from interposer.cli.inputs import example_shapes, require_shapes, require_values
from interposer.cli.network import open_model, report_absent
from interposer.cli.outputs import check_writable
from interposer.cli.running import Running, running
from interposer.cli.sources import sources_of
from interposer.cli.tables import counted, say
from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.file_formats import process_formats
from interposer.saved import describe
from interposer.saved.documents import SavedFile
from interposer.saved.writing import combine
from interposer.session import Model
from interposer.session.saved_format import Saved

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Optimize the network for all targets, write the file, and print a summary."""
    check_writable("--output", args.output, sources_of(args))
    if _is_of_another_format(Path(args.output).suffix.lower()):
        raise InvalidArgumentError(
            f"--output is a saved network, which no other program reads, and {str(args.output)!r} has the suffix of "
            "another format; use .ipn, or write other formats with interposer convert"
        )
    if args.also and args.plan is not None:
        raise InvalidArgumentError("--also adds backends in order of preference, and a plan has its own; give one")
    with running(args) as setup:
        lists = [args.backends, *args.also]
        if len(lists) == 1 and args.isa is None:
            _save(args, setup, args.output, args.sign_key, args.sign_as)
        else:
            _save_all(args, setup, lists)
    _report(args.output)


def _is_of_another_format(suffix: str) -> bool:
    """Return True if files with this suffix are read as another format than saved networks."""
    other_formats = ((name, format) for name, format in process_formats() if not isinstance(format, Saved))
    return any(suffix in (*format.suffixes, *format.served_suffixes, f".{name}") for name, format in other_formats)


def _save(
    args: argparse.Namespace, setup: Running, output: str | Path, key: str | None = None, sign_as: str | None = None
) -> None:
    with open_model(args, setup) as model:
        if model.is_prepared:
            report_absent(model)
        else:
            _require_inputs(model, args.variant)
        with _options_of_variants():
            model.save(output, shapes=args.variant or None, sign_key=key, sign_as=sign_as)


@contextmanager
def _options_of_variants() -> Iterator[None]:
    """Name the options of this command in errors about the shapes of variants."""
    try:
        yield
    except InvalidArgumentError as error:
        message = re.sub(r"\Ashapes: ", "--variant: ", str(error))
        per_shape = "run the model once for each shape before it is saved"
        raise InvalidArgumentError(message.replace(per_shape, "give --shape, for one file of each shape")) from error


def _require_inputs(model: Model, variants: Sequence[dict[str, int | list[int]]]) -> None:
    """Raise `InvalidArgumentError` if no network can be built for the shapes and values that are given."""
    if not variants:
        require_shapes(model.inputs, f"--variant {shlex.quote(' '.join(example_shapes(model.inputs)))}")
    require_values(model)


def _save_all(args: argparse.Namespace, setup: Running, lists: Sequence[list[str] | None]) -> None:
    """Save each target in a file of its own, and combine these files."""
    with tempfile.TemporaryDirectory(prefix="interposer-compile-") as folder:
        paths: list[str] = []
        for backends in lists:
            args.backends = backends
            for level in args.isa or [None]:
                paths.append(os.path.join(folder, f"{len(paths)}.ipn"))
                if level is None:
                    _save(args, setup, paths[-1])
                else:
                    _save_for(level, args, paths[-1])
        files = [SavedFile(path) for path in paths]
        _check_levels(args.isa, files)
        combine(args.output, files, args.sign_key, args.sign_as)


def _save_for(level: str, args: argparse.Namespace, path: str) -> None:
    """Save one target in a child process, whose instruction set an environment variable chooses."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", "interposer", *_words_for(args, path)],  # -P: nothing from the working directory
        env=os.environ | {_ISA: level}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if process.returncode:
        raise InterposerError(f"compiling for {level} failed: {process.stderr.strip().removeprefix('interposer: ')}")


def _words_for(args: argparse.Namespace, path: str) -> Iterator[str]:
    """Yield the words for a target, with the defaults of the settings files, which the child process does not read."""
    yield "--no-settings"
    yield f"--output={path}"
    if args.backends is not None:
        yield f"--backends={','.join(args.classes.get(backend, backend) for backend in args.backends)}"
    for default in getattr(args, "defaults", ()):
        yield from _without_targets(default.words)
    yield from _without_targets(args.words)


_WITH_VALUE: Final = ("-o", "--output", "--isa", "--also", "--backends", "--sign-key", "--sign-as", "--profile-to")


def _without_targets(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of the command line without the options that each target has for itself."""
    remaining_words = iter(words)
    for word in remaining_words:
        if word in _WITH_VALUE:
            next(remaining_words, None)
        elif word.partition("=")[0] not in _WITH_VALUE and not _is_attached(word):
            yield word


def _is_attached(word: str) -> bool:
    """Return True for ``-oFILE``, the value of a short option in the same word."""
    return word.startswith("-o")


def _check_levels(levels: list[str] | None, files: Sequence[SavedFile]) -> None:
    """Raise `InvalidArgumentError` if CpuAcc has not compiled for the level of a file."""
    for level, file in zip((levels or []) * len(files), files, strict=False):
        fingerprint = file.variants()[0].backends.get("CpuAcc", {}).get("fingerprint", "")
        if level not in fingerprint.split():
            raise InvalidArgumentError(
                f"--isa: CpuAcc compiles nothing of this network for {level!r} here; the processor lacks the "
                "instructions, the name is unknown, or other backends run the layers"
            )


def _report(path: str | Path) -> None:
    network = describe(path)
    parts = sum(sum(variant.parts.values()) for variant in network.variants)
    num_compiled = sum(sum(variant.compiled.values()) for variant in network.variants)
    variants = counted(len(network.variants), "variant")
    say(f"{path}: {network.size:,} bytes, {variants}, {num_compiled} of {counted(parts, 'compiled part')}")
