"""The page that draws the report of a quantization."""

from __future__ import annotations

import math
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from interposer.core.types import Quantization
from interposer.quantization import LayerReport, OutputReport, QuantizationReport, quantize
from tests import browser as browsers
from tests.quantization.networks import image_network, images

HOSTILE = "</td><script>window.broken = 1</script><img src=x onerror='window.broken=1'> \"quoted\" & \u2028 網"
VOID = {"meta", "link"}


class Elements(HTMLParser):
    """Counts the elements of a page, and collects the texts of table cells; every element must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.rows: list[list[str]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.counts[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open) and "title" not in self.open:
            self.rows[-1][-1] += data


def report(*layers: LayerReport, **fields: object) -> QuantizationReport:
    return QuantizationReport("net", "int8", layers=layers, **fields)


@pytest.mark.needs_cpuref
def test_the_page_has_a_row_and_a_histogram_for_each_layer_and_the_reasons():
    quantized = quantize(image_network(), images(), float_layers=["Softmax"], backends=["CpuRef"]).report
    page = Elements(quantized.to_html())
    assert page.counts["script"] == 0
    rows = {row[0]: row for row in page.rows}
    assert [layer.name for layer in quantized.layers if layer.name not in rows] == []
    assert rows["left in float as requested"] == ["left in float as requested", "1", "probabilities (Softmax)"]
    assert rows["probabilities"][-1] == "left in float as requested"
    assert rows["classes"][1] == f"{quantized.outputs[0].snr:.1f} dB"
    total = next(layer for layer in quantized.layers if layer.name == "total")
    assert rows["total"][2] == f"{total.low:.4g} to {total.high:.4g}"
    assert quantized.to_html().count('class="histogram"') == len(
        [layer for layer in quantized.layers if layer.histogram]
    )


def test_columns_without_content_are_left_out():
    page = Elements(report(LayerReport("a", "Addition", snr=math.inf)).to_html())
    assert page.rows == [["layer", "operator", "signal-to-noise ratio"], ["a", "Addition", "exact"]]


def test_a_layer_with_several_scales_has_their_number():
    page = Elements(report(LayerReport("a", "Addition", quantization=Quantization([1.0, 2.0], 0, axis=0))).to_html())
    assert page.rows[1] == ["a", "Addition", "2 scales"]


@pytest.mark.parametrize("ratio", [math.inf, -math.inf, 0.0, -3.0, 500.0])
def test_any_ratio_is_drawn_within_its_track(ratio):
    text = report(LayerReport("a", "Addition", snr=ratio, weights_snr=ratio)).to_html()
    assert ("70.0" if ratio > 60 else '"0.0"') in text
    assert "nan" not in text


@pytest.mark.parametrize(
    ("low", "high", "counts"), [(0.0, 0.0, (5, 0, 0)), (-1e-38, 3e38, (0, 0, 1)), (-2.0, -1.0, (0, 0, 0))]
)
def test_a_histogram_is_drawn_of_any_range(low, high, counts):
    text = report(LayerReport("a", "Addition", low=low, high=high, histogram=counts)).to_html()
    assert text.count("<path ") == 1
    assert "inf" not in text.partition("<path")[2].partition("/>")[0]
    assert "nan" not in text


def test_a_report_without_layers_is_a_page():
    assert Elements(report().to_html()).rows == []


def test_texts_of_the_network_cannot_become_markup():
    report = QuantizationReport(
        HOSTILE,
        "int8",
        {HOSTILE: HOSTILE},
        layers=(LayerReport(HOSTILE, HOSTILE, HOSTILE),),
        outputs=(OutputReport(HOSTILE, 1.0, 1.0),),
    )
    page = Elements(report.to_html())
    assert page.counts["script"] == page.counts["img"] == 0
    assert page.rows[-1] == [HOSTILE.replace("\u2028", "?")] * 3


@pytest.mark.needs_cpuref
def test_a_browser_draws_the_page_without_errors_or_requests(tmp_path: Path):
    program = browsers.installed()
    if program is None:
        pytest.skip(f"there is no {' or '.join(browsers.NAMES[:2])} here")
    file = tmp_path / "report.html"
    file.write_text(quantize(image_network(), images(), backends=["CpuRef"]).report.to_html(), encoding="utf-8")
    try:
        browser = browsers.Browser(program, tmp_path)
    except RuntimeError as error:
        pytest.skip(str(error))
    page = browser.open(file, ready="document.readyState === 'complete' && location.protocol === 'file:'")
    assert page.evaluate("document.querySelector('.histogram path').getBBox().width") == 160
    assert page.text("h1") == "images"
    assert page.problems == []
    assert [url for url in page.requests if url not in {file.as_uri(), "about:blank", "data:,"}] == []
    browser.close()
