"""The pictures of the documentation: they are up to date, can be read, and stand on pages."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("onnx", reason="pip install 'interposer-nn[onnx]'")

from tools import pictures

PAGES = "\n".join(page.read_text(encoding="utf-8") for page in (pictures.ROOT / "docs").rglob("*.md"))


@pytest.mark.needs_cpuref
def test_the_pictures_are_up_to_date():
    assert pictures.stale() == [], "run: python tools/pictures.py"


@pytest.mark.parametrize("path", sorted(pictures.FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_has_a_description_and_loads_nothing(path):
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert root[0].tag.endswith("title")
    assert root[0].text.endswith(".")
    assert "href" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(pictures.FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_stands_on_a_page_with_a_text_for_those_who_do_not_see_it(path):
    assert re.search(rf"!\[[^\]]{{20,}}\]\([^)]*pictures/{path.name}\)", PAGES)


def test_a_text_that_is_wider_than_its_place_is_refused():
    with pytest.raises(ValueError, match="'a long text' is wider than 20"):
        pictures.Picture("A picture.").box(0, 0, 20, 20, "a long text")


def test_the_cheapest_path_pays_for_each_copy_between_backends():
    times = {"A": (1.0, 5.0), "B": (3.0, 1.0)}
    assert pictures.cheapest(times, 0.5) == (2.5, ["A", "B"])
    assert pictures.cheapest(times, 3.0) == (4.0, ["B", "B"])
