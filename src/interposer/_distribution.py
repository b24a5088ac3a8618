"""The distribution that contains this package, under the name that the package index knows."""

DISTRIBUTION = "interposer-nn"
"""The name that pip installs, since the index has an unrelated `interposer` with the same import package."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra; its quotes are needed in zsh."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
