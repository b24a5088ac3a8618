"""The page that shows a profile: its data, and what a real browser makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.ops import ActivationFunction
from interposer.profiling import Category, Counter, Instant, Interval, Recording, Sample, Site, TracedNetwork
from interposer.profiling.page import profile_page
from tests import browser as browsers

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken=1'> \"&\u2028"


def data_of(page: str) -> dict[str, Any]:
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def recorded(runs: int, layers: int = 3, name: str = "net", prefix: str = "layer") -> Recording:
    """Return runs of a network whose layers on two backends take 10, 20, 30 ... us, with a step of 5 us in each."""
    network = TracedNetwork(name, 0, 0)
    whole = Site(Category.RUN, name, network=network)
    names = [f"{prefix} {number}" for number in range(layers)]
    sites = [
        Site(Category.LAYER, item, "Addition", network, item, f"B{n % 2} {n}", f"B{n % 2}", layers=(item,),
             sources=tuple(names[n - 1 : n]), bytes=1000, flops=2000)
        for n, item in enumerate(names)
    ]  # fmt: skip
    steps = [Site(Category.KERNEL, "kernel", backend=f"B{n % 2}", device="unit") for n in range(layers)]
    intervals, at = [], 0
    for run in range(runs):
        begin, inside = at, []
        for n, (site, step) in enumerate(zip(sites, steps, strict=True)):
            end = at + 10_000 * (n + 1)
            inside += [Interval(site, at, end, 7, run, run), Interval(step, at + 1000, at + 6000, 0)]
            at = end
        intervals += [Interval(whole, begin, at, 7, run, run), *inside]
        at += 1000
    arena = Counter("arena", "bytes")
    return Recording(tuple(intervals), (), (Sample(arena, 0, 100), Sample(arena, at, 4096)), 0, {7: "main"})


def flame(page: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return the time and count of each box of the flame graph, by the names on the path to it."""
    boxes: dict[tuple[str, ...], tuple[int, int]] = {}

    def visit(node: list[Any], above: tuple[str, ...]) -> None:
        path = (*above, node[0])
        boxes[path] = node[3], node[4]
        for child in node[5]:
            visit(child, path)

    for child in data_of(page)["flame"][5]:
        visit(child, ())
    return boxes


def test_the_flame_graph_adds_up_all_runs_by_network_part_layer_and_step() -> None:
    boxes = flame(profile_page(recorded(4)))
    assert boxes["net",] == (4 * 60_000, 4)
    assert boxes["net", "B1 1"] == (4 * 20_000, 0)
    assert boxes["net", "B1 1", "layer 1"] == (4 * 20_000, 4)
    assert boxes["net", "B1 1", "layer 1", "kernel"] == (4 * 5000, 4)


def test_the_table_has_layers_and_steps_with_bytes_and_operations() -> None:
    rows = {row["name"]: row for row in data_of(profile_page(recorded(3)))["rows"]}
    assert (rows["layer 2"]["count"], rows["layer 2"]["median"], rows["layer 2"]["flops"]) == (3, 30_000, 2000)
    assert (rows["kernel"]["what"], rows["kernel"]["device"], rows["kernel"]["count"]) == ("step", "unit", 3)


def test_counters_and_networks_are_on_the_page() -> None:
    data = data_of(profile_page(recorded(2)))
    [counter] = data["counters"]
    assert (counter["name"], counter["units"], counter["most"], counter["points"][1::2]) == (
        "arena", "bytes", 4096, [100, 4096],
    )  # fmt: skip
    assert [entry["name"] for entry in data["drawings"]] == ["net"]
    drawn = data_of(data["drawings"][0]["html"])
    assert [(entry["layer"], entry["part"]) for entry in drawn["layers"]] == [
        ("layer 2", 1),
        ("layer 1", 2),
        ("layer 0", 3),
    ]
    assert drawn["layers"][0]["time"] == {"ms": 0.03, "share": 0.5, "how": "measured"}


def test_an_explanation_gets_the_recorded_times(tmp_path: Path) -> None:
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    y = network.add_addition_layer(x, x, name="twice")
    network.add_output_layer(
        0, network.add_activation_layer(y, function=ActivationFunction.RELU, name="relu"), name="y"
    )
    model = ip.load(network, ["CpuRef"])
    with ip.profile() as profile:
        for _ in range(3):
            model.run([np.ones((2, 3), np.float32)])
    profile.save(tmp_path / "p.html", explanations=[model.explain()])
    drawn = data_of(data_of((tmp_path / "p.html").read_text(encoding="utf-8"))["drawings"][0]["html"])
    times = {item.name: item.median / 1e6 for item in profile.layers()}
    for layer in drawn["layers"]:
        assert layer["time"]["ms"] == pytest.approx(times[layer["layer"]])
        assert layer["time"]["how"] == "measured"
    assert [item["shape"] for item in drawn["inputs"]] == ["[2, 3]"]


@pytest.mark.usefixtures("cpuacc")
def test_the_layers_of_a_compiled_part_have_shares_of_its_recorded_time(tmp_path: Path) -> None:
    model = ip.load(DIGITS, ["CpuAcc"])
    with ip.profile() as profile:
        model.run([np.ones((1, 1, 8, 8), np.float32)])
    profile.save(tmp_path / "p.html", explanations=[model.explain()])
    drawn = data_of(data_of((tmp_path / "p.html").read_text(encoding="utf-8"))["drawings"][0]["html"])
    [recorded_part] = profile.layers()
    for layer in drawn["layers"]:
        assert layer["time"]["how"] == "estimated"
        assert layer["time"]["ms"] > 0
        assert layer["time"]["group"]["ms"] == pytest.approx(recorded_part.median / 1e6)
        assert layer["layer"] in layer["time"]["group"]["layers"]
    assert sum(layer["time"]["ms"] for layer in drawn["layers"]) == pytest.approx(recorded_part.median / 1e6)


