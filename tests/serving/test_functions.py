"""Python functions as steps of ensembles: in processes of their own, from folders that only this user can write."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.core.errors import ConfigError, UntrustedFileError
from interposer.serving.ensemble_files import check_signed, functions_of
from interposer.serving.folder import ModelSettings, ModelSource, found_in
from interposer.serving.functions import FunctionPool
from interposer.serving.loading import Loader
from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.repository import Repository
from interposer.serving.watching import fingerprints
from interposer.writers import tflite
from tests.serving.running import doubler, infer_body, running

pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
pytestmark = pytest.mark.needs_cpuref

MODULE = """
import os
import time

import numpy as np

from helpers.factors import FACTOR


def scale(pixels):
    if pixels.min() < 0:
        raise ValueError("a pixel is negative")
    return pixels.astype(np.float32) * FACTOR


def both(a, b):
    print("this is no answer")
    return {"sum": a + b, "difference": a - b, "unused": 1}


def upper(texts):
    return [text.upper() for text in texts]


def fails(x):
    return {}["nothing"]


def crashes(x):
    os._exit(3)


def sleeps(x):
    time.sleep(60)


def token(x):
    return [os.environ.get("INTERPOSER_SERVE_TOKEN", "none"), str(os.getpid())]


class Shapes:
    @staticmethod
    def wrong(pixels):
        return np.zeros((2, 2), np.float64)


NUMBER = 7
"""
SETTINGS = """
[ensemble]
processes = 1
inputs.pixels = { datatype = "INT32", shape = [1, 4] }
outputs.y = { datatype = "FP32", shape = [1, 4] }

[[ensemble.steps]]
function = "pictures:scale"
inputs = { pixels = "pixels" }
outputs = { result = "scaled" }

