"""Networks of engines that are saved and loaded: exported models are imported, and others are compiled again."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from tests.backends.engines.adapters import PLACES, engine_class, installed, runtime_with_engines
from tests.backends.engines.test_engines import options_for, small_network

EXPORTS = ("OnnxRuntime", "OpenVino")
INPUTS = [np.linspace(-2, 2, 128, dtype=np.float32).reshape(2, 64), np.ones((2, 32), np.float32)]


@pytest.fixture
def runtime() -> Iterator[ip.Runtime]:
    with runtime_with_engines() as created:
        yield created


@pytest.fixture(params=PLACES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in installed():
        pytest.skip(str(engine_class(request.param).unavailable()))  # type: ignore[attr-defined]
    return str(request.param)


def test_a_saved_engine_gives_the_same(
    engine: str, runtime: ip.Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ip.load(small_network(), [engine], runtime=runtime) as model:
        model.save(tmp_path / "net.ipn")
        [variant] = ip.saved.check(tmp_path / "net.ipn").variants
        assert (variant.parts, variant.compiled) == ({engine: 1}, {engine: 1} if engine in EXPORTS else {})
        caplog.set_level(logging.WARNING)
        with ip.load(tmp_path / "net.ipn", runtime=runtime) as loaded:
            assert caplog.messages == []
            assert str(loaded.explain()) == str(model.explain())
            for first, second in zip(loaded.run(INPUTS), model.run(INPUTS), strict=True):
                np.testing.assert_array_equal(first, second)


def test_a_loaded_engine_is_saved_as_it_was(
    engine: str, runtime: ip.Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / name for name in ("first.ipn", "second.ipn", "third.ipn")]
    with ip.load(small_network(), [engine], runtime=runtime) as model:
        model.save(paths[0])
        right = model.run(INPUTS)
    caplog.set_level(logging.WARNING)
    for path, again in itertools.pairwise(paths):
        with ip.load(path, runtime=runtime) as loaded:
            loaded.save(again)
    assert paths[0].read_bytes() == paths[2].read_bytes()
    with ip.load(paths[2], runtime=runtime) as loaded:
        for first, second in zip(loaded.run(INPUTS), right, strict=True):
            np.testing.assert_array_equal(first, second)
    assert caplog.messages == []


def test_inputs_whose_names_differ_after_a_zero_byte_are_not_mixed_up(
    engine: str, runtime: ip.Runtime, tmp_path: Path
) -> None:
    network = ip.Network("names")
    x, y = (network.add_input_layer(n, ip.TensorInfo((2,)), name=name) for n, name in enumerate(("x\0a", "x\0b")))
    network.add_output_layer(0, network.add_subtraction_layer(x, y), name="z")
    with ip.load(network, [engine, "CpuRef"], runtime=runtime) as model:
        model.save(tmp_path / "net.ipn")
    with ip.load(tmp_path / "net.ipn", runtime=runtime) as loaded:
        assert loaded.run([np.float32([5, 7]), np.float32([1, 2])])[0].tolist() == [4, 5]


def test_another_version_of_an_engine_compiles_again(
    engine: str, runtime: ip.Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine not in EXPORTS:
        pytest.skip(f"{engine} exports no models")
    with ip.load(small_network(), [engine], runtime=runtime) as model:
        model.save(tmp_path / "net.ipn")
        right = model.run(INPUTS)
    version = engine_class(engine)().version
    monkeypatch.setattr(engine_class(engine), "version", "0.1")
    with ip.load(tmp_path / "net.ipn", runtime=runtime) as loaded:
        for first, second in zip(loaded.run(INPUTS), right, strict=True):
            np.testing.assert_array_equal(first, second)
    said = f"the file is for '{engine} {version}', and this is '{engine} 0.1'"
    assert [text for text in caplog.messages if said in text]


@pytest.mark.parametrize("engine", EXPORTS)
def test_a_damaged_export_is_compiled_again(engine: str, runtime: ip.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine not in installed():
        pytest.skip(str(engine_class(engine).unavailable()))  # type: ignore[attr-defined]
    backend = engine_class(engine)()
    options = options_for(engine).model_options[engine]
    for pieces in ([b"{}"], [b"[1]", b""], [b"no JSON", b"no model"]):
        with pytest.raises(Exception, match="refuse|damaged|expected|cannot|not|No"):
            backend.imported(pieces, {option.name: option.default for option in backend.options} | dict(options))
