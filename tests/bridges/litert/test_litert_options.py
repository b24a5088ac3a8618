"""The options of a delegate: Arm NN's names do what they do there, or say why they do nothing."""

from __future__ import annotations

import json
import logging

import pytest

import interposer as ip
from examples.compute_backend import TinyBackend
from interposer.bridges.litert.options import ARM_NN, delegate_options
from interposer.bridges.options import OPTIONS
from interposer.core.errors import InvalidArgumentError, UnknownBackendError
from tests.bridges.litert.hosting import delegate, interpreter, last_report, perceptron, random_feeds, registered, run

OF_ARM_NN = {
    "backends": "CpuAcc", "dynamic-backends-path": "/tmp", "logging-severity": "warning", "number-of-threads": "2",
    "enable-fast-math": "true", "reduce-fp32-to-fp16": "false", "reduce-fp32-to-bf16": "false", "debug-data": "false",
    "memory-import": "true", "enable-internal-profiling": "false", "internal-profiling-detail": "2",
    "enable-external-profiling": "false", "timeline-profiling": "false", "outgoing-capture-file": "out.bin",
    "incoming-capture-file": "in.bin", "file-only-external-profiling": "false", "counter-capture-period": "10000u",
    "profiling-file-format": "binary", "serialize-to-dot": "net.dot", "infer-output-shape": "true",
    "allow-expanded-dims": "false", "disable-tflite-runtime-fallback": "false", "save-cached-network": "false",
    "cached-network-filepath": "net.bin", "gpu-tuning-level": "1", "gpu-tuning-file": "t", "gpu-mlgo-tuning-file": "m",
    "gpu-enable-profiling": "true", "gpu-kernel-profiling-enabled": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ARM_NN)
def test_an_option_of_arm_nn_is_accepted(name):
    delegate_options({"backends": "CpuAcc", name: OF_ARM_NN[name]})


def test_all_options_are_tried():
    assert set(ARM_NN) <= set(OF_ARM_NN)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("number-of-threads", "65", "a number from 0 to 64; 0 for the default"),
        ("internal-profiling-detail", "3", "1 or 2"),
        ("logging-severity", "loud", "trace, debug, info, warning, error or fatal"),
        ("enable-fast-math", "maybe", "true or false"),
        ("min-nodes", "0", "a whole number, 1 or more"),
        ("threads", "4097", "a whole number from 1 to 4096"),
        ("explain", "~nobody-has-this-name/report.txt", "the path of a file"),
        ("cache-dir", "~nobody-has-this-name/cache", "the path of a folder"),
    ],
)
def test_a_text_that_an_option_cannot_have_is_refused(name, text, expected):
    with pytest.raises(InvalidArgumentError) as caught:
        delegate_options({name: text})
    assert str(caught.value) == f"the option {name!r} is {text!r}; expected {expected}"


def test_a_backend_to_isolate_must_be_known():
    with pytest.raises(UnknownBackendError, match="unknown backend 'Nope'"):
        delegate_options({"backends": "CpuAcc", "isolate": "Nope"})
    assert delegate_options({"backends": "CpuAcc", "isolate": "CpuAcc"}).isolate == ("CpuAcc",)


def test_the_number_of_threads_is_that_of_the_interpreter_unless_an_option_says_otherwise():
    chosen = delegate_options({"backends": "CpuAcc"})
    assert chosen.for_threads(-1).threads is None
    assert chosen.for_threads(3).threads == 3
    assert delegate_options({"backends": "CpuAcc", "number-of-threads": "2"}).for_threads(3).threads == 2


@pytest.mark.needs_cpuref
def test_fast_math_is_an_option_of_the_backends_that_have_it():
    options = delegate_options({"backends": "CpuAcc,CpuRef", "enable-fast-math": "true"}).optimizer_options()
    assert options.model_options == {"CpuAcc": {"FastMathEnabled": True}}


def test_backends_that_only_arm_nn_has_are_skipped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        assert delegate_options({"backends": "GpuFsa,CpuAcc"}).backends == ("CpuAcc",)
    assert caplog.messages == ["Interposer has no backend GpuFsa; CpuAcc will be used"]
    with pytest.raises(ip.errors.UnknownBackendError):
        delegate_options({"backends": "GpuFsa"})


def test_options_for_gpus_have_no_effect_and_say_so(caplog):
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        delegate_options({"gpu-tuning-level": "3"})
    assert caplog.messages[0].startswith("an option has no effect: no backend takes the tuning")


def test_the_options_of_arm_nn_and_of_all_bridges_have_different_names():
    assert set(ARM_NN).isdisjoint(OPTIONS)


def test_a_graph_is_written_in_the_language_dot(tmp_path):
    interpreter(perceptron(), [delegate(backends="CpuAcc", serialize_to_dot=str(tmp_path / "net.dot"))])
    assert (tmp_path / "net.dot").read_text().startswith("digraph")


