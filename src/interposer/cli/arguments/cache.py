"""The arguments of ``interposer cache``."""

from __future__ import annotations

import argparse

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer cache`."""
    parser.add_argument("action", choices=["list", "why", "clear"], help="what to do")
    parser.add_argument("model", nargs="?", help="why: the file of a network; without it, all stale files")
    parser.add_argument("--dir", default="", metavar="FOLDER", help="a cache folder other than the default one")
    parser.add_argument("--stale", action="store_true", help="clear: delete only stale files")
    parser.add_argument("--json", action="store_true", help="print the records as JSON")
