"""A Python backend whose compiled parts are cached on disk, and loaded from the cache in another process."""

from __future__ import annotations

import subprocess

import pytest

from interposer.core.cache import cached_files
from tests import warm

BACKEND = '''
"""A backend that compiles a chain of layers into a program, which it saves as JSON."""

import json, logging, os, sys
import numpy as np
import interposer as ip
from interposer.backend import Backend, KernelTable, OptimizationViews, SavedPart, Substitution, Workload
from interposer.backend import KernelWorkloadFactory
from interposer.ops import ElementwiseUnary, PreCompiled

FUNCTIONS = {"ABS": np.abs, "NEG": np.negative}
kernel = KernelTable()

@kernel(ElementwiseUnary, when=lambda op, info: None if op.operation.name in FUNCTIONS else "it is unknown")
def unary(op, x):
    return FUNCTIONS[op.operation.name](x)

class Program(Workload):
    def __init__(self, names):
        self.functions = [FUNCTIONS[name] for name in names]

    def execute(self, inputs, outputs):
        with inputs[0].mapped() as x, outputs[0].mapped() as out:
            for function in self.functions:
                x = function(x)
            out[...] = x

class Factory(KernelWorkloadFactory):
    def create_workload(self, layer, info):
        return Program(layer.op.object)

class Saving(Backend):
    id = "Saving"
    kernels = kernel

    @property
    def identity(self):
        if "fail_identity" in sys.argv:
            raise OSError("the driver does not answer")
        return 7 if "identity_number" in sys.argv else os.environ["BUILD"]

    def cache_directory(self, options):
        if "fail_directory" in sys.argv:
            raise OSError("the disk is missing")
        return ""

    def optimize_subgraph(self, view, options):
        print("compiled", end=" ")
        program = [layer.op.operation.name for layer in view]
        return OptimizationViews(view, substitutions=[Substitution(view, PreCompiled(object=program))])

    def create_workload_factory(self, memory_manager, options):
        return Factory(kernel, memory_manager)

    def save_compiled(self, compiled):
        if "fail_save" in sys.argv:
            raise OSError("the device is busy")
        return "text" if "save_text" in sys.argv else SavedPart(self.pieces(json.dumps(compiled).encode()))

    def pieces(self, content):
        if "save_words" in sys.argv:
            return [content.decode()]
        if "save_gaps" in sys.argv:
            return [memoryview(content)[::2]]
        if "save_bytes" in sys.argv:
            return content
        words = np.frombuffer(content.ljust(-(-len(content) // 8) * 8), np.float64)
        return iter([words.reshape(1, -1)]) if "save_array" in sys.argv else [content]

    def restore_compiled(self, saved, options):
        if "fail_restore" in sys.argv:
            raise OSError("the device has another firmware")
        print("restored", end=" ")
        [content] = saved.pieces
        return json.loads(bytes(content))

logging.basicConfig(format="%(message)s", stream=sys.stdout)
logging.getLogger("interposer.session").setLevel(logging.DEBUG)
runtime = ip.Runtime()
runtime.registry.register("Saving", Saving)
model = ip.load(sys.argv[1], backends=["Saving"], runtime=runtime)
print(model([1.0, -2.0]).tolist())
'''
RESULT = "[-1.0, -2.0]"
PIECES = "backend 'Saving' saved a part whose pieces are not contiguous bytes: "


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a network in a process of its own, and return what the process prints."""
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    script, network = tmp_path / "script.py", tmp_path / "network.txt"
    script.write_text(BACKEND)
    network.write_text(
        "graph {\n  %x = Input(binding_id=0) : float32[2] declared float32[2]\n"
        "  %a = ElementwiseUnary(operation=ABS) %x\n  %n = ElementwiseUnary(operation=NEG) %a\n"
        '  Output(binding_id=0) %n as "y"\n}\n'
    )

    def run(*words: str, build: str = "1") -> str:
        monkeypatch.setenv("BUILD", build)
        command = [*warm.python(), str(script), str(network), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().replace(f"{tmp_path}/", "")

    return run


def test_another_process_restores_what_a_python_backend_compiled(load):
    assert load() == f"compiled {RESULT}"
    assert len(cached_files("networks")) == 1
    assert load() == f"restored {RESULT}"


def test_a_backend_with_another_identity_compiles_again(load):
    load()
    assert load(build="2") == f"compiled {RESULT}"
    assert load(build="2") == f"restored {RESULT}"


def test_a_backend_without_an_identity_is_not_cached(load):
    reason = "backend 'Saving', which is asked first, does not save what it compiles"
    line = f"network.txt is not stored in the network cache: {reason}"
    assert load(build="").splitlines() == [line, f"compiled {RESULT}"]
    assert load("fail_identity").splitlines() == [
        "what backend 'Saving' compiles is not cached: the driver does not answer",
        line,
        f"compiled {RESULT}",
    ]
    number = "what backend 'Saving' compiles is not cached: its identity is 7; expected a text"
    assert load("identity_number").splitlines() == [number, line, f"compiled {RESULT}"]
    assert cached_files("networks") == []


def test_a_backend_that_cannot_name_its_cache_folder_is_not_cached(load):
    reason = "backend 'Saving' cannot say where its files are cached: the disk is missing"
    line = f"network.txt is not stored in the network cache: {reason}"
    assert load("fail_directory").splitlines() == [line, f"compiled {RESULT}"]


def test_pieces_of_a_part_may_be_arrays_of_any_type(load):
    assert load("save_array") == f"compiled {RESULT}"
    assert load() == f"restored {RESULT}"


def test_a_part_that_cannot_be_restored_is_compiled_again(load):
    load()
    said = "backend 'Saving' cannot restore a part of network.txt: the device has another firmware"
    assert load("fail_restore").splitlines() == [said, f"compiled {RESULT}"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("fail_save", "backend 'Saving' cannot save what it compiled: the device is busy"),
        ("save_text", "backend 'Saving' saved a part as 'text'; expected a SavedPart or None"),
        ("save_words", f"{PIECES}memoryview: a bytes-like object is required, not 'str'"),
        ("save_gaps", f"{PIECES}memoryview: casts are restricted to C-contiguous views"),
        ("save_bytes", f"{PIECES}memoryview: a bytes-like object is required, not 'int'"),
    ],
)
def test_a_part_that_cannot_be_saved_leaves_the_network_out_of_the_cache(load, word, reason):
    assert load(word) == f"compiled network.txt is not stored in the network cache: {reason}\n{RESULT}"
    assert cached_files("networks") == []
