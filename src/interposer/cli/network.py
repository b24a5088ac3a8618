"""Shared arguments of the commands that read a network, and the creation of a model from them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from interposer.cli.numbers import whole
from interposer.cli.streams import printable
from interposer.core.config import NUM_THREADS
from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.file_formats import process_formats
from interposer.optimizer import OptimizerOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.session import Limits, Model, load
from interposer.session.fallback import AUTO
from interposer.session.placement import Plan
from interposer.session.source import files_of_weights

__all__ = [
    "add_network_arguments",
    "add_plan_argument",
    "add_precision_argument",
    "add_source_arguments",
    "add_trust_argument",
    "backend_ids",
    "names_of",
    "network_help",
    "network_path",
    "open_model",
    "reading_of",
    "report_absent",
    "report_skipped",
    "runtime_with_threads",
    "shape_argument",
    "sources_of",
    "trusted_keys_of",
]

PREFERRED: Final = "backends in order of preference, or auto for the fastest mix (default: no engines, CpuRef last)"
Number: TypeAlias = "int | float"
T = TypeVar("T")


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that control how the network's file is read: --format, --shape, --weights and others."""
    parser.add_argument(
        "--format", choices=process_formats().names, help="the format of the file, if its content is ambiguous"
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
        "--weights", metavar="FILE", help="the weights of a Caffe network (default: the caffemodel of the same name)"
    )
    add_trust_argument(parser)


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument --trusted-key for files with public keys."""
    parser.add_argument(
        "--trusted-key", action="append", default=[], metavar="FILE",
        help="read only saved networks that this public Ed25519 key (PEM) has signed; may be repeated",
    )  # fmt: skip


def trusted_keys_of(args: argparse.Namespace) -> list[str] | None:
    """Return the files of --trusted-key, or None without this option."""
    return args.trusted_key or None


def reading_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that control how the file is read, as keyword arguments of `load` and `read_network`."""
    return {
        "format": args.format,
        "shapes": _shapes_of(args),
        "values": _values_of(args) if hasattr(args, "value") else None,
        "weights": args.weights,
        "signature": args.signature,
        "stand_in": args.stand_in,
        "subgraph": args.subgraph,
        "trusted_keys": trusted_keys_of(args),
    }


def network_path(text: str) -> str:
    """Return the path of a network; raise `ArgumentTypeError` for a dash, which often means standard input."""
    if text == "-" and not os.path.exists(text):
        raise argparse.ArgumentTypeError("standard input is not read; give the path of a file")
    return text


def network_help() -> str:
    """Return the help of the argument for the network's file, which lists the formats that can be read."""
    *others, last = sorted((format.title for _, format in process_formats() if format.reads), key=str.lower)
    return f"the file or folder, in one of these formats: {', '.join(others)} or {last}"


def add_network_arguments(parser: argparse.ArgumentParser, backends: str = PREFERRED) -> None:
    """Declare the arguments for the network's file, its shapes and values, limits, and --backends.

    `backends` is the help text of --backends.
    """
    parser.add_argument("network", type=network_path, help=network_help())
    parser.add_argument("--backends", type=backend_ids, metavar="A,B", help=backends)
    add_source_arguments(parser)
    parser.add_argument(
        "--value", type=_value, action="append", default=[], metavar="NAME=0,1",
        help="one or several numbers that replace an input by a constant; may be repeated",
    )  # fmt: skip
    limits = Limits()
    parser.add_argument(
        "--limit-bytes", type=_limit, metavar="N", default=limits.max_bytes,
        help="refuse networks that need more bytes of memory; with K, M, G or T; 'none' for no limit (default: 16G)",
    )  # fmt: skip
    parser.add_argument(
        "--limit-operations", type=_limit, metavar="N", default=limits.max_operations,
        help="refuse networks that need more operations in a run; 'none' for no limit (default: 10^14)",
    )  # fmt: skip


def add_plan_argument(parser: argparse.ArgumentParser, what: str = "place the network as this file says") -> None:
    """Declare the argument --plan for a plan file; `what` is its help text: what the command does with it."""
    parser.add_argument("--plan", metavar="FILE", help=f"{what}; interposer plan writes one")