def test_a_graph_that_cannot_be_written_is_reported_and_the_program_runs(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        host = interpreter(
            perceptron(), [delegate(backends="CpuAcc", serialize_to_dot=str(tmp_path / "no" / "net.dot"))]
        )
    host.invoke()
    assert caplog.messages[0].startswith("serialize-to-dot has no effect: ")


def test_disabling_the_fallback_is_strict():
    with registered("Tiny", TinyBackend):
        taker = delegate(backends="Tiny", disable_tflite_runtime_fallback="true")
        with pytest.raises(RuntimeError, match="1 of 4 nodes are not taken"):
            interpreter(perceptron(), [taker])


def test_an_explanation_is_written_to_a_file(tmp_path):
    interpreter(perceptron(), [delegate(backends="CpuAcc", explain=str(tmp_path / "report.txt"))])
    assert (tmp_path / "report.txt").read_text().splitlines()[0] == last_report().explain().splitlines()[0]


def test_a_profile_is_printed_when_a_part_is_freed(capfd):
    hosted = interpreter(perceptron(), [delegate(backends="CpuAcc", enable_internal_profiling="true")])
    run(hosted, random_feeds(hosted))
    del hosted
    assert "ArmNN" in json.loads(capfd.readouterr().out)


@pytest.mark.parametrize("name", ["BATCH_MATMUL:0:1", "BATCH_MATMUL 1 (product1)"])
def test_a_plan_names_operators_as_load_or_the_report_does(tmp_path, name):
    ip.Plan("net", ["CpuAcc", "CpuRef"], {name: "CpuRef"}).save(tmp_path / "plan.json")
    hosted = interpreter(perceptron(), [delegate(plan=str(tmp_path / "plan.json"))])
    assert [node.backends for node in last_report().nodes] == [("CpuAcc",), ("CpuRef",), ("CpuAcc",), ("CpuAcc",)]
    run(hosted, random_feeds(hosted))


# --- stored networks --------------------------------------------------------------------------------------------------


def compiled_in(content, **options):
    """Run a model with these options; return its output, and the seconds in which its only part was compiled."""
    hosted = interpreter(content, [delegate(backends="CpuAcc", **options)])
    return run(hosted, random_feeds(hosted))[0], last_report().parts[0].seconds


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_compiled_network_is_found_again_in_a_folder(tmp_path):
    first, _ = compiled_in(perceptron(), cache_dir=str(tmp_path))
    written = files(tmp_path)
    assert sorted(name.partition(".")[2] for name in written) == ["1.ipn", "json"]
    second, _ = compiled_in(perceptron(), cache_dir=str(tmp_path))
    assert (first == second).all()
    assert files(tmp_path) == written
    assert len(last_report().taken) == 4
    assert last_report().parts[0].counters()[:2] == (1, 1)


def test_another_network_or_option_is_stored_beside_it(tmp_path):
    compiled_in(perceptron(), cache_dir=str(tmp_path))
    compiled_in(perceptron((8, 16, 16, 5)), cache_dir=str(tmp_path))
    compiled_in(perceptron(), cache_dir=str(tmp_path), enable_fast_math="true")
    assert len(files(tmp_path)) == 6


def test_a_damaged_file_is_compiled_anew(tmp_path, caplog):
    first, _ = compiled_in(perceptron(), cache_dir=str(tmp_path))
    for path in tmp_path.glob("*.ipn"):
        path.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        assert (compiled_in(perceptron(), cache_dir=str(tmp_path))[0] == first).all()
    assert caplog.messages[0].startswith("the stored network cannot be used: ")


def test_the_file_that_arm_nn_s_options_name_is_only_written_when_they_say_so(tmp_path):
    path = str(tmp_path / "net.bin")
    compiled_in(perceptron(), cached_network_filepath=path)
    assert files(tmp_path) == {}
    compiled_in(perceptron(), cached_network_filepath=path, save_cached_network="true")
    written = files(tmp_path)
    assert all(name.startswith("net-") for name in written)
    compiled_in(perceptron(), cached_network_filepath=path)
    assert files(tmp_path) == written


def test_saving_needs_a_file():
    with pytest.raises(InvalidArgumentError, match="save-cached-network needs cached-network-filepath"):
        delegate_options({"save-cached-network": "true"})


def test_a_stored_part_can_be_resized(tmp_path):
    for _ in range(2):
        hosted = interpreter(perceptron(), [delegate(backends="CpuAcc", cache_dir=str(tmp_path))])
        hosted.resize_tensor_input(hosted.get_input_details()[0]["index"], [3, 8])
        hosted.allocate_tensors()
        assert run(hosted, random_feeds(hosted))[0].shape == (3, 4)


def test_fast_math_passes_over_backends_that_are_not_available(monkeypatch):
    monkeypatch.setenv("INTERPOSER_DISABLED_BACKENDS", "GpuAcc")
    options = delegate_options({"backends": "GpuAcc,CpuAcc", "enable-fast-math": "true", "number-of-threads": "5"})
    assert options.optimizer_options().model_options == {"CpuAcc": {"NumberOfThreads": 5, "FastMathEnabled": True}}


def test_external_profiles_of_interpreters_with_other_numbers_of_threads_are_of_one_runtime(tmp_path):
    texts = {"backends": "CpuAcc", "options.CpuAcc.TuningLevel": "0", "enable-external-profiling": "true"}
    files = {"file-only-external-profiling": "true", "outgoing-capture-file": str(tmp_path / "profile.bin")}
    options = delegate_options({**texts, **files})
    assert options.for_threads(3).runtime() is options.runtime()
    assert [path.name for path in tmp_path.iterdir()] == ["profile.bin"]
