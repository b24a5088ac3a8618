"""``interposer run``: what it shows, as text and as JSON, and what it says where a run is not possible."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import interposer as ip
from interposer.cli.main import main
from tests import warm
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits"
SHARED = ROOT.parent / "shared/models"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.float32([[1, 4, 2, 3]]))
    (tmp_path / "labels.txt").write_text("one\ntwo\nthree\nfour\n")
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run the command, on CpuRef by default, and return its output without the times."""

    def run(*words: object, status: int = 0) -> str:
        backends = [] if "--backends" in words else ["--backends", "CpuRef"]
        assert main(["run", *map(str, words), *backends]) == status
        captured = capsys.readouterr()
        assert (captured.err if status == 0 else captured.out) == ""
        return re.sub(r"\d+\.\d\d(?= ms|\)| to)", "0.00", captured.out) if status == 0 else captured.err

    return run


def as_json(run, *words: object) -> dict[str, object]:
    return json.loads(run(*words, "--json"))


# --- classes ----------------------------------------------------------------------------------------------------------


def test_the_top_classes_are_shown_with_their_labels(run, folder):
    assert run(networks.doubler(folder), "--input", "x.npy", "--labels", "labels.txt", "--top", 3) == (
        "class    score  label\n"
        "    1  8.00000  two\n"
        "    3  6.00000  four\n"
        "    2  4.00000  three\n"
        "1 layer on CpuRef\n"
        "0.00 ms\n"
    )


def test_top_without_a_vector_of_classes_is_mentioned(folder, capsys):
    np.save("pair.npy", np.float32([[1, 4, 2, 3]] * 2))
    words = ["--input", "pair.npy", "--shape", "x=2x4", "--backends", "CpuRef"]
    assert main(["run", str(networks.doubler(folder)), *words, "--top", "2"]) == 0
    captured = capsys.readouterr()
    assert "float32[2, 4]" in captured.out
    assert captured.err.startswith("interposer: --top has no effect: it needs a vector of classes, but output")
    Path("interposer.toml").write_text("[cli.run]\ntop = 2\n")
    assert main(["run", str(networks.doubler(folder)), *words]) == 0
    assert capsys.readouterr().err == ""  # the settings are for networks with classes, too


def test_without_labels_there_is_no_column_for_them(run, folder):
    assert run(networks.doubler(folder), "--input", "x.npy", "--top", 1).startswith("class    score\n    1  8.00000\n1")


def test_the_result_as_json(run, folder):
    result = as_json(run, networks.doubler(folder), "--input", "x.npy", "--labels", "labels.txt", "--top", 2)
    assert (result.pop("ms") >= 0, result.pop("runs_per_second") > 0) == (True, True)
    assert result == {
        "top": [{"index": 1, "label": "two", "score": 8.0}, {"index": 3, "label": "four", "score": 6.0}],
        "outputs": [{"name": "y", "info": "float32[1, 4]", "shape": [1, 4], "min": 2.0, "max": 8.0, "mean": 5.0}],
        "placement": {"CpuRef": 1},
        "copies": 0,
        "absent": [],
        "runs": 1,
        "concurrent": 1,
    }


def test_without_labels_the_label_is_null(run, folder):
    [best] = as_json(run, networks.doubler(folder), "--input", "x.npy", "--top", 1)["top"]
    assert best == {"index": 1, "label": None, "score": 8.0}


def test_scores_that_are_no_numbers_are_null(run, folder):
    np.save("x.npy", np.float32([[1, np.nan, 3, 2]]))
    top = as_json(run, networks.doubler(folder), "--input", "x.npy", "--top", 2, "--log-level", "error")["top"]
    assert [ranked["score"] for ranked in top] == [None, 6.0]


def test_several_runs_are_timed_by_their_median(run, folder):
    out = run(networks.doubler(folder), "--input", "x.npy", "--repeat", 3)
    assert out.endswith("\n0.00 ms (median of 3 runs, 0.00 to 0.00)\n")
    assert as_json(run, networks.doubler(folder), "--input", "x.npy", "--repeat", 3)["runs"] == 3