def test_arrows_lead_along_tensors_that_cross_and_moments_are_marked() -> None:
    made = recorded(2)
    failed = Instant(Site(Category.RUN, "failed: ValueError", details=(("error", "ValueError: no"),)), 70_000, 7)
    data = data_of(profile_page(replace(made, instants=(failed, replace(failed, thread=99)))))
    names = [
        [data["sites"][data["tracks"][track]["slices"][5 * place]]["name"] for track, place in pair]
        for pair in zip(*[zip(*[iter(data["flows"])] * 2, strict=True)] * 2, strict=True)
    ]
    assert names == [["layer 0", "layer 1"], ["layer 1", "layer 2"]] * 2
    [[track, site, at], [nowhere, *_]] = zip(*[iter(data["instants"])] * 3, strict=True)
    assert (data["tracks"][track]["name"], at, nowhere) == ("main", 70_000, -1)
    assert (data["sites"][site]["name"], data["sites"][site]["error"]) == ("failed: ValueError", "ValueError: no")


def test_an_empty_profile_is_a_page() -> None:
    assert data_of(profile_page(Recording()))["rows"] == []


def test_more_slices_than_the_timeline_shows_are_left_out_and_counted() -> None:
    recording = recorded(2500, layers=8)
    data = data_of(profile_page(recording))
    shown = sum(len(track["slices"]) // 5 for track in data["tracks"])
    assert shown <= 60_000 + 8
    assert shown + data["left_out"] > len(recording.intervals) > 40_000
    assert flame(profile_page(recording))["net",] == (2500 * 360_000, 2500)


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    program = browsers.installed()
    if program is None:
        pytest.skip(f"there is no {' or '.join(browsers.NAMES[:2])} here")
    try:
        started = browsers.Browser(program, tmp_path_factory.mktemp("browser"))
    except RuntimeError as error:
        pytest.skip(str(error))
    yield started
    started.close()


@pytest.fixture
def opened(browser: browsers.Browser, tmp_path: Path) -> Iterator[Callable[..., browsers.Page]]:
    """Open the page of a recording; what the page did wrong, or asked for, fails the test."""
    pages: list[tuple[str, browsers.Page]] = []

    def opened(recording: Recording, **settings: Any) -> browsers.Page:
        file = tmp_path / f"{len(pages)}.html"
        file.write_text(profile_page(recording), encoding="utf-8")
        pages.append((file.as_uri(), browser.open(file, **settings)))
        return pages[-1][1]

    yield opened
    for url, page in pages:
        assert page.problems == []
        assert set(page.requests) <= {url, "about:blank", "about:srcdoc", "data:,"}
        page.close()


def rows_of(page: browsers.Page) -> list[str]:
    texts: list[str] = page.evaluate(
        "[...document.querySelectorAll('#rows tr')].map((row) => row.cells[0].textContent)"
    )
    return texts


def test_the_page_shows_everything_and_sorts_and_filters_its_table(opened: Callable[..., browsers.Page]) -> None:
    page = opened(recorded(3))
    assert page.text("#summary") == "3 runs, 21 events, 183 \u00b5s recorded"
    assert rows_of(page) == ["layer 2", "layer 1", "layer 0", "kernel", "kernel"]
    titles = page.evaluate("[...document.querySelectorAll('#titles th')].map((cell) => cell.textContent)")
    assert titles[-2:] == ["GFLOP/s", "GB/s"]
    page.evaluate("document.querySelector('#titles button').click()")
    assert rows_of(page) == ["kernel", "kernel", "layer 0", "layer 1", "layer 2"]
    assert page.evaluate("document.querySelector('#titles th').getAttribute('aria-sort')") == "ascending"
    page.evaluate("$('search').value = 'b1 layer'; $('search').dispatchEvent(new Event('input'))")
    assert rows_of(page) == ["layer 1"]
    assert page.evaluate("document.querySelectorAll('iframe').length") == 1


def test_the_timeline_and_the_flame_graph_follow_the_keyboard(opened: Callable[..., browsers.Page]) -> None:
    page = opened(recorded(3))
    page.evaluate("$('canvas').focus()")
    before = page.evaluate("line.end - line.begin")
    page.press("+", text="+")
    page.press("n", text="n")
    assert page.evaluate("line.end - line.begin") < before
    first = page.text("#about")
    assert first == "kernel: 5 \u00b5s at 31 \u00b5s, on B0, device unit, track B0"
    page.press("p", text="p")
    assert page.text("#about") not in ("", first)
    page.press("0", text="0")
    assert page.evaluate("line.end - line.begin") == before
    page.evaluate("[...document.querySelectorAll('.box')].find((box) => box.textContent === 'B1 1').click()")
    names = page.evaluate("[...document.querySelectorAll('.box')].map((box) => box.textContent)")
    assert names == ["all networks", "net", "B1 1", "layer 1", "kernel"]
    assert page.evaluate("document.activeElement.textContent") == "B1 1"
    assert "33.3% of all" in page.text("#box")


def test_names_of_layers_cannot_become_markup_or_code(opened: Callable[..., browsers.Page]) -> None:
    page = opened(recorded(2, name=HOSTILE, prefix=HOSTILE))
    assert page.evaluate("window.broken") is None
    assert any(HOSTILE in row for row in rows_of(page))


def test_fifty_thousand_events_are_shown(opened: Callable[..., browsers.Page]) -> None:
    page = opened(recorded(3000, layers=8))
    assert "leaves out" in page.text("#notes")
    page.evaluate("$('run').click()")
    assert page.evaluate("line.end - line.begin") < 1_000_000
