"""What is read from a file before any of it is executed."""

from __future__ import annotations

import os
import random
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.plugins.capi.loading.elf import Elf, build_id, elf_problem
from tests import warm

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has ELF files to load")

FUNCTIONS = ("GetBackendId", "GetVersion", "BackendFactory")
GOOD = """
const char* GetBackendId(void) { return "X"; }
void GetVersion(unsigned* a, unsigned* b) { *a = *b = 0; }
void* BackendFactory(void) { return 0; }
"""


@pytest.fixture
def fault(tmp_path):
    """Says what is wrong with a file of this content."""

    def fault(content: bytes) -> str | None:
        path = tmp_path / "file"
        path.write_bytes(content)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return elf_problem(descriptor, FUNCTIONS)
        finally:
            os.close(descriptor)

    return fault


@pytest.fixture
def good(natives):
    """Return the content of a valid shared object."""
    return natives.compiled(GOOD).read_bytes()


# --- symbols ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [(), ("-s",), ("-Wl,--hash-style=sysv",), ("-Wl,--hash-style=gnu",), ("-Wl,--hash-style=both",)],
    ids=["plain", "stripped", "sysv", "gnu", "both"],
)
def test_the_functions_are_found_whatever_tables_the_linker_wrote(flags, fault, natives):
    assert fault(natives.compiled(GOOD, *flags).read_bytes()) is None


@pytest.mark.parametrize("style", ["sysv", "gnu"])
def test_the_functions_are_found_among_many(style, fault, natives):
    many = "".join(f"int function{number}(void) {{ return {number}; }}\n" for number in range(2000))
    assert fault(natives.compiled(GOOD + many, f"-Wl,--hash-style={style}").read_bytes()) is None
    assert fault(natives.compiled(many, f"-Wl,--hash-style={style}").read_bytes()) == (
        "it does not export GetBackendId and GetVersion and BackendFactory"
    )


def test_sections_are_not_needed(fault, good):
    without = bytearray(good)
    without[40:48] = bytes(8)  # e_shoff
    without[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    assert fault(bytes(without)) is None


@pytest.mark.parametrize("missing", FUNCTIONS)
def test_a_function_that_is_missing_is_named(missing, fault, natives):
    source = GOOD.replace(missing, f"Other{missing}")
    assert fault(natives.compiled(source).read_bytes()) == f"it does not export {missing}"


@pytest.mark.parametrize("change", ["static ", '__attribute__((visibility("hidden"))) '], ids=["static", "hidden"])
def test_a_function_that_is_not_exported_is_missing(change, fault, natives):
    source = GOOD.replace("void* BackendFactory", f"__attribute__((unused)) {change}void* BackendFactory")
    assert fault(natives.compiled(source).read_bytes()) == "it does not export BackendFactory"


def test_a_function_that_is_only_asked_for_is_missing(fault, natives):
    source = GOOD.replace('{ return "X"; }', ";") + "const char* other(void) { return GetBackendId(); }"
    assert fault(natives.compiled(source).read_bytes()) == "it does not export GetBackendId"


def test_a_variable_of_the_name_is_no_function(fault, natives):
    source = GOOD.replace("void GetVersion(unsigned* a, unsigned* b) { *a = *b = 0; }", "int GetVersion = 5;")
    assert fault(natives.compiled(source).read_bytes()) == "GetVersion in it is no function"


# --- other files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is not an ELF file, but empty"),
        (b"some text", "it is not an ELF file"),
        (b"\xcf\xfa\xed\xfe" + bytes(100), "it is not an ELF file, but a Mach-O file, for macOS"),
        (b"MZ" + bytes(100), "it is not an ELF file, but a PE file, for Windows"),
        (b"!<arch>\n" + bytes(100), "it is not an ELF file, but an archive of object files"),
        (b"/* GNU ld script */ INPUT(x.so)", "it is not an ELF file, but a script for the linker"),
        (b"\x7fELF", "it is damaged: its ELF header makes no sense"),
        (b"\x7fELF" + bytes(100), "it is damaged: its ELF header makes no sense"),
    ],
)
def test_a_file_of_another_kind_is_named(content, text, fault):
    assert fault(content) == text