def test_runs_at_the_same_time_are_counted_together(run, folder):
    words = [networks.doubler(folder), "--input", "x.npy", "--repeat", 3, "--concurrent", 2]
    assert re.search(r"\(median of 6 runs, 0.00 to 0.00\), 2 at a time, \S+ runs per second\n$", run(*words))
    result = as_json(run, *words)
    assert (result["runs"], result["concurrent"], result["runs_per_second"] > 0) == (6, 2, True)
    assert result["outputs"] == as_json(run, *words[:3])["outputs"]


def test_threads_that_the_system_does_not_start_are_an_error_and_the_others_end(folder, run, monkeypatch):
    start, started = threading.Thread.start, []

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    network = networks.doubler(folder)
    monkeypatch.setattr(threading.Thread, "start", start_two)
    error = run(network, "--input", "x.npy", "--concurrent", 3, status=2)
    assert "--concurrent: the system does not start 3 threads (can't start new thread)" in error
    assert not any(thread.is_alive() for thread in started)


@pytest.mark.parametrize(("precision", "expected"), [("float32", 1 + 2**-12), ("float16", 1.0), ("bfloat16", 1.0)])
def test_float_layers_can_be_computed_in_a_smaller_type(precision, expected, run, folder):
    np.save("x.npy", np.float32([[0.5 + 2**-13] * 4]))
    words = [networks.doubler(folder), "--input", "x.npy", "--precision", precision]
    [output] = as_json(run, *words)["outputs"]
    assert (output["info"], output["max"]) == ("float32[1, 4]", expected)


def test_a_threshold_that_is_exceeded_is_status_1(folder, capsys):
    words = ["run", networks.doubler(folder), "--input", "x.npy", "--backends", "CpuRef", "--threshold"]
    assert main([*words, "1e-9"]) == 1
    assert re.search(r"the median of \S+ ms is above the threshold of 1e-09 ms\n$", capsys.readouterr().out)
    assert main([*words, "1e9"]) == 0
    assert "threshold" not in capsys.readouterr().out
    assert main([*words, "0"]) == 2
    assert "expected milliseconds, not '0'" in capsys.readouterr().err


def quantized(folder: Path) -> str:
    """Write a network of one layer that takes and gives int8 with scale 0.5 and zero point -2, and return its path."""
    network = ip.Network("quantized")
    info = ip.TensorInfo((1, 4), "int8", ip.Quantization(0.5, -2))
    x = network.add_input_layer(0, info, name="x")
    layer = network.add_reshape_layer(x, target_shape=(1, 4), name="same")
    network.add_output_layer(0, layer, name="y")
    (folder / "net.txt").write_text(network.text())
    return str(folder / "net.txt")


@pytest.mark.parametrize(("name", "content"), [
    ("x.npy", None),
    ("x.txt", "0.6 -0.6\n1e3, -3"),
    ("x.csv", "0.6,-0.6,1e3,-3"),
    ("x.raw", np.float32([0.6, -0.6, 1e3, -3]).tobytes()),
])  # fmt: skip
def test_floats_are_quantized_on_the_way_in_and_dequantized_on_the_way_out(name, content, run, folder):
    np.save("x.npy", np.float32([[0.6, -0.6, 1e3, -3]]))
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    run(quantized(folder), "--input", name, "--quantize-inputs", "--save", "y.npy")
    assert np.load("y.npy").tolist() == [[-1, -3, 127, -8]]
    run(quantized(folder), "--input", name, "--quantize-inputs", "--dequantize-outputs", "--save", "y.txt")
    assert Path("y.txt").read_text() == "0.5 -0.5 64.5 -3.0\n"
    run(quantized(folder), "--input", "y.txt", "--quantize-inputs", "--save", "y.raw")
    assert Path("y.raw").read_bytes() == np.int8([-1, -3, 127, -8]).tobytes()


