"""Hooks of MkDocs for the documentation site (mkdocs.yml).

Pages link to files and folders outside docs/ by relative paths, such as ``../examples/compute_backend.py``. These links
work in a checkout and on a code host. For the site, `on_files` adds a page below ``repository/`` for every linked file
and folder, and `on_page_markdown` rewrites the links. The page of a folder is its README.md or a list of its files. The
page `SOURCE` lists the folders of the source.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import notebooks  # noqa: E402

ALWAYS: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
"""Files outside docs/ that the navigation names."""
SOURCE: Final = "SOURCE.md"
"""The page that leads to the source. It is in the site only, where every page links to it."""
SOURCES: Final = ("src/interposer", "native", "examples")
LISTED: Final = {".c", ".cpp", ".h", ".hpp", ".in", ".md", ".py", ".pyi", ".rs", ".toml", ".txt"}
"""Endings of the files in the lists of folders."""
AS_PAGES: Final = ("examples/", "LICENSE")
"""Files that become pages with colors. Others, except Markdown, are copied as plain text, which costs no time."""
LANGUAGES: Final = {".c": "c", ".cpp": "cpp", ".h": "c", ".hpp": "cpp", ".py": "python", ".rs": "rust"}
GUIDES_FIRST: Final = 4
"""By how much the search prefers the pages directly in docs/, which are guides."""
UNSEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n\n"

_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_PICTURE: Final = re.compile(
    r'<picture>\s*<source[^>]* srcset="([^"]*)"\s*/?>\s*<img src="([^"]*)"([^>]*)>\s*</picture>'
)
_SESSION: Final = re.compile(r"```python\n(>>> .*?)\n*```", re.DOTALL)
_WORDS: Final = re.compile(r"^(```\w+)((?: [\w=,.]+)+)$", re.MULTILINE)
"""The start of a block of code with words for the tests after its language (tests/documents.py)."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages, and name the version and the place of the source."""
    config.nav = _expanded(config.nav)
    config.extra["release"] = release()
    config.repo_url = os.environ.get("SITE_REPOSITORY_URL") or "repository/SOURCE.html"
    return config


