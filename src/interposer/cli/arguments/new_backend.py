"""The arguments of ``interposer new-backend``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["ASYNCHRONOUS", "BRIDGES", "COPIED", "configure"]

COPIED: Final[Mapping[str, dict[str, str]]] = {
    "python": {},
    "c": {"backend.h": "include/interposer/backend.h"},
    "cpp": {"backend.h": "include/interposer/backend.h", "backend.hpp": "include/interposer/backend.hpp"},
    "rust": {"backend.rs": "src/interposer.rs"},
}
"""For each language, the files of the interface that are copied into the project."""

ASYNCHRONOUS: Final[Mapping[str, dict[str, str]]] = {"cpp": {"queues.hpp": "include/interposer/queues.hpp"}}
"""For each language, the files of the interface that an asynchronous backend has besides."""

BRIDGES: Final = ("onnxruntime", "litert")
"""The hosts in which backends can run, each with templates in the folder ``bridge-<host>``."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer new-backend`."""
    parser.add_argument("name", help="the id of the backend, such as Npu: letters and digits")
    parser.add_argument("--lang", choices=list(COPIED), required=True, help="the programming language of the backend")
    parser.add_argument(
        "--vendor", default="Local", metavar="V", help="the vendor of the backend: letters and digits (default: Local)"
    )
    parser.add_argument(
        "--async", action="store_true", dest="asynchronous",
        help="with --lang c, cpp or rust: let runs be submitted to queues and complete later",
    )  # fmt: skip
    parser.add_argument(
        "--bridge", choices=BRIDGES, action="append", default=[],
        help="add a module for programs that use ONNX Runtime or LiteRT, in a package for pip; may be given twice",
    )  # fmt: skip
    parser.add_argument(
        "--folder", type=Path, metavar="F", help="where to write it: a new or empty folder (<name>-backend, here)"
    )
