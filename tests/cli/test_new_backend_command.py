"""``interposer new-backend``: what it writes builds, conforms and runs a network, in every language that is here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import interposer as ip
from interposer import include
from interposer.bridges.files import library
from interposer.cli.main import main
from interposer.cli.new_backend import COPIED, TEMPLATES
from tests.native import compiler_for
from tests.parameters import slow_unless
from tests.plugins.install import install, python

pytestmark = pytest.mark.usefixtures("warm_python")
COMPILERS = {"c": "c", "cpp": "c++", "rust": "rust"}
STRICT = ["CFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror", "CXXFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
FILES = {
    "python": ["README.md", "npu_backend/__init__.py", "npu_backend/profiling.py", "pyproject.toml",
               "tests/test_conformance.py"],
    "c": ["CMakeLists.txt", "Makefile", "README.md", "include/interposer/backend.h", "src/backend.c",
          "src/profiling.h"],
    "cpp": ["CMakeLists.txt", "Makefile", "README.md", "include/interposer/backend.h", "include/interposer/backend.hpp",
            "src/backend.cpp", "src/profiling.hpp"],
    "rust": ["Cargo.toml", "Makefile", "README.md", "src/interposer.rs", "src/lib.rs",
             "src/profiling.rs"],
}  # fmt: skip

needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux")


@pytest.fixture
def project(tmp_path, capsys):
    """Writes a project, and gives its folder."""

    def project(language, *words):
        folder = tmp_path / "project"
        assert main(["new-backend", "Npu", "--lang", language, "--folder", str(folder), *words]) == 0
        return folder

    return project


def tool(name):
    """Return the path of a program; skip the test if the program is missing."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not here")
    return path


def carried_out(*words, cwd, **environment):
    words = [str(word) for word in words]
    around = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, env=around | environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def run_on_npu(folder):
    """What ``(x + 1) + x`` gives on the backend in a folder, and that nobody else had a part in it."""
    network = ip.Network("sums")
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    more = network.add_addition_layer(x, network.add_constant_layer(np.float32([1, 1, 1])), name="more")
    network.add_output_layer(0, network.add_addition_layer(more, x, name="last"))
    with ip.Runtime(ip.CreationOptions(dynamic_backends_path=folder)) as runtime:
        model = ip.load(network, ["Npu"], runtime=runtime)
        return model.run([[1, 2, 3]])[0].tolist()


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", COPIED)
def test_a_project_is_a_few_files_in_which_every_name_is_filled_in(language, project):
    folder = project(language)
    assert files_in(folder) == FILES[language]
    ours = [path for path in folder.rglob("*") if path.is_file() and "interposer" not in path.relative_to(folder).parts]
    texts = "".join(path.read_text() for path in ours if path.name != "interposer.rs")
    assert "Npu" in texts
    assert "{{" not in texts.replace("${{", "")


def test_bridges_add_a_module_for_each_host(project):
    folder = project("python", "--bridge", "onnxruntime", "--bridge", "litert", "--bridge", "litert")
    added = {
        "ONNXRUNTIME.md", "LITERT.md", "npu_backend/litert.py", "npu_backend/onnxruntime.py",
        "tests/test_onnxruntime.py",
    }  # fmt: skip
    assert {*files_in(folder)} - {*FILES["python"]} == added
    texts = [(folder / name).read_text() for name in added]
    assert all("Npu" in text and "{{" not in text for text in texts)