def release() -> str:
    """Return the version of the package, from its source."""
    text = (ROOT / "src/interposer/_version.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    return version[1] if version else sys.exit("src/interposer/_version.py has no __version__")


def _expanded(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_expanded(each) for each in entry]
    if isinstance(entry, dict):
        return {title: _expanded(children) for title, children in entry.items()}
    return _pages(entry) if entry.endswith("/") else entry


def _pages(folder: str) -> list[str | dict[str, str]]:
    """Return the pages of a folder of docs/ for the navigation: README.md first, the others by their names."""
    names = sorted(path.stem for path in (ROOT / "docs" / folder).glob("*.md") if path.name != "README.md")
    return [f"{folder}README.md", *({name.replace("_", " "): f"{folder}{name}.md"} for name in names)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file and folder outside docs/ to which a page links, directly or through such a page."""
    waiting = [*ALWAYS, SOURCE]
    for file in files.documentation_pages():
        waiting += outside_links(f"docs/{file.src_uri}", file.content_string)
    seen = set()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            content = page_of(path)
            files.append(File.generated(config, site_path(path), content=content))
            waiting += outside_links(path, content) if path.endswith((".md", ".ipynb")) else ()
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files outside docs/, give fragments of code a title, and mark interactive Python sessions.

    The search shows guides before pages of the reference, in which every word occurs.
    """
    origin = repository_path(page.file.src_uri)
    if origin == "docs/README.md":
        page.meta["hide"] = ["navigation", "toc"]  # the cards lead on
    if "/" not in page.file.src_uri:
        page.meta["search"] = {"boost": GUIDES_FIRST}
    markdown = _WORDS.sub(lambda start: start[1] + titled(start[2]), markdown)
    markdown = _SESSION.sub(r"```pycon\n\1\n```", markdown)
    return _outside_fences(markdown, lambda text: _LINK.sub(lambda link: rewritten(link[1], origin), text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """End paragraphs before a literal block in one colon, and show pictures in the colors that the reader chose.

    Docstrings have the two colons of reStructuredText there. On a code host, the reader's system chooses between the
    sources of a picture; the site has a switch for it.
    """
    return _PICTURE.sub(r'<img src="\2#only-light"\3><img src="\1#only-dark"\3>', html.replace("::</p>", ":</p>"))


def titled(words: str) -> str:
    """Return what follows the language of a block of code on the site: a title for fragments and for files."""
    files = [word.removeprefix("file=") for word in words.split() if word.startswith("file=")]
    title = files[0] if files else "fragment" if "fragment" in words.split() else ""
    return title and f' title="{title}"'


def _outside_fences(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def rewritten(link: str, origin: str) -> str:
    """Return a link on the page of the file `origin` as MkDocs expects it: relative to the path of that page."""
    target, _, anchor = link.partition("#")
    path = linked_path(target, origin)
    if path is None:
        return link
    folder = posixpath.dirname(site_path(origin))
    return posixpath.relpath(site_path(path), folder or ".") + (f"#{anchor}" if anchor else "")


def outside_links(origin: str, markdown: str) -> Iterator[str]:
    """Yield the paths, relative to the repository, of the files outside docs/ to which a page links."""
    for link in _LINK.findall(_FENCE.sub("", markdown)):
        path = linked_path(link.partition("#")[0], origin)
        if path is not None and not path.startswith("docs/"):
            yield path


def linked_path(target: str, origin: str) -> str | None:
    """Return the path in the repository that a relative link leads to; None for URLs, anchors and missing files.

    A folder has the path of its README.md, also if there is no such file.
    """
    if not target or re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if (ROOT / path).is_dir():
        return posixpath.join(path, "README.md")
    return path if (ROOT / path).is_file() else None


def site_path(path: str) -> str:
    """Return the path in the site's sources of a file in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md"):
        return f"repository/{path}"
    return f"repository/{path}.md" if path.startswith(AS_PAGES) else f"repository/{path}.txt"


def repository_path(src_uri: str) -> str:
    """Return the path in the repository of a page in the site's sources: the inverse of `site_path`."""
    if not src_uri.startswith("repository/"):
        return f"docs/{src_uri}"
    path = src_uri.removeprefix("repository/")
    file = path.removesuffix(".md")
    return file if (ROOT / file).is_file() else path


def page_of(path: str) -> str:
    """Return the text of the page for a path outside docs/.

    Markdown and plain copies are as in the file, and a notebook has its outputs. Others are a block of code. A folder
    without README.md is a list.
    """
    if path == SOURCE:
        return source_page()
    if not (ROOT / path).exists():
        return folder_page(posixpath.dirname(path))
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.startswith(AS_PAGES) or path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return notebooks.as_markdown(json.loads(text))
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"{UNSEARCHED}# {path}\n\n````{language}\n{text.rstrip()}\n````\n"


def source_page() -> str:
    """Return the page that leads to the folders of the source."""
    rows = "".join(f"- [{folder}]({folder})\n" for folder in SOURCES)
    return f"{UNSEARCHED}# Source of Interposer {release()}\n\n{rows}"


def folder_page(folder: str) -> str:
    """Return a page with links to the folders and files of source in a folder."""
    inside = sorted((ROOT / folder).iterdir(), key=lambda path: (path.is_file(), path.name))
    names = [path.name + "/" * path.is_dir() for path in inside if has_source(path)]
    rows = "".join(f"- [{name}]({name})\n" for name in names)
    return f"{UNSEARCHED}# {folder}\n\n{rows}"


def has_source(path: Path) -> bool:
    """Return True for a file of source, and for a folder that contains one and is not the result of a build."""
    if path.is_file():
        return path.suffix in LISTED
    return path.name not in {"build", "__pycache__"} and path.is_dir() and any(map(has_source, path.iterdir()))
