"""The page that draws an explanation, looked at in a real browser.

Screenshots are stored in the folder that INTERPOSER_TEST_ARTEFACTS names, else in the folder of the test.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.ops import ActivationFunction
from interposer.pages.network import html
from interposer.report.explanation import Explanation
from tests import browser as browsers
from tests.devices import Device, Sums

pytestmark = pytest.mark.needs_cpuref

ARTEFACTS = "INTERPOSER_TEST_ARTEFACTS"
HOSTILE = (
    "</script><script>window.broken = 1</script><img src=x onerror='window.broken=1'> \"quoted\" & \u2028 ünïcødé 網"
)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    """A browser that all tests of this file share."""
    program = browsers.installed()
    if program is None:
        pytest.skip(f"there is no {' or '.join(browsers.NAMES[:2])} here")
    folder = tmp_path_factory.mktemp("browser")
    try:
        started = browsers.Browser(program, folder)
    except RuntimeError as error:
        pytest.skip(str(error))
    yield started
    started.close()


@pytest.fixture
def page(browser, tmp_path):
    """Opens explanations; what the page did wrong, or asked for, fails the test."""
    opened = []

    def page(explanation: Explanation, **settings: Any) -> browsers.Page:
        file = tmp_path / f"page {len(opened)}.html"
        file.write_text(explanation.to_html(), encoding="utf-8")
        opened.append((file, browser.open(file, **settings)))
        return opened[-1][1]

    yield page
    for file, item in opened:
        assert item.problems == []
        assert [url for url in item.requests if url not in {file.as_uri(), "about:blank", "data:,"}] == []
        item.close()


@pytest.fixture
def keep(tmp_path):
    """Keeps a picture, and says where."""

    def keep(page: browsers.Page, name: str) -> bytes:
        folder = Path(os.environ.get(ARTEFACTS) or tmp_path)
        folder.mkdir(parents=True, exist_ok=True)
        picture = page.screenshot(folder / f"{name}.png")
        print(f"stored {folder / name}.png")
        return picture

    return keep


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        runtime.registry.register("Device", Device)
        runtime.registry.register("Sums", Sums)
        yield runtime


def chain(layers: int, name: str = "chain", first: str = "first") -> Network:
    """Sums, activations and products by turns, with a way around every third."""
    network = Network(name)
    values = [network.add_input_layer(0, TensorInfo((1, 16)), name="x")]
    for number in range(layers):
        called, x = first if number == 0 else f"block{number // 10}/layer{number}", values[-1]
        if number % 3 == 0:
            created = network.add_addition_layer(x, values[max(0, number - 2)], name=called)
        elif number % 3 == 1:
            created = network.add_activation_layer(x, function=ActivationFunction.RELU, name=called)
        else:
            created = network.add_activation_layer(x, function=ActivationFunction.TANH, name=called)
        values.append(created)
    network.add_output_layer(0, values[-1], name="y")
    return network


def explained(runtime: Runtime, network: Network, **how: Any) -> Explanation:
    return ip.load(network, backends=["Device", "Sums", "CpuRef"], runtime=runtime).explain(**how)


def node(name: str) -> str:
    return f'g.node[data-name="{name}"]'


def overlapping(page: browsers.Page) -> list[str]:
    """Pairs of boxes that lie over each other."""
    return page.evaluate(
        """(() => {
          const found = [], all = view.drawing.nodes.slice().sort((a, b) => a.y - b.y);
          all.forEach((a, at) => {
            for (let next = at + 1; next < all.length && all[next].y - a.y < 200; next++) {
              const b = all[next];
              const apart = Math.abs(a.x - b.x) >= (a.w + b.w) / 2 || Math.abs(a.y - b.y) >= (a.h + b.h) / 2;
              if (!apart) found.push(`${a.name} and ${b.name}`);
            }
          });
          return found;
        })()"""
    )


def test_a_click_on_a_layer_shows_it_and_why_others_refuse_it(page, runtime, keep):
    shown = page(explained(runtime, chain(6)))
    shown.click(node("block0/layer2"))
    about = shown.text("#about")
    assert shown.text("#picked") == "block0/layer2"
    assert "Activation on CpuRef" in about
    assert "function\nTANH" in about
    assert "float32[1, 16], 64 B" in about
    assert "estimated" in about
    assert shown.text('#about li.refusal[data-backend="Device"]').split("\n")[1:] == ["TANH is not RELU"]
    assert shown.text('#about li.refusal[data-backend="Sums"]').split("\n")[1:] == ["no kernel for Activation"]
    shown.click(node("block0/layer3"))
    assert "CpuRef could run it, and is ranked lower" in shown.text("#about")
    assert keep(shown, "explanation").startswith(PNG)


def test_what_crosses_between_backends_is_drawn_and_told(page, runtime):
    shown = page(explained(runtime, chain(6)))
    tags = shown.evaluate("[...document.querySelectorAll('.crossing.copy text.tag')].map((one) => one.textContent)")
    assert set(tags) == {"64 B"}
    assert "4 copies of 256 B" in shown.text("#summary")
    shown.click(node("block0/layer1"))
    assert "first: copied from Sums to Device, 64 bytes" in shown.text("#about .way")
    shown.click("[data-tab=parts]")
    rows = shown.evaluate("[...document.querySelectorAll('#parts tbody tr')].map((one) => one.innerText)")
    assert len(rows) == 6
    assert re.sub(r"\s+", " ", rows[1]).startswith("2 Device block0/layer1 ~")
    assert "64 B copied" in rows[1]


def test_search_finds_by_name_type_backend_and_refusal_and_jumps(page, runtime, keep):
    shown = page(explained(runtime, chain(30)))
    shown.press("/", 191, "/")
    shown.write("layer2 activation")
    names = ["block0/layer2", "block2/layer20", "block2/layer22", "block2/layer23", "block2/layer25"]
    expected = [*names, "block2/layer26", "block2/layer28", "block2/layer29"]
    assert shown.text("#found") == f"{len(expected)} found"
    shown.press("Enter", 13)
    assert (shown.text("#picked"), shown.text("#found")) == (expected[0], f"1 of {len(expected)}")
    shown.press("Enter", 13)
    assert shown.text("#picked") == expected[1]
    lit = shown.evaluate("[...document.querySelectorAll('g.node.lit')].map((one) => one.dataset.name)")
    assert set(lit) <= set(expected)
    assert expected[1] in lit
    keep(shown, "search")
    for text, count in [
        ("type:addition", 10),
        ("backend:device", 10),
        ("refused:device tanh", 0),
        ("constructor:x", 0),
        ("refused:sums", 20),
    ]:
        shown.evaluate(f"searchFor({json.dumps(text)})")
        assert shown.text("#found") == f"{count} found", text
    shown.click("[data-tab=layers]")
    assert shown.evaluate("document.querySelectorAll('#layers tbody tr').length") == 20


def test_every_refusal_stands_once_with_the_layers_that_it_is_of(page, runtime):
    shown = page(explained(runtime, chain(9)))
    shown.click("[data-tab=refusals]")
    reported = shown.evaluate("[...document.querySelectorAll('#refusals li.refusal')].map((one) => one.innerText)")
    result = [re.sub(r"\s+", " ", item) for item in reported]
    assert [item.partition(" block")[0].partition(" first")[0] for item in result] == [
        "Device Addition (3) no kernel for Addition",
        "Device Activation (3) TANH is not RELU",
        "Sums Activation (6) no kernel for Activation",
    ]


def test_measured_times_are_told_from_estimates(page, runtime):
    network = chain(3)
    measured = page(explained(runtime, network, measure=True, budget_seconds=0.01))
    assert "a run" in measured.text("#summary")
    assert "measured" in measured.text("#key")
    measured.click(node("first"))
    assert re.search(r"time\n[\d.]+ (µs|ms|s) \(\d.*% of all layers\), measured", measured.text("#about"))
    guessed = page(explained(runtime, network))
    assert "not measured" in guessed.text("#summary")
    guessed.click(node("first"))
    assert re.search(r"time\n~\d.*% of the work, estimated", guessed.text("#about"))


def test_parts_are_closed_to_boxes_and_opened(page, runtime, keep):
    shown = page(explained(runtime, chain(12)))
    before = shown.evaluate("view.drawing.nodes.length")
    shown.click("#collapse")
    assert shown.evaluate("view.drawing.nodes.filter((one) => one.kind === 'part').length") == 12
    assert shown.evaluate("view.drawing.nodes.length") == before
    assert overlapping(shown) == []
    keep(shown, "closed parts")
    shown.evaluate("pick('part 2', true)")
    assert "1 layer on Device" in shown.text("#about")
    shown.click("#about .small-button")
    assert shown.text("#picked") == "block0/layer1"
    shown.click("#expand")
    assert shown.evaluate("view.drawing.nodes.filter((one) => one.kind === 'part').length") == 0


def test_the_keyboard_goes_from_layer_to_layer_and_zooms(page, runtime):
    shown = page(explained(runtime, chain(5)))
    shown.evaluate("document.getElementById('graph').focus()")
    shown.press("ArrowDown", 40)
    assert shown.text("#picked") == "x"
    shown.press("ArrowDown", 40)
    shown.press("ArrowDown", 40)
    assert shown.text("#picked") == "block0/layer1"
    shown.press("ArrowUp", 38)
    assert shown.text("#picked") == "first"
    near = shown.evaluate("view.at.k")
    shown.press("-", 189, "-")
    assert shown.evaluate("view.at.k") < near
    shown.press("0", 48, "0")
    sight = shown.evaluate("(({left, top, right, bottom}) => [left, top, right, bottom])(view.sight())")
    assert sight[0] < 0
    assert sight[3] > shown.evaluate("view.drawing.height")
    shown.press("Escape", 27)
    assert shown.text("#about h2") == "chain"


def test_names_cannot_become_markup_or_code(page, runtime):
    explanation = explained(runtime, chain(4, name=HOSTILE, first=HOSTILE))
    assert explanation.to_html().count("<script") == 2
    shown = page(explanation)
    shown.evaluate("searchFor('quoted')")
    shown.click("#next")
    assert shown.text("#picked").split() == HOSTILE.split()
    assert shown.evaluate("document.title").split()[:-2] == HOSTILE.replace("\u2028", "?").split()
    assert shown.evaluate("typeof broken === 'undefined' && document.images.length === 0")


def test_a_thousand_layers_can_be_used(page, runtime, keep):
    shown = page(explained(runtime, chain(1000)))
    assert shown.evaluate("view.drawing.nodes.length") == 1002
    assert overlapping(shown) == []
    shown.evaluate("searchFor('layer777')")
    shown.evaluate("step(1)")
    shown.settle()
    assert shown.text("#picked") == "block77/layer777"
    shown.click(node("block77/layer778"))
    assert shown.text("#picked") == "block77/layer778"
    assert shown.evaluate("document.querySelectorAll('g.node').length") < 200  # what is out of sight is not drawn
    assert keep(shown, "thousand layers").startswith(PNG)
    shown.click("#fit")
    assert shown.evaluate("(({left, right}) => left < 0 && right > view.drawing.width)(view.sight())")
    assert shown.evaluate("document.querySelectorAll('g.node').length") == 0  # but drawn in a few pieces
    assert keep(shown, "thousand layers from afar").startswith(PNG)


def test_a_network_of_many_branches_is_drawn(page, runtime):
    network = Network("branches")
    x = network.add_input_layer(0, TensorInfo((1, 16)), name="x")
    for step in range(10):
        numbers = [network.add_constant_layer(np.full((1, 16), index, np.float32)) for index in range(12)]
        result = [
            network.add_addition_layer(x, number, name=f"step{step}/branch{at}") for at, number in enumerate(numbers)
        ]
        x = network.add_concat_layer(*result, axis=0, name=f"step{step}/joined")
        x = network.add_mean_layer(x, axis=(0,), keep_dims=True, name=f"step{step}/mean")
    network.add_output_layer(0, x, name="y")
    shown = page(explained(runtime, network))
    assert overlapping(shown) == []
    rows = shown.evaluate("view.drawing.nodes.filter((one) => one.name.startsWith('step3/b')).map((one) => one.rank)")
    assert len(rows) == 12
    assert len(set(rows)) == 1


def test_edges_go_down_but_for_columns_and_every_one_is_drawn(page, runtime):
    shown = page(explained(runtime, chain(60)))
    result = shown.evaluate(
        """view.drawing.edges.map(({points}) => points.every((one, at) =>
             at === 0 || one.column !== points[at - 1].column || one.y >= points[at - 1].y - 0.01))"""
    )
    assert len(result) == 60 + 1 + 19  # one for each layer's first operand, the output, and the ways around
    assert all(result)
    assert shown.evaluate("Math.max(...view.drawing.nodes.map((one) => one.column))") > 0
    shown.click("#fold")
    assert shown.evaluate("Math.max(...view.drawing.nodes.map((one) => one.column))") == 0
    assert overlapping(shown) == []


def test_light_and_dark_are_as_the_browser_wants_them(page, runtime, keep):
    explanation = explained(runtime, chain(6))
    grounds = []
    for dark in (False, True):
        shown = page(explanation, dark=dark)
        grounds.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
        keep(shown, "dark" if dark else "light")
    brightness = [sum(map(int, re.findall(r"\d+", ground)[:3])) for ground in grounds]
    assert brightness[0] > 600
    assert brightness[1] < 150


def test_it_prints_with_all_tables(page, runtime, tmp_path):
    shown = page(explained(runtime, chain(6)))
    assert shown.tell("Page.printToPDF", printBackground=True)["data"]
    shown.tell("Emulation.setEmulatedMedia", media="print")
    assert "TANH is not RELU" in shown.text("body")
    assert "block0/layer5" in shown.text("#layers")


def test_the_page_names_nothing_outside_of_it(runtime):
    text = explained(runtime, chain(3)).to_html()
    assert text.startswith("<!doctype html>")
    assert "@@" not in text
    assert re.findall(r"""(?:src|href)=["'](?!data:)|url\((?!#)|@import""", text) == []
    assert "default-src 'none'" in text


def test_any_explanation_without_layers_is_a_page(page):
    shown = page(Explanation("nothing", ("CpuRef",), (), (), (), ()))
    assert shown.text("h1") == "nothing"
    assert html(Explanation("nothing", (), (), (), (), ()).to_dict()).count("<script") == 2


def test_what_is_not_a_number_is_no_part_of_it(runtime):
    data = json.loads(explained(runtime, chain(3)).to_json())
    assert data["explanation"] == 1
    assert np.isclose(sum(item["time"]["share"] for item in data["layers"]), 1)