def test_integers_in_files_are_quantized_values(run, folder):
    Path("q.txt").write_text("1 2 3 4")
    result = as_json(run, quantized(folder), "--input", "q.txt", "--dequantize-outputs")
    assert [(item["info"], item["min"], item["max"]) for item in result["outputs"]] == [("float32[1, 4]", 1.5, 3.0)]


def test_a_backend_that_is_absent_is_skipped_and_named(folder, more_backends, capsys):
    words = ["run", networks.doubler(folder), "--input", "x.npy", "--backends", "Gone,Sums"]
    assert main(words) == 0
    result = capsys.readouterr()
    assert result.err == "interposer: backend 'Gone' is skipped: there is no such device\n"
    assert "\n1 layer on Sums\n" in result.out
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["absent"] == [{"id": "Gone", "reason": "there is no such device"}]


def test_layers_on_several_backends_are_counted_with_the_copies_between_them(run, folder, more_backends):
    words = [networks.alternating(folder), "--input", "x.npy", "--backends", "Device,Sums,CpuRef"]
    assert "\n4 layers (1 on Device, 2 on Sums, 1 on CpuRef), 2 copies between backends\n" in run(*words)


# --- other outputs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def two_inputs(folder) -> list[str]:
    np.save("a.npy", np.float32([[1, 2, 3]]))
    np.save("b.npy", np.float32([[1, 1, 1], [10, 10, 10]]))
    return [networks.splitter(folder), "--input", "a.npy", "--input", "b=b.npy"]


def test_of_what_is_no_vector_of_classes_the_range_is_shown(run, two_inputs):
    assert run(*two_inputs) == (
        "output      info           min  max  mean\n"
        "total       float32[2, 3]    2   13   7.5\n"
        "difference  float32[2, 3]   -9    2  -3.5\n"
        "2 layers on CpuRef\n"
        "0.00 ms\n"
    )


def test_one_output_can_be_chosen(run, two_inputs):
    result = as_json(run, *two_inputs, "--output", "difference")
    assert [item["name"] for item in result["outputs"]] == ["difference"]
    assert result["top"] == []


def test_all_outputs_are_saved(run, two_inputs, folder):
    run(*two_inputs, "--output", "total", "--save", "out.npz")
    with np.load("out.npz") as saved:
        assert saved["total"].tolist() == [[2, 3, 4], [11, 12, 13]]
        assert saved["difference"].tolist() == [[0, 1, 2], [-9, -8, -7]]


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), ("batch", 3, 8, 8), ("batch", 3, "height", "width")])
def test_a_picture_goes_into_networks_of_known_and_of_open_shape(run, folder, shape):
    Image.new("RGB", (20, 10), (255, 102, 0)).save("orange.png")
    words = [networks.brightness(folder, shape), "--input", "orange.png"]
    assert [(item["index"], round(item["score"], 5)) for item in as_json(run, *words)["top"]] == [
        (0, 1.0),
        (1, 0.4),
        (2, 0),
    ]


def test_mean_and_std_change_what_a_network_of_floats_sees(run, folder):
    Image.new("RGB", (20, 10), (255, 102, 0)).save("orange.png")
    words = [networks.brightness(folder), "--input", "orange.png", "--mean", "127.5", "--std", "127.5"]
    assert [round(item["score"], 5) for item in as_json(run, *words)["top"]] == [1, -0.2, -1]


