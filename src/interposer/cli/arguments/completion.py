"""The arguments of ``interposer completion``."""

from __future__ import annotations

import argparse
from typing import Final

__all__ = ["SHELLS", "configure"]

SHELLS: Final = ("bash", "zsh", "fish")
_HELP: Final = """\
The script completes commands, options, formats, backends, operators and files. To
load it in each new shell, add a line to the shell's startup file:

  bash, in ~/.bashrc:                    eval "$(interposer completion bash)"
  zsh, in ~/.zshrc, after compinit:      eval "$(interposer completion zsh)"
  fish, in ~/.config/fish/config.fish:   interposer completion fish | source
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer completion`."""
    parser.epilog = _HELP
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    typed = parser.add_argument("typed", nargs=argparse.REMAINDER, default=[], help=argparse.SUPPRESS)
    typed.required = False  # so that an error names the shell alone
