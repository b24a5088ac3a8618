"""The arguments that several commands share. Importing this module is quick: names of formats are found when needed."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from interposer.cli.numbers import listed, whole

__all__ = [
    "NETWORK_HELP",
    "LateChoices",
    "Number",
    "add_backend_path_argument",
    "add_input_arguments",
    "add_network_arguments",
    "add_plan_argument",
    "add_precision_argument",
    "add_running_arguments",
    "add_source_arguments",
    "add_trust_argument",
    "backend_ids",
    "file_path",
    "network_path",
    "shape_argument",
]

Number: TypeAlias = "int | float"
NETWORK_HELP: Final = "the file or folder, in one of these formats: {readers}"
PREFERRED: Final = "backends in order of preference, or auto for the fastest mix (default: no engines, CpuRef last)"
_AUTO: Final = "auto"


class LateChoices(Collection[str]):
    """The choices of an argument, which `find` returns when they are needed for the first time."""

    def __init__(self, find: Callable[[], Collection[str]]) -> None:
        self._find = find
        self._known_choices: Collection[str] | None = None

    def _choices(self) -> Collection[str]:
        if self._known_choices is None:
            self._known_choices = self._find()
        return self._known_choices

    def __contains__(self, choice: object) -> bool:
        return choice in self._choices()

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices())

    def __len__(self) -> int:
        return len(self._choices())


def _formats() -> Collection[str]:
    from interposer.file_formats import process_formats  # noqa: PLC0415 - takes longer than the rest of the command

    return process_formats().names


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that control how the network's file is read: --format, --shape, --value and others."""
    parser.add_argument(
        "--format",
        choices=LateChoices(_formats),
        metavar="FORMAT",
        help="the format of the file, if its content is ambiguous: {formats}",
    )
    parser.add_argument("--signature", metavar="KEY", help="the signature of a TFLite file to call, such as decode")
    parser.add_argument(
        "--stand-in", action="store_true", help="use stand-in layers for unknown custom operators of a TFLite file"
    )
    parser.add_argument(
        "--subgraph", type=whole, default=0, metavar="N", help="the subgraph of a TFLite file to read (default: 0)"
    )
    parser.add_argument(
        "-s", "--shape", type=shape_argument, action="append", default=[], metavar="NAME=1x3x8",
        help="the shape of an input, or the value of a named dimension (batch=1); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--value", type=_value, action="append", default=[], metavar="NAME=0,1",
        help="one or several numbers that replace an input by a constant; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="FILE", help="the weights of a Caffe network (default: the caffemodel of the same name)"
    )
    add_trust_argument(parser)


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument --trusted-key for files with public keys."""
    parser.add_argument(
        "--trusted-key", action="append", default=[], metavar="FILE",
        help="read only saved networks that this public Ed25519 key (PEM) has signed; may be repeated",
    )  # fmt: skip


def network_path(text: str) -> str:
    """Return the path of a network; raise `ArgumentTypeError` for a dash, which often means standard input."""
    if text == "-" and not os.path.exists(text):
        raise argparse.ArgumentTypeError("standard input is not read; give the path of a file")
    return text


def add_network_arguments(
    parser: argparse.ArgumentParser, backends: str = PREFERRED, *, optional: bool = False
) -> None:
    """Declare the arguments for the network's file, how it is read, limits, and --backends.

    `backends` is the help text of --backends. The file may be left out if `optional`.
    """
    parser.add_argument("network", nargs="?" if optional else None, type=network_path, help=NETWORK_HELP)
    parser.add_argument("--backends", type=backend_ids, metavar="A,B", help=backends)
    add_source_arguments(parser)
    parser.add_argument(
        "--limit-bytes", type=_limit, metavar="N", default=argparse.SUPPRESS,
        help="refuse networks that need more bytes of memory; with K, M, G or T; 'none' for no limit (default: 16G)",
    )  # fmt: skip
    parser.add_argument(
        "--limit-operations", type=_limit, metavar="N", default=argparse.SUPPRESS,
        help="refuse networks that need more operations in a run; 'none' for no limit (default: 10^14)",
    )  # fmt: skip


def add_plan_argument(parser: argparse.ArgumentParser, purpose: str = "place the network as this file says") -> None:
    """Declare the argument --plan for a plan file; `purpose` is its help text: what the command does with it."""
    parser.add_argument("--plan", metavar="FILE", help=f"{purpose}; interposer plan writes one")


def add_precision_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument --precision: the type in which float32 layers are computed."""
    parser.add_argument(
        "--precision", choices=("float32", "float16", "bfloat16"), default="float32",
        help="compute float32 layers in this type; inputs and outputs keep theirs (default: float32)",
    )  # fmt: skip