@pytest.mark.parametrize("language", ["c", "cpp", "rust"])
def test_a_bridge_makes_a_native_project_a_package_that_builds_the_shared_object(language, project, capsys):
    folder = project(language, "--bridge", "litert", "--vendor", "Acme")
    assert "  make check\n  pip install .\n" in capsys.readouterr().out
    added = {"LITERT.md", "hatch_build.py", "npu_backend/__init__.py", "npu_backend/litert.py", "pyproject.toml"}
    assert {*files_in(folder)} - {*FILES[language]} == added
    assert "Acme_Npu_backend.so" in (folder / "npu_backend" / "__init__.py").read_text()
    assert all("{{" not in (folder / name).read_text() for name in added)


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize(("host", "required"), [("onnxruntime", "interposer-nn[onnx]"), ("litert", "interposer-nn")])
def test_a_package_requires_what_its_host_needs(language, host, required, project):
    text = (project(language, "--bridge", host) / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["dependencies"][0] == required


def test_an_asynchronous_project_has_the_header_of_queues(project):
    folder = project("cpp", "--async")
    assert {*files_in(folder)} - {*FILES["cpp"]} == {"include/interposer/queues.hpp"}
    assert "ipr::queues<ipr::Queue>()" in (folder / "src" / "backend.cpp").read_text()
    assert "-pthread" in (folder / "Makefile").read_text()
    assert "target_link_libraries(npu_backend PRIVATE Threads" in (folder / "CMakeLists.txt").read_text()


def test_an_asynchronous_project_in_c_has_its_queues_in_a_file(project):
    folder = project("c", "--async")
    assert {*files_in(folder)} - {*FILES["c"]} == {"src/queues.h"}
    assert "return &queues;" in (folder / "src" / "backend.c").read_text()
    assert "src/queues.h" in (folder / "Makefile").read_text()
    assert "src/queues.h" in (folder / "README.md").read_text()


def test_an_asynchronous_project_in_rust_has_its_queues_in_a_file(project):
    folder = project("rust", "--async")
    assert {*files_in(folder)} - {*FILES["rust"]} == {"src/queues.rs"}
    assert "queues::table(name)" in (folder / "src" / "lib.rs").read_text()
    assert "src/queues.rs" in (folder / "Makefile").read_text()
    assert "src/queues.rs" in (folder / "README.md").read_text()


def test_queues_are_added_to_a_native_project_only(tmp_path, capsys):
    folder = tmp_path / "project"
    assert main(["new-backend", "Npu", "--lang", "python", "--async", "--folder", str(folder)]) == 2
    assert capsys.readouterr().err == (
        "interposer: --async adds queues to a backend in C, C++ or Rust, and not to --lang python; "
        "use --lang cpp, c or rust\n"
    )
    assert not folder.exists()


@pytest.mark.parametrize("language", ["c", "cpp", "rust"])
def test_the_files_of_the_interface_are_those_of_the_package(language, project):
    folder = project(language)
    for name, place in COPIED[language].items():
        assert (folder / place).read_bytes() == (include.path() / "interposer" / name).read_bytes()


def test_what_was_written_and_what_comes_next_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "Npu2", "--lang", "c"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "npu2-backend/CMakeLists.txt", "npu2-backend/Makefile", "npu2-backend/README.md", "npu2-backend/src/backend.c",
        "npu2-backend/src/profiling.h", "npu2-backend/include/interposer/backend.h", "",
        "Now, in npu2-backend:", "  make", "  make check",
        "See README.md there for the next steps.",
    ]  # fmt: skip
    assert "build/Local_Npu2_backend.so" in (tmp_path / "npu2-backend/README.md").read_text()


def test_the_templates_are_files_of_the_package():
    bridges = [f"bridge-{host}" for host in ("litert", "onnxruntime")]
    assert sorted(path.name for path in TEMPLATES.iterdir()) == sorted(
        [*COPIED, "c-async", "rust-async", "native-package", *bridges]
    )
    assert all(path.suffix == ".in" for path in TEMPLATES.rglob("*") if path.is_file())


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["my-npu"], "the name 'my-npu' has '-' in it; only the letters A to Z and digits may be in it, as shared "
         "objects are named <vendor>_<name>_backend.so"),
        (["Näh r"], "the name 'Näh r' has ' ', 'ä' in it; only the letters A to Z and digits may be in it, as shared "
         "objects are named <vendor>_<name>_backend.so"),
        (["../Npu"], "the name '../Npu' has '.', '/' in it; only the letters A to Z and digits may be in it, as shared "
         "objects are named <vendor>_<name>_backend.so"),
        ([""], "the name is empty; expected letters and digits, such as Npu"),
        (["3d"], "the name '3d' must begin with a letter, as it is part of the name of a class"),
        (["N" * 65], "the name has 65 letters; 64 are the most"),
        (["Unknown"], "no backend may have the id 'Unknown'; choose another name"),
        (["Npu", "--vendor", "A_B"], "the vendor 'A_B' has '_' in it; only the letters A to Z and digits may be in it, "
         "as shared objects are named <vendor>_<name>_backend.so"),
        (["Npu", "--vendor", ""], "the vendor is empty; expected letters and digits, such as Npu"),
    ],
    ids=["hyphen", "letters", "path", "empty", "digit", "long", "Unknown", "vendor", "no vendor"],
)  # fmt: skip
def test_a_name_that_cannot_be_one_is_refused(words, text, tmp_path, capsys):
    folder = tmp_path / "project"
    assert main(["new-backend", *words, "--lang", "c", "--folder", str(folder)]) == 2
    assert capsys.readouterr().err == f"interposer: {text}\n"
    assert not folder.exists()


