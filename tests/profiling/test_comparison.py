"""Comparison of two profiles: which layers became slower, and files that are no profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interposer.cli.main import main
from interposer.core.errors import ParseError
from interposer.profiling import Category, Counter, CounterClass, Interval, Recording, Sample, Site
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.comparison import compare_counters, compare_profiles
from interposer.profiling.events import ForeignThread, TracedNetwork


def written(path: Path, **times: list[int]) -> Path:
    """Write a profile in which layers on backend "B" took these microseconds."""
    spans = [
        Interval(Site(Category.LAYER, name, "Addition", layer=name, backend="B"), 10**6 * n, 10**6 * n + 1000 * us, 7)
        for name, durations in times.items()
        for n, us in enumerate(durations)
    ]
    path.write_text(chrome_trace(Recording(tuple(sorted(spans, key=lambda item: item.begin)))))
    return path


def test_layers_are_sorted_by_how_much_slower_they_became(tmp_path: Path) -> None:
    before = written(tmp_path / "a.json", same=[5, 5], slow=[10, 30, 20], gone=[7])
    after = written(tmp_path / "b.json", same=[5], slow=[40], new=[3])
    changes = {
        change.layer: (change.before_us, change.after_us, change.ratio) for change in compare_profiles(before, after)
    }
    assert list(changes) == ["slow", "new", "same", "gone"]
    assert changes == {"slow": (20, 40, 2), "new": (None, 3, None), "same": (5, 5, 1), "gone": (7, None, None)}


def test_the_command_shows_medians_differences_and_ratios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = written(tmp_path / "a.json", x=[10]), written(tmp_path / "b.json", x=[15], y=[1])
    assert main(["profile", "--compare", str(before), str(after)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["x", "Addition", "B", "10.00", "15.00", "+5.00", "1.50"]
    assert lines[2] == ["y", "Addition", "-", "->", "B", "-", "1.00", "+1.00", "-"]
    assert main(["profile", "--compare", str(before), str(after), "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    [first, _] = comparison["layers"]
    assert comparison["counters"] == []
    assert (first["layer"], first["difference_us"], first["ratio"]) == ("x", 5.0, 1.5)


def test_layers_of_equal_names_in_two_networks_are_kept_apart(tmp_path: Path) -> None:
    def trace(name: str, *times: tuple[str, int]) -> Path:
        networks = [TracedNetwork(network, number, number) for number, (network, _) in enumerate(times)]
        spans = [
            Interval(Site(Category.LAYER, "x", "Addition", network, "x", backend="B"), 10**6 * n, 10**6 * n + us, 7)
            for n, (network, (_, us)) in enumerate(zip(networks, times, strict=True))
        ]
        (tmp_path / name).write_text(chrome_trace(Recording(tuple(spans))))
        return tmp_path / name

    two, other = trace("two.json", ("a", 1000), ("b", 9000)), trace("other.json", ("b", 9000), ("a", 3000))
    changes = {change.layer: (change.before_us, change.after_us) for change in compare_profiles(two, other)}
    assert changes == {"a: x": (1, 3), "b: x": (9, 9)}
    [renamed] = compare_profiles(trace("old.json", ("old", 1000)), trace("new.json", ("new", 2000)))
    assert (renamed.layer, renamed.difference_us) == ("x", 1)


def test_layers_of_child_processes_are_compared(tmp_path: Path) -> None:
    layer = Interval(Site(Category.LAYER, "x", "Addition", layer="x", backend="B"), 0, 5000, 9)
    child = ForeignThread(4, "child process of B", "MainThread", 4)
    trace = chrome_trace(Recording((layer,), foreign={9: child}))
    (tmp_path / "a.json").write_text(trace)
    [change] = compare_profiles(tmp_path / "a.json", tmp_path / "a.json")
    assert (change.layer, change.before_us, change.after_us) == ("x", 5, 5)
    names = {event["args"]["name"]: event["pid"] for event in json.loads(trace)["traceEvents"] if event["ph"] == "M"}
    assert names["child process of B, 4"] > 4  # the numbers of the groups of tracks


def with_a_backend(path: Path, us: int, *values: int, rate: float = 1.0) -> Path:
    """Write a profile of one layer with a step on a device and two counters."""
    layer = Interval(Site(Category.LAYER, "x", "Addition", layer="x", backend="B"), 0, 10**6, 7)
    step = Interval(Site(Category.KERNEL, "kernel", backend="B", device="unit"), 0, 1000 * us, 0)
    counter, gauge = Counter("sums", "sums", CounterClass.EVENT, backend="B"), Counter("heat", "K", backend="B")
    samples = [Sample(counter, n, value) for n, value in enumerate(values)] + [Sample(gauge, 1, rate)]
    path.write_text(chrome_trace(Recording((layer, step), (), tuple(samples))))
    return path


def test_steps_of_backends_and_counters_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = with_a_backend(tmp_path / "a.json", 10, 2, 3), with_a_backend(tmp_path / "b.json", 15, 4, 4, rate=3)
    changes = {(change.layer, change.kind): change.difference_us for change in compare_profiles(before, after)}
    assert changes == {("kernel", "step"): 5, ("x", "Addition"): 0}
    counters = {
        change.counter: (change.before, change.after, change.units) for change in compare_counters(before, after)
    }
    assert counters == {"B sums": (5, 8, "sums"), "B heat": (1, 3, "K")}
    assert main(["profile", "--compare", str(before), str(after)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["kernel", "step", "B", "10.00", "15.00", "+5.00", "1.50"] in lines
    assert ["B", "sums", "5", "8", "+3", "sums"] in lines


def test_damaged_counters_are_left_out(tmp_path: Path) -> None:
    wrong = [{"ph": "C", "name": 3, "args": {"x": 1}}, {"ph": "C", "args": [1]}, {"ph": "C", "args": {"x": 10**400}}]
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": [*wrong, None], "otherData": {"counters": [3]}}))
    [change] = compare_counters(tmp_path / "x.json", tmp_path / "x.json")
    assert (change.counter, change.units, change.difference) == ("", "x", 0)


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        7,
        {"traceEvents": 3},
        {"traceEvents": [None, 1, {"ph": "X"}]},
        {"traceEvents": [{"ph": "X", "pid": 2, "cat": "layer", "args": {"layer": 3}, "dur": 1}]},
        {"traceEvents": [{"ph": "X", "pid": 2, "cat": "layer", "args": {"layer": "x"}, "dur": "1"}]},
        {"traceEvents": [{"ph": "X", "pid": 2, "cat": "layer", "args": {"layer": "x"}, "dur": 10**400}]},
        {"traceEvents": [{"ph": "X", "pid": 2, "cat": "layer", "args": {"layer": "x"}, "dur": float("nan")}]},
    ],
)
def test_json_without_layers_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ParseError) as refused:
        compare_profiles(path, path)
    assert str(refused.value) == f"{path}: it is no profile with layers; write one with interposer trace -o FILE.json"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"{"])
def test_a_file_that_is_not_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ParseError) as refused:
        compare_profiles(path, path)
    assert str(refused.value) == f"{path}: the profile cannot be read: it is not JSON"


def test_a_missing_file_and_further_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, file = tmp_path / "no.json", str(written(tmp_path / "a.json", x=[1]))
    assert main(["profile", "--compare", str(missing), file]) == 2
    assert f"{missing}: the profile cannot be read: No such file or directory" in capsys.readouterr().err
    assert main(["profile", file, "--compare", file, file]) == 2
    assert "--compare takes two files and no further ones" in capsys.readouterr().err
