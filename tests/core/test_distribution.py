"""An environment in which another project has installed the same import package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "interposer"
THEIRS = "def record_calls(): ...\n"
REMEDY = "run `pip uninstall --yes interposer interposer-nn`, then `pip install interposer-nn` with your extras"
LOAD = "import interposer.file_formats.registry as registry; print(len(registry.process_formats().names) > 5)"


@pytest.fixture
def site(tmp_path):
    """A folder with a complete install of this package."""
    folder = tmp_path / "site" / "interposer"
    folder.mkdir(parents=True)
    for path in PACKAGE.iterdir():
        (folder / path.name).symlink_to(path)
    return folder.parent


def install_the_other_package(folder: Path) -> None:
    """Write the files of another package, over those that are there."""
    init = folder / "interposer" / "__init__.py"
    init.parent.mkdir(parents=True, exist_ok=True)
    init.unlink(missing_ok=True)
    init.write_text(THEIRS)
    note_the_other_package(folder, "interposer/__init__.py,,\ninterposer-1.0.0.dist-info/METADATA,,\n")


def note_the_other_package(folder: Path, record: str) -> None:
    info = folder / "interposer-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: interposer\nVersion: 1.0.0\n")
    (info / "RECORD").write_text(record)


def python(*words: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([*map(str, path), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words], env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True, check=False
    )


def test_a_package_under_this_one_is_reported_once_with_what_to_do(site):
    note_the_other_package(site, "interposer/__init__.py,,\n")
    warning = (
        "another package, 'interposer' 1.0.0, has its files in the same folder as 'interposer-nn': "
        f"{site / 'interposer'}; {REMEDY}"
    )
    done = python("-m", "interposer", "backends", path=[site])
    assert (done.returncode, done.stderr.count("another package")) == (0, 1)
    assert warning in done.stderr
    assert python("-c", LOAD, path=[site]).stderr == f"{warning}\n"


def test_the_command_says_that_it_was_overwritten(site):
    install_the_other_package(site)
    done = python("-m", "interposer", "backends", path=[site])
    assert (done.returncode, done.stdout, done.stderr) == (
        2, "", f"interposer: {site / 'interposer' / '__init__.py'} belongs to another package, 'interposer', which was "
        f"installed over 'interposer-nn'; {REMEDY}\n",
    )  # fmt: skip


def test_a_module_of_an_overwritten_package_is_no_riddle(site):
    install_the_other_package(site)
    done = python("-c", "import interposer.backend", path=[site])
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {site / 'interposer' / '__init__.py'} belongs to another package, 'interposer', which was "
        f"installed over 'interposer-nn'; {REMEDY}"
    )


def test_a_package_in_another_folder_is_reported_with_both_folders(site, tmp_path):
    install_the_other_package(tmp_path / "later")
    theirs = tmp_path / "later" / "interposer"
    assert python("-c", LOAD, path=[site, tmp_path / "later"]).stderr == (
        f"another package, 'interposer' 1.0.0, in {theirs} has the same import package as "
        f"'interposer-nn' in {site / 'interposer'}; programs import the first in sys.path, so use an environment for "
        "each\n"
    )


@pytest.mark.parametrize("record", ["", "_interposer.pth,,\n", "interposer_tools/__init__.py,,\n"])
def test_packages_without_the_same_files_are_not_reported(site, record):
    note_the_other_package(site, record)
    done = python("-c", LOAD, path=[site])
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_package_that_cannot_be_read_does_not_stop_the_start(site):
    note_the_other_package(site, 'interposer/__init__.py,"unended\n,,,,\n')
    (site / "interposer-1.0.0.dist-info" / "RECORD").write_bytes(b"\xff\xfe\n")
    done = python("-c", LOAD, path=[site])
    assert done.stdout == "True\n"
    assert "Traceback" not in done.stderr
