"""The code blocks of the documentation, and running them as a reader would: in an empty folder, in fresh interpreters.

The first word after the fence is the language of a block. The words after it say how the block is run:

``continued``
    The block continues the session of Python in the block before it. Every other block begins a fresh interpreter.
``fragment``
    The block is not run: it has names that the reader supplies, or shows what another machine prints.
``served``
    The block is run by another test, beside a server or a compiler.
``fails``
    The last command of the block ends with an exit status other than 0.
``varies``
    The numbers in the output of the commands are examples: others are expected on another machine.
``example``
    The commands are run, and their output is that of one machine: it is not compared.
``file=NAME``
    The block is the content of a file, which the reader saves under this name.
``needs=NAME``
    The block is skipped if NAME is neither a module that can be imported nor a program. Several names are separated by
    commas. ``CpuAcc`` is the native backend, which is not built on every machine.

All blocks of a page share one folder, which is empty at first. A sentence such as "Copy the folder `examples/digits`"
copies these files from the repository. A sentence with "root of the checkout" or "from a checkout" copies `examples`.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import interposer
from tests import warm

ROOT = Path(__file__).resolve().parent.parent
DISABLED = "INTERPOSER_DISABLED_BACKENDS"  # the other tests disable CpuAcc in it
NATIVE = Path(interposer.__file__).parent / "native"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF
WORDS = {"continued", "fragment", "served", "fails", "varies", "example"}
NUMBER = re.compile(r"~?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
LANGUAGES = {"python", "py"}
FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
COPIED = re.compile(r"\b[Cc]op(?:y|ied|ies)\s[^.`]*`(examples(?:/[\w.-]+)*)`")
CHECKOUT = re.compile(r"\b(?:root\s+of|from)\s+(?:the|a)\s+checkout")


@dataclass(frozen=True)
class Block:
    """A code block: its language, the words after it, its text, and the number of its first line on the page."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def session(self) -> bool:
        return self.language in LANGUAGES and bool(re.search(r"^>>> ", self.text, re.MULTILINE))

    @property
    def runs(self) -> bool:
        """Return True if this module runs the block, or writes its file."""
        return (
            bool(self.file) or self.language in {*LANGUAGES, "console"} and not {"fragment", "served"} & {*self.words}
        )

    @property
    def file(self) -> str:
        """The name of the file whose content the block is; empty for code."""
        return self._after("file=")

    def missing(self) -> list[str]:
        """Return the modules and backends that the block needs and that are not installed."""
        return [name for name in self._after("needs=").split(",") if name and not is_installed(name)]

    def unknown_words(self) -> set[str]:
        """Return the words after the language that have no meaning."""
        return {word for word in self.words if word not in WORDS and not word.startswith(("needs=", "file="))}

    def _after(self, start: str) -> str:
        return next((word.removeprefix(start) for word in self.words if word.startswith(start)), "")


def is_installed(name: str) -> bool:
    """Return True if a module can be imported, a program is on the path, or the backend CpuAcc was built."""
    if name == "CpuAcc":
        return any(path.stem.startswith("Interposer_CpuAcc") for path in NATIVE.glob("*.so"))
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


def blocks_of(text: str) -> list[Block]:
    """Return the code blocks of a page in reading order."""
    return [
        Block(*_language_and_words(fence[2]), fence[3], text.count("\n", 0, fence.start()) + 2)
        for fence in FENCE.finditer(text)
    ]


def _language_and_words(info: str) -> tuple[str, tuple[str, ...]]:
    first, *words = info.split() or [""]
    return first, tuple(words)


def commands_of(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command after ``$``, with the lines that continue it, and its output."""
    yield from re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def copy_files(text: str, folder: Path) -> None:
    """Copy to `folder` what the text of a page asks its reader to copy."""
    prose = FENCE.sub("", text)
    paths = {*COPIED.findall(prose), *(["examples"] if CHECKOUT.search(prose) else [])}
    for path in sorted(paths):
        source, target = ROOT / path, folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():  # other tests import modules of the examples
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)


def environment() -> dict[str, str]:
    """Return the environment of a reader: the installed command and CpuAcc are found, and the checkout is not.

    The command is a fork of a warm process, as `tests.warm` describes.
    """
    path = os.pathsep.join([str(Path(warm.command()).parent), sysconfig.get_path("scripts"), os.environ["PATH"]])
    disabled = [name for name in os.environ.get(DISABLED, "").split(",") if name != "CpuAcc"]
    changed = {"PATH": path, "COLUMNS": "200", DISABLED: ",".join(disabled)}
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | changed


class Interpreters:
    """Fresh interpreters of Python: copies of one process that has imported the public names of Interposer."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(Path(__file__).with_name("run_blocks.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def run(self, texts: list[tuple[str, int]], folder: Path) -> str:
        """Run blocks of Python (texts with their lines) in one new interpreter in `folder`; return what went wrong."""
        request = json.dumps({"blocks": texts, "folder": str(folder)})
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def run_page(text: str, folder: Path, interpreters: Interpreters) -> tuple[list[str], list[str]]:
    """Run the blocks of a page in reading order; return what went wrong, and the names of missing modules."""
    copy_files(text, folder)
    problems, missing = [], []
    for group in sessions(block for block in blocks_of(text) if block.runs):
        absent = [name for block in group for name in block.missing()]
        missing += absent
        if absent:
            continue
        if group[0].file:
            (folder / group[0].file).write_text(group[0].text, encoding="utf-8")
        elif group[0].language == "console":
            problems += _run_commands(group[0], folder)
        elif problem := interpreters.run([(block.text, block.line) for block in group], folder):
            problems.append(problem)
    return problems, missing


def sessions(blocks: Iterator[Block]) -> list[list[Block]]:
    """Return the blocks in groups: a block that continues another belongs to the last group of its kind."""
    groups: list[list[Block]] = []
    for block in blocks:
        earlier = [group for group in groups if kind(group[0]) == kind(block)] if "continued" in block.words else []
        if earlier:
            earlier[-1].append(block)
        else:
            groups.append([block])
    return groups


def kind(block: Block) -> tuple[str, bool]:
    return block.language, block.session


def is_expected(expected: str, output: str, varies: bool) -> bool:
    """Return True if a command printed what the page shows; with `varies`, except the numbers."""
    if varies:
        expected, output = NUMBER.sub("0", expected), NUMBER.sub("0", output)
    return doctest.OutputChecker().check_output(expected, output, FLAGS)


def _run_commands(block: Block, folder: Path) -> Iterator[str]:
    commands = list(commands_of(block.text))
    for number, (command, expected) in enumerate(commands, 1):
        moved = re.match(r"cd (\S+) && (.*)", command, re.DOTALL)
        place, command = (folder / moved[1], moved[2]) if moved else (folder, command)
        done = subprocess.run(
            ["bash", "-c", command], cwd=place, env=environment(), text=True, timeout=300, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        fails = "fails" in block.words and number == len(commands)
        if (done.returncode != 0) != fails:
            yield f"line {block.line}: exit status {done.returncode} of: {command}\n{done.stdout}"
        elif "example" not in block.words and not is_expected(expected, done.stdout, "varies" in block.words):
            yield f"line {block.line}: {command}\nexpected:\n{expected}\ngot:\n{done.stdout}"
