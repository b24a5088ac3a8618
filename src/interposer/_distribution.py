"""The distribution that contains this package, and another project's with the same import package."""

import sys
from os.path import dirname, realpath

from interposer._version import __version__

DISTRIBUTION = "interposer-nn"
"""The name that pip installs, since `interposer` on the index is another project."""
OTHER = "interposer"
"""The name of the other project on the index, which has an import package of the same name."""
_INIT = "interposer/__init__.py"
_REMEDY = f"run `pip uninstall --yes {OTHER} {DISTRIBUTION}`, then `pip install {DISTRIBUTION}` with your extras"


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra; its quotes are needed in zsh."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def overwritten() -> str | None:
    """Return what to do if another project's files have replaced this package's own, or None if they have not."""
    package = sys.modules["interposer"]
    if getattr(package, "__version__", None) == __version__:
        return None
    description = f"another package, {OTHER!r}, which was installed over {DISTRIBUTION!r}"
    return f"{package.__file__} belongs to {description}; {_REMEDY}"


def other_package() -> str | None:
    """Return a warning if the package `interposer` of the index is installed too, and what to do; None if it is not.

    The metadata of installed packages is searched for it, in less than a millisecond.
    """
    from importlib.metadata import distributions  # noqa: PLC0415 - takes longer than the rest of `import interposer`

    for package in distributions(name=OTHER):
        if any(str(file) == _INIT for file in package.files or ()):  # an editable install has no such file
            return _warning(package.version, realpath(dirname(str(package.locate_file(_INIT)))))
    return None


def _warning(version: str, folder: str) -> str:
    own_folder = realpath(dirname(__file__))
    description = f"another package, {OTHER!r} {version},"
    if folder == own_folder:
        return f"{description} has its files in the same folder as {DISTRIBUTION!r}: {folder}; {_REMEDY}"
    return (
        f"{description} in {folder} has the same import package as {DISTRIBUTION!r} in {own_folder}; "
        "programs import the first in sys.path, so use an environment for each"
    )
