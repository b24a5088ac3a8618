"""Plots, as XML that says what it should."""

from xml.etree import ElementTree

from interposer.analysis.charts import bars

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_their_values():
    root = ElementTree.fromstring(bars("a < b", "ms", [("one", 2.0, 1.0), ("two", 1.0, 1.0)]))

    _, *rectangles = [float(item.get("width")) for item in root.iter(f"{SVG}rect")]
    assert rectangles == [480.0, 240.0]
    assert [item.text for item in root.iter(f"{SVG}text")] == ["a < b", "one", "2 ms", "two", "1 ms"]


def test_names_that_xml_cannot_hold_are_drawn_without_that():
    root = ElementTree.fromstring(bars("a\x00b", "ms", [("\x1b[1m", 0.0, 0.0)]))

    assert [item.text for item in root.iter(f"{SVG}text")] == ["a?b", "?[1m", "0 ms"]
