"""The arguments of ``interposer saved``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import add_trust_argument, network_path

__all__ = ["configure"]

_HELP: Final = """\
Only the index of the file is read, unless --check is given. For each variant:
its shapes, the layers of each backend, and how many compiled parts of a backend
are in the file. Other parts are compiled when the file is loaded.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer saved`."""
    parser.epilog = _HELP
    parser.add_argument("network", type=network_path, help="the file that interposer compile has written")
    parser.add_argument("--check", action="store_true", help="verify the checksums of the whole file")
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
