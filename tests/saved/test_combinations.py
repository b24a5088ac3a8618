"""Saved networks with everything at once: parts of every backend, shapes, states, several targets, and signatures."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.isolation import Isolation
from tests import warm
from tests.instruction_sets import needs_instruction_set

pytestmark = pytest.mark.needs_cpuref
BACKENDS = ("CpuAcc", "CpuRef", "LiteRt", "OnnxRuntime", "OpenVino", "Torch")
EXPORTING = ("CpuAcc", "OnnxRuntime", "OpenVino")
"""Those whose compiled parts are in the file."""
SIZES = (1, 3, 2)
"""Batch sizes of the runs. The file has no variant for the last."""


def counting() -> ip.Network:
    """A network with an open batch dimension and a state, the sum of all rows so far, which is added to its result."""
    network = ip.Network("counting")
    x = network.add_input_layer(0, ip.TensorInfo(("batch", 8)), name="x")
    weights = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights, name="w"), name="product")
    total = network.add_state("total", ip.TensorInfo((8,)))
    rows = network.add_reduce_layer(x, operation=ip.ops.ReduceOperation.SUM, axis=(0,), keep_dims=False, name="rows")
    added = network.add_addition_layer(total, rows, name="added")
    network.set_state("total", added)
    network.add_output_layer(0, network.add_addition_layer(product, added, name="sum"), name="y")
    return network


def inputs(size: int) -> Any:
    return np.random.default_rng(size).standard_normal((size, 8), np.float32)


def results(model: ip.Model) -> list[Any]:
    return [model.run([inputs(size)])[0] for size in SIZES]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the warnings of the session."""
    caplog.set_level(logging.WARNING, "interposer.session")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "interposer.session"]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path | None, Path | None]:
    """Return the files with a private key and its public key; None for both if the package cryptography is missing."""
    if find_spec("cryptography") is None:
        return None, None
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    secret, public = tmp_path / "secret.pem", tmp_path / "public.pem"
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    secret.write_bytes(private)
    form = forms.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(forms.Encoding.PEM, form))
    return secret, public


def available(backend: str) -> None:
    """Skip the test if a backend is not installed."""
    from interposer.session.runtimes import default_runtime

    reason = default_runtime().registry.reason_absent(backend)
    if reason is not None:
        pytest.skip(f"{backend} is not available: {reason}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_parts_of_a_backend_are_saved_with_shapes_states_and_a_signature(
    cpuacc: None, backend: str, tmp_path: Path, keys: Any, warnings: Any
) -> None:
    available(backend)
    path, (secret, public) = tmp_path / "net.ipn", keys
    with ip.load(counting(), [backend, "CpuRef"] if backend != "CpuRef" else ["CpuRef"]) as model:
        model.save(path, shapes=[{"batch": size} for size in SIZES[:2]], sign_key=secret)
        expected = results(model)
    variants = ip.saved.check(path, public).variants
    assert [variant.shapes["x"] for variant in variants] == [(size, 8) for size in SIZES[:2]]
    assert all(bool(variant.compiled) is (backend in EXPORTING) for variant in variants)
    with ip.load(path, trusted_keys=public) as loaded:
        for actual, right in zip(results(loaded), expected, strict=True):
            np.testing.assert_array_equal(actual, right)
    assert warnings() == []


def test_one_file_has_the_parts_of_all_backends_and_each_can_be_requested(
    cpuacc: None, tmp_path: Path, keys: Any, warnings: Any
) -> None:
    from interposer.cli.main import main
    from interposer.session.runtimes import default_runtime

    registry = default_runtime().registry
    present = [name for name in BACKENDS[:-1] if registry.reason_absent(name) is None]
    lists = [["CpuRef"] if name == "CpuRef" else [name, "CpuRef"] for name in present]
    source, path, (secret, public) = tmp_path / "source.ipn", tmp_path / "net.ipn", keys
    ip.load(counting(), ["CpuRef"]).save(source, shapes=[{"batch": 1}])
    words = [word for ids in lists[1:] for word in ("--also", ",".join(ids))]
    words += ["--variant", "batch=1", "--variant", "batch=3"] + (["--sign-key", str(secret)] if secret else [])
    assert main(["compile", str(source), "--backends", ",".join(lists[0]), *words, "-o", str(path)]) == 0
    assert len(ip.saved.check(path, public).variants) == 2 * len(lists)
    for ids in lists:
        with ip.load(counting(), ids) as model, ip.load(path, ids, trusted_keys=public) as loaded:
            for actual, right in zip(results(loaded), results(model), strict=True):
                np.testing.assert_array_equal(actual, right)
            assert loaded.explain().counts() == model.explain().counts()
    assert warnings() == []


def test_a_file_of_an_isolated_backend_is_used_without_isolation_and_the_reverse(
    cpuacc: None, tmp_path: Path, keys: Any, warnings: Any
) -> None:
    if sys.platform != "linux":
        pytest.skip("backends are isolated on Linux only")
    secret, public = keys
    ids, shapes = ["CpuAcc", "CpuRef"], [{"batch": size} for size in SIZES[:2]]
    options = ip.CreationOptions(isolate={"CpuAcc": Isolation()})
    with ip.Runtime(options) as isolated, ip.Runtime() as plain:
        for name, runtime in (("isolated", isolated), ("plain", plain)):
            with ip.load(counting(), ids, runtime=runtime) as model:
                model.save(tmp_path / name, shapes=shapes, sign_key=secret)
                expected = results(model)
        for name in ("isolated", "plain"):
            for runtime in (isolated, plain):
                with ip.load(tmp_path / name, runtime=runtime, trusted_keys=public) as loaded:
                    for actual, right in zip(results(loaded), expected, strict=True):
                        np.testing.assert_array_equal(actual, right)


def on_level(level: str, code: str) -> str:
    """Run a program whose CpuAcc uses an instruction set; return what it writes, its log included."""
    log = "logging.basicConfig(stream=sys.stdout, format='%(message)s')"
    code = f"import logging, sys, interposer as ip, numpy as np\n{log}\n{code}"
    environment = os.environ | {"INTERPOSER_CPUACC_ISA": level}
    done = subprocess.run([*warm.python(), "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_that_moves_to_a_lesser_processor_is_compiled_again_with_the_differences_told(
    cpuacc: None, tmp_path: Path
) -> None:
    needs_instruction_set("baseline", "avx2")
    source, path = tmp_path / "source.ipn", tmp_path / "net.ipn"
    ip.load(counting(), ["CpuRef"]).save(source, shapes=[{"batch": 1}])
    save = f"ip.load({str(source)!r}, ['CpuAcc', 'CpuRef']).save({str(path)!r}, shapes=[{{'batch': 1}}])"
    on_level("avx2", save)
    [variant] = ip.saved.check(path).variants
    if " avx2 " not in variant.fingerprints["CpuAcc"]:
        pytest.skip("the processor has no avx2")
    run = f"print(ip.load({str(path)!r}).run([np.ones((1, 8), np.float32)])[0].tobytes().hex())"
    same, lesser = on_level("avx2", run).splitlines(), on_level("baseline", run).splitlines()
    note = "backend 'CpuAcc' has compiled its compiled part again: the file is for 'avx2', and this is 'baseline'"
    assert (len(same), lesser[0]) == (1, f"{path}: {note}")
    values = [np.frombuffer(bytes.fromhex(lines[-1]), np.float32) for lines in (same, lesser)]
    np.testing.assert_allclose(*values, rtol=1e-5)
