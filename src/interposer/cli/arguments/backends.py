"""The arguments of ``interposer backends``."""

from __future__ import annotations

import argparse

from interposer.cli.arguments.shared import add_backend_path_argument

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer backends`."""
    add_backend_path_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
