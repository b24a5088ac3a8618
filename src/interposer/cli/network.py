"""Shared arguments of the commands that read a network, and the creation of a model from them."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from typing import Any, Final, TypeVar

from interposer.cli.arguments.shared import Number
from interposer.cli.numbers import listed
from interposer.cli.progress import progress_line
from interposer.cli.running import Running, runtime_with_threads
from interposer.cli.streams import print_error, printable
from interposer.core.errors import InvalidArgumentError
from interposer.optimizer import OptimizerOptions
from interposer.session import Limits, Model, load
from interposer.session.fallback import AUTO
from interposer.session.placement import Plan

__all__ = [
    "limits_of",
    "names_of",
    "open_model",
    "reading_of",
    "report_absent",
    "report_skipped",
    "runtime_with_threads",
    "trusted_keys_of",
]

T = TypeVar("T")
_LIMITS: Final = {"max_bytes": "limit_bytes", "max_operations": "limit_operations"}


def trusted_keys_of(args: argparse.Namespace) -> list[str] | None:
    """Return the files of --trusted-key, or None without this option."""
    return args.trusted_key or None


def reading_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that control how the file is read, as keyword arguments of `load` and `read_network`."""
    return {
        "format": args.format,
        "shapes": _shapes_of(args),
        "values": _values_of(args),
        "weights": args.weights,
        "signature": args.signature,
        "stand_in": args.stand_in,
        "subgraph": args.subgraph,
        "trusted_keys": trusted_keys_of(args),
    }


def _options_of(args: argparse.Namespace) -> OptimizerOptions | None:
    """Return the options of the optimizer that --precision requires; None for float32, or without this argument."""
    precision = getattr(args, "precision", "float32")
    if precision == "float32":
        return None
    return OptimizerOptions(reduce_fp32_to_fp16=precision == "float16", reduce_fp32_to_bf16=precision == "bfloat16")


def names_of(option: str, texts: Sequence[str], known: Container[str] = ()) -> list[str] | None:
    """Return the names in the values of an option, which have commas between them; None without the option.

    A value that is in `known` is one name, even if it has commas. `InvalidArgumentError` is raised for an empty name
    and for one that is repeated.
    """
    if not texts:
        return None
    groups = {text: [text] if text in known else listed(text) for text in texts}
    empty_text = next((text for text, names in groups.items() if not names), None)
    if empty_text is not None:
        raise InvalidArgumentError(f"{option} takes names with commas between them, not {empty_text!r}")
    names = [name for text in texts for name in groups[text]]
    _check_once(option, names)
    return names


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
    _check_once(option, [name for name, _ in pairs])
    return dict(pairs) or None


def _check_once(option: str, names: Sequence[str]) -> None:
    repeated_name = next((name for name in names if names.count(name) > 1), None)
    if repeated_name is not None:
        raise InvalidArgumentError(f"{option} gives {repeated_name!r} more than once")


def limits_of(args: argparse.Namespace) -> Limits:
    """Return the limits of --limit-bytes and --limit-operations."""
    return Limits(**{field: getattr(args, name) for field, name in _LIMITS.items() if hasattr(args, name)})


def open_model(args: argparse.Namespace, running: Running, plan: Plan | None = None) -> Model:
    """Return the model for the network's file, with the backends, limits, shapes, values and plan of the arguments.

    `plan` replaces the backends and the plan of the arguments.
    """
    if args.backends is not None and AUTO in args.backends and len(args.backends) > 1:
        raise InvalidArgumentError(f"--backends: {AUTO!r} chooses among all backends, so it stands alone")
    if plan is None and args.plan is not None:
        plan = Plan.load(args.plan)
    with progress_line() as progress:
        progress.wait(f"loading {args.network}")
        return _loaded(args, running, plan)


def _loaded(args: argparse.Namespace, running: Running, plan: Plan | None) -> Model:
    return load(
        args.network,
        args.backends if plan is None else None,
        **reading_of(args),
        options=running.options(_options_of(args), args.backends if plan is None else plan.backends),
        runtime=running.runtime,
        limits=limits_of(args),
        plan=plan,
    )


def report_absent(model: Model) -> None:
    """Report on standard error which of the backends requested for the model are not available."""
    for backend in model.optimized.absent:
        report_skipped(backend.id, backend.reason)


def report_skipped(backend: str, reason: str) -> None:
    """Report on standard error that a requested backend is not used, and why."""
    print_error(printable(f"interposer: backend {backend!r} is skipped: {reason}"))
