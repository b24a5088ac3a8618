"""The C header, its mirror in ctypes and the Rust binding say the same; what 1.0 laid down stays where it is."""

import ctypes
import re
import subprocess
import sys

import pytest

from interposer import include
from interposer._version import VOCABULARY_REVISION
from interposer.backend import API_VERSION
from interposer.plugins.capi.abi import structs as abi
from tests.native import SOURCES, compiler_for

HEADER = include.path() / "interposer" / "backend.h"
MEMBERS = [(struct, name) for struct, kind in abi.STRUCTS.items() for name, *_ in kind._fields_]
PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include "interposer/backend.h"
int main(void) {{
{lines}
  return 0;
}}
"""


def printed(tmp_path, lines, flags=()):
    """What a C program with these statements prints, line by line."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM.format(lines="\n".join(lines)), encoding="utf-8")
    words = [compiler_for("c"), "-std=c11", f"-I{include.path()}", *flags, str(source), "-o", str(program)]
    subprocess.run(words, check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def test_every_member_lies_where_the_compiler_puts_it(tmp_path):
    lines = [f'printf("%zu\\n", offsetof({struct}, {name}));' for struct, name in MEMBERS]
    lines += [f'printf("%zu\\n", sizeof({struct}));' for struct in abi.STRUCTS]
    mirrored = [getattr(abi.STRUCTS[struct], name).offset for struct, name in MEMBERS]
    mirrored += [ctypes.sizeof(kind) for kind in abi.STRUCTS.values()]
    assert [int(line) for line in printed(tmp_path, lines)] == mirrored


def header_structs():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    result = re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL)
    return {name: [_member(word.strip()) for word in body.split(";")[:-1]] for body, name in result}


def _member(declaration):
    function = re.search(r"\(\*(\w+)\)", declaration)
    return function[1] if function else re.search(r"\w+$", declaration)[0]


def test_the_mirror_has_every_struct_and_member_of_the_header():
    assert header_structs() == {struct: [name for name, *_ in kind._fields_] for struct, kind in abi.STRUCTS.items()}


def test_the_rust_binding_has_every_struct_and_member_of_the_header():
    text = (include.path() / "interposer" / "backend.rs").read_text(encoding="utf-8")
    result = {}
    for name, body in re.findall(r"pub struct (ipr_\w+) \{(.*?)\n    \}", text, re.DOTALL):
        result[name] = [item.rstrip("_") for item in re.findall(r"^        pub (\w+):", body, re.MULTILINE)]
    assert result == header_structs()


def header_constants(tmp_path):
    names = re.findall(r"^#define IPR_(\w+) \S", HEADER.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for name in names if name != "EXPORT" and not name.startswith("EXT_")]
    lines = [f'printf("%llu\\n", (unsigned long long)IPR_{name});' for name in names]
    return dict(zip(names, map(int, printed(tmp_path, lines)), strict=True))


def test_the_mirror_has_the_constants_of_the_header(tmp_path):
    constants = header_constants(tmp_path)
    mirrored = {name: value for name, value in vars(abi).items() if name.isupper() and isinstance(value, int)}
    mirrored |= {f"CAP_{item.name}": int(item) for item in abi.Cap}
    mirrored |= {f"EXECUTABLE_{item.name}": int(item) for item in abi.ExecutableFlag}
    mirrored |= {f"VALUE_{item.name}": int(item) for item in abi.Known}
    mirrored |= {f"DTYPE_{dtype.name}": number for dtype, number in abi.DTYPES.items()}
    mirrored |= {"API_MAJOR": abi.API_VERSION[0], "API_MINOR": abi.API_VERSION[1]}
    mirrored |= {"VOCABULARY_REVISION": VOCABULARY_REVISION}
    unused = {name for name in constants if name.startswith(("REASON_", "MEMORY_", "DTYPE_NONE"))}
    assert {name: constants[name] for name in constants.keys() - unused} == {
        name: mirrored[name] for name in constants.keys() - unused
    }


def test_the_rust_binding_has_the_constants_of_the_header(tmp_path):
    text = (include.path() / "interposer" / "backend.rs").read_text(encoding="utf-8")
    result = {name: int(value, 0) for name, value in re.findall(r"pub const (\w+): [iu]\d+ = (\w+);", text)}
    assert result == header_constants(tmp_path)


@pytest.mark.parametrize("standard", ["c11", "c17", "c++11", "c++17", "c++20"])
def test_the_header_is_clean_in(standard, tmp_path):
    compiler = compiler_for("c++" if "++" in standard else "c")
    source = tmp_path / f"header.{'cpp' if '++' in standard else 'c'}"
    source.write_text('#include "interposer/backend.h"\nint main(void) { return 0; }\n', encoding="utf-8")
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", f"-I{include.path()}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(tmp_path / "program")], check=True)


def test_the_header_includes_nothing_but_fixed_integers_and_offsets():
    assert re.findall(r"#include (\S+)", HEADER.read_text(encoding="utf-8")) == ["<stddef.h>", "<stdint.h>"]


@pytest.mark.parametrize("header", ["the present one", "the frozen one"])
def test_the_layout_of_version_1_0_is_asserted_by_the_compiler(header, tmp_path):
    folder = include.path() if header == "the present one" else SOURCES / "frozen" / "1.0"
    words = [compiler_for("c"), "-std=c11", f"-I{folder}", "-c", str(SOURCES / "frozen" / "layout_1_0.c")]
    subprocess.run([*words, "-o", str(tmp_path / "layout.o")], check=True)


def declarations(header):
    """The lines of a header without its comments."""
    code = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [" ".join(line.split()) for line in code.splitlines() if line.strip()]


def test_the_present_header_keeps_every_declaration_of_the_frozen_one_in_its_order():
    frozen = declarations(SOURCES / "frozen/1.0/interposer/backend.h")
    present = iter(declarations(HEADER))
    lost = [line for line in frozen if line not in present]  # each search goes on after the match before it
    assert not lost, "released declarations never change; append instead"


def test_the_structs_of_the_rust_binding_have_the_sizes_of_the_header(tmp_path):
    source, program = tmp_path / "sizes.rs", tmp_path / "sizes"
    binding = include.path() / "interposer" / "backend.rs"
    lines = "\n".join(f'println!("{{}}", std::mem::size_of::<interposer::raw::{name}>());' for name in abi.STRUCTS)
    source.write_text(f'#[path = "{binding}"]\nmod interposer;\nfn main() {{\n{lines}\n}}\n', encoding="utf-8")
    subprocess.run([compiler_for("rust"), "--edition=2021", "-Awarnings", str(source), "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(abi.STRUCTS, map(int, result), strict=True)) == {
        name: ctypes.sizeof(kind) for name, kind in abi.STRUCTS.items()
    }


def test_the_versions_agree():
    assert API_VERSION == abi.API_VERSION
    assert sorted(abi.TABLE_SIZES) == list(range(abi.API_VERSION[1] + 1))
    assert abi.TABLE_SIZES[abi.API_VERSION[1]] == ctypes.sizeof(abi.Backend)


def test_the_folder_of_the_header_is_printed():
    done = subprocess.run([sys.executable, "-m", "interposer.include"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(include.path())
    assert HEADER.is_file()