[[ensemble.steps]]
model = "double"
inputs = { x = "scaled" }
outputs = { y = "y" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of models with the ensemble `pipeline`, whose first step is a function."""
    own = tmp_path / "models" / "pipeline"
    (own / "helpers").mkdir(parents=True)
    (own / "pictures.py").write_text(MODULE)
    (own / "helpers" / "factors.py").write_text("FACTOR = 10\n")
    (own / "pipeline.toml").write_text(SETTINGS)
    tflite.save(doubler(shape=(1, 4)), tmp_path / "models" / "double.tflite")
    return tmp_path / "models"


def source_of(folder: Path, **settings: Any) -> ModelSource:
    (source,) = (one for one in found_in(str(folder), ModelSettings(**settings)) if one.name == "pipeline")
    return source


@pytest.fixture
def pool(folder: Path) -> Any:
    created = FunctionPool(folder / "pipeline", ["pictures:scale"], 1)
    yield created
    created.close()


def call(pool: FunctionPool, name: str, outputs: tuple[str, ...] = ("y",), seconds: float = 60, **inputs: Any) -> Any:
    arrays = {key: np.asarray(value, object if isinstance(value[0], str) else None) for key, value in inputs.items()}
    return asyncio.run(pool.call(f"pictures:{name}", arrays, list(outputs), seconds))


def test_functions_get_inputs_by_name_and_return_one_array_or_a_dict(pool):
    assert call(pool, "scale", pixels=[[1, 2]])["y"].tolist() == [[10, 20]]
    both = call(pool, "both", ("sum", "difference"), a=[5, 6], b=[1, 2])
    assert {name: array.tolist() for name, array in both.items()} == {"sum": [6, 8], "difference": [4, 4]}
    texts = call(pool, "upper", texts=["a", "é"])["y"]
    assert texts.tolist() == ["A", "É"] and texts.dtype == object


@pytest.mark.parametrize(
    ("name", "outputs", "status", "text"),
    [
        ("fails", ("y",), Status.INTERNAL, "KeyError: nothing"),
        ("crashes", ("y",), Status.INTERNAL, "the process of the function has ended"),
        ("absent", ("y",), Status.INTERNAL, "AttributeError: module 'pictures' has no attribute 'absent'"),
        ("NUMBER", ("y",), Status.INTERNAL, "TypeError: pictures:NUMBER is no function but int"),
    ],
)
def test_an_exception_or_a_crash_is_an_error_of_one_call(pool, name, outputs, status, text):
    with pytest.raises(ServingError) as caught:
        call(pool, name, outputs, x=[1])
    assert (caught.value.status, str(caught.value)) == (status, text)
    assert call(pool, "scale", pixels=[[1]])["y"].tolist() == [[10]]


def test_a_value_error_is_an_error_of_the_client(pool):
    with pytest.raises(ServingError) as caught:
        call(pool, "scale", pixels=[[-1]])
    assert (caught.value.status, str(caught.value)) == (Status.INVALID, "ValueError: a pixel is negative")


def test_a_function_must_return_the_outputs_of_its_step(pool):
    with pytest.raises(ServingError, match="the function returned no product"):
        call(pool, "both", ("sum", "product"), a=[1], b=[2])
    with pytest.raises(ServingError, match="must return a dict with sum, difference, not ndarray"):
        call(pool, "scale", ("sum", "difference"), pixels=[[1]])


def test_a_function_that_takes_too_long_is_ended_and_others_run_after_it(pool):
    began = time.process_time()
    with pytest.raises(ServingError) as caught:
        call(pool, "sleeps", seconds=0.05, x=[1])
    assert (caught.value.status, str(caught.value)) == (Status.LATE, "the function took longer than 0.05 seconds")
    assert call(pool, "scale", pixels=[[1]])["y"].tolist() == [[10]]
    assert time.process_time() - began < 30  # it waits without work


def test_functions_have_no_token_of_the_server_and_keep_their_process(folder, monkeypatch):
    monkeypatch.setenv("INTERPOSER_SERVE_TOKEN", "secret")
    pool = FunctionPool(folder / "pipeline", [], 1)
    try:
        (token, first), (_, second) = (call(pool, "token", x=[1])["y"].tolist() for _ in range(2))
        assert token == "none" and first == second
    finally:
        pool.close()


def test_an_ensemble_runs_its_functions_as_steps_and_says_which_one_failed(folder):
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    defaults = ModelSettings(backends=("CpuRef",))
    with running(lambda: Repository(lambda: found_in(str(folder), defaults), Loader(2)), ServeOptions()) as server:

        def answer(row: list[int]) -> Any:
            return server.client.post("/v2/models/pipeline/infer", infer_body("pixels", [row], "INT32"))

        assert answer([1, 2, 3, 4]).json["outputs"][0]["data"] == [20, 40, 60, 80]
        refused = answer([1, -2, 3, 4])
        assert refused.status == 400
        assert refused.json["error"] == "step 1 (function 'pictures:scale'): ValueError: a pixel is negative"
        (own,) = (model for model in server.core.repository.served if model.name == "pipeline")
        private = own.runner._functions._folder
        assert (private / "pictures.py").read_text() == MODULE and private.stat().st_mode & 0o77 == 0
        (folder / "pipeline" / "pictures.py").write_text("a change that counts when the ensemble is loaded again")
        own.runner._functions._idle[0].kill()  # a new process has the modules that were loaded
        assert answer([1, 1, 1, 1]).status == 200
    assert not private.exists()


def test_a_tensor_of_a_function_that_the_next_model_does_not_accept_is_an_error_of_the_server(folder):
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    (folder / "pipeline" / "pipeline.toml").write_text(SETTINGS.replace("pictures:scale", "pictures:Shapes.wrong"))
    defaults = ModelSettings(backends=("CpuRef",))
    with running(lambda: Repository(lambda: found_in(str(folder), defaults), Loader(2)), ServeOptions()) as server:
        refused = server.client.post("/v2/models/pipeline/infer", infer_body("pixels", [[1, 2, 3, 4]], "INT32"))
    assert refused.status == 500
    text = "made what step 2 (model 'double') does not accept: input 'x' is FP64; model 'double' expects FP32"
    assert refused.json["error"] == f"step 1 (function 'pictures:Shapes.wrong') {text}"


def test_a_module_that_cannot_be_imported_is_an_error_of_the_ensemble(folder):
    (folder / "pipeline" / "pictures.py").write_text("import helpers.absent\n")
    with pytest.raises(ConfigError, match=r"'pictures:scale' cannot be imported: ModuleNotFoundError: No module named"):
        functions_of(source_of(folder))


def test_modules_that_others_can_write_are_not_run(folder):
    (folder / "pipeline" / "helpers" / "factors.py").chmod(0o666)
    with pytest.raises(UntrustedFileError, match=r"factors\.py can be written by all users \(chmod o-w\)"):
        functions_of(source_of(folder))


def test_functions_need_a_folder_of_their_ensemble(folder):
    (folder / "other.toml").write_text(SETTINGS)
    (source,) = (one for one in found_in(str(folder)) if one.name == "other")
    with pytest.raises(ConfigError, match=r"make a folder other, and put this file and the modules there"):
        functions_of(source)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ('function = "os.system"', "step 1: function must be module:function, not 'os.system'"),
        ('function = "../evil:f"', "step 1: function must be module:function, not '../evil:f'"),
        ('function = "a:b"\nmodel = "double"', "step 1 has both a model and a function"),
        ('function = "a:b"\noutputs = {}', "step 1: no output of the function becomes a tensor of the ensemble"),
    ],
)
def test_wrong_steps_of_functions_are_refused(folder, step, problem):
    text = SETTINGS.replace('function = "pictures:scale"', step)
    text = text.replace('outputs = { result = "scaled" }\n', "") if "outputs = {}" in step else text
    (folder / "pipeline" / "pipeline.toml").write_text(text)
    assert problem in source_of(folder).problem


def test_a_changed_module_changes_the_fingerprint_of_its_ensemble(folder):
    before = fingerprints([source_of(folder)])
    (folder / "pipeline" / "helpers" / "factors.py").write_text("FACTOR = 100\n")
    assert fingerprints([source_of(folder)]) != before


class TestSignatures:
    """Ensembles where every model must be signed."""

    @pytest.fixture
    def key(self, tmp_path: Path) -> Any:
        ed25519 = pytest.importorskip(
            "cryptography.hazmat.primitives.asymmetric.ed25519", reason="the package cryptography is not installed"
        )
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        secret = ed25519.Ed25519PrivateKey.generate()
        pem = secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / "public.pem").write_bytes(pem)
        return secret

    @pytest.fixture
    def trusted(self, tmp_path: Path) -> Any:
        return {"trusted_keys": (str(tmp_path / "public.pem"),)}

    def sign(self, key: Any, path: Path) -> None:
        path.with_name(f"{path.name}.sig").write_bytes(key.sign(path.read_bytes()))

    def sign_all(self, key: Any, folder: Path) -> None:
        names = [name for name in sorted(folder.rglob("*")) if name.is_file() and name.suffix in (".py", ".toml")]
        lines = [f"{hashlib.sha256(name.read_bytes()).hexdigest()}  ./{name.relative_to(folder)}\n" for name in names]
        (folder / "SHA256SUMS").write_text("".join(lines))
        self.sign(key, folder / "SHA256SUMS")

    def test_settings_with_a_signature_are_loaded(self, folder, key, trusted):
        settings = folder / "pipeline" / "pipeline.toml"
        text = SETTINGS.replace('function = "pictures:scale"', 'model = "double"').replace("{ pixels =", "{ x =")
        settings.write_text(text.replace("{ result =", "{ y =").replace('"INT32"', '"FP32"'))
        with pytest.raises(UntrustedFileError, match=r"there is no pipeline\.toml\.sig with its signature"):
            functions_of(source_of(folder, **trusted))
        signature = settings.with_name("pipeline.toml.sig")
        signature.symlink_to("/dev/zero")
        with pytest.raises(UntrustedFileError, match=r"there is no pipeline\.toml\.sig with its signature"):
            functions_of(source_of(folder, **trusted))
        signature.unlink()
        self.sign(key, settings)
        assert functions_of(source_of(folder, **trusted)) is None
        settings.write_text(settings.read_text() + "\n")
        with pytest.raises(UntrustedFileError, match="none of the trusted keys has signed the file as it is"):
            functions_of(source_of(folder, **trusted))

    def test_modules_are_covered_by_signed_digests(self, folder, key, trusted):
        own = folder / "pipeline"
        with pytest.raises(UntrustedFileError, match="an ensemble with functions needs SHA256SUMS"):
            functions_of(source_of(folder, **trusted))
        self.sign_all(key, own)
        pool = functions_of(source_of(folder, **trusted))
        assert pool is not None
        pool.close()
        (own / "json.py").write_text("")
        with pytest.raises(UntrustedFileError, match=r"json\.py: the file is not listed in SHA256SUMS"):
            functions_of(source_of(folder, **trusted))
        (own / "json.py").unlink()
        (own / "helpers" / "factors.py").write_text("FACTOR = 11\n")
        with pytest.raises(UntrustedFileError, match="the file is another one than SHA256SUMS says"):
            functions_of(source_of(folder, **trusted))

    def test_settings_that_change_between_two_reads_are_refused(self, folder, key, trusted):
        source = source_of(folder, **trusted)
        (folder / "pipeline" / "pipeline.toml").write_text(SETTINGS.replace("processes = 1", "processes = 3"))
        self.sign_all(key, folder / "pipeline")
        with pytest.raises(UntrustedFileError, match="the settings have changed while they were read"):
            functions_of(source)

    @pytest.mark.parametrize(
        ("signed_as", "settings", "problem"),
        [
            ("", {"signed_names": True}, "the ensemble 'pipeline' is signed for no name; add signed_as"),
            ("other:3", {"signed_names": True}, "the ensemble 'pipeline' is signed for 'other'"),
            ("pipeline:3", {"least_version": 4}, "signed for version 3; the lowest that is accepted is 4"),
            ("pipeline", {"least_version": 4}, "signed for version None; the lowest that is accepted is 4"),
            ("pipeline:4", {"signed_names": True, "least_version": 4}, ""),
        ],
    )
    def test_signatures_are_for_a_name_and_a_version(self, folder, key, trusted, signed_as, settings, problem):
        file = folder / "pipeline" / "pipeline.toml"
        file.write_text(SETTINGS.replace("processes = 1", f'signed_as = "{signed_as}"'))
        self.sign(key, file)
        source = source_of(folder, **trusted, **settings)
        if not problem:
            check_signed(source, {})
            return
        with pytest.raises(UntrustedFileError) as caught:
            check_signed(source, {})
        assert problem in str(caught.value)
