"""The exceptions: their tree, their texts and the facts they carry."""

import pytest

from interposer.core import errors
from interposer.core.errors import (
    BackendUnavailableError,
    InvalidNetworkError,
    LimitExceededError,
    MissingDependencyError,
    ParseError,
    UnknownBackendError,
    UnknownNetworkError,
    UnsupportedOperatorError,
    VerificationError,
    did_you_mean,
)

CLASSES = [var for var in vars(errors).values() if isinstance(var, type) and issubclass(var, Exception)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_exception_is_exported_documented_and_drawn_in_the_tree(error):
    assert error.__name__ in errors.__all__
    assert error.__doc__
    assert issubclass(error, errors.InterposerError)
    assert f" {error.__name__} " in f"{errors.__doc__} ".replace("\n", " \n ")


def test_the_tree_is_drawn_as_it_is():
    path, parents = [], {}
    for line in errors.__doc__.splitlines():
        mark = line.find("── ")
        if mark >= 0:
            name = line[mark + 3 :].split()[0]
            depth = (mark - 5) // 4
            path[depth:] = [name]
            parents[name] = path[depth - 1] if depth else "InterposerError"
    assert parents == {error.__name__: error.__bases__[0].__name__ for error in CLASSES if error is not CLASSES[0]}


@pytest.mark.parametrize(("given", "known", "hint"), [
    ("CpuAc", ["CpuRef", "CpuAcc"], "; did you mean 'CpuAcc'?"),
    ("cpuref", ["CpuRef"], "; did you mean 'CpuRef'?"),
    ("banana", ["CpuRef"], ""),
    ("x", [], ""),
])  # fmt: skip
def test_a_near_name_is_suggested_whatever_its_case(given, known, hint):
    assert did_you_mean(given, known) == hint


@pytest.mark.parametrize(("error", "text"), [
    (InvalidNetworkError(["a is missing"], "net"), "network 'net' has 1 error:\n  - a is missing"),
    (InvalidNetworkError(["a", "b"]), "the network has 2 errors:\n  - a\n  - b"),
    (VerificationError(["a"], after="fold"), "the graph is not valid after fold:\n  - a"),
    (VerificationError(["a"]), "the graph is not valid:\n  - a"),
    (ParseError("no magic"), "no magic"),
    (ParseError("no magic", path="a.tflite", where="byte 4"), "a.tflite: byte 4: no magic"),
    (UnsupportedOperatorError({"B": 1, "A": 2}, notes={"A": "custom"}, where="graph 0"),
     "graph 0: operators that are not supported:\n  - 2 x A (custom)\n  - 1 x B"),
    (UnknownBackendError("CpuAc", ["CpuAcc", "CpuRef"]),
     "unknown backend 'CpuAc'; did you mean 'CpuAcc'? (known: CpuAcc, CpuRef)"),
    (UnknownBackendError("x", []), "unknown backend 'x' (known: none)"),
    (BackendUnavailableError("CpuAcc", "not built"), "backend 'CpuAcc' is not available: not built"),
    (BackendUnavailableError("", "CpuRef: it is disabled"), "no backend is available: CpuRef: it is disabled"),
    (UnknownNetworkError(3, [1, 2]), "no network 3 is loaded (loaded: 1, 2)"),
    (MissingDependencyError("onnx", "onnx", "the ONNX front end"),
     "the ONNX front end needs the package 'onnx': pip install 'interposer-nn[onnx]'"),
    (LimitExceededError("memory", 2e9, 1e9, "bytes"),
     "the network needs 2,000,000,000 bytes of memory, but the limit is 1,000,000,000; "
     "raise it with load(..., limits=Limits(...)) if the file is trusted"),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_the_text_says_everything(error, text):
    assert str(error) == text


def test_a_parse_error_takes_the_path_of_its_file_once():
    error = ParseError("no magic", where="byte 4").at("a.tflite")
    assert str(error) == "a.tflite: byte 4: no magic"
    assert error.at("b.tflite") is error


def test_an_unsupported_operator_keeps_its_facts_when_it_gets_a_path():
    error = UnsupportedOperatorError({"A": 2}, notes={"A": "custom"}).at("a.onnx")
    assert (error.operators, error.notes, error.path) == ({"A": 2}, {"A": "custom"}, "a.onnx")


def test_facts_are_attributes():
    assert MissingDependencyError("onnx", "onnx").package == "onnx"
    assert UnknownBackendError("x", ["y"]).known == ("y",)
    assert LimitExceededError("memory", 2, 1, "bytes").limit == 1
    assert VerificationError(["a"], after="b").after == "b"
    assert issubclass(MissingDependencyError, ImportError)
    assert issubclass(errors.InvalidArgumentError, ValueError)


def test_the_culprit_is_found_in_a_circle_of_causes_too():
    first, second = errors.LoadError("first", backend="Custom"), errors.LoadError("second")
    first.__cause__, second.__cause__ = second, first
    assert errors.culprit(second) == "Custom"


KNOWN = ("CpuRef", "LiteRt", "OnnxRuntime", "OpenVino", "Torch", "CpuAcc")
BY_OPTION = "; it is a device, which engines reach by an option: "
ABSENT = "; no backend of this name is installed"


@pytest.mark.parametrize(
    ("backend", "known", "hint"),
    [
        ("CUDA", KNOWN, f"{BY_OPTION}OnnxRuntime with the option provider=CUDAExecutionProvider, "
         f"Torch with the option device=cuda{ABSENT}"),
        ("npu", KNOWN, f"{BY_OPTION}OpenVino with the option device=NPU{ABSENT}"),
        ("gpu", ("CpuRef", "OpenVino"), f"{BY_OPTION}OpenVino with the option device=GPU{ABSENT}"),
        ("onnx", KNOWN, "; it is a format of files, which every backend runs; did you mean 'OnnxRuntime'?"),
        ("tflite", KNOWN, "; it is a format of files, which every backend runs; did you mean 'LiteRt'?"),
        ("openvino", KNOWN, "; did you mean 'OpenVino'?"),
        ("Nothing", KNOWN, ""),
    ],
)  # fmt: skip
def test_the_error_for_an_unknown_backend_says_what_the_name_is(
    backend: str, known: tuple[str, ...], hint: str
) -> None:
    assert str(UnknownBackendError(backend, known)) == f"unknown backend {backend!r}{hint} (known: {', '.join(known)})"


def test_a_known_device_without_an_engine_that_reaches_it_has_no_hint() -> None:
    assert str(UnknownBackendError("cuda", ("Sums",))) == "unknown backend 'cuda' (known: Sums)"
