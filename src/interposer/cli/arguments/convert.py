"""The arguments of ``interposer convert``."""

from __future__ import annotations

import argparse
from typing import Any

from interposer.cli.arguments.shared import NETWORK_HELP, add_source_arguments, network_path
from interposer.cli.numbers import positive
from interposer.file_formats import WriteOption, process_formats

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer convert`."""
    parser.add_argument("network", type=network_path, help=NETWORK_HELP)
    parser.add_argument("output", help="the file to write; its suffix, {writers}, is the format")
    add_source_arguments(parser)
    parser.add_argument(
        "-i", "--inputs", action="append", default=[], metavar="NAME,NAME",
        help="begin the network at these values; layers before them are dropped; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--outputs", action="append", default=[], metavar="NAME,NAME",
        help="end the network at these values; layers that they do not need are dropped; may be repeated",
    )  # fmt: skip
    for option, titles in _options().items():
        help_text = "; ".join(f"for {title}, {help}" for title, help in titles.items())
        kind: dict[str, Any] = {"action": "store_true"}
        if option.kind is not bool:
            kind = {"type": positive if option.kind is int else str, "metavar": option.metavar}
        parser.add_argument(_flag(option.name), help=help_text, **kind)


def _options() -> dict[WriteOption, dict[str, str]]:
    """Return the options of all writers: for each one the help by the title of the format."""
    options: dict[WriteOption, dict[str, str]] = {}
    for format in process_formats().writers().values():
        for option in format.write_options:
            options.setdefault(option._replace(help=""), {})[format.title] = option.help
    return options


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
