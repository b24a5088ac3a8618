"""Installs a project of pure Python into a folder, as pip would, but without any tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from tests import warm

ROOT = Path(__file__).parents[2]


def install(project: Path, target: Path) -> None:
    """Copy the packages of a project, and write down its name, its version and its entry points."""
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    name, version = settings["project"]["name"], settings["project"]["version"]
    for package in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(project / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    lines = []
    for group, points in settings["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    write_dist_info(target, name, version, "\n".join(lines))


def write_dist_info(target: Path, name: str, version: str, entry_points: str) -> None:
    """Make it look as if a package were installed in a folder."""
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(f"{entry_points}\n", encoding="utf-8")


def python(target: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python that finds the packages in a folder; see `tests.warm`."""
    path = os.pathsep.join([str(target), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*warm.python(), *arguments],
        env=os.environ | {"PYTHONPATH": path} | environment,
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
    )
