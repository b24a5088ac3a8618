"""The examples in the documentation and in docstrings run, and links in the documentation lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import interposer
from interposer import Model
from interposer.analysis.compare import compare
from interposer.core.errors import MissingDependencyError
from tests import documents

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md"))
RUN = [page for page in PAGES if any(block.runs for block in documents.blocks_of(page.read_text(encoding="utf-8")))]
FAMILIES = [page.stem for page in (ROOT / "docs/reference/operators").glob("*.md")]  # whose examples their pages have
ON_PAGES = {ROOT / "src/interposer/ops" / f"{family}.py" for family in FAMILIES}
SOURCES = sorted(set((ROOT / "src").rglob("*.py")) - ON_PAGES)
MODULES = [path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8")]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF


def from_root(path):
    return path.relative_to(ROOT).as_posix()


def module_of(path):
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    try:
        return importlib.import_module(".".join(part for part in parts if part != "__init__"))
    except MissingDependencyError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def interpreters():
    fresh = documents.Interpreters()
    yield fresh
    fresh.close()


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("page", RUN, ids=from_root)
def test_a_page_runs_as_its_reader_types_it(page, tmp_path, interpreters):
    """Commands run in an empty folder with the installed command, and each block of Python in a fresh interpreter."""
    problems, missing = documents.run_page(page.read_text(encoding="utf-8"), tmp_path, interpreters)
    assert not problems, "\n".join(problems)
    if missing:
        pytest.skip(f"blocks of this page need: {', '.join(sorted(set(missing)))}")


@pytest.mark.parametrize("page", PAGES, ids=from_root)
def test_a_block_with_commands_or_python_is_run_or_marked_as_a_fragment(page):
    unmarked = [block for block in documents.blocks_of(page.read_text(encoding="utf-8")) if has_unmarked_code(block)]
    assert [f"line {block.line}: {block.text.splitlines()[0]}" for block in unmarked] == []


CODE = re.compile(r"^(\$ )?interposer [a-z.]|^\$ |^(import|from) \w+|^>>> |^\w+ = (ip|interposer)\.", re.MULTILINE)


def has_unmarked_code(block):
    """Return True if a reader would take the block for something to run, and nothing says that it is not run."""
    if block.runs or {"fragment", "served"} & {*block.words}:
        return bool(block.unknown_words())
    return bool(CODE.search(block.text))


def with_mark(path):
    """Return a module as a parameter, which is skipped without the reference backend if its examples name it."""
    named = re.search(r"^ *(>>>|\.\.\.) .*CpuRef", path.read_text(encoding="utf-8"), re.MULTILINE)
    return pytest.param(path, marks=[pytest.mark.needs_cpuref] if named else [])


@pytest.mark.parametrize("path", [*map(with_mark, MODULES)], ids=from_root)
def test_the_examples_in_docstrings_run(path):
    assert not doctest.testmod(module_of(path), optionflags=FLAGS).failed


@pytest.mark.parametrize(
    "described",
    [interposer.load, Model, Model.run, interposer.optimize, interposer.quantize, interposer.profile, compare],
)
def test_what_most_programs_use_has_an_example_in_its_docstring(described):
    assert len(doctest.DocTestParser().get_examples(described.__doc__)) >= 3


def anchors(page):
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=from_root)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


REPEATED = (r"(\d+ of) (?:the )?(\d+) builtin operators", r"more than (\d+,000) (?:conformance )?cases")


@pytest.mark.parametrize("figure", REPEATED)
def test_a_figure_is_the_same_on_every_page(figure):
    found = {page.name: hit for page in PAGES for hit in re.findall(figure, page.read_text(encoding="utf-8"))}
    assert found
    assert len(set(found.values())) == 1, found


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/pages.md").read_text(encoding="utf-8")
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in {"README.md", "pages.md"}]
    assert [page.name for page in pages if f"]({page.name})" not in index] == []


INTERNALS = [
    *(ROOT / "docs" / name for name in ("architecture.md", "adding-a-format.md", "adding-an-operator.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *sorted((ROOT / "native").rglob("README.md")),
    ROOT / "CONTRIBUTING.md",
]
# Of files in the repository; a fresh checkout has no folder `build`.
PATH = re.compile(r"`(?!ipr\.|build/)([\w.-]+(?:/[\w.*<>-]*)+|[\w*<>]+\.(?:cpp|hpp))`")
FOLDERS = [ROOT, *(ROOT / "src" / name for name in ("", "interposer", "interposer/include", "interposer/frontends"))]


def folders_of(page):
    """Return the folders from which a page for developers names files."""
    return [page.parent, page.parent / "kernels", *FOLDERS]


def exists(path, folders):
    pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
    return any(next(folder.glob(pattern), None) is not None for folder in folders)


@pytest.mark.parametrize("page", INTERNALS, ids=from_root)
def test_files_that_pages_for_developers_name_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [path for path in PATH.findall(text) if not exists(path, folders_of(page))] == []


def test_a_file_that_does_not_exist_is_found():
    paths = PATH.findall("`tools/gone.py`, `ops/<family>.py`, `ops/none/<family>.py`, `gone.hpp`, `a.b`, `make native`")
    assert [path for path in paths if not exists(path, folders_of(ROOT / "CONTRIBUTING.md"))] == [
        "tools/gone.py",
        "ops/none/<family>.py",
        "gone.hpp",
    ]


def test_the_page_on_the_kernels_lists_every_table_with_its_header():
    folder = ROOT / "native/cpuacc"
    page = (folder / "README.md").read_text(encoding="utf-8")
    tables = {
        (header.name, table)
        for header in (folder / "kernels").glob("*.hpp")
        for table in re.findall(r"^CPUACC_TABLE\((\w+),", header.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert tables
    rows = re.findall(r"^\| `kernels/(\w+\.hpp)` \| (.*?) \|", page, re.MULTILINE)
    listed = {(header, table) for header, cell in rows for table in re.findall(r"`(\w+)`", cell)}
    assert sorted(tables - listed) == []
