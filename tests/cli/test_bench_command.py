"""``interposer bench``: a network on all backends, concurrently. Nothing here says how long anything takes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from interposer.analysis.bench import BenchReport, Candidate, bench
from interposer.cli import bench as bench_command
from interposer.cli.main import main
from interposer.core.errors import InvalidArgumentError
from interposer.ir.network import Network
from interposer.session.timing import Timing
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref
QUICK = ("--rounds", "2", "--seconds", "0", "--random")


@pytest.fixture
def measured(capsys):
    """Runs the command and gives what it prints."""

    def measured(*words: object, status: int = 0) -> str:
        assert main(["bench", *map(str, words)]) == status
        said = capsys.readouterr()
        return said.out if status == 0 else said.out + said.err

    return measured


def test_a_table_shows_every_choice_with_its_layers_and_times(measured, tmp_path, more_backends):
    file = networks.alternating(tmp_path)

    said = measured(file, "--backends", "Sums,CpuRef", "--mix", "Device,Sums", *QUICK)

    titles, *rows = said.splitlines()[:4]
    assert titles.split("  ")[0] == "backends"
    assert [row.split()[0] for row in rows] == ["Sums", "CpuRef", "Device,Sums"]
    assert "2 on Sums, 2 on CpuRef" in rows[0]
    assert "4 on CpuRef" in rows[1]


def test_all_available_backends_are_measured_unless_some_are_named(measured, tmp_path, more_backends):
    facts = json.loads(measured(networks.doubler(tmp_path), "--json", *QUICK))

    assert {"Sums", "Device", "CpuRef"} <= {fact["name"] for fact in facts["candidates"]}
    assert "Gone" not in {fact["name"] for fact in facts["candidates"]}
    assert facts["network"] == "doubler"
    assert all(len(fact["turns_ms"]) == 2 for fact in facts["candidates"])


def test_a_backend_that_is_not_available_is_reported_as_skipped(tmp_path, capsys, more_backends):
    file = str(networks.doubler(tmp_path))

    assert main(["bench", file, "--backends", "Gone", "--mix", "Gone,Sums", *QUICK]) == 0

    said = capsys.readouterr()
    assert said.err == "interposer: backend 'Gone' is skipped: there is no such device\n"
    assert [line.split()[0] for line in said.out.splitlines()[1:3]] == ["Gone", "Gone,Sums"]


@pytest.mark.parametrize("option", ["--backends", "--mix"])
def test_an_unknown_backend_is_an_error_that_names_the_nearest_one(measured, tmp_path, more_backends, option):
    said = measured(networks.doubler(tmp_path), option, "Sums,Gonne", *QUICK, status=2)

    assert said.startswith("interposer: unknown backend 'Gonne'; did you mean 'Gone'? (known: ")


def test_the_status_is_1_where_no_backend_runs_the_network_and_2_after_an_error(measured, tmp_path):
    file = networks.doubler(tmp_path)

    assert "CpuRef: the network needs" in measured(file, "--backends", "CpuRef", "--limit-bytes", "1", *QUICK, status=1)
    assert "nothing.onnx" in measured(tmp_path / "nothing.onnx", *QUICK, status=2)


def test_inputs_come_from_files_and_shapes_from_options(measured, tmp_path):
    file = networks.doubler(tmp_path, ("batch", 4))
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))

    assert measured(file, "--backends", "CpuRef", "--input", tmp_path / "x.npy", *QUICK)
    assert measured(file, "--backends", "CpuRef", "--shape", "batch=2", "--threads", "1", *QUICK)
    said = measured(file, *QUICK, status=2)
    assert said == "interposer: input 'x' is float32[batch, 4], whose shape is open; give it, as in --shape batch=1\n"
    assert measured(file, "--shape", "batch=1", "--backends", "CpuRef", *QUICK)


def test_a_plot_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, capsys):
    plot = tmp_path / "nowhere" / "times.svg"
    assert main(["bench", str(networks.doubler(tmp_path)), "--backends", "CpuRef", "--plot", str(plot)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"interposer: --plot cannot be written to {str(plot)!r}: there is no folder {str(plot.parent)!r}\n",
    )


def test_the_times_are_drawn(measured, tmp_path):
    plot = tmp_path / "times.svg"

    measured(networks.doubler(tmp_path), "--backends", "CpuRef", "--plot", plot, *QUICK)

    texts = [
        text_element.text for text_element in ElementTree.parse(plot).getroot().iter("{http://www.w3.org/2000/svg}text")
    ]
    assert texts[:2] == ["doubler: 1 choice of backends, one run", "CpuRef"]
    assert texts[-2:] == ["median time of a run; white line: least time (ms)", "backends"]


@pytest.mark.parametrize(("option", "given"), [("--rounds", "0"), ("--seconds", "-1"), ("--seconds", "soon")])
def test_wrong_numbers_are_wrong_usage(measured, tmp_path, option, given):
    assert f"not {given!r}" in measured(networks.doubler(tmp_path), option, given, status=2)


def test_a_choice_that_is_named_twice_or_places_the_same_is_measured_once(measured, tmp_path, more_backends):
    file = networks.doubler(tmp_path)
    words = ("--backends", "CpuRef,CpuRef,Sums", "--mix", "Sums,Device", "--json", *QUICK)

    candidates = json.loads(measured(file, *words))["candidates"]

    assert [(candidate["name"], candidate["same_as"]) for candidate in candidates] == [
        ("CpuRef", ""),
        ("Sums", ""),
        ("Sums,Device", "Sums"),
    ]
    assert candidates[1]["turns_ms"] == candidates[2]["turns_ms"]
    assert "same placement as Sums" in measured(file, *words[:4], *QUICK)


def test_the_spread_is_half_the_distance_between_the_turns():
    assert Timing((1.0, 2.0, 4.0), 0.5).spread == 0.75
    assert Timing((2.0,), 2.0).spread == 0.0


def test_what_the_noise_cannot_tell_apart_is_said(capsys):
    turns = {"A": (1.0, 3.0, 1.0, 3.0), "B": (2.0, 2.5, 2.0, 2.5), "C": (9.0, 9.0, 9.0, 9.0)}
    candidates = [Candidate((name,), timing=Timing(item, min(item))) for name, item in turns.items()]
    report = BenchReport("net", tuple(candidates))

    bench_command._print(report)

    said = capsys.readouterr().out
    assert [item.name for item in report.undecided] == ["A", "B"]
    assert report.to_dict()["undecided"] == ["A", "B"]
    assert said.splitlines()[-1] == "too noisy to say which is fastest: A, B"
    [row_a, row_b, row_c] = said.splitlines()[1:4]
    assert (row_a.endswith("compare"), row_b.endswith("too noisy to compare"), row_c.endswith("compare")) == (
        False,
        True,
        False,
    )
    assert "\u00b150%" in row_a


def test_what_it_ran_on_is_said(measured, tmp_path):
    file = networks.doubler(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    quick = QUICK[:-1]

    assert measured(file, "--backends", "CpuRef", "--seed", "3", *quick).endswith("inputs: random numbers, seed 3\n")
    said = measured(file, "--backends", "CpuRef", "--input", tmp_path / "x.npy", *quick)
    assert said.endswith(f"inputs: {tmp_path / 'x.npy'}\n")
    assert measured(file, "--backends", "CpuRef", *quick, status=2) == (
        "interposer: no --input gives these inputs of the network:\n  - 'x' float32[1, 4]\n"
        "give a file for each with --input NAME=FILE, or use --random\n"
    )


def test_choices_are_measured_with_several_runs_at_the_same_time(measured, tmp_path):
    words = (networks.doubler(tmp_path), "--backends", "CpuRef", "--concurrent", "3", *QUICK)
    titles, row, *_ = measured(*words).splitlines()
    assert "runs/s" in titles.split()
    report = json.loads(measured(*words, "--json"))
    assert (report["concurrent"], report["candidates"][0]["reason"]) == (3, "")
    assert len(row.split()) > 5


def test_the_status_is_1_if_no_choice_is_within_the_threshold(measured, tmp_path):
    words = (networks.doubler(tmp_path), "--backends", "CpuRef", *QUICK)
    measured(*words, "--threshold", "1e-9", status=1)
    measured(*words, "--threshold", "1e9")


def test_a_number_of_threads_below_one_is_refused():
    network = Network("empty")
    with pytest.raises(InvalidArgumentError, match="concurrent is 0; expected 1 thread or more"):
        bench(network, [("CpuRef",)], concurrent=0)
