"""The option that names a folder with model files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "add_models"]

VARIABLE: Final = "INTERPOSER_BENCHMARK_MODELS"
"""The environment variable that names the folder if no option does."""


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the option `--models`; the value is None if neither the option nor the variable names a folder."""
    parser.add_argument(
        "--models",
        type=_folder,
        default=os.environ.get(VARIABLE) or None,
        help=f"folder with more model files (by default that of the environment variable {VARIABLE}, if it is set)",
    )


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path