@pytest.mark.needs_cpuref
def test_an_id_that_is_taken_is_refused(tmp_path, capsys):
    assert main(["new-backend", "CpuRef", "--lang", "c", "--folder", str(tmp_path / "project")]) == 2
    assert capsys.readouterr().err == (
        "interposer: there is a backend with the id 'CpuRef' already (entry point of interposer-nn), and only the "
        "first of one id is loaded; choose another name\n"
    )


def test_nothing_is_overwritten(project, tmp_path, capsys):
    folder = project("c")
    source = folder / "src" / "backend.c"
    source.write_text("mine")
    capsys.readouterr()
    assert main(["new-backend", "Npu", "--lang", "cpp", "--folder", str(folder)]) == 2
    assert capsys.readouterr().err == (
        f"interposer: the folder {folder} is not empty, and nothing is overwritten; name another one\n"
    )
    assert main(["new-backend", "Npu", "--lang", "cpp", "--folder", str(source)]) == 2
    assert capsys.readouterr().err == f"interposer: {source} is there and is no folder; name another one\n"
    assert source.read_text() == "mine"
    assert files_in(folder) == FILES["c"]


def test_an_empty_folder_is_filled(project, tmp_path):
    (tmp_path / "project").mkdir()
    assert files_in(project("python")) == FILES["python"]


