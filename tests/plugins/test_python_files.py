"""A backend in Python that is one file in a folder of backends."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.cli import interrupts
from interposer.core.errors import BackendUnavailableError, UnknownBackendError
from interposer.isolation import Isolation
from interposer.plugins import BackendRegistry
from interposer.plugins.capi.loading.loader import LoadingOptions, load_backends
from interposer.plugins.capi.loading.paths import Folder
from interposer.plugins.python_files import backend_class

NAME = "Local_Doubling_backend.py"
TEXT = """
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interposer.backend import Backend, KernelTable
from interposer.ops import Addition
from interposer.types import DataType

kernel = KernelTable()


@dataclass
class Factor:
    value: float = 1.0


@kernel(Addition, dtypes={DataType.FLOAT32}, quantized=False)
def addition(op, a, b, *, out):
    np.add(a, b, out=out)


class Doubling(Backend):
    id: ClassVar = "Doubling"
    version: ClassVar = "1.5"
    kernels: ClassVar = kernel
"""


@pytest.fixture
def opened() -> Iterator[list[ip.Runtime]]:
    runtimes: list[ip.Runtime] = []
    yield runtimes
    for runtime in runtimes:
        runtime.close()


@pytest.fixture
def runtime_of(tmp_path: Path, opened: list[ip.Runtime]):
    """Return a function that writes a file to a folder, and creates a runtime that searches the folder."""

    def runtime_of(text: str = TEXT, name: str = NAME, **options: object) -> ip.Runtime:
        (tmp_path / name).write_text(text)
        opened.append(ip.Runtime(ip.CreationOptions(dynamic_backends_path=str(tmp_path), **options)))
        return opened[-1]

    return runtime_of


def the_record(runtime: ip.Runtime):
    [record] = [record for record in runtime.dynamic_backends() if record.path.endswith(".py")]
    return record


def doubled(runtime: ip.Runtime, backend: str = "Doubling") -> list[float]:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((3,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    with ip.load(network, [backend], runtime=runtime) as model:
        return model(np.float32([1, 2, 3])).tolist()


def test_a_file_in_the_folder_is_a_backend(runtime_of, tmp_path) -> None:
    runtime = runtime_of()
    record = the_record(runtime)
    assert (record.state.value, record.step.value, record.id) == ("loaded", "register", "Doubling")
    assert doubled(runtime) == [2, 4, 6]
    [known] = [known for known in runtime.registry.records() if known.id == "Doubling"]
    assert (known.source, known.version) == (f"Python file {tmp_path / NAME}", "1.5")


def test_the_folders_of_the_environment_are_searched_too(runtime_of, tmp_path, monkeypatch, opened) -> None:
    (tmp_path / NAME).write_text(TEXT)
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path))
    opened.append(ip.Runtime())
    assert doubled(opened[-1]) == [2, 4, 6]


def test_the_backend_can_run_in_a_process_of_its_own(runtime_of) -> None:
    assert doubled(runtime_of(isolate={"Doubling": Isolation()})) == [2, 4, 6]


def test_a_backend_is_gone_with_its_runtime(runtime_of) -> None:
    runtime = runtime_of()
    runtime.close()
    assert the_record(runtime).state.value == "closed"
    with pytest.raises(UnknownBackendError):
        runtime.registry.get("Doubling")


@pytest.mark.parametrize(
    ("text", "step", "reason"),
    [
        ("1 / 0", "open", "it raised ZeroDivisionError: division by zero"),
        ("import no_such", "open", "it raised ModuleNotFoundError: No module named 'no_such'"),
        ("raise SystemExit(3)", "open", "it raised SystemExit: 3"),
        ("raise KeyboardInterrupt('no key')", "open", "it raised KeyboardInterrupt: no key"),
        ("class Stop(BaseException): pass\nraise Stop('now')", "open", "it raised Stop: now"),
        ("from interposer.backend import Backend", "open",
         "it has to define one subclass of Backend with an id, and defines none"),
        (TEXT + "class Other(Backend):\n    id = 'Other'\n", "open",
         "it has to define one subclass of Backend with an id, and defines Doubling, Other"),
        (TEXT.replace('"Doubling"', '"a b"'), "open",
         "it raised InvalidArgumentError: a backend id must not contain blanks, commas or colons, as 'a b' does"),
        (TEXT.replace('"Doubling"', "5"), "open",
         "class Doubling: a backend id must be a text other than '' and 'Unknown', not 5"),
        (TEXT.replace('"Doubling"', '"CpuRef"'), "register",
         "the id 'CpuRef' is registered already (entry point of "),
    ],
    ids=["it raises", "a module is missing", "it exits", "no Ctrl-C", "no Exception", "no class", "two classes",
         "a wrong id", "a number as id", "a taken id"],
)  # fmt: skip
def test_a_file_that_is_no_backend_is_a_record_with_the_reason(text: str, step: str, reason: str, runtime_of) -> None:
    record = the_record(runtime_of(text))
    assert (record.state.value, record.step.value) == ("skipped" if step == "register" else "refused", step)
    assert record.reason == reason or (step == "register" and record.reason.startswith(reason))


def test_a_subclass_of_another_backend_of_the_file_counts_and_an_abstract_base_does_not(runtime_of) -> None:
    text = TEXT.replace("class Doubling(Backend):", "class Base(Backend):\n    pass\n\n\nclass Doubling(Base):")
    assert doubled(runtime_of(text)) == [2, 4, 6]


def test_a_class_may_have_two_names(runtime_of) -> None:
    assert doubled(runtime_of(TEXT + "Default = Doubling\n")) == [2, 4, 6]


def test_several_threads_may_create_the_same_backend(tmp_path) -> None:
    content = TEXT.replace("@dataclass", "import time\n\ntime.sleep(0.2)\n\n\n@dataclass").encode()
    with ThreadPoolExecutor(4) as pool:
        classes = set(pool.map(lambda _: backend_class(str(tmp_path / NAME), content), range(4)))
    assert [found.__name__ for found in classes] == ["Doubling"]


def test_a_name_that_is_not_of_the_scheme_is_not_run(runtime_of) -> None:
    record = the_record(runtime_of("raise SystemExit(3)", "helper.py"))
    assert (record.state.value, record.step.value) == ("skipped", "name")


def test_only_allowed_files_are_run(runtime_of) -> None:
    record = the_record(runtime_of("1 / 0", backend_allow_list=["0" * 64]))
    assert (record.state.value, record.step.value) == ("refused", "allow-list")
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert doubled(runtime_of(backend_allow_list=[digest])) == [2, 4, 6]


def test_what_runs_is_the_content_that_was_checked(tmp_path) -> None:
    path = tmp_path / NAME
    path.write_text(TEXT)

    class Replacing(frozenset[str]):
        def __contains__(self, digest: object) -> bool:
            path.write_text("1 / 0")
            return super().__contains__(digest)

    allowed = Replacing([hashlib.sha256(TEXT.encode()).hexdigest()])
    loaded = load_backends(BackendRegistry(), [Folder(str(tmp_path))], LoadingOptions(allowed=allowed))
    assert [record.state.value for record in loaded.records if record.path == str(path)] == ["loaded"]


@pytest.mark.parametrize("handler", [signal.default_int_handler, interrupts._raise], ids=["Python", "the command"])
def test_an_interruption_ends_the_loading(handler, runtime_of, monkeypatch) -> None:
    monkeypatch.setattr(interrupts, "_interruptions", [])
    previous = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            runtime_of("import signal\nsignal.raise_signal(signal.SIGINT)\nwhile True: pass")
    finally:
        signal.signal(signal.SIGINT, previous)


def test_content_that_was_not_allowed_is_not_run_later(runtime_of, tmp_path) -> None:
    runtime = runtime_of(backend_allow_list=[hashlib.sha256(TEXT.encode()).hexdigest()])
    (tmp_path / NAME).write_text("1 / 0")
    with pytest.raises(BackendUnavailableError, match="its SHA-256 is not .* any more"):
        runtime.registry.get("Doubling")