def test_the_example_reads_every_digit(run):
    for label in (DIGITS / "labels.txt").read_text().split():
        result = as_json(
            run, DIGITS / "digits.onnx", "--input", DIGITS / f"{label}.png", "--labels", DIGITS / "labels.txt"
        )
        assert result["top"][0]["label"] == label


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ("cat.bmp", [(286, "Egyptian cat", 205), (282, "tabby, tabby cat", 26), (283, "tiger cat", 9)]),
        ("parrot.jpg", [(89, "macaw", 255)]),
        ("grace_hopper.bmp", [(653, "military uniform", 239)]),
    ],
)
def test_mobilenet_names_what_is_on_a_picture(run, picture, expected):
    if not SHARED.exists():
        pytest.skip("../shared/models is missing")
    model, labels = SHARED / "mobilenet_v2_1.0_224_quant.tflite", SHARED / "imagenet_labels.txt"
    result = as_json(run, model, "--input", SHARED / picture, "--labels", labels, "--top", len(expected))
    assert [(item["index"], item["label"], item["score"]) for item in result["top"]] == expected
    assert result["top"][0]["value"] == expected[0][2] / 256
    assert result["placement"].keys() == {"CpuRef"}


# --- what is not possible ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no --input gives these inputs of the network:\n  - 'x' float32[1, 4]"),
        (["--input", "nothing.npy"], "nothing.npy: No such file or directory"),
        (["--input", "empty"], "empty: the folder has no files of inputs, such as .npy, .npz or images"),
        (["--input", "short.npy"], "input 'x' has shape [1, 3]; expected [1, 4]"),
        (["--input", "x.npy", "--output", "z"], "the network has no output 'z' (it has: y)"),
        (["--input", "x.npy", "--labels", "few.txt"],
         "few.txt: 2 labels for 4 classes; there must be one for each"),
        (["--input", "x.npy", "--backends", "CpuReff"], "unknown backend 'CpuReff'; did you mean 'CpuRef'? (known: "),
        (["--input", "x.npy", "--save", "no/out.npz"],
         "--save cannot be written to 'no/out.npz': there is no folder 'no'"),
        (["--input", "x.npy", "--limit-bytes", "16"],
         "the network needs 32 bytes of memory, but the limit is 16; "
         "raise it with --limit-bytes if the file is trusted"),
        (["--input", "x.npy", "--limit-operations", "1"],
         "the network needs 12 operations of arithmetic, but the limit is 1; "
         "raise it with --limit-operations if the file is trusted"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_message(run, folder, words, text):
    np.save("short.npy", np.float32([[1, 2, 3]]))
    (folder / "few.txt").write_text("one\ntwo\n")
    (folder / "empty").mkdir()
    assert run(networks.doubler(folder), *words, status=2).startswith(f"interposer: {text}")


def test_labels_need_one_vector_of_classes(run, two_inputs, folder):
    words = [*two_inputs, "--labels", "labels.txt"]
    text = "interposer: --labels needs one output; choose it with --output (total, difference)\n"
    assert run(*words, status=2) == text
    text = "interposer: --labels needs a vector of classes, but output 'total' is float32[2, 3]\n"
    assert run(*words, "--output", "total", status=2) == text


def test_a_file_that_is_no_network_is_refused(run, folder):
    formats = "armnn, caffe, nnapi, onnx, openvino, saved, tensorflow, text, tflite, torch"
    text = f"interposer: labels.txt: this is no model of a known format ({formats}): "
    assert run("labels.txt", status=2).startswith(text)


def test_a_limit_can_be_lifted(run, folder):
    words = ["--limit-bytes", "none", "--limit-operations", "1K"]
    assert as_json(run, networks.doubler(folder), "--input", "x.npy", *words)["runs"] == 1


def test_it_runs_as_a_program():
    words = ["run", "digits.onnx", "--input", "seven.png", "--labels", "labels.txt", "--top", "1"]
    done = subprocess.run(
        [*warm.python(), "-m", "interposer", *words], cwd=DIGITS, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"class    score  label\n    7  0\.\d{5}  seven\n10 layers .*\n\d+\.\d\d ms\n", done.stdout)


# --- values inside the network ----------------------------------------------------------------------------------------


def test_values_of_the_network_are_computed_by_name(run, folder):
    result = as_json(
        run, networks.alternating(folder), "--input", "x.npy", "--outputs", "product,twice", "--save", "v.npz"
    )
    assert [item["name"] for item in result["outputs"]] == ["product", "twice"]
    with np.load("v.npz") as arrays:
        np.testing.assert_array_equal(arrays["twice"], [[2, 8, 4, 6]])
        np.testing.assert_array_equal(arrays["product"], [[2, 32, 8, 18]])


def test_what_every_layer_gives_is_saved_beside_the_outputs(run, folder):
    said = run(networks.alternating(folder), "--input", "x.npy", "--save-intermediates", "all.npz")
    assert said.startswith("class    score\n")
    with np.load("all.npz") as arrays:
        assert sorted(arrays) == ["positive", "product", "twice", "y"]
        np.testing.assert_array_equal(arrays["positive"], [[2, 8, 4, 6]])


def test_the_names_of_layers_stand_for_their_results(run):
    result = as_json(run, DIGITS / "digits.onnx", "--random", "--outputs", "c1,conv1")
    assert [item["name"] for item in result["outputs"]] == ["c1", "conv1"]
    assert result["outputs"][0]["max"] == result["outputs"][1]["max"]


def test_values_of_a_network_with_open_shapes_are_computed(run, folder):
    network = networks.doubler(folder, ("n", 4))
    result = as_json(run, network, "--input", "x.npy", "--outputs", "x", "--outputs", "y", "--repeat", 2)
    assert [item["name"] for item in result["outputs"]] == ["x", "y"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--outputs", "prodct"], "outputs: the model has no value 'prodct'; did you mean 'product'?"),
        (["--outputs", "twice,product", "--outputs", "twice"], "--outputs gives 'twice' more than once"),
        (["--outputs", ","], "--outputs takes names with commas between them, not ','"),
        (["--outputs", "twice", "--output", "y"], "the network has no output 'y' (it has: twice)"),
    ],
)
def test_values_that_a_network_does_not_have_are_refused(run, folder, words, text):
    network = networks.alternating(folder)
    assert text in run(network, "--input", "x.npy", *words, status=2)


