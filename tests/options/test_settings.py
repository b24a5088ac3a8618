"""Every setting, every field of Triton's configuration and every option of a backend is read or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core import config
from interposer.core.errors import ConfigError, OptionError
from interposer.serving import triton_config
from tests.options.enumerated import options

SETTINGS = config.settings()
IGNORED = sorted(triton_config._IGNORED | {f"dynamic_batching.{name}" for name in triton_config._IGNORED_OF_BATCHING})


def _values(setting: config.Setting[Any]) -> tuple[str, str, Any]:
    """Return a value as the text of a variable, as TOML, and as it is read."""
    return {
        config.NAMES: ("A,B", '["A", "B"]', ("A", "B")),
        config.FOLDERS: ("/a:/b", '["/a", "/b"]', ("/a", "/b")),
        config.SECONDS: ("2.5", "2.5", 2.5),
        config.COUNT: ("3", "3", 3),
        config.FLAG: ("yes", "true", True),
        config.PATH: ("/a", '"/a"', Path("/a")),
    }[setting.kind]


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    path = tmp_path / "user" / "interposer" / config.FILE_NAME
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_is_read_from_the_variable_and_from_the_users_file(
    key: str, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, toml, value = _values(SETTINGS[key])
    user_file.write_text(f"{key} = {toml}", encoding="utf-8")
    assert SETTINGS[key].read() == value
    user_file.unlink()
    monkeypatch.setenv(SETTINGS[key].variable, text)
    assert SETTINGS[key].read() == value


def test_the_cache_folder_is_set_by_its_variable_alone(user_file: Path) -> None:
    user_file.write_text('cache_dir = "/a"', encoding="utf-8")
    with pytest.raises(ConfigError, match="has the key 'cache_dir', which only the variable INTERPOSER_CACHE_DIR may"):
        config.check_settings()


def test_folders_of_backends_may_stand_in_the_users_file(user_file: Path, tmp_path: Path) -> None:
    user_file.write_text(f'backend_path = ["{tmp_path}/none"]', encoding="utf-8")
    with ip.Runtime() as runtime:
        assert [record.path for record in runtime.dynamic_backends() if "none" in record.path] == [f"{tmp_path}/none"]


@pytest.mark.parametrize("field", IGNORED)
def test_a_field_of_triton_without_a_meaning_here_is_named(field: str, tmp_path: Path) -> None:
    outer, _, inner = field.partition(".")
    path = tmp_path / "config.pbtxt"
    path.write_text(f"max_batch_size: 2 dynamic_batching {{ {inner}: 1 }}" if inner else f"{outer} {{ a: 1 }}")
    assert triton_config.read_config(path).ignored == (field,)


@pytest.mark.parametrize("field", sorted(triton_config._OF_THE_FILE))
def test_a_field_of_triton_that_the_models_file_decides_is_accepted(field: str, tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(f'{field}: "a"')
    assert triton_config.read_config(path) == triton_config.TritonConfig()


ENGINES = {"onnxruntime": "OnnxRuntime", "litert": "LiteRt", "openvino": "OpenVino", "torch": "Torch"}
OF_BACKENDS = [(where.partition(" ")[2], name) for where, name in options() if where.startswith("backend ")]


@pytest.mark.parametrize(("backend", "option"), OF_BACKENDS)
def test_an_option_of_a_backend_is_checked(backend: str, option: str) -> None:
    backend_id = ENGINES.get(backend, backend)
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, network.add_constant_layer(np.ones(2, np.float32))))
    with ip.Runtime() as runtime:
        if runtime.registry.reason_absent(backend_id) is not None:
            pytest.skip(f"{backend_id} is not available")
        given = ip.OptimizerOptions(model_options={backend_id: {option: object()}})
        with pytest.raises(OptionError, match=option):
            ip.optimize(network, [backend_id], runtime.device_spec, given)


@pytest.mark.needs_cpuref
def test_the_reference_backend_has_no_options() -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x))
    with pytest.raises(OptionError, match="backend CpuRef has no option 'threads' \\(it has none\\)"):
        ip.load(network, ["CpuRef"], options=ip.OptimizerOptions(model_options={"CpuRef": {"threads": 2}}))
    with (
        ip.Runtime(ip.CreationOptions(backend_options={"CpuRef": {"threads": 2}})) as runtime,
        pytest.raises(OptionError, match="backend CpuRef has no option 'threads'"),
    ):
        ip.load(network, ["CpuRef"], runtime=runtime)
