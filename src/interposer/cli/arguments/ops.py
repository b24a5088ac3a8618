"""The arguments of ``interposer ops``."""

from __future__ import annotations

import argparse

from interposer.cli.arguments.shared import add_backend_path_argument

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer ops`."""
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument(
        "operator", nargs="?", help="describe this operator; names from ONNX, TFLite, NNAPI and Arm NN work too"
    )
    subject.add_argument("--backend", metavar="ID", help="list the kernels of this backend, and the types they take")
    add_backend_path_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