def test_a_network_without_outputs_is_refused(run, folder):
    file = folder / "empty.txt"
    file.write_text('graph "empty" {\n  %x = Input : float32[2]\n}\n')
    text = f"interposer: {file}: the network has no outputs, so it computes nothing\n"
    assert run(file, "--random", status=2) == text


def test_inputs_are_made_up_only_with_random_and_are_the_same_for_a_seed(run, folder):
    file = networks.doubler(folder)
    text = "interposer: no --input gives these inputs of the network:\n  - 'x' float32[1, 4]\n"
    assert run(file, status=2) == f"{text}give a file for each with --input NAME=FILE, or use --random\n"
    unseeded, seed_0, seed_1 = (
        as_json(run, file, *words) for words in (["--random"], ["--seed", "0"], ["--seed", "1"])
    )
    assert unseeded["top"] == seed_0["top"] != seed_1["top"]
    assert unseeded["inputs"] == seed_0["inputs"] == "random numbers, seed 0"
    assert run(file, "--random").endswith("inputs: random numbers, seed 0\n")


def test_random_numbers_are_for_the_inputs_that_no_file_gives(run, two_inputs):
    network, *_ = two_inputs
    result = as_json(run, network, "--input", "a=a.npy", "--random")
    assert result["inputs"] == "a=a.npy, random numbers, seed 0"


def test_random_numbers_need_a_shape_and_the_hint_can_be_followed(run, folder):
    file = networks.doubler(folder, ("batch", 4))
    text = "interposer: input 'x' is float32[batch, 4], whose shape is open; give it, as in --shape batch=1\n"
    assert run(file, "--random", status=2) == text
    assert run(file, "--random", "--shape", "batch=1")


def test_two_results_do_not_go_to_one_file(run, folder):
    words = ["--random", "--save", "y.npz", "--save-intermediates", "./y.npz"]
    text = "interposer: --save and --save-intermediates name one file, 'y.npz'\n"
    assert run(networks.doubler(folder), *words, status=2) == text