def backend_ids(text: str) -> list[str]:
    """Return the ids in a comma-separated list."""
    ids = [_AUTO if part.lower() == _AUTO else part for part in listed(text)]
    if not ids or any(_has_separator(backend_id) for backend_id in ids):
        proposal = ",".join(filter(None, re.split(r"[][\s,;|()\"']+", text)))
        hint = f"; did you mean {proposal}?" if proposal else ""
        raise argparse.ArgumentTypeError(f"expected ids of backends with commas between them, not {text!r}{hint}")
    return ids


def _has_separator(backend_id: str) -> bool:
    """Return True if text between commas has other separators or brackets, unless it is an address."""
    return re.search(r"[][\s;|()\"']", backend_id) is not None and ":" not in backend_id


def shape_argument(text: str) -> tuple[str, int | list[int]]:
    """Parse the text of a --shape option: ``NAME=1x3x8`` gives a name and a shape, ``NAME=1`` a name and one number.

    `ArgumentTypeError` is raised for any other text.
    """
    name, _, sizes = text.rpartition("=")
    if not name or not re.fullmatch(r"\d+([x,]\d+)*,?", sizes):
        raise argparse.ArgumentTypeError(f"expected NAME=1x3x8 or NAME=1, not {text!r}")
    numbers = [int(part) for part in re.split("[x,]", sizes) if part]
    return name, numbers[0] if sizes.isdigit() else numbers


def _value(text: str) -> tuple[str, Number | list[Number]]:
    name, _, numbers_text = text.rpartition("=")
    try:
        numbers = [_number(part) for part in listed(numbers_text.removesuffix(","))]
    except ValueError:
        numbers = []
    if not name or not numbers:
        raise argparse.ArgumentTypeError(f"expected NAME=3 or NAME=0,1, not {text!r}")
    return name, numbers if "," in numbers_text else numbers[0]


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _limit(text: str) -> int | None:
    if text.lower() == "none":
        return None
    limit = re.fullmatch(r"(\d+)([KMGT]?)", text, re.IGNORECASE)
    if not limit:
        raise argparse.ArgumentTypeError(f"expected a number, a number with K, M, G or T, or 'none', not {text!r}")
    return int(limit[1]) << 10 * " KMGT".index(limit[2].upper() or " ")


def add_input_arguments(parser: argparse.ArgumentParser, about: str = "see interposer run") -> None:
    """Declare the arguments --input, --random and --seed; `about` is the help text of --input."""
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]FILE", help=f"{about}; may be repeated")
    parser.add_argument("--random", action="store_true", help="use random numbers for inputs that no --input gives")
    parser.add_argument(
        "--seed", type=whole, metavar="N", help="seed of the random numbers (default: 0); implies --random"
    )
    parser.add_argument(
        "--quantize-inputs", action="store_true",
        help="the files have float values for quantized inputs, which are quantized as the network says",
    )  # fmt: skip


def file_path(text: str) -> Path:
    """Return the path of a file to write; raise `ArgumentTypeError` for an empty text."""
    if not text:
        raise argparse.ArgumentTypeError("expected the path of a file, not ''")
    return Path(text)


def add_running_arguments(parser: argparse.ArgumentParser, *, profiles: bool = True) -> None:
    """Declare --option, --backend-path and --profile-to, which all commands have that run something.

    Without `profiles`, --profile-to is left out.
    """
    group = parser.add_argument_group("backends and profiling" if profiles else "backends")
    group.add_argument(
        "--option", action="append", default=[], metavar="BACKEND.NAME=VALUE",
        help="set an option of a backend, such as CpuAcc.NumberOfThreads=2; may be repeated",
    )  # fmt: skip
    add_backend_path_argument(group)
    if not profiles:
        return
    group.add_argument(
        "--profile-to", metavar="TARGET",
        help="record what runs: .pftrace, .json or .html for a timeline, .bin for a file in Arm NN's protocol, or the "
        "socket of a collector, such as @gatord_namespace",
    )  # fmt: skip


def add_backend_path_argument(parser: argparse._ActionsContainer) -> None:
    """Declare --backend-path, the folders that are searched for backends in shared objects and Python files."""
    parser.add_argument(
        "--backend-path", action="append", default=[], metavar="FOLDER",
        help="search this folder for backends in shared objects and Python files, instead of INTERPOSER_BACKEND_PATH; "
        "may be repeated",
    )  # fmt: skip
