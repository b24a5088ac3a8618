"""Entry points of installed packages: all that `importlib.metadata` finds, each package once."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from interposer.core.entry_points import EntryPoint, entry_points

GROUP = "interposer.tests"


def described(folder: Path, name: str, value: str = "package:Part") -> Path:
    """Write the files that describe an installed package into a folder, and return the folder with this one."""
    folder.mkdir(parents=True)
    for file in ("METADATA", "PKG-INFO"):
        (folder / file).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\npart = {value}\n", encoding="utf-8")
    return folder.parent


def found(monkeypatch: pytest.MonkeyPatch, *path: object) -> list[tuple[str, str]]:
    """Return the names of the packages with entry points if this is `sys.path`, each with its object."""
    monkeypatch.setattr(sys, "path", [*map(str, path)])
    return [(package, point.value) for package, point in entry_points(GROUP)]


@pytest.mark.parametrize("folder", ["site/one-1.dist-info", "site/one.egg-info", "one-1.egg/EGG-INFO"])
def test_a_package_is_found_however_it_is_installed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = described(tmp_path / folder, "one")
    assert found(monkeypatch, place, place) == [("one", "package:Part")]


def test_a_package_in_an_archive_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = described(tmp_path / "one-1.dist-info", "one")
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        for file in (place / "one-1.dist-info").iterdir():
            archive.write(file, f"one-1.dist-info/{file.name}")
    assert found(monkeypatch, tmp_path / "packages.zip") == [("one", "package:Part")]


def test_the_first_of_several_installations_of_a_package_counts_however_its_name_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = described(tmp_path / "first" / "my_part-2.dist-info", "My.Part", "new:Part")
    second = described(tmp_path / "second" / "my_part-1.dist-info", "my-part", "old:Part")
    assert found(monkeypatch, first, second) == [("My.Part", "new:Part")]
    assert found(monkeypatch, second, first) == [("my-part", "old:Part")]


def test_what_importers_ignore_in_the_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = described(tmp_path / "one-1.dist-info", "one")
    monkeypatch.setattr(sys, "path", [None, bytes(place), place, str(place / "absent"), "\0", str(place)])
    assert entry_points(GROUP) == [("one", EntryPoint("part", "package:Part", GROUP))]