def changed(content: bytes, offset: int, layout: str, value: int) -> bytes:
    """Return the content with one number replaced."""
    result = bytearray(content)
    struct.pack_into(layout, result, offset, value)
    return bytes(result)


@pytest.mark.parametrize(
    ("offset", "layout", "value", "text"),
    [
        (18, "<H", 183, "it is for AArch64 (64-bit, little-endian), but this process is "),
        (18, "<H", 9999, "it is for machine 9999 (64-bit, little-endian), but this process is "),
        (5, "B", 2, "it is for machine "),
        (4, "B", 1, "it is for "),
        (16, "<H", 1, "it is an object file that is not linked yet, not a shared object"),
        (16, "<H", 2, "it is a program, not a shared object"),
        (16, "<H", 77, "it is an ELF file of kind 77, not a shared object"),
        (56, "<H", 0, "it is not a shared object: nothing in it is for the dynamic linker"),
        (56, "<H", 60000, "it is damaged: it has 60,000 segments"),
        (32, "<Q", 1 << 62, "it is damaged: an offset in it is beyond the end of the file"),
    ],
    ids=["arm", "unknown", "big-endian", "32-bit", "object", "program", "kind", "empty", "many", "behind"],
)
def test_a_header_that_does_not_fit_is_told(offset, layout, value, text, fault, good):
    if (struct.unpack_from("<H", good, 18)[0], sys.byteorder, sys.maxsize > 2**32) != (62, "little", True):
        pytest.skip("the examples are for x86-64")
    assert fault(changed(good, offset, layout, value)).startswith(text)


def test_a_program_is_no_shared_object(fault):
    with open(warm.NEW_INTERPRETER, "rb") as file:
        assert "program" in fault(file.read())


def test_the_header_says_what_machine_a_file_is_for():
    descriptor = os.open("/proc/self/exe", os.O_RDONLY)
    assert f"({struct.calcsize('P') * 8}-bit, {sys.byteorder}-endian)" in Elf.of(descriptor).target
    os.close(descriptor)


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_off_never_raises(fault, good):
    for size in [*range(0, 200), *range(200, len(good), 97)]:
        assert isinstance(fault(good[:size]), str | None)


@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_never_raises(seed, natives, tmp_path_factory):
    chance = random.Random(seed)
    content = bytearray(natives.compiled(GOOD).read_bytes())
    for _ in range(chance.randint(1, 40)):
        content[chance.randrange(min(len(content), chance.choice([64, 1000, 1 << 20])))] = chance.randrange(256)
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert isinstance(elf_problem(descriptor, FUNCTIONS), str | None)
    finally:
        os.close(descriptor)


# --- the build ID -----------------------------------------------------------------------------------------------------


def test_the_build_id_is_what_the_linker_wrote(natives):
    assert build_id(natives.compiled(GOOD, "-Wl,--build-id=0x0123456789abcdef")) == "0123456789abcdef"


def test_a_file_without_a_build_id_has_an_empty_one(natives, tmp_path):
    (tmp_path / "text").write_text("no library")
    assert build_id(natives.compiled(GOOD, "-Wl,--build-id=none")) == build_id(tmp_path / "text") == ""


def test_notes_beyond_the_end_of_a_file_are_no_build_id(natives, tmp_path):
    content = natives.compiled(GOOD, "-Wl,--build-id=0x0123456789abcdef").read_bytes()
    for size in range(0, content.index(bytes.fromhex("0123456789abcdef")) + 8, 7):
        (tmp_path / "cut").write_bytes(content[:size])
        assert build_id(tmp_path / "cut") == ""
