"""The documentation builds as a site without a warning, and describes everything that is public."""

import fcntl
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import interposer
import interposer.backend
import interposer.core.types
import interposer.testing

pytest.importorskip("mkdocs", reason="pip install 'interposer-nn[docs]'")
pytest.importorskip("mkdocstrings", reason="pip install 'interposer-nn[docs]'")

from tests import browser as browsers
from tools import mkdocs_hooks

ROOT = Path(__file__).resolve().parent.parent


def build(folder):
    """Run MkDocs in its strict mode: dead links, dead anchors and pages outside the navigation are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)


def documented(folder):
    """The names that pages describe: in the inventory of mkdocstrings (without their modules), or by hand."""
    content = (folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = zlib.decompress(content).decode().splitlines()
    pages = [*(ROOT / "docs/api").glob("*.md"), ROOT / "docs/reference/errors.md"]
    by_hand = re.findall(r"(?:`|^## )(\w+)", "\n".join(map(Path.read_text, pages)), re.MULTILINE)
    return {entry.split(" ")[0].rpartition(".")[2] for entry in entries} | set(by_hand)


def public(module):
    return {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)} - {"__version__"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, which is built without a warning, once for all processes that run the tests."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, begun = shared / "site", shared / "site-begun"
    with open(shared / "site-lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            built = build(begun)
            assert (built.returncode, built.stderr) == (0, "")
            begun.rename(folder)
    return folder


@pytest.fixture
def browser(tmp_path):
    program = browsers.installed()
    if program is None:
        pytest.skip(f"there is no {' or '.join(browsers.NAMES[:2])} here")
    browser = browsers.Browser(program, tmp_path)
    yield browser
    browser.close()


def test_the_site_describes_all_public_names(site):
    names = documented(site)
    for module in (interposer, interposer.backend, interposer.testing, interposer.core.types):
        assert sorted(public(module) - names) == [], module.__name__


def test_every_page_names_the_version_and_leads_to_the_source(site):
    for page in ("index.html", "api/model.html"):
        link = re.search(r'<a href="([^"]*)" title="Source of Interposer (\S+)"', (site / page).read_text("utf-8"))
        assert link[2] == interposer.__version__
        source = (site / page).parent / link[1]
        assert 'href="src/interposer/index.html">src/interposer<' in source.read_text("utf-8")
    copied = (site / "repository/src/interposer/session/loading.py.txt").read_bytes()
    assert copied == (ROOT / "src/interposer/session/loading.py").read_bytes()


def test_the_search_prefers_guides_to_the_reference(site):
    sections = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    boosts = {section["location"]: section.get("boost", 1) for section in sections}
    assert boosts["quantizing.html#read-the-report"] > boosts["reference/quantizers.html"]


def test_the_link_to_the_source_leads_to_the_code_host_that_the_environment_names(monkeypatch):
    monkeypatch.setenv("SITE_REPOSITORY_URL", "https://code.invalid/interposer")
    config = SimpleNamespace(nav=[], extra={}, repo_url=None)
    assert mkdocs_hooks.on_config(config).repo_url == "https://code.invalid/interposer"


def test_pages_that_are_opened_as_files_can_be_searched_and_load_nothing_from_a_host(site, browser):
    page = browser.open(site / "reference/onnx.html", ready="document.readyState === 'complete'")
    page.click(".md-search__input")
    page.wait_for("document.querySelector('.md-search-result__meta').textContent.includes('Type to start')")
    page.write("signature")
    page.press("End", 35)  # the search starts when a key is released
    page.wait_for("document.querySelector('.md-search-result__item') !== null")
    assert "Signatures" in page.text(".md-search-result__list")
    assert page.problems == []
    assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize(("link", "origin", "rewritten"), [
    ("models.md#sources", "docs/concepts.md", "models.md#sources"),
    ("../CONTRIBUTING.md", "docs/README.md", "repository/CONTRIBUTING.md"),
    ("../examples/compute_backend.py", "docs/backend-guide.md", "repository/examples/compute_backend.py.md"),
    ("../examples/custom_backend", "docs/backend-guide.md", "repository/examples/custom_backend/README.md"),
    ("../../src/interposer/types.py", "docs/reference/errors.md", "../repository/src/interposer/types.py.txt"),
    ("common", "native/README.md", "common/README.md"),
    ("pool.hpp", "native/common/README.md", "pool.hpp.txt"),
    ("examples", "SOURCE.md", "examples/README.md"),
    ("docs/models.md", "CHANGELOG.md", "../models.md"),
    ("https://semver.org", "CHANGELOG.md", "https://semver.org"),
    ("#errors", "docs/models.md", "#errors"),
    ("missing.md", "docs/models.md", "missing.md"),
])  # fmt: skip
def test_links_out_of_the_documentation_lead_to_pages_of_the_site(link, origin, rewritten):
    assert mkdocs_hooks.rewritten(link, origin) == rewritten


def test_links_in_code_are_left_alone():
    assert list(mkdocs_hooks.outside_links("docs/a.md", "```\n[a](../LICENSE)\n```\n[b](../LICENSE)")) == ["LICENSE"]


@pytest.mark.parametrize(("fence", "on_the_site"), [
    ("```python", "```python"), ("```python continued", "```python"), ("```console needs=torch,onnx", "```console"),
    ("```sh fragment", '```sh title="fragment"'), ("```text file=a.txt", '```text title="a.txt"'), ("text", "text"),
])  # fmt: skip
def test_words_for_the_tests_after_the_language_of_a_block_become_a_title_or_nothing(fence, on_the_site):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="models.md"), meta={})
    assert mkdocs_hooks.on_page_markdown(f"{fence}\nx = 1\n```\n", page, {}, []) == f"{on_the_site}\nx = 1\n```\n"


def test_a_folder_without_a_page_of_its_own_becomes_a_list_of_its_source():
    page = mkdocs_hooks.page_of("native/common/README.md")
    assert page.startswith("---\nsearch:\n  exclude: true\n---\n\n# native/common\n\n- [processor/](processor/)\n")
    assert "\n- [pool.hpp](pool.hpp)\n" in page
    assert "exports.map" not in page


def test_a_file_of_code_becomes_a_page_that_the_search_leaves_out():
    page = mkdocs_hooks.page_of("examples/compute_backend.py")
    assert page.startswith("---\nsearch:\n  exclude: true\n---\n\n# examples/compute_backend.py\n\n````python\n")
