"""What notebooks show: complete, escaped, without scripts or colors of its own."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo

pytestmark = pytest.mark.needs_cpuref
NAME = "<script>alert('x')</script>&amp;"


class Page(HTMLParser):
    """Checks that tags close in order, and keeps the tags and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.text, self._open = list[str](), "", list[str]()
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def network(shape: Any = (2, 3), layers: int = 1) -> Network:
    created = Network(NAME)
    value = created.add_input_layer(0, TensorInfo(shape), name=NAME)
    for number in range(layers):
        value = created.add_addition_layer(value, value, name=f"{NAME} {number}")
    created.add_output_layer(0, value, name="y")
    return created


def shown(what: Any) -> Page:
    return Page(what._repr_html_())


def test_everything_is_escaped_and_nothing_needs_a_script_or_a_style_sheet() -> None:
    created = network()
    model = ip.load(created, ["CpuRef"])
    for what in (created, model, model.optimized, model.explain()):
        page = shown(what)
        assert not {"script", "style", "link", "img", "iframe"} & set(page.tags)
        assert NAME in page.text
        assert "#" not in what._repr_html_().replace("&#x27;", "")


def test_a_model_shows_its_borders_and_who_runs_what() -> None:
    text = shown(ip.load(network(), ["CpuRef"])).text
    assert "float32[2, 3]" in text
    assert "CpuRef: 1 layer" in text
    assert "Addition" in text


def test_a_model_whose_shapes_are_not_known_yet_or_that_is_closed_says_so() -> None:
    model = ip.load(network(("n", 3)), ["CpuRef"])
    assert "optimized in the first run, for its shapes" in shown(model).text
    assert "float32[n, 3]" in shown(model).text
    model.run([np.ones((1, 3), np.float32)])
    assert "CpuRef: 1 layer" in shown(model).text
    model.close()
    assert "closed" in shown(model).text


def test_large_networks_are_cut_off() -> None:
    created = network(layers=300)
    assert "... and 104 lines more" in shown(created).text
    explanation = ip.load(created, ["CpuRef"], options=ip.OptimizerOptions(rewrite=False)).explain()
    assert "... and 100 more" in shown(explanation).text
    assert len(explanation._repr_html_()) < 300_000


def test_a_network_that_is_not_finished_is_shown() -> None:
    created = Network("open")
    created.add_output_layer(0, name="y")
    assert "?" in shown(created).text
