"""The names of files, and the folders in which they are looked for."""

from __future__ import annotations

import os

import pytest

from interposer.plugins.capi.loading.file_names import name_problem
from interposer.plugins.capi.loading.paths import Folder, folders_to_search, reason_not_built

# --- file names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "Arm_GpuAcc_backend.so",
        "Arm_GpuAcc_backend.so.1",
        "Arm_GpuAcc_backend.so.1.2",
        "Arm_GpuAcc_backend.so.1.2.3",
        "Arm_GpuAcc_backend.so.10.1.27",
        "Arm123_GpuAcc_backend.so",
        "Arm_GpuAcc456_backend.so",
        "Arm_CpuAcc_backend.so",
        "Arm_CpuAcc_backend.py",
    ],
)
def test_a_name_of_the_scheme_is_one(name):
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Arm_GpuAcc_backend.so.10.1.33.", "has a version that is not made of dots and numbers: '.10.1.33.'"),
        ("Arm_GpuAcc_backend.so.3.4..5", "has a version that is not made of dots and numbers: '.3.4..5'"),
        ("Arm_GpuAcc_backend.so.1,1.1", "has a version that is not made of dots and numbers: '.1,1.1'"),
        ("Arm_GpuAcc_backend.so.", "has a version that is not made of dots and numbers: '.'"),
        ("Arm_GpuAcc_backend.so.\N{SUPERSCRIPT TWO}", "has a version that is not made of dots and numbers: '.²'"),
        ("Arm%Co_GpuAcc_backend.so", "has a vendor with other characters than letters and digits: 'Arm%Co'"),
        ("Arm_Gpu.Acc_backend.so", "has a name with other characters than letters and digits: 'Gpu.Acc'"),
        ("Arm_Gpu\N{LATIN SMALL LETTER E WITH ACUTE}_backend.so", "has a name with other characters than letters and"),
        ("Arm_Gpu_Acc_backend.so", "has a vendor with other characters than letters and digits: 'Arm_Gpu'"),
        ("GpuAcc_backend.so", "has no vendor"),
        ("_GpuAcc_backend.so", "has no vendor"),
        ("Arm__backend.so", "has no name"),
        ("Arm_GpuAcc.so", "has no '_backend' before '.so'"),
        ("__backend.so", "has no vendor"),
        ("GpuAcc_backend.py", "has no vendor"),
        ("Arm_Gpu-Acc_backend.py", "has a name with other characters than letters and digits: 'Gpu-Acc'"),
        ("my_backends.py", "has no '_backend' before '.py'"),
        ("Arm_GpuAcc_backend.py.1", "does not end in '_backend.so' and a version, or in '_backend.py'"),
        ("__.so", "has no '_backend' before '.so'"),
        ("Arm_GpuAcc_backend", "does not end in '_backend.so' and a version, or in '_backend.py'"),
        ("Arm_GpuAcc_backend_v1.2.so", "has no '_backend' before '.so'"),
        ("Arm_GpuAcc_backendXso", "does not end in '_backend.so' and a version, or in '_backend.py'"),
        ("Arm_GpuAcc_backend.so\n", "does not end in '_backend.so' and a version, or in '_backend.py'"),
        ("Arm_GpuAcc_backend.so1", "does not end in '_backend.so' and a version, or in '_backend.py'"),
        ("", "does not end in '_backend.so' and a version, or in '_backend.py'"),
    ],
)
def test_any_other_name_is_refused_with_what_is_wrong(name, fault):
    result = name_problem(name)
    assert result.startswith(f"the file name {fault}")
    assert result.endswith("; expected <vendor>_<name>_backend.so[.<number>...] or <vendor>_<name>_backend.py")


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def listed(monkeypatch):
    """Puts paths into the environment's list and gives what is made of it."""

    def listed(*paths):
        monkeypatch.setenv("INTERPOSER_BACKEND_PATH", ":".join(map(str, paths)))
        return folders_to_search()

    return listed


def test_without_a_list_and_with_an_empty_one_there_are_no_folders(listed, monkeypatch):
    assert listed() == ()
    monkeypatch.delenv("INTERPOSER_BACKEND_PATH")
    assert folders_to_search() == ()


def test_folders_keep_the_order_in_which_they_are_given(listed, tmp_path):
    folders = [tmp_path / name for name in ("second", "first", "third")]
    for folder in folders:
        folder.mkdir()
    assert listed(*folders) == tuple(Folder(str(folder)) for folder in folders)


def test_a_folder_that_is_given_again_also_by_a_link_is_searched_once(listed, tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    assert listed(folder, link, folder, f"{folder}/") == (Folder(str(folder)),)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("relative", "the path is not absolute"),
        ("~/backends", "the path is not absolute"),
        ("{here}/nothing", "the folder does not exist"),
        ("{here}/file", "the path is not that of a folder"),
        ("{here}/file/below", "the folder cannot be looked at: Not a directory"),
        ("{here}/loop", "the folder cannot be looked at: Too many levels of symbolic links"),
        ("{here}/" + 300 * "n", "the folder cannot be looked at: File name too long"),
        ("", "the path is empty"),
    ],
)
def test_a_path_that_is_no_good_is_told_and_does_not_hide_the_others(path, fault, listed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("relative", "good"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    os.symlink("loop", tmp_path / "loop")
    path = path.format(here=tmp_path)
    assert listed(path, tmp_path / "good") == (Folder(path, fault), Folder(str(tmp_path / "good")))


def test_one_path_takes_the_place_of_the_whole_list(listed, tmp_path):
    (tmp_path / "listed").mkdir()
    (tmp_path / "named").mkdir()
    listed(tmp_path / "listed")
    assert folders_to_search(str(tmp_path / "named")) == (Folder(str(tmp_path / "named")),)


def refusal_of_python(path: str) -> str:
    """Return the message of Python for a path with a zero byte, which differs between its versions."""
    with pytest.raises(ValueError, match="embedded null") as caught:
        os.stat(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("", "the path is empty"),
        ("/nothing/here", "the folder does not exist"),
        ("/tmp:/var", "the folder does not exist"),
        ("/tmp\0", "the path cannot be one: " + refusal_of_python("\0")),
    ],
)
def test_one_path_that_is_no_good_hides_the_list_all_the_same(override, fault, listed, tmp_path):
    listed(tmp_path)
    assert folders_to_search(override) == (Folder(override, fault),)


# --- the package's own backends ---------------------------------------------------------------------------------------


def test_the_reason_why_an_own_backend_was_not_built_is_that_of_the_build(tmp_path):
    (tmp_path / "not_built.txt").write_text("no C++ compiler was found\n", encoding="utf-8")
    assert reason_not_built(str(tmp_path)) == "it was not built: no C++ compiler was found"


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_package_without_a_build_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "not_built.txt").write_bytes(content)
    assert reason_not_built(str(tmp_path)) == "it was not built: this copy of the package was not made by its build"