def add_precision_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument --precision: the type in which float32 layers are computed."""
    parser.add_argument(
        "--precision", choices=("float32", "float16", "bfloat16"), default="float32",
        help="compute float32 layers in this type; inputs and outputs keep theirs (default: float32)",
    )  # fmt: skip


def _options_of(args: argparse.Namespace) -> OptimizerOptions | None:
    """Return the options of the optimizer that --precision requires; None for float32, or without this argument."""
    precision = getattr(args, "precision", "float32")
    if precision == "float32":
        return None
    return OptimizerOptions(reduce_fp32_to_fp16=precision == "float16", reduce_fp32_to_bf16=precision == "bfloat16")


def sources_of(args: argparse.Namespace) -> Iterator[str]:
    """Yield the paths of all files that a command reads, so that it does not overwrite one of them.

    These include external files with the weights of an ONNX model. An --input of the form ``NAME=FILE`` is yielded both
    as a whole and without its name, as a path may contain "=".
    """
    for name in ("network", "plan", "labels", "weights"):
        if getattr(args, name, None) is not None:
            yield getattr(args, name)
    yield from getattr(args, "trusted_key", [])
    if getattr(args, "sign_key", None) is not None:
        yield args.sign_key
    for text in getattr(args, "input", []):
        yield text
        yield text.partition("=")[2]
    with suppress(InterposerError):
        yield from map(str, files_of_weights(args.network))


def names_of(option: str, texts: Sequence[str], known: Container[str] = ()) -> list[str] | None:
    """Return the names in the values of an option, which have commas between them; None without the option.

    A value that is in `known` is one name, even if it has commas. `InvalidArgumentError` is raised if there is no name.
    """
    if not texts:
        return None
    groups = [[text] if text in known else text.split(",") for text in texts]
    names = [name.strip() for group in groups for name in group if name.strip()]
    if not names:
        raise InvalidArgumentError(f"{option} names no value; give names with commas between them")
    return list(dict.fromkeys(names))


def backend_ids(text: str) -> list[str]:
    """Return the ids in a comma-separated list."""
    ids = [AUTO if part.strip().lower() == AUTO else part.strip() for part in text.split(",") if part.strip()]
    if not ids:
        raise argparse.ArgumentTypeError("expected ids of backends with commas between them")
    return ids


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
        numbers = [_number(part) for part in numbers_text.split(",") if part.strip()]
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


def _shapes_of(args: argparse.Namespace) -> dict[str, int | list[int]] | None:
    """Return the values of --shape by name, or None without this option.

    A value is a shape, or one number for a named dimension. `InvalidArgumentError` is raised if a name is repeated.
    """
    return _once("--shape", args.shape)


def _values_of(args: argparse.Namespace) -> dict[str, Number | list[Number]] | None:
    """Return the values of --value by input name, or None without this option.

    A value is one number or a list. `InvalidArgumentError` is raised if a name is repeated.
    """
    return _once("--value", args.value)


def _once(option: str, pairs: list[tuple[str, T]]) -> dict[str, T] | None:
    names = [name for name, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidArgumentError(f"{option} gives {repeated!r} more than once")
    return dict(pairs) or None


def open_model(args: argparse.Namespace, plan: Plan | None = None) -> Model:
    """Return the model for the network's file, with the backends, limits, shapes, values and plan of the arguments.

    `plan` replaces the backends and the plan of the arguments.
    """
    if args.backends is not None and AUTO in args.backends and len(args.backends) > 1:
        raise InvalidArgumentError(f"--backends: {AUTO!r} chooses among all backends, so it stands alone")
    return load(
        args.network,
        args.backends if plan is None else None,
        **reading_of(args),
        options=_options_of(args),
        limits=Limits(args.limit_bytes, args.limit_operations),
        plan=plan if plan is not None or args.plan is None else Plan.load(args.plan),
    )


def report_absent(model: Model) -> None:
    """Report on standard error which of the backends requested for the model are not available."""
    for backend in model.optimized.absent:
        report_skipped(backend.id, backend.reason)


def report_skipped(backend: str, reason: str) -> None:
    """Report on standard error that a requested backend is not used, and why."""
    print(printable(f"interposer: backend {backend!r} is skipped: {reason}"), file=sys.stderr)


@contextmanager
def runtime_with_threads(count: int | None) -> Iterator[Runtime]:
    """Yield a runtime whose backends use up to `count` threads; None keeps the default.

    The runtime is closed at the end.

    The environment variable for the number of threads is set until then, and restored afterwards.
    """
    previous_count = os.environ.get(NUM_THREADS)
    if count is not None:
        os.environ[NUM_THREADS] = str(count)
    try:
        with Runtime(CreationOptions(num_threads=count)) as runtime:
            yield runtime
    finally:
        if count is not None:
            os.environ.pop(NUM_THREADS, None)
            if previous_count is not None:
                os.environ[NUM_THREADS] = previous_count