def test_a_language_must_be_named(capsys):
    assert main(["new-backend", "Npu"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("the following arguments are required: --lang")
    assert main(["new-backend", "Npu", "--lang", "c++"]) == 2
    assert "unknown choice 'c++' (known: python, c, cpp, rust)" in capsys.readouterr().err


# --- what becomes of it -----------------------------------------------------------------------------------------------


@needs_linux
@pytest.mark.parametrize("language", slow_unless("cpp".__eq__, ["c", "cpp", "rust"]))
def test_a_project_in_native_code_builds_conforms_and_runs_a_network(language, project):
    compiler_for(COMPILERS[language])
    folder = project(language, "--vendor", "Acme")
    check = "CHECK=--family elementwise --only '*/Addition-*'"
    out = carried_out(tool("make"), *STRICT, f"PYTHON={sys.executable}", check, "check", cwd=folder)
    *_, total, _, verdict = out.splitlines()
    assert verdict.startswith("Npu conforms: ")
    assert int(total.split()[-2].replace(",", "")) > 0  # what it took, and did right
    assert run_on_npu(folder / "build") == [3.0, 5.0, 7.0]


@needs_linux
@pytest.mark.parametrize("language", slow_unless("c".__eq__, ["c", "cpp"]))
def test_cmake_builds_the_same(language, project):
    compiler_for(COMPILERS[language])
    folder = project(language, "--vendor", "Acme")
    carried_out(tool("cmake"), "-B", "build", f"-DPython3_EXECUTABLE={sys.executable}", cwd=folder)
    carried_out(tool("cmake"), "--build", "build", cwd=folder)
    assert "conformance" in carried_out(tool("ctest"), "-N", cwd=folder / "build")
    assert (folder / "build" / "Acme_Npu_backend.so").is_file()
    assert run_on_npu(folder / "build") == [3.0, 5.0, 7.0]


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("language", ["c", "cpp", "rust"])
def test_an_asynchronous_project_conforms_and_its_queues_are_checked(language, project):
    compiler_for(COMPILERS[language])
    folder = project(language, "--vendor", "Acme", "--async")
    check = "CHECK=--only '*/Addition-*' --only 'queues/*'"
    out = carried_out(tool("make"), *STRICT, f"PYTHON={sys.executable}", check, "check", cwd=folder)
    assert out.splitlines()[-1].startswith("Npu conforms: "), out
    assert run_on_npu(folder / "build") == [3.0, 5.0, 7.0]


@needs_linux
def test_cargo_builds_the_same(project):
    compiler_for("rust")
    folder = project("rust", "--vendor", "Acme")
    carried_out(tool("cargo"), "build", "--release", "--offline", cwd=folder, CARGO_TARGET_DIR=str(folder / "target"))
    (folder / "plugins").mkdir()
    library = folder / "target" / "release" / "libnpu_backend.so"
    shutil.copyfile(library, folder / "plugins" / "Acme_Npu_backend.so")
    assert run_on_npu(folder / "plugins") == [3.0, 5.0, 7.0]


def test_a_project_in_python_conforms(project):
    folder = project("python")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "Addition-same-shape or Addition-float32"]
    out = carried_out(sys.executable, *words, cwd=folder)
    assert " passed" in out


def test_a_project_in_python_is_found_by_its_entry_point(project, tmp_path):
    install(project("python"), tmp_path / "installed")
    done = python(tmp_path / "installed", "-m", "interposer", "backends")
    assert "Npu" in done.stdout, done.stderr
    assert "entry point of npu-backend" in done.stdout


IN_ONNX_RUNTIME = """
import numpy as np
import onnx, onnxruntime
import npu_backend.onnxruntime as npu

infos = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "aby"]
graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["a", "b"], ["y"])], "sum", infos[:2], infos[2:])
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
onnxruntime.register_execution_provider_library("Npu", npu.get_library_path())
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[npu.get_ep_name(), "CPUExecutionProvider"])
[y] = session.run(None, dict.fromkeys("ab", np.float32([1, 2])))
"""
IN_LITERT = """
import numpy as np
import interposer as ip
from ai_edge_litert.interpreter import Interpreter, load_delegate
from interposer.writers import tflite
import npu_backend.litert as npu

network = ip.Network()
x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"))
delegate = load_delegate(npu.get_library_path(), npu.get_options())
interpreter = Interpreter(model_content=tflite.write(network), experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.float32([1, 2]))
interpreter.invoke()
y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
"""
TAKEN = """
import interposer.bridges
print(y.tolist(), [part.backends for part in interposer.bridges.reports()[-1].parts])
"""


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("language", ["c", "cpp", "rust"])
def test_the_package_of_a_native_backend_works_in_both_hosts(language, project, tmp_path):
    for module in ("hatchling", "onnx", "onnxruntime", "flatbuffers", "ai_edge_litert"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    if not os.path.isfile(library(check=False)):
        pytest.skip("the library of the bridges was not built")
    compiler_for(COMPILERS[language])
    tool("make")
    folder = project(language, "--bridge", "onnxruntime", "--bridge", "litert")
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path / "installed"]
    carried_out(sys.executable, *words, folder, cwd=tmp_path)
    for program in (IN_ONNX_RUNTIME, IN_LITERT):
        done = python(tmp_path / "installed", "-c", program + TAKEN)
        assert done.stdout == "[2.0, 4.0] [('Npu',)]\n", done.stderr


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("language", COPIED)
def test_a_project_passes_every_check(language, project):
    folder = project(language)
    if language == "python":
        out = carried_out(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
        assert " passed" in out
        return
    compiler_for(COMPILERS[language])
    out = carried_out(tool("make"), f"PYTHON={sys.executable}", "check", cwd=folder)
    assert out.splitlines()[-1].startswith("Npu conforms: ")
