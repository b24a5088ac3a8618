"""Figures of a benchmark are compared with recorded ones."""

import json

import pytest

from benchmarks import baseline

MACHINE = {"processor": "a", "system": "b", "processors": 2}


@pytest.fixture
def compared(tmp_path, capsys):
    def run(old, new, *options):
        for name, record in (("old", old), ("new", new)):
            text = record if isinstance(record, str) else json.dumps(record)
            (tmp_path / f"{name}.json").write_text(text)
        status = baseline.main([str(tmp_path / "new.json"), "--baseline", str(tmp_path / "old.json"), *options])
        captured = capsys.readouterr()
        return status, captured.out, captured.err.replace(str(tmp_path), "")

    return run


def test_figures_that_became_worse_are_listed_first(compared):
    old = {"machine": MACHINE, "call": {"run": 10.0, "bind": 4.0, "same": 1.0}}
    new = {"machine": MACHINE, "call": {"run": 20.0, "bind": 2.0, "same": 1.05}}
    assert compared(old, new) == (1, (
        "  2.000  call: run\n"
        "  0.500  call: bind\n"
        "3 figures: 1.016 times the recorded ones in the geometric mean (less is better)\n"
        "1 worse by more than 1.1, 1 better by more than 1.1\n"
    ), "")  # fmt: skip


def test_a_rate_is_better_if_it_is_greater(compared):
    status, out, _ = compared({"runs a second": {"2 threads": 100}}, {"runs a second": {"2 threads": 50}})
    assert status == 1
    assert out.startswith("  2.000  runs a second: 2 threads\n")


def test_the_limit_says_which_changes_count(compared):
    assert compared({"t": 1.0}, {"t": 1.4}, "--limit", "1.5")[0] == 0
    assert compared({"t": 1.0}, {"t": 1.6}, "--limit", "1.5")[0] == 1


def test_rows_of_engines_are_found_by_network_batch_and_threads(compared):
    def record(median):
        engines = {"CpuAcc": {"median_ms": median, "memory_bytes": 5}, "LiteRT": {"reason": "not installed"}}
        return {"rows": [{"network": "vgg", "batch": 8, "threads": 2, "engines": engines}]}

    status, out, _ = compared(record(1.0), record(3.0))
    assert status == 1
    assert out.startswith("  3.000  vgg x8, 2 threads: CpuAcc median_ms\n2 figures")


def test_plain_calls_of_engines_are_compared(compared):
    def record(plain):
        return {"rows": [{"network": "n", "kind": "tiny", "threads": 1, "engines": {"LiteRT": {"plain_ms": plain}}}]}

    assert compared(record(1.0), record(2.0))[1].startswith("  2.000  n x1, 1 threads: LiteRT plain_ms\n1 figures")


def test_rows_of_loading_are_named_by_network_or_by_kind_and_size(compared):
    def record(seconds):
        figures = {"seconds": seconds, "resident": 5.0}
        rows = [{"network": "vgg", "CpuAcc": figures}, {"kind": "layers", "size": 5000, "CpuAcc": {"error": "no"}},
                {"kind": "inputs", "size": 10, "ONNX Runtime": figures}]  # fmt: skip
        return {"machine": MACHINE, "rows": rows}

    assert compared(record(1.0), record(4.0)) == (1, (
        "  4.000  vgg x1, 1 threads: CpuAcc seconds\n"
        "  4.000  inputs x10, 1 threads: ONNX Runtime seconds\n"
        "4 figures: 2.000 times the recorded ones in the geometric mean (less is better)\n"
        "2 worse by more than 1.1, 0 better by more than 1.1\n"
    ), "")  # fmt: skip


def test_rows_of_placement_have_milliseconds_by_engine(compared):
    def record(time):
        return {"rows": [{"network": "n", "threads": 2, "milliseconds": {"auto": time}, "ratio": time, "best": "x"}]}

    assert compared(record(1.0), record(2.0))[1].startswith("  2.000  n x1, 2 threads: auto median_ms\n1 figures")


def test_micro_benchmarks_are_compared_by_name(compared):
    def record(time):
        return {"context": {}, "benchmarks": [{"name": "gemm/64", "real_time": time}]}

    assert compared(record(2.0), record(1.0))[1].startswith("  0.500  gemm/64\n1 figures")


def test_figures_of_another_machine_are_compared_with_a_warning(compared):
    other = MACHINE | {"processors": 64}
    assert compared({"machine": MACHINE, "t": 1}, {"machine": other, "t": 1})[1].startswith("the machines differ: ")


@pytest.mark.parametrize(("old", "new", "message"), [
    ({"t": 1}, {"u": 1}, "cannot compare: /old.json and /new.json have no figure in common\n"),
    ("[1]", {"u": 1}, "cannot compare: /old.json holds a list; expected an object with figures\n"),
    ({"rows": 3}, {"u": 1}, "cannot compare: /old.json: 'rows' holds a int; expected a list of objects\n"),
    ({"rows": [{}, "x"]}, {"u": 1}, "cannot compare: /old.json: entry 1 of 'rows' is a str; expected an object\n"),
    ({"benchmarks": {}}, {"u": 1},
     "cannot compare: /old.json: 'benchmarks' holds a dict; expected a list of objects\n"),
    ("{", {"u": 1}, "cannot compare: /old.json is not a JSON file: "
                    "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"),
])  # fmt: skip
def test_what_cannot_be_compared_is_said(compared, old, new, message):
    assert compared(old, new) == (2, "", message)


def test_a_missing_baseline_is_said(tmp_path, capsys):
    new = tmp_path / "nothing.json"
    new.write_text("{}")
    assert baseline.main([str(new)]) == 2
    assert "No such file" in capsys.readouterr().err
