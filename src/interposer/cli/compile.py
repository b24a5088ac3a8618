"""``interposer compile``: optimize a network for some backends, and save it with what they compiled."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from interposer.cli.inputs import example_shapes, require_shapes, require_values
from interposer.cli.network import (
    add_network_arguments,
    add_plan_argument,
    add_precision_argument,
    backend_ids,
    open_model,
    report_absent,
    shape_argument,
    sources_of,
)
from interposer.cli.outputs import check_writable, file_path
from interposer.cli.tables import counted, say
from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.saved import describe
from interposer.saved.documents import SavedFile
from interposer.saved.writing import combine
from interposer.session import Model

__all__ = ["configure", "execute"]

_HELP: Final = """\
The file has the network, its constants, the placement with all refusals, and the
compiled parts of the backends that offer them. interposer.load and all commands
read it in place of the model. What does not fit another machine is compiled
again when the file is loaded, with a warning.

Several targets can be in one file: --also adds a list of backends, --isa compiles
CpuAcc's parts for several instruction sets, and --variant adds shapes of inputs.
"""
_ISA: Final = "INTERPOSER_CPUACC_ISA"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer compile`."""
    parser.epilog = _HELP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_network_arguments(parser)
    add_plan_argument(parser)
    add_precision_argument(parser)
    parser.add_argument(
        "-o", "--output", type=file_path, metavar="FILE.ipn", required=True, help="where to write the saved network"
    )
    parser.add_argument(
        "--also", type=backend_ids, action="append", default=[], metavar="A,B",
        help="other backends in order of preference, for machines that do not have the first; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--isa", type=_levels, metavar="LEVEL,LEVEL",
        help=f"compile CpuAcc's parts for these instruction sets of {_ISA}, which this processor must have",
    )  # fmt: skip
    parser.add_argument(
        "--variant", type=_shapes, action="append", default=[], metavar="'NAME=1x3 NAME=2'",
        help="shapes of inputs, with blanks between them, for one variant; may be repeated",
    )  # fmt: skip
    parser.add_argument("--sign-key", metavar="FILE", help="sign the file with this private Ed25519 key (PEM)")


def _levels(text: str) -> list[str]:
    levels = [part.strip() for part in text.split(",") if part.strip()]
    if not levels:
        raise argparse.ArgumentTypeError("expected instruction sets with commas between them, such as avx2,avx512")
    return list(dict.fromkeys(levels))


def _shapes(text: str) -> dict[str, int | list[int]]:
    pairs = [shape_argument(part) for part in text.split()]
    if not pairs:
        raise argparse.ArgumentTypeError("expected shapes such as 'x=1x3x8 mask=1x8'")
    return dict(pairs)


def execute(args: argparse.Namespace) -> None:
    """Optimize the network for all targets, write the file, and print a summary."""
    check_writable("--output", args.output, sources_of(args))
    if args.also and args.plan is not None:
        raise InvalidArgumentError("--also adds backends in order of preference, and a plan has its own; give one")
    lists = [args.backends, *args.also]
    if len(lists) == 1 and args.isa is None:
        _save(args, args.output, args.sign_key)
    else:
        _save_all(args, lists)
    _report(args.output)


def _save(args: argparse.Namespace, output: str | Path, key: str | None) -> None:
    with open_model(args) as model:
        if model.is_prepared:
            report_absent(model)
        else:
            _require_inputs(model, args.variant)
        model.save(output, shapes=args.variant or None, sign_key=key)


def _require_inputs(model: Model, variants: Sequence[dict[str, int | list[int]]]) -> None:
    """Raise `InvalidArgumentError` if no network can be built for the shapes and values that are given."""
    if not variants:
        require_shapes(model.inputs, f"--variant {shlex.quote(' '.join(example_shapes(model.inputs)))}")
    require_values(model)


def _save_all(args: argparse.Namespace, lists: Sequence[list[str] | None]) -> None:
    """Save each target in a file of its own, and combine these files."""
    with tempfile.TemporaryDirectory(prefix="interposer-compile-") as folder:
        paths: list[str] = []
        for backends in lists:
            args.backends = backends
            for level in args.isa or [None]:
                paths.append(os.path.join(folder, f"{len(paths)}.ipn"))
                _save(args, paths[-1], None) if level is None else _save_for(level, args.words, backends, paths[-1])
        files = [SavedFile(path) for path in paths]
        _check_levels(args.isa, files)
        combine(args.output, files, args.sign_key)


def _save_for(level: str, words: Sequence[str], backends: list[str] | None, path: str) -> None:
    """Save one target in a child process, whose instruction set an environment variable chooses."""
    words = [*_without_targets(words), "-o", path]
    words += [] if backends is None else ["--backends", ",".join(backends)]
    process = subprocess.run(
        [sys.executable, "-m", "interposer", *words], env=os.environ | {_ISA: level}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if process.returncode:
        raise InterposerError(f"compiling for {level} failed: {process.stderr.strip().removeprefix('interposer: ')}")


_WITH_VALUE: Final = ("-o", "--output", "--isa", "--also", "--backends", "--sign-key")


def _without_targets(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of the command line without the options that each target has for itself."""
    remaining_words = iter(words)
    for word in remaining_words:
        if word in _WITH_VALUE:
            next(remaining_words, None)
        elif word.partition("=")[0] not in _WITH_VALUE:
            yield word


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
    compiled = sum(sum(variant.compiled.values()) for variant in network.variants)
    variants = counted(len(network.variants), "variant")
    say(f"{path}: {network.size:,} bytes, {variants}, {compiled} of {counted(parts, 'compiled part')}")
